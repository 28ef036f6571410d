"""Removal in three steps: a message is flagged, expunged, and purged; what was expunged or deleted can be restored
until its purge.

A deleted mailbox leaves the list and gives its quota back; its records stay as they are, until `purge_mailbox`
destroys them. The list decides: after a crash the partitions are made to agree with it.
"""

import logging
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

import numpy as np
from attrs import evolve, frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.transact import Failure, transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.mailboxes.expunge import forget_each
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.problems import problems
from store.quota import roots
from store.store import Store
from store.tables.index import take
from store.tables.references import tally
from store.tables.state import MOVING, UNLISTED, gained, state_key
from store.userarea.paths import place_of_deleted, remove_file
from store.values import Flag

log = logging.getLogger(__name__)

DOOMED = 1                  # `MailboxState.removed` of a mailbox that is being destroyed
CHUNKS_AT_A_TIME = 32                  # chunks of records that are destroyed in one transaction


@problems()
def delete_mailbox(store: Store, name: MailboxName, *, even_inbox: bool = False) -> None:
    """Delete a mailbox; those below it stay (RFC 3501 §6.3.4). It can be restored until the purge delay has passed.

    Raises StoreError NO_MAILBOX, UNAVAILABLE, and NO_PERMISSION for INBOX, which goes only with its user
    (`even_inbox`).
    """
    if name.is_inbox() and not even_inbox:
        raise StoreError(Problem.NO_PERMISSION, "INBOX cannot be deleted")
    now = int(time.time())

    def work(txn: Txn) -> MailboxEntry:
        entry = store.mailboxes.find(name, txn)
        if entry is None:
            raise StoreError(Problem.NO_MAILBOX)
        if entry.partition not in store.partitions:
            store.partition(entry.partition)            # where it is not here, nothing of it goes
        store.mailboxes.remove(name, txn)
        store.mailboxes.deleted.add(entry, now, txn)
        return entry

    entry = transact(store.mailboxes.env, work)
    store.mailboxes.env.flush()
    after_commit(_bury_deleted, store, entry, now)      # or else housekeeping does it: `interrupted`


def _bury_deleted(store: Store, entry: MailboxEntry, now: int) -> None:
    partition = store.partition_of(entry)
    partition.transact(lambda txn: bury(txn, entry.id, now))
    partition.flush()
    store.owned.forget_mailbox(entry.id)
    partition.views.forget_changes(entry.id)
    store.news.tell([entry.id])


def bury(txn: WriteTxn, mailbox: MailboxId, when: int) -> None:
    """Have the mailbox's figures say that it was deleted, and give its quota back; no harm if it was done before."""
    state = txn.any_state(mailbox)
    if state is None or state.removed:
        return
    txn.charge(state, -state.octets, -state.messages)
    txn.set_state(mailbox, state, evolve(state, removed=when, moving=False, highestmodseq=state.highestmodseq + 1))


def bury_all(store: Store, owner: str, txn: WriteTxn) -> None:
    """`bury` all deleted mailboxes of that owner on the transaction's partition: some may still wait for it."""
    here = {entry.id: when for when, entry in store.mailboxes.deleted.all()
            if entry.name.owner == owner and entry.partition == txn.partition.name}
    for mailbox in sorted(here):
        bury(txn, mailbox, here[mailbox])


def last_deleted(store: Store, name: MailboxName, mailbox: MailboxId | None = None) -> tuple[int, MailboxEntry] | None:
    """The mailbox that was last deleted under that name, or that one of them, and when it was."""
    return max(((when, entry) for when, entry in store.mailboxes.deleted.all()
                if entry.name == name and mailbox in (None, entry.id)),
               default=None, key=lambda item: (item[0], item[1].id))


@problems()
def undelete_mailbox(store: Store, name: MailboxName, *, new_name: MailboxName | None = None,
                     mailbox: MailboxId | None = None) -> MailboxEntry:
    """Bring back the mailbox that was last deleted under that name, or that one of them, as `new_name` or as it was.

    UIDs and flags are as before, under a new UIDVALIDITY, since another mailbox may have had the name meanwhile. Quota
    does not keep it from coming back. Raises StoreError NO_MAILBOX, MAILBOX_EXISTS, NO_USER, NO_PERMISSION, BUSY.
    """
    found = last_deleted(store, name, mailbox)
    target = new_name or name
    if found is None:
        raise StoreError(Problem.NO_MAILBOX)
    if target.owner != name.owner:
        raise StoreError(Problem.NO_PERMISSION, "A mailbox cannot be given to another user")
    if target.owner and store.directory.find(target.owner) is None:
        raise StoreError(Problem.NO_USER)
    if store.mailboxes.find(target) is not None:
        raise StoreError(Problem.MAILBOX_EXISTS)
    old = found[1]
    partition = store.partition_of(old)
    def take(txn: Txn) -> int:
        store.mailboxes.pending.note([old.id], txn)
        return store.mailboxes.next_identity(txn)[1]

    validity = transact(store.mailboxes.env, take)
    store.mailboxes.env.flush()
    entry = evolve(old, name=target, uidvalidity=validity)

    def work(txn: Txn) -> None:
        if store.mailboxes.find(target, txn) is not None:
            raise StoreError(Problem.MAILBOX_EXISTS)
        there = store.mailboxes.deleted.find(entry.id, txn)
        if there is not None and there[1].partition != entry.partition:
            raise StoreError(Problem.BUSY, "The mailbox has just been moved")
        if not store.mailboxes.deleted.remove(entry.id, txn):
            raise StoreError(Problem.NO_MAILBOX)
        store.mailboxes.write(entry, txn)

    try:
        partition.transact(lambda txn: _revive(store, txn, entry, roots.root_for(partition, target)))
        partition.flush()
        transact(store.mailboxes.env, work)
    except (StoreError, OSError, Failure):
        with suppress(StoreError):              # then housekeeping does it
            partition.transact(lambda txn: _bury_again(store, txn, entry.id))
        raise
    store.mailboxes.env.flush()
    after_commit(partition.transact, lambda txn: txn.make_writable(entry.id, store.mailboxes))
    after_commit(roots.recharge_renamed, store, target.owner)
    return entry


