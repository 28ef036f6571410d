"""All index records of a partition, for the work that looks at every one of them."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.entry import MailboxId
from store.partition.partition import Partition
from store.tables.index import CHUNK, ROW, Rows, between_heads, chunk_of_key, is_whole, join, records_in, records_of

HELD_OCTETS = 4 << 20       # of records, at a time

Owned = tuple[NDArray[np.uint32], Rows]     # the ids of the records' mailboxes, and the records


def whole(mailbox: MailboxId, number: int, value: bytes) -> bool:
    """Whether a chunk agrees with its checksum."""
    return is_whole(value)


def sound(mailbox: MailboxId, number: int, value: bytes) -> bool:
    """Whether a chunk is whole, and has only records of its own UIDs, in their order."""
    if not is_whole(value):
        return False
    uids = _uids(records_in(value), between_heads(value)).unpack_from(value)        # for so few numpy takes longer
    return bool(uids[0] > number * CHUNK and uids[-1] <= (number + 1) * CHUNK and list(uids) == sorted(set(uids)))


@cache
def _uids(records: int, each: int) -> struct.Struct:
    """A format that reads the UIDs of so many records, each of which begins so many octets after the last one."""
    return struct.Struct("<" + f"I{each - 4}x" * records)


def are_sound(chunks: Sequence[tuple[int, bytes]]) -> bool:
    """Whether all these chunks (number, value) of one mailbox are `sound`. They come in order."""
    return sound_rows(chunks) is not None


def sound_rows(chunks: Iterable[tuple[int, bytes]]) -> Rows | None:
    """The records of such chunks in an array that can be written to; None if one of them is not `sound`. All chunks are
    asked for, and none is kept while the next one is read."""
    octets, numbers, lengths, whole = bytearray(), [], [], True
    for number, value in chunks:
        whole = whole and is_whole(value)
        numbers.append(number)
        lengths.append(records_in(value))
        octets += records_of(value)
    if not whole:
        return None
    rows = np.frombuffer(octets, ROW)
    uids = rows["uid"].astype(np.int64)
    owners = np.repeat(np.array(numbers, np.int64), lengths)
    return rows if ((uids - 1) // CHUNK == owners).all() and (np.diff(uids) > 0).all() else None


def every_record(partition: Partition, txn: Txn = None, *, usable: Callable[[MailboxId, int, bytes], bool] = whole
                 ) -> Iterator[Owned]:
    """The records with the ids of their mailboxes, some megabytes at a time, in order of mailbox id and UID.

    Records of mailboxes that were deleted, and not purged yet, are among them. Chunks (mailbox, number, value) that are
    not `usable` are left out. Within a transaction everything stays as it is; without one each chunk is as it was when
    it was read.
    """
    mailboxes: list[int] = []
    values: list[bytes] = []
    held = 0
    for key, value in partition.index.scan(txn=txn, hold=txn is not None):
        mailbox, number = chunk_of_key(key)
        if not usable(MailboxId(mailbox), number, value):
            continue
        mailboxes.append(mailbox)
        values.append(value)
        held += len(value)
        if held >= HELD_OCTETS:
            yield _joined(mailboxes, values)
            mailboxes, values, held = [], [], 0
    if values:
        yield _joined(mailboxes, values)


def every_reference(partition: Partition, txn: Txn = None, *, usable: Callable[[MailboxId, int, bytes], bool] = whole
                    ) -> Iterator[Owned]:
    """As `every_record`, with the records that were expunged and are still counted."""
    yield from every_record(partition, txn, usable=usable)
    for item in partition.removed.held(txn):
        yield np.full(len(item.rows), item.mailbox, np.uint32), item.rows


def _joined(mailboxes: list[int], values: list[bytes]) -> Owned:
    return np.repeat(np.array(mailboxes, np.uint32), _lengths(values)), join(values)


def _lengths(values: list[bytes]) -> NDArray[np.int64]:
    """How many records each chunk has."""
    return np.fromiter(map(records_in, values), np.int64, len(values))
