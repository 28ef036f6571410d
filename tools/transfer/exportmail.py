"""Mailboxes of the store as Maildirs or mbox files. Both have lines the way Unix does, LF for CRLF, unless CRLF is
asked for: then every octet of a message is as it is here.

An export that was cut off is taken up again: a Maildir has a file for each message that is done, by its UID; an mbox
file has the name that it is to have when it is whole.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from attrs import define, field

from imap.wire import utf7
from mboxlist.entry import MailboxEntry
from mboxlist.privatefiles import Folder
from store.errors import StoreError
from store.mailboxes import subscribing
from store.message import envelopes
from store.partition.messagefiles import sync_file_system
from store.store import Store
from store.tables.counters import counters_of
from store.tables.state import Mailbox
from store.values import Flag, Flags, InternalDate
from tools.transfer.maildir import FORWARDED, INFO, KEYWORDS, LETTERS
from tools.transfer.mbox import SUFFIX, own_fields, quoted, separator
from tools.transfer.sourcevalues import READ_OCTETS, Warn

MAILDIR, MBOX = "maildir", "mbox"
FORMATS = (MAILDIR, MBOX)
PART = ".part"              # ends the name of an mbox file that is not whole
HOST = "onecopy"            # in the place of a host in names of files, so that they are the same each time
ODD_LINES = "it has CRs or LFs of its own, which nobody can tell from line ends there (--crlf keeps them)"

_NOT_ALONE = re.compile(rb"(?<!\r)\n|\r(?!\n)")


@define
class Exported:
    """What has become of a mailbox; `written` of its messages were written this time, the others before."""

    mailbox: str
    path: str
    messages: int = 0
    written: int = 0
    octets: int = 0
    failed: int = 0


@define(eq=False)
class MailExport:
    """Writes mailboxes to a folder. `warn` takes a line about a message that cannot be written, or not octet for octet;
    `progress` the mailbox, and how many of its messages are done, out of how many."""

    store: Store
    folder: Path
    warn: Warn
    form: str = MAILDIR
    layout: str = "maildir++"
    crlf: bool = False
    uids: bool = False
    dry_run: bool = False
    progress: Callable[[str, int, int], None] = lambda mailbox, done, total: None
    _top: Folder | None = field(default=None, init=False)

    @property
    def top(self) -> Folder:
        """The folder, open. Others may write to what is around it, or in it: nothing outside of it is written to."""
        if self._top is None:
            self._top = Folder.at(self.folder, make=True)
        return self._top

    def mailboxes(self, entries: Iterable[MailboxEntry], user: str | None = None) -> Iterator[Exported]:
        """Mailboxes, one after the other, and then the subscriptions of the user. What is wrong with one mailbox stops
        no other. Raises OSError."""
        if not self.dry_run:
            assert self.top
        for entry in entries:
            try:
                yield self.mailbox(entry)
            except StoreError as error:
                self.warn(f"{entry.name.path}: {error}")
        if user:
            self.subscriptions(user)

    def mailbox(self, entry: MailboxEntry) -> Exported:
        """One mailbox. Raises StoreError, OSError."""
        view = self.store.open_mailbox(entry)
        path = self._maildir(entry) if self.form == MAILDIR else self._file(entry)
        left = Exported(entry.name.path, str(path), len(view.rows))
        if self.dry_run:
            left.octets = counters_of(view.rows).octets
        elif self.form == MAILDIR:
            _MaildirExport(self, view, path, left).write()
        else:
            _MboxExport(self, view, path, left).write()
        return left

    def subscriptions(self, user: str) -> None:
        """Those of a user, as Dovecot has them beside the mailboxes. Raises OSError."""
        if self.dry_run:
            return
        separated = self.form == MAILDIR and self.layout == "maildir++"
        names = [utf7.encode(name.replace("/", ".") if separated else name)
                 for name in subscribing.subscriptions(self.store, user)]
        name = "subscriptions" if self.form == MAILDIR else ".subscriptions"
        self.top.replace(name, b"".join(each + b"\n" for each in names))

    def _maildir(self, entry: MailboxEntry) -> Path:
        levels = [os.fsdecode(utf7.encode(level)) for level in entry.name.path.split("/")]
        if entry.name.is_inbox():
            return self.folder
        if self.layout == "fs":
            return self.folder.joinpath(*levels)
        if any("." in level for level in levels):       # would be another level when it is read
            self.warn(f"{entry.name.path}: . separates levels there, so it becomes _ (--layout fs keeps it)")
            levels = [level.replace(".", "_") for level in levels]
        return self.folder / ("." + ".".join(levels))

    def _file(self, entry: MailboxEntry) -> Path:
        *levels, last = (os.fsdecode(utf7.encode(level)) for level in entry.name.path.split("/"))
        return self.folder.joinpath(*levels, last + SUFFIX)

    def lines(self, octets: bytes) -> bytes:
        return octets if self.crlf else octets.replace(b"\r\n", b"\n")

    def octets(self, view: Mailbox, row: Any) -> Iterator[bytes]:
        """A message of the store, in pieces that do not end between CR and LF. Raises StoreError."""
        with self.store.open_message(view.entry, row) as file:
            at, held = 0, b""
            while data := file.read(at, min(READ_OCTETS, file.size - at)) if at < file.size else b"":
                at += len(data)
                data, held = held + data, b""
                if data.endswith(b"\r"):
                    data, held = data[:-1], b"\r"
                yield data
            if held:
                yield held


@define(eq=False)
class _Export:
    """One mailbox as files."""

    job: MailExport
    view: Mailbox
    path: Path
    left: Exported

    @property
    def name(self) -> str:
        """The path below the folder of the export; "." for that itself."""
        return os.fspath(self.path.relative_to(self.job.folder))

    def each(self, work: Callable[[Any], None]) -> None:
        """Do this to every record; what is wrong with one message stops no other."""
        for done, row in enumerate(self.view.rows, 1):
            try:
                work(row)
            except StoreError as error:
                self.left.failed += 1
                self.warn(row, str(error))
            self.job.progress(self.left.mailbox, done, len(self.view.rows))

    def warn(self, row: Any, what: str) -> None:
        self.job.warn(f"{self.left.mailbox}: UID {int(row['uid'])}: {what}")

    def changes_lines(self, octets: bytes) -> bool:
        """Whether a reader cannot tell what these octets were."""
        return not self.job.crlf and _NOT_ALONE.search(octets) is not None


@define(eq=False)
class _MaildirExport(_Export):
    """As a Maildir."""

    letters: dict[str, str] = field(init=False)         # of keywords

    def __attrs_post_init__(self) -> None:
        self.letters = {word: chr(ord("a") + at) for at, word in enumerate(self.view.state.keywords[:KEYWORDS])}

    def write(self) -> None:
        name = self.name
        with self.job.top.make(name) if name != "." else self.job.top.again() as folder:
            self._write(folder)

    def _write(self, folder: Folder) -> None:
        for part in ("cur", "new", "tmp"):
            folder.make(part).close()
        if self.path != self.job.folder and self.job.layout != "fs":
            folder.replace("maildirfolder", b"")
        with folder.folder("cur") as cur:
            there = {name.partition(INFO)[0]: name for name in cur.names()}
            known = {base.split(",")[0]: base for base, name in there.items() if _is_whole(cur, base, name)}
        names: list[tuple[int, str]] = []

        def export(row: Any) -> None:
            stem = f"{max(int(row['received']), 0)}.V{self.view.state.uidvalidity}U{int(row['uid'])}.{HOST}"
            base = known.get(stem) or self._message(folder, row, stem)
            wanted = base + INFO + self._flags(row)
            if there.get(base, wanted) != wanted:
                folder.rename(f"cur/{there[base]}", f"cur/{wanted}")
            names.append((int(row["uid"]), base))

        self.each(export)
        self._lists(folder, names)
        sync_file_system(folder.handle)

    def _message(self, folder: Folder, row: Any, stem: str) -> str:
        """Write one; the name of its file without flags. Raises StoreError, OSError."""
        tmp, size, odd = f"tmp/{stem}", 0, False
        with folder.open(tmp, "wb") as file:
            for data in self.job.octets(self.view, row):
                odd = odd or self.changes_lines(data)
                size += file.write(self.job.lines(data))
            file.flush()
            os.utime(file.fileno(), (int(row["received"]),) * 2)
        if odd:
            self.warn(row, ODD_LINES)
        base = f"{stem},S={size},W={int(row['size'])}"
        folder.rename(tmp, f"cur/{base}{INFO}{self._flags(row)}")
        self.left.written += 1
        self.left.octets += size
        return base

    def _flags(self, row: Any) -> str:
        letters = {letter for letter, flag in LETTERS.items() if int(row["flags"]) & flag}
        words = self.view.keyword_names(int(row["keywords"]))
        letters |= {self.letters[word] for word in words if word in self.letters}
        if FORWARDED in words:
            letters.add("P")            # for all others; Dovecot knows no P
        return "".join(sorted(letters))

    def _lists(self, folder: Folder, names: Sequence[tuple[int, str]]) -> None:
        """Dovecot's list of UIDs, with UIDVALIDITY, and its names of keywords. Raises OSError."""
        state = self.view.state
        own = self.job.store.uidls(self.view.entry)
        lines = [b"3 V%d N%d" % (state.uidvalidity, state.uidnext)]
        for uid, base in names:
            lines.append(b"%d%b :%b" % (uid, b" P" + own[uid] if uid in own else b"", base.encode()))
        folder.replace("dovecot-uidlist", b"\n".join(lines) + b"\n")
        words = sorted((letter, word) for word, letter in self.letters.items())
        if words:
            folder.replace("dovecot-keywords", b"".join(
                b"%d %b\n" % (ord(letter) - ord("a"), word.encode()) for letter, word in words))
        if len(self.view.state.keywords) > KEYWORDS:
            self.job.warn(f"{self.left.mailbox}: a Maildir has {KEYWORDS} keywords at most; others are left out")


