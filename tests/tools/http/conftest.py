"""A browser for each process of tests, and for each test a page with cookies of its own."""

from collections.abc import Iterator

import pytest

from tests.support.clients.chromium import Browser, Chromium, running


@pytest.fixture(scope="session")
def chromium_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """It takes seconds to start."""
    with running(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def browser(chromium_process: Chromium) -> Iterator[Browser]:
    """A page."""
    with chromium_process.context() as found:
        yield found
