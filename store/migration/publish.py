"""Mailboxes that come from elsewhere and are not here yet: each is filled where nobody sees it, and then published.

So it has from the first moment the UIDs that it had, whatever is delivered meanwhile. Its UIDVALIDITY stays as well,
unless its name has had that or a higher one in this store (`mboxlist.former`).

While it is filled it is on the partition alone, as one that is being destroyed: what a crash leaves of it the next
start removes. To be published it goes through the list of deleted mailboxes, as one that is brought back: from then on
it is in one of the two lists, and a crash leaves it in either.
"""

import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from attrs import define, evolve, field, frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.kv import Failure, transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName
from mboxlist.table import MailboxList
from store.delivery.batch import NotCopied, refer
from store.errors import Problem, StoreError
from store.mailboxes import deletion
from store.migration.messageimport import FLAGS, figures
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.problems import problems
from store.quota import roots
from store.store import Store
from store.tables.index import CHUNK, MAX_UID, Rows
from store.tables.state import UNLISTED, MailboxState
from store.tables.uidls import is_legal

log = logging.getLogger(__name__)

PIECE = 32 * CHUNK          # records that one transaction adds
IDS = 64                    # mailbox ids that are taken at a time
MODSEQS = 1 << 62
HIGHEST = (1 << 32) - (1 << 20)         # of UIDVALIDITYs that are kept: above it there would soon be no new ones
DAY = 86400


@frozen
class Wanted:
    """What the mailbox is to be. `uidvalidity` 0: a new one; `uidnext` and `highestmodseq` are the least that it has.

    `annotations` are entry name, user and value; `subscriptions` the owner's, to be added to those that there are.
    """

    name: MailboxName
    uidvalidity: int = 0
    uidnext: int = 1
    highestmodseq: int = 1
    recent: int = 1
    created: int = 0
    special_use: str | None = None
    acl: Mapping[str, str] = field(factory=dict)
    keywords: Sequence[str] = ()
    annotations: Sequence[tuple[str, str, bytes]] = ()
    subscriptions: Sequence[str] = ()


@define(eq=False)
class Nursery:
    """Makes mailboxes in a store, on one partition."""

    store: Store
    partition: Partition
    _ids: list[MailboxId] = field(factory=list, init=False)

    @problems()
    def begin(self, wanted: Wanted) -> "Filling":
        """A mailbox to be filled. Raises StoreError MAILBOX_EXISTS, DISK_FULL."""
        if self.store.mailboxes.find(wanted.name) is not None:
            raise StoreError(Problem.MAILBOX_EXISTS)
        return Filling(self.partition, wanted, self._next_id())

    def _next_id(self) -> MailboxId:
        if not self._ids:
            mailboxes = self.store.mailboxes
            self._ids = transact(mailboxes.env, lambda txn: _take_ids(self.store, txn))
            mailboxes.env.flush()               # an id that was used must never come again
        return self._ids.pop(0)

    def publish(self, every: Sequence["Filling"]) -> list["Filling"]:
        """Put the mailboxes into the list, on disk; those that cannot be, since there is one of the name by now, or
        the owner is elsewhere: they go. Raises StoreError DISK_FULL, UNAVAILABLE: then all of them go, or are in the
        list, though perhaps not on disk."""
        store, now = self.store, int(time.time())
        self.partition.flush()
        with problems():
            entries = transact(store.mailboxes.env, lambda txn: _announce(store, every, self.partition.name, now, txn))
            for filling in every:
                filling.announced = True
            try:
                store.mailboxes.env.flush()
                self.partition.transact(lambda txn: _revive(txn, every, entries))
                self.partition.flush()
                refused = transact(store.mailboxes.env, lambda txn: _enlist(store, every, entries, txn))
            except BaseException:
                self._withdraw_if_possible(entries)
                raise
            store.mailboxes.env.flush()
            self.partition.transact(lambda txn: _open(txn, store.mailboxes, entries))
        self._withdraw([filling.mailbox for filling in refused])
        for owner in {filling.wanted.name.owner for filling in every}:
            roots.settle_renamed(store, owner)     # roots may have been made or removed meanwhile
        store.news.tell([filling.mailbox for filling in every])
        return refused

    def _withdraw_if_possible(self, entries: Sequence[MailboxEntry]) -> None:
        """What is left is on record as deleted, and is purged as any mailbox that is."""
        try:
            self._withdraw([entry.id for entry in entries])
        except (StoreError, OSError, Failure):
            log.exception("mailboxes that could not be put into the list are left among the deleted ones")
            for entry in entries:
                self.store.mailboxes.noticed(entry)

    def _withdraw(self, mailboxes: Sequence[MailboxId]) -> None:
        if not mailboxes:
            return

        def forget(txn: Txn) -> None:
            for mailbox in mailboxes:
                self.store.mailboxes.deleted.remove(mailbox, txn)
                self.store.mailboxes.annotations.forget(mailbox, txn)

        def doom(txn: WriteTxn) -> None:
            for mailbox in sorted(mailboxes):
                deletion.bury(txn, mailbox, deletion.DOOMED)

        self.partition.transact(doom)
        self.partition.flush()
        transact(self.store.mailboxes.env, forget)
        self.store.mailboxes.env.flush()
        deletion.destroy_wholly(self.partition, mailboxes)


