"""The loader of a partition that is in use.

A mailbox that is there is compared with what it is to be, and put right (`livecorrection`). One that is not is filled
where nobody sees it, and then published. So it has from the first moment the UIDs that it had, whatever is delivered
meanwhile. Its UIDVALIDITY stays as well, unless its name has had that or a higher one in this store
(`mboxlist.former`).

While it is filled it is on the partition alone, as one that is being destroyed: what a crash leaves of it the next
start removes. To be published it goes through the list of deleted mailboxes, as one that is undeleted: from then on
it is in one of the two lists, and a crash leaves it in either.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from attrs import define, evolve, field

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import Failure, transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.table import MailboxList
from store.delivery.batch import NotCopied, refer
from store.errors import Problem, StoreError
from store.mailboxes import deletion
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.problems import problems
from store.quota import roots
from store.rebuild.desired import MODSEQS, NEW, DesiredMailbox
from store.rebuild.livecorrection import LiveCorrection
from store.rebuild.loader import Loader
from store.rebuild.outcome import Outcome
from store.rebuild.recount import recount
from store.rebuild.repair import ALL_FLAGS
from store.store import Store
from store.tables.index import CHUNK, MAX_UID, Rows
from store.tables.state import UNLISTED, MailboxState, gained
from store.tables.uidls import is_legal
from store.userarea import writing

log = logging.getLogger(__name__)

ROWS_AT_A_TIME = 32 * CHUNK # records that one transaction adds
IDS_AT_A_TIME = 64          # mailbox ids that are taken at a time
HIGHEST_UIDVALIDITY = (1 << 32) - (1 << 20)     # that is kept: above it there would soon be no new ones
DAY_SECONDS = 86400


@define(eq=False)
class LiveLoader(Loader):
    """Puts mailboxes into one partition of a store that is in use: see above. What was put right is in `outcome`;
    without `change` nothing is, and `outcome` says what would be. New mailboxes that could not be put into the list,
    since there is one of the name by now, or the owner is elsewhere, are `refused`, and leave nothing.

    A batch of new mailboxes is published together, or not at all. Raises StoreError BUSY, LIMIT, too.
    """

    store: Store
    outcome: Outcome = field(factory=Outcome)
    change: bool = True
    refused: list[DesiredMailbox] = field(factory=list, init=False)
    _ids: list[MailboxId] = field(factory=list, init=False)

    @problems()
    def put(self, batch: Sequence[DesiredMailbox]) -> None:
        """See Loader."""
        made: list[NewMailbox] = []
        try:
            for desired in batch:
                if desired.entry.id != NEW:
                    LiveCorrection(self.store, self.partition, desired, self.outcome, self.change).run()
                elif self.store.mailboxes.find(desired.entry.name) is not None:
                    self.refused.append(desired)
                else:
                    made.append(NewMailbox(self.partition, desired, self._next_id()))
                    made[-1].fill()
            if made:
                self.refused += self._publish(made)
        except BaseException:
            for each in made:
                each.abandon()
            raise

    def finish(self, *, whole: bool) -> None:
        """All mailboxes have been put right. If they were the `whole` partition, everything is counted, and a missing
        `store.idx` is written."""
        store, partition = self.store, self.partition
        partition.flush()
        if whole:
            self.outcome.corrections += recount(store, partition)
            for mailbox, _ in list(partition.all_states()):
                found = store.known(mailbox)
                if found is not None and not writing.right_place(partition, *found).exists():
                    partition.unwritten.changed.add(mailbox)
        writing.write_round(store, partition, hurry=True)

    def _next_id(self) -> MailboxId:
        if not self._ids:
            mailboxes = self.store.mailboxes
            self._ids = transact(mailboxes.env, lambda txn: _take_ids(self.store, txn))
            mailboxes.env.flush()               # an id that was used must never come again
        return self._ids.pop(0)

    def _publish(self, every: "list[NewMailbox]") -> list[DesiredMailbox]:
        """Put them into the list, on disk; those that cannot be."""
        store, now = self.store, int(time.time())
        self.partition.flush()
        entries = transact(store.mailboxes.env, lambda txn: _announce(store, every, self.partition.name, now, txn))
        for made in every:
            made.announced = True
        try:
            store.mailboxes.env.flush()
            self.partition.transact(lambda txn: _revive(txn, entries))
            self.partition.flush()
            refused = transact(store.mailboxes.env, lambda txn: _enlist(store, every, entries, txn))
        except BaseException:
            self._withdraw_if_possible(entries)
            raise
        store.mailboxes.env.flush()
        self.partition.transact(lambda txn: _open(txn, store.mailboxes, entries))
        self._withdraw([made.mailbox for made in refused])
        for owner in {entry.name.owner for entry in entries}:
            roots.recharge_renamed(store, owner)     # roots may have been made or removed meanwhile
        store.news.tell([made.mailbox for made in every])
        return [made.desired for made in refused]

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
class NewMailbox:
    """One mailbox: `fill` it, and have it published; or `abandon` it."""

    partition: Partition
    desired: DesiredMailbox
    mailbox: MailboxId
    _begun: bool = field(default=False, init=False)     # the partition has it
    announced: bool = field(default=False, init=False)  # and so has the list, or its list of deleted ones

    def fill(self) -> None:
        """Records without a UID, or with one that does not ascend, get the next one. Raises StoreError BUSY, LIMIT,
        DISK_FULL, UNAVAILABLE."""
        assert self.desired.rows is not None
        rows = self.desired.rows.copy()
        uids, last = rows["uid"].tolist(), 0
        for at, uid in enumerate(uids):
            last = uids[at] = max(uid, last + 1)
        if last >= MAX_UID:
            raise StoreError(Problem.LIMIT, "The mailbox has no UIDs left")
        rows["uid"] = uids
        rows["modseq"] = np.clip(rows["modseq"], 1, MODSEQS)
        rows["flags"] &= ALL_FLAGS
        rows["keywords"] &= np.uint64((1 << len(self.desired.state.keywords)) - 1)
        for at in range(0, len(rows), ROWS_AT_A_TIME):
            try:
                self.partition.transact(partial(self._put, rows[at:at + ROWS_AT_A_TIME]))
            except NotCopied:
                raise StoreError(Problem.BUSY, detail="message files went while they were being imported") from None
            self._begun = True
        self._finish()

    def _put(self, rows: Rows, txn: WriteTxn) -> None:
        before = self._state(txn)
        txn.append(self.mailbox, rows)
        after = gained(before, rows)
        highest = max(before.highestmodseq, int(rows["modseq"].max()))
        txn.set_state(self.mailbox, None, evolve(after, uidnext=int(rows["uid"][-1]) + 1, highestmodseq=highest))
        refer(txn, self.mailbox, rows)

    def _state(self, txn: WriteTxn) -> MailboxState:
        state = txn.any_state(self.mailbox)
        if state is None and self._begun:
            raise StoreError(Problem.NO_MAILBOX)
        return state or evolve(MailboxState.new(1, txn.partition.epoch, ""), moving=True, removed=deletion.DOOMED)

    def _finish(self) -> None:
        """All records are there."""
        desired, wanted = self.desired, self.desired.state

        def work(txn: WriteTxn) -> None:
            state = self._state(txn)
            highest = min(max(state.highestmodseq, wanted.highestmodseq), MODSEQS)
            uidnext = min(max(state.uidnext, wanted.uidnext), MAX_UID)
            for number, reader, chunk in desired.own or ():
                if number * CHUNK + 1 < uidnext:
                    chunk = chunk.copy()
                    chunk["modseq"] = np.minimum(chunk["modseq"], highest)
                    chunk["flags"] &= np.uint8(ALL_FLAGS)
                    txn.partition.readers.put_chunk(self.mailbox, number, reader, chunk, txn.handle)
            there = set(txn.load(self.mailbox)["uid"].tolist()) if desired.uidls else set()
            kept = {uidl: uid for uid, uidl in (desired.uidls or {}).items() if uid in there and is_legal(uidl)}
            txn.partition.uidls.put(self.mailbox, {uid: uidl for uidl, uid in kept.items()}, txn.handle)
            txn.set_state(self.mailbox, None, evolve(
                state, uidnext=uidnext, highestmodseq=highest, changed=highest, log_since=highest,
                recent=min(wanted.recent, uidnext), keywords=wanted.keywords))

        self.partition.transact(work)

    def abandon(self) -> None:
        """It will not be published, unless that has begun: then `LiveLoader` has seen to it."""
        if not self.announced:
            deletion.destroy_wholly(self.partition, [self.mailbox])


def _take_ids(store: Store, txn: Txn) -> list[MailboxId]:
    last, validity = store.mailboxes.last_identity(txn)
    store.mailboxes.skip_identities(MailboxId(last + IDS_AT_A_TIME), validity, txn)
    taken = [MailboxId(last + 1 + at) for at in range(IDS_AT_A_TIME)]
    store.mailboxes.pending.note(taken, txn, in_advance=DAY_SECONDS)
    return taken


def _announce(store: Store, every: Sequence[NewMailbox], partition: str, now: int, txn: Txn) -> list[MailboxEntry]:
    """Their rows, in the list of deleted mailboxes so far."""
    mailboxes, entries = store.mailboxes, []
    for made in every:
        wanted = made.desired.entry
        validity = wanted.uidvalidity
        if validity <= mailboxes.former.find(str(wanted.name), txn) or validity > HIGHEST_UIDVALIDITY:
            validity = max(now, mailboxes.last_identity(txn)[1] + 1)
        mailboxes.skip_identities(MailboxId(0), validity, txn)
        entry = evolve(wanted, id=made.mailbox, partition=partition, uidvalidity=validity)
        mailboxes.deleted.add(entry, now + DAY_SECONDS, txn)        # no purge is due
        for name, user, value in made.desired.annotations:
            with contextlib.suppress(ValueError):       # what nobody could have set
                mailboxes.annotations.set(entry.id, name, value, txn, user)
        entries.append(entry)
    return entries


def _revive(txn: WriteTxn, entries: Sequence[MailboxEntry]) -> None:
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


def _enlist(store: Store, every: Sequence[NewMailbox], entries: Sequence[MailboxEntry], txn: Txn) -> list[NewMailbox]:
    mailboxes, refused = store.mailboxes, []
    for made, entry in zip(every, entries, strict=True):
        try:
            if mailboxes.find(entry.name, txn) is not None:
                raise StoreError(Problem.MAILBOX_EXISTS)
            mailboxes.write(entry, txn)
        except StoreError:
            refused.append(made)
            continue
        mailboxes.deleted.remove(entry.id, txn)
        for name in made.desired.subscriptions:
            mailboxes.subscriptions.add(entry.name.owner, name, txn)
    return refused
