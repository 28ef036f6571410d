"""What has begun and not come to its end: `pending.db`.

Mailboxes on which something has begun that concerns the list and a partition: id -> since when. A row is written in the
transaction that takes the id or changes the mailbox's row in the list, or before many are charged to another quota
root: always before anything happens on a partition, so that a start after a crash need look at these mailboxes alone.
It goes when both agree again.

Trees of mailboxes that are being renamed, some in each transaction: before the rows of mailboxes there are two for the
owner, which tree it is and how many have their new names. They go in the transaction that renames the last ones. What
is on record when the store is opened was cut off, and is undone. While a user gets another name, all mailboxes of the
old and of the new one are on record in the same way: that is not undone, but goes on (`store.users.renaming`).
"""

import json
import struct
import time
from collections.abc import Iterable, Iterator

from attrs import define, field, frozen

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId

_SINCE = struct.Struct(">I")
_COMPLETE = bytes(4)                # the key of a row that is there when all that is pending is on record
_DONE = struct.Struct(">I")
_RENAMES, _RENAMES_END = bytes(4) + b"\x01", bytes(4) + b"\x02"
_COUNT = b"\0"                      # ends the key of how many have their new names


@frozen
class Renaming:
    """A tree that is being renamed: the ids, in the order in which they get their new names, and how many have got
    them. The names are paths, of the owner's mailboxes. `user`: the owner gets, or is to become, that other user; no
    tree is on record then."""

    owner: str
    old: str
    new: str
    mailboxes: tuple[int, ...] = ()
    done: int = 0
    user: str = ""


@define(eq=False)
class Renames:
    """The trees that are being renamed. `left`: owners of those that this process could not rename, nor undo yet;
    housekeeping tries again."""

    _table: Table
    left: list[str] = field(factory=list, init=False)

    def put(self, renaming: Renaming, txn: Txn) -> None:
        """Put it on record."""
        values = {"old": renaming.old, "new": renaming.new, "mailboxes": renaming.mailboxes, "user": renaming.user}
        self._table.put(_tree_key(renaming.owner), json.dumps(values, separators=(",", ":")).encode(), txn)
        self.note_done(renaming.owner, renaming.done, txn)

    def note_done(self, owner: str, done: int, txn: Txn) -> None:
        """So many have their new names now."""
        self._table.put(_tree_key(owner) + _COUNT, _DONE.pack(done), txn)

    def is_renaming(self, owner: str, txn: Txn = None) -> bool:
        """Whether one of the owner's trees is being renamed; in a transaction that stays so to its end."""
        key = _tree_key(owner) + _COUNT
        return (self._table.get(key) if txn is None else self._table.get_to_change(key, txn)) is not None

    def find(self, owner: str) -> Renaming | None:
        """That of an owner."""
        return next((each for each in self.all() if each.owner == owner), None)

    def forget(self, owner: str, txn: Txn) -> None:
        """It has come to its end, or is undone."""
        self._table.delete(_tree_key(owner), txn)
        self._table.delete(_tree_key(owner) + _COUNT, txn)

    def all(self) -> Iterator[Renaming]:
        """Those on record."""
        rows = dict(self._table.scan(_RENAMES, _RENAMES_END))
        for key, data in rows.items():
            if not key.endswith(_COUNT):
                values = json.loads(data)
                yield Renaming(key[len(_RENAMES):].decode(), values["old"], values["new"], tuple(values["mailboxes"]),
                               _DONE.unpack(rows[key + _COUNT])[0], values.get("user", ""))


def _tree_key(owner: str) -> bytes:
    return _RENAMES + owner.encode()


@define(eq=False)
class Pending:
    """The table, but for the trees that are being renamed."""

    _table: Table

    def note(self, mailboxes: Iterable[MailboxId], txn: Txn, *, in_advance: int = 0) -> None:
        """Something begins, or may begin so many seconds from now at the latest."""
        now = _SINCE.pack(int(time.time()) + in_advance)
        for mailbox in sorted(set(mailboxes)):
            self._table.put(mailbox.to_bytes(4, "big"), now, txn)

    def all(self, until: int = (1 << 32) - 1) -> Iterator[tuple[MailboxId, int]]:
        """Those on record since that Unix time or longer, with when."""
        for key, data in self._table.scan(b"\0\0\0\1"):
            since = int(_SINCE.unpack(data)[0])
            if since <= until:
                yield MailboxId(int.from_bytes(key, "big")), since

    def forget(self, mailbox: MailboxId, since: int, txn: Txn) -> None:
        """All agree about it, unless something has begun again since."""
        key = mailbox.to_bytes(4, "big")
        if self._table.get_to_change(key, txn) == _SINCE.pack(since):
            self._table.delete(key, txn)

    def is_complete(self) -> bool:
        """Whether all that is pending is on record: not in a store that an earlier version has left, or a new one."""
        return self._table.get(_COMPLETE) is not None

    def complete(self, txn: Txn) -> None:
        """From now on it is."""
        self._table.put(_COMPLETE, b"", txn)
