"""Messages that differ only at their heads become one file, and every record shows what it showed before."""

import hashlib
import os
import random

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.check import scrub
from store.check.wholecheck import check
from store.mailboxes import deletion, joining, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.deletion import undelete_mailbox, undelete_messages
from store.mailboxes.expunge import remove
from tests.support.stores.stores import SMALL, deliver, make_store, reopen_after_crash

pytestmark = pytest.mark.long

TRACE = b"Return-Path: <a@example.org>\r\nReceived: from a by b;\r\n\tMon, 1 Jan 2024 00:00:00 +0000\r\n"
LARGE = b"0123456789abcdef" * 400 + b"\r\n"
BELOW = b"From: a@example.org\r\nSubject: hello\r\nMIME-Version: 1.0\r\n\r\n" + LARGE


def texts(store):
    """All that every record shows: by mailbox and UID the octets, and what FETCH says from the cache."""
    found = {}
    for entry in store.mailboxes.all():
        box = store.open_mailbox(entry)
        for row, cached in zip(box.rows, store.cached(box.entry, box.rows), strict=True):
            with store.open_message(box.entry, row) as file:
                octets = file.read(0, file.size)
                parts = cached.parts[()]
                shift = len(file.head) + cached.trace - int(row["header_length"])
                body = file.read(parts.body_start + shift, file.size)
            assert len(octets) == row["size"]
            found[str(entry.name), int(row["uid"])] = (
                octets, body, int(row["flags"]), int(row["modseq"]), int(row["received"]), cached.envelope,
                cached.bodystructure)
    return found


def run(store, **options):
    return joining.join(store, store.partitions["primary"], **options)


def in_use(store):
    return sorted(record.size for _, record in store.partitions["primary"].refs.all() if record.references)


@pytest.fixture
def clean(store):
    """Scrub reads every file: nothing may be wrong."""
    yield store
    assert [finding for folder in scrub.scrub(store.partitions["primary"], scrub.Pace())
            for finding in folder.findings] == []


def test_the_same_message_on_two_ways(clean):
    store = clean
    deliver(store, b"Received: from x by y for alice\r\n" + BELOW, "user/alice/INBOX", trace=TRACE)
    deliver(store, b"Received: from x by y for bob\r\n" + BELOW, "user/bob/INBOX", trace=TRACE)
    before = texts(store)
    assert len(in_use(store)) == 2
    could = run(store, change=False)
    assert (could.contents, could.files, could.made, could.written) == (1, 2, 1, len(BELOW))
    assert texts(store) == before and len(in_use(store)) == 2
    done = run(store)
    assert (done.contents, done.files, done.made, done.records, dict(done.left)) == (1, 2, 1, 2, {})
    assert in_use(store) == [len(BELOW)] and texts(store) == before
    assert run(store).contents == 0


def test_what_was_delivered_and_what_was_stored_by_another(clean):
    """The content is there already, under its own digest: nothing is written."""
    store = clean
    deliver(store, BELOW, "user/alice/INBOX", trace=TRACE)
    deliver(store, TRACE.replace(b"a by b", b"c by d") + BELOW, "user/bob/INBOX")
    deliver(store, TRACE + BELOW, "user/bob/INBOX")
    before = texts(store)
    done = run(store)
    assert (done.files, done.written, done.records) == (2, 0, 2)
    assert in_use(store) == [len(TRACE + BELOW)] and texts(store) == before
    rows = store.open_mailbox(store.entry(MailboxName("bob", "INBOX"))).rows
    assert [bool(head) for head in rows["head"].tolist()] == [True, False]      # that trace header is in the file


def test_header_fields_of_their_own_and_copies(clean):
    store = clean
    for user in ("alice", "bob"):
        deliver(store, b"X-Way: " + user.encode() + b"\r\n" + BELOW, f"user/{user}/INBOX", trace=TRACE,
                header=b"Delivered-To: {}\r\n")
    alice = store.entry(MailboxName("alice", "INBOX"))
    other = namespace.create_mailbox(store, MailboxName("alice", "RecordBuffers"))
    copy_messages(store, alice, other, [1])
    before = texts(store)
    assert run(store).records == 3
    assert texts(store) == before and in_use(store) == [len(BELOW)]


@pytest.mark.parametrize("field", [b"Content-Type: text/html\r\n", b"Subject: another\r\n", b"From: b@example.org\r\n"])
def test_fields_that_the_cache_is_made_of(clean, field):
    """They end a head: these two are not the same message."""
    store = clean
    deliver(store, b"Received: one\r\n" + field + BELOW, "user/alice/INBOX")
    deliver(store, b"Received: two\r\n" + BELOW, "user/bob/INBOX")
    assert run(store).contents == 0


