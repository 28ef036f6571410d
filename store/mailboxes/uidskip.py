"""UIDNEXT after an unclean end: it has skipped ahead (`state.UID_SKIP`), and must never go down again once a client
has been told of it (RFC 9051 §2.3.1.1). Who brings mail with the UIDs that it had elsewhere may take the skip back, but
only where it is not in the stored figures yet; so it is stored, and on disk, before it is shown.
"""

from collections.abc import Iterable
from contextlib import nullcontext

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.offload import run
from store.partition.transactions import WriteTxn
from store.store import Store
from store.tables.state import before_skip, state_key

#: It has been deleted; it moves, which writes its figures, too; or nobody can write anything, and who reads goes on.
_NOBODY_BRINGS = frozenset({Problem.NO_MAILBOX, Problem.BUSY, Problem.DISK_FULL, Problem.READ_ONLY})


def unstored(store: Store, entries: Iterable[MailboxEntry]) -> list[MailboxEntry]:
    """The mailboxes, of these, that have skipped ahead while their stored figures do not say so."""
    found = []
    for entry in entries:
        partition = store.partitions.get(entry.partition)
        data = partition.states.glance(state_key(entry.id)) if partition is not None else None
        if partition is not None and data is not None and before_skip(data, partition.epoch) is not None:
            found.append(entry)
    return found


def store_skips(store: Store, entries: Iterable[MailboxEntry]) -> None:
    """Have the figures of these mailboxes on disk as they are shown, where anybody could bring mail to them; also while
    a standby is away: it skips further when it is promoted. For a thread. Raises StoreError."""
    second = store.write_freeze.second
    with second.exempt() if second.refuses else nullcontext():
        _store_skips(store, entries)


def _store_skips(store: Store, entries: Iterable[MailboxEntry]) -> None:
    partitions = set()
    for entry in entries:
        def work(txn: WriteTxn, entry: MailboxEntry = entry) -> None:
            txn.set_state(entry.id, None, txn.state(entry.id))

        try:
            store.transact(entry, work)
            partitions.add(entry.partition)
        except StoreError as error:
            if error.problem not in _NOBODY_BRINGS:
                raise
    for name in sorted(partitions):
        store.partition(name).flush()


async def stored(store: Store, entries: Iterable[MailboxEntry]) -> None:
    """`store_skips` those that need it, in a thread: before UIDNEXT of these mailboxes is shown."""
    found = unstored(store, entries)
    if found:
        await run(store, "changes", store_skips, store, found)
