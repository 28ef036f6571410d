"""Records, figures and cache records put into a store in bulk: for a store that is made, or made anew, by somebody who
knows all of it beforehand. Everything that is loaded twice is the same as if it were loaded once."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.engine.kv import transact
from mboxlist.entry import MailboxEntry, MailboxId
from store.message.cacherecord import CachedMessage
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.store import Store
from store.tables.index import CHUNK, Rows
from store.tables.references import MessageRecord
from store.tables.state import MailboxState

MESSAGES = 1000             # of one transaction
CHUNKS = 256                # chunks of records of one transaction
MAILBOXES = 256             # whose rows of the list are written in one transaction,
OCTETS = 64 << 20           # or fewer, when their records have so much
VOLUME = 256 << 20          # octets of log after which there is a checkpoint

Own = tuple[int, str, NDArray[Any]]         # chunk, reader, flags
Known = tuple[bytes, MessageRecord, bytes]          # digest; what is to be known; the cache record as it is stored


@frozen(eq=False)
class Loaded:
    """A mailbox that is to be loaded. `removed` is the Unix time at which it was deleted, or 0; `annotations` are entry
    name, user and value; `subscriptions` are the owner's, in an INBOX; `uidls` see `uidls`."""

    entry: MailboxEntry
    state: MailboxState
    rows: Rows
    removed: int = 0
    own: Sequence[Own] = ()
    annotations: Sequence[tuple[str, str, bytes]] = ()
    subscriptions: Sequence[str] = field(factory=tuple)
    uidls: Mapping[int, bytes] = field(factory=dict)


def load_messages(partition: Partition, messages: Sequence[Known]) -> int:
    """Have the partition know these message files, with their references; how many there were. The more at a time, the
    quicker: each table is written in its own order.

    Raises StoreError DISK_FULL, UNAVAILABLE.
    """
    for some in _pieces(sorted(messages, key=lambda known: known[1].serial)):
        partition.transact(lambda txn, some=some: _write_cached(txn, some))     # type: ignore[misc]
        tidy(partition)
    for some in _pieces(sorted(messages, key=lambda known: known[0])):
        partition.transact(lambda txn, some=some: _write_records(txn, some))    # type: ignore[misc]
        tidy(partition)
    return len(messages)


def _write_cached(txn: WriteTxn, some: Sequence[Known]) -> None:
    for _, record, cached in some:
        txn.partition.write_cached(record.serial, CachedMessage.from_bytes(cached), txn.handle)


def _write_records(txn: WriteTxn, some: Sequence[Known]) -> None:
    for digest, record, _ in some:
        txn.refs.write(digest, record, txn.handle)


def _pieces(messages: Sequence[Known]) -> Iterator[Sequence[Known]]:
    return (messages[at:at + MESSAGES] for at in range(0, len(messages), MESSAGES))


def tidy(partition: Partition) -> None:
    """Keep the log short."""
    partition.env.checkpoint(VOLUME)
    if partition.settings.log_archive is None:
        partition.env.drop_logs(most=2 * partition.settings.snapshot_logs)


def load_mailboxes(store: Store, partition: Partition, every: Iterable[Loaded]) -> int:
    """Put mailboxes into a partition and into the list, but for those that the list has already; how many.

    Their message files, with all references, are loaded for themselves. What the list has is on the partition's disk.
    Raises StoreError DISK_FULL, UNAVAILABLE.
    """
    done, every = 0, (loaded for loaded in every if not _is_listed(store, loaded.entry.id))
    while batch := list(_some(every)):
        for loaded in batch:
            _load(partition, loaded)
        partition.flush()
        tidy(partition)
        transact(store.mailboxes.env, lambda txn, batch=batch: _list(store, batch, txn))    # type: ignore[misc]
        done += len(batch)
    store.mailboxes.env.flush()
    return done


def _some(every: Iterator[Loaded]) -> Iterator[Loaded]:
    """As many as are held at a time."""
    octets = 0
    for loaded in islice(every, MAILBOXES):
        yield loaded
        octets += loaded.rows.nbytes
        if octets >= OCTETS:
            return


def _is_listed(store: Store, mailbox: MailboxId) -> bool:
    return store.mailboxes.find_id(mailbox) is not None or store.mailboxes.deleted.find(mailbox) is not None


def _load(partition: Partition, loaded: Loaded) -> None:
    chunks = split(loaded.rows)
    for at in range(0, len(chunks), CHUNKS):
        partition.transact(lambda txn, some=chunks[at:at + CHUNKS]: [       # type: ignore[misc]
            txn.put_chunk(loaded.entry.id, number, part) for number, part in some])
    partition.transact(lambda txn: _figures(txn, loaded))
    partition.unwritten.changed.add(loaded.entry.id)


def split(rows: Rows) -> list[tuple[int, Rows]]:
    """Records by the number of their chunk."""
    if not len(rows):
        return []
    numbers, starts = np.unique((rows["uid"] - 1) // CHUNK, return_index=True)
    ends = [*starts[1:].tolist(), len(rows)]
    return [(number, rows[start:end]) for number, start, end in zip(numbers.tolist(), starts.tolist(), ends,
                                                                    strict=True)]


def _figures(txn: WriteTxn, loaded: Loaded) -> None:
    """Figures and the use of the quota in one transaction; those that a cut-off load left are exchanged."""
    before = txn.any_state(loaded.entry.id)
    if before is not None and not before.removed:
        txn.charge(before, -before.octets, -before.messages, enforce=False)
    state = evolve(loaded.state, epoch=txn.partition.epoch)
    txn.set_state(loaded.entry.id, None, state)
    if not state.removed:
        txn.charge(state, state.octets, state.messages, enforce=False)
    for number, reader, flags in loaded.own:
        txn.put_own(loaded.entry.id, number, reader, flags)
    txn.partition.uidls.put(loaded.entry.id, loaded.uidls, txn.handle)


def _list(store: Store, batch: Sequence[Loaded], txn: Txn) -> None:
    mailboxes = store.mailboxes
    for loaded in batch:
        entry = loaded.entry
        for name, user, value in loaded.annotations:
            with contextlib.suppress(ValueError):       # what nobody could have set
                mailboxes.annotations.set(entry.id, name, value, txn, user)
        if loaded.removed:
            mailboxes.deleted.add(entry, loaded.removed, txn)
            continue
        mailboxes.write(entry, txn)
        if entry.name.is_inbox():
            for name in loaded.subscriptions:
                mailboxes.subscriptions.add(entry.name.owner, name, txn)


def never_again(store: Store, mailbox: int, validity: int) -> None:
    """Have the list give out neither this id and UIDVALIDITY nor smaller ones; on disk."""
    transact(store.mailboxes.env, lambda txn: store.mailboxes.skip_identities(MailboxId(mailbox), validity, txn))
    store.mailboxes.env.flush()
