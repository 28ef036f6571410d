"""What a `store.idx` says that the databases do not: it is never replaced by what is older, and no mailbox is made
where one stands."""

import logging
from pathlib import Path

from attrs import frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName
from store.errors import Problem, StoreError
from store.partition.partition import Partition
from store.store import Store
from store.tables.state import MODSEQ_SKIP
from store.userarea.idxfile import Head
from store.userarea.paths import head_of, place

log = logging.getLogger(__name__)


@frozen
class Unlisted:
    """The file of a mailbox that the list does not know."""

    partition: Partition
    path: Path
    head: Head


def is_ahead(there: Head, now: Head, partition: Partition) -> bool:
    """Whether a file knows of changes of its mailbox that the databases, which say `now`, do not have. (UIDNEXT may go
    down: see `mailboxes.uidskip`.) Databases that were put back may have gone past its MODSEQ since."""
    behind = max(0, now.epoch - there.epoch)
    return (there.id, there.uidvalidity) == (now.id, now.uidvalidity) and (
        there.highestmodseq + behind * MODSEQ_SKIP > now.highestmodseq or not partition.went_through(there.generation))


def is_former(store: Store, partition: Partition, head: Head) -> bool:
    """Whether the mailbox of that file, which the list does not know, was taken out of it: the file is what a process
    left that was killed. (What damage took out of the list has left its figures, or was not noted.)"""
    state = partition.any_state(MailboxId(head.id))
    if state is not None and not state.removed and not state.moving:
        return False
    return head.removed != 0 or not head.records or store.mailboxes.former.find(head.name) >= head.uidvalidity


def of_name(store: Store, name: MailboxName) -> Unlisted | None:
    """The file of a mailbox that had that name in this store, and is in no list any more."""
    for partition in store.partitions.values():
        path = place(partition, name)
        head = head_of(path) if path.exists() else None
        if head is not None and (head.name, head.store) == (str(name), store.mailboxes.identity) and (
                store.known(head.id) is None) and not is_former(store, partition, head):
            return Unlisted(partition, path, head)
    return None


def bring_back(store: Store, found: Unlisted) -> MailboxEntry:
    """Have the mailbox in the list again, on disk. Raises StoreError UNAVAILABLE when its figures are lost, too."""
    head, name = found.head, MailboxName.parse(found.head.name)
    state = found.partition.any_state(MailboxId(head.id))
    if state is None or state.removed or state.moving:
        log.error("%s is not made: %s has %d messages of it, and the databases have nothing; onecopy reconstruct "
                  "--all brings it back", name, found.path, head.records)
        raise StoreError(Problem.UNAVAILABLE, "The mailbox has to be restored", detail=f"{found.path} has {name}")

    def work(txn: Txn) -> MailboxEntry:
        entry = store.mailboxes.find(name, txn)
        if entry is None:
            entry = MailboxEntry(MailboxId(head.id), name, found.partition.name, state.uidvalidity, head.created,
                                 head.special_use, dict(head.acl))
            store.mailboxes.write(entry, txn)
        return entry

    entry = transact(store.mailboxes.env, work)
    store.mailboxes.env.flush()
    log.error("%s was in no list any more, and is there again with its %d messages: %s named it", name, state.messages,
              found.path)
    return entry
