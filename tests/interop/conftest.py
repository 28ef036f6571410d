"""One server for all tests with mail clients: each takes accounts of its own."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import MEMORY
from tests.support.clients.clients import Mail
from tests.support.stores import everyfile

ACCOUNTS = 24           # as many as the tests take: each costs the hash of a password


@pytest.fixture(scope="module", autouse=True)
def every_file_is_described(request: pytest.FixtureRequest) -> Iterator[None]:
    """In docs/reference/files.md: of modules that are marked, whose servers' stores have nothing that a test has put
    there."""
    everyfile.NOWHERE.clear()
    yield
    if request.node.get_closest_marker("every_file"):
        assert sorted(everyfile.NOWHERE) == [], "tools/reference/filepage.py lacks these"


@pytest.fixture(scope="module")
def memory_path() -> Iterator[Path]:
    """A folder for the tests of a module, in memory where that is to be had."""
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def mail() -> Iterator[Mail]:
    """When all is done it must end well, and leave a store in which nothing is wrong."""
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        mail = Mail(Path(folder), ACCOUNTS)
        with mail.server:
            yield mail
            assert mail.server.stop() == 0
            mail.server.check()
            said = mail.server.log.read_text(errors="replace")
            assert "Traceback" not in said, said[said.index("Traceback"):][:4000]
