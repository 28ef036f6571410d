"""Expunge: records go, references are given back, and a file without any waits for the purge (RFC 3501 §6.4.3)."""

import itertools
import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.kv import Txn, transact
from store.index import Rows, take
from store.mailbox import MailboxState
from store.partition import Partition
from store.refs import tally
from store.txn import WriteTxn, places, sorted_uids
from store.values import Flag

if TYPE_CHECKING:
    from store.store import Store

log = logging.getLogger(__name__)

BATCH = 1000                # rows that the purge reads, or forgets, at a time


def expunge(store: "Store", entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32] | None = None
            ) -> list[int]:
    """Remove the messages with \\Deleted, of `uids` or of all (RFC 4315 §2.1); the UIDs removed. Not flushed."""
    def work(txn: WriteTxn) -> list[int]:
        state = txn.state(entry.id)
        if not state.deleted:
            return []
        wanted = None if uids is None else sorted_uids(uids)
        rows = txn.load(entry.id) if wanted is None else txn.rows_of(entry.id, wanted)
        return take_out(txn, entry.id, state, take(rows, rows["flags"] & np.uint16(Flag.DELETED) != 0))

    return store.transact(entry, work)


def remove(store: "Store", entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32]) -> list[int]:
    """Remove these messages, flagged or not; the UIDs that were there. Not flushed."""
    def work(txn: WriteTxn) -> list[int]:
        state = txn.state(entry.id)
        return take_out(txn, entry.id, state, txn.rows_of(entry.id, sorted_uids(uids)))

    return store.transact(entry, work)


def take_out(txn: WriteTxn, mailbox: MailboxId, state: MailboxState, gone: Rows, *, same_modseq: bool = False,
             release: bool = True) -> list[int]:
    """Take records out of their mailbox, and give back the quota and (with `release`) the references.

    What is released is kept for `undelete`. `same_modseq` says that this transaction has already given the mailbox a
    new HIGHESTMODSEQ.
    """
    if not len(gone):
        return []
    uids = gone["uid"]
    rows = txn.load(mailbox, uids)
    kept = np.ones(len(rows), np.bool_)
    kept[places(rows, uids)] = False
    txn.rewrite(mailbox, rows, ~kept, kept)
    octets = int(gone["size"].sum())
    txn.charge(state, -octets, -len(gone))
    modseq = state.highestmodseq + (not same_modseq)
    unseen = len(gone) - int(np.count_nonzero(gone["flags"] & np.uint16(Flag.SEEN)))
    deleted = int(np.count_nonzero(gone["flags"] & np.uint16(Flag.DELETED)))
    after = evolve(
        state, highestmodseq=modseq, changed=modseq, messages=state.messages - len(gone), unseen=state.unseen - unseen,
        deleted=state.deleted - deleted, octets=state.octets - octets)
    txn.set_state(mailbox, state, txn.partition.vanished.record(mailbox, after, uids, txn.handle))
    if release:
        now = int(time.time())
        txn.partition.removed.keep(now, mailbox, modseq, state.keywords, gone, txn.handle)
        for mid, count, check in tally(mailbox, gone):
            txn.refs.release(mid, count, check, txn.handle, now)
    uidlist: list[int] = uids.tolist()
    txn.partition.uidls.drop(mailbox, uidlist, txn.handle)
    return uidlist


def purge(partition: Partition, now: float | None = None, most: int = 1000) -> int:
    """Remove up to `most` of the message files that are `due`; how many."""
    return sum(purge_one(partition, *item) for item in itertools.islice(due(partition, now), most))


def due(partition: Partition, now: float | None = None) -> Iterator[tuple[int, bytes]]:
    """The message files whose last reference went longer ago than the purge delay: when, and the digest.

    What was expunged as long ago can no longer be brought back. A snapshot keeps the files that had references when it
    was made. No transaction is open while the caller has its turn.
    """
    until = min(int(time.time() if now is None else now) - partition.settings.purge_delay, partition.kept_since() - 1)
    while _forget_expunged(partition, until):
        pass
    partition.flush()           # nothing can bring them back any more, also after a crash: now their files may go
    batch: list[tuple[int, bytes]] = [(0, b"")]
    while batch := list(itertools.islice(partition.refs.waiting(until, batch[-1]), BATCH)):
        yield from batch


def _forget_expunged(partition: Partition, until: int) -> int:
    def work(txn: Txn) -> int:
        items = list(itertools.islice(partition.removed.all(until, txn), BATCH))
        for item in items:
            partition.removed.forget(item, txn)
        return len(items)
    return transact(partition.env, work)


def purge_one(partition: Partition, released: int, mid: bytes) -> bool:
    """Remove a message file that is due, unless it has references again; whether it has gone.

    It goes while its row is locked, so that a message arriving with the same content waits, and comes anew. Cut off in
    the middle, this leaves a record without references and without file, which `deliver` knows how to read.
    """
    def work(txn: Txn) -> bool:
        record = partition.refs.find_to_change(mid, txn)
        doomed = record is not None and not record.references and record.released == released
        if doomed and record is not None:
            partition.forget_cached(record.serial, txn)
            partition.files.remove(mid, record.serial)
        partition.refs.forget(released, mid, doomed, txn)
        return doomed

    gone = transact(partition.env, work)
    if gone:
        log.info("purged message %s", mid.hex())
    return gone
