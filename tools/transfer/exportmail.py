"""Mailboxes of the store as Maildirs or mbox files. Both have lines the way Unix does, LF for CRLF, unless CRLF is
asked for: then every octet of a message is as it is here.

An export that was cut off is taken up again: a Maildir has a file for each message that is done, by its UID; an mbox
file has the name that it is to have when it is whole.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from attrs import define

from imap.wire import utf7
from mboxlist.engine.disk import sync_folder
from mboxlist.entry import MailboxEntry
from store.errors import StoreError
from store.mailboxes import subscribing
from store.message import envelopes
from store.partition.messagefiles import sync_file_system
from store.store import Store
from store.tables.state import Mailbox
from store.values import Flag, Flags, InternalDate
from tools.transfer.maildir import FORWARDED, INFO, KEYWORDS, LETTERS
from tools.transfer.mbox import SUFFIX, own_fields, quoted, separator
from tools.transfer.sourcevalues import READ_OCTETS, Told

MAILDIR, MBOX = "maildir", "mbox"
FORMATS = (MAILDIR, MBOX)
PART = ".part"              # ends the name of an mbox file that is not whole
HOST = "onecopy"            # in the place of a host in names of files, so that they are the same each time

_NOT_ALONE = re.compile(rb"(?<!\r)\n|\r(?!\n)")


@define
class Left:
    """What has become of a mailbox; `written` of its messages were written this time, the others before."""

    mailbox: str
    path: str
    messages: int = 0
    written: int = 0
    octets: int = 0
    failed: int = 0


@define(eq=False)
class Leaving:
    """Writes mailboxes to a folder. `told` takes a line about a message that cannot be written, or not octet for octet;
    `progress` the mailbox, and how many of its messages are done, out of how many."""

    store: Store
    folder: Path
    told: Told
    form: str = MAILDIR
    layout: str = "maildir++"
    crlf: bool = False
    uids: bool = False
    dry_run: bool = False
    progress: Callable[[str, int, int], None] = lambda mailbox, done, total: None

    def mailboxes(self, entries: Iterable[MailboxEntry], user: str | None = None) -> Iterator[Left]:
        """Mailboxes, one after the other, and then the subscriptions of the user. What is wrong with one mailbox stops
        no other. Raises OSError."""
        if not self.dry_run:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for entry in entries:
            try:
                yield self.mailbox(entry)
            except StoreError as error:
                self.told(f"{entry.name.path}: {error}")
        if user:
            self.subscriptions(user)

    def mailbox(self, entry: MailboxEntry) -> Left:
        """One mailbox. Raises StoreError, OSError."""
        view = self.store.open_mailbox(entry)
        path = self._maildir(entry) if self.form == MAILDIR else self._file(entry)
        left = Left(entry.name.path, str(path), len(view.rows))
        if self.dry_run:
            left.octets = int(view.rows["size"].sum())
        elif self.form == MAILDIR:
            _Maildir(self, view, path, left).write()
        else:
            _Mbox(self, view, path, left).write()
        return left

    def subscriptions(self, user: str) -> None:
        """Those of a user, as Dovecot has them beside the mailboxes. Raises OSError."""
        if self.dry_run:
            return
        separated = self.form == MAILDIR and self.layout == "maildir++"
        names = [utf7.encode(name.replace("/", ".") if separated else name)
                 for name in subscribing.subscriptions(self.store, user)]
        name = "subscriptions" if self.form == MAILDIR else ".subscriptions"
        _write(self.folder / name, b"".join(each + b"\n" for each in names))

    def _maildir(self, entry: MailboxEntry) -> Path:
        levels = [os.fsdecode(utf7.encode(level)) for level in entry.name.path.split("/")]
        if entry.name.is_inbox():
            return self.folder
        if self.layout == "fs":
            return self.folder.joinpath(*levels)
        if any("." in level for level in levels):       # would be another level when it is read
            self.told(f"{entry.name.path}: . separates levels there, so it becomes _ (--layout fs keeps it)")
            levels = [level.replace(".", "_") for level in levels]
        return self.folder / ("." + ".".join(levels))

    def _file(self, entry: MailboxEntry) -> Path:
        *levels, last = (os.fsdecode(utf7.encode(level)) for level in entry.name.path.split("/"))
        return self.folder.joinpath(*levels, last + SUFFIX)

    def lines(self, octets: bytes) -> bytes:
        """As the files have lines."""
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


class _Maildir:
    """One mailbox as a Maildir."""

    def __init__(self, leaving: Leaving, view: Mailbox, folder: Path, left: Left) -> None:
        self.leaving, self.view, self.folder, self.left = leaving, view, folder, left
        self.words = view.state.keywords
        self.letters = {word: chr(ord("a") + at) for at, word in enumerate(self.words[:KEYWORDS])}

    def write(self) -> None:
        for part in ("cur", "new", "tmp"):
            (self.folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder != self.leaving.folder and self.leaving.layout != "fs":
            (self.folder / "maildirfolder").touch(mode=0o600)
        there = {name.partition(INFO)[0]: name for name in os.listdir(self.folder / "cur")}
        known = {base.split(",")[0]: base for base, name in there.items() if self._is_whole(base, name)}
        names: list[tuple[int, str]] = []
        for done, row in enumerate(self.view.rows, 1):
            stem = f"{max(int(row['received']), 0)}.V{self.view.state.uidvalidity}U{int(row['uid'])}.{HOST}"
            try:
                base = known.get(stem) or self._message(row, stem)
                wanted = base + INFO + self._flags(row)
                if there.get(base, wanted) != wanted:
                    os.rename(self.folder / "cur" / there[base], self.folder / "cur" / wanted)
                names.append((int(row["uid"]), base))
            except StoreError as error:
                self.left.failed += 1
                self.leaving.told(f"{self.left.mailbox}: UID {int(row['uid'])}: {error}")
            self.leaving.progress(self.left.mailbox, done, len(self.view.rows))
        self._lists(names)
        sync_file_system(self.folder)

    def _is_whole(self, base: str, name: str) -> bool:
        """Whether the file is as long as its name says: a crash of the machine may leave less."""
        found = re.search(",S=([0-9]+)", base)
        return found is not None and os.stat(self.folder / "cur" / name).st_size == int(found[1])

    def _message(self, row: Any, stem: str) -> str:
        """Write one; the name of its file without flags. Raises StoreError, OSError."""
        tmp, size, odd = self.folder / "tmp" / stem, 0, False
        with open(tmp, "wb", opener=_private) as file:
            for data in self.leaving.octets(self.view, row):
                odd = odd or not self.leaving.crlf and _NOT_ALONE.search(data) is not None
                size += file.write(self.leaving.lines(data))
        if odd:
            self.leaving.told(f"{self.left.mailbox}: UID {int(row['uid'])}: it has CRs or LFs of its own, which nobody "
                              f"can tell from line ends there (--crlf keeps them)")
        os.utime(tmp, (int(row["received"]),) * 2)
        base = f"{stem},S={size},W={int(row['size'])}"
        os.rename(tmp, self.folder / "cur" / (base + INFO + self._flags(row)))
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

    def _lists(self, names: Sequence[tuple[int, str]]) -> None:
        """Dovecot's list of UIDs, with UIDVALIDITY, and its names of keywords. Raises OSError."""
        state = self.view.state
        own = self.leaving.store.uidls(self.view.entry)
        lines = [b"3 V%d N%d" % (state.uidvalidity, state.uidnext)]
        for uid, base in names:
            lines.append(b"%d%b :%b" % (uid, b" P" + own[uid] if uid in own else b"", base.encode()))
        _write(self.folder / "dovecot-uidlist", b"\n".join(lines) + b"\n")
        words = sorted((letter, word) for word, letter in self.letters.items())
        if words:
            _write(self.folder / "dovecot-keywords", b"".join(
                b"%d %b\n" % (ord(letter) - ord("a"), word.encode()) for letter, word in words))
        if len(self.words) > KEYWORDS:
            self.leaving.told(f"{self.left.mailbox}: a Maildir has {KEYWORDS} keywords at most; others are left out")


