"""A store that is held still while others copy its volumes: who reads goes on, who writes waits, and the event loop
does not. Were it to wait here, the test would never end."""

from base64 import b64encode

import pytest

from mboxlist.engine.transact import transact
from store.accounts import domainrows as domains_module
from tests.support.conversations.scripts import content
from tests.support.faults.held import holding

MESSAGE = content("new")


@pytest.fixture
def held(place, monkeypatch):
    place.have("INBOX", "one two(\\Deleted) three")
    place.have("Sent", "")
    with holding(place.store, monkeypatch) as found:
        yield found


def login(place, *commands):
    """A connection on which these have been done."""
    wire = place.connect()
    wire.send(b"x1 LOGIN alice secret\r\n" + b"".join(b"x2 %b\r\n" % each for each in commands))
    assert wire.received().count(b" OK ") >= 2 + len(commands)
    return wire


def said(wire, command):
    """What comes of it at once."""
    wire.send(b"a " + command + b"\r\n")
    return wire.received()


def test_who_reads_goes_on(place, held):
    place.deliver("INBOX", MESSAGE)
    before = login(place, b"SELECT INBOX")
    held.begin()
    wire = login(place)
    for command in (b"SELECT INBOX", b"EXAMINE INBOX", b"NOOP", b"FETCH 1:* (FLAGS BODY.PEEK[])", b"SEARCH TEXT new",
                    b"STATUS INBOX (MESSAGES UIDNEXT)", b'LIST "" *', b"GETQUOTAROOT INBOX", b"MYRIGHTS INBOX",
                    b"SORT (DATE) UTF-8 ALL", b"CAPABILITY"):
        assert b"\r\na OK " in b"\r\n" + said(wire, command), command
    assert b"Subject: new" in said(before, b"FETCH 4 BODY.PEEK[]")
    assert not held.threads.waiting


def test_what_was_lost_of_a_message_is_made_anew_and_not_kept(place, held):
    """A cache record; whoever asks when the store goes on makes it again, and keeps it."""
    partition = place.store.partitions["primary"]
    serials = place.store.open_mailbox(place.entry("INBOX")).rows["serial"].tolist()

    def lose(txn):
        for serial in serials:
            partition.serials.forget_cached(serial, txn.handle)

    partition.transact(lose)
    wire = login(place, b"SELECT INBOX")
    held.begin()
    for command in (b"FETCH 1:3 (ENVELOPE BODYSTRUCTURE)", b"FETCH 1:3 (FLAGS BODY.PEEK[HEADER.FIELDS (SUBJECT)])",
                    b"SEARCH SUBJECT one", b"SORT (SUBJECT) UTF-8 ALL"):
        before = said(wire, command)
        assert b"\r\na OK " in b"\r\n" + before, before
    assert partition.serials.cached(serials) == [None] * 3 and not held.threads.waiting
    held.end()
    assert said(wire, b"FETCH 1:3 (ENVELOPE)").count(b"ENVELOPE") == 3
    assert None not in partition.serials.cached(serials)


def test_who_is_told_of_recent_messages_meanwhile_is_not_the_last(place, held):
    """RFC 3501 2.3.2: where it cannot be known who is told first, a message is recent."""
    held.begin()
    assert b"* 3 RECENT" in said(login(place), b"SELECT INBOX")
    assert b"* 3 RECENT" in said(login(place), b"SELECT INBOX")
    held.end()
    assert b"* 3 RECENT" in said(login(place), b"SELECT INBOX")
    assert b"* 0 RECENT" in said(login(place), b"SELECT INBOX")


@pytest.mark.parametrize("command", [b"CLOSE", b"EXPUNGE", b"UID EXPUNGE 1:*"])
def test_who_has_nothing_to_remove_goes_on(place, held, command):
    wire = login(place, b"SELECT Sent")
    held.begin()
    assert b"\r\na OK " in b"\r\n" + said(wire, command) and not held.threads.waiting


def test_an_unknown_user_is_asked_like_any_other(place, held):
    """Who proves a password by SCRAM gets a salt, whether there is such a user or not. The first time something that is
    needed for it is written down."""
    domains = place.store.directory.domains
    transact(place.store.mailboxes.env, lambda txn: domains._table.delete(domains_module._SECRET, txn))
    domains._secret = b""
    held.begin()
    wire = place.connect()
    wire.send(b"a AUTHENTICATE SCRAM-SHA-256 " + b64encode(b"n,,n=nobody,r=abcdef") + b"\r\n")
    found = wire.received()
    assert b"a " not in found, found
    held.end()
    assert b"+ " in wire.received()


@pytest.mark.parametrize("command, well", [
    (b"STORE 1 +FLAGS (\\Flagged)", b"* 1 FETCH (FLAGS (\\Flagged"), (b"EXPUNGE", b"* 2 EXPUNGE"),
    (b"CLOSE", b"a OK"), (b"COPY 1 Sent", b"[COPYUID "), (b"MOVE 1 Sent", b"* 1 EXPUNGE"),
    (b"FETCH 3 BODY[TEXT]", b"\\Seen"), (b"APPEND Sent {%d+}\r\n%b" % (len(MESSAGE), MESSAGE), b"[APPENDUID ")])
def test_who_writes_waits(place, held, command, well):
    wire, other = login(place, b"SELECT INBOX"), login(place, b"EXAMINE INBOX")
    held.begin()
    assert b"a OK" not in said(wire, command)
    assert b"a OK" in said(other, b"NOOP")              # the event loop goes on, and so do others
    place.clock.advance(11)
    if not command.startswith(b"APPEND"):
        assert b"[INPROGRESS" in wire.received()        # RFC 9585: the client hears that it has not been forgotten
    held.end()
    wire.settle()
    answer = wire.received()
    assert b"\r\na OK " in b"\r\n" + answer and well in answer
    assert b"a OK" in said(wire, b"NOOP")


def test_one_who_hangs_up_meanwhile_changes_what_it_asked_for_or_nothing(place, held):
    wire = login(place, b"SELECT INBOX")
    held.begin()
    wire.send(b"a STORE 1 +FLAGS (\\Flagged)\r\n")
    wire.hang_up()
    held.end()
    assert place.subjects("INBOX").startswith(("one(\\Flagged)", "one "))


def test_the_first_message_of_a_process_has_no_serial_yet(place, held):
    partition = place.store.partitions["primary"]
    partition.serials._serials = iter(())
    while partition.files.take_ready() is not None:
        pass
    held.begin()
    wire = login(place)
    wire.send(b"a APPEND INBOX {%d}\r\n" % len(MESSAGE))
    assert wire.received() == b""
    held.end()
    assert wire.received().startswith(b"+ ")
    assert b"a OK [APPENDUID" in (wire.send(MESSAGE + b"\r\n"), wire.received())[1]
    assert place.subjects("INBOX").endswith("new")