@define(eq=False)
class Filling:
    """One mailbox: `add` its records in ascending order of UID, then `finish`; or `abandon` it."""

    partition: Partition
    wanted: Wanted
    mailbox: MailboxId
    _last: int = field(default=0, init=False)
    _begun: bool = field(default=False, init=False)     # the partition has it
    announced: bool = field(default=False, init=False)  # and so has the list, or its list of deleted ones

    def add(self, rows: Rows) -> None:
        """More records, of `Contents.translated` or `messageimport.new_rows`: those without a UID, or with one that
        does not ascend, get the next one. Raises StoreError BUSY, LIMIT, DISK_FULL, UNAVAILABLE."""
        rows = rows.copy()
        uids = rows["uid"].tolist()
        for at, uid in enumerate(uids):
            self._last = uids[at] = max(uid, self._last + 1)
        if self._last >= MAX_UID:
            raise StoreError(Problem.LIMIT, "The mailbox has no UIDs left")
        rows["uid"] = uids
        rows["modseq"] = np.clip(rows["modseq"], 1, MODSEQS)
        rows["flags"] &= np.uint16(FLAGS)
        rows["keywords"] &= np.uint64((1 << len(self.wanted.keywords)) - 1)
        for at in range(0, len(rows), PIECE):
            try:
                self.partition.transact(lambda txn, some=rows[at:at + PIECE]: self._put(txn, some))   # type: ignore[misc]
            except NotCopied:
                raise StoreError(Problem.BUSY, detail="message files went while they were being brought") from None
            self._begun = True

    def _put(self, txn: WriteTxn, rows: Rows) -> None:
        before = self._state(txn)
        txn.append(self.mailbox, rows)
        after = figures(before, rows)
        highest = max(before.highestmodseq, int(rows["modseq"].max()))
        txn.set_state(self.mailbox, None, evolve(after, uidnext=int(rows["uid"][-1]) + 1, highestmodseq=highest))
        refer(txn, self.mailbox, rows)

    def _state(self, txn: WriteTxn) -> MailboxState:
        state = txn.any_state(self.mailbox)
        if state is None and self._begun:
            raise StoreError(Problem.NO_MAILBOX)
        return state or evolve(MailboxState.new(1, txn.partition.epoch, ""), moving=True, removed=deletion.DOOMED)

    def finish(self, own: Iterable[tuple[int, str, "np.ndarray"]] = (), uidls: Mapping[int, bytes] | None = None
               ) -> None:
        """All records are there; `own` are the flags that readers have for themselves (chunk, reader, flags), `uidls`
        the unique-ids of POP3. Raises StoreError DISK_FULL, UNAVAILABLE."""
        flags = list(own)

        def work(txn: WriteTxn) -> None:
            state = self._state(txn)
            highest = min(max(state.highestmodseq, self.wanted.highestmodseq), MODSEQS)
            uidnext = min(max(state.uidnext, self.wanted.uidnext), MAX_UID)
            for number, reader, chunk in flags:
                if number * CHUNK + 1 < uidnext:
                    chunk = chunk.copy()
                    chunk["modseq"] = np.minimum(chunk["modseq"], highest)
                    chunk["flags"] &= np.uint8(FLAGS)
                    txn.partition.readers.put_chunk(self.mailbox, number, reader, chunk, txn.handle)
            there = set(txn.load(self.mailbox)["uid"].tolist()) if uidls else set()
            kept = {uidl: uid for uid, uidl in (uidls or {}).items() if uid in there and is_legal(uidl)}
            txn.partition.uidls.put(self.mailbox, {uid: uidl for uidl, uid in kept.items()}, txn.handle)
            txn.set_state(self.mailbox, None, evolve(
                state, uidnext=uidnext, highestmodseq=highest, changed=highest, log_since=highest,
                recent=min(self.wanted.recent, uidnext), keywords=tuple(self.wanted.keywords)))

        self.partition.transact(work)

    def abandon(self) -> None:
        """It will not be published, unless that has begun: then `Nursery.publish` has seen to it."""
        if not self.announced:
            deletion.destroy_wholly(self.partition, [self.mailbox])


