"""Each reader's own flags in mailboxes that belong to somebody else (RFC 4314 §4, "some flags may be per-user").

`seen.db`: (mailbox id, chunk, reader) -> for each of the chunk's 64 UIDs the reader's own system flags and the MODSEQ
of their last change, and a checksum. The owner's flags, and all that are not private, are those of the index.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId
from store.errors import Problem, StoreError
from store.tables.index import CHUNK, OWN, Rows

_KEY = struct.Struct(">II")
_CHECK = struct.Struct("<I")


class ReaderFlags:
    """The table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def chunk(self, mailbox: MailboxId, number: int, reader: str, txn: Txn) -> NDArray[np.void]:
        """A reader's own flags for the UIDs of a chunk; the array may be changed. Raises StoreError CORRUPT."""
        data = self._table.get_to_change(_key(mailbox, number, reader), txn)
        return _decode(data) if data is not None else np.zeros(CHUNK, OWN)

    def put_chunk(self, mailbox: MailboxId, number: int, reader: str, own: NDArray[np.void], txn: Txn) -> None:
        """Set them."""
        data = own.tobytes()
        self._table.put(_key(mailbox, number, reader), data + _CHECK.pack(zlib.crc32(data)), txn)

    def of(self, mailbox: MailboxId, reader: str, numbers: list[int], txn: Txn = None) -> dict[int, NDArray[np.void]]:
        """A reader's own flags in these chunks, where there are any. Raises StoreError CORRUPT."""
        found = ((number, self._table.get(_key(mailbox, number, reader), txn)) for number in numbers)
        return {number: _decode(data) for number, data in found if data is not None}

    def all(self, mailbox: MailboxId, txn: Txn = None) -> Iterator[tuple[int, str, NDArray[np.void]]]:
        """Everybody's own flags in a mailbox: chunk, reader, flags. Raises StoreError CORRUPT."""
        for key, data in self._table.scan(_KEY.pack(mailbox, 0), _KEY.pack(mailbox + 1, 0), txn):
            yield _KEY.unpack_from(key)[1], key[_KEY.size:].decode(), _decode(data)

    def damaged(self, mailbox: MailboxId, txn: Txn = None) -> Iterator[tuple[int, str, NDArray[np.void]]]:
        """What does not agree with its checksum: chunk, reader, and what is left of the flags."""
        for key, data in self._table.scan(_KEY.pack(mailbox, 0), _KEY.pack(mailbox + 1, 0), txn):
            if not _is_whole(data):
                own = data[:-_CHECK.size] if len(data) == CHUNK * OWN.itemsize + _CHECK.size else bytes(
                    CHUNK * OWN.itemsize)
                yield (_KEY.unpack_from(key)[1], key[_KEY.size:].decode(errors="replace"),
                       np.frombuffer(bytearray(own), OWN))

    def forget(self, mailbox: MailboxId, txn: Txn) -> None:
        """The mailbox is no more."""
        for key, _ in list(self._table.scan(_KEY.pack(mailbox, 0), _KEY.pack(mailbox + 1, 0), txn)):
            self._table.delete(key, txn)

    def forget_chunk(self, mailbox: MailboxId, number: int, reader: str, txn: Txn) -> None:
        """The reader has no flags in that chunk."""
        self._table.delete(_key(mailbox, number, reader), txn)

    def of_reader(self, reader: str) -> Iterator[bytes]:
        """The keys of what there is of that user. Looks at everything."""
        yield from (key for key, _ in self._table.scan() if key[_KEY.size:] == reader.encode())

    def rename(self, keys: Iterable[bytes], new: str | None, txn: Txn) -> None:
        """Whose these are has another name now, or (None) is no more; no harm if it was done before."""
        for key in keys:
            data = self._table.get_to_change(key, txn)
            if data is not None:
                self._table.delete(key, txn)
                if new is not None:
                    self._table.put(key[:_KEY.size] + new.encode(), data, txn)

    def has(self, reader: str) -> bool:
        """Whether there are any of that user. Looks at everything."""
        return any(True for _ in self.of_reader(reader))

    def mailboxes(self, txn: Txn = None) -> set[int]:
        """The mailboxes in which readers have flags of their own."""
        return {_KEY.unpack_from(key)[0] for key, _ in self._table.scan(txn=txn)}


def overlay(rows: Rows, own: dict[int, NDArray[np.void]], private: int) -> Rows:
    """The records as a reader sees them whose own flags these are; `private` is the bits that are each reader's own."""
    seen = rows.copy()
    seen["flags"] &= np.uint16(~private & 0xFFFF)
    if not own or not len(rows):
        return seen
    numbers = np.fromiter(sorted(own), np.int64, len(own))
    flat = np.concatenate([own[int(number)] for number in numbers])
    chunks = (rows["uid"].astype(np.int64) - 1) // CHUNK
    where = np.minimum(np.searchsorted(numbers, chunks), len(numbers) - 1)
    there = np.flatnonzero(numbers[where] == chunks)
    mine = flat[where[there] * CHUNK + (rows["uid"][there].astype(np.int64) - 1) % CHUNK]
    seen["flags"][there] |= mine["flags"] & np.uint8(private)
    seen["modseq"][there] = np.maximum(seen["modseq"][there], mine["modseq"])
    return seen


def _key(mailbox: MailboxId, number: int, reader: str) -> bytes:
    return _KEY.pack(mailbox, number) + reader.encode()


def _is_whole(data: bytes) -> bool:
    own = data[:-_CHECK.size]
    return len(own) == CHUNK * OWN.itemsize and _CHECK.unpack(data[-_CHECK.size:])[0] == zlib.crc32(own)


def _decode(data: bytes) -> NDArray[np.void]:
    if not _is_whole(data):
        raise StoreError(Problem.CORRUPT, detail="a reader's own flags do not agree with their checksum")
    return np.frombuffer(bytearray(data[:-_CHECK.size]), OWN)
