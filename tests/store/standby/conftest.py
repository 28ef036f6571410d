"""Stores with a standby."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.check.wholecheck import check
from store.store import Store
from tests.support.stores.everyfile import nowhere_described
from tests.support.stores.standbypair import Standby, work
from tests.support.stores.stores import make_store
from tests.support.stores.whole import random_store


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    made = random_store(tmp_path / "one", 5) if getattr(request, "param", "") else make_store(
        tmp_path / "one", ("alice", "bob", "carol@example.com"))
    work(made, 0)
    yield made
    assert check(made) == []
    made.close()


@pytest.fixture(autouse=True)
def every_file_is_described(tmp_path: Path) -> Iterator[None]:
    """In docs/reference/files.md."""
    yield
    for root in tmp_path.iterdir():
        if (root / "run").is_dir():
            assert nowhere_described(root) == [], "tools/reference/filepage.py lacks these"


@pytest.fixture
def standby(store: Store, tmp_path: Path) -> Standby:
    return Standby(store, tmp_path / "two")
