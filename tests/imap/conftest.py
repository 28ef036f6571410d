"""A store for the tests of IMAP: made once, its user is new for each test."""

import logging
import tempfile
import time
from pathlib import Path

import pytest

from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.sasl.scram import HASHES
from store.check.wholecheck import check
from store.mailboxes import deletion, firstuse
from store.net import authentication
from store.opening import make_empty_store, open_store
from store.partition.serials import META_KEY, meta_of
from store.settings import Settings
from store.users import lifecycle
from tests.support.conversations.scripts import Place
from tests.support.stores.purging import purge_mailboxes
from tests.support.stores.stores import HASH

MEMORY = Path("/dev/shm")       # a store has thousands of folders


@pytest.fixture(scope="session")
def shared_store():
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        root = Path(folder) / "store"
        make_empty_store(root)
        store = open_store(root, Settings(message_limit=100_000, disk_reserve=0, cache=4 << 20, special_mailboxes=()))
        authentication.attach(store, LoginSettings(slow_first=0, scram_keys=tuple(HASHES)))
        yield store
        store.close()


def on_disk(partition):
    """The epoch that a process that joins finds."""
    return meta_of(partition.states.get(META_KEY), partition.name)[0]


@pytest.fixture
def place(shared_store, monkeypatch, caplog):
    """Where a conversation takes place. Nothing may be wrong with the store in the end, and no bug in the log."""
    store = shared_store
    for user in ("alice", "bob"):
        firstuse.inbox(store, store.directory.add(user, HASH))
    made = Place(store, monkeypatch)
    yield made
    monkeypatch.undo()
    for partition in store.partitions.values():
        partition.files.drop_staged_names()
        assert not list(partition.files.staging.iterdir())
        assert partition.epoch == on_disk(partition), "a process that joins would give out other UIDs and MODSEQs"
    if not made.damaged:
        assert check(store) == []
    for entry in store.names(""):
        deletion.delete_mailbox(store, entry.name)
    for user in ("alice", "bob"):
        lifecycle.remove_mail(store, user)
        store.directory.remove(user)
    purge_mailboxes(store, time.time() + store.settings.purge_delay + 1)
    assert not [record for record in caplog.records if record.exc_info and record.levelno >= logging.ERROR] or made.bugs
