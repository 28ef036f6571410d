"""Mailboxes that are in the list and have no figures (state.db): made again from their records and `store.idx`."""

from collections.abc import Iterator

from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from store.mailboxes import namespace
from store.mend.idxfiles import contents_of, desired_of, skip_ahead
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.rebuild.desired import state_of
from store.rebuild.livecorrection import LiveCorrection
from store.rebuild.outcome import Correction, Outcome
from store.rebuild.recount import count_what_is_due, note_uncounted
from store.rebuild.salvage import readable
from store.rebuild.userareascan import Source
from store.store import Store
from store.tables.index import chunk_key


def restore_figures(store: Store) -> list[Correction]:
    """Of all mailboxes that have none; then what hangs on these is counted. Raises StoreError."""
    deleted = [(entry, when) for when, entry in store.mailboxes.deleted.all()]
    done = []
    for entry, removed in [*((entry, 0) for entry in store.mailboxes.all()), *deleted]:
        partition = store.partitions.get(entry.partition)
        if partition is not None and partition.any_state(entry.id) is None:
            done += restore(store, partition, entry, removed)
    return done + [each for partition in store.writable.values() for each in count_what_is_due(partition)]


def restore(store: Store, partition: Partition, entry: MailboxEntry, removed: int = 0) -> list[Correction]:
    """Of one that has none; references and quota are to be counted again then (`count_what_is_due`), which is on record
    before anything is done. Raises StoreError."""
    partition.transact(note_uncounted)
    done = list(_restore(store, partition, entry, removed))
    partition.unwritten.changed.add(entry.id)
    return done


def _restore(store: Store, partition: Partition, entry: MailboxEntry, removed: int) -> Iterator[Correction]:
    there = contents_of(partition, entry, removed)
    chunks = list(partition.index.scan(chunk_key(entry.id, 0), chunk_key(MailboxId(entry.id + 1), 0)))
    if there is None and not chunks:
        yield from _made_empty(store, partition, entry, removed)
        return
    rows, broken = readable(entry.id, chunks)
    source = Source(partition.name, there[0], there[1].head, entry.name) if there is not None else None
    state, done = state_of(partition, entry, rows, source, removed=removed), Outcome()
    correction = None if there is None else LiveCorrection(
        store, partition, desired_of(partition, entry, removed, there[1]), done, True)

    def write(txn: WriteTxn) -> list[str]:
        """All in one: who finds figures, also after a kill, takes the mailbox for whole."""
        if txn.any_state(entry.id) is not None:
            return []
        partition.vanished.forget(entry.id, txn.handle)
        txn.set_state(entry.id, None, state)
        texts = [] if correction is None else correction.put_back(txn, entry.id, state)
        skip_ahead(txn, entry.id, state)
        return texts

    texts = partition.transact(write)
    if correction is not None and broken:
        correction.run()
    yield from (Correction(what, str(entry.name)) for what in ("its figures were lost", *texts))
    yield from done.corrections


def _made_empty(store: Store, partition: Partition, entry: MailboxEntry, removed: int) -> Iterator[Correction]:
    """Nothing is left of it."""
    if removed:
        transact(store.mailboxes.env, lambda txn: store.mailboxes.deleted.remove(entry.id, txn))
        yield Correction("nothing was left of it: it cannot be restored any more", f"{entry.name} (deleted)")
        return
    namespace.insert_mailbox(store, entry.name, partition.name, entry.special_use, replace=True, acl=dict(entry.acl))
    yield Correction("nothing was left of it: it is there again, empty, with a new UIDVALIDITY", str(entry.name))
