"""A store for the tests of LMTP: made once, its users are new for each test."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.sasl.scram import HASHES
from store.check.wholecheck import check
from store.net import authentication
from store.opening import make_empty_store, open_store
from store.settings import Settings
from tests.conftest import MEMORY
from tests.lmtp.conversation import Place
from tests.support.stores.purging import purge, purge_mailboxes


@pytest.fixture(scope="session")
def shared_store():
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        root = Path(folder) / "store"
        make_empty_store(root)
        store = open_store(root, Settings(message_limit=400_000, disk_reserve=0, special_mailboxes=()))
        authentication.attach(store, LoginSettings(slow_first=0, scram_keys=tuple(HASHES)))
        yield store
        store.close()


@pytest.fixture
def store(shared_store):
    """The store without users; after the test nothing may be wrong with it, or left in its staging folder."""
    yield shared_store
    for partition in shared_store.partitions.values():
        partition.files.drop_staged_names()
        assert not list(partition.files.staging.iterdir())
    assert check(shared_store) == []
    Place(shared_store, None).remove_users()
    later = time.time() + shared_store.settings.purge_delay + 1     # what stays makes each check longer
    purge_mailboxes(shared_store, later)
    for partition in shared_store.partitions.values():
        purge(partition, later)


@pytest.fixture
def place(store, monkeypatch):
    """Where a script is played."""
    return Place(store, monkeypatch)
