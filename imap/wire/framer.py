"""Lines and literals: RFC 3501 §2.2.1, §4.3; RFC 7888. What the octets mean is the scanner's business.

A session keeps one `Framer` and turns what it says into reads of its stream:

    step = framer.line(await stream.line(framer.limits.line, timeout))
              after LineTooLong: framer.too_long(its start, its end) instead
    Frame     one whole command: parse it and run it
    Literal   if `sync`, write CONTINUE; read exactly `size` octets; framer.literal(octets); then the next line
    Message   this literal is for the session: `frame` is the command so far. Either take it, as for Literal, but the
              octets go elsewhere and framer.streamed() is called; or step = framer.refuse(problem)
    Swallow   read `size` octets and throw them away; then the next line
    Rejected  the command is over and was not one: answer `problem` with `tag` (None: untagged), never run any of it;
              if `closing`, say BYE and close, because where the next command starts cannot be known

After Frame and Rejected the next line starts a new command. Before the session drops its input (STARTTLS) the framer
is between commands and holds nothing. Lines that are not commands (the client's side of AUTHENTICATE and IDLE) do not
pass here.

An over-long command is swallowed to its end. A client that sent a literal without waiting has its octets swallowed; one
that waits for "+" gets the refusal instead, and its command ends there (RFC 7888 §4).
"""

import re
from collections.abc import Callable

from attrs import define, field, frozen

from imap.wire.commandlimits import Limits
from imap.wire.grammar import LITERAL, MAX_NUMBER64, TAG, SyntaxProblem

CONTINUE = b"+ Go ahead\r\n"
_DIGITS = len(str(MAX_NUMBER64))
_END_OF_SIZE = re.compile(rb"[0-9]+\+?\}")


class Frame(tuple[bytes, ...]):
    """One whole command: text, literal, text, literal, ..., text. There is always one text more than literals.

    The texts keep their literal announcements ("{5}") and have no CRLF. In the frame of a `Message` the last text
    ends in the announcement of the literal that is still to come. It is a tuple because every command needs one.
    """

    __slots__ = ()


@frozen
class Announced:
    """A literal announced at the end of a line; `sync` if the client waits to be asked for it."""

    size: int
    sync: bool


@frozen
class Literal:
    """Wanted: `size` octets, for the framer."""

    size: int
    sync: bool


@frozen
class Message:
    """Wanted: `size` octets, which the session may take elsewhere or refuse."""

    size: int
    sync: bool
    frame: Frame


@frozen
class Swallow:
    """Wanted: that `size` octets be thrown away."""

    size: int


@frozen
class Rejected:
    """The command was not one, or was refused before its end."""

    tag: bytes | None
    problem: SyntaxProblem
    closing: bool = False


Step = Frame | Literal | Message | Swallow | Rejected


def literal_at_end(line: bytes) -> Announced | None:
    """The literal that this line announces, {n} or {n+}, if it does."""
    return literal_at(line, line.rfind(b"{")) if line.endswith(b"}") else None


def literal_at(line: bytes, at: int) -> Announced | None:
    """The literal that the line announces from there on, if it does. A size past 63 bits counts as the largest."""
    found = LITERAL.match(line, at) if at >= 0 else None
    if found is None:
        return None
    digits = found[1].lstrip(b"0")
    size = int(digits or b"0") if len(digits) <= _DIGITS else MAX_NUMBER64
    return Announced(min(size, MAX_NUMBER64), sync=not found[2])


def _no_messages(_: Frame) -> bool:
    return False


