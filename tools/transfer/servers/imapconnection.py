"""The client's side of IMAP4rev1, as much of it as an import needs.

It is ours, on the parser of `imap.wire`: IMAPClient holds all answers to a command in memory, messages too, has one
command under way at a time, and takes FETCH answers without a UID for those of the message with that UID.
"""

import base64
import contextlib
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO

from attrs import define, field, frozen

from imap.wire.framer import Announced, Frame, literal_at_end
from imap.wire.grammar import ESCAPE, MAX_NUMBER, QUOTED, SyntaxProblem
from imap.wire.scanner import Scanner
from mboxlist import privatefiles
from store.accounts import clienttls
from store.values import Secret
from tools.transfer.mailofothers import program_user
from tools.transfer.servers.pacedreading import READ_OCTETS, TIMEOUT_SECONDS, Pace, reading
from tools.transfer.sourcevalues import Unreadable, UserTime

LINE_OCTETS = 1 << 20       # the longest line of an answer, without its literals
ANSWER_LITERALS = 100       # the most literals in one answer
COLLECTED_OCTETS = 64 << 20     # the most of answers that are collected before they are used
MEMORY_OCTETS = 1 << 20     # a literal that is longer goes to a file
EXIT_SECONDS = 10           # in which a program has to end when it is left
PORTS = {"tls": 993, "starttls": 143, "none": 143}

_ATOM = re.compile(rb'(?i:BODY|BINARY)\[[^\]]*+\](?:<[0-9]+>)?|[^\s()"]++')       # also flags and items of FETCH
_TOO_MUCH = re.compile(rb"NO \[(UNAVAILABLE|INUSE|THROTTLED|OVERQUOTA)\]", re.IGNORECASE)     # of who only reads
_LITERAL = re.compile(rb"~?\{[0-9]++\+?\}\Z")


class Gone(Exception):
    """The connection has ended; another one may do better."""


class Refused(Exception):
    """NO or BAD; the text is the server's."""


@define(eq=False)
class Literal:
    """The octets of a literal, in memory or in a file that goes with it."""

    file: BinaryIO
    size: int

    def octets(self) -> bytes:
        """All of it: for what cannot be large. Raises Unreadable."""
        if self.size > COLLECTED_OCTETS:
            raise Unreadable("the server answers with more than can be held")
        self.file.seek(0)
        return self.file.read()


@frozen
class Answer:
    """A response: its tag ("*" and "+" too), the rest of its text, and the literals, which are empty in the frame."""

    tag: bytes
    frame: Frame
    literals: Sequence[Literal] = field(repr=False)

    @property
    def text(self) -> bytes:
        """The rest up to the first literal."""
        return self.frame[0]

    @property
    def status(self) -> bytes:
        """Its first word."""
        return self.text.partition(b" ")[0].upper()

    def values(self) -> list[object]:
        """Its values: a list for parentheses, bytes for a quoted string, Literal, str for an atom, None for NIL.

        Raises Unreadable.
        """
        try:
            return _values(Scanner(self.frame), iter(self.literals), nested=False)
        except SyntaxProblem as problem:
            raise Unreadable(f"an answer of the server cannot be read: {problem}") from problem


def _values(scan: Scanner, literals: Iterator[Literal], *, nested: bool) -> list[object]:
    scan.deeper()
    found: list[object] = []
    while not (nested and scan.take(b")")):
        if scan.take(b" "):
            continue
        if scan.at_end() and not nested:
            break
        if scan.take(b"("):
            found.append(_values(scan, literals, nested=True))
        elif (quoted := scan.match(QUOTED)) is not None:
            found.append(ESCAPE.sub(rb"\1", quoted[1]))
        elif _LITERAL.match(scan.text, scan.at):
            scan.announced()
            found.append(next(literals))
        elif (atom := scan.match(_ATOM)) is not None:
            text = atom[0].decode("utf-8", "replace")
            found.append(None if text.upper() == "NIL" else text)
        else:
            raise SyntaxProblem("parentheses or quotes are not closed")
    scan.back()
    return found