class _Mbox:
    """One mailbox as an mbox file, quoted as mboxrd."""

    def __init__(self, leaving: Leaving, view: Mailbox, path: Path, left: Left) -> None:
        self.leaving, self.view, self.path, self.left = leaving, view, path, left

    def write(self) -> None:
        state = self.view.state
        mark = self.path.with_name(self.path.name + ".state")
        whole = b"%d %d\n" % (state.uidvalidity, state.highestmodseq)
        if self.path.exists() and _read(mark) == whole:         # nothing has changed since it was written
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self.path.with_name(self.path.name + PART)
        with open(part, "wb", opener=_private) as file:
            for done, row in enumerate(self.view.rows, 1):
                at = file.tell()
                try:
                    self._message(file, done - 1)
                    self.left.written += 1
                except StoreError as error:
                    file.seek(at)
                    file.truncate()
                    self.left.failed += 1
                    self.leaving.told(f"{self.left.mailbox}: UID {int(row['uid'])}: {error}")
                self.leaving.progress(self.left.mailbox, done, len(self.view.rows))
            self.left.octets = file.tell()
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            mark.unlink()
        os.rename(part, self.path)
        sync_folder(self.path.parent)
        if not self.left.failed:
            _write(mark, whole)

    def _message(self, file: IO[bytes], at: int) -> None:
        row: Any = self.view.rows[at]
        state, leaving = self.view.state, self.leaving
        flags = Flags(Flag(int(row["flags"])), self.view.keyword_names(int(row["keywords"])))
        base = b"%d %010d %b" % (state.uidvalidity, state.uidnext - 1, " ".join(state.keywords).encode())
        line_end = b"\r\n" if leaving.crlf else b"\n"
        own = own_fields(flags, int(row["uid"]) if leaving.uids else 0,
                         base.rstrip() if at == 0 and leaving.uids else b"")
        received = InternalDate(int(row["received"]), int(row["zone"]))
        file.write((separator(self._sender(at), received) + own).replace(b"\n", line_end))
        begins, odd = True, False
        for line in _lines(leaving.octets(self.view, row)):
            odd = odd or not leaving.crlf and _NOT_ALONE.search(line) is not None
            file.write(quoted(leaving.lines(line)) if begins else leaving.lines(line))
            begins = line.endswith(b"\n")
        file.write(line_end if begins else line_end * 2)
        if odd:
            leaving.told(f"{self.left.mailbox}: UID {int(row['uid'])}: it has CRs or LFs of its own, which nobody can "
                         f"tell from line ends there (--crlf keeps them)")

    def _sender(self, at: int) -> bytes:
        """Of the trace header, else of the From field."""
        with self.leaving.store.open_message(self.view.entry, self.view.rows[at]) as file:
            start = file.read(0, min(file.size, 1024))
        found = re.match(rb"Return-Path:\s*<([^<>\r\n]*)>", start, re.IGNORECASE)
        if found is not None:
            return found[1]
        cached, = self.leaving.store.cached(self.view.entry, self.view.rows[at:at + 1])
        people = envelopes.people(envelopes.split(cached.envelope)[envelopes.FROM])
        name, host = people[0][2:] if people else (None, None)
        return name + b"@" + host if name and host else b""


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Lines with their ends; one that is very long comes in pieces."""
    held = b""
    for piece in pieces:
        *lines, held = (held + piece).split(b"\n")
        yield from (line + b"\n" for line in lines)
        if len(held) > READ_OCTETS:
            yield held
            held = b""
    if held:
        yield held


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _write(path: Path, octets: bytes) -> None:
    part = path.with_name(path.name + PART)
    with open(part, "wb", opener=_private) as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, path)
