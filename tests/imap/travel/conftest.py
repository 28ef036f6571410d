"""A store whose snapshots users look into."""

import pytest

from store.check.wholecheck import check
from store.snapshots.snapshotreader import readers_of
from tests.support.conversations.scripts import Place
from tests.support.stores.stores import make_store


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A place of its own, whose snapshots are let go of in the end; nothing may be wrong with the store, and each
    content has one file."""
    store = make_store(tmp_path / "store")
    made = Place(store, monkeypatch)
    yield made
    monkeypatch.undo()
    assert not any(snapshot.users for snapshot in readers_of(store)._open.values())
    readers_of(store).tidy(0)
    assert not list((store.root / "snapshots").glob("*.past*"))
    assert check(store) == []
    store.close()