class _MboxExport(_Export):
    """As an mbox file, quoted as mboxrd."""

    def write(self) -> None:
        above, _, name = self.name.rpartition("/")
        with self.job.top.make(above) if above else self.job.top.again() as folder:
            self._write(folder, name)

    def _write(self, folder: Folder, name: str) -> None:
        state, mark, part = self.view.state, name + ".state", name + PART
        whole = b"%d %d\n" % (state.uidvalidity, state.highestmodseq)
        if name in folder.names() and _read(folder, mark) == whole:     # nothing has changed since it was written
            return
        with folder.open(part, "wb") as file:
            self.each(partial(self._append, file))
            self.left.octets = file.tell()
            file.flush()
            os.fsync(file.fileno())
        folder.remove(mark)
        folder.rename(part, name)
        folder.sync()
        if not self.left.failed:
            folder.replace(mark, whole)

    def _append(self, file: IO[bytes], row: Any) -> None:
        at = file.tell()
        try:
            self._message(file, row)
        except StoreError:
            file.seek(at)
            file.truncate()
            raise
        self.left.written += 1

    def _message(self, file: IO[bytes], row: Any) -> None:
        state, job = self.view.state, self.job
        flags = Flags(Flag(int(row["flags"])), self.view.keyword_names(int(row["keywords"])))
        base = b"%d %010d %b" % (state.uidvalidity, state.uidnext - 1, " ".join(state.keywords).encode())
        line_end = b"\r\n" if job.crlf else b"\n"
        own = own_fields(flags, int(row["uid"]) if job.uids else 0,
                         base.rstrip() if not file.tell() and job.uids else b"")
        received = InternalDate(int(row["received"]), int(row["zone"]))
        file.write((separator(self._sender(row), received) + own).replace(b"\n", line_end))
        begins, odd = True, False
        for line in _lines(job.octets(self.view, row)):
            odd = odd or self.changes_lines(line)
            file.write(quoted(job.lines(line)) if begins else job.lines(line))
            begins = line.endswith(b"\n")
        file.write(line_end if begins else line_end * 2)
        if odd:
            self.warn(row, ODD_LINES)

    def _sender(self, row: Any) -> bytes:
        """Of the trace header, else of the From field."""
        with self.job.store.open_message(self.view.entry, row) as file:
            start = file.read(0, min(file.size, 1024))
        found = re.match(rb"Return-Path:\s*<([^<>\r\n]*)>", start, re.IGNORECASE)
        if found is not None:
            return found[1]
        cached, = self.job.store.cached(self.view.entry, row.reshape(1))
        people = envelopes.people(envelopes.split(cached.envelope)[envelopes.FROM])
        name, host = people[0][2:] if people else (None, None)
        return name + b"@" + host if name and host else b""


def _lines(octets: Iterator[bytes]) -> Iterator[bytes]:
    """Lines with their ends; one that is very long comes in parts."""
    held = b""
    for some in octets:
        *lines, held = (held + some).split(b"\n")
        yield from (line + b"\n" for line in lines)
        if len(held) > READ_OCTETS:
            yield held
            held = b""
    if held:
        yield held


def _is_whole(cur: Folder, base: str, name: str) -> bool:
    """Whether the file is as long as its name says: a crash of the machine may leave less."""
    found = re.search(",S=([0-9]+)", base)
    return found is not None and cur.status(name).st_size == int(found[1])


def _read(folder: Folder, name: str) -> bytes:
    try:
        return folder.read(name)
    except OSError:
        return b""
