"""Deleted mailboxes that can still be restored. `deleted.db`: mailbox id -> when, and the row as it was."""

import struct
from collections.abc import Iterator

from attrs import define

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName

_HEAD = struct.Struct("<IH")        # Unix time; octets of the canonical name, which follows, and then the row


@define(eq=False)
class DeletedMailboxes:
    """The table."""

    _table: Table

    def add(self, entry: MailboxEntry, when: int, txn: Txn) -> None:
        """The mailbox was deleted at that Unix time."""
        name = str(entry.name).encode()
        self._table.put(_key(entry.id), _HEAD.pack(when, len(name)) + name + entry.to_bytes(), txn)

    def find(self, mailbox: MailboxId, txn: Txn = None) -> tuple[int, MailboxEntry] | None:
        """When the mailbox of that id was deleted, and what it was."""
        data = self._table.get(_key(mailbox), txn)
        return _decode(data) if data is not None else None

    def remove(self, mailbox: MailboxId, txn: Txn) -> bool:
        """It is back, or gone for good; whether it was on record."""
        return self._table.delete(_key(mailbox), txn)

    def all(self, txn: Txn = None) -> Iterator[tuple[int, MailboxEntry]]:
        """Each with the Unix time at which it was deleted, in order of id; within a transaction they stay so to its
        end."""
        for _, data in self._table.scan(txn=txn, hold=txn is not None):
            yield _decode(data)


def _key(mailbox: MailboxId) -> bytes:
    return mailbox.to_bytes(4, "big")


def _decode(data: bytes) -> tuple[int, MailboxEntry]:
    when, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    return when, MailboxEntry.from_bytes(MailboxName.parse(data[_HEAD.size:end].decode()), data[end:])
