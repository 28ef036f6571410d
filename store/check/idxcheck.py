"""`store.idx` of each mailbox against the mailbox, and `users/directory` against the accounts, where these should be up
to date."""

from collections.abc import Iterator

from attrs import evolve

from mboxlist.entry import MailboxId
from mboxlist.setaside import stands_in_the_way
from store.errors import Problem, StoreError
from store.mend.idxfiles import UserArea
from store.mend.userrecords import is_current
from store.partition.partition import Partition
from store.store import Store
from store.tables.quotatable import DOMAIN
from store.tables.state import MODSEQ_SKIP, UID_SKIP
from store.userarea import directoryfile, idxreading, writing
from store.userarea.idxfile import Head
from store.values import Finding


def look(store: Store) -> Iterator[Finding]:
    """What is wrong at this moment; a change that is under way may be among it.

    Another process may have changes that it has not written yet: beside one, only files that are damaged count, and
    those that contradict the mailbox. A copy for reading need not have them.
    """
    files, sound = UserArea(store), list[directoryfile.DirectoryRows]()
    for partition in store.partitions.values():
        for source in files.unlisted(partition):
            yield Finding(f"it is of mailbox {source.head.id}, {source.name}, of which nothing else is left",
                          str(source.path))
        current = is_current(store, partition)
        if current and partition.name in store.writable and not partition.unwritten.users and (
                what := directoryfile.wrong(store, partition, sound)):
            yield Finding(what, str(partition.folder / "users" / directoryfile.NAME))
        for mailbox, _ in list(partition.all_states()):
            if mailbox not in partition.unwritten.changed:
                yield from _look_at(store, partition, mailbox, current=current)


def _look_at(store: Store, partition: Partition, mailbox: MailboxId, *, current: bool) -> Iterator[Finding]:
    try:
        found = writing.view(store, partition, mailbox)
    except StoreError:
        return                          # the mailbox itself is damaged, which is found elsewhere
    if found is None:
        return
    path, wanted = found
    if stands_in_the_way(path):
        return                          # `layout` tells it
    try:
        there = idxreading.read(path)
    except StoreError as error:
        if path.exists() and error.problem is Problem.CORRUPT:
            yield Finding(f"it is damaged: {error.detail}", str(path))
        elif current and partition.name in store.writable and not path.exists():
            yield Finding("it is missing", str(path))
        return
    epoch = wanted.head.epoch
    old, new = comparable(there.head, epoch), comparable(wanted.head, epoch)
    if old == new:
        if (there.rows.tobytes(), there.own.tobytes(), there.private_headers, there.uidls) != (
                wanted.rows.tobytes(), wanted.own.tobytes(), wanted.private_headers, wanted.uidls):
            yield Finding("it has other records than its mailbox", str(path))
    elif current:
        yield Finding("it says other things of its mailbox than is so", str(path))
    elif old.id == new.id and old.highestmodseq > new.highestmodseq:
        yield Finding("it is ahead of its mailbox", str(path))


def comparable(head: Head, epoch: int) -> Head:
    """As it would be if it were written now and nothing had changed but the epoch."""
    behind = max(0, epoch - head.epoch)
    limits = {root: limit for root, limit in head.limits.items() if not root.startswith(DOMAIN)}
    return evolve(head, epoch=epoch, limits=limits, uidnext=head.uidnext + behind * UID_SKIP, written=0, recent=0,
                  generation=0, highestmodseq=head.highestmodseq + behind * MODSEQ_SKIP)
