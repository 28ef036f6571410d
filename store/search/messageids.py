"""Messages by their Message-ID (RFC 5322 §3.6.4), in every mailbox of the store, and among what was expunged."""

from collections.abc import Callable, Iterator

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.errors import Problem, StoreError
from store.message import envelopes
from store.store import Store
from store.tables.index import Rows

SLICE = 500                 # messages that are looked at together

Found = Iterator[tuple[MailboxEntry, NDArray[np.uint32]]]       # a mailbox, and UIDs in it


@define
class ByMessageId:
    """Finds the messages with these Message-IDs, which are written without < and >. A message is looked at once,
    however many mailboxes of a partition have it. What cannot be read is handed to `refuse`; the others go on."""

    ids: frozenset[bytes]
    refuse: Callable[[MailboxEntry, StoreError], None]
    _known: dict[tuple[str, int], bool] = field(factory=dict, init=False)

    def everywhere(self, store: Store, until: int | None, tell: Callable[[str, int, int], None]) -> Found:
        """The mailboxes that have one that came until that Unix time. `tell` hears of the mailbox, how many are done,
        and of how many."""
        entries = sorted(store.mailboxes.all(), key=lambda entry: entry.name)
        for done, entry in enumerate(entries):
            tell(str(entry.name), done, len(entries))
            try:
                rows = store.open_mailbox(entry).rows
                uids = self._uids(store, entry, rows if until is None else rows[rows["saved"] <= until])
            except StoreError as error:
                if error.problem is not Problem.NO_MAILBOX:         # it was deleted just now
                    self.refuse(entry, error)
                continue
            if len(uids):
                yield entry, uids

    def expunged(self, store: Store, since: int) -> Found:
        """The mailboxes in which one was expunged since that Unix time, and the UIDs that it had."""
        for partition in list(store.partitions.values()):
            by_mailbox: dict[MailboxId, list[NDArray[np.uint32]]] = {}
            for item in partition.removed.all():
                entry = store.mailboxes.find_id(item.mailbox) if item.when >= since else None
                if entry is None:
                    continue
                try:
                    by_mailbox.setdefault(item.mailbox, []).append(self._uids(store, entry, item.rows))
                except StoreError as error:
                    self.refuse(entry, error)
            for mailbox, uids in by_mailbox.items():
                entry = store.mailboxes.find_id(mailbox)
                if entry is not None and any(map(len, uids)):
                    yield entry, np.concatenate(uids)

    def _uids(self, store: Store, entry: MailboxEntry, rows: Rows) -> NDArray[np.uint32]:
        """Those of the records. Raises StoreError CORRUPT."""
        keys = [(entry.partition, serial) for serial in rows["serial"].tolist()]
        new = np.array([at for at, key in enumerate(keys) if key not in self._known], np.intp)
        for begin in range(0, len(new), SLICE):
            some = new[begin:begin + SLICE]
            for at, cached in zip(some.tolist(), store.cached(entry, rows[some]), strict=True):
                found = envelopes.string(envelopes.split(cached.envelope)[envelopes.MESSAGE_ID]) or b""
                self._known[keys[at]] = found.strip().strip(b"<>") in self.ids
        return np.asarray(rows["uid"][np.array([self._known[key] for key in keys], np.bool_)])