@define
class Framer:
    """Puts the lines and literals of one connection together to commands; see the module's text.

    `is_message` says whether the literal that a command so far announces at its end is one for the session.
    """

    limits: Limits
    is_message: Callable[[Frame], bool] = _no_messages
    _parts: list[bytes] = field(factory=list, init=False)
    _text: int = field(default=0, init=False)               # octets of text so far
    _memory: int = field(default=0, init=False)             # octets of literals so far
    _messages: int = field(default=0, init=False)           # literals so far that were the session's
    _wanted: Announced | None = field(default=None, init=False)
    _refused: Rejected | None = field(default=None, init=False)     # what to say at the end of what is being swallowed

    def line(self, line: bytes) -> Step:
        """The next line of the connection, without its line end."""
        if not (line.endswith(b"}") or self._parts or self._refused or len(line) > self.limits.line):
            return Frame((line,))           # nearly every command
        announced = literal_at(line, line.rfind(b"{")) if line.endswith(b"}") else None
        if self._refused is not None:
            return self._swallowing(self._refused, announced)
        if self._wanted is not None:
            raise RuntimeError("a line came where a literal was wanted")
        self._parts.append(line)
        self._text += len(line)
        if self._text > self.limits.line:
            return self._reject(SyntaxProblem("The command is too long"), announced)
        if announced is None:
            frame = Frame(tuple(self._parts))
            self._reset()
            return frame
        return self._literal_announced(announced)

    def too_long(self, start: bytes, end: bytes | None = None) -> Step:
        """A line was over the limit and has been swallowed. `end`: its last octets, 32 or more, without the line end.

        Without `end` nobody knows whether a literal follows, so the connection must close.
        """
        if not self._parts:
            self._parts.append(start)
        if end is None:
            return self._reject(SyntaxProblem("The command is too long"), None, closing=True)
        announced = literal_at_end(end)
        if announced is None and _END_OF_SIZE.fullmatch(end):       # the announcement is longer than what is known
            announced = Announced(MAX_NUMBER64, sync=not end.endswith(b"+}"))
        return self._reject(SyntaxProblem("The command is too long"), announced)

    def literal(self, octets: bytes) -> None:
        """The octets of the `Literal` that was wanted."""
        if self._wanted is None or len(octets) != self._wanted.size:
            raise RuntimeError("not the literal that was wanted")
        self._parts.append(octets)
        self._memory += len(octets)
        self._wanted = None

    def streamed(self) -> None:
        """The octets of the `Message` have gone elsewhere; in the frame an empty literal stands for them."""
        if self._wanted is None:
            raise RuntimeError("no literal was wanted")
        self._parts.append(b"")
        self._wanted = None

    def refuse(self, problem: SyntaxProblem) -> Step:
        """The session does not want the literal it was offered: the command is swallowed and `problem` its answer."""
        return self._reject(problem, self._wanted)

    def _literal_announced(self, announced: Announced) -> Step:
        limits = self.limits
        frame = Frame(tuple(self._parts))
        if self._messages or self.is_message(frame):
            if self._messages >= limits.messages:
                return self._reject(SyntaxProblem("Too many messages", code=b"LIMIT", status=b"NO"), announced)
            self._messages += 1
            self._wanted = announced
            return Message(announced.size, announced.sync, frame)
        if len(self._parts) // 2 >= limits.literals:
            return self._reject(SyntaxProblem("Too many literals"), announced)
        if announced.size > limits.literal or self._memory + announced.size > limits.memory:
            return self._reject(SyntaxProblem("The literal is too long"), announced)
        self._wanted = announced
        return Literal(announced.size, announced.sync)

    def _reject(self, problem: SyntaxProblem, announced: Announced | None, *, closing: bool = False) -> Step:
        if self._refused is None:
            start = self._parts[0]
            tag = TAG.match(start)
            # A tag that the limit has cut off would be another's.
            whole = tag is not None and start[tag.end():tag.end() + 1] == b" "
            self._refused = Rejected(tag[0] if tag and whole else None, problem, closing)
        self._wanted = None
        return self._swallowing(self._refused, announced, closing=closing)

    def _swallowing(self, refused: Rejected, announced: Announced | None, *, closing: bool = False) -> Step:
        """Go on with what is swallowed: to its end, or to where the client waits."""
        if announced is not None and not announced.sync and not closing:
            if announced.size <= self.limits.swallow:
                return Swallow(announced.size)
            closing = True
        self._reset()
        return Rejected(refused.tag, refused.problem, closing)

    def _reset(self) -> None:
        self._parts.clear()
        self._text = self._memory = self._messages = 0
        self._wanted = self._refused = None
