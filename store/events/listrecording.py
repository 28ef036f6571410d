"""Mailboxes that are made, renamed and deleted, and subscriptions: events, in the transaction of the list that does it.

The list takes the row of a mailbox away and writes another when it is renamed; so a row that a transaction has taken
away may come again in it under another name, and then what was written of the deletion goes.
"""

from attrs import define, field

from mboxlist.engine.btree import Txn
from mboxlist.entry import MailboxEntry
from store.events.eventvalues import CREATE, DELETE, RENAME, Event, of_mailbox, of_subscription
from store.events.outboxtable import OutboxTable
from store.events.recording import Recorder

MOST = 10_000               # rows taken away, of transactions that may be under way, that are remembered


@define(eq=False)
class ListRecording:
    """For the list of an open store."""

    recorder: Recorder
    outbox: OutboxTable
    _taken: dict[tuple[int, int], tuple[MailboxEntry, list[bytes]]] = field(factory=dict, init=False)

    def changed(self, old: MailboxEntry | None, new: MailboxEntry | None, txn: Txn) -> None:
        """The row `old` goes, `new` comes; with one id it is the same mailbox."""
        if not self.recorder.receivers.of_the_list or old is not None and new is not None and old.id == new.id:
            return
        if old is not None:
            keys = self._write(of_mailbox(DELETE, self.recorder.server, old), old, txn)
            while len(self._taken) >= MOST:
                self._taken.pop(next(iter(self._taken)), None)
            self._taken[txn.id(), old.id] = old, keys
        if new is not None:
            former, keys = self._taken.pop((txn.id(), new.id), (None, []))
            for key in keys:
                self.outbox.table.delete(key, txn)
            event = of_mailbox(CREATE if former is None else RENAME, self.recorder.server, new, former)
            if former is None or former.name != new.name:
                self._write(event, new, txn)

    def subscribed(self, user: str, name: str, subscribed: bool, txn: Txn) -> None:  # noqa: FBT001
        """A user has subscribed to that name, or is subscribed no more."""
        if self.recorder.receivers.of_the_list:
            self._write(of_subscription(user, name, self.recorder.server, subscribed=subscribed), None, txn)

    def _write(self, event: Event, entry: MailboxEntry | None, txn: Txn) -> list[bytes]:
        return self.recorder.write(self.outbox, event, 0 if entry is None else entry.id, txn,
                                   self.recorder.receivers.of_the_list)

