"""Transcripts: who is recorded, what is left out, and that a session feels nothing of it."""

import base64
import os
import stat
from queue import Queue
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from imap import protocol as imap
from imap.settings import Settings as ImapSettings
from lmtp import protocol as lmtp
from lmtp.settings import Settings as LmtpSettings
from pop3 import protocol as pop3
from pop3.settings import Settings as Pop3Settings
from store.check.wholecheck import check
from store.net.threads import ReactorThreads
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import deliver, make_store
from tools.server.process.sockets import Purpose
from tools.server.transcripts import transcriptfile
from tools.server.transcripts.imapmask import ImapMask
from tools.server.transcripts.lmtpmask import LmtpMask
from tools.server.transcripts.pop3mask import Pop3Mask
from tools.server.transcripts.wantedsessions import INTERVAL, WantedSessions

SECRET = b"Xy7SECRETq"                  # of which nothing may ever be seen
MESSAGE = (b"From: a@example.org\r\nSubject: " + SECRET + b"\r\nMessage-ID: <1@example.org>\r\n\r\n"
           b"* " + SECRET + b"\r\n+OK " + SECRET + b"\r\na FETCH " + SECRET + b" 1\r\n")
STUFFED = MESSAGE + b".\r\n"


class Place:
    """A process's servers, in memory, and its orders."""

    def __init__(self, root):
        self.store = make_store(root, ("alice", "bob"))
        self.clock, self.results = Clock(), Queue()
        self.threads = ReactorThreads(lambda *result: self.results.put(result))
        self.factories = {
            "imap": imap.factory(self.store, ImapSettings(
                plaintext_login=True, login_attempts=100, bad_commands=100), self.clock),
            "pop3": pop3.factory(self.store, Pop3Settings(plaintext_login=True), self.clock),
            "lmtp": lmtp.factory(self.store, LmtpSettings(networks=("192.0.2.1",)), self.clock)}
        self.server = SimpleNamespace(
            kinds={(name, False, Purpose.MAIL): each for name, each in self.factories.items()},
            admission={name: each.admission for name, each in self.factories.items()})
        self.wanted = WantedSessions(root, self.server, self.clock, self.threads, 64 << 20)

    def order(self, who, seconds=600, **more):
        return self.wanted.order({"who": who, "seconds": seconds, **more})

    def wire(self, protocol, peer="192.0.2.1"):
        return Wire(self.factories[protocol], self.clock, peer)

    def turn(self, seconds=INTERVAL):
        """Time passes, in which the thread writes."""
        self.clock.advance(seconds)
        function, *arguments = self.results.get(timeout=180)
        function(*arguments)

    def files(self):
        return sorted((self.store.root / "transcripts").glob("*"), key=lambda path: int(path.stem.rpartition("-")[2]))

    def texts(self):
        """What the files say, without the times."""
        self.turn()
        return [[line[13:] for line in path.read_text().splitlines()] for path in self.files()]


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path / "store")
    yield made
    made.wanted.stop()
    made.threads.stop()
    assert check(made.store) == []
    made.store.close()


def test_a_user_is_recorded_from_the_login_on_and_nobody_else(place):
    place.order("alice")
    alice, bob = place.wire("imap"), place.wire("imap")
    alice.send(b"a LOGIN alice secret\r\nb NOOP\r\n")
    bob.send(b"a LOGIN bob secret\r\nb NOOP\r\n")
    alice.send(b"c LOGOUT\r\n")
    text, = place.texts()
    assert text[0].startswith('-- imap session') and 'user "alice", from 192.0.2.1' in text[0]
    assert text[1] == "C: b NOOP" and text[2].startswith("S: <tag> OK") and text[3] == "S: b OK NOOP completed"
    assert "C: c LOGOUT" in text and "secret" not in str(text)
    path, = place.files()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_an_address_is_recorded_from_the_greeting_on(place):
    place.order("192.0.2.0/24", address=True, protocol="imap")
    wires = [place.wire("imap"), place.wire("imap", "198.51.100.1"), place.wire("pop3")]
    for wire in wires[:2]:
        wire.send(b"a LOGIN alice secret\r\nb LOGIN {5}\r\n")
    text, = place.texts()
    assert text[1].startswith("S: * OK") and text[2] == "C: a LOGIN <name and password: 12 octets>"
    assert "secret" not in str(text) and "alice" not in text[2]


