"""What the commands in a stream of octets are, read off the whole of it: RFC 3501 §2.2.1, RFC 7888 §3, §4.

And the same as a connection finds it, piece by piece.
"""

import re

from attrs import define, field
from twisted.internet.task import Clock

from imap.commandreader import CommandReader
from imap.settings import Settings
from imap.wire.framer import Frame
from store.net.linestates import KEPT
from store.net.stream import INPUT
from store.net.streamfactory import StreamFactory
from tests.support.conversations.wire import Wire

IDLE = 1800.0           # seconds that a client may take until its next command
_LITERAL = re.compile(rb"\{([0-9]+)(\+?)\}$")
_ONLY_DIGITS = re.compile(rb"[0-9]{%d}\+\}$" % (KEPT - 2))
_TAG_CHARS = rb"[^\x00-\x20\x7f-\xff(){%*\"\\+]+"
_TAG = re.compile(rb"(%b) " % _TAG_CHARS)
_APPEND = re.compile(rb'%b APPEND (?:[^\x00-\x20\x7f-\xff(){"\\]+|"(?:[^"\\\x00\r\n]|\\["\\])*"|(\{[0-9]+\+?\})) '
                     % _TAG_CHARS, re.IGNORECASE | re.DOTALL)


@define
class Reference:
    """The commands in `data`: Frame, ("BAD", tag), and at last ("closed",) if nobody can know where the next begins."""

    data: bytes
    limits: object
    seen: list = field(factory=list)
    at: int = 0

    def commands(self):
        """All that are complete."""
        try:
            while self._command():
                pass
        except EOFError:
            pass
        return self.seen

    def _line(self):
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise EOFError
        line, self.at = self.data[self.at:end].removesuffix(b"\r"), end + 1
        return line

    def _literal(self, line):
        """Its size and whether it comes at once. Of an over-long line KEPT octets are known at its end: digits, with
        nothing to say that they are no size, could be any."""
        found = _LITERAL.search(line)
        if found is not None:
            return int(found[1]), bool(found[2])
        return (1 << 63, True) if len(line) > self.limits.line and _ONLY_DIGITS.search(line) else None

    def _octets(self, size):
        if self.at + size > len(self.data):
            raise EOFError
        octets, self.at = self.data[self.at:self.at + size], self.at + size
        return octets

    def _command(self):
        """One command; whether another can follow."""
        limits, parts, text, memory, messages = self.limits, [], 0, 0, 0
        while True:
            line = self._line()
            parts.append(line)
            text += len(line)
            literal = self._literal(line)
            if text > limits.line:
                return self._bad(parts[0], literal)
            if literal is None:
                self.seen.append(Frame(tuple(parts)))
                return True
            size, _ = literal
            if messages or self._is_message(parts):
                if messages == limits.messages:
                    return self._bad(parts[0], literal)
                messages += 1
                self._octets(size)
                parts.append(b"")
                continue
            memory += size
            if size > limits.literal or memory > limits.memory or len(parts) // 2 >= limits.literals:
                return self._bad(parts[0], literal)
            parts.append(self._octets(size))

    @staticmethod
    def _is_message(parts):
        """Whether the mailbox of an APPEND is there, so that a message is what follows."""
        found = _APPEND.match(parts[0] + b" ")
        if found is None:
            return False
        if found[1] is not None:
            # The literal is the mailbox: the message comes after it. (Within a line it is no literal.)
            return found.end() > len(parts[0]) and len(parts) > 1 and b"\0" not in parts[1] and parts[2][:1] == b" "
        return found.end() <= len(parts[0])

    def _bad(self, start, literal):
        """Pass over what belongs to a command that is none: to its end, or to where the client waits."""
        tag = _TAG.match(start[:self.limits.line])
        while literal is not None and literal[1]:
            if literal[0] > self.limits.swallow:
                self.seen += [("BAD", tag and tag[1]), ("closed",)]
                return False
            self._octets(literal[0])
            literal = self._literal(self._line())
        self.seen.append(("BAD", tag and tag[1]))
        return True


class Heard:
    """A session that only reads, as `imap.session` does for who has logged in, and keeps what it has read."""

    def __init__(self, stream, limits, clock):
        self.stream = stream
        self.clock = clock
        self.seen = []
        self.reading = CommandReader(stream, Settings(), clock)
        self.reading.framer.limits = limits

    async def run(self):
        """Read commands until it cannot be known where the next one begins."""
        while True:
            deadline = self.clock.seconds() + IDLE
            if self.stream.await_input(deadline):
                await INPUT
            line = self.stream.line_at_once(self.reading.framer.limits.line)
            step = None if line is None else self.reading.framer.line(line)
            if not isinstance(step, Frame):
                step = await self.reading.command(self._message, step, deadline)
            if isinstance(step, Frame):
                self.seen.append(step)
                continue
            assert step.problem.public.isascii() and step.problem.public.isprintable()
            self.seen.append(("BAD", step.tag))
            if step.closing:
                self.seen.append(("closed",))
                return

    async def _message(self, wanted):
        left = wanted.size
        while left:
            left -= len(await self.reading.some(left))
        self.reading.framer.streamed()


def heard(pieces, limits):
    """What a connection reads off these pieces, and how often it asks for a literal."""
    clock = Clock()
    sessions = []

    def start(stream):
        sessions.append(Heard(stream, limits, clock))
        return sessions[0]

    wire = Wire(StreamFactory(start, clock), clock)
    for piece in pieces:
        wire.send(piece)
    asked = wire.received()
    assert asked == b"+ Go ahead\r\n" * (len(asked) // 12), asked
    if not wire.closed:
        wire.hang_up()
    return sessions[0].seen
