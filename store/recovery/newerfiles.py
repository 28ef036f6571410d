"""A mailbox whose `store.idx` knows of changes that the databases do not have takes over what is newer in it: messages,
flags and keywords, and what was expunged.

No crash makes this (a file is written when all that it tells is on disk), but an older database that nobody has
recognised as such, or a row that damage took. The file is kept under another name, in `<partition>/set-aside/`.

The mailbox may have gone on since it was put back. What came into it after the file was written stays; of two changes
of one message the one with the greater MODSEQ counts. A UID that meant one message in the file and means another one
now goes: both messages get a new one. The mailbox skips ahead of all UIDs and MODSEQs that the file can have shown.
"""

import logging
import os
import time
from functools import partial

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.setaside import ASIDE
from store.errors import StoreError
from store.message.cacherecord import CachedMessage
from store.partition.filecontent import look
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.rebuild.desired import numbered, own_of
from store.rebuild.emptying import stamp
from store.rebuild.recount import recount_references, recount_some
from store.store import Store
from store.tables.index import MAX_UID, Rows, joined, split, take
from store.tables.references import UNSEEN_TRACE, MessageRecord
from store.tables.state import MAX_KEYWORDS, MODSEQ_SKIP, UID_SKIP, MailboxState, counted
from store.userarea import idxfile, idxreading
from store.userarea.idxfile import Head
from store.userarea.idxreading import Salvaged
from store.userarea.writing import right_place

log = logging.getLogger(__name__)

Uses = set[tuple[int, bytes]]       # UID and digest


@frozen
class Taken:
    """How many messages came, went, and have other flags now."""

    added: int = 0
    expunged: int = 0
    changed: int = 0


def take_in(store: Store, partition: Partition, mailbox: MailboxId) -> int:
    """Do it for a mailbox of `Partition.outdated`; how many messages it was about. When it was the last one the log is
    told of all. Raises StoreError, OSError."""
    taken = _take_in(store, partition, mailbox)
    if taken != Taken():
        partition.taken_in.append((taken.added, taken.expunged, taken.changed))
    if partition.taken_in and not partition.outdated:
        log.error("%d mailboxes on partition %s were older than their store.idx: %d messages came back from it, "
                  "%d were expunged by it, %d have its flags; the files are kept in %s", len(partition.taken_in),
                  partition.name, *map(sum, zip(*partition.taken_in, strict=True)), partition.folder / ASIDE)
        partition.taken_in.clear()
    return taken.added + taken.expunged + taken.changed


def _take_in(store: Store, partition: Partition, mailbox: MailboxId) -> Taken:
    found = store.known(mailbox)
    if found is None or found[0].partition != partition.name:
        partition.outdated.discard(mailbox)
        return Taken()
    path = right_place(partition, *found)
    left = idxreading.read_what_is_left(path)
    folder = partition.folder / ASIDE
    privatefiles.make_folder(folder, exist_ok=True)
    kept = folder / f"{idxfile.NAME}-{mailbox}-{stamp(time.time())}"
    if not kept.exists():
        os.link(path, kept)
        sync_folder(folder)
    _make_known(partition, left.rows)
    rows = numbered(partition, left.rows, left.private_headers)
    buried = {(int(row["uid"]), bytes(row["digest"])) for item in partition.removed.all() if item.mailbox == mailbox
              for row in item.rows}
    taken = partition.transact(lambda txn: _merge(txn, found[0], left, rows, buried))
    for correction in recount_some(store, partition, [mailbox])[0] + recount_references(partition):
        log.debug("repaired %s: %s", correction.where, correction.what)
    partition.flush()
    if left.head is not None:
        partition.merged[mailbox] = left.head.written
    partition.outdated.discard(mailbox)
    partition.unwritten.changed.add(mailbox)
    if taken == Taken():
        kept.unlink(missing_ok=True)
    else:
        log.debug("%s was older than its store.idx; the file is kept as %s", found[0].name, kept)
    return taken


