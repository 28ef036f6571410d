"""Message files that nothing claims: they go to the administrator's mailbox, with all that they say of themselves."""

import hashlib
import os

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import StoreError
from store.mailboxes.expunge import remove
from store.mend import orphans
from store.message.arrivaldate import arrived
from store.rebuild.outcome import Correction
from store.store import Store
from store.values import InternalDate
from tests.support.stores.stores import SMALL, deliver, let_go, unlist

pytestmark = pytest.mark.long

TRACE = (b"Return-Path: <eve@example.net>\r\nReceived: from a by b with LMTP;\r\n"
         b"\tTue, 2 Jan 2024 03:04:05 +0200\r\n")
BODY = b"Date: Mon, 1 Jan 2024 00:00:00 +0000\r\nSubject: lost\r\n\r\nlost\r\n"
PLACE = MailboxName.parse("public/Lost/primary")


def name_of(body):
    return hashlib.blake2b(body, digest_size=32).hexdigest()


def put(partition, octets, name):
    path = partition.files.folder / name[0] / name[1:3] / name
    path.write_bytes(octets)
    return path


def texts(store, name=PLACE):
    entry = store.entry(name)
    view = store.open_mailbox(entry)
    return [store.open_message(entry, row).read(0, int(row["size"])) for row in view.rows]


def test_it_goes_there_whole_and_once(store):
    partition = store.partitions["primary"]
    put(partition, TRACE + BODY, name_of(BODY))
    only_said = orphans.take_in(store, partition, change=False)
    assert [finding.what for finding in only_said.left] == ["nothing refers to this file"]
    assert store.mailboxes.find(PLACE) is None
    taken = orphans.take_in(store, partition)
    assert taken.corrections == [Correction(f"nothing referred to it: it is in {PLACE}", f"message {name_of(BODY)}")]
    assert texts(store) == [TRACE + BODY] and taken.left == []
    row, = store.open_mailbox(store.entry(PLACE)).rows
    assert (int(row["received"]), int(row["zone"])) == (1704157445, 120)       # that of the Received field
    again = orphans.take_in(store, partition)
    assert (again.corrections, again.left) == ([], [])
    deliver(store, BODY, "user/alice/INBOX", trace=TRACE)           # the next one with that content is the same file
    assert check(store) == []


def test_a_file_with_another_name_gets_its_own(store):
    partition = store.partitions["primary"]
    wrong = [put(partition, BODY, name_of(b"another")), put(partition, BODY + b"x", "0ff" + "1" * 60),
             put(partition, BODY + b"y", "0ffnonsense.tmp")]
    taken = orphans.take_in(store, partition)
    assert {correction.where[8:] for correction in taken.corrections} == {
        name_of(BODY), name_of(BODY + b"x"), name_of(BODY + b"y")}
    assert sorted(texts(store)) == sorted([BODY, BODY + b"x", BODY + b"y"])
    assert not any(path.exists() for path in wrong) and check(store) == []


def test_what_waits_for_the_purge_and_what_is_used_stays(store):
    partition = store.partitions["primary"]
    deliver(store, BODY, "user/alice/INBOX")
    deliver(store, BODY + b"2", "user/alice/INBOX")
    remove(store, store.entry(MailboxName.parse("user/alice/INBOX")), [2])
    taken = orphans.take_in(store, partition)
    assert (taken.corrections, taken.left) == ([], [])
    copy = put(partition, BODY, "0ff" + "2" * 61)                   # what it holds is known under its own name
    assert [correction.what for correction in orphans.take_in(store, partition).corrections] == [
        f"it was a second file of message {name_of(BODY)}, and has been removed"]
    assert not copy.exists()


def test_a_record_without_references_that_does_not_wait(store):
    """As a count of references leaves it when the last record was lost."""
    partition = store.partitions["primary"]
    deliver(store, BODY, "user/alice/INBOX")
    inbox = store.entry(MailboxName.parse("user/alice/INBOX"))
    digest = bytes.fromhex(name_of(BODY))
    remove(store, inbox, [1])
    let_go(store)
    record = partition.refs.find(digest)
    unlist(partition, digest)
    partition.transact(lambda txn: txn.refs.write(digest, evolve(record, released=0), txn.handle))
    assert [correction.where for correction in orphans.take_in(store,
                                                               partition).corrections] == [f"message {digest.hex()}"]
    assert texts(store) == [BODY]


@pytest.mark.parametrize(("setting", "why"), [("", "is empty"), ("user/nobody/Lost", "there is no user nobody"),
                                              ("nonsense", "stay where they are")])
def test_without_a_place_for_it_it_stays(tmp_path, store, setting, why):
    partition = store.partitions["primary"]
    path = put(partition, BODY, name_of(BODY))
    store.settings = evolve(SMALL, lost_mailbox=setting)
    taken = orphans.take_in(store, partition)
    assert why in taken.left[0].what + taken.left[0].where and len(taken.left) == 1 and path.exists()
    path.unlink()


def test_the_postmaster_may_have_it(store):
    store.settings = evolve(SMALL, lost_mailbox="user/bob/Lost")
    partition = store.partitions["primary"]
    put(partition, BODY, name_of(BODY))
    orphans.take_in(store, partition)
    assert texts(store, MailboxName.parse("user/bob/Lost/primary")) == [BODY]


@pytest.mark.parametrize(("head", "seconds", "zone"), [
    (TRACE + BODY, 1704157445, 120),
    (BODY, 1704067200, 0),
    (b"Received: by b; nonsense\r\n" + BODY, 1704067200, 0),
    (b"Received: by b;\r\n Mon, 1 Jan 2024 10:00:00 -0530\r\nReceived: by a; Mon, 1 Jan 2024 01:00:00 +0000\r\n\r\n",
     1704123000, -330),
    (b"Date: Mon, 1 Jan 2124 00:00:00 +0000\r\n\r\n", 77, 0),                   # nobody has mail of the future
    (b"Date: Mon, 1 Jan 1924 00:00:00 +0000\r\n\r\n", 77, 0),
    (b"Date: Mon, 99 Foo 2024 77:00:00 +9999\r\n\r\nDate: Mon, 1 Jan 2024 00:00:00 +0000\r\n", 77, 0),
    (b"\xff\x00Date:\xff\r\n", 77, 0),
    (b"", 77, 0),
])
def test_when_it_came(head, seconds, zone):
    """RFC 5321 §4.4, RFC 5322 §3.6.1; the topmost Received field is the last one that was put in front."""
    assert arrived(head, 77.5) == InternalDate(seconds, zone)


def test_it_is_not_taken_while_it_is_claimed(store, faults):
    """A delivery of the same content comes between our look and our transaction."""
    partition = store.partitions["primary"]
    put(partition, BODY, name_of(BODY))
    faults.after(orphans, "_read", lambda *_: deliver(store, BODY, "user/alice/INBOX"))
    assert orphans.take_in(store, partition).corrections == []
    assert texts(store, MailboxName.parse("user/alice/INBOX")) == [BODY] and texts(store) == []


def test_a_file_that_cannot_be_read_is_told_of(store, faults):
    partition = store.partitions["primary"]
    path = put(partition, BODY, name_of(BODY))
    faults.fail(orphans, "content", StoreError(orphans.Problem.UNAVAILABLE))
    assert [finding.where for finding in orphans.take_in(store, partition).left] == [str(path)]
    assert isinstance(store, Store) and os.path.exists(path)
    path.unlink()