def _revive(store: Store, txn: WriteTxn, entry: MailboxEntry, root: str) -> None:
    state = txn.any_state(entry.id)
    if state is None or store.mailboxes.deleted.find(entry.id) is None:     # it was purged, or somebody restored it
        raise StoreError(Problem.NO_MAILBOX)
    if state.moving == MOVING:
        raise StoreError(Problem.BUSY, "The mailbox is being moved")
    if state.removed:
        txn.charge_root(root, state.octets, state.messages, enforce=False)
    else:                                   # it was cut off when it was last restored
        root = state.quota_root
    modseq = state.highestmodseq + 1
    txn.set_state(entry.id, state, evolve(state, removed=0, moving=UNLISTED, quota_root=root, highestmodseq=modseq,
                                          uidvalidity=entry.uidvalidity, changed=modseq))


def _bury_again(store: Store, txn: WriteTxn, mailbox: MailboxId) -> None:
    """Put a mailbox that could not be restored back among the deleted, unless somebody else has restored it."""
    deleted = store.mailboxes.deleted.find(mailbox)
    if store.mailboxes.find_id(mailbox) is None:
        bury(txn, mailbox, DOOMED if deleted is None else deleted[0])


@frozen
class Deleted:
    """A message that `undelete_messages` can bring back: when it was expunged (Unix time), and what it was."""

    when: int
    uid: int
    size: int
    received: int


def deleted_messages(store: Store, entry: MailboxEntry, *, since: int = 0) -> list[Deleted]:
    """The messages expunged from the mailbox since that Unix time and not purged yet, the oldest first.

    Raises StoreError NO_MAILBOX.
    """
    partition = store.partition_of(entry)
    partition.state(entry.id)
    found = (item for item in partition.removed.all() if item.mailbox == entry.id)
    return [Deleted(item.when, int(row["uid"]), int(row["size"]), int(row["received"]))
            for item in found if item.when >= since for row in item.rows]


@problems()
def undelete_messages(store: Store, entry: MailboxEntry, *, since: int = 0, uids: Collection[int] | None = None
                      ) -> list[int]:
    r"""Bring messages back that were expunged from the mailbox since that Unix time, all or those; their new UIDs.

    They come as new messages (a UID never comes back, RFC 3501 §2.3.1.1), with the flags that they had but \Deleted.
    Quota does not keep them from coming back. Flushed. Raises StoreError NO_MAILBOX.
    """
    partition = store.partition_of(entry)
    partition.state(entry.id)
    wanted = None if uids is None else np.fromiter(uids, np.uint32)
    keys = [item.key for item in partition.removed.all() if item.mailbox == entry.id and item.when >= since]
    back = partition.transact(lambda txn: [uid for key in keys for uid in _restore(txn, entry.id, key, wanted)])
    partition.flush()
    return back