def test_an_open_session_is_recorded_from_its_next_command_on(place):
    idle, busy = place.wire("imap"), place.wire("imap")
    idle.send(b"a LOGIN alice secret\r\n")
    busy.send(b"a LOGIN alice secret\r\nb APPEND INBOX {%d}\r\n" % len(MESSAGE))
    assert place.order("alice") == {"connections": 1}
    busy.send(MESSAGE + b"\r\nc NOOP\r\n")
    idle.send(b"d NOOP\r\n")
    place.turn()
    busy.send(b"e NOOP\r\n")
    first, second = place.texts()
    assert "C: d NOOP" in first and "C: e NOOP" in second and not any("APPEND" in line for line in first + second)


def test_it_ends_by_itself(place):
    place.order("alice", seconds=10)
    wire = place.wire("imap")
    wire.send(b"a LOGIN alice secret\r\n")
    place.turn()
    assert place.wanted.tell({})[0]["connections"] == 1
    place.turn(10)
    assert wire.protocol.tap is None and place.wanted.tell({}) == []
    assert all(each.admission.watch is None for each in place.factories.values())
    wire.send(b"b NOOP\r\n")
    text = place.files()[0].read_text()
    assert text.endswith(f"-- {transcriptfile.OVER}\n") and "b NOOP" not in text
    place.clock.advance(3600)
    assert not place.results.qsize()            # nothing is left to do


def test_it_ends_when_somebody_says_so_and_when_another_user_logs_in(place):
    place.order("alice")
    wire, other = place.wire("imap"), place.wire("imap")
    wire.send(b"a LOGIN alice secret\r\nb UNAUTHENTICATE\r\nc LOGIN bob secret\r\n")
    wire.send(b"d NOOP\r\n")
    other.send(b"a LOGIN alice secret\r\n")
    assert wire.protocol.tap is None and other.protocol.tap is not None
    assert place.order("alice", end=True) == {"ended": 1} and other.protocol.tap is None
    text, _ = place.texts()
    assert transcriptfile.CHANGED in text[-1] and "d NOOP" not in str(text)


@pytest.mark.parametrize("request_", [
    {"who": "", "seconds": 5}, {"who": "alice", "seconds": 90000}, {"who": "alice", "seconds": 0},
    {"who": "alice", "seconds": 5, "protocol": "http"}, {"who": "alice", "seconds": 5, "address": True}])
def test_what_is_no_order_is_refused(place, request_):
    with pytest.raises(ValueError, match=r"."):
        place.wanted.order(request_)


def test_so_many_orders_and_no_more(place):
    for number in range(20):
        place.order(f"user{number}")
    place.order("user7")                        # in place of that one
    with pytest.raises(ValueError, match="20 orders"):
        place.order("alice")


# What is left out

def plain(user, password):
    return base64.b64encode(b"\0" + user + b"\0" + password)


