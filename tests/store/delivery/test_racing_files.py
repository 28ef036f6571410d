"""Who brings a message while somebody else brings the same content: behind another trace header, and a moment sooner.
Both are kept, each mailbox shows what came for it, and nobody is told that a file has been lost."""

import hashlib

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store import offload
from store.delivery.batch import BatchStore, one_by_one
from store.mailboxes import crosspartition, firstuse
from store.migration.messageimport import Contents, Known, add, new_rows
from store.partitions import partitionmove, volumes
from store.rebuild.desired import new_mailbox
from store.values import InternalDate
from tests.store.usermove.test_usermove import move
from tests.support.stores.stores import deliver

BODY = b"Subject: one\r\n\r\n" + b"text " * 300
TRACE = b"Return-Path: <a@example.org>\r\nReceived: by one\r\n"
OTHER = TRACE.replace(b"one", b"two")
LONGER = TRACE + b"X-Longer: yes\r\n"
ALICE, BOB = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX")
MID = hashlib.blake2b(BODY, digest_size=32).digest()
STEPS = ["add", "keep"]
HEADERS = pytest.mark.parametrize("other", [b"", OTHER, LONGER], ids=["none", "as long", "longer"])


def octets(store, name):
    mailbox, found = store.open_mailbox(store.entry(name)), []
    for row in mailbox.rows:
        with store.open_message(mailbox.entry, row) as file:
            found.append(file.read(0, file.size))
    return found


@pytest.fixture
def overtake(faults):
    """Have the content come to a mailbox just before the first call of that step of a landing."""
    def plan(step, store, mailbox, trace):
        done = []

        def first(self, *_):
            if not done and (step == "add" or self.batch):
                done.append(True)
                deliver(store, BODY, mailbox, trace=trace)

        faults.before(BatchStore, step, first)
        return done
    return plan


@HEADERS
@pytest.mark.parametrize("step", STEPS)
def test_a_user_from_another_back_end(ends, overtake, step, other):
    one, two = ends
    firstuse.inbox(two, two.directory.add("carol", "*"))
    deliver(one, BODY, "user/alice/INBOX", trace=TRACE)
    done = overtake(step, two, "user/carol/INBOX", other)
    move("alice", one, two)
    assert done and octets(two, ALICE) == [TRACE + BODY] and octets(two, MailboxName("carol", "INBOX")) == [
        other + BODY]


@HEADERS
@pytest.mark.parametrize("step", STEPS)
def test_a_copy_to_another_partition(store, overtake, step, other):
    volumes.add(store, "second")
    partitionmove.move_owner(store, "bob", "second")
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)
    done = overtake(step, store, "user/bob/INBOX", other)
    assert offload.now(crosspartition.copy_durably(
        store, store.entry(ALICE), store.entry(BOB), np.array([1], np.uint32))) == [2]
    assert done and octets(store, BOB) == [other + BODY, TRACE + BODY]


@HEADERS
@pytest.mark.parametrize("known", [MID, b""], ids=["by its digest", "by its octets"])
@pytest.mark.parametrize("trace", [TRACE, b""], ids=["behind a header", "bare"])
@pytest.mark.parametrize("step", STEPS)
def test_a_backup(store, overtake, step, trace, known, other):
    """From an archive, which says what the digest is; or a folder of files."""
    partition = store.partitions["primary"]
    contents = Contents(partition, one_by_one)
    done = overtake(step, store, "user/bob/INBOX", other)
    digest = contents.store([trace + BODY], digest=known, trace=len(trace) if known else 0)
    contents.keep()
    rows, _, had = new_rows(contents, [Known(digest, len(trace + BODY), InternalDate(1, 0))])
    added = add(partition, store.entry(ALICE), new_mailbox(ALICE, rows))
    assert done and had == [True] and added.uids == {0: 1}
    assert octets(store, ALICE) == [trace + BODY] and octets(store, BOB) == [other + BODY]
    partition.files.drop_staged_names()
    assert list(partition.files.staging.glob("*")) == []
