"""A change of many messages that is refused half way: the client hears what is done before it hears NO (RFC 3501 §7),
and POP3's QUIT says that some messages were not removed (RFC 1939 §6)."""

import re

import pytest

from mboxlist.names import MailboxName
from pop3.maildrop import Maildrop
from pop3.settings import Settings
from pop3.update import update
from store import offload
from store.errors import Problem, StoreError
from store.mailboxes import copymessages, deletion
from store.mailboxes.flagchanges import change_flags
from store.partition.partition import Partition
from store.tables import slices
from store.tables.index import CHUNK
from store.values import Flag, FlagAction, Flags
from tests.support.faults.planted import Faults

MANY = CHUNK + 10


@pytest.fixture
def wire(place, monkeypatch):
    monkeypatch.setattr(slices, "UNITS", 8)
    place.have("INBOX", " ".join(f"m{number}" for number in range(MANY)))
    change_flags(place.store, place.entry("INBOX"), range(1, MANY + 1), FlagAction.ADD, Flags(Flag.DELETED))
    wire = place.connect()
    wire.send(b"x LOGIN alice secret\r\ny SELECT INBOX\r\n")
    assert b"y OK" in wire.received()
    return wire


def test_store_tells_the_flags_that_are_changed(place, wire):
    with Faults() as faults:
        faults.fail_second(Partition, "transact", StoreError(Problem.DISK_FULL))
        wire.send(b"a STORE 1:* +FLAGS (\\Flagged)\r\n")
    said = wire.received()
    assert b"\r\na NO [UNAVAILABLE] Done in part: " in said
    told = {int(number) for number in re.findall(rb"\* (\d+) FETCH \([^\r]*Flagged", said)}
    there = [row["uid"].item() for row in place.store.open_mailbox(place.entry("INBOX")).rows
             if row["flags"] & Flag.FLAGGED]
    assert told == set(there) and 0 < len(there) < MANY


@pytest.mark.parametrize("command", [b"EXPUNGE", b"UID EXPUNGE 1:*"])
def test_expunge_tells_which_are_gone(place, wire, command):
    with Faults() as faults:
        faults.fail_second(Partition, "transact", StoreError(Problem.DISK_FULL))
        wire.send(b"a " + command + b"\r\n")
    said = wire.received()
    assert b"\r\na NO [UNAVAILABLE] Done in part: " in said
    left = len(place.store.open_mailbox(place.entry("INBOX")).rows)
    assert said.count(b"EXPUNGE\r\n") == MANY - left and 0 < left < MANY


def moves(*given, **_):
    """A transaction that moves a piece."""
    return getattr(getattr(given[-1], "func", None), "__name__", "") == "some"


def test_rename_of_inbox_tells_which_have_left_it(place, wire):
    """RFC 3501 §6.3.5: the messages move, and INBOX stays. What has been moved is told by EXPUNGE before the NO."""
    with Faults() as faults:
        faults.fail_second(Partition, "transact", StoreError(Problem.DISK_FULL), moves)
        wire.send(b"a RENAME INBOX new\r\n")
    said = wire.received()
    assert b"\r\na NO [UNAVAILABLE] Done in part: " in said
    moved = len(place.store.open_mailbox(place.entry("new")).rows)
    left = len(place.store.open_mailbox(place.entry("INBOX")).rows)
    assert said.count(b"EXPUNGE\r\n") == moved == MANY - left and 0 < left < MANY


@pytest.mark.parametrize("stays", [False, True])
def test_rename_of_inbox_that_moves_nothing_leaves_no_new_mailbox_or_says_so(place, wire, stays):
    with Faults() as faults:
        faults.fail(copymessages, "slices", StoreError(Problem.DISK_FULL))
        if stays:
            faults.fail(deletion, "delete_mailbox", StoreError(Problem.DISK_FULL))
        wire.send(b"a RENAME INBOX new\r\n")
    said = wire.received()
    assert b"a NO [UNAVAILABLE] " in said and b"EXPUNGE" not in said
    assert (b"Done in part: " in said) == stays
    assert (place.store.mailboxes.find(MailboxName("alice", "new")) is not None) == stays


def test_quit_says_that_some_are_not_removed(place, wire):
    mailbox = place.store.open_mailbox(place.entry("INBOX"))
    drop = Maildrop(mailbox, mailbox.rows, None)
    for number in range(1, MANY + 1):
        drop.delete(number)
    with Faults() as faults:
        faults.fail_second(Partition, "transact", StoreError(Problem.DISK_FULL))
        assert offload.now(update(place.store, Settings(), drop, "test")) == -1
    assert 0 < len(place.store.open_mailbox(place.entry("INBOX")).rows) < MANY