def said_to_imap():
    """All forms in which a password, and a message, can come and go."""
    return [
        b"a LOGIN \"alice\" \"" + SECRET + b"\"\r\n", b"a LOGIN alice " + SECRET + b"\r\n",
        b"a LOGIN {5+}\r\nalice {%d+}\r\n" % len(SECRET) + SECRET + b"\r\n",
        b"a LOGIN \"alice " + SECRET + b"\r\n", b"a login " + SECRET + b"\r\n", b"LOGIN " + SECRET + b"\r\n",
        b"a AUTHENTICATE PLAIN " + plain(b"bob", SECRET) + b"\r\n",
        b"a AUTHENTICATE LOGIN\r\n", base64.b64encode(b"bob") + b"\r\n", base64.b64encode(SECRET) + b"\r\n",
        b"a AUTHENTICATE PLAIN\r\n", plain(b"bob", SECRET) + b"\r\n",
        SECRET + b"\r\n", SECRET + b" NOOPS 1\r\n",
        b"a AUTHENTICATE PLAIN\r\n", plain(b"alice", b"secret") + b"\r\n",
        b"a SELECT INBOX\r\n", b"a APPEND INBOX {%d+}\r\n" % len(MESSAGE) + MESSAGE + b"\r\n",
        b"a APPEND INBOX {%d}\r\n" % len(MESSAGE), MESSAGE + b"\r\n",
        b"a APPEND INBOX {99999999999}\r\n", b"a APPEND Nowhere {%d}\r\n" % len(MESSAGE), b"* " + SECRET + b"\r\n",
        b"a FETCH 1:* (UID ENVELOPE BODYSTRUCTURE BODY.PEEK[] FLAGS BODY.PEEK[TEXT]<0.40>)\r\n",
        b"a FETCH 1:* (BODY.PEEK[HEADER.FIELDS (SUBJECT)] RFC822.HEADER RFC822.TEXT BINARY.PEEK[1] PREVIEW)\r\n",
        b"a IDLE\r\n", b"DONE\r\n", b"a NOOP\r\n", b"a LOGOUT\r\n"]


def forms():
    """What would show a part of it."""
    return [SECRET.decode(), *(base64.b64encode(SECRET[at:]).decode()[:8] for at in range(3)),
            plain(b"bob", SECRET).decode()[:10], plain(b"alice", b"secret").decode()[:10]]


def test_imap_shows_no_password_and_no_message(place):
    deliver(place.store, MESSAGE, "user/alice/INBOX")
    place.order("192.0.2.1", address=True)
    wire = place.wire("imap")
    heard = b""
    for piece in said_to_imap():
        if wire.closed:
            break
        wire.send(piece)
        heard += wire.received()
    assert heard.count(SECRET) > 5 and b"a OK" in heard        # the server has sent it
    text, = place.texts()
    assert not [line for line in text if any(form in line for form in forms())]
    assert "S: a OK NOOP completed" in text and "C: DONE" in text
    assert f"S: <literal: {len(MESSAGE)} octets>" in text
    assert any(line.startswith("S: * 1 FETCH (UID 1 ENVELOPE (") for line in text)
    assert "C: a AUTHENTICATE PLAIN <initial response: " in "\n".join(text)


def test_pop3_shows_no_password_and_no_message(place):
    deliver(place.store, MESSAGE, "user/alice/INBOX")
    deliver(place.store, b"." + MESSAGE, "user/alice/INBOX")
    place.order("192.0.2.1", address=True)
    wire = place.wire("pop3")
    heard = b""
    for piece in (b"CAPA\r\n", b"USER bob\r\nPASS " + SECRET + b"\r\n", b"PASS " + SECRET + b"\r\n",
                  b"AUTH PLAIN " + plain(b"bob", SECRET) + b"\r\n", b"AUTH PLAIN\r\n", plain(b"bob", SECRET) + b"\r\n",
                  b"AUTH LOGIN\r\n", base64.b64encode(b"bob") + b"\r\n" + base64.b64encode(SECRET) + b"\r\n",
                  b"APOP alice " + SECRET + b"\r\n", SECRET + b"\r\n"):
        if wire.closed:
            wire = place.wire("pop3")
        wire.send(piece)
        heard += wire.received()
    wire = place.wire("pop3")
    wire.send(b"USER alice\r\nPASS secret\r\nLIST\r\nRETR 1\r\nTOP 2 9\r\nUIDL\r\nRETR 9\r\nRETR 2\r\n"
              b"STAT\r\nQUIT\r\n")
    heard += wire.received()
    assert heard.count(SECRET) >= 9
    texts = place.texts()
    assert not [line for text in texts for line in text if any(form in line for form in forms())]
    last = texts[-1]
    assert "C: PASS <argument: 6 octets>" in last and "C: RETR 9" in last and "S: ." in last
    assert sum(line.startswith("S: <message: ") for line in last) == 3 and any("+OK 2 " in line for line in last)


