"""What each `store.idx` of a store says, for who must find out what the databases have lost."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from attrs import define, evolve

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.usermoves import Phase
from store.errors import StoreError
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.rebuild.desired import DesiredMailbox, figures_of, is_as_written, numbered, own_of, written_state
from store.rebuild.livecorrection import LiveCorrection
from store.rebuild.outcome import Correction, Outcome
from store.rebuild.salvage import readable
from store.rebuild.userareascan import Source, sources
from store.store import Store
from store.tables.index import MAX_UID, Rows, chunk_key, take
from store.tables.state import MODSEQ_SKIP, UID_SKIP, MailboxState
from store.userarea import idxreading, unlisted
from store.userarea.idxfile import Contents, Head
from store.userarea.writing import right_place


@define(eq=False)
class UserArea:
    """The heads of all files, read when the first is asked for."""

    store: Store
    _found: list[Source] | None = None

    def all(self) -> list[Source]:
        """Those whose heads can be read, the newest first."""
        if self._found is None:
            self._found = [source for partition in self.store.partitions.values()
                           for source in sources(partition.folder, [], heads=True) if source.found]
            self._found.sort(key=lambda source: source.head.written, reverse=True)
        return self._found

    def of(self, partition: str, mailbox: int, uidvalidity: int | None = None) -> Source | None:
        """The file of that mailbox, if it is of this list."""
        return next((source for source in self.all() if source.partition == partition and source.head.id == mailbox
                     and uidvalidity in (None, source.head.uidvalidity)), None)

    def unlisted(self, partition: Partition) -> list[Source]:
        """The files of mailboxes of this list that have lost their rows and their figures: the newest of each."""
        found: dict[int, Source] = {}
        identity, last = self.store.mailboxes.identity, self.store.mailboxes.last_identity()[0]
        coming = self.store.mailboxes.moves.mailboxes(*Phase)
        for source in self.all():
            head = source.head
            if source.partition == partition.name and head.store == identity and head.id <= last and (
                    head.id not in coming and self.store.known(head.id) is None) and (
                    partition.any_state(MailboxId(head.id)) is None) and (
                    not unlisted.is_former(self.store, partition, head)):
                found.setdefault(head.id, source)
        return list(found.values())


def contents_of(partition: Partition, entry: MailboxEntry, removed: int) -> tuple[Path, Contents] | None:
    """The mailbox's own file, if it is whole."""
    path = right_place(partition, entry, removed)
    try:
        there = idxreading.read(path)
    except StoreError:
        return None
    return (path, there) if there.head.id == entry.id and there.head.uidvalidity == entry.uidvalidity else None


def follow_files(store: Store, partition: Partition, mailboxes: list[MailboxId]) -> Iterator[Correction]:
    """Figures that are behind `store.idx` go on from it; records that are missing, or others than when it was written,
    come back from it. What it does not have stays. Raises StoreError."""
    for mailbox in mailboxes:
        found = store.known(mailbox)
        if found is None or found[0].partition != partition.name:
            continue
        if partition.transact(lambda txn, mailbox=mailbox: _come_back(txn, mailbox)):      # type: ignore[misc]
            yield Correction("its figures were of an epoch that its partition has not come to", str(found[0].name))
        there = contents_of(partition, *found)
        if there is not None:
            yield from _follow(store, partition, *found, *there)


def _follow(store: Store, partition: Partition, entry: MailboxEntry, removed: int, path: Path, contents: Contents
            ) -> Iterator[Correction]:
    source = Source(partition.name, path, contents.head, entry.name)
    uidnext, highest = figures_of(source, partition)
    state = partition.any_state(entry.id)
    if state is None or state.moving or bool(state.removed) != bool(removed):
        return
    if uidnext > state.uidnext or highest > state.highestmodseq:
        partition.transact(lambda txn: _raise(txn, entry.id, uidnext, highest))
        yield Correction("its figures were behind its store.idx", str(entry.name))
        state = partition.any_state(entry.id)
    if state is None:
        return
    desired = desired_of(partition, entry, removed, contents)
    if not is_as_written(state, contents.head):
        lost = _lost(partition, entry.id, state, desired, contents.head)
        if not len(lost):
            return
        desired = evolve(desired, state=state, own=None, rows=lost)
    done = Outcome()
    LiveCorrection(store, partition, desired, done, True).run()
    yield from done.corrections


def _lost(partition: Partition, mailbox: MailboxId, state: MailboxState, desired: DesiredMailbox, head: Head) -> Rows:
    """The records of the file that are neither in the mailbox, which has changed since, nor were expunged since."""
    assert desired.rows is not None
    there, broken = readable(mailbox, partition.index.scan(chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0)))
    gone = partition.vanished.since(mailbox, state, head.highestmodseq)
    if gone is None or broken or len(there) == state.messages:      # it is not known, or none is lost
        return desired.rows[:0]
    return take(desired.rows, ~np.isin(desired.rows["uid"], np.concatenate((there["uid"], gone))))


def _raise(txn: WriteTxn, mailbox: MailboxId, uidnext: int, highest: int) -> None:
    state = txn.any_state(mailbox)
    if state is not None:
        txn.set_state(mailbox, state, evolve(state, uidnext=max(state.uidnext, uidnext),
                                             highestmodseq=max(state.highestmodseq, highest)))


def _come_back(txn: WriteTxn, mailbox: MailboxId) -> bool:
    """Have figures of a later epoch than the partition's be of its epoch, and skip ahead, since nobody knows what has
    been shown; whether they were."""
    state = txn.any_state(mailbox)
    if state is None or state.epoch <= txn.partition.epoch:
        return False
    modseq = state.highestmodseq + MODSEQ_SKIP
    txn.set_state(mailbox, state, evolve(state, epoch=txn.partition.epoch, highestmodseq=modseq, changed=modseq,
                                         uidnext=min(state.uidnext + UID_SKIP, MAX_UID)))
    return True


def skip_ahead(txn: WriteTxn, mailbox: MailboxId, before: MailboxState) -> None:
    """What may have been shown since must not come to mean something else."""
    state = txn.any_state(mailbox)
    if state is not None and state.highestmodseq < before.highestmodseq + MODSEQ_SKIP:
        modseq = state.highestmodseq + MODSEQ_SKIP
        txn.set_state(mailbox, state, evolve(state, uidnext=min(state.uidnext + UID_SKIP, MAX_UID),
                                             highestmodseq=modseq, changed=modseq, log_since=modseq))


def desired_of(partition: Partition, entry: MailboxEntry, removed: int, contents: Contents) -> DesiredMailbox:
    """What the file says that the mailbox is to be; it may lack some."""
    head = contents.head
    return DesiredMailbox(entry, written_state(head), numbered(partition, contents.rows, contents.private_headers),
                          removed, own_of(head, contents.own), complete=False)
