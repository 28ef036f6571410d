"""After an unclean end the list of mailboxes and the partitions may differ by what was being done: a mailbox that was
made, deleted, or moved to another partition. The list decides."""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.usermoves import Phase
from store.mailboxes import deletion
from store.mailboxes.copymessages import undo_all
from store.mailboxes.namespace import undo_renames
from store.partition.marks import is_absent
from store.partition.partition import Partition
from store.partitions.holding import hold, moves_no_more
from store.quota import roots
from store.store import Store
from store.tables.state import UNCOUNTED_KEY, MailboxState, is_moving, state_key

if TYPE_CHECKING:
    from store.rebuild.outcome import Correction

log = logging.getLogger(__name__)


def agree(store: Store, *, wholly: bool = False) -> bool:
    """Make the partitions what the list says. For the process that recovers the store, while nobody else is in it.

    It looks at the mailboxes that are on record as pending; `wholly`, or where there may be others, at every one.
    Whether it did that.
    """
    for partition in store.writable.values():
        _count(partition)
    undo_renames(store)
    pending = store.mailboxes.pending
    wholly = wholly or not pending.is_complete()
    there = list(pending.all())
    if wholly:
        _agree_wholly(store)
    else:
        ready = _finish_moves(store)
        lost = dict[str, list[MailboxEntry]]()
        owners = {owner for mailbox, _ in there if (owner := _reconcile(store, mailbox, ready, lost)) is not None}
        for name, entries in lost.items():
            _make_again(store, store.partitions[name], entries)
        _hold_who_has_gone(store)
        for owner in sorted(owners):
            roots.recharge(store, owner)

    def forget(txn: Txn) -> None:
        for mailbox, since in there if all_are_there(store) else ():
            pending.forget(mailbox, since, txn)
        pending.complete(txn)

    for partition in store.partitions.values():
        partition.flush()                   # what was done is on disk before it is forgotten
    if there or wholly:
        transact(store.mailboxes.env, forget)
    undo_all(store)
    return wholly


def all_are_there(store: Store) -> bool:
    """Whether no partition's volume is missing, or read-only: what is on record may be about a mailbox on it. One that
    is absent is not waited for: when it comes, all of it is compared with the list (`agree_about`)."""
    return all(path.name in store.writable or is_absent(path) for path in (store.root / "partitions").glob("[!.]*"))


def _reconcile(store: Store, mailbox: MailboxId, ready: set[MailboxId], lost: dict[str, list[MailboxEntry]]
               ) -> str | None:
    """Make the partitions what the list says of one mailbox; its owner, if it is charged to a wrong quota root. One
    without figures comes to those that are `lost`, by partition."""
    entry = store.mailboxes.find_id(mailbox)
    wrong = None
    for partition in store.partitions.values():
        data = partition.states.get(state_key(mailbox))
        here = entry is not None and entry.partition == partition.name
        if data is not None and not here:
            if mailbox not in ready:
                _bury(store, partition, mailbox)
        elif data is not None and entry is not None:
            if is_moving(data):
                partition.transact(lambda txn: moves_no_more(txn, mailbox))
            state = MailboxState.from_bytes(data, partition.epoch)
            if state.quota_root != roots.root_for(partition, entry.name):
                wrong = entry.name.owner
        elif entry is not None and here:
            lost.setdefault(partition.name, []).append(entry)
    return wrong


def _agree_wholly(store: Store) -> None:
    _skip_what_was_used(store)
    listed = {entry.id: entry for entry in store.mailboxes.all()}
    ready = _finish_moves(store)
    for partition in store.partitions.values():
        _agree_about(store, partition, listed, ready)
    _hold_who_has_gone(store)
    roots.agree(store)


def agree_about(store: Store, partition: Partition) -> None:
    """Make that partition, which nobody else has, what the list says."""
    _count(partition)
    moves = store.mailboxes.moves.all()
    _agree_about(store, partition, {entry.id: entry for entry in store.mailboxes.all()}, {
        MailboxId(mailbox) for move in moves if move.phase is Phase.READY for mailbox in move.mailboxes})
    _hold_who_has_gone(store)


def _agree_about(store: Store, partition: Partition, listed: Mapping[MailboxId, MailboxEntry], ready: set[MailboxId]
                 ) -> None:
    there = {mailbox for mailbox, _ in partition.all_states()}
    here = {entry.id for entry in listed.values() if entry.partition == partition.name}
    for mailbox in there - here - ready:
        _bury(store, partition, mailbox)
    for mailbox in there & here:
        if is_moving(partition.states.get(state_key(mailbox)) or bytes(1)):
            partition.transact(lambda txn, mailbox=mailbox: moves_no_more(txn, mailbox))    # type: ignore[misc]
    if lost := here - there:
        _make_again(store, partition, [listed[mailbox] for mailbox in sorted(lost)])


