"""Pictures of the mailboxes on a partition, as their readers see them, and how they are brought up to date."""

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

import numpy as np

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.kv import Txn, transact
from store.errors import StoreError
from store.index import CHUNK, Rows, chunk_key, chunk_number, join, joined, take
from store.mailbox import Mailbox
from store.readers import overlay

if TYPE_CHECKING:
    from store.partition import Partition

REMEMBERED = 32             # changes of one mailbox that a process remembers
MAILBOXES_REMEMBERED = 5000


class Pictures:
    """Reads mailboxes. Changes that this process makes to a mailbox that it has read are remembered (`remember`)."""

    def __init__(self, partition: "Partition") -> None:
        self._partition = partition
        self._history: OrderedDict[int, deque[tuple[int, int, frozenset[int] | None]]] = OrderedDict()

    def remember(self, mailbox: MailboxId, before: int, chunks: frozenset[int] | None) -> None:
        """A transaction changed these chunks (None: many) when the mailbox's HIGHESTMODSEQ was `before`."""
        history = self._history.get(mailbox)
        if history is not None:
            history.append((before, before + 1, chunks))

    def read(self, entry: MailboxEntry, reader: str = "") -> Mailbox:
        """A picture of the mailbox, with the reader's own flags. Raises StoreError NO_MAILBOX, CORRUPT."""
        if entry.id not in self._history:           # whoever has opened a mailbox asks for its changes
            self._history[entry.id] = deque(maxlen=REMEMBERED)
            if len(self._history) > MAILBOXES_REMEMBERED:
                self._history.popitem(last=False)

        def work(txn: Txn) -> Mailbox:
            state = self._partition.state(entry.id, txn)       # while this row is locked the chunks stand still
            return Mailbox(entry, state, self._all_rows(entry.id, reader, txn), reader)
        return transact(self._partition.env, work)

    def refresh(self, mailbox: Mailbox) -> Mailbox:
        """A picture of the mailbox as it is now; the same object when nothing changed."""
        entry, old, reader = mailbox.entry, mailbox.state, mailbox.reader
        if self._partition.state(entry.id).highestmodseq == old.highestmodseq:
            return mailbox

        def work(txn: Txn) -> Mailbox:
            state = self._partition.state(entry.id, txn)
            if state.changed <= old.highestmodseq:          # only arrivals
                arrived = join(self._chunks(entry.id, chunk_number(old.uidnext), txn))
                new = self.as_seen(entry.id, take(arrived, arrived["uid"] >= old.uidnext), reader, txn)
                return Mailbox(entry, state, _read_only(joined(mailbox.rows, new)), reader)
            numbers = self._changed_since(entry.id, old.highestmodseq, state.highestmodseq)
            if numbers is None:
                return Mailbox(entry, state, self._all_rows(entry.id, reader, txn), reader)
            return Mailbox(entry, state, self._patched(mailbox, numbers, txn), reader)
        return transact(self._partition.env, work)

    def _all_rows(self, mailbox: MailboxId, reader: str, txn: Txn) -> Rows:
        return self.as_seen(mailbox, join(self._chunks(mailbox, 0, txn)), reader, txn)

    def as_seen(self, mailbox: MailboxId, rows: Rows, reader: str, txn: Txn) -> Rows:
        """The records with the reader's own flags in the place of the owner's."""
        private = self._partition.settings.private_bits
        if not reader or not private or not len(rows):
            return rows
        numbers: list[int] = np.unique((rows["uid"] - 1) // CHUNK).tolist()
        try:
            own = self._partition.readers.of(mailbox, reader, numbers, txn)
        except StoreError:
            self._partition.found_damage(mailbox)
            raise
        return _read_only(overlay(rows, own, private))

    def _changed_since(self, mailbox: int, since: int, until: int) -> set[int] | None:
        """The chunks that changed between two MODSEQs, if this process made all the changes and remembers them."""
        numbers: set[int] = set()
        for before, after, chunks in reversed(self._history.get(mailbox, ())):
            if after != until or chunks is None:
                return None
            numbers |= chunks
            until = before
            if until == since:
                return numbers
        return None

    def _patched(self, mailbox: Mailbox, numbers: set[int], txn: Txn) -> Rows:
        pieces, done = [], 0
        uids = np.ascontiguousarray(mailbox.rows["uid"])
        for number in sorted(numbers):
            begin, end = np.searchsorted(uids, (number * CHUNK + 1, (number + 1) * CHUNK + 1))
            pieces.append(mailbox.rows[done:begin])
            value = self._partition.index.get(chunk_key(mailbox.entry.id, number), txn)
            if value is not None:
                changed = join([self._partition.whole(mailbox.entry.id, value)])
                pieces.append(self.as_seen(mailbox.entry.id, changed, mailbox.reader, txn))
            done = max(done, int(end))
        return _read_only(joined(*pieces, mailbox.rows[done:]))

    def _chunks(self, mailbox: MailboxId, first: int, txn: Txn) -> list[bytes]:
        start, end = chunk_key(mailbox, first), chunk_key(MailboxId(mailbox + 1), 0)
        values = [value for _, value in self._partition.index.scan(start, end, txn)]
        return [self._partition.whole(mailbox, value) for value in values]


def _read_only(rows: Rows) -> Rows:
    rows.flags.writeable = False
    return rows
