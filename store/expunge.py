"""Expunge: records go, references are given back, and a file without any waits for the purge (RFC 3501 §6.4.3)."""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from mboxlist.kv import Txn, transact
from store.index import Rows, joined, take
from store.mailbox import MailboxState
from store.partition import Partition
from store.txn import WriteTxn, places, sorted_uids
from store.values import Flag

if TYPE_CHECKING:
    from store.store import Store

log = logging.getLogger(__name__)


def expunge(store: "Store", entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32] | None = None
            ) -> list[int]:
    """Remove the messages with \\Deleted, of `uids` or of all (RFC 4315 §2.1); the UIDs removed. Not flushed."""
    def work(txn: WriteTxn) -> list[int]:
        state = txn.state(entry.id)
        if not state.deleted:
            return []
        wanted = None if uids is None else sorted_uids(uids)
        found = [take(rows, rows["flags"] & np.uint16(Flag.DELETED) != 0) for _, rows in txn.chunks(entry.id, wanted)]
        if not found:
            return []
        rows = joined(*found)
        return take_out(txn, entry, state, rows if wanted is None else take(rows, np.isin(rows["uid"], wanted)))

    return store.partition_of(entry).transact(work)


def remove(store: "Store", entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32]) -> list[int]:
    """Remove these messages, flagged or not; the UIDs that were there. Not flushed."""
    def work(txn: WriteTxn) -> list[int]:
        state = txn.state(entry.id)
        return take_out(txn, entry, state, txn.rows_of(entry.id, sorted_uids(uids)))

    return store.partition_of(entry).transact(work)


def take_out(txn: WriteTxn, entry: MailboxEntry, state: MailboxState, gone: Rows, *, same_modseq: bool = False,
             release: bool = True) -> list[int]:
    """Take records out of their mailbox, and give back the quota and (with `release`) the references.

    `same_modseq` says that this transaction has already given the mailbox a new HIGHESTMODSEQ.
    """
    if not len(gone):
        return []
    uids = gone["uid"]
    for number, rows in txn.chunks(entry.id, uids):
        kept = np.ones(len(rows), np.bool_)
        kept[places(rows, uids)] = False
        txn.put_chunk(entry.id, number, take(rows, kept))
    octets = int(gone["size"].sum())
    txn.charge(entry, -octets, -len(gone))
    modseq = state.highestmodseq + (not same_modseq)
    unseen = len(gone) - int(np.count_nonzero(gone["flags"] & np.uint16(Flag.SEEN)))
    deleted = int(np.count_nonzero(gone["flags"] & np.uint16(Flag.DELETED)))
    txn.set_state(entry.id, state, evolve(
        state, highestmodseq=modseq, changed=modseq, messages=state.messages - len(gone), unseen=state.unseen - unseen,
        deleted=state.deleted - deleted, octets=state.octets - octets))
    if release:
        for mid, count in sorted(Counter(bytes(mid) for mid in gone["mid"]).items()):
            txn.refs.release(mid, count, txn.handle)
    return [int(uid) for uid in uids]


def purge(partition: Partition, now: float | None = None, most: int = 1000) -> int:
    """Remove up to `most` message files whose last reference went longer ago than the purge delay; how many."""
    until = int(time.time() if now is None else now) - partition.settings.purge_delay
    due = []
    for item in partition.refs.waiting(until):
        due.append(item)
        if len(due) == most:
            break
    return sum(_purge_one(partition, released, mid) for released, mid in due)


def _purge_one(partition: Partition, released: int, mid: bytes) -> bool:
    """The file goes while its row is locked, so that a message arriving with the same content waits, and comes anew.

    Cut off in the middle, it leaves a record without references and without file, which `deliver` knows how to read.
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