def _take_ids(store: Store, txn: Txn) -> list[MailboxId]:
    last, validity = store.mailboxes.last_identity(txn)
    store.mailboxes.skip_identities(MailboxId(last + IDS), validity, txn)
    taken = [MailboxId(last + 1 + at) for at in range(IDS)]
    store.mailboxes.pending.note(taken, txn, in_advance=DAY)
    return taken


def _announce(store: Store, every: Sequence[Filling], partition: str, now: int, txn: Txn) -> list[MailboxEntry]:
    """Their rows, in the list of deleted mailboxes so far."""
    mailboxes, entries = store.mailboxes, []
    for filling in every:
        wanted = filling.wanted
        validity = wanted.uidvalidity
        if validity <= mailboxes.former.find(str(wanted.name), txn) or validity > HIGHEST:
            validity = max(now, mailboxes.last_identity(txn)[1] + 1)
        mailboxes.skip_identities(MailboxId(0), validity, txn)
        entry = MailboxEntry(filling.mailbox, wanted.name, partition, validity, wanted.created or now,
                             wanted.special_use, dict(wanted.acl))
        mailboxes.deleted.add(entry, now + DAY, txn)        # no purge is due
        for name, user, value in wanted.annotations:
            with contextlib.suppress(ValueError):       # what nobody could have set
                mailboxes.annotations.set(entry.id, name, value, txn, user)
        entries.append(entry)
    return entries


def _revive(txn: WriteTxn, every: Sequence[Filling], entries: Sequence[MailboxEntry]) -> None:
    for entry in sorted(entries, key=lambda entry: entry.id):
        state = txn.any_state(entry.id)
        if state is None:
            raise StoreError(Problem.NO_MAILBOX)
        root = roots.root_of(entry.name, txn.partition.quotas.roots_below(entry.name.owner, txn.handle))
        txn.charge_root(root, state.octets, state.messages, enforce=False)
        txn.set_state(entry.id, None, evolve(state, uidvalidity=entry.uidvalidity, removed=0, moving=UNLISTED,
                                             quota_root=root, epoch=txn.partition.epoch))


def _open(txn: WriteTxn, listed: MailboxList, entries: Sequence[MailboxEntry]) -> None:
    for mailbox in sorted(entry.id for entry in entries):
        txn.make_writable(mailbox, listed)


def _enlist(store: Store, every: Sequence[Filling], entries: Sequence[MailboxEntry], txn: Txn) -> list[Filling]:
    mailboxes, refused = store.mailboxes, []
    for filling, entry in zip(every, entries, strict=True):
        try:
            if mailboxes.find(entry.name, txn) is not None:
                raise StoreError(Problem.MAILBOX_EXISTS)
            mailboxes.write(entry, txn)
        except StoreError:
            refused.append(filling)
            continue
        mailboxes.deleted.remove(entry.id, txn)
        for name in filling.wanted.subscriptions:
            mailboxes.subscriptions.add(entry.name.owner, name, txn)
    return refused