def _merge(txn: WriteTxn, entry: MailboxEntry, left: Salvaged, rows: Rows, buried: Uses) -> Taken:
    """Have what is newer in the file, and skip ahead of all that it can have shown. `buried`: what can be undeleted."""
    before, there, head = txn.any_state(entry.id), txn.load(entry.id), left.head
    if before is None or head is None:
        return Taken()
    behind = max(0, before.epoch - head.epoch) + 1
    modseq = max(before.highestmodseq, head.highestmodseq + behind * MODSEQ_SKIP) + 1
    keywords, bits = _keywords(before, head)
    file = _translated(rows, bits)
    usable = _usable(txn, file)
    known = _among(there, buried)       # a UID that was expunged never comes again
    gone = take(there, known if left.findings else known | _is_expunged(there, file, head))
    kept = take(there, ~np.isin(there["uid"], gone["uid"]))
    changed = _take_flags(kept, file, modseq)
    doubtful, gone_here = _doubtful(kept, file, head), _expunged_here(txn, entry.id, before)
    lacking = ~np.isin(usable["uid"], kept["uid"][~doubtful])
    other = np.isin(usable["uid"], np.concatenate((kept["uid"][doubtful], gone_here)))
    new = take(usable, lacking & ~other)
    moved = joined(take(kept, doubtful), take(usable, lacking & other & ~_are_buried(usable, gone_here, buried)))
    uidnext = min(max(before.uidnext, head.uidnext + behind * UID_SKIP), MAX_UID - len(moved))
    moved["uid"] = np.arange(uidnext, uidnext + len(moved))
    came = joined(new, moved)
    came["modseq"] = modseq
    every = joined(take(kept, ~doubtful), came)
    every = take(every, np.argsort(every["uid"], kind="stable"))
    _write(txn, entry.id, there, every)
    lost = take(gone, ~_among(gone, buried))
    if len(lost):
        txn.partition.removed.keep(int(time.time()), entry.id, modseq, keywords, lost, txn.handle, held=True)
    _take_own(txn, entry.id, left, modseq)
    txn.partition.uidls.put(entry.id, {int(uid): left.uidls[int(uid)] for uid in new["uid"] if int(uid) in left.uidls},
                            txn.handle)
    txn.partition.uidls.correct(entry.id, every, txn.handle)
    after = counted(evolve(before, uidnext=uidnext + len(moved), highestmodseq=modseq, changed=modseq, log_since=modseq,
                           keywords=keywords), every)
    if not before.removed:
        txn.charge(before, after.octets - before.octets, after.messages - before.messages, enforce=False)
    txn.set_state(entry.id, before, after)
    return Taken(len(every) - len(kept), len(gone), changed)


def _keywords(before: MailboxState, head: Head) -> tuple[tuple[str, ...], dict[int, int]]:
    """The keywords of both, and which bit each one of the file has among them."""
    keywords, bits = list(before.keywords), {}
    for bit, name in enumerate(head.keywords):
        known = [keyword.lower() for keyword in keywords]
        if name.lower() not in known and len(keywords) < MAX_KEYWORDS:
            known.append(name.lower())
            keywords.append(name)
        if name.lower() in known:
            bits[bit] = known.index(name.lower())
    return tuple(keywords), bits


def _translated(rows: Rows, bits: dict[int, int]) -> Rows:
    """A copy of the records, with the bits that their keywords have in the mailbox."""
    rows, old = rows.copy(), rows["keywords"].copy()
    rows["keywords"] = 0
    for bit, new in bits.items():
        rows["keywords"] |= (old >> np.uint64(bit) & np.uint64(1)) << np.uint64(new)
    return rows


def _make_known(partition: Partition, rows: Rows) -> None:
    """Have records of the message files that are there, and that the databases know nothing of any more."""
    for digest in {bytes(row["digest"]) for row in rows}:
        if partition.refs.find(digest, raw=True) is None:
            serial = partition.serials.next_serial()
            try:
                _, found = look(partition.files, digest, serial)
                if found is None:                               # it is missing, too, or damaged
                    continue
                record = MessageRecord(serial, 0, found[1], found[0])
                cached = partition.serials.render_cached(digest, record)
            except StoreError:                                  # the disk does not say: who needs it first looks again
                record, cached = MessageRecord(serial, 0, 0, UNSEEN_TRACE), None
            partition.transact(partial(_know, digest, record, cached))


def _know(digest: bytes, record: MessageRecord, cached: CachedMessage | None, txn: WriteTxn) -> None:
    if txn.refs.find_to_change(digest, txn.handle, raw=True) is None:
        txn.refs.write(digest, record, txn.handle)
        if cached is not None:
            txn.partition.serials.write_cached(record.serial, cached, txn.handle)


