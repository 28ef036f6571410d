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
from store.tables.uidls import is_legal
from store.values import Flag, Flags, InternalDate
from tools.transfer import subscriptionfiles as subscriptions
from tools.transfer.mailofothers import MailTree
from tools.transfer.mbox import is_keyword
from tools.transfer.sourcevalues import Box, Content, Mail, Source, Warn, with_crlf
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
    _tree: MailTree | None = field(default=None, init=False)

    @property
    def tree(self) -> MailTree:
        """The folder, open. Raises Unreadable."""
        if self._tree is None:
            self._tree = MailTree.at(self.path)
        return self._tree

    def close(self) -> None:
        if self._tree is not None:
            self._tree.close()

    def boxes(self) -> Iterator[Box]:
        if self.tree.is_folder("cur"):
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
        for name in self.tree.folders(""):
            if name.startswith(".") and name.strip(".") and self.tree.is_folder(f"{name}/cur"):
                yield name[1:].split("."), self.path / name

    def _nested(self, above: tuple[str, ...] = ()) -> Iterator[tuple[list[str], Path]]:
        for name in self.tree.folders("/".join(above)):
            if name in NOT_MAILBOXES or name.startswith("."):
                continue
            levels = (*above, name)
            if self.tree.is_folder("/".join((*levels, "cur"))):
                yield list(levels), self.path.joinpath(*levels)
            yield from self._nested(levels)

    def opened(self, box: Box) -> Box:
        self._known = _known(self.tree, self._place(box))
        return evolve(box, uidvalidity=self._known.uidvalidity, uidnext=self._known.uidnext)

    def mails(self, box: Box, warn: Warn) -> Sequence[Mail]:
        place, found = self._place(box), dict[str, Mail]()
        keywords = _keywords(self.tree, place)
        for part in ("cur", "new"):         # a file on its way from new to cur is seen at least once in this order
            for name, figures in self.tree.files(f"{place}{part}", warn):
                base = name.partition(INFO)[0]
                found[base] = self._mail(f"{place}{part}/{name}", figures, base, keywords, warn)
        return sorted(found.values(), key=lambda mail: (mail.uid or 1 << 32, mail.received.seconds, mail.where))

    def _place(self, box: Box) -> str:
        """Where it is below the folder, with a / at its end."""
        place = os.fspath(box.path.relative_to(self.path))
        return "" if place == "." else place + "/"

    def _mail(self, key: str, figures: os.stat_result, base: str, keywords: Mapping[str, str], warn: Warn) -> Mail:
        shown = self.tree.shown(key)
        uid, uidl, size = self._known.files.get(base, (0, b"", -1))
        named = _WSIZE.search(base)
        flags, unknown = letters_to_flags(key.rpartition("/")[2].partition(INFO)[2], keywords)
        if unknown:
            warn(f"{shown}: there is no flag for {', '.join(unknown)}; the message is taken without")
        date = InternalDate(int(figures.st_mtime))
        return Mail(shown, date, flags, int(named[1]) if named else size, uid, uidl, key)

    def read(self, box: Box, mails: Sequence[Mail], warn: Warn) -> Iterator[Content]:
        for mail in mails:
            assert isinstance(mail.key, str)
            try:
                file = _open(self.tree, mail.key)
            except OSError as error:
                warn(f"{mail.where}: {error.strerror}")
                continue
            with file:
                yield mail, with_crlf(file)

    def subscriptions(self) -> Sequence[str]:
        for name, prefix in (("subscriptions", ""), ("courierimapsubscribed", "INBOX.")):
            try:
                octets = self.tree.read(name)
            except OSError:
                continue
            return subscriptions.parse(octets, "." if self._is_flat() else "/", prefix)
        return []


def _open(tree: MailTree, key: str) -> BinaryIO:
    """A message's file, also when its flags have changed meanwhile, or it has left `new`. Raises OSError."""
    try:
        return tree.open(key)
    except FileNotFoundError:
        folder, name = os.path.split(key)
        base = name.partition(INFO)[0]
        for part in ("cur", "new"):
            place = os.path.join(os.path.dirname(folder), part)
            for other in tree.names(place):
                if other.partition(INFO)[0] == base:
                    return tree.open(os.path.join(place, other))
        raise


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


def _keywords(tree: MailTree, place: str) -> dict[str, str]:
    """The keywords of the letters, of the file dovecot-keywords."""
    found = {}
    try:
        lines = tree.read(f"{place}dovecot-keywords").decode("ascii", "replace").split("\n")
    except OSError:
        return {}
    for line in lines:
        number, _, word = line.partition(" ")
        if number.isdigit() and int(number) < KEYWORDS and is_keyword(word):
            found[chr(ord("a") + int(number))] = word
    return found


def _known(tree: MailTree, place: str) -> Known:
    """What the list of UIDs says, Dovecot's or Courier's."""
    for name in LISTS:
        try:
            lines = tree.read(f"{place}{name}").split(b"\n")
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
