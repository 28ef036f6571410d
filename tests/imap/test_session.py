"""What a script cannot say: cuts, junk, back-pressure, memory, and the log."""

import logging
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imap.verbs.dispatch import VERBS
from imap.wire.commands import COMMANDS
from store.mailboxes import deletion, firstuse
from store.partition.staged import Staged
from tests.support.conversations.scripts import content

CONVERSATION = (
    b"a1 LOGIN alice {6+}\r\nsecret\r\n"
    b"a2 SELECT INBOX\r\n"
    b"a3 APPEND INBOX (\\Seen) {18+}\r\nSubject: x\r\n\r\nHi\r\n\r\n"
    b"a4 FETCH 1:* (UID BODY.PEEK[])\r\n"
    b"a5 SEARCH TEXT {2+}\r\nHi\r\n"
    b"a6 IDLE\r\nDONE\r\n"
    b"a7 BOGUS {3+}\r\na b\r\n"
    b"a8 APPEND Nowhere {7+}\r\na LOGOUT\r\n"
    b"a9 LOGOUT\r\n")


def empty(place):
    """An INBOX with two messages, whatever was in it before."""
    deletion.delete_mailbox(place.store, place.entry("INBOX").name, even_inbox=True)
    firstuse.inbox(place.store, place.store.directory.find("alice"))
    for subject in ("one", "two"):
        place.deliver("INBOX", content(subject))


def answers(place, *pieces):
    wire = place.connect()
    for piece in pieces:
        wire.send(piece)
    assert wire.closed
    said = re.sub(rb"UIDVALIDITY \d+|APPENDUID \d+", b"", wire.received())
    return re.sub(rb'INTERNALDATE "[^"]*"', b"", said)


def test_every_cut_of_a_conversation_gives_the_same_answers(place):
    empty(place)
    whole = answers(place, CONVERSATION)
    assert whole.count(b"\r\na") == 9
    assert b"a3 OK [ 3]" in whole and b"a7 BAD" in whole and b"a8 NO [TRYCREATE]" in whole
    for at in range(1, len(CONVERSATION)):
        empty(place)
        assert answers(place, CONVERSATION[:at], CONVERSATION[at:]) == whole, f"cut at {at}"


WORDS = st.sampled_from([name for name in COMMANDS] + [
    b"UID", b"INBOX", b"1:*", b"1", b"*", b"(FLAGS)", b"BODY[]", b"+FLAGS", b"(\\Seen)", b"Sent", b'""', b'"%"', b"ALL",
    b"{3+}\r\nabc", b"{5}", b"{0}", b"(", b")", b'"', b"\\", b"\x00", b"\xff\xfe", b"DONE", b"NIL", b"alice", b"secret",
    b"RETURN", b"(MESSAGES)", b"BODY.PEEK[1.MIME]", b"<0.1>", b"SUBJECT", b"x" * 300])
COMMAND = st.builds(lambda words: b"t " + b" ".join(words), st.lists(WORDS, max_size=6))
LINES = st.lists(st.one_of(COMMAND, st.binary(max_size=40)), max_size=12)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.booleans(), LINES)
def test_junk_is_answered(place, caplog, log_in, lines):
    caplog.clear()
    wire = place.connect()
    if log_in:
        wire.send(b"l LOGIN alice secret\r\ns SELECT INBOX\r\n")
    for line in lines:
        wire.send(line + b"\r\n")
    wire.received()
    wire.send(b"DONE\r\n")
    wire.send(b"z1 NOOP\r\n")
    said = wire.received()
    # Either the session still answers, or it waits for a literal that it asked for, or it has said goodbye.
    waiting = bool(said == b"" and lines)
    assert wire.closed or waiting or b"z1 " in said or b"BAD" in said
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    if not wire.closed:
        wire.hang_up()


def test_a_client_that_stops_reading_stops_only_itself(place):
    data = content("big") + b"x" * 98 * 1000
    for _ in range(20):
        place.deliver("INBOX", data)
    slow, other = place.connect(), place.connect()
    for wire in (slow, other):
        wire.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\n")
        wire.received()
    slow.protocol.pauseProducing()
    slow.send(b"c FETCH 1:* BODY.PEEK[]\r\n")
    assert len(slow.transport.value()) < 200_000
    other.send(b"c NOOP\r\n")
    assert other.received() == b"c OK NOOP completed\r\n"
    slow.protocol.resumeProducing()
    slow.settle()
    assert slow.received().count(b"Subject: big") == 20


def test_a_client_that_takes_nothing_is_cut_off(place):
    place.deliver("INBOX", content("one"))
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\n")
    wire.protocol.pauseProducing()
    wire.send(b"c FETCH 1 BODY.PEEK[]\r\n")
    place.clock.advance(301)
    assert wire.closed


def test_a_message_is_never_whole_in_memory(place, faults):
    largest = faults.watch(Staged, "write", lambda staged, data: len(data))
    wire = place.connect()
    wire.send(b"a LOGIN alice secret\r\nb APPEND INBOX {90000}\r\n")
    for _ in range(90):
        wire.send(b"y" * 1000)
    wire.send(b"\r\n")
    assert b"b OK [APPENDUID" in wire.received()
    assert sum(largest) == 90_000 and max(largest) <= 64 << 10


def test_passwords_and_messages_are_not_logged(place, caplog):
    caplog.set_level(logging.DEBUG)
    wire = place.connect()
    wire.send(b"a LOGIN alice pass-word\r\nb AUTHENTICATE PLAIN AGFsaWNlAHBhc3Mtd29yZA==\r\nc LOGIN alice secret\r\n")
    wire.send(b"d APPEND INBOX {18+}\r\nSubject: hush\r\n\r\n\r\n\r\ne LOGIN x pass-word\r\n")
    said = caplog.text
    assert "alice" in said
    for word in ("pass-word", "secret", "cGFzcy", "hush"):
        assert word not in said


def test_every_command_has_its_verb():
    assert len(VERBS) == 41
    assert all(verb.__doc__ for verb in VERBS.values())


def test_there_is_a_limit_on_connections(place):
    from attrs import evolve
    place.settings = evolve(place.settings, connections_per_address=2)
    first, second, third = place.connect(), place.connect(), place.connect()
    assert third.closed and third.received().startswith(b"* BYE [LIMIT]")
    first.hang_up()
    assert not place.connect().closed and not second.closed
