"""The client's side of IMAP4rev1, as much of it as bringing mail needs: commands one after the other or ahead, answers
one at a time, large literals in files."""

import base64
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import Protocol, cast

from attrs import define, field, frozen

from store.values import Secret

LINE = 1 << 20              # octets of a line of an answer, without literals
SPOOL = 1 << 20             # a literal beyond this goes to a file
TIMEOUT = 120               # seconds without a sign of life

_LITERAL = re.compile(rb"~?\{([0-9]{1,15})\+?\}\r?\n$")
_TOKEN = re.compile(rb'\(|\)|"((?:[^"\\]|\\.)*)"|[^\s()"]+|\s+')
_ESCAPE = re.compile(rb"\\(.)")


class Gone(Exception):
    """The connection has ended, or makes no sense; another one may do better."""


class Refused(Exception):
    """NO or BAD; the text is the server's."""


class Literal:
    """The octets of a literal, in memory or in a file that goes with it."""

    def __init__(self, file: "SpooledTemporaryFile[bytes]", size: int) -> None:
        self.file, self.size = file, size

    def octets(self) -> bytes:
        """All of it: for what cannot be large."""
        self.file.seek(0)
        return self.file.read()


Piece = bytes | Literal


@frozen
class Answer:
    """A response: its tag (b"*" and b"+" too), and the rest, cut up where literals are."""

    tag: bytes
    pieces: Sequence[Piece] = field(repr=False)

    @property
    def text(self) -> bytes:
        """The rest up to the first literal."""
        first = self.pieces[0]
        assert isinstance(first, bytes)
        return first

    @property
    def status(self) -> bytes:
        """Its first word."""
        return self.text.partition(b" ")[0].upper()


class Readable(Protocol):
    """Gives octets."""

    def readline(self, size: int = -1, /) -> bytes:
        """Up to a line end, or so many."""

    def read(self, size: int = -1, /) -> bytes:
        """So many, or fewer at the end."""

    def close(self) -> None:
        """No more."""


class Writable(Protocol):
    """Takes octets, perhaps not all at once."""

    def write(self, octets: memoryview, /) -> int | None:
        """How many it has taken."""

    def flush(self) -> None:
        """Have them go."""

    def close(self) -> None:
        """No more."""


class Way(Protocol):
    """What octets come and go by."""

    @property
    def reading(self) -> Readable:
        """What comes."""

    @property
    def writing(self) -> Writable:
        """What goes."""

    def close(self) -> None:
        """No more of either."""


@define(eq=False)
class Network:
    """A connection, under TLS or not yet."""

    socket: socket.socket
    reading: Readable = field(init=False)
    writing: Writable = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reading = cast(Readable, self.socket.makefile("rb", buffering=1 << 18))
        self.writing = self.socket.makefile("wb", buffering=0)

    def close(self) -> None:
        for each in (self.reading, self.writing, self.socket):
            each.close()


