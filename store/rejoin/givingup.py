"""A partition is given up that another machine alone has, which is lost for good: its mailboxes are there again, empty.

A standby of some partitions has the whole list. So after its promotion the mailboxes on the others still have their
names, rights and subscriptions. Each of them becomes empty, under a new UIDVALIDITY, on a new partition of that name;
deleted ones, which nobody can bring back, leave the list. The mark that the partition is absent goes last: until then
nobody opens it, and after a kill all of this is done again from the beginning.

That it was given up is on record before anything else. A machine which has the partition after all does not follow
this one before it has brought its mail home, message by message (`store.standby.seeding.require_no_more`).
"""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from attrs import evolve, frozen

from mboxlist import privatefiles
from mboxlist.engine.btree import Txn
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry
from mboxlist.setaside import ASIDE
from store.errors import Problem, StoreError
from store.filelock import exclusive
from store.partition.marks import ABSENT, GENERATIONS, absent, is_absent, mark_behind
from store.partition.partition import Partition
from store.partition.processes import partitions_in_use
from store.partition.transactions import WriteTxn
from store.partitions import volumes
from store.partitions.volumes import PARTS
from store.quota import roots
from store.rejoin.partitionhome import COMING
from store.standby import promotion
from store.store import Store
from store.tables.state import MailboxState

log = logging.getLogger(__name__)

SLICE = 64          # mailboxes that one transaction changes

T = TypeVar("T")
Progress = Callable[[int, int], None]       # how many mailboxes are done, out of how many


@frozen
class Lost:
    """What is lost with a partition, which `host` alone has, as far as the list knows it: all messages of these
    mailboxes, and those that were `deleted` and could be undeleted."""

    partition: str
    host: str
    mailboxes: Sequence[MailboxEntry]
    deleted: Sequence[MailboxEntry]

    @property
    def users(self) -> list[str]:
        """Who has a mailbox there, in order of name."""
        return sorted({entry.name.owner for entry in self.mailboxes if entry.name.owner})

    @property
    def inboxes(self) -> list[str]:
        """Those of them whose INBOX is there."""
        return sorted(entry.name.owner for entry in self.mailboxes if entry.name.is_inbox())


def look(store: Store, name: str) -> Lost:
    """What would be lost. Raises StoreError GONE where the partition is not absent."""
    host = absent(store.root).get(name)
    if host is None and _is_ready(store, name):
        return Lost(name, "no machine", (), ())
    if host is None:
        raise StoreError(Problem.GONE, f"Partition {name} is not one that only another machine has (onecopy partition "
                                       "list says which are)")
    return Lost(name, host, [entry for entry in store.mailboxes.all() if entry.partition == name],
                [entry for _, entry in store.mailboxes.deleted.all() if entry.partition == name])


def _is_ready(store: Store, name: str) -> bool:
    """Whether all was done when that was cut off, but that those who have the store open know of it."""
    return name in promotion.given_up(store.root) and name in volumes.named_there(store.root) and name not in (
        partitions_in_use(store.root) or store.partitions)


def give_up(store: Store, name: str, progress: Progress = lambda done, total: None) -> Lost:
    """Have the mailboxes of that partition empty, and in use; what was lost. Raises StoreError, OSError."""
    folder = store.root / "partitions" / name
    found = look(store, name)
    with exclusive(folder, Problem.STORE_IN_USE, f"Partition {name} is being brought here just now", folder=True):
        found = look(store, name)
        if not is_absent(folder):
            volumes.put_in_use(store, name, lambda store, partition: None)
            store.partition(name)
            return found
        promotion.note_given_up(store.root, name)
        _set_aside(folder)
        for part in PARTS:              # made by one that was killed
            shutil.rmtree(folder / part, ignore_errors=True)
        (store.root / GENERATIONS / name).unlink(missing_ok=True)
        Partition.make(folder)
        volumes.put_in_use(store, name, partial(_fill, progress=progress))
    store.partition(name)
    log.warning("partition %s was given up, which only %s had: %d mailboxes of %d users are empty, %d deleted ones "
                "cannot be undeleted", name, found.host, len(found.mailboxes), len(found.users), len(found.deleted))
    return found


def _set_aside(folder: Path) -> None:
    """What had come of the partition when the other machine was lost; without the rest nobody can use it."""
    if (folder / COMING).exists():
        place = folder / ASIDE / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        privatefiles.make_folder(place, parents=True)
        os.rename(folder / COMING, place / COMING)
        sync_folder(place)
        log.warning("what had come of partition %s is in %s", folder.name, place)


def _fill(store: Store, partition: Partition, *, progress: Progress) -> None:
    before = store.partitions
    store.partitions = {**before, partition.name: partition}
    partition.domains = store.domains
    partition.record(store.recorder)
    try:
        here = [entry for entry in store.mailboxes.all() if entry.partition == partition.name]
        _take_limits(before, partition, {entry.name.owner for entry in here})
        for done, some in _slices(here):
            progress(done, len(here))
            _empty(store, partition, some)
        for _, gone in _slices([entry for _, entry in store.mailboxes.deleted.all()
                                if entry.partition == partition.name]):
            transact(store.mailboxes.env, partial(_forget, store, gone))
        mark_behind(partition.folder)           # each gets its store.idx
        partition.flush()
        store.mailboxes.env.flush()
    finally:
        store.partitions = before
    (partition.folder / ABSENT).unlink()
    sync_folder(partition.folder)


def _slices(items: Sequence[T]) -> Iterator[tuple[int, Sequence[T]]]:
    for begin in range(0, len(items), SLICE):
        yield begin, items[begin:begin + SLICE]


def _take_limits(others: dict[str, Partition], partition: Partition, owners: set[str]) -> None:
    """Limits of quota are on each partition on which their owner has a mailbox: those of another one hold here. Who had
    all mail here has the default again."""
    def work(txn: WriteTxn) -> None:
        for other in others.values():
            for owner in sorted(owners):
                for root in (owner, *other.quotas.roots_below(owner)):
                    if root and other.quotas.has(root) and not partition.quotas.has(root, txn.handle):
                        partition.quotas.take_over(root, other.quotas.find(root), txn.handle)

    partition.transact(work)


def _empty(store: Store, partition: Partition, entries: Sequence[MailboxEntry]) -> None:
    mailboxes = store.mailboxes

    def renew(txn: Txn) -> list[MailboxEntry]:
        found = []
        for known in entries:
            entry = mailboxes.find_id(known.id, txn)
            if entry is not None and entry.partition == partition.name:
                found.append(evolve(entry, uidvalidity=mailboxes.next_identity(txn)[1]))
                mailboxes.write(found[-1], txn, guarded=False)
        return found

    def begin(txn: WriteTxn) -> None:
        for entry in renewed:
            txn.set_state(entry.id, None, MailboxState.new(
                entry.uidvalidity, partition.epoch, roots.root_for(partition, entry.name)))

    renewed = transact(mailboxes.env, renew)
    partition.transact(begin)


def _forget(store: Store, entries: Sequence[MailboxEntry], txn: Txn) -> None:
    for entry in entries:
        if store.mailboxes.deleted.remove(entry.id, txn):
            store.mailboxes.annotations.forget(entry.id, txn)