def test_lmtp_shows_no_password_and_no_message(place):
    place.order("192.0.2.1", address=True)
    relay = place.wire("lmtp")
    for piece in (b"LHLO x\r\nAUTH PLAIN " + plain(b"bob", SECRET) + b"\r\n", b"AUTH LOGIN\r\n", SECRET + b"\r\n",
                  b"MAIL FROM:<a@example.org>\r\nRCPT TO:<alice>\r\nDATA\r\n" + STUFFED, b"DATA\r\n", b"NOOP\r\n",
                  b"MAIL FROM:<a@example.org>\r\nRCPT TO:<bob>\r\nBDAT %d\r\n" % len(MESSAGE) + MESSAGE,
                  b"BDAT 2 LAST\r\n\r\n", b"QUIT\r\n"):
        relay.send(piece)
    assert b"250 2.0.0 Ok" in relay.received()
    text, = place.texts()
    assert not [line for line in text if any(form in line for form in forms())]
    assert f"C: <message: {len(STUFFED)} octets>" in text and f"C: <chunk: {len(MESSAGE)} octets>" in text
    assert "C: NOOP" in text and "C: QUIT" in text and any(line.startswith("S: 354") for line in text)


def test_a_recipient_who_is_refused_beside_data_does_not_show_the_message(place):
    """RFC 2920 §3.1: MAIL, RCPT and DATA come together, and the replies to them one by one."""
    text = (b"LHLO " + SECRET + b"\r\nMAIL FROM:<" + SECRET + b">\r\nRCPT TO:<" + SECRET + b">\r\n"
            b"HELO " + SECRET + b"\r\n.\r\n")
    place.order("192.0.2.1", address=True)
    relay = place.wire("lmtp")
    relay.send(b"LHLO x\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<nobody>\r\nRCPT TO:<alice>\r\nDATA\r\n")
    relay.send(text)
    relay.send(b"MAIL FROM:<a@example.org>\r\nRCPT TO:<nobody>\r\nDATA\r\n")     # refused as a whole
    relay.send(b"RSET\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<nobody>\r\nRCPT TO:<alice>\r\nDATA\r\n" + text)
    relay.send(b"QUIT\r\n")
    assert relay.received().count(b"250 2.0.0 Delivered") == 2
    lines, = place.texts()
    assert SECRET.decode() not in "\n".join(lines)
    assert lines.count(f"C: <message: {len(text)} octets>") == 2 and "C: RSET" in lines and "C: QUIT" in lines


def test_what_turns_the_direction_of_text_or_is_not_seen_is_escaped(place):
    hostile = "a\u202eb\u2028c\u200bd\u0085e\ufefff\x1b[2J\xa0g\U000e0041"
    place.order("192.0.2.1", address=True)
    relay = place.wire("lmtp")
    relay.send(b"LHLO x\r\nMAIL FROM:<" + hostile.encode() + b"@example.org>\r\n")
    line, = [line for line in place.texts()[0] if line.startswith("C: MAIL")]
    assert line.isprintable() and r"a\u202eb\u2028c\u200bd" in line


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.sampled_from(["imap", "pop3", "lmtp"]))
def test_how_the_octets_are_cut_makes_no_difference(cuts, protocol):
    """Of both directions, each by itself: what is shown is the same, nothing slips through at the edge of a piece."""
    conversations = {
        "imap": (ImapMask, b"".join(said_to_imap()), b"* OK hello\r\na NO no\r\n* 1 FETCH (BODY[] {%d}\r\n" % len(
            MESSAGE) + MESSAGE + b" ENVELOPE (\"" + SECRET + b"\") FLAGS ())\r\na OK done\r\n"),
        "pop3": (Pop3Mask, b"USER a\r\nPASS b\r\nRETR 1\r\nCAPA\r\n",
                 b"+OK\r\n+OK\r\n+OK x\r\n" + STUFFED + b"+OK\r\nTOP\r\n.\r\n"),
        "lmtp": (LmtpMask, b"LHLO x\r\nBDAT %d\r\n" % len(MESSAGE) + MESSAGE + b"DATA\r\n" + STUFFED + b"NOOP\r\n",
                 b"250-x\r\n250 y\r\n354 go\r\n")}
    mask, client, server = conversations[protocol]

    def shown(pieces):
        made = mask()
        return [line for each in pieces(client) for line in made.received(each)], [
            line for each in pieces(server) for line in made.sent(each)]

    def in_pieces(octets):
        at = number = 0
        while at < len(octets):
            yield octets[at:at + cuts[number % len(cuts)]]
            at += cuts[number % len(cuts)]
            number += 1

    whole, cut = shown(lambda octets: [octets]), shown(in_pieces)
    assert cut == whole
    assert SECRET.decode() not in str(whole)