@define(eq=False)
class Tunnel:
    """A program that speaks IMAP on its standard input and output, as the user already (PREAUTH)."""

    process: "subprocess.Popen[bytes]"

    @property
    def reading(self) -> Readable:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def writing(self) -> Writable:
        assert self.process.stdin is not None
        return self.process.stdin

    def close(self) -> None:
        for each in (self.process.stdin, self.process.stdout):
            try:
                if each is not None:
                    each.close()
            except OSError:
                continue
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Connection:
    """A connection to a server, after its greeting. Everything may raise Gone."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self._serial = 0
        self.capabilities: frozenset[str] = frozenset()
        greeting = self._answer()
        if greeting.tag != b"*" or greeting.status not in (b"OK", b"PREAUTH"):
            raise Gone(f"the server says {shown(greeting)}")
        self.authenticated = greeting.status == b"PREAUTH"

    def close(self) -> None:
        """End it, politely if that goes at once."""
        try:
            self.send(b"LOGOUT")
        except Gone:
            pass
        self.way.close()

    def send(self, *pieces: bytes) -> bytes:
        """Begin a command; its tag. Pieces after the first are literals, each followed by what comes behind it."""
        self._serial += 1
        tag = b"c%d" % self._serial
        self._write(tag + b" " + b"".join(pieces) + b"\r\n")
        return tag

    def _write(self, octets: bytes) -> None:
        try:
            view = memoryview(octets)
            while view:
                view = view[self.way.writing.write(view) or len(view):]
            self.way.writing.flush()
        except (OSError, ValueError) as error:
            raise Gone(str(error)) from error

    def run(self, *pieces: bytes) -> list[Answer]:
        """A command whose untagged answers are few; these. Raises Refused."""
        return list(self.answers(self.send(*pieces)))

    def answers(self, tag: bytes) -> Iterator[Answer]:
        """The untagged answers until that command has ended. Raises Refused."""
        while True:
            answer = self._answer()
            if answer.tag == tag:
                if answer.status != b"OK":
                    raise Refused(shown(answer))
                return
            if answer.tag == b"*":
                if answer.status == b"BYE":
                    raise Gone(f"the server says {shown(answer)}")
                yield answer

    def _answer(self) -> Answer:
        try:
            pieces: list[Piece] = []
            while True:
                line = self.way.reading.readline(LINE)
                if not line.endswith(b"\n"):
                    raise Gone("the connection has ended" if len(line) < LINE else "an answer is too long")
                found = _LITERAL.search(line)
                if found is None:
                    pieces.append(line.rstrip(b"\r\n"))
                    break
                pieces.append(line[:found.start()])
                pieces.append(self._literal(int(found[1])))
        except (OSError, ValueError) as error:
            raise Gone(str(error)) from error
        first = pieces[0]
        assert isinstance(first, bytes)
        tag, _, rest = first.partition(b" ")
        return Answer(tag, [rest, *pieces[1:]])

    def _literal(self, size: int) -> Literal:
        file: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(SPOOL)
        left = size
        while left:
            data = self.way.reading.read(min(left, 1 << 18))
            if not data:
                raise Gone("the connection has ended within a message")
            file.write(data)
            left -= len(data)
        file.seek(0)
        return Literal(file, size)

    def capability(self) -> None:
        """Ask what the server can do."""
        words = [word for answer in self.run(b"CAPABILITY") if answer.status == b"CAPABILITY"
                 for word in answer.text.decode("ascii", "replace").upper().split()[1:]]
        self.capabilities = frozenset(words)

    def start_tls(self, host: str, context: ssl.SSLContext) -> None:
        """RFC 3501 §6.2.1; what the server has said before it is forgotten. Raises Refused, OSError."""
        self.run(b"STARTTLS")
        assert isinstance(self.way, Network)
        self.way = Network(context.wrap_socket(self.way.socket, server_hostname=host))
        self.capabilities = frozenset()

    def log_in(self, user: str, password: Secret, admin: str = "") -> None:
        """As the user; with `admin` by that one's password, for the user (RFC 4616 §2). Raises Refused."""
        if "AUTH=PLAIN" in self.capabilities:
            told = base64.b64encode("\0".join((user if admin else "", admin or user, "")).encode() + password.reveal())
            self._serial += 1
            tag = b"c%d" % self._serial
            self._write(tag + b" AUTHENTICATE PLAIN\r\n")
            answer = self._answer()
            while answer.tag == b"*":
                answer = self._answer()
            if answer.tag != b"+":
                raise Refused(shown(answer))
            self._write(told + b"\r\n")
            for _ in self.answers(tag):
                pass
        elif admin:
            raise Refused("the server has no AUTHENTICATE PLAIN, which an administrator needs")
        else:
            self.run(b"LOGIN " + quoted(user.encode()) + b" " + quoted(password.reveal()))
        self.capability()


def connected(host: str, port: int, tls: str, context: ssl.SSLContext) -> Connection:
    """A connection; `tls` is "tls", "starttls" or "none". Raises Gone, Refused, OSError."""
    way = socket.create_connection((host, port), TIMEOUT)
    try:
        if tls == "tls":
            way = context.wrap_socket(way, server_hostname=host)
        made = Connection(Network(way))
        if tls == "starttls":
            made.start_tls(host, context)
        return made
    except BaseException:
        way.close()
        raise


def tunnelled(command: Sequence[str]) -> Connection:
    """A connection to a program. Raises Gone, OSError."""
    process: subprocess.Popen[bytes] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    way = Tunnel(process)
    try:
        return Connection(way)
    except BaseException:
        way.close()
        raise


def shown(answer: Answer) -> str:
    """What the server says, for people."""
    text = answer.text.decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])


def quoted(octets: bytes) -> bytes:
    """RFC 3501 §9 quoted. Raises Refused for what needs a literal: no mailbox or password should."""
    if re.search(rb"[\x00\r\n]", octets):
        raise Refused("a name or password has octets that IMAP cannot have in one line")
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", octets) + b'"'


def parsed(pieces: Sequence[Piece]) -> list[object]:
    r"""The values of an answer: lists for parentheses, bytes for strings and literals that are short, str for atoms,
    None for NIL. What stands in brackets stays with its atom."""
    top: list[object] = []
    stack = [top]
    for piece in pieces:
        if isinstance(piece, Literal):
            stack[-1].append(piece)
            continue
        at = 0
        while at < len(piece):
            token = _TOKEN.match(piece, at)
            if token is None:
                raise Gone("an answer cannot be read")
            at = token.end()
            text = token[0]
            if text == b"(":
                inner: list[object] = []
                stack[-1].append(inner)
                stack.append(inner)
            elif text == b")":
                if len(stack) == 1:
                    raise Gone("an answer cannot be read")
                stack.pop()
            elif text[:1] == b'"':
                stack[-1].append(_ESCAPE.sub(rb"\1", token[1]))
            elif not text.isspace():
                atom = text.decode("utf-8", "replace")
                stack[-1].append(None if atom.upper() == "NIL" else atom)
    if len(stack) > 1:
        raise Gone("an answer cannot be read")
    return top


def octets_of(value: object) -> bytes:
    """A string, however it came; an atom too."""
    if isinstance(value, Literal):
        return value.octets()
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return value if isinstance(value, bytes) else b""

