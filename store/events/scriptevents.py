"""Events of IMAP on which scripts run (RFC 6785): which messages came to a mailbox with a script, or have other flags.

`outbox.db`: b"a", mailbox id, place (`OutboxTable.new_place`) -> JSON: the `cause`, the `user` whose command it was,
the `flags` that are other than before, and the `uids` (ranges, hexadecimal) for which the script has not run yet. The
transaction of the command writes it, so that the script runs for all that was acknowledged, whatever happens then. The
transaction that does what the script wants for a message takes its UID away, so it is done once.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, cast

import numpy as np
from attrs import define, frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId
from store.events.eventvalues import to_json
from store.events.outboxtable import OutboxTable
from store.tables.vanished import from_ranges, to_ranges

APPEND, COPY, FLAG = "APPEND", "COPY", "FLAG"       # RFC 6785 §4.3
TOGETHER = 1000             # messages of a row: it is written again for each of them
_STATE = b"a"


@frozen(eq=False)
class ScriptEvent:
    """A row. `uids` are ascending."""

    key: bytes
    cause: str
    user: str
    flags: tuple[str, ...]
    uids: NDArray[np.uint32]


@define(eq=False)
class ScriptEvents:
    """These rows of an outbox."""

    outbox: OutboxTable

    @property
    def _table(self) -> Table:
        return self.outbox.table

    def add(self, mailbox: MailboxId, cause: str, user: str, uids: NDArray[np.uint32], txn: Txn,
            flags: Sequence[str] = ()) -> None:
        """Have the mailbox's script run for these UIDs (ascending)."""
        for at in range(0, len(uids), TOGETHER):
            row = {"cause": cause, "user": user, "flags": list(flags), "uids": to_ranges(uids[at:at + TOGETHER]).hex()}
            self._table.put(_prefix(mailbox) + self.outbox.new_place(), to_json(row).encode(), txn)

    def mailboxes(self) -> list[MailboxId]:
        """Those in which anything has happened. Nothing stays locked."""
        found, start = list[MailboxId](), _STATE
        while True:
            with closing(cast("Any", self._table.scan(start, bytes((_STATE[0] + 1,))))) as rows:
                row = next(rows, None)
            if row is None:
                return found
            found.append(MailboxId(int.from_bytes(row[0][1:5], "big")))
            start = _prefix(found[-1]) + b"\xff" * 17

    def of(self, mailbox: MailboxId, most: int) -> list[ScriptEvent]:
        """The first events of a mailbox."""
        return [found for key, data in self._rows(mailbox, most) if (found := _event(key, data)) is not None]

    def take(self, event: ScriptEvent, uids: Sequence[int], txn: Txn) -> bool:
        """The script has run for these UIDs; whether all of them were waiting for it."""
        data = self._table.get_to_change(event.key, txn)
        now = None if data is None else _event(event.key, data)
        if data is None or now is None:
            return False
        left = np.setdiff1d(now.uids, np.asarray(uids, np.uint32))
        if len(left):
            self._table.put(event.key, to_json({**json.loads(data), "uids": to_ranges(left).hex()}).encode(), txn)
        else:
            self._table.delete(event.key, txn)
        return len(left) + len(uids) == len(now.uids)

    def drop(self, mailbox: MailboxId, txn: Txn, *, first: int = 0, most: int = TOGETHER) -> int:
        """Forget so many events of a mailbox at most, but not the `first` ones, nor what cannot be read; how many."""
        keys = [key for key, _ in self._rows(mailbox, first + most)][first:]
        return sum(self._table.delete(key, txn) for key in keys)

    def _rows(self, mailbox: MailboxId, most: int) -> list[tuple[bytes, bytes]]:
        prefix = _prefix(mailbox)
        with closing(cast("Any", self._table.scan(prefix, prefix + b"\xff" * 17))) as rows:
            return list(islice(cast("Iterator[tuple[bytes, bytes]]", rows), most))


def _prefix(mailbox: MailboxId) -> bytes:
    return _STATE + mailbox.to_bytes(4, "big")


def _event(key: bytes, data: bytes) -> ScriptEvent | None:
    """The event of a row; None if it cannot be read."""
    try:
        row = json.loads(data)
        return ScriptEvent(key, str(row["cause"]), str(row["user"]), tuple(map(str, row["flags"])),
                           from_ranges(bytes.fromhex(row["uids"])))
    except (ValueError, KeyError, TypeError):
        return None