def _usable(txn: WriteTxn, rows: Rows) -> Rows:
    """Those whose message files are known and there."""
    usable: NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
    rows = rows.copy()
    for at, row in enumerate(rows):
        digest = bytes(row["digest"])
        record = txn.refs.find(digest, txn.handle, raw=True)
        if record is not None and txn.partition.files.may_be_there(digest, record.serial):
            rows[at]["serial"], usable[at] = record.serial, True
    return take(rows, usable)


def _is_expunged(there: Rows, file: Rows, head: Head) -> NDArray[np.bool_]:
    """What the file does not have any more of what had come before it was written."""
    return np.asarray((there["uid"] < head.uidnext) & ~np.isin(there["uid"], file["uid"]) & ~_came_later(there, head))


def _among(rows: Rows, uses: Uses) -> NDArray[np.bool_]:
    pairs = zip(rows["uid"].tolist(), rows["digest"].tolist(), strict=True)
    return np.fromiter((pair in uses for pair in pairs), np.bool_, len(rows))


def _came_later(there: Rows, head: Head) -> NDArray[np.bool_]:
    return np.asarray(there["saved"] > head.written // 10 ** 9)


def _expunged_here(txn: WriteTxn, mailbox: MailboxId, before: MailboxState) -> NDArray[np.uint32]:
    """The UIDs that were expunged in the mailbox as it is now, as far as that is known."""
    gone = txn.partition.vanished.since(mailbox, before, before.log_since, txn.handle)
    return np.empty(0, np.uint32) if gone is None else gone


def _are_buried(rows: Rows, gone: NDArray[np.uint32], buried: Uses) -> NDArray[np.bool_]:
    """Which of these messages were themselves expunged in the mailbox as it is now: not another one with that UID."""
    others = np.array([uid for uid, _ in buried], np.uint32)
    return np.isin(rows["uid"], gone) & (_among(rows, buried) | ~np.isin(rows["uid"], others))


def _doubtful(kept: Rows, file: Rows, head: Head) -> NDArray[np.bool_]:
    """Whose UIDs meant other messages in the file, or may have."""
    _, here, there = np.intersect1d(kept["uid"], file["uid"], assume_unique=True, return_indices=True)
    doubtful = (kept["uid"] < head.uidnext) & ~np.isin(kept["uid"], file["uid"]) & _came_later(kept, head)
    doubtful[here] = kept["digest"][here] != file["digest"][there]
    return np.asarray(doubtful)


def _take_flags(kept: Rows, file: Rows, modseq: int) -> int:
    """Have flags and keywords as the file has them, where those are newer; of how many messages."""
    _, here, there = np.intersect1d(kept["uid"], file["uid"], assume_unique=True, return_indices=True)
    have, said = take(kept, here), take(file, there)
    newer = (have["digest"] == said["digest"]) & (said["modseq"] >= have["modseq"]) & (
        (have["flags"] != said["flags"]) | (have["keywords"] != said["keywords"]))
    for name in ("flags", "keywords"):
        kept[name][here[newer]] = said[name][newer]
    kept["modseq"][here[newer]] = modseq
    return int(np.count_nonzero(newer))


def _take_own(txn: WriteTxn, mailbox: MailboxId, left: Salvaged, modseq: int) -> None:
    """Have readers' own flags as the file has them, where those are newer."""
    assert left.head is not None
    for number, reader, said in own_of(left.head, left.own):
        have = txn.partition.readers.chunk(mailbox, number, reader, txn.handle)
        newer = (said["modseq"] >= have["modseq"]) & (said["flags"] != have["flags"])
        if newer.any():
            have["flags"][newer], have["modseq"][newer] = said["flags"][newer], modseq
            txn.put_own(mailbox, number, reader, have)


def _write(txn: WriteTxn, mailbox: MailboxId, old: Rows, rows: Rows) -> None:
    """Write the chunks that differ."""
    before, after = dict(split(old)), dict(split(rows))
    for number in sorted(before.keys() | after.keys()):
        part = after.get(number, rows[:0])
        if part.tobytes() != before.get(number, rows[:0]).tobytes():
            txn.put_chunk(mailbox, number, part)
