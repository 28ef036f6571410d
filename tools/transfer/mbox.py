r"""mbox files: all messages of a mailbox in one file, each after a line that begins with "From " (RFC 4155).

Of the ways to keep lines of a message apart from those: mboxrd puts a > before every line that is "From " after any
number of >; mboxo only before "From " itself; mboxcl and mboxcl2 give each message a Content-Length, and mboxcl2
changes no line. Flags, keywords and UIDs are in header fields of their own (Status, X-Status, X-Keywords, X-UID,
X-IMAP, X-IMAPbase), which are no part of the message: mail programs hide them, and so they do not come along.
"""

import os
import re
import time
from calendar import timegm
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from attrs import define, evolve, field, frozen

from imap.wire.grammar import SyntaxProblem
from store.values import Flag, Flags, InternalDate
from tools.transfer import subscriptionfiles as subscriptions
from tools.transfer.mailofothers import MailTree, reading
from tools.transfer.sourcevalues import READ_OCTETS, Box, Content, Mail, Source, Unreadable, Warn, crlf

QUOTINGS = ("auto", "mboxrd", "mboxo", "mboxcl", "mboxcl2")
SUFFIX = ".mbox"
HEADER_OCTETS = 4 << 20            # octets of a header that are looked at for the fields
LINE_OCTETS = 64 << 10             # octets of a line that are looked at

OWN = frozenset((b"status", b"x-status", b"x-keywords", b"x-uid", b"x-imap", b"x-imapbase", b"content-length"))
_DATE = re.compile(rb"(?:[A-Z][a-z]{2},? +)?([A-Z][a-z]{2}) +([0-9]{1,2}) +([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?"
                   rb"(?: +[A-Z]{1,5}| +([+-][0-9]{4}))? +([0-9]{4})(?: +([+-][0-9]{4}))?")
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_FIELDS = re.compile(rb"(?=.)([^\n]*+)(?:\n[ \t][^\n]*+)*\n?", re.DOTALL)     # a line and those that continue it
_QUOTED = re.compile(rb">+From ")
_STATUS = {ord("R"): Flag.SEEN}
_X_STATUS = {ord("A"): Flag.ANSWERED, ord("F"): Flag.FLAGGED, ord("T"): Flag.DRAFT, ord("D"): Flag.DELETED}


@frozen
class Span:
    """A message in the file: where its header begins, its body, and its end. `claimed` is the Content-Length that it
    was found by, or -1; `cut` octets of it are missing."""

    start: int
    body: int
    end: int
    claimed: int = -1
    cut: int = 0


@frozen
class _Header:
    """What a header says about flags and the like."""

    flags: Flags = Flags()
    uid: int = 0
    length: int = -1
    base: tuple[int, int] = (0, 0)      # UIDVALIDITY and the last UID
    pseudo: bool = False                # not a message: there for these fields


def from_date(line: bytes) -> InternalDate | None:
    """The date in a line that separates messages; None when it is none. Without a zone it is UTC."""
    found = max(_DATE.finditer(line), key=re.Match.start, default=None)     # an address may look like anything
    if found is None or found[1] not in _MONTHS:
        return None
    zone = found[6] or found[8] or b"+0000"
    minutes = (int(zone[1:3]) * 60 + int(zone[3:])) * (-1 if zone[:1] == b"-" else 1)
    try:
        local = timegm((int(found[7]), _MONTHS.index(found[1]) + 1, int(found[2]), int(found[3]), int(found[4]),
                        int(found[5] or 0)))
    except ValueError:
        return None
    return InternalDate(local - minutes * 60, minutes) if abs(minutes) < 24 * 60 else None


def is_separator(line: bytes) -> bool:
    """Whether a line after an empty one begins a message."""
    return line.startswith(b"From ") and from_date(line) is not None


