"""Conversations as they are written down in tests/scripts/pop3; the expected side is the RFCs'."""

import logging
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pop3.maildrop import LINES
from pop3.replyqueue import HELD_BACK, READ_OCTETS
from pop3.settings import Settings
from pop3.states import COMMANDS, State
from tests.pop3.place import PASSWORD, SCRIPTS, Player

EVERY = sorted(SCRIPTS.glob("*.txt"))
LOGIN = b"USER mrose\r\nPASS " + PASSWORD + b"\r\n"


@pytest.mark.parametrize("script", EVERY, ids=lambda path: path.stem)
def test_conversation(script, place, monkeypatch):
    Player(place, monkeypatch).play(script.read_text())


@pytest.mark.parametrize("script", [path for path in EVERY if path.stem != "stls"], ids=lambda path: path.stem)
def test_conversation_octet_by_octet(script, place, monkeypatch):
    """(What was sent ahead of a handshake is dropped; one octet at a time nothing is.)"""
    Player(place, monkeypatch, bytewise=True).play(script.read_text())


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("state", State)
def test_every_command_is_refused_in_the_wrong_state_whatever_its_arguments(command, state, place):
    if state in COMMANDS[command].states:
        return
    for arguments in (b"", b" 1", b" 1 1", b" x y z"):
        wire = place.connect(place.server(Settings(last=True)))
        if state is State.TRANSACTION:
            wire.send(LOGIN)
        wire.received()
        wire.send(command + arguments + b"\r\n")
        assert wire.received().startswith(b"-ERR not allowed") and not wire.closed
        wire.hang_up()


CONVERSATION = b"".join([
    b"CAPA\r\n", b"XYZZY\r\n", b"AUTH PLAIN\r\n*\r\n", b"LANG\r\nLANG *\r\nUTF8\r\n", "USER ä\r\n".encode(), LOGIN,
    b"STAT\r\nLIST\r\nUIDL\n", b"RETR 1\r\nTOP 2 1\r\nDELE 2\r\nLIST 2\r\n",
    b"RETR 1 2\r\nNO\0OP\r\nUSER x\r\n" + b"x" * 600 + b"\r\n", b"RSET\r\nNOOP\r\nQUIT\r\nSTAT\r\n"])


@pytest.mark.long
def test_every_cut_of_a_conversation_gets_the_same_answers(place):
    for octets in (b"A: b\r\n\r\n.c\r\n", b"\n.\n"):
        place.deliver(octets)
    server = place.server()

    def answers(*pieces):
        wire = place.connect(server)
        for piece in pieces:
            wire.send(piece)
        assert wire.closed
        return wire.received()

    expected = answers(CONVERSATION)
    for cut in range(1, len(CONVERSATION)):
        assert answers(CONVERSATION[:cut], CONVERSATION[cut:]) == expected
    assert answers(*(CONVERSATION[at:at + 1] for at in range(len(CONVERSATION)))) == expected


def test_pipelined_answers_share_a_packet(place):
    wire = place.connect()
    wire.received()
    packets = []
    write = wire.transport.write
    wire.transport.write = lambda data: (packets.append(data), write(data))
    wire.send(LOGIN + b"STAT\r\nUIDL\r\nNOOP\r\n")
    assert len(packets) == 1


@pytest.mark.long
def test_answers_to_endless_commands_do_not_pile_up(place):
    wire = place.connect()
    biggest = 0
    write = wire.transport.write

    def note(data):
        nonlocal biggest
        biggest = max(biggest, len(data))
        write(data)

    wire.transport.write = note
    wire.send(b"CAPA\r\n" * 30_000)
    assert wire.received().count(b"+OK capabilities\r\n") == 30_000
    assert biggest <= HELD_BACK + 1024


def test_a_slow_client_is_waited_for_and_a_dead_one_is_cut_off(place):
    message = b"A: b\r\n\r\n" + b"x\r\n" * READ_OCTETS
    place.deliver(message)
    wire = place.connect()
    wire.send(LOGIN)
    wire.received()
    write = wire.transport.write

    def full(data):
        write(data)
        wire.protocol.pauseProducing()

    wire.transport.write = full
    wire.send(b"RETR 1\r\n")
    received = wire.received()
    assert len(received) <= READ_OCTETS + 100                 # one piece, and then it waits
    for _ in range(10):
        wire.protocol.resumeProducing()
        received += wire.received()
    head, _, body = received.partition(b"\r\n")
    assert head == b"+OK %d octets" % len(message)
    assert body == message + b".\r\n"
    wire.send(b"RETR 1\r\n")
    wire.received()
    place.clock.advance(Settings().send_time + 1)
    assert wire.transport.disconnected          # or closing would wait for what is never taken
    again = place.connect()
    again.send(LOGIN)
    assert b"-ERR" not in again.received()


