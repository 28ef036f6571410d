"""IMAP against a fuzzer: its wire, and whole sessions. `tests/imap/fuzz` says what must hold for each input."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imap.wire.commands import parse_command
from imap.wire.framer import Frame
from store.errors import Problem, StoreError
from store.partition.messagereading import MessageFile
from tests.imap.fuzz.answers import Client
from tests.imap.fuzz.framing import Reference, heard
from tests.imap.fuzz.growth import PATTERNS, PLACES
from tests.imap.fuzz.wire import EXAMINED, SMALL, WORDS, examine
from tests.support.fuzz.growth import lines
from tests.support.fuzz.guided import ROOT, find_nothing
from tests.support.grammar import Incomplete, Ungrammatical, response_at, responses

COUNTS = {"sessions": 120, "wire": 4_000}       # CONTRIBUTING says how to play more


def test_the_guided_fuzzer_finds_nothing(tmp_path):
    find_nothing("tests.imap.fuzz", COUNTS, tmp_path)


def test_sessions_leave_nothing_in_memory():
    """The same once more takes no more memory. (Unwatched: see `tests.imap.fuzz.sessions.EACH`.)"""
    code = ("from random import Random\n"
            "from tests.imap.fuzz.sessions import TARGET\n"
            "from tests.support.fuzz.driver import memory\n"
            "TARGET.begin()\n"
            "for again in range(3):\n"
            "    before = memory()[0]\n"
            "    for number in range(1, 101):\n"
            "        TARGET.run(Random(number).randbytes(100), number)\n"
            "left = memory()[0] - before\n"
            "TARGET.end()\n"
            "assert left < 500, f'{left} blocks'\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(st.integers(0, len(EXAMINED) - 1), st.integers(0, 255),
       st.lists(st.sampled_from(WORDS) | st.binary(max_size=8), max_size=12).map(b"".join))
def test_wire(examined, how, octets):
    examine(bytes((examined, how)) + octets)


# Linear: lines of Python here; `python -m tests.imap.fuzz.growth` shows what regular expressions take

@pytest.mark.long
@pytest.mark.parametrize("start", sorted({pattern.start for pattern in PATTERNS}))
def test_twice_the_input_is_twice_the_work(start):
    for pattern in PATTERNS:
        if pattern.start == start:
            half, whole = lines(pattern, PLACES)
            assert whole <= 2 * half + 200, (pattern.name, half, whole)


# Found by it

def test_a_message_that_cannot_be_read_to_its_end_ends_the_connection(place, faults):
    """A literal that was announced must come (RFC 3501 §4.3): what followed would be taken for its rest."""
    content = b"Subject: x\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"QUJD" * 22_000 + b"\r\n"
    place.deliver("INBOX", content)
    faults.fail(MessageFile, "read", StoreError(Problem.UNAVAILABLE, detail="for the log"),
                when=lambda file, offset, count: offset > 50_000)
    for item in (b"BODY.PEEK[]", b"BODY.PEEK[1]"):
        wire = place.connect()
        wire.send(b"a1 LOGIN alice secret\r\na2 SELECT INBOX\r\n")
        wire.received()
        wire.send(b"a3 FETCH 1 %b\r\na4 NOOP\r\n" % item)
        assert wire.closed
        said = wire.received()
        with pytest.raises(Incomplete):
            response_at(said)


# What the fuzzer trusts in

ALLOWED = (
    b"* OK [UIDNEXT 4392] Predicted next UID", b"* 172 EXISTS", b"* 22 EXPUNGE", b"+ idling", b"+ ",
    b"+ YGgGCSqGSIb3EgECAgIAb1kwV6ADAgEFoQMCAQ+iSzBJoAMC", b"* FLAGS (\\Answered \\Flagged $Junk)",
    b"* SEARCH 2 84 882", b"* SEARCH", b"* SEARCH 2 5 (MODSEQ 917162500)", b'* LIST (\\Noselect) "/" ""',
    b'* LIST (\\Marked) NIL inbox', b'* LIST () "/" {3}\r\nfoo', b'* LIST () "/" "foo" ("CHILDINFO" ("SUBSCRIBED"))',
    b"* STATUS blurdybloop (MESSAGES 231 UIDNEXT 44292)", b'* ESEARCH (TAG "A282") UID MIN 2 COUNT 3',
    b"* VANISHED 41,43:116", b"* VANISHED (EARLIER) 300:310", b"* THREAD (166)(167)(168)((3)(6 4 23))",
    b'* NAMESPACE (("" "/")) NIL (("#s/" "/"))', b"* 12 FETCH (FLAGS (\\Seen \\Recent) UID 4 MODSEQ (65402))",
    b"a1 OK [COPYUID 38505 304,319:320 3956:3958] Done",
    b'* 1 FETCH (BODY[HEADER.FIELDS ("DATE" FROM)]<0> {4}\r\na\r\nb BODY[1.MIME] NIL BINARY[1] ~{1}\r\n\0)',
    b'* 12 FETCH (INTERNALDATE "17-Jul-1996 02:44:25 -0700" RFC822.SIZE 4286 ENVELOPE ("Wed, 17 Jul" "x" '
    b'(("Alice" NIL "alice" "example.org")) NIL NIL NIL NIL NIL NIL "<B27397@x>") BODY ("TEXT" "PLAIN" '
    b'("CHARSET" "US-ASCII") NIL NIL "7BIT" 3028 92))',
    b'* 1 FETCH (BODYSTRUCTURE (("TEXT" "PLAIN" NIL NIL NIL "7BIT" 1 1 NIL NIL NIL NIL) "MIXED" ("BOUNDARY" "b") NIL '
    b'NIL NIL))',
    b"* BYE [UNAVAILABLE] Gone", b'* QUOTA "" (STORAGE 10 512)', b"* ACL INBOX Fred rwipslxetad")


@pytest.mark.parametrize("line", ALLOWED)
def test_what_the_syntax_allows(line):
    assert len(responses(line + b"\r\n")) == 1
    for at in range(len(line)):
        with pytest.raises((Incomplete, Ungrammatical)):
            response_at(line[:at])


FORBIDDEN = (
    b"", b"*", b"* OK", b"* OK ", b"* OK [UIDNEXT 0] x", b"* OK [UIDNEXT 4294967296] x", b"* OK [NEW] x",
    b"* OK [ALERT]x", b"* OK x\x00", b"* OK \xc3\xa9", b"* ok x", b"* 0 EXPUNGE", b"* 01 EXISTS",
    b"* 4294967296 EXISTS", b"* 0 FETCH (UID 1)", b"* 1 FETCH ()", b"* 1 FETCH (UID 0)", b"* 1 FETCH (UID 1 UID 2)",
    b"* 1 FETCH (UID 1", b"* 1 FETCH (BODY[] {3}\r\nab)", b"* 1 FETCH (BODY[] {3}\r\nabcd)",
    b"* 1 FETCH (BODY[MIME] NIL)", b"* 1 FETCH (FLAGS (\\Seen \\Seen))", b"* 1 FETCH (FLAGS (\\Nothing))",
    b"* 1 FETCH (FLAGS (a  b))", b"* FLAGS (\\Recent)", b"* SEARCH 0", b"* SEARCH 1 ", b'* LIST () "/" "\xc3\xa9"',
    b'* LIST () "//" x', b"* LIST () / x", b"* STATUS x (NOTHING 1)", b"* VANISHED 1:*", b"* VANISHED ",
    b"* THREAD ((1))", b"* THREAD ()", b'* NAMESPACE NIL NIL', b"a+ OK x", b"a OK [COPYUID 1 1:2 3] x", b"a MAYBE x",
    b"+", b"* CAPABILITY X", b'* 1 FETCH (BODY ("MULTIPART" "MIXED" NIL NIL NIL "7BIT" 1))',
    b'* 1 FETCH (BODY ("TEXT" "PLAIN" NIL NIL NIL "7BIT" 1))', b"* 1 FETCH (ENVELOPE (NIL))", b"* 1 EXISTS x",
    b'* 1 FETCH (INTERNALDATE "1-Jan-2000 00:00:00 +0000")', b"* UNKNOWN")


@pytest.mark.parametrize("line", FORBIDDEN)
def test_what_the_syntax_forbids(line):
    with pytest.raises((Ungrammatical, Incomplete)):
        responses(line + b"\r\n")


GREETING = b"* OK ready\r\n"
SELECTED = b"* 2 EXISTS\r\na OK done\r\n"
SENT = b"a SELECT x\r\n"


ANSWERED = (
    (b"a NOOP\r\nb NOOP\r\n", b"a OK x\r\nb OK x\r\n"),
    (SENT + b"b FETCH 1 FLAGS\r\n", SELECTED + b"* 2 FETCH (FLAGS ())\r\nb OK x\r\n"),
    (SENT + b"b EXPUNGE\r\n", SELECTED + b"* 2 EXPUNGE\r\n* 1 EXPUNGE\r\nb OK x\r\n"),
    (SENT + b"b UID SEARCH 1\r\n", SELECTED + b"* SEARCH 9\r\n* 1 EXPUNGE\r\nb OK x\r\n"),
    (SENT + b"b SEARCH 1\r\n", SELECTED + b"* SEARCH 2\r\nb OK x\r\n"),
    (b"a LOGIN {1}\r\nx {1+}\r\ny\r\n", b"+ x\r\na NO x\r\n"),
    (b"a LOGIN {1}\r\nb NOOP\r\n", b"a BAD x\r\nb OK x\r\n"), (b"a IDLE\r\nDONE\r\n", b"+ x\r\na OK x\r\n"),
    (b"{\r\n", b"* BAD x\r\n"), (b"a LOGOUT\r\n", b"* BYE x\r\na OK x\r\n"), (b"a NOOP", b""), (b"", b"* BYE x\r\n"))


@pytest.mark.parametrize(("sent", "answered"), ANSWERED)
def test_the_right_answers(sent, answered):
    greeted().sent(sent, answered)
    wrong = [answered + b"* 1 EXISTS\r\n", b"a OK x\r\n" + answered, answered.replace(b"\r\n", b"\n")]
    if answered and b"BYE" not in answered:
        wrong += [answered.rpartition(b"\r\n")[0].rpartition(b"\r\n")[0], answered[:-2]]
    for other in wrong:
        if other != answered:
            with pytest.raises(AssertionError):
                greeted().sent(sent, other)


WRONG = (
    (b"b NOOP\r\n", b"* 1 EXISTS\r\nb OK x\r\n"), (b"b NOOP\r\n", b"* 3 EXPUNGE\r\nb OK x\r\n"),
    (b"b FETCH 1 FLAGS\r\n", b"* 1 EXPUNGE\r\nb OK x\r\n"), (b"b STORE 1 FLAGS ()\r\n", b"* 1 EXPUNGE\r\nb OK x\r\n"),
    (b"b SEARCH 1\r\n", b"* 1 EXPUNGE\r\nb OK x\r\n"), (b"b NOOP\r\n", b"* 3 FETCH (FLAGS ())\r\nb OK x\r\n"),
    (b"b SEARCH ALL\r\n", b"* SEARCH 3\r\nb OK x\r\n"),
    (b"b UID FETCH 1 FLAGS\r\n", b"* 1 FETCH (FLAGS ())\r\nb OK x\r\n"),
    (b"b NOOP\r\n", b"* VANISHED 1\r\nb OK x\r\n"), (b"b NOOP\r\n", b"b OK x\r\n* 3 EXISTS\r\n"),
    (b"b FETCH 1:2 UID\r\n", b"* 1 FETCH (UID 2)\r\n* 2 FETCH (UID 1)\r\nb OK x\r\n"),
    (b"b UID SEARCH RETURN () ALL\r\n", b'* ESEARCH (TAG "b") COUNT 1\r\nb OK x\r\n'),
    (b"b UID SEARCH RETURN () ALL\r\n", b'* ESEARCH (TAG "c") UID COUNT 1\r\nb OK x\r\n'))


@pytest.mark.parametrize(("sent", "answered"), WRONG)
def test_wrong_news(sent, answered):
    client = greeted()
    client.sent(SENT, SELECTED)
    with pytest.raises(AssertionError):
        client.sent(sent, answered)


def greeted():
    """A client that has just connected."""
    client = Client(100)
    client.greeted(GREETING)
    return client


def test_the_reference_of_framing():
    octets = (b"a NOOP\r\nb x {3+}\r\nabc y\r\nc APPEND x {99+}\r\n" + b"d" * 99
              + b"\r\ne x {20+}\r\nf LOGOUT\r\nxxxxxxxxxxx\r\n")
    wanted = [Frame((b"a NOOP",)), Frame((b"b x {3+}", b"abc", b" y")), Frame((b"c APPEND x {99+}", b"", b"")),
              ("BAD", b"e")]
    assert Reference(octets, SMALL).commands() == wanted == heard([octets], SMALL)
    assert parse_command(wanted[0])[0] == b"a"
    octets = b"a APPEND {1+} x {2}\r\nbc\r\n"       # the mailbox is no literal, so what comes is no message
    wanted = [Frame((b"a APPEND {1+} x {2}", b"bc", b""))]
    assert Reference(octets, SMALL).commands() == wanted == heard([octets], SMALL)