@define(eq=False)
class MboxFiles(Source):
    """A file, or a folder of them (`.mbox` at the end of a name is left out), as mailboxes of a user."""

    path: Path
    mailbox: str = ""           # that the file is to go to, or those of a folder below it
    quoting: str = "auto"
    warn: Warn = lambda line: None
    _spans: list[tuple[Span, Mail]] = field(factory=list, init=False)
    _found: str = field(default="", init=False)         # the quoting of the file that was opened last

    _tree: MailTree | None = field(default=None, init=False)
    _is_file: bool = field(default=False, init=False)

    @property
    def tree(self) -> MailTree:
        """The folder, or that of the file, open. Raises Unreadable."""
        if self._tree is None:
            with reading():
                self._is_file = self.path.is_file()
            self._tree = MailTree.beside(self.path) if self._is_file else MailTree.at(self.path)
        return self._tree

    def close(self) -> None:
        if self._tree is not None:
            self._tree.close()

    def boxes(self) -> Iterator[Box]:
        if self.tree and self._is_file:
            yield Box(self.mailbox or "INBOX", self.path)
        else:
            yield from self._below(())

    def _below(self, above: tuple[str, ...]) -> Iterator[Box]:
        for name, _ in self.tree.files("/".join(above), self.warn, folders=True):
            levels = (*above, name)
            if name != "subscriptions" and self._looks_right("/".join(levels)):
                names = [_name(level.removesuffix(SUFFIX)) for level in levels]
                yield Box("/".join([self.mailbox, *names] if self.mailbox else names), self.path.joinpath(*levels))
        for name in self.tree.folders("/".join(above)):
            if not name.startswith("."):
                yield from self._below((*above, name))

    def _looks_right(self, name: str) -> bool:
        """Whether it is a file of messages, perhaps none."""
        try:
            with self.tree.open(name) as file:
                return not os.fstat(file.fileno()).st_size or file.readline(LINE_OCTETS).startswith(b"From ")
        except OSError:
            return True         # `opened` says what is wrong with it

    def _open(self, box: Box) -> BinaryIO:
        return self.tree.open(self.path.name if self._is_file else os.fspath(box.path.relative_to(self.path)))

    def opened(self, box: Box) -> Box:
        path = box.path
        try:
            with self._open(box) as file:
                first = next(scan(file), None)
                header = _header(file, first) if first else _Header()
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from error
        validity, last = header.base
        return evolve(box, uidvalidity=validity, uidnext=last + 1 if validity else 0)

    def mails(self, box: Box, warn: Warn) -> Sequence[Mail]:
        path = box.path
        self._spans.clear()
        try:
            with self._open(box) as file:
                self._found = self.quoting if self.quoting != "auto" else _quoting(file)
                lengths = self._found in ("mboxcl", "mboxcl2")
                for number, span in enumerate(scan(file, lengths=lengths), 1):
                    self._look(path, file, span, number, warn)
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from error
        uids = [mail.uid for _, mail in self._spans]
        if not box.uidvalidity or any(after <= uid for uid, after in zip([0, *uids], uids, strict=False)):
            self._spans = [(span, evolve(mail, uid=0)) for span, mail in self._spans]
        return [mail for _, mail in self._spans]

    def _look(self, path: Path, file: BinaryIO, span: Span, number: int, warn: Warn) -> None:
        header = _header(file, span)
        if header.pseudo and number == 1:
            return
        where = f"{path.name}: message {number}"
        if span.cut:
            warn(f"{where}: cut off, {span.cut} octets are missing; what is there is taken")
        date = from_date(_line_before(file, span)) or InternalDate(int(time.time()))
        self._spans.append((span, Mail(where, date, header.flags, uid=header.uid, key=span)))

    def read(self, box: Box, mails: Sequence[Mail], warn: Warn) -> Iterator[Content]:
        with self._open(box) as file:
            for mail in mails:
                assert isinstance(mail.key, Span)
                yield mail, content(file, mail.key, self._found)

    def subscriptions(self) -> Sequence[str]:
        for name in (".subscriptions", "subscriptions") if self.tree and not self._is_file else ():
            try:
                return subscriptions.parse(self.tree.read(name), "/")
            except OSError:
                continue
        return []


