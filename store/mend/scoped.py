"""The mailboxes of one user, or one mailbox and those below it, put right without a look at all of the store, unless
something of the list itself is wrong."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mboxlist.entry import MailboxId
from mboxlist.names import PUBLIC
from store.errors import StoreError
from store.mend import idxfiles, leftovers, listrows, lostfigures, userrecords
from store.partition.partition import Partition
from store.quota import roots
from store.rebuild.outcome import Correction
from store.store import Store
from store.userarea import idxreading
from store.userarea.idxfile import NAME


def correct_rows(store: Store, owner: str) -> list[Correction]:
    """If anything of the rows or figures of the owner's mailboxes seems wrong, the list is put right.

    Raises StoreError.
    """
    accounts = list(userrecords.restore_accounts(store, owner))
    if _is_sound(store, owner) and all(store.known(mailbox) for mailbox in _files(store, owner)):
        return accounts
    done = accounts + listrows.correct_list(store) + lostfigures.restore_figures(store)
    for partition in store.partitions.values():
        done += leftovers.correct_orphans(store, partition)
    return done


def correct_some(store: Store, partition: Partition, mailboxes: Sequence[MailboxId]) -> list[Correction]:
    """What their files say of their records, and what hangs on them. Raises StoreError."""
    return [*userrecords.restore_records(store, partition, mailboxes),
            *idxfiles.follow_files(store, partition, list(mailboxes)),
            *leftovers.correct_leftovers(store, partition, list(mailboxes))]


def _is_sound(store: Store, owner: str) -> bool:
    for entry in store.names(owner):
        partition = store.partitions.get(entry.partition)
        state = partition.any_state(entry.id) if partition is not None else None
        if partition is None or state is None or state.removed or state.uidvalidity != entry.uidvalidity or (
                store.mailboxes.find_id(entry.id) != entry
                or not state.moving and state.quota_root != roots.root_for(partition, entry.name)):
            return False
    return True


def _files(store: Store, owner: str) -> Iterator[int]:
    """The ids in the files of the owner's mailboxes."""
    for partition in store.partitions.values():
        top = partition.user_folder(owner) if owner else partition.folder / "users" / PUBLIC[:-1]
        for folder, _, names in os.walk(top):
            with contextlib.suppress(StoreError):
                if NAME in names:
                    yield idxreading.read_head(Path(folder, NAME)).id