def test_another_body_small_messages_and_strange_ones(clean):
    store = clean
    deliver(store, b"Received: one\r\n" + BELOW, "user/alice/INBOX")
    deliver(store, b"Received: two\r\n" + BELOW[:-3] + b"x\r\n", "user/alice/INBOX")
    for way in (b"one", b"two"):
        deliver(store, b"Received: " + way + b"\r\nFrom: a@example.org\r\n\r\n" + b"small" * 30, "user/alice/INBOX")
        deliver(store, b"Received: " + way + b"\r\n\r\n" + LARGE, "user/alice/INBOX")       # nothing but trace fields
        deliver(store, b"Received: " + way + b"\r\nno field\r\n\r\n" + LARGE, "user/alice/INBOX")
    before = texts(store)
    assert run(store).contents == 0 and texts(store) == before
    assert run(store, smallest=1).contents == 1 and texts(store) == before          # the small ones


def test_a_deleted_mailbox_and_expunged_messages_can_come_back(clean):
    store = clean
    other = namespace.create_mailbox(store, MailboxName("bob", "Old"))
    deliver(store, b"Received: one\r\n" + BELOW, "user/alice/INBOX")
    deliver(store, b"Received: two\r\n" + BELOW, "user/bob/INBOX", "user/bob/Old")
    before = texts(store)
    deletion.delete_mailbox(store, other.name)
    bob = store.entry(MailboxName("bob", "INBOX"))
    done = run(store)
    assert done.records == 2 and list(done.left) == ["deleted mailboxes or other records have them"]
    remove(store, bob, [1])
    undelete_messages(store, bob)
    undelete_mailbox(store, other.name)
    after = texts(store)
    for name in (("user/alice/INBOX", 1), ("user/bob/Old", 1)):
        assert after[name][:2] == before[name][:2]
    assert after["user/bob/INBOX", 2][0] == before["user/bob/INBOX", 1][0]


def test_an_open_session_reads_on(clean):
    """It has a view with the old records; the next one has the new ones, and no other MODSEQs or flags."""
    store = clean
    deliver(store, b"Received: one\r\n" + BELOW, "user/alice/INBOX")
    deliver(store, b"Received: two\r\n" + BELOW, "user/alice/INBOX")
    alice = store.entry(MailboxName("alice", "INBOX"))
    view = store.open_mailbox(alice)
    run(store)
    with store.open_message(view.entry, view.rows[0]) as file:
        assert file.read(0, file.size) == b"Received: one\r\n" + BELOW
    new = store.refresh(view)
    assert new is not view and len({bytes(digest) for digest in new.rows["digest"].tolist()}) == 1
    assert new.rows["modseq"].tolist() == view.rows["modseq"].tolist()


class Stop(Exception):
    pass


@pytest.mark.parametrize("seed", range(int(os.environ.get("RELINK_KILLS", "4"))))
def test_cut_off_anywhere_and_done_again(tmp_path, monkeypatch, seed, faults):
    """The process ends between two of its steps: everything shows what it showed; the next run joins the rest."""
    chance = random.Random(seed)
    store = make_store(tmp_path / "store", ("alice", "bob"), evolve(SMALL, sync="everything"))
    for number in range(6):
        for user in ("alice", "bob"):
            deliver(store, b"Received: by %s\r\n" % user.encode() + BELOW.replace(b"hello", b"hello %d" % number),
                    f"user/{user}/INBOX", trace=TRACE)
    before = texts(store)
    partition = store.partitions["primary"]
    left = iter(range(chance.randint(1, 6) - 1))
    monkeypatch.setattr(joining, "BATCH", 2)
    monkeypatch.setattr(joining, "CONTENTS_AT_A_TIME", chance.choice((1, 2, 100)))
    faults.fail(type(partition), "transact", Stop, when=lambda *_, **__: next(left, None) is None)
    with pytest.raises(Stop):
        run(store)
    faults.mend()
    store = reopen_after_crash(store)
    assert texts_without_modseqs(store) == {key: (*value[:3], *value[4:]) for key, value in before.items()}
    run(store)
    assert texts_without_modseqs(store) == {key: (*value[:3], *value[4:]) for key, value in before.items()}
    assert len(in_use(store)) == 6 and run(store).contents == 0
    assert check(store) == []
    store.close()


def texts_without_modseqs(store):
    return {key: (*value[:3], *value[4:]) for key, value in texts(store).items()}


def test_heads():
    head = b"Return-Path: <>\r\nReceived: a\r\n\tb\r\nX-Spam: no\r\n"
    assert joining.head_length(head + BELOW) == len(head)
    assert joining.head_length(BELOW) == 0
    assert joining.head_length(head + b"content-transfer-encoding: base64\r\n") == len(head)
    assert joining.head_length(head + b"\r\nbody") is None
    assert joining.head_length(head) is None
    assert joining.head_length(b"X-Long: " + b"x" * joining.HEAD_LIMIT + b"\r\n" + BELOW) is None


def test_the_new_file_is_named_by_its_digest(store):
    deliver(store, b"Received: one\r\n" + BELOW, "user/alice/INBOX")
    deliver(store, b"Received: two\r\n" + BELOW, "user/alice/INBOX")
    run(store)
    partition = store.partitions["primary"]
    partition.files.drop_staged_names()
    path = partition.files.path(hashlib.blake2b(BELOW, digest_size=32).digest())
    assert open(path, "rb").read() == BELOW and os.stat(path).st_nlink == 1