@define(eq=False)
class Connection:
    """A connection to a server, or to a program (through pipes: Dovecot's takes no socket). Everything may raise Gone,
    and Unreadable for answers that make no sense."""

    way: "socket.socket | subprocess.Popen[bytes]"
    time: UserTime = field(factory=UserTime)
    capabilities: frozenset[str] = frozenset()
    _pace: Pace = field(init=False)
    _reading: IO[bytes] = field(init=False)
    _serial: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._pace = Pace(self.time)
        self._reading = reading(self.way, self._pace)

    def greeted(self) -> "Connection":
        """The connection when the greeting has come."""
        answer = self._answer()
        if answer.tag != b"*" or answer.status not in (b"OK", b"PREAUTH"):
            raise Gone(f"the server says {shown(answer)}")
        return self

    def close(self) -> None:
        """End it, politely if that goes at once."""
        try:
            self.send(b"LOGOUT")
        except Gone:
            pass
        self.drop()

    def drop(self) -> None:
        self._reading.close()
        if isinstance(self.way, socket.socket):
            self.way.close()
            return
        assert self.way.stdin is not None and self.way.stdout is not None
        for pipe in (self.way.stdin, self.way.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self.way.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.way.kill()
            self.way.wait()

    def send(self, command: bytes) -> bytes:
        """Begin a command; its tag."""
        self._serial += 1
        tag = b"c%d" % self._serial
        self._write(tag + b" " + command)
        return tag

    def _write(self, line: bytes) -> None:
        try:
            if isinstance(self.way, socket.socket):
                self.way.sendall(line + b"\r\n")
            else:
                assert self.way.stdin is not None
                self.way.stdin.write(line + b"\r\n")
                self.way.stdin.flush()
        except (OSError, ValueError) as error:
            raise Gone(str(error)) from error

    def run(self, command: bytes) -> list[Answer]:
        """A command whose untagged answers are few; these. Raises Refused."""
        found, octets = list[Answer](), 0
        for answer in self.answers(self.send(command)):
            octets += sum(map(len, answer.frame)) + sum([literal.size for literal in answer.literals])
            if octets > COLLECTED_OCTETS:
                raise Unreadable("the server answers with more than can be held")
            found.append(answer)
        return found

    def answers(self, tag: bytes) -> Iterator[Answer]:
        """The untagged answers until that command has ended. Raises Refused."""
        while True:
            answer = self._answer()
            if answer.tag == tag:
                if answer.status != b"OK":
                    raise _refusal(answer)
                return
            if answer.tag == b"*":
                if answer.status == b"BYE":
                    raise Gone(f"the server says {shown(answer)}")
                yield answer

    def _answer(self) -> Answer:
        try:
            tag, _, text = self._line().partition(b" ")
            parts, literals = [text], list[Literal]()
            while (announced := literal_at_end(parts[-1])) is not None:
                if len(literals) == ANSWER_LITERALS:
                    raise Unreadable("an answer of the server has too many literals")
                literals.append(self._literal(announced))
                parts += b"", self._line()
        except (OSError, ValueError) as error:
            raise Gone(str(error)) from error
        return Answer(tag, Frame(tuple(parts)), literals)

    def _line(self) -> bytes:
        line = self._reading.readline(LINE_OCTETS)
        if line.endswith(b"\n"):
            return line.rstrip(b"\r\n")
        if len(line) == LINE_OCTETS:
            raise Unreadable("an answer of the server is too long")
        raise Gone("the connection has ended")

    def _literal(self, announced: Announced) -> Literal:
        if announced.size > MAX_NUMBER:         # RFC822.SIZE could not say it (RFC 3501 §9)
            raise Unreadable("the server sends a literal that is too long")
        literal, left = Literal(privatefiles.temporary_file(MEMORY_OCTETS), announced.size), announced.size
        while left:
            data = self._reading.read(min(left, READ_OCTETS))
            if not data:
                raise Gone("the connection has ended within a message")
            literal.file.write(data)
            left -= len(data)
        literal.file.seek(0)
        return literal

    def capability(self) -> None:
        """Ask what the server can do."""
        self.capabilities = frozenset(
            word for answer in self.run(b"CAPABILITY") if answer.status == b"CAPABILITY"
            for word in answer.text.decode("ascii", "replace").upper().split()[1:])

    def start_tls(self, host: str, context: ssl.SSLContext) -> None:
        """RFC 3501 §6.2.1; what the server has said before it is forgotten. Raises Refused, OSError."""
        self.run(b"STARTTLS")
        assert isinstance(self.way, socket.socket)
        self.way = context.wrap_socket(self.way, server_hostname=host)
        self._reading = reading(self.way, self._pace)
        self.capabilities = frozenset()

    def log_in(self, user: str, password: Secret, admin: str = "") -> None:
        """As the user; with `admin` by that one's password, for the user (RFC 4616 §2). Raises Refused."""
        self.capability()
        if "AUTH=PLAIN" in self.capabilities:
            tag, answer = self.send(b"AUTHENTICATE PLAIN"), self._answer()
            while answer.tag == b"*":
                answer = self._answer()
            if answer.tag != b"+":
                raise _refusal(answer)
            names = "\0".join((user if admin else "", admin or user, "")).encode()
            self._write(base64.b64encode(names + password.reveal()))
            for _ in self.answers(tag):
                pass
        elif admin:
            raise Refused("the server has no AUTHENTICATE PLAIN, which an administrator needs")
        else:
            self.run(b"LOGIN " + quoted(user.encode()) + b" " + quoted(password.reveal()))
        self.capability()


def tls_context(ca: Path | None, *, verify: bool) -> ssl.SSLContext:
    """What a certificate is checked against: the system's authorities, or those in a file. Raises OSError."""
    context = clienttls.context(ca)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@frozen
class Server:
    """Where a server is, and how to log in: `tls` is a name of PORTS; `admin` logs in for each user."""

    host: str
    port: int | None
    tls: str
    context: ssl.SSLContext
    admin: str = ""

    def logged_in(self, user: str, password: Secret, time: UserTime) -> Connection:
        """A connection as the user, for so long. Raises Gone, Refused, Unreadable, OSError."""
        way = socket.create_connection((self.host, self.port or PORTS[self.tls]), min(TIMEOUT_SECONDS, time.left()))
        try:
            if self.tls == "tls":
                way = self.context.wrap_socket(way, server_hostname=self.host)
            made = Connection(way, time).greeted()
        except BaseException:
            way.close()
            raise
        try:
            if self.tls == "starttls":
                made.start_tls(self.host, self.context)
            made.log_in(user, password, self.admin)
            return made
        except BaseException:
            made.drop()
            raise


def tunnelled(command: Sequence[str], time: UserTime) -> Connection:
    """A connection, for so long, to a program that speaks IMAP on its standard input and output, as the user already
    (PREAUTH).
    It is root where root runs this: it reads mail of others, or has keys of root's to log in with.

    Raises Gone, Unreadable, OSError.
    """
    user = program_user()
    time.left()
    made = Connection(subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, group=user), time)
    try:
        return made.greeted()
    except BaseException:
        made.drop()
        raise


def _refusal(answer: Answer) -> Exception:
    """What NO or BAD means: of a server that has had too much of us for now, that another connection may do better."""
    return (Gone if _TOO_MUCH.match(answer.text) else Refused)(shown(answer))


def shown(answer: Answer) -> str:
    """What the server says, for people."""
    text = answer.text.decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])


def quoted(octets: bytes) -> bytes:
    """RFC 3501 §9 quoted. Raises Refused for what needs a literal: no mailbox or password should."""
    if re.search(rb"[\x00\r\n]", octets):
        raise Refused("a name or password has octets that IMAP cannot have in one line")
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", octets) + b'"'


def octets_of(value: object) -> bytes:
    """A string, however it came; an atom too."""
    if isinstance(value, Literal):
        return value.octets()
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return value if isinstance(value, bytes) else b""
