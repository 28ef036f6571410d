"""Maildirs: a folder for each mailbox, a file for each message, its flags at the end of the file's name.

Mailboxes lie in folders `.A.B` beside each other (Maildir++), or in folders within folders. Names of files end with
`:2,` and a letter for each flag; Dovecot gives keywords the letters a to z, by the file dovecot-keywords, and has UIDs
in dovecot-uidlist, Courier in courierimapuiddb. The time of a file is the internal date.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from attrs import define, evolve, field, frozen

from imap.wire.grammar import SyntaxProblem
from mboxlist import privatefiles
from store.tables.uidls import is_legal
from store.values import Flag, Flags, InternalDate
from tools.transfer import subscriptionfiles as subscriptions
from tools.transfer.mbox import is_keyword
from tools.transfer.sourcevalues import Box, Content, Mail, Source, Unreadable, Warn, with_crlf
from tools.transfer.subscriptionfiles import name_of

LAYOUTS = ("auto", "maildir++", "fs")
LETTERS = {"D": Flag.DRAFT, "F": Flag.FLAGGED, "R": Flag.ANSWERED, "S": Flag.SEEN, "T": Flag.DELETED}
FORWARDED = "$Forwarded"        # of the letter P
KEYWORDS = 26                   # that have a letter
INFO = ":2,"
NOT_MAILBOXES = frozenset(("cur", "new", "tmp"))
LISTS = ("dovecot-uidlist", "courierimapuiddb")

_WSIZE = re.compile(r",W=([0-9]{1,15})(?:,|$)")


@frozen
class Known:
    """What a list of UIDs says: UIDVALIDITY, the next UID, and UID, unique-id of POP3 and size by a file's name without
    its flags."""

    uidvalidity: int = 0
    uidnext: int = 0
    files: Mapping[str, tuple[int, bytes, int]] = field(factory=dict)


@define(eq=False)
class Maildirs(Source):
    """The Maildirs at and below a folder, as mailboxes of a user."""

    path: Path
    mailbox: str = ""           # that the folder itself is to go to, and those below it
    layout: str = "auto"
    warn: Warn = lambda line: None
    _known: Known = field(factory=Known, init=False)

    def boxes(self) -> Iterator[Box]:
        if not self.path.is_dir():
            raise Unreadable(f"{self.path}: there is no such folder")
        if (self.path / "cur").is_dir():
            yield Box(self.mailbox or "INBOX", self.path)
        found = self._flat() if self._is_flat() else self._nested()
        for levels, folder in found:
            try:
                parts = [name_of(level) for level in levels]
            except (SyntaxProblem, UnicodeError):
                self.warn(f"{folder}: its name is neither modified UTF-7 nor UTF-8")
                continue
            yield Box("/".join([*(self.mailbox.split("/") if self.mailbox else ()), *parts]), folder)

    def _is_flat(self) -> bool:
        if self.layout != "auto":
            return self.layout == "maildir++"
        return not any(True for _ in self._nested())

    def _flat(self) -> Iterator[tuple[list[str], Path]]:
        for folder in _folders(self.path):
            if folder.name.startswith(".") and folder.name.strip(".") and (folder / "cur").is_dir():
                yield folder.name[1:].split("."), folder

    def _nested(self) -> Iterator[tuple[list[str], Path]]:
        for place, folders, _ in os.walk(self.path):
            folders[:] = sorted(name for name in folders if name not in NOT_MAILBOXES and not name.startswith("."))
            if Path(place) != self.path and Path(place, "cur").is_dir():
                yield list(Path(place).relative_to(self.path).parts), Path(place)

    def opened(self, box: Box) -> Box:
        self._known = _known(box.path)
        return evolve(box, uidvalidity=self._known.uidvalidity, uidnext=self._known.uidnext)

    def mails(self, box: Box, warn: Warn) -> Sequence[Mail]:
        folder, keywords = box.path, _keywords(box.path)
        found: dict[str, Mail] = {}
        for part in ("cur", "new"):         # a file on its way from new to cur is seen at least once in this order
            for entry in _files(folder / part, warn):
                base = entry.name.partition(INFO)[0]
                mail = self._mail(entry, base, keywords, warn)
                if mail is not None:
                    found[base] = mail
        return sorted(found.values(), key=lambda mail: (mail.uid or 1 << 32, mail.received.seconds, mail.where))

    def _mail(self, entry: "os.DirEntry[str]", base: str, keywords: Mapping[str, str], warn: Warn) -> Mail | None:
        shown = os.fsencode(entry.path).decode("utf-8", "replace")
        try:
            if not entry.is_file():
                warn(f"{shown}: not a file")
                return None
            figures = entry.stat()
        except OSError as error:            # gone, or renamed for its flags: the next run sees it
            warn(f"{shown}: {error.strerror}")
            return None
        uid, uidl, size = self._known.files.get(base, (0, b"", -1))
        named = _WSIZE.search(base)
        flags, unknown = letters_to_flags(entry.name.partition(INFO)[2], keywords)
        if unknown:
            warn(f"{shown}: there is no flag for {', '.join(unknown)}; the message is taken without")
        date = InternalDate(int(figures.st_mtime))
        return Mail(shown, date, flags, int(named[1]) if named else size, uid, uidl, entry.path)

    def read(self, box: Box, mails: Sequence[Mail], warn: Warn) -> Iterator[Content]:
        for mail in mails:
            path = mail.key
            assert isinstance(path, str)
            try:
                file = _open(path)
            except OSError as error:
                warn(f"{mail.where}: {error.strerror}")
                continue
            with file:
                yield mail, with_crlf(file)

    def subscriptions(self) -> Sequence[str]:
        for name, prefix in (("subscriptions", ""), ("courierimapsubscribed", "INBOX.")):
            path = self.path / name
            if path.is_file():
                return subscriptions.read(path, "." if self._is_flat() else "/", prefix)
        return []


def _open(path: str) -> BinaryIO:
    """A message's file, also when its flags have changed meanwhile, or it has left `new`. Raises OSError."""
    try:
        return privatefiles.open_file(path, "rb")
    except FileNotFoundError:
        folder, name = os.path.split(path)
        base = name.partition(INFO)[0]
        for part in ("cur", "new"):
            place = os.path.join(os.path.dirname(folder), part)
            for other in os.listdir(place):
                if other.partition(INFO)[0] == base:
                    return privatefiles.open_file(os.path.join(place, other), "rb")
        raise


