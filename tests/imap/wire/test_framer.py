"""Whole commands out of any stream of octets, and none out of what is too long: RFC 3501 §2.2.1, RFC 7888."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imap.wire.append import is_message
from imap.wire.commandlimits import Limits
from imap.wire.framer import Announced, Frame, Framer, Literal, Message, Rejected, Swallow, literal_at_end
from imap.wire.grammar import MAX_NUMBER64, SyntaxProblem

SMALL = Limits(line=40, literal=10, literals=3, memory=15, swallow=100)


class Conversation:
    """A session's loop over a framer, fed octets as they come."""

    def __init__(self, limits=SMALL, messages=True, refuse=None):
        self.framer = Framer(limits, is_message if messages else lambda frame: False)
        self.refuse = refuse
        self.seen = []          # frames, (tag, text) of what was rejected, b"+", messages
        self._octets = b""
        self._loop = self._run()
        next(self._loop)

    def feed(self, octets):
        self._octets += octets
        self._loop.send(None)
        return self

    def _run(self):
        while True:
            step = yield from self._line()
            while not isinstance(step, Frame | Rejected):
                match step:
                    case Literal(size, sync):
                        self._ask(sync)
                        self.framer.literal((yield from self._exactly(size)))
                    case Message() if self.refuse:
                        step = self.framer.refuse(self.refuse)
                        continue
                    case Message(size, sync):
                        self._ask(sync)
                        self.seen.append((yield from self._exactly(size)))
                        self.framer.streamed()
                    case Swallow(size):
                        yield from self._exactly(size)
                step = yield from self._line()
            self.seen.append(step if isinstance(step, Frame) else (step.tag, step.problem.public, step.closing))

    def _ask(self, sync):
        if sync:
            self.seen.append(b"+")

    def _line(self):
        while b"\r\n" not in self._octets:
            yield
        line, _, self._octets = self._octets.partition(b"\r\n")
        limit = self.framer.limits.line
        return self.framer.line(line) if len(line) <= limit else self.framer.too_long(line[:limit], line[-32:])

    def _exactly(self, size):
        while len(self._octets) < size:
            yield
        octets, self._octets = self._octets[:size], self._octets[size:]
        return octets


LONG = "The command is too long"
LITERAL_LONG = "The literal is too long"
CONVERSATIONS = [
    (b"a NOOP\r\nb NOOP\r\n", [Frame((b"a NOOP",)), Frame((b"b NOOP",))]),
    (b"a LOGIN {3}\r\nx\r\n {2+}\r\nyz\r\n", [b"+", Frame((b"a LOGIN {3}", b"x\r\n", b" {2+}", b"yz", b""))]),
    (b"a LOGIN {0}\r\n x\r\nb NOOP\r\n", [b"+", Frame((b"a LOGIN {0}", b"", b" x")), Frame((b"b NOOP",))]),
    (b"a x {7+}\r\nb {9}\r\n\r\n", [Frame((b"a x {7+}", b"b {9}\r\n", b""))]),
    # A literal that was sent without asking is swallowed; what is in it never runs.
    (b"a x {14+}\r\nevil LOGOUT\r\n \r\nb NOOP\r\n", [(b"a", LITERAL_LONG, False), Frame((b"b NOOP",))]),
    (b"a x {14+}\r\nevil LOGOUT\r\n  {6+}\r\nevil\r\n {1+}\r\n.\r\nb NOOP\r\n",
     [(b"a", LITERAL_LONG, False), Frame((b"b NOOP",))]),
    # After what is swallowed, one that waits: it is told, and the command ends there.
    (b"a x {14+}\r\nevil LOGOUT\r\n  {6}\r\nb NOOP\r\n", [(b"a", LITERAL_LONG, False), Frame((b"b NOOP",))]),
    (b"a x {14}\r\nb NOOP\r\n", [(b"a", LITERAL_LONG, False), Frame((b"b NOOP",))]),
    (b"a x {9}\r\n123456789 {9}\r\nb NOOP\r\n", [b"+", (b"a", LITERAL_LONG, False), Frame((b"b NOOP",))]),
    (b"a {1+}\r\n1{1+}\r\n2{1+}\r\n3{1+}\r\n4\r\nb NOOP\r\n",
     [(b"a", "Too many literals", False), Frame((b"b NOOP",))]),
    (b"a " + b"x" * 50 + b"\r\nb NOOP\r\n", [(b"a", LONG, False), Frame((b"b NOOP",))]),
    (b"a" * 50 + b" NOOP\r\nb NOOP\r\n", [(None, LONG, False), Frame((b"b NOOP",))]),
    (b"a " + b"x" * 50 + b" {13+}\r\nevil LOGOUT\r\n\r\nb NOOP\r\n", [(b"a", LONG, False), Frame((b"b NOOP",))]),
    (b"a " + b"x" * 50 + b" {13}\r\nb NOOP\r\n", [(b"a", LONG, False), Frame((b"b NOOP",))]),
    (b"a xxxxxxxxxxxxxxxxxxxxxx {1}\r\n.yyyyyyyyyyyyyyyyyyyyyyyyyy\r\nb NOOP\r\n",
     [b"+", (b"a", LONG, False), Frame((b"b NOOP",))]),
    (b"a x {14+}\r\nevil LOGOUT\r\n " + b"z" * 50 + b"{2+}\r\n\r\n\r\nb NOOP\r\n",
     [(b"a", LITERAL_LONG, False), Frame((b"b NOOP",))]),
    # The end of more than this is not waited for (RFC 7888 §4).
    (b"a x {101+}\r\n", [(b"a", LITERAL_LONG, True)]),
    (b"a x {" + b"9" * 30 + b"+}\r\n", [(b"a", LITERAL_LONG, True)]),
    (b"a x {" + b"9" * 30 + b"}\r\n", [(b"a", LITERAL_LONG, False)]),
    # The message of APPEND is the session's, and may be larger than any other literal.
    (b"a APPEND x {50}\r\n" + b"m" * 50 + b"\r\nb NOOP\r\n",
     [b"+", b"m" * 50, Frame((b"a APPEND x {50}", b"", b"")), Frame((b"b NOOP",))]),
    (b"a APPEND {1+}\r\nx {50+}\r\n" + b"m" * 50 + b"\r\nb NOOP\r\n",
     [b"m" * 50, Frame((b"a APPEND {1+}", b"x", b" {50+}", b"", b"")), Frame((b"b NOOP",))]),
]


