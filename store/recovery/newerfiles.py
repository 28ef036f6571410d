"""A mailbox whose `store.idx` knows of changes that the databases do not have takes over the messages that it lacks.

No crash makes this (a file is written when all that it tells is on disk), but an older database that nobody has
recognised as such, or a row that damage took. The file is kept under another name, in `<partition>/set-aside/`.
"""

import logging
import os
import time

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.setaside import ASIDE
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.rebuild.desired import numbered
from store.rebuild.emptying import stamp
from store.rebuild.recount import recount_some
from store.store import Store
from store.tables.index import Rows, split, take
from store.tables.state import MODSEQ_SKIP, UID_SKIP, MailboxState, counted
from store.userarea import idxfile
from store.userarea.idxfile import Salvaged
from store.userarea.writing import right_place

log = logging.getLogger(__name__)


def take_in(store: Store, partition: Partition, mailbox: MailboxId) -> int:
    """Do it for a mailbox of `Partition.outdated`; how many messages it has got. Raises StoreError, OSError."""
    found = store.known(mailbox)
    if found is None or found[0].partition != partition.name:
        partition.outdated.discard(mailbox)
        return 0
    path = right_place(partition, *found)
    left = idxfile.read_what_is_left(path)
    folder = partition.folder / ASIDE
    privatefiles.make_folder(folder, exist_ok=True)
    kept = folder / f"{idxfile.NAME}-{mailbox}-{stamp(time.time())}"
    if not kept.exists():
        os.link(path, kept)
        sync_folder(folder)
    rows = numbered(partition, left.rows, left.private_headers)
    added = partition.transact(lambda txn: _add(txn, found[0], left, rows))
    for correction in recount_some(store, partition, [mailbox])[0]:
        log.warning("repaired %s: %s", correction.where, correction.what)
    partition.flush()
    partition.outdated.discard(mailbox)
    partition.unwritten.changed.add(mailbox)
    log.error("%s was older than its store.idx, and has got %d messages from it; the file is kept as %s", found[0].name,
              added, kept)
    return added


def _add(txn: WriteTxn, entry: MailboxEntry, left: Salvaged, rows: Rows) -> int:
    """Have the records that the mailbox lacks, and skip ahead of all that the file can have seen."""
    before, there = txn.any_state(entry.id), txn.load(entry.id)
    if before is None or left.head is None:
        return 0
    gone = txn.partition.vanished.since(entry.id, before, before.log_since, txn.handle)
    lacking = ~np.isin(rows["uid"], there["uid"])
    if gone is not None:
        lacking &= ~np.isin(rows["uid"], gone)
    new = _usable(txn, take(rows, lacking))
    behind = max(0, before.epoch - left.head.epoch) + 1
    modseq = max(before.highestmodseq, left.head.highestmodseq + behind * MODSEQ_SKIP) + 1
    new["modseq"] = modseq
    every = np.concatenate([there, new])
    every = every[np.argsort(every["uid"], kind="stable")]
    for number, part in split(every):
        if _has_any(part, new):
            txn.put_chunk(entry.id, number, part)
    after = counted(_ahead(before, left, modseq, behind), every)
    txn.charge(before, after.octets - before.octets, after.messages - before.messages, enforce=False)
    txn.set_state(entry.id, before, after)
    return len(new)


def _ahead(before: MailboxState, left: Salvaged, modseq: int, behind: int) -> MailboxState:
    assert left.head is not None
    keywords = left.head.keywords if len(left.head.keywords) > len(before.keywords) else before.keywords
    return evolve(before, uidnext=max(before.uidnext, left.head.uidnext + behind * UID_SKIP), highestmodseq=modseq,
                  changed=modseq, log_since=modseq, keywords=tuple(keywords))


def _has_any(part: Rows, new: Rows) -> bool:
    return bool(np.isin(new["uid"], part["uid"]).any())


def _usable(txn: WriteTxn, rows: Rows) -> Rows:
    """Those whose message files are known and there."""
    usable: NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
    rows = rows.copy()
    for at, row in enumerate(rows):
        digest = bytes(row["digest"])
        record = txn.refs.find(digest, txn.handle)
        if record is not None and txn.partition.files.locate(digest, record.serial) is not None:
            rows[at]["serial"], usable[at] = record.serial, True
    return rows[usable]
