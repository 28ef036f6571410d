"""Reading message files: where they are; opening them; reading them in one piece; comparing them with their digests.

A message is compared with its digest before a client gets it (`Settings.verify_reads`): what a disk gives back wrong is
reported, and not shown. Large messages are sent while they are read, so `scrub` checks those.

The trace header in front is not in the digest, since every delivery of the message has another one. It has a sum of its
own, behind the id of the delivery in Received (an Atom of RFC 5321 §4.4).
"""

import hashlib
import os
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from mboxlist import privatefiles
from mboxlist.privatefiles import read_beginning
from store.errors import Problem, StoreError, disk_problem

MID_OCTETS = 32             # BLAKE2b, 256 bits
SPILL = 128 * 1024          # octets kept in memory before the file is made, and between writes to it
READING = os.O_RDONLY | os.O_NONBLOCK       # so nobody waits for a pipe that is in the place of a file
LARGEST = 64 << 10          # octets of a message file that is compared
REMEMBERED = 1 << 14        # readings of files whose octets agreed with the digest, 8 octets each
SUM = 8                     # hexadecimal digits
_MARK, _NEXT = b"=", b";\r\n\t"           # what stands around the sum; behind _NEXT come the date and CRLF
#: Octets of a trace header from its sum on; a date (RFC 5322 §3.3) may have a day of one digit.
_BEHIND = tuple(SUM + len(_NEXT) + date + 2 for date in (31, 30))
_DIGITS = frozenset(b"0123456789abcdef")
TRACE_FIELDS = 40           # header fields that a trace header may have
#: What a delivery puts in front, line by line: a message may begin with lines that would continue the last of them.
_OWN = re.compile(rb"Return-Path: <[^\n]*\nReceived: from [^\n]*\n\tby [^\n]*LMTP[^\n]*\n\t[^\n]*\n")
_FIELD = re.compile(rb"[^\x00-\x20:\x7f]+[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*")

_agreed = array("q", bytes(8 * REMEMBERED))     # see `agrees`; a later one takes the place of another


class Journalled(Protocol):
    """Messages that a file journal has, and the disk may not have: a `filejournal.LeftMessages`."""

    def has(self, serial: int) -> bool:
        """Whether the message of that arrival serial is there."""

    def open(self, serial: int) -> int:
        """A descriptor of a file in memory with its octets; -1: there are none. Raises OSError."""


