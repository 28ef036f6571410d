"""Two back ends for a test, checked when it has ended. (One store: tests/conftest.py.)"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.check.wholecheck import check
from store.store import Store
from tests.support.stores.movepair import two_back_ends


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two back ends, on the first of which are alice and bob; nothing may be wrong with either in the end."""
    with two_back_ends(tmp_path) as (one, two):
        yield one, two
        for store in (one, two):
            assert check(store) == []
