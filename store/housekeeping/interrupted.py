"""What a full or failing disk has stopped between the list of mailboxes and a partition: a mailbox that was being made,
restored, deleted, renamed, purged or moved. Housekeeping finishes it, in a store in use, as the next start would
(`reconciliation`): the list decides, once it is on disk.

The list is looked at while the mailbox's figures are locked. Whoever is slow, and has not been stopped, comes to the
figures once more after changing the list (`WriteTxn.make_writable`), and has them as they were.
"""

import logging
import time
from collections.abc import Iterator

from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.usermoves import Phase
from store.errors import Problem, StoreError
from store.mailboxes import deletion
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.partitions import partitionmove
from store.quota import roots
from store.recovery.reconciliation import all_are_there
from store.store import Store
from store.tables.state import UNLISTED, MailboxState, state_key

log = logging.getLogger(__name__)

PENDING_SECONDS = 60        # after which something that has begun has come to its end, or goes on for long


def pending(store: Store) -> Iterator[tuple[MailboxId, int]]:
    """What may have come to its end; nothing while a volume is missing, since all has to wait for that: one row of
    8 octets for each mailbox. For housekeeping."""
    if all_are_there(store):
        yield from list(store.mailboxes.pending.all(int(time.time()) - PENDING_SECONDS))


def finish(store: Store, item: tuple[MailboxId, int]) -> int:
    """Finish what was stopped with a mailbox; or take it off the record, if the list and the partitions agree about it,
    on their disks."""
    mailbox, since = item
    if not all_are_there(store):
        return 1
    row = _row(store, mailbox)
    wrong = [partition for partition in store.partitions.values() if not _agrees(partition, mailbox, row)]
    if wrong:
        store.mailboxes.env.flush()             # which may be what failed
        for partition in wrong:
            _finish(store, partition, mailbox, row)
        if row[0] is not None and not all(_agrees(partition, mailbox, row) for partition in wrong):
            _end_move(store, row[0].name.owner)
        return 1
    for partition in store.partitions.values():
        partition.flush()
    transact(store.mailboxes.env, lambda txn: store.mailboxes.pending.forget(mailbox, since, txn))
    return 1


def _end_move(store: Store, owner: str) -> None:
    """What was stopped on its way to another partition is where the list says; unless somebody moves mailboxes now, or
    the user moves to another back end."""
    if store.mailboxes.moves.find(owner) is None:
        try:
            partitionmove.complete(store, owner)
        except StoreError as refusal:
            if refusal.problem is not Problem.BUSY:
                raise


def _row(store: Store, mailbox: MailboxId) -> tuple[MailboxEntry | None, int]:
    """That of the mailbox, and when it was deleted, or 0. What comes back just now is not taken for gone."""
    deleted, listed = store.mailboxes.deleted.find(mailbox), store.mailboxes.find_id(mailbox)
    if listed is not None:
        return listed, 0
    deleted = deleted or store.mailboxes.deleted.find(mailbox)
    return (None, 0) if deleted is None else (deleted[1], deleted[0])


def _agrees(partition: Partition, mailbox: MailboxId, row: tuple[MailboxEntry | None, int]) -> bool:
    entry, deleted = row
    here = entry is not None and entry.partition == partition.name
    data = partition.states.get(state_key(mailbox))
    if data is None or entry is None or not here:
        return (data is None) is not here
    state = MailboxState.from_bytes(data, partition.epoch)
    return not state.moving and bool(state.removed) == bool(deleted) and (
        bool(deleted) or state.quota_root == roots.root_for(partition, entry.name))


def _finish(store: Store, partition: Partition, mailbox: MailboxId, row: tuple[MailboxEntry | None, int]) -> None:
    """The row is on disk. What moves to another partition is not finished here."""
    def work(txn: WriteTxn) -> str:
        state = txn.any_state(mailbox)
        entry, deleted = _row(store, mailbox)
        if state is None or state.moving not in (0, UNLISTED) or (entry, deleted) != row or mailbox in coming:
            return ""
        if entry is None and state.removed == deletion.DOOMED:
            return "purged"
        if entry is None and state.moving and not state.messages:
            txn.partition.states.delete(state_key(mailbox), txn.handle)
            return "was not made"
        if entry is None or entry.partition != partition.name:
            return ""
        if deleted and not state.removed:
            deletion.bury(txn, mailbox, deleted)
            return "was deleted"
        if not deleted and state.moving:
            txn.make_writable(mailbox, store.mailboxes)
            return "is there"
        return "was renamed" if not deleted and not state.removed else ""

    coming = store.mailboxes.moves.mailboxes(Phase.COMING, Phase.READY)
    what = partition.transact(work)
    if what == "purged":
        deletion.destroy(partition, mailbox, int(time.time()))
    elif what == "was renamed" and row[0] is not None:
        roots.recharge(store, row[0].name.owner)
    if what:
        log.info("mailbox %d on partition %s: what the disk had stopped is finished: it %s", mailbox, partition.name,
                 what)