def _name(level: str) -> str:
    """A level of a mailbox name; what cannot be one is what it is, and refused later."""
    try:
        return subscriptions.name_of(level)
    except (SyntaxProblem, UnicodeError):
        return level


def scan(file: BinaryIO, *, lengths: bool = False) -> Iterator[Span]:
    """The messages of a file; with `lengths` one ends where its Content-Length says, if the next one, or the end of the
    file, is there. Raises Unreadable for a file that does not begin with a message."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    line = _line(file)
    while line in (b"\n", b"\r\n"):
        line = _line(file)
    if not line:
        return
    if not line.startswith(b"From "):
        raise Unreadable("not an mbox file: it does not begin with a line From")
    start = file.tell()
    while line:
        file.seek(start)                # whoever gets a message may read elsewhere before the next one is looked for
        body, length = _end_of_header(file)
        if lengths and length >= 0:
            following, end = _at_length(file, body, length, size)
            if following is not None:
                line, span, start = following, Span(start, body, end, length), file.tell()
                yield span
                continue
            if body + length > size:
                yield Span(start, body, size, length, body + length - size)
                return
        file.seek(body)
        line, end = _next(file, body)
        span, start = Span(start, body, end), file.tell()
        yield span


def _line(file: BinaryIO) -> bytes:
    """The next line, or as much as is looked at; the whole of it is read."""
    line = part = file.readline(LINE_OCTETS)
    while part and not part.endswith(b"\n"):
        part = file.readline(LINE_OCTETS)
    return line


def _end_of_header(file: BinaryIO) -> tuple[int, int]:
    """Where the body begins, and its Content-Length or -1."""
    length = -1
    while True:
        at = file.tell()
        line = _line(file)
        if line.lower().startswith(b"content-length:") and length < 0:
            text = line[15:].strip()
            length = int(text) if text.isdigit() and len(text) < 19 else -1
        if not line or line in (b"\n", b"\r\n"):
            return file.tell(), length
        if is_separator(line):
            return at, -1           # a header that nothing follows


def _at_length(file: BinaryIO, body: int, length: int, size: int) -> tuple[bytes | None, int]:
    """The line with which the next message begins after so many octets (b"": none, the file ends), and where this one
    ends; None when there is something else."""
    if body + length > size:
        return None, 0
    file.seek(body + length)
    line = _line(file)
    while line in (b"\n", b"\r\n"):
        line = _line(file)
    return (line, body + length) if not line or is_separator(line) else (None, 0)


def _next(file: BinaryIO, body: int) -> tuple[bytes, int]:
    """The line with which the next message begins, and where this one ends: before the empty line that goes with it."""
    empty_at, empty = body, True
    while True:
        at = file.tell()
        line = file.readline(LINE_OCTETS)
        if not line:
            return b"", empty_at if empty and at > body else at
        if empty and is_separator(line):
            while not line.endswith(b"\n") and (more := file.readline(LINE_OCTETS)):
                line += more[-1:]
            return line, empty_at
        empty_at, empty = at, line in (b"\n", b"\r\n")
        while line and not line.endswith(b"\n"):
            line = file.readline(LINE_OCTETS)


def _line_before(file: BinaryIO, span: Span) -> bytes:
    file.seek(max(span.start - LINE_OCTETS, 0))
    return file.read(span.start - max(span.start - LINE_OCTETS, 0)).rstrip(b"\r\n").rpartition(b"\n")[2]


def fields(header: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name, in small letters, and octets of each field of a header as it stands in the file; b"" where a line is none.
    """
    for found in _FIELDS.finditer(header):
        before, colon, _ = found[1].partition(b":")
        yield before.strip().lower() if colon else b"", found[0]