class ReadableFiles:
    """The message files of one partition: `messages/` and `staging/`. `journalled` is read instead of files in a store
    that nobody writes to (`filejournal`)."""

    journalled: Journalled | None = None

    def __init__(self, partition: Path) -> None:
        self.folder = partition / "messages"
        self.staging = partition / "staging"
        self._folder, self._staging = str(self.folder), str(self.staging)   # a Path costs more than opening the file

    def path(self, digest: bytes) -> str:
        """Where the file of that digest is, or will be."""
        name = digest.hex()
        return f"{self._folder}/{name[0]}/{name[1:3]}/{name}"

    def staged_path(self, serial: int) -> str:
        """Where the message of that arrival serial is before it has its place."""
        return f"{self._staging}/{serial:016x}"

    def locate(self, digest: bytes, serial: int) -> Path | None:
        """Where the file is now; None: nowhere. Raises StoreError UNAVAILABLE when the disk gives no answer: then the
        message must not count as lost."""
        found = self._found(digest, serial)
        return None if found is None else Path(found[0])

    def _found(self, digest: bytes, serial: int) -> tuple[str, os.stat_result] | None:
        final, failure = self.path(digest), None
        for path in (final, self.staged_path(serial), final):
            try:
                return path, os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                failure = error
        if failure is not None:
            raise disk_problem(failure) from failure
        return None

    def may_be_there(self, digest: bytes, serial: int) -> bool:
        """Whether the file is somewhere, or the disk does not say that it is nowhere."""
        try:
            return self.locate(digest, serial) is not None
        except StoreError:
            return True

    def open(self, digest: bytes, serial: int, header_length: int, size: int, head: bytes = b"") -> "MessageFile":
        """The message for reading; see `MessageFile`. Raises StoreError CORRUPT when its file is missing, UNAVAILABLE.
        """
        if self.journalled is not None and (kept := self._open_journalled(self.journalled, serial)) >= 0:
            return MessageFile(kept, header_length, size, head)
        final = self.path(digest)
        for look in range(3):           # it may get its place between the first two looks
            path = self.staged_path(serial) if look == 1 else final
            try:
                return MessageFile(privatefiles.open_handle(path, READING), header_length, size, head)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk_problem(error) from error
        if not os.path.isdir(self._folder):         # the volume is not mounted
            raise StoreError(Problem.UNAVAILABLE, detail=f"{self._folder} is missing")
        raise StoreError(Problem.CORRUPT, "The message cannot be read", f"message file {digest.hex()} is missing")

    def _open_journalled(self, journalled: Journalled, serial: int) -> int:
        try:
            return journalled.open(serial)
        except OSError as error:
            raise disk_problem(error) from error

    def beginnings(self, digests: Iterable[bytes], serials: Iterable[int],
                   ends: Iterable[int]) -> Iterator[bytes | None]:
        """The first so many octets of each message file; None for a file that cannot be read or is shorter.

        A file costs three system calls and next to nothing else, since a search in many files waits for this.
        """
        return map(self.beginning, digests, serials, ends)

    def beginning(self, digest: bytes, serial: int, end: int) -> bytes | None:
        """`beginnings` of one."""
        if self.journalled is not None:
            return self._beginning(digest, serial, end)
        name = digest.hex()
        try:
            data = read_beginning(f"{self._folder}/{name[0]}/{name[1:3]}/{name}", end)
        except FileNotFoundError:
            return self._beginning(digest, serial, end)
        except OSError:
            return None
        return data if len(data) == end else None

    def _beginning(self, digest: bytes, serial: int, end: int) -> bytes | None:
        try:
            with self.open(digest, serial, 0, end) as file:
                return file.read(0, end)
        except StoreError:
            return None

    def is_whole(self, digest: bytes, serial: int, octets: int) -> bool:
        """Whether the file that a reader would open is there, and has that many octets. Raises StoreError UNAVAILABLE
        when the disk gives no answer: otherwise the file would count as lost, and would be left out of a copy."""
        found = self._found(digest, serial)
        return found is not None and found[1].st_size == octets

    def seems_whole(self, digest: bytes, serial: int, octets: int) -> bool:
        """As `is_whole`, for a caller that has the content at hand: a file that cannot be looked at is replaced by it,
        too."""
        try:
            return self.is_whole(digest, serial, octets)
        except StoreError:
            return False

    def will_need(self, digest: bytes) -> None:
        """Have the system read that file into memory, if it is there: somebody will soon read it."""
        try:
            handle = privatefiles.open_handle(self.path(digest))
        except OSError:
            return
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_WILLNEED)
        except OSError:
            pass
        finally:
            os.close(handle)


