"""What a message file holds, found from its octets alone: where its trace header ends and its content begins.

Nothing here needs a database, and nothing is changed.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from store.errors import Problem, StoreError, disk_problem
from store.message.cacherecord import CachedMessage, render
from store.message.mime import parse
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import MID_OCTETS, MessageFile, starts
from store.tables.references import MessageRecord

READ_OCTETS = 1 << 20                 # octets of a message that are read at a time
LOOKS = 3                       # how often to look at a file that gets its place meanwhile
TRACE_LIMIT = 256 << 10         # octets at the head of a file in which its trace header may end


def content(path: Path, digest: bytes, likely: Iterable[int]) -> tuple[CachedMessage, int] | None:
    """The cache record of a message file, which has the length of its trace header, and the octets of the file.

    None when no part of the file has that digest. `likely` is where the content may begin. Raises OSError.
    """
    found = trace_of(path, digest, likely)
    if found is None:
        return None
    start, size = found
    with MessageFile(privatefiles.open_regular(path), start, size - start) as file:
        return render(parse(file.read, file.size), digest, start), size


def content_in(octets: bytes, digest: bytes) -> tuple[CachedMessage, int] | None:
    """`content` of a message file with these octets."""
    start = _trace(lambda at, count: octets[at:at + count], len(octets), digest, ())
    if start is None:
        return None
    message = octets[start:]
    return render(parse(lambda at, count: message[at:at + count], len(message)), digest, start), len(octets)


def trace_of(path: Path, digest: bytes, likely: Iterable[int]) -> tuple[int, int] | None:
    """The length of the trace header of a message file, and the octets of the file.

    None when no part of the file has that digest. `likely` is where the content may begin. Raises OSError.
    """
    with _whole(path) as file:
        start = _trace(file.read, file.size, digest, likely)
        return None if start is None else (start, file.size)


def _trace(read: Callable[[int, int], bytes], size: int, digest: bytes, likely: Iterable[int]) -> int | None:
    head = read(0, min(TRACE_LIMIT, size))
    for start in _unique((*likely, *starts(head))):
        if start <= size and _digest(read, start, size) == digest:
            return start
    return None


def look(files: MessageFiles, digest: bytes, serial: int) -> tuple[bool, tuple[int, int] | None]:
    """Whether a message file is there. If it holds what its digest says, also the length of its trace header and its
    octets. Raises StoreError UNAVAILABLE when the disk gives no answer: then nobody may decide anything."""
    for _ in range(LOOKS):
        path = files.locate(digest, serial)
        if path is None:
            break
        try:
            return True, trace_of(path, digest, ())
        except FileNotFoundError:           # it got its place at this moment, or was purged
            continue
        except OSError as error:
            raise disk_problem(error) from error
        except StoreError as error:
            if error.problem is not Problem.CORRUPT:
                raise
            return True, None               # it is shorter than it was a moment ago
    return False, None


def seen(files: MessageFiles, digest: bytes, record: MessageRecord) -> MessageRecord:
    """The record of a message file, completed by a look at the file. A file that is missing or damaged has no trace
    header.

    Raises StoreError UNAVAILABLE as `look` does.
    """
    _, found = look(files, digest, record.serial)
    return evolve(record, trace=0) if found is None else evolve(record, trace=found[0], size=found[1])


def likely_digests(path: Path) -> list[bytes]:
    """The digests that a message file may have, the likeliest first. Raises OSError."""
    with _whole(path) as file:
        likely = list(_unique(starts(file.read(0, min(TRACE_LIMIT, file.size)))))
        return [_digest(file.read, start, file.size) for start in likely[:1 + (likely[0] != 0)]]


def _whole(path: Path) -> MessageFile:
    handle = privatefiles.open_regular(path)
    return MessageFile(handle, 0, os.fstat(handle).st_size)


def _unique(numbers: Iterable[int]) -> Iterator[int]:
    return iter(dict.fromkeys(numbers))


def _digest(read: Callable[[int, int], bytes], start: int, size: int) -> bytes:
    digest = hashlib.blake2b(digest_size=MID_OCTETS)
    while data := read(start, min(READ_OCTETS, size - start)):
        digest.update(data)
        start += len(data)
    return digest.digest()