def _header(file: BinaryIO, span: Span) -> _Header:
    file.seek(span.start)
    system, keywords, uid, base, pseudo = Flag(0), list[str](), 0, (0, 0), False
    for name, octets in fields(file.read(min(span.body - span.start, HEADER_OCTETS))):
        if name not in OWN:
            continue
        value = octets.partition(b":")[2].strip()
        words = value.split()
        if name in (b"status", b"x-status"):
            for letter in value:
                system |= (_STATUS if name == b"status" else _X_STATUS).get(letter, Flag(0))
        elif name == b"x-keywords":
            keywords += [text for text in value.decode("ascii", "replace").split() if is_keyword(text)]
        elif name == b"x-uid" and value.isdigit() and int(value) < 1 << 32:
            uid = int(value)
        elif name in (b"x-imap", b"x-imapbase") and len(words) > 1 and words[0].isdigit() and words[1].isdigit():
            base, pseudo = (int(words[0]), int(words[1])), name == b"x-imap"
    base = base if max(base) < 1 << 32 else (0, 0)
    return _Header(Flags(system, tuple(dict.fromkeys(keywords))), uid, -1, base, pseudo)


_KEYWORD = re.compile(r'[^\x00-\x20\x7f-\U0010ffff(){%*"\\\]]{1,200}')


def is_keyword(text: str) -> bool:
    """Whether it can be a keyword (RFC 3501 §9 atom)."""
    return _KEYWORD.fullmatch(text) is not None


def _quoting(file: BinaryIO) -> str:
    """Which quoting a file seems to have: that every message says how long it is, and is, cannot be by chance."""
    seen = False
    for span in scan(file, lengths=True):
        if span.claimed < 0:
            return "mboxrd"
        seen = True
    return "mboxcl2" if seen else "mboxrd"


def content(file: BinaryIO, span: Span, quoting: str) -> Iterator[bytes]:
    """A message's octets, with CRLF, as they were before it came into the file."""
    file.seek(span.start)
    header = file.read(span.body - span.start)
    kept = b"".join([octets for name, octets in fields(header) if name not in OWN])
    yield crlf(kept)
    before = kept[-1:]
    if quoting == "mboxcl2":
        at = span.body
        while at < span.end:
            file.seek(at)
            data = file.read(min(READ_OCTETS, span.end - at))
            if not data:
                return
            at += len(data)
            yield crlf(data, before)
            before = data[-1:]
        return
    yield from _unquoted(file, span, quoting)


def _unquoted(file: BinaryIO, span: Span, quoting: str) -> Iterator[bytes]:
    at, some, size, begins, before = span.body, list[bytes](), 0, True, b""
    while at < span.end:
        file.seek(at)
        line = file.readline(min(LINE_OCTETS, span.end - at))
        if not line:
            break
        at += len(line)
        if begins and line.startswith(b">") and _QUOTED.match(line) and (
                quoting == "mboxrd" or line.startswith(b">From ")):
            line = line[1:]
        begins = line.endswith(b"\n")
        some.append(line)
        size += len(line)
        if size > READ_OCTETS:
            yield crlf(b"".join(some), before)
            some, size, before = [], 0, line[-1:]
    yield crlf(b"".join(some), before)


# Writing

def quoted(line: bytes) -> bytes:
    """A line of a body as mboxrd has it."""
    return b">" + line if line.startswith((b"From ", b">")) and line.lstrip(b">").startswith(b"From ") else line


def separator(sender: bytes, received: InternalDate) -> bytes:
    """The line before a message: RFC 4155 Appendix A, the date in UTC."""
    date = time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(received.seconds)).encode("ascii")
    return b"From %b %b\n" % (re.sub(rb"[^!-~]", b"", sender) or b"MAILER-DAEMON", date)


def own_fields(flags: Flags, uid: int = 0, base: bytes = b"") -> bytes:
    """The header fields that say what flags a message has; `base` is the X-IMAPbase of the first message."""
    system = flags.system
    found = [b"X-IMAPbase: " + base] if base else []
    if uid:
        found.append(b"X-UID: %d" % uid)
    found.append(b"Status: " + (b"RO" if system & Flag.SEEN else b"O"))
    if letters := bytes(letter for letter, flag in _X_STATUS.items() if system & flag):
        found.append(b"X-Status: " + letters)
    if flags.keywords:
        found.append(b"X-Keywords: " + " ".join(flags.keywords).encode("ascii", "replace"))
    return b"\n".join(found) + b"\n"