def _restore(txn: WriteTxn, mailbox: MailboxId, key: bytes, wanted: "np.ndarray | None") -> list[int]:
    state = txn.state(mailbox)
    item = txn.partition.removed.find_to_change(key, txn.handle)
    if item is None:                        # purged just now
        return []
    which = np.ones(len(item.rows), np.bool_) if wanted is None else np.isin(item.rows["uid"], wanted)
    known = [txn.refs.find_to_change(bytes(digest), txn.handle) for digest in item.rows["digest"]]
    is_whole = txn.partition.files.is_whole     # what is restored without its file would be gone from here, too
    wanted_files = zip(item.rows["digest"].tolist(), item.rows["serial"].tolist(), known, strict=True)
    which &= np.array([record is not None and record.serial == serial and is_whole(digest, serial, record.size)
                       for digest, serial, record in wanted_files], np.bool_)
    old = take(item.rows, np.flatnonzero(which))
    if not len(old):
        return []
    rows = old.copy()
    modseq = state.highestmodseq + 1
    rows["uid"] = np.arange(state.uidnext, state.uidnext + len(rows))
    rows["modseq"] = modseq
    rows["saved"] = int(time.time())
    rows["flags"] &= np.uint16(~Flag.DELETED & 0xFFFF)
    after = evolve(gained(state, rows), uidnext=state.uidnext + len(rows), highestmodseq=modseq)
    txn.charge(state, after.octets - state.octets, len(rows), enforce=False)
    txn.append(mailbox, rows)
    txn.set_state(mailbox, state, after)
    for (digest, count, check), (_, _, before) in zip(tally(mailbox, rows), tally(mailbox, old), strict=True):
        if item.held:
            txn.refs.exchange(digest, before, check, txn.handle)
        else:
            txn.refs.add(digest, count, check, txn.handle)
    txn.partition.removed.replace(item, take(item.rows, np.flatnonzero(~which)), txn.handle)
    new: list[int] = rows["uid"].tolist()
    return new


def due_mailboxes(store: Store, now: float | None = None) -> list[MailboxId]:
    """The mailboxes that are due, but for those on a partition that alone is only read, or that is not here."""
    until = int(time.time() if now is None else now) - store.settings.purge_delay
    return [entry.id for when, entry in store.mailboxes.deleted.all()
            if when <= until and not store.is_put_off(entry)]


@problems()
def purge_mailbox(store: Store, mailbox: MailboxId) -> int:
    """Destroy one; 1 if it was there. A snapshot has the mailbox, so the message files are released as of the newest
    one. Raises StoreError UNAVAILABLE where its partition is not here."""
    found = store.mailboxes.deleted.find(mailbox)
    if found is None:
        return 0
    when, entry = found
    partition = store.partition(entry.partition)

    def forget(txn: Txn) -> bool:
        there = store.mailboxes.deleted.find(entry.id, txn)
        gone = there is not None and there[1].partition == entry.partition and store.mailboxes.deleted.remove(
            entry.id, txn)
        if gone:                        # else it has been restored, or is on another partition now: next time
            store.mailboxes.annotations.forget(entry.id, txn)
            store.mailboxes.pending.note([entry.id], txn)
        return gone

    partition.transact(lambda txn: _doom(txn, entry.id))
    partition.flush()
    if not transact(store.mailboxes.env, forget):
        return 0
    store.mailboxes.env.flush()
    _remove_copy(partition, entry.id)
    destroy(partition, entry.id, max(when, *partition.snapshots(), 0))
    partition.flush()
    store.mailboxes.noticed(entry)
    log.info("purged %s, which was deleted", entry.name)
    return 1


def _remove_copy(partition: Partition, mailbox: MailboxId) -> None:
    """Take the store.idx of a mailbox that has been purged away at once: one that stayed would bring it back, when
    databases are rebuilt before housekeeping comes."""
    path = place_of_deleted(partition, mailbox)
    with suppress(OSError, StoreError):         # housekeeping takes it away
        if remove_file(partition, path, mailbox):
            sync_folder(next(folder for folder in path.parents if folder.exists()))


def _doom(txn: WriteTxn, mailbox: MailboxId) -> None:
    """If the purge is cut off when the mailbox has left the list, the next start finishes it."""
    state = txn.any_state(mailbox)
    if state is not None and state.removed:
        txn.set_state(mailbox, None, evolve(state, removed=DOOMED))


def destroy(partition: Partition, mailbox: MailboxId, when: int) -> None:
    """Remove all that a partition knows of a deleted mailbox; its message files are released as of `when`."""
    while partition.transact(lambda txn: _destroy_some(txn, mailbox, when)):
        pass


def _destroy_some(txn: WriteTxn, mailbox: MailboxId, when: int) -> bool:
    """Whether there may be more."""
    state = txn.any_state(mailbox)
    if state is not None and not state.removed:
        bury(txn, mailbox, when)
    rows = txn.load(mailbox, most=CHUNKS_AT_A_TIME)
    if len(rows):
        for digest, count, check in tally(mailbox, rows):
            txn.refs.release(digest, count, check, txn.handle, when)
        txn.rewrite(mailbox, rows, np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_))
        return True
    txn.partition.vanished.forget(mailbox, txn.handle)
    txn.partition.readers.forget(mailbox, txn.handle)
    txn.partition.uidls.forget(mailbox, txn.handle)
    txn.partition.states.delete(state_key(mailbox), txn.handle)
    return False


def destroy_wholly(partition: Partition, mailboxes: Iterable[MailboxId]) -> None:
    """Remove all that a partition knows of mailboxes that are not in the list, what was expunged too. On disk."""
    ids = set(mailboxes)
    if not ids:
        return
    for mailbox in sorted(ids):
        destroy(partition, mailbox, int(time.time()))
    keys = [item.key for item in partition.removed.all() if item.mailbox in ids]
    forget_each(partition, keys)
    partition.flush()
