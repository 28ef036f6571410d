"""Octets of a message that are a table, and what tells both sides that they have the same records."""

import hashlib
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mboxlist.names import SEPARATOR
from store.tables.index import CHUNK, ROW, Rows
from store.usermove.messageformat import BadMessage

SEND_CHUNKS = 32            # chunks of records that go in one message
DIGEST_OCTETS = 32          # of a trace header, and of the records of a mailbox

#: A message of which the records will speak: digest, octets of the trace header in its file, whether it shows that.
ASKED = np.dtype([("digest", "V32"), ("trace", "<u4"), ("shows", "u1")])
#: A trace header, by its digest.
HEADER = np.dtype([("digest", "V32"), ("head", "V32")])
_COMPARED = ["uid", "flags", "zone", "keywords", "modseq", "received", "size", "saved"]


class Answer(IntEnum):
    """What the target says of a message that it is asked for."""

    HAVE = 0                # it has it
    SEND = 1                # it has not
    TELL = 2                # it has the content behind a trace header as long: is that the same?
    WHOLE = 3               # it has the content behind another one: send it, to be a file for itself there


def table(octets: bytes, of: "np.dtype[Any]", most: int) -> NDArray[Any]:
    """The rows. Raises BadMessage for what is none, or longer."""
    if len(octets) % of.itemsize or len(octets) > most * of.itemsize:
        raise BadMessage(f"{len(octets)} octets are no table of {of.itemsize} each, or too many")
    return np.frombuffer(octets, of)


def head_digest(head: bytes) -> bytes:
    return hashlib.blake2b(head, digest_size=DIGEST_OCTETS).digest()


def chunks_of(octets: bytes, numbers: list[int], counts: list[int]) -> dict[int, Rows]:
    """Records by the number of their chunk. Raises BadMessage unless each has its place there."""
    rows = table(octets, ROW, SEND_CHUNKS * CHUNK)
    if len(numbers) != len(counts) or sum(counts) != len(rows) or len(set(numbers)) != len(numbers):
        raise BadMessage("the records are not those of these chunks")
    found, at = {}, 0
    for number, count in zip(numbers, counts, strict=True):
        chunk = rows[at:at + count]
        at += count
        uids = chunk["uid"].astype(np.int64)
        if (np.diff(uids) <= 0).any() or ((uids - 1) // CHUNK != number).any():
            raise BadMessage(f"a record is not one of chunk {number}")
        found[number] = chunk
    return found


def records_digest(rows: Rows) -> str:
    """A digest of all in the records that does not depend on where the mailbox is."""
    digest = hashlib.blake2b(digest_size=DIGEST_OCTETS)
    for name in _COMPARED:
        digest.update(np.ascontiguousarray(rows[name]).tobytes())
    return digest.hexdigest()


def is_root_of(root: str, user: str) -> bool:
    """Whether a quota root is the user's, or that of one of the user's mailboxes."""
    return root == user or root.startswith(user + SEPARATOR)