def _folders(path: Path) -> list[Path]:
    return sorted((entry for entry in path.iterdir() if entry.is_dir()), key=lambda entry: entry.name)


def _files(folder: Path, warn: Warn) -> "Iterable[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        warn(f"{folder}: {error.strerror}")
        return []


def letters_to_flags(letters: str, keywords: Mapping[str, str]) -> tuple[Flags, list[str]]:
    """The flags of the letters at the end of a file's name, and the letters that mean nothing."""
    system, words, unknown = Flag(0), list[str](), []
    for letter in letters.partition(",")[0]:
        if letter in LETTERS:
            system |= LETTERS[letter]
        elif letter == "P":
            words.append(FORWARDED)
        elif letter in keywords:
            words.append(keywords[letter])
        else:
            unknown.append(letter)
    return Flags(system, tuple(dict.fromkeys(words))), unknown


def _keywords(folder: Path) -> dict[str, str]:
    """The keywords of the letters, of the file dovecot-keywords."""
    found = {}
    try:
        lines = privatefiles.read(folder / "dovecot-keywords").decode("ascii", "replace").split("\n")
    except OSError:
        return {}
    for line in lines:
        number, _, word = line.partition(" ")
        if number.isdigit() and int(number) < KEYWORDS and is_keyword(word):
            found[chr(ord("a") + int(number))] = word
    return found


def _known(folder: Path) -> Known:
    """What the list of UIDs says, Dovecot's or Courier's."""
    for name in LISTS:
        try:
            lines = privatefiles.read(folder / name).split(b"\n")
        except OSError:
            continue
        head = lines[0].split()
        if head[:1] == [b"3"]:
            facts = {word[:1]: word[1:] for word in head[1:]}
            validity, following = facts.get(b"V", b""), facts.get(b"N", b"")
        elif head[:1] == [b"1"] and len(head) > 2:
            validity, following = head[1], head[2]
        else:
            continue
        if validity.isdigit() and following.isdigit() and 0 < int(validity) < 1 << 32 > int(following):
            return Known(int(validity), int(following), dict(_entries(lines[1:], head[0] == b"3")))
    return Known()


def _entries(lines: Iterable[bytes], third: bool) -> Iterator[tuple[str, tuple[int, bytes, int]]]:
    last = 0
    for line in lines:
        front, colon, name = line.partition(b" :" if third else b" ")
        words = front.split()
        if not colon or not words or not words[0].isdigit() or not last < int(words[0]) < 1 << 32:
            continue            # UIDs ascend: what does not is not believed
        last = int(words[0])
        facts = {word[:1]: word[1:] for word in words[1:]}
        size, uidl = facts.get(b"W", b""), facts.get(b"P", b"")
        yield os.fsdecode(name).partition(INFO)[0], (
            last, uidl if is_legal(uidl) else b"", int(size) if size.isdigit() and len(size) < 16 else -1)