def _make_again(store: Store, partition: Partition, entries: Iterable[MailboxEntry]) -> None:
    """Have figures of mailboxes that have none: those of their records and `store.idx`, or else they are empty. What
    the partition has is counted once, for all of them (`_count`)."""
    from store.mend.lostfigures import restore  # here: these are rarely needed, and load all that rebuilds
    for entry in entries:
        _tell(restore(store, partition, entry))
    _count(partition)


def _count(partition: Partition) -> None:
    """Count what is to be counted, also because an earlier start or command was killed before it did."""
    if partition.states.get(UNCOUNTED_KEY) is not None:
        from store.rebuild.recount import count_what_is_due  # here: as above
        _tell(count_what_is_due(partition))


def _tell(corrections: Iterable["Correction"]) -> None:
    for correction in corrections:
        log.warning("%s: %s", correction.where, correction.what)


def _finish_moves(store: Store) -> set[MailboxId]:
    """Remove copies of users from other back ends that are not whole; the mailboxes of those that are."""
    moves = list(store.mailboxes.moves.all())
    coming = [move for move in moves if move.phase is Phase.COMING and move.partition in store.writable]
    for move in coming:
        deletion.destroy_wholly(store.partitions[move.partition], [MailboxId(mailbox) for mailbox in move.mailboxes])

    def forget(txn: Txn) -> None:
        for move in coming:
            store.mailboxes.moves.forget(move.user, txn)
            for mailbox in move.mailboxes:
                store.mailboxes.annotations.forget(MailboxId(mailbox), txn)

    if coming:
        transact(store.mailboxes.env, forget)
        store.mailboxes.env.flush()
    return {MailboxId(mailbox) for move in moves if move.phase is Phase.READY for mailbox in move.mailboxes}


def _hold_who_has_gone(store: Store) -> None:
    """Nobody writes to what is left here of users who are on another back end."""
    for move in store.mailboxes.moves.all():
        for entry in store.names(move.user) if move.phase is Phase.GONE else ():
            partition = store.partitions.get(entry.partition)
            if partition is not None:
                partition.transact(lambda txn, mailbox=entry.id: hold(txn, [mailbox]))      # type: ignore[misc]


def _skip_what_was_used(store: Store) -> None:
    """Where the list is an older one, or new, it must not give out what mailboxes on the partitions have already."""
    states = [item for partition in store.partitions.values() for item in partition.all_states()]
    mailbox = MailboxId(max((mailbox for mailbox, _ in states), default=0))
    validity = max((state.uidvalidity for _, state in states), default=0)
    last = store.mailboxes.last_identity()
    if mailbox > last[0] or validity > last[1]:
        transact(store.mailboxes.env, lambda txn: store.mailboxes.skip_identities(mailbox, validity, txn))
        store.mailboxes.env.flush()


def _bury(store: Store, partition: Partition, mailbox: MailboxId) -> None:
    deleted = store.mailboxes.deleted.find(mailbox)
    if deleted is not None and deleted[1].partition == partition.name:
        partition.transact(lambda txn: moves_no_more(txn, mailbox))
        partition.transact(lambda txn: deletion.bury(txn, mailbox, deleted[0]))
    elif deleted is None and store.mailboxes.find_id(mailbox) is None and _is_worth_keeping(partition, mailbox):
        # No crash makes this: the list has been lost, or is an old one. Its mail must not be lost as well.
        log.error("mailbox %d on partition %s has messages and is not in the list: it is left as it is", mailbox,
                  partition.name)
    else:
        log.info("mailbox %d is not, or no longer, on partition %s: its records there are removed", mailbox,
                 partition.name)
        if deleted is None and store.mailboxes.find_id(mailbox) is None:
            deletion.destroy(partition, mailbox, int(time.time()))
        else:                       # what was expunged is where the mailbox is
            deletion.destroy_wholly(partition, [mailbox])


def _is_worth_keeping(partition: Partition, mailbox: MailboxId) -> bool:
    """Whether it has messages, and was not being destroyed: what is purged leaves the list first."""
    data = partition.states.get(state_key(mailbox))
    state = MailboxState.from_bytes(data, partition.epoch) if data is not None else None
    return state is not None and state.messages > 0 and state.removed != deletion.DOOMED
