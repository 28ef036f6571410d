"""Mailboxes and the list of them while the disk is full or fails: the client hears that it cannot be done now (RFC 5530
§3, UNAVAILABLE), and its connection goes on. When the disk is well again, the same command does it."""

import errno
import os

import pytest
from twisted.internet.defer import Deferred

from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Deadlock, Failure, Unflushed
from store.delivery.durable import Durability
from store.housekeeping import interrupted
from store.mailboxes import subscribing
from tests.support.faults.planted import Faults

COMMANDS = {
    b"CREATE New": b"LIST \"\" New",
    b"CREATE New (USE (\\Archive))": b"LIST (SPECIAL-USE) \"\" New",
    b"RENAME Old Newer": b"LIST \"\" Newer",
    b"RENAME INBOX Newest": b"LIST \"\" Newest",
    b"DELETE Old": None,
    b"SUBSCRIBE Old": b"LSUB \"\" Old",
    b"UNSUBSCRIBE INBOX": None,
    b"SETACL Old bob lr": b"GETACL Old",
    b"DELETEACL Old bob": b"GETACL Old"}


@pytest.fixture
def wire(place):
    place.have("INBOX", "one two")
    place.have("Old", "")
    subscribing.subscribe(place.store, "alice", "INBOX")
    wire = place.connect()
    wire.send(b"x LOGIN alice secret\r\n")
    assert b"x OK" in wire.received()
    return wire


def said(wire, command):
    """What comes of it."""
    wire.send(b"a " + command + b"\r\n")
    return wire.received()


def failing(faults, where, error):
    """From here on nothing gets into the databases; what only reads goes on."""
    faults.fail(Env, where, error, when=lambda *_, reads=False, **__: not reads)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("error", "code"), [
    (Failure(errno.ENOSPC, "no room"), b"UNAVAILABLE"), (Failure(errno.EIO, "no disk"), b"UNAVAILABLE"),
    (Deadlock[0](-30993, "deadlock"), b"INUSE")])
def test_nothing_has_been_done(place, wire, command, error, code):
    with Faults() as faults:
        failing(faults, "begin", error)
        assert said(wire, command).startswith(b"a NO [%b] " % code)
        assert said(wire, b"NOOP") == b"a OK NOOP completed\r\n"
    done = said(wire, command)
    assert done.startswith(b"a OK "), done
    if COMMANDS[command]:
        assert said(wire, COMMANDS[command]).startswith(b"* ")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_log_cannot_be_written(place, wire, command, code):
    """What may have been done is not answered: the session ends. What is not begun is refused. Housekeeping finishes
    what is half done."""
    with Faults() as faults:
        failing(faults, "flush", Unflushed(code, os.strerror(code)))
        answer = said(wire, command)
        if command.startswith((b"CREATE", b"RENAME INBOX")):     # a new UIDVALIDITY comes first
            assert answer.startswith(b"a NO [UNAVAILABLE] ")
            assert said(wire, b"NOOP") == b"a OK NOOP completed\r\n"
        else:
            assert answer.startswith(b"* BYE [UNAVAILABLE] ") and b"\r\na " not in answer and wire.closed
            wire = place.connect()
            wire.send(b"x LOGIN alice secret\r\n")
            assert b"x OK" in wire.received()
    assert said(wire, command).startswith((b"a OK ", b"a NO [ALREADYEXISTS] ", b"a NO [NONEXISTENT] "))
    for item in list(place.store.mailboxes.pending.all()):
        interrupted.finish(place.store, item)


class _Disk(Durability):
    """Takes its time: `syncs` are under way."""

    def __init__(self):
        self.syncs = []

    def log(self, partition, staged=()):
        self.syncs.append(Deferred())
        return self.syncs[-1]


@pytest.fixture
def disk(place, wire):
    """The disk is slow from here on, and INBOX is selected."""
    assert b"a OK" in said(wire, b"SELECT INBOX")
    disk, before = _Disk(), place.store.owned.get(Durability, Durability)
    place.store.owned.put(Durability, disk)
    yield disk
    place.store.owned.put(Durability, before)


STORES = {
    b"STORE 1 +FLAGS (\\Seen)": b"* 1 FETCH (FLAGS (\\Recent \\Seen))\r\n",
    b"STORE 1:2 +FLAGS (\\Seen)": b"* 1 FETCH (FLAGS (\\Recent \\Seen))\r\n* 2 FETCH (FLAGS (\\Recent \\Seen))\r\n",
    b"STORE 1 +FLAGS.SILENT (\\Seen)": b""}


@pytest.mark.parametrize("command", STORES)
def test_nothing_of_a_store_is_said_before_it_is_on_disk(wire, disk, command):
    assert said(wire, command) == b""
    disk.syncs.pop().callback(None)
    answer = wire.received()
    assert sorted(answer.replace(b"\\Seen \\Recent", b"\\Recent \\Seen").splitlines(True)[:-1]) == STORES[
        command].splitlines(True)
    assert answer.endswith(b"a OK STORE completed\r\n") and not disk.syncs


@pytest.mark.parametrize("command", STORES)
def test_nothing_of_a_store_is_said_that_may_not_be_on_disk(wire, disk, command):
    """The session ends without an answer (`Unflushed`): another one finds out what has become of it."""
    assert said(wire, command) == b""
    disk.syncs.pop().errback(Unflushed(errno.EIO, "no disk"))
    answer = wire.received()
    assert answer.startswith(b"* BYE [UNAVAILABLE] ") and answer.count(b"\n") == 1 and wire.closed


def test_a_mailbox_whose_id_could_not_be_kept_is_made_when_there_is_room(place, wire):
    """CREATE fails before its row is in the list: it is not there, and the next CREATE of that name makes it."""
    with Faults() as faults:
        failing(faults, "flush", Unflushed(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        assert said(wire, b"CREATE New").startswith(b"a NO [UNAVAILABLE] ")
        assert said(wire, b"LIST \"\" New") == b"a OK LIST completed\r\n"
        assert said(wire, b"APPEND New {4+}\r\nText").startswith(b"a NO [TRYCREATE] ")
    assert said(wire, b"CREATE New") == b"a OK CREATE completed\r\n"
    assert b"a OK [APPENDUID " in said(wire, b"APPEND New {21+}\r\nSubject: 1\r\n\r\nText\r\n\r\n")
