"""How many index records use a message file, and which files wait to be purged.

`messages.db`: digest -> arrival serial, references, octets of the file, octets of the trace header at its head, and
when the last reference went. `purge.db`: (that time, digest), in order of time.
"""

import logging
import struct
import time
from collections.abc import Iterator

from attrs import evolve, frozen

from mboxlist.kv import Table, Txn
from store.errors import Problem, StoreError

log = logging.getLogger(__name__)

_RECORD = struct.Struct("<QIQII")
_DUE = struct.Struct(">I")


@frozen
class MessageRecord:
    """What is known of a message file; `released` is the Unix time at which its last reference went, or 0."""

    serial: int
    references: int
    size: int
    trace: int
    released: int = 0

    def to_bytes(self) -> bytes:
        """The stored form."""
        return _RECORD.pack(self.serial, self.references, self.size, self.trace, self.released)

    @classmethod
    def from_bytes(cls, data: bytes) -> "MessageRecord":
        """From the stored form."""
        return cls(*_RECORD.unpack(data))


class References:
    """The two tables."""

    def __init__(self, messages: Table, purge: Table) -> None:
        self._messages = messages
        self._purge = purge

    def find(self, mid: bytes, txn: Txn = None) -> MessageRecord | None:
        """The record of a message file."""
        data = self._messages.get(mid, txn)
        return MessageRecord.from_bytes(data) if data is not None else None

    def find_to_change(self, mid: bytes, txn: Txn) -> MessageRecord | None:
        """The same, locked to the end of the transaction."""
        data = self._messages.get_to_change(mid, txn)
        return MessageRecord.from_bytes(data) if data is not None else None

    def write(self, mid: bytes, record: MessageRecord, txn: Txn) -> None:
        """Set the record."""
        self._messages.put(mid, record.to_bytes(), txn)

    def add(self, mid: bytes, count: int, txn: Txn) -> None:
        """`count` more index records use the file. Raises StoreError CORRUPT if it is not known."""
        record = self.find_to_change(mid, txn)
        if record is None:
            raise StoreError(Problem.CORRUPT, detail=f"message {mid.hex()} is not in messages.db")
        self.write(mid, evolve(record, references=record.references + count, released=0), txn)

    def release(self, mid: bytes, count: int, txn: Txn) -> None:
        """`count` index records fewer use the file; with the last, it goes on the purge list.

        A file with fewer references than are given back is reported and left alone: a wrong count must never delete
        mail, nor keep the rest of a mailbox from being expunged.
        """
        record = self.find_to_change(mid, txn)
        if record is None or record.references < count:
            log.error("message %s is released more often than it was used; its file stays", mid.hex())
            return
        left = record.references - count
        now = 0 if left else int(time.time())
        self.write(mid, evolve(record, references=left, released=now), txn)
        if not left:
            self._purge.put(_DUE.pack(now) + mid, b"", txn)

    def waiting(self, until: int) -> Iterator[tuple[int, bytes]]:
        """What lost its last reference up to that Unix time: when, and the digest; the oldest first."""
        for key, _ in self._purge.scan(b"", _DUE.pack(until + 1)):
            yield _DUE.unpack(key[:4])[0], key[4:]

    def forget(self, released: int, mid: bytes, record: bool, txn: Txn) -> None:
        """Take an entry off the purge list, and with `record` the message's record as well."""
        self._purge.delete(_DUE.pack(released) + mid, txn)
        if record:
            self._messages.delete(mid, txn)

    def all(self, txn: Txn = None) -> Iterator[tuple[bytes, MessageRecord]]:
        """Every message file that is known, in order of digest; within a transaction they stay as they are."""
        for mid, data in self._messages.scan(txn=txn, hold=txn is not None):
            yield mid, MessageRecord.from_bytes(data)
