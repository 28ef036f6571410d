"""Stores with a standby."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.check.wholecheck import check
from store.store import Store
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


@pytest.fixture
def standby(store: Store, tmp_path: Path) -> Standby:
    return Standby(store, tmp_path / "two")
