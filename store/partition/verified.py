"""What clients read of messages is compared with its digest first (`Settings.verify_reads`): what a disk gives back
wrong is reported, and not shown. Large messages are sent while they are read, so they are left to `scrub`.

The trace header in front is not in the digest, since every delivery of the message has another one. Its own sum is in
it, behind the id of the delivery in Received (an Atom of RFC 5321 §4.4).
"""

import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from itertools import chain

from store.errors import Problem, StoreError, disk_problem
from store.partition.messagefiles import MID_OCTETS, MessageFile

LARGEST = 64 << 10          # octets of a message file that is compared
SUM = 8                     # hexadecimal digits
_MARK, _NEXT = b"=", b";\r\n\t"           # what stands around the sum; behind _NEXT come the date and CRLF
#: Octets of a trace header from its sum on; a date (RFC 5322 §3.3) may have a day of one digit.
_BEHIND = tuple(SUM + len(_NEXT) + date + 2 for date in (31, 30))
_DIGITS = frozenset(b"0123456789abcdef")
TRACE_FIELDS = 40           # header fields that a trace header may have
#: What a delivery puts in front, line by line: a message may begin with lines that would continue the last of them.
_OWN = re.compile(rb"Return-Path: <[^\n]*\nReceived: from [^\n]*\n\tby [^\n]*LMTP[^\n]*\n\t[^\n]*\n")
_FIELD = re.compile(rb"[^\x00-\x20:\x7f]+[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*")


def starts(head: bytes) -> Iterator[int]:
    """Where the content may begin that a file with this head holds, the likely places first.

    A trace header is Return-Path and one Received field (RFC 5321 §4.4); what has none has neither or only Received.
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


def agrees(octets: bytes, digest: bytes) -> bool:
    """Whether these octets of a whole message file have the content with that digest, and in front of it what was
    there."""
    own = _OWN.match(octets)
    for start in chain((0 if own is None else own.end(),), starts(octets)):     # the first is nearly always the one
        content = octets[start:] if start else octets
        if hashlib.blake2b(content, digest_size=MID_OCTETS).digest() == digest:
            return not start or is_intact(octets[:start])
    return False


def verified(file: MessageFile, digest: bytes) -> MessageFile:
    """The file, which is what it was, or large; if it is not, it is closed. Raises StoreError CORRUPT, UNAVAILABLE."""
    if file.end > LARGEST:
        return file
    try:
        if agrees(os.pread(file.fileno, file.end, 0), digest):
            return file
    except OSError as error:
        file.close()
        raise disk_problem(error) from error
    file.close()
    raise StoreError(Problem.CORRUPT, "The message is damaged",
                     f"message file {digest.hex()} does not agree with its digest")
