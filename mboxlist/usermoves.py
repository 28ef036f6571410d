"""Users on their way from one back end to another. `moves.db`: user -> what this one has done of the move.

The phases, and who says what, are in `store.usermove`. A row is written in the transaction that changes what it
tells of, so that after a crash it says how far the move had come.
"""

import json
from collections.abc import Iterator
from enum import Enum

from attrs import define, frozen

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName


class Phase(Enum):
    """How far a move has come, as the back end sees it that has the row."""

    COMING = "coming"           # here is part of a copy, which nobody sees; a crash, or another try, removes it
    READY = "ready"             # here is a whole copy, on disk, which nobody sees until it is activated
    HERE = "here"               # the user is here, and the other back end has not said yet that it has removed its copy
    GONE = "gone"               # the user is on the other back end, or nowhere yet; here is all that there was
    LEFT = "left"               # the user is there, and here is nothing any more


@frozen
class Planned:
    """A mailbox that will be in the list when the move is activated; `removed` is when it was deleted, or 0."""

    entry: MailboxEntry
    removed: int


@frozen
class Move:
    """One user's. `id` is the move's, `host` the other back end, `partition` where the copy is here.

    `mailboxes` are the ids that the copy has here, whether or not they are `planned`.
    """

    user: str
    id: str
    phase: Phase
    host: str
    partition: str = ""
    mailboxes: tuple[int, ...] = ()
    planned: tuple[Planned, ...] = ()
    subscriptions: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The stored form; the user is the key."""
        rows = [[str(each.entry.name), each.entry.to_bytes().decode(), each.removed] for each in self.planned]
        return json.dumps({
            "id": self.id, "phase": self.phase.value, "host": self.host, "partition": self.partition,
            "mailboxes": self.mailboxes, "planned": rows, "subscriptions": self.subscriptions,
        }, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, user: str, data: bytes) -> "Move":
        """From the stored form."""
        values = json.loads(data)
        planned = tuple(Planned(MailboxEntry.from_bytes(MailboxName.parse(name), row.encode()), removed)
                        for name, row, removed in values["planned"])
        return cls(user, values["id"], Phase(values["phase"]), values["host"], values["partition"],
                   tuple(values["mailboxes"]), planned, tuple(values["subscriptions"]))


@define(eq=False)
class Moves:
    """The table."""

    _table: Table

    def find(self, user: str, txn: Txn = None) -> Move | None:
        """That of a user."""
        data = self._table.get(user.encode(), txn)
        return None if data is None else Move.from_bytes(user, data)

    def find_to_change(self, user: str, txn: Txn) -> Move | None:
        """That of a user, locked to the end of the transaction."""
        data = self._table.get_to_change(user.encode(), txn)
        return None if data is None else Move.from_bytes(user, data)

    def put(self, move: Move, txn: Txn) -> None:
        """Set it."""
        self._table.put(move.user.encode(), move.to_bytes(), txn)

    def forget(self, user: str, txn: Txn) -> bool:
        """It is done, or given up; whether there was one."""
        return self._table.delete(user.encode(), txn)

    def all(self, txn: Txn = None) -> Iterator[Move]:
        """Everybody's."""
        for key, data in self._table.scan(txn=txn):
            yield Move.from_bytes(key.decode(), data)

    def mailboxes(self, *phases: Phase) -> set[MailboxId]:
        """The ids of all mailboxes that are in copies in these phases."""
        return {MailboxId(mailbox) for move in self.all() if move.phase in phases for mailbox in move.mailboxes}
