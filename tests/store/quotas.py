"""What tests of quota do."""

import pytest

from mboxlist.names import MailboxName
from store.delivery.commit import Delivered
from store.errors import StoreError
from store.mailboxes import firstuse, namespace
from store.opening import make_empty_store, open_store
from store.partition.partition import Partition
from store.quota import roots
from tests.support.stores.stores import HASH, SMALL, deliver

DAY = 86400
NOW = 1_800_000_000
BODY = b"Subject: x\r\n\r\n".ljust(100, b"x")


def admit(store, entry, octets):
    """What LMTP asks at RCPT."""
    partition = store.partition_of(entry)
    roots.admit(store, partition, partition.state(entry.id).quota_root, octets)


def body(number, size=100):
    return (b"Subject: %d\r\n\r\n" % number).ljust(size, b"x")


def fill(store, count, mailbox="user/alice/INBOX", size=100, first=0):
    """Deliver so many messages of that size; all must be taken."""
    for number in range(first, first + count):
        outcome, = deliver(store, body(number, size), mailbox)
        assert isinstance(outcome, Delivered), outcome


def set_clock(store, now):
    for partition in store.partitions.values():
        partition.quotas.clock = lambda: now


def problem(store, size=100, mailbox="user/alice/INBOX", number=999):
    """What a delivery of that size comes to: None when it is taken."""
    outcome, = deliver(store, body(number, size), mailbox)
    return outcome.problem if isinstance(outcome, StoreError) else None


def use(store, root):
    found = roots.quota(store, root)
    return found.octets, found.messages


def make(store, *paths, owner="alice"):
    return [namespace.create_mailbox(store, MailboxName(owner, path)) for path in paths]


def refusal(work, *arguments, **more):
    with pytest.raises(StoreError) as error:
        work(*arguments, **more)
    return error.value.problem


def two_partitions(tmp_path):
    root = tmp_path / "store"
    make_empty_store(root)
    Partition.make(root / "partitions" / "second")
    store = open_store(root, SMALL)
    firstuse.inbox(store, store.directory.add("alice", HASH))
    firstuse.inbox(store, store.directory.add("bob@b.org", HASH, partition="second"))
    firstuse.inbox(store, store.directory.add("carol@b.org", HASH))
    return store