def test_a_long_listing_is_made_in_pieces(place):
    place.deliver(b"a\r\n")
    count = 2 * LINES + 1
    place.copy(count - 1)
    wire = place.connect()
    wire.send(LOGIN)
    wire.received()
    wire.send(b"LIST\r\nUIDL\r\nSTAT\r\n")
    lines = wire.received().split(b"\r\n")
    assert lines[1:count + 2] == [b"%d 3" % number for number in range(1, count + 1)] + [b"."]
    uids = lines[count + 3:2 * count + 3]
    assert len({line.split()[1] for line in uids}) == count
    assert [int(line.split()[0]) for line in uids] == list(range(1, count + 1))
    assert lines[-2] == b"+OK %d %d" % (count, 3 * count)


def test_uids_are_those_of_the_next_session_and_never_come_again(place):
    seen = set()
    for _ in range(3):
        place.deliver(b"same\r\n")
        wire = place.connect()
        wire.send(LOGIN)
        wire.received()
        wire.send(b"UIDL\r\nDELE 1\r\nQUIT\r\n")
        lines = wire.received().split(b"\r\n")
        uid = lines[1].split()[1]
        assert uid not in seen and 1 <= len(uid) <= 70 and all(0x21 <= octet <= 0x7e for octet in uid)
        seen.add(uid)


def test_two_servers_of_one_store_keep_each_other_out(place):
    one, two = place.connect(), place.connect()
    one.send(LOGIN)
    two.send(LOGIN)
    assert b"-ERR [IN-USE]" in two.received()
    one.send(b"QUIT\r\n")
    two.send(LOGIN)
    assert b"-ERR" not in two.received()


def test_connections_that_have_ended_do_not_count(place):
    server = place.server(Settings(connections=1, connections_per_address=1))
    for last in (b"QUIT\r\n", LOGIN + b"QUIT\r\n"):
        wire = place.connect(server)
        wire.send(last)
        assert b"-ERR" not in wire.received() and wire.closed
    place.connect(server).hang_up()
    assert place.connect(server).received().startswith(b"+OK")


def test_implicit_tls_is_secure_from_the_start(place):
    wire = place.connect(place.server(tls=object(), implicit_tls=True), "192.0.2.7")
    wire.send(b"STLS\r\n" + LOGIN)
    lines = wire.received().split(b"\r\n")
    assert lines[1].startswith(b"-ERR") and lines[3].startswith(b"+OK maildrop has 0 ")


def test_passwords_and_text_are_not_logged(place, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    place.deliver(b"Subject: private\r\n\r\nprivate\r\n")
    Player(place, monkeypatch).play(
        "S: +OK *\nC: USER mrose\nS: +OK*\nC: PASS wrong-and-private\nS: -ERR *\n"
        "C: USER mrose\nC: PASS tanstaaf\nS: +OK*\nS: +OK *\nfail: read bug\nC: RETR 1\nS: -ERR [SYS/TEMP] *\n")
    assert PASSWORD.decode() not in caplog.text and "private" not in caplog.text and "mrose" in caplog.text


words = st.sampled_from([
    *sorted(COMMANDS), b"PLAIN", b"=", b"*", b"mrose", b"tanstaaf", b"AG1yb3NlAHRhbnN0YWFm", b"1", b"2", b"3", b"0",
    b"99999999999", b" ", b" ", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\0", b"\xff", b"x" * 300, LOGIN, LOGIN])
SEVERAL = re.compile(rb"\+OK (\d+ messages? \(.*|\d+ octets|.* follows?|capabilities|mechanisms)$")
junk = st.lists(st.lists(st.one_of(words, words, words, st.binary(max_size=8)), max_size=20).map(b"".join), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(junk, st.booleans())
def test_junk_gets_only_answers_of_the_protocol(place, caplog, pieces, tls):
    while len(place.uids()) < 2:
        place.deliver(b"A: b\r\n\r\n.\r\n+OK\r\n")
    caplog.clear()
    wire = place.connect(place.server(tls=object() if tls else None))
    for piece in pieces:
        wire.send(piece)
    said = wire.received()
    wire.hang_up()
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    lines = iter(said.split(b"\r\n"))
    for line in lines:
        assert line in (b"", b"+ ") or line.startswith((b"+OK", b"-ERR "))
        assert len(line) <= 510
        if SEVERAL.match(line):
            assert b"." in lines                # and takes them all, up to that