class MessageFile:
    """A message open for reading: `head`, and then its file from `start` on, `size` octets in all.

    Offsets are those of the message, not of its file. A context manager.
    """

    __slots__ = ("fileno", "head", "size", "start")

    def __init__(self, fileno: int, start: int, size: int, head: bytes = b"") -> None:
        self.fileno = fileno
        self.start = start
        self.size = size
        self.head = head

    @property
    def end(self) -> int:
        """How many octets the file has, at least, that has all of the message."""
        return self.start + self.size - len(self.head)

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` octets from `offset` on; fewer only at the end.

        Raises StoreError CORRUPT for a short file, UNAVAILABLE.
        """
        count = min(count, self.size - offset)
        if count <= 0:
            return b""
        data = self.head[offset:offset + count]
        start = self.start + offset - len(self.head)
        while len(data) < count:
            try:
                more = os.pread(self.fileno, count - len(data), start + len(data))
            except IsADirectoryError as error:
                raise StoreError(Problem.CORRUPT, "The message cannot be read", "it is no file") from error
            except OSError as error:
                raise disk_problem(error) from error
            if not more:
                raise StoreError(Problem.CORRUPT, "The message cannot be read", "a message file is shorter than it was")
            data = data + more if data else more
        return data

    def pieces(self) -> Iterator[bytes]:
        """All of it, some at a time. Raises StoreError CORRUPT, UNAVAILABLE."""
        for at in range(0, self.size, SPILL):
            yield self.read(at, SPILL)

    def close(self) -> None:
        """Let go of the file."""
        if self.fileno >= 0:
            os.close(self.fileno)
            self.fileno = -1

    def __enter__(self) -> "MessageFile":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


def starts(head: bytes) -> Iterator[int]:
    """Where in a file with this head the content may begin, the likely places first.

    A trace header is Return-Path and one Received field (RFC 5321 §4.4). A file without one has neither, or only
    Received.
    """
    own = _OWN.match(head)
    if own is not None:
        yield own.end()
    elif head[:12].lower() != b"return-path:":
        yield 0
    ends: list[int] = []
    at = 0
    while len(ends) < TRACE_FIELDS and (field := _FIELD.match(head, at)):
        at = field.end()
        ends.append(at)
    if head[:12].lower() == b"return-path:" and len(ends) > 1:
        yield ends[1]
    yield 0
    yield from ends


def summed(before: bytes, after: bytes) -> bytes:
    """A trace header: two parts, of which the first ends with "=" and the other is ";", CRLF, a tab, the date and CRLF,
    and the sum between them, eight hexadecimal digits."""
    return b"%b%08x%b" % (before, zlib.crc32(after, zlib.crc32(before)), after)         # `_sum`, for every delivery


def is_intact(trace: bytes) -> bool:
    """Whether a trace header agrees with the sum in it, if it has one.

    Any bit may have changed, also of what the sum is found by. So it is looked for where it must be, and enough of what
    is around it will do; where the mark before it has changed, the sum itself says that it is one.
    """
    for behind in _BEHIND:
        at = len(trace) - behind
        if at > 0 and trace[at:at + SUM] == _sum(trace[:at], trace[at + SUM:]):
            return True
    return not any(_is_damaged(trace, len(trace) - behind) for behind in _BEHIND)


def _is_damaged(trace: bytes, at: int) -> bool:
    """Whether there is a sum at that place, and something has changed."""
    if at < 1:
        return False
    said, end = trace[at:at + SUM], at + SUM
    right = sum(octet == wanted for octet, wanted in zip(trace[end:], _NEXT, strict=False))
    if trace[at - 1:at] != _MARK:
        return right == len(_NEXT) and said == _sum(trace[:at - 1] + _MARK, trace[end:])
    return right >= len(_NEXT) - 2 and sum(octet in _DIGITS for octet in said) >= SUM - 2


def _sum(before: bytes, after: bytes) -> bytes:
    return b"%08x" % zlib.crc32(after, zlib.crc32(before))


def agrees(octets: bytes, digest: bytes, reader: str) -> bool:
    """Whether these octets of a whole message file have the content with that digest, and in front of it what was
    there. `reader`: the user for whom it is read.

    Mail programs ask for the parts of a message one after the other, and each time its file is read again. So 64 bits
    are remembered of octets that agreed, made of all of them: Python's hash of bytes (SipHash under a key of this
    process, PEP 456), which takes a quarter of the time. Octets of which a bit has changed have others. What others
    have read makes nobody's reading faster: the time would tell that they have the message.
    """
    mark = hash(octets) ^ hash(digest) ^ hash(reader)
    if _agreed[mark % REMEMBERED] == mark:
        return True
    own = _OWN.match(octets)
    start = 0 if own is None else own.end()             # nearly always the content begins there
    if hashlib.blake2b(octets[start:], digest_size=MID_OCTETS).digest() == digest:
        sound = not start or is_intact(octets[:start])
    else:
        sound = _begins_elsewhere(octets, digest)
    if sound:
        _agreed[mark % REMEMBERED] = mark
    return sound


def _begins_elsewhere(octets: bytes, digest: bytes) -> bool:
    for start in starts(octets):
        if hashlib.blake2b(octets[start:], digest_size=MID_OCTETS).digest() == digest:
            return not start or is_intact(octets[:start])
    return False


def verified(file: MessageFile, digest: bytes, reader: str) -> MessageFile:
    """The file, which is what it was, or large; if it is not, it is closed. `reader`: see `agrees`. Raises StoreError
    CORRUPT, UNAVAILABLE."""
    if file.end > LARGEST:
        return file
    try:
        if agrees(os.pread(file.fileno, file.end, 0), digest, reader):
            return file
    except OSError as error:
        file.close()
        raise disk_problem(error) from error
    file.close()
    raise StoreError(Problem.CORRUPT, "The message is damaged",
                     f"message file {digest.hex()} does not agree with its digest")


def digest_in(name: str) -> bytes:
    """The digest that is the name of a message file; what no digest is for any other name."""
    try:
        digest = bytes.fromhex(name)
    except ValueError:
        return b""
    return digest if len(digest) == MID_OCTETS and digest.hex() == name else b""    # it takes blanks and capitals