def test_pop3_that_pipelines_more_than_the_mask_remembers_shows_no_answers_any_more():
    """It can no more tell which of them is a message."""
    mask, said = Pop3Mask(), list[str]()
    mask.received(b"NOOP\r\n" * 500 + b"RETR 1\r\n" + b"NOOP\r\n" * 1000)
    for octets in (b"+OK\r\n" * 500, b"+OK\r\n" + STUFFED, b"LIST " + SECRET + b"\r\n+OK " + SECRET + b"\r\n"):
        said += mask.sent(octets)
    assert said and SECRET.decode() not in "".join(said)


@pytest.mark.parametrize("mask", [ImapMask, Pop3Mask, LmtpMask])
def test_a_mask_keeps_little_and_an_endless_line_is_a_length(mask):
    made = mask()
    for _ in range(100):
        assert made.received(b"a SEARCH " + b"x" * 65000) == [] and made.sent(b"* LIST " + b"x" * 65000) == []
    assert len(made._client._begun) <= 8 << 10 and len(made._server._begun) <= 8 << 10
    line, = made.received(b"\r\n")
    assert line == f"<line: {100 * 65009} octets>"


# What others feel

def test_a_disk_that_takes_nothing_ends_the_transcript_and_not_the_session(place):
    place.order("alice")
    wire = place.wire("imap")
    wire.send(b"a LOGIN alice secret\r\n")
    record = wire.protocol.tap
    wire.received()
    while wire.protocol.tap is not None:            # the thread writes nothing meanwhile
        wire.send(b"a NOOP\r\n" * 500)
        assert wire.received().count(b"OK") == 500
        assert record._characters < 2 * transcriptfile.KEPT_CHARACTERS
    wire.send(b"b NOOP\r\n")
    assert b"b OK" in wire.received()
    text, = place.texts()
    assert text[-1] == f"-- {transcriptfile.SLOW}"


def test_a_file_and_all_files_have_limits(place):
    place.order("alice")
    wires = [place.wire("imap"), place.wire("imap")]
    for wire in wires:
        wire.send(b"a LOGIN alice secret\r\n")
    wires[0].protocol.tap.file_octets = 5000
    wires[0].send(b"a NOOP\r\n" * 200)
    assert wires[0].protocol.tap is None and wires[1].protocol.tap is not None
    place.turn()
    place.wanted.limit = 100
    place.turn()
    assert wires[1].protocol.tap is None
    late = place.wire("imap")
    late.send(b"a LOGIN alice secret\r\n")
    assert late.protocol.tap is None
    place.wanted.limit = 64 << 20
    assert [text[-1] for text in place.texts()[:2]] == [f"-- {transcriptfile.FULL}"] * 2


def test_a_file_that_cannot_be_written_ends_it_and_harms_nobody(place):
    (place.store.root / "transcripts").write_text("in the way")
    place.order("alice")
    wire = place.wire("imap")
    wire.send(b"a LOGIN alice secret\r\n")
    place.turn()
    assert wire.protocol.tap is None
    wire.send(b"b NOOP\r\n")
    assert b"b OK" in wire.received()
    (place.store.root / "transcripts").unlink()
