"""What clients read of messages is compared with its digest first (`Settings.verify_reads`): what a disk gives back
wrong is told, and not shown. Large messages are sent while they are read, so they are left to `scrub`.

The trace header in front is not in the digest, since every delivery of the message has another one. Its own sum is in
it, behind the id of the delivery in Received (an Atom of RFC 5321 §4.4).
"""

import hashlib
import os
import re
import zlib

from store.errors import Problem, StoreError
from store.messagefiles import MID_OCTETS, MessageFile, disk_problem
from store.remains import starts

LARGEST = 64 << 10          # octets of a message file that is compared
_SUM = re.compile(rb"LMTP[^\n]*=([^\n]{8})[^\n]\r\n")


def summed(before: bytes, after: bytes) -> bytes:
    """A trace header: two parts, of which the first ends with "=" and the other begins with ";", and the sum between
    them, eight hexadecimal digits."""
    return b"%b%08x%b" % (before, zlib.crc32(after, zlib.crc32(before)), after)


def is_intact(trace: bytes) -> bool:
    """Whether a trace header agrees with the sum in it, if it has one."""
    found = _SUM.search(trace)
    if found is None:
        return True
    at, end = found.span(1)
    return found[1] == b"%08x" % zlib.crc32(trace[end:], zlib.crc32(trace[:at]))


def agrees(octets: bytes, mid: bytes) -> bool:
    """Whether these octets of a whole message file have the content with that digest, and in front of it what was
    there."""
    start = next((start for start in starts(octets) if _digest(octets, start) == mid), None)
    return start is not None and is_intact(octets[:start])


def verified(file: MessageFile, mid: bytes) -> MessageFile:
    """The file, which is what it was, or large; if it is not, it is closed. Raises StoreError CORRUPT, UNAVAILABLE."""
    if file.end > LARGEST:
        return file
    try:
        if agrees(os.pread(file.fileno, file.end, 0), mid):
            return file
    except OSError as error:
        file.close()
        raise disk_problem(error) from error
    file.close()
    raise StoreError(Problem.CORRUPT, "The message is damaged",
                     f"message file {mid.hex()} does not agree with its digest")


def _digest(octets: bytes, start: int) -> bytes:
    return hashlib.blake2b(octets[start:] if start else octets, digest_size=MID_OCTETS).digest()
