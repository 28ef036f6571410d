"""What mailboxes and messages are to an import, wherever they are."""

import fnmatch
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from attrs import define, field, frozen

from store.values import Flag, Flags, InternalDate

READ_OCTETS = 128 * 1024
SYSTEM = {"\\seen": Flag.SEEN, "\\answered": Flag.ANSWERED, "\\flagged": Flag.FLAGGED, "\\deleted": Flag.DELETED,
          "\\draft": Flag.DRAFT}
NAMES = {Flag.SEEN: "\\Seen", Flag.ANSWERED: "\\Answered", Flag.FLAGGED: "\\Flagged", Flag.DELETED: "\\Deleted",
         Flag.DRAFT: "\\Draft"}

_BARE_LF = re.compile(rb"(?<!\r)\n")

Warn = Callable[[str], None]        # takes a line about something that cannot be imported or exported as it is


class Unreadable(Exception):
    """A mailbox, or all of a source, that cannot be read; the text says why."""


class OutOfTime(Unreadable):
    """The time for this user's mail is over."""


@define(eq=False)
class UserTime:
    """The time that one user's mail may take, in seconds; it runs from the first look at what is left of it."""

    seconds: float = float("inf")
    clock: Callable[[], float] = time.monotonic
    _began: float | None = field(default=None, init=False)

    def left(self) -> float:
        """Raises OutOfTime."""
        now = self.clock()
        if self._began is None:
            self._began = now
        if (left := self._began + self.seconds - now) <= 0:
            raise OutOfTime(f"it has taken {self.seconds:.0f} s (--user-time): what has come stays, and another run "
                            "goes on")
        return left


@frozen
class Box:
    """A mailbox of a source. `name` is what it is to be called here; `key` is what the source knows it by.

    `uidvalidity` 0: messages have no UIDs there. `acl` is None where rights cannot be had. `annotations` are those of
    RFC 5464, /private ones of the user who is imported.
    """

    name: str
    key: object = None
    uidvalidity: int = 0
    uidnext: int = 0
    special_use: str | None = None
    acl: Mapping[str, str] | None = None
    annotations: Mapping[str, bytes] = field(factory=dict)

    @property
    def path(self) -> Path:
        """The key of one in files."""
        assert isinstance(self.key, Path)
        return self.key


@frozen
class Mail:
    """A message of a source; `where` is what a line about it calls it. `size` is RFC822.SIZE, -1 as long as nobody
    knows; `uid` 0: it has none; `uidl` is the unique-id that POP3 clients know it by."""

    where: str
    received: InternalDate
    flags: Flags = Flags()
    size: int = -1
    uid: int = 0
    uidl: bytes = b""
    key: object = field(default=None, repr=False)


@frozen
class OldScript:
    """A Sieve script of a source; `problem` says why its text cannot be had, "" if it can."""

    name: str
    text: bytes = field(repr=False)
    active: bool = False
    problem: str = ""


@frozen
class Limits:
    """What a user may have there, in octets and messages; None: any number, or nobody can say."""

    octets: int | None = None
    messages: int | None = None


Content = tuple[Mail, Iterable[bytes]]


class Source(Protocol):
    """Where mail comes from. Everything may raise Unreadable."""

    def boxes(self) -> Iterator[Box]:
        """All mailboxes that are wanted."""

    def opened(self, box: Box) -> Box:
        """The mailbox with all that the source says of it; `mails` and `read` are about the last one."""

    def mails(self, box: Box, warn: Warn) -> Sequence[Mail]:
        """Its messages, in order of UID."""

    def read(self, box: Box, mails: Sequence[Mail], warn: Warn) -> Iterator[Content]:
        """Their octets, with CRLF, in any order. One that is gone, or cannot be read, is left out with
        a warning."""

    def message_ids(self, box: Box, mails: Sequence[Mail]) -> Mapping[Mail, bytes]:
        """The Message-IDs of messages, where they are to be had without reading all of them."""
        return {}

    def subscriptions(self) -> Sequence[str]:
        """The names that the user is subscribed to."""
        return []

    def scripts(self) -> Sequence[OldScript]:
        """The user's Sieve scripts."""
        return []

    def limits(self) -> Limits:
        """The user's limits of quota."""
        return Limits()

    def close(self) -> None:
        """Nobody reads any more."""
        return None


def chosen(name: str, patterns: Sequence[str], renamed: Mapping[str, str], prefix: str) -> str | None:
    """What a mailbox is called here that fits one of the patterns (all do if there are none), else None. `renamed` has
    new names, also of those above it; `prefix` is where all of them go."""
    if patterns and not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
        return None
    for old, new in renamed.items():
        if name == old or name.startswith(old + "/"):
            name = new + name[len(old):]
            break
    return f"{prefix}/{name}" if prefix else name


def batches(mails: Iterable[Mail], messages: int, octets: int) -> Iterator[list[Mail]]:
    """The messages in lists of so many, and of so many octets if there is more than one."""
    some, size = list[Mail](), 0
    for mail in mails:
        if some and (len(some) >= messages or size + max(mail.size, 0) > octets):
            yield some
            some, size = [], 0
        some.append(mail)
        size += max(mail.size, 0)
    if some:
        yield some


def flags_of(names: Iterable[str]) -> Flags:
    r"""System flags and keywords of names as IMAP has them; \Recent and the like are left out."""
    system, keywords = Flag(0), list[str]()
    for name in names:
        if name.startswith("\\"):
            system |= SYSTEM.get(name.lower(), Flag(0))
        elif name.lower() not in (known.lower() for known in keywords):
            keywords.append(name)
    return Flags(system, tuple(keywords))


def with_crlf(file: BinaryIO, size: int = -1) -> Iterator[bytes]:
    """The octets of a file from here on, every LF with its CR before it; `size` is how many are read, -1: all."""
    last, left = b"", size
    while left and (data := file.read(READ_OCTETS if left < 0 else min(READ_OCTETS, left))):
        left -= len(data) if left > 0 else 0
        yield crlf(data, last)
        last = data[-1:]


def crlf(data: bytes, before: bytes = b"") -> bytes:
    """Every LF with its CR before it; `before` is the octet in front of the data."""
    if b"\r" not in data and before != b"\r":
        return data.replace(b"\n", b"\r\n")
    before = before if before == b"\r" else b""
    return _BARE_LF.sub(b"\r\n", before + data)[len(before):]
