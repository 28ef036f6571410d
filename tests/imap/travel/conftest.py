"""A store whose snapshots users look into."""

import pytest

from store.check import check
from tests.support.scripts import Place
from tests.support.stores import make_store


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A place of its own, whose snapshots are let go of in the end; nothing may be wrong with the store, and each
    content has one file."""
    store = make_store(tmp_path / "store")
    made = Place(store, monkeypatch)
    yield made
    monkeypatch.undo()
    assert not any(past.users for past in store.pasts._open.values())
    store.pasts.tidy(0)
    assert not list((store.root / "snapshots").glob("*.past*"))
    assert check(store) == []
    store.close()
