"""A store for each test, checked when the test has ended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.check.wholecheck import check
from store.store import Store
from tests.support.stores.movepair import two_back_ends
from tests.support.stores.stores import make_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A fresh store with the users alice and bob; nothing may be wrong with it in the end."""
    store = make_store(tmp_path / "store")
    yield store
    assert check(store) == []
    store.close()


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two back ends, on the first of which are alice and bob; nothing may be wrong with either in the end."""
    with two_back_ends(tmp_path) as (one, two):
        yield one, two
        for store in (one, two):
            assert check(store) == []