@pytest.mark.parametrize("octets, seen", CONVERSATIONS)
def test_every_cut_of_the_stream_gives_the_same(octets, seen):
    for cut in range(len(octets) + 1):
        assert Conversation().feed(octets[:cut]).feed(octets[cut:]).seen == seen
    by_octet = Conversation()
    for at in range(len(octets)):
        by_octet.feed(octets[at:at + 1])
    assert by_octet.seen == seen


FULL = SyntaxProblem("The quota is used up", code=b"OVERQUOTA", status=b"NO")


@pytest.mark.parametrize("octets", [
    b"a APPEND x {50}\r\nb NOOP\r\n",
    b"a APPEND x {50+}\r\n" + b"e LOGOUT\r\n" * 5 + b"\r\nb NOOP\r\n",
    b"a APPEND x {50+}\r\n" + b"e LOGOUT\r\n" * 5 + b" {10+}\r\ne LOGOUT\r\n\r\nb NOOP\r\n"])
def test_a_message_that_is_refused_is_swallowed_or_never_sent(octets):
    assert Conversation(refuse=FULL).feed(octets).seen == [(b"a", FULL.public, False), Frame((b"b NOOP",))]


def test_a_line_whose_end_is_not_known_ends_the_connection():
    framer = Framer(SMALL)
    step = framer.too_long(b"a LOGIN xxx")
    assert isinstance(step, Rejected) and step.closing and step.tag == b"a"


@pytest.mark.parametrize("line, announced", [
    (b"a {3}", Announced(3, True)), (b"a {3+}", Announced(3, False)), (b"{0}", Announced(0, True)),
    (b"a ~{5}", Announced(5, True)), (b'a "x{4}', Announced(4, True)), (b"a {3}{4}", Announced(4, True)),
    (b"{00000000000000000000000000007}", Announced(7, True)),
    (b"{" + b"9" * 5000 + b"}", Announced(MAX_NUMBER64, True)),
    (b"", None), (b"a", None), (b"a {3} ", None), (b"a {}", None), (b"a {3-}", None), (b"a {x}", None), (b"a }", None),
    (b"a {3}}", None), (b'a "{3}"', None), (b"a {+3}", None), (b"a {3++}", None)])
def test_a_literal_is_seen_at_the_end_of_a_line(line, announced):
    assert literal_at_end(line) == announced


def test_a_session_that_loses_its_place_is_told():
    framer = Framer(SMALL)
    for call in (lambda: framer.literal(b""), framer.streamed):
        with pytest.raises(RuntimeError):
            call()
    assert framer.line(b"a {3}") == Literal(3, True)
    with pytest.raises(RuntimeError):
        framer.line(b"b NOOP")
    with pytest.raises(RuntimeError):
        framer.literal(b"four")


def test_nothing_is_left_over_for_the_next_command():
    framer = Framer(SMALL)
    for _ in range(20):
        assert framer.line(b"a " + b"x" * 20 + b"{10}") == Literal(10, True)
        framer.literal(b"0123456789")
        assert isinstance(framer.line(b""), Frame)


@given(st.lists(st.sampled_from([
    b"a NOOP", b"\r\n", b"{3}", b"{3+}", b"{20+}", b"{200+}", b"{20}", b"APPEND", b" x ", b"c APPEND x {30+}",
    b"y" * 30, b'"', b"\0", b"\xff"]), max_size=40), st.integers(1, 50))
def test_any_stream_is_taken_in_bounded_memory(pieces, size):
    conversation = Conversation()
    octets = b"".join(pieces)
    for at in range(0, len(octets), size):
        conversation.feed(octets[at:at + size])
    for step in conversation.seen:
        if isinstance(step, Frame):
            assert len(step) % 2 == 1
            assert sum(map(len, step[0::2])) <= SMALL.line
            assert sum(map(len, step[1::2])) <= SMALL.memory


@pytest.mark.parametrize(("announced", "closing"), [(b"+", True), (b"", False)])
def test_the_size_of_a_literal_that_is_longer_than_what_is_known_of_the_line(announced, closing):
    """What follows such a line is never run: it may be the literal."""
    step = Framer(SMALL).too_long(b"a NOOP x", (b"5" * 100 + announced + b"}")[-32:])
    assert step.closing is closing and step.tag == b"a"
