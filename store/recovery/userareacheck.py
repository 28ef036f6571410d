"""After an unclean end: every mailbox's `store.idx` is compared with the mailbox, in the background.

`index/behind` asks for it, and is there until it has been done, over any number of starts.
"""

import logging
import os
import zlib
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import cast

from attrs import evolve

from mboxlist.entry import MailboxId
from store.check.idxcheck import comparable
from store.errors import StoreError
from store.mailboxes.expunge import drop_lost
from store.partition.marks import behind_marker
from store.partition.partition import Partition
from store.store import Store
from store.tables.state import MailboxState, state_key
from store.userarea import directoryfile, idxreading
from store.userarea.idxfile import NAME
from store.userarea.paths import Locks, owner_of, remove_empty_folders, remove_file
from store.userarea.unlisted import is_former
from store.userarea.writing import account_of, describe, right_place, write_round

log = logging.getLogger(__name__)

MAILBOXES_AT_A_TIME = 64    # of one step


Step = tuple[str, tuple[int, ...]]
_Rows = Generator[tuple[bytes, bytes], None, None]


def reconcile(store: Store) -> int:
    """Write the files that differ from their mailboxes, and remove those of mailboxes that are no more, on each
    partition that asks for it; how many mailboxes were looked at. It may take minutes: for a server see `steps`."""
    return sum(take_step(store, step) for step in steps(store))


def steps(store: Store) -> Iterator[Step]:
    """The work of `userareacheck` in steps, for `take_step`: the name of a partition, and mailboxes on it; none of
    them at the end of a partition. Nothing is locked between two of them."""
    for partition in store.writable.values():
        if not behind_marker(partition.folder).exists():
            continue
        first: int | None = 1
        while first is not None:
            states = cast("_Rows", partition.states.scan(state_key(MailboxId(first))))
            mailboxes = tuple(int.from_bytes(key, "big") for key, _ in islice(states, MAILBOXES_AT_A_TIME))
            states.close()
            if mailboxes:
                yield partition.name, mailboxes
            first = mailboxes[-1] + 1 if len(mailboxes) == MAILBOXES_AT_A_TIME else None
        yield partition.name, ()


def take_step(store: Store, step: Step) -> int:
    """Do one step; how many mailboxes it was about. What cannot be written stays in `Partition.unwritten`."""
    partition, mailboxes = store.partitions[step[0]], step[1]
    if mailboxes:
        partition.unwritten.changed.update(mailbox for mailbox in mailboxes if _differs(store, partition, mailbox))
        write_round(store, partition)
        return len(mailboxes)
    drop_lost(partition)
    directoryfile.write(store, partition, everything=True)
    if sweep(store, partition):
        behind_marker(partition.folder).unlink(missing_ok=True)
        log.info("every store.idx on partition %s has been compared", partition.name)
    return len(mailboxes)


def _differs(store: Store, partition: Partition, mailbox: int) -> bool:
    """Whether the mailbox is here, and its file is not as it should be."""
    found, data = store.known(mailbox), partition.states.get(state_key(MailboxId(mailbox)))
    if found is None or data is None or found[0].partition != partition.name:
        return False
    entry, removed = found
    state = MailboxState.from_bytes(data, partition.epoch)
    try:
        there = idxreading.read_head(right_place(partition, entry, removed))
    except StoreError:
        return True
    wanted = evolve(describe(store, partition, entry, removed, state, records=there.records, readers=there.readers),
                    account=zlib.crc32(account_of(store, entry, right_place(partition, entry, removed))))
    return comparable(there, state.epoch) != comparable(wanted, state.epoch)


def sweep(store: "Store", partition: "Partition") -> bool:
    """Remove temporary files from `users/`, and the files of mailboxes to which this list gave an id and which are no
    more, or elsewhere. A file of another list, or of a mailbox that nobody has taken out of this one, may be all that
    is left of a mailbox: it stays, and is reported.

    Whether it came to its end: it is left off when the process leaves the store.
    """
    for folder, _, names in os.walk(partition.folder / "users"):
        if partition.unwritten.stop.is_set():
            return False
        for name in names:
            path = Path(folder) / name
            if name == NAME:
                _sweep_file(store, partition, path)
            elif name.startswith(NAME):
                _sweep_temporary(partition, path)
    return True


def _sweep_temporary(partition: Partition, path: Path) -> None:
    """Remove a file that got no name of its own, unless somebody is writing it: who does has the mailbox's lock."""
    mailbox = path.name.removeprefix(NAME + ".").partition(".")[0]
    with Locks(partition) as locks:
        if not mailbox.isdecimal() or locks.take(int(mailbox[:10]), wait=False):
            path.unlink(missing_ok=True)
            remove_empty_folders(partition, path.parent)


def _sweep_file(store: Store, partition: Partition, path: Path) -> None:
    try:
        head = idxreading.read_head(path)
    except StoreError as error:
        if path.exists():
            log.warning("%s cannot be read, and is not where a mailbox has its file: %s", path, error)
        return
    found = store.known(head.id)
    if found is not None:
        place = store.partitions.get(found[0].partition)
        if place is None:
            return
        where = right_place(place, *found)
        if where == path or owner_of(where) != head.id:
            return
    if head.store != store.mailboxes.identity or head.id > store.mailboxes.last_identity()[0] or (
            found is None and not is_former(store, partition, head)):
        log.warning("%s is of mailbox %d, %s, which is not known here", path, head.id, head.name)
    else:
        remove_file(partition, path, head.id)
