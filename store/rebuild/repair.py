"""A mailbox with damaged chunks of records, made whole again from all that can be found out of its messages.

What the records were is found out from three sources. The chunk itself: where one bit has turned, most of it is as it
was. `store.idx`: what it has of a record counts if the record has not changed since. And `messages.db`: a message file
whose references are more than the records that can be read is used by damaged ones, and its check value says by which.
For the sum of the marks of those that are missing tells their mailboxes and UIDs, since no two references have the same
mark; so no UID can come to mean another message, and even where a whole chunk is lost, its messages and their UIDs can
be found out.

All records of a chunk that was damaged get a new MODSEQ, so that clients look at their flags again (RFC 7162 §3.1). If
any could not be restored the log of expunged UIDs starts again, so that clients hear of all UIDs that are not there
(§3.2.5.1). UIDVALIDITY stays.
"""

import logging
from typing import Any

import numpy as np
from attrs import define, evolve, field

from mboxlist import privatefiles
from mboxlist.entry import MailboxEntry, MailboxId
from store.errors import Problem, StoreError
from store.partition.transactions import WriteTxn
from store.rebuild.outcome import Correction
from store.rebuild.salvage import Chunk, Salvaged, broken_chunks, gather
from store.store import Store
from store.tables.index import ROW, Rows, chunk_key
from store.tables.privateheaders import LOST, renumbered
from store.tables.references import MessageRecord
from store.tables.state import MailboxState, counted
from store.userarea import idxreading
from store.userarea.writing import right_place
from store.values import Flag, InternalDate

log = logging.getLogger(__name__)

TRIES = 5                   # when the mailbox changes while its messages are looked for
ALL_FLAGS = np.uint16(sum(flag.value for flag in Flag))
_ZONE = 99 * 60 + 59        # minutes, the largest that a date can show (RFC 3501 §9, zone)
_LATEST = 1 << 33           # seconds, past every date of a message


class _Changed(Exception):
    """The chunk is no longer the one that was looked at."""


def repair_mailbox(store: Store, entry: MailboxEntry) -> list[Correction]:
    """Make the mailbox whole; what was done. No harm if it is whole. Flushed.

    Reads every record of the partition, and holds nobody up but the mailbox's own writers, for as long as its own
    chunks take. Raises StoreError BUSY, CORRUPT, NO_MAILBOX.
    """
    partition = store.partition_of(entry)
    where = f"{entry.name} (mailbox {entry.id})"
    done = [Correction(f"{reader}'s own flags of chunk {number} were damaged, and may be others now", where)
            for number, reader in partition.transact(lambda txn: mend_own_flags(txn, entry.id))]
    for _ in range(TRIES):
        if not broken_chunks(partition, entry.id):
            break
        salvaged = gather(partition)
        chunks = [chunk for chunk in salvaged.broken if chunk.mailbox == entry.id]
        copy = _copy(store, entry)
        try:
            done += [Correction(what, where) for what in partition.transact(
                lambda txn, salvaged=salvaged, chunks=chunks, copy=copy: _mend(  # type: ignore[misc]
                    txn, entry.id, chunks, salvaged, copy))]
            break
        except _Changed:
            continue
    else:
        raise StoreError(Problem.BUSY, detail=f"{where} changes all the time")
    partition.flush()
    partition.damaged.discard(entry.id)
    for correction in done:
        log.warning("repaired %s: %s", correction.where, correction.what)
    return done


def _copy(store: Store, entry: MailboxEntry) -> idxreading.Salvaged | None:
    """What `store.idx` has of the mailbox."""
    found = store.known(entry.id)
    if found is None:
        return None
    try:
        left = idxreading.read_what_is_left(right_place(store.partition_of(entry), *found))
    except StoreError:
        return None
    if left.head is None or (left.head.id, left.head.uidvalidity) != (entry.id, entry.uidvalidity):
        return None
    return left


# The repair

def _mend(txn: WriteTxn, mailbox: MailboxId, chunks: list[Chunk], salvaged: Salvaged, copy: idxreading.Salvaged | None
          ) -> list[str]:
    """Put whole chunks in the place of the broken ones; what was done. Raises _Changed, StoreError."""
    state = txn.any_state(mailbox)
    if state is None:
        raise StoreError(Problem.NO_MAILBOX)
    if state.moving:
        raise StoreError(Problem.BUSY, "The mailbox is being moved")
    table = txn.partition.index
    for chunk in chunks:
        if table.get_to_change(chunk_key(mailbox, chunk.number), txn.handle) != chunk.value:
            raise _Changed
    modseq = state.highestmodseq + 1
    salvage = _Salvage(txn, state, salvaged, copy, modseq)
    done = []
    for chunk in chunks:
        rows = salvage.rows_of(chunk)
        txn.put_chunk(mailbox, chunk.number, rows)
        done.append(f"index chunk {chunk.number} was damaged; it has {len(rows)} records now{salvage.sources()}")
    rows = txn.load(mailbox)
    unsure = np.isin(rows["uid"], salvage.unsure)
    if unsure.any() and state.octets == rows["size"].sum() + rows["header_length"][unsure].sum():
        rows["size"][unsure] += rows["header_length"][unsure]        # so they had the trace header, all of them
        rows["header_length"][unsure] = 0
        txn.rewrite(mailbox, rows, unsure)
    after = counted(evolve(state, highestmodseq=modseq, changed=modseq), rows)
    lost = state.messages - after.messages
    if lost > 0:
        done.append(f"{lost} messages are lost from it")
        after = evolve(after, log_since=modseq)         # clients hear of every UID that is not there
    if not state.removed:
        txn.charge(state, after.octets - state.octets, after.messages - state.messages, enforce=False)
    txn.set_state(mailbox, state, after)
    txn.partition.uidls.correct(mailbox, rows, txn.handle)
    return done


@define(eq=False)
class _Salvage:
    """Finds the records of damaged chunks of one mailbox."""

    _txn: WriteTxn
    _state: MailboxState
    _salvaged: Salvaged
    _copy: idxreading.Salvaged | None
    _modseq: int
    _open: dict[bytes, int] = field(init=False)
    _copies: dict[int, Any] = field(factory=dict, init=False)   # records of store.idx, by UID
    _written: int = field(default=0, init=False)                # and the MODSEQ that it knows
    _from_copy: int = field(default=0, init=False)
    _without_flags: int = field(default=0, init=False)
    unsure: list[int] = field(factory=list, init=False)     # UIDs that may have the trace header as part of them

    def __attrs_post_init__(self) -> None:
        self._open = dict(self._salvaged.open)
        if self._copy is not None and self._copy.head is not None:
            self._copies = {int(row["uid"]): row for row in _as_here(self._copy, self._state, self._txn)}
            self._written = self._copy.head.highestmodseq

    def rows_of(self, chunk: Chunk) -> Rows:
        """Its records."""
        self._from_copy = self._without_flags = 0
        by_uid: dict[int, Any] = {}
        by_mid: dict[bytes, Any] = {}
        for row in chunk.candidates():
            by_uid.setdefault(int(row["uid"]), row)
            by_mid.setdefault(bytes(row["digest"]), row)
        found: dict[int, Any] = {}
        placed = set()
        for (mailbox, uid), (digest, record) in self._salvaged.placed.items():
            if mailbox == chunk.mailbox and chunk.has(uid):
                near = by_uid.get(uid)
                row = near if near is not None and bytes(near["digest"]) == digest else by_mid.get(digest, near)
                found[uid] = self._record(uid, digest, record, row)
                placed.add(digest)
        for uid, row in by_uid.items():
            if chunk.has(uid) and uid not in found and bytes(row["digest"]) not in placed and uid < self._state.uidnext:
                self._take(found, uid, row)
        for uid, row in self._copies.items():
            if chunk.has(uid) and uid not in found and self._open.get(bytes(row["digest"])) and not self._expunged(
                    chunk.mailbox, uid):
                self._take(found, uid, row)
        return np.array([found[uid] for uid in sorted(found)], ROW) if found else np.empty(0, ROW)

    def sources(self) -> str:
        """Where they came from, for people."""
        return "".join([f", {self._from_copy} of them as store.idx has them" if self._from_copy else "",
                        f", {self._without_flags} of them without their flags" if self._without_flags else ""])

    def _take(self, found: dict[int, Any], uid: int, row: Any) -> None:
        """A record that is not certain, if all that can be compared agrees."""
        digest = bytes(row["digest"])
        record = self._txn.refs.find(digest, self._txn.handle)
        head = self._txn.partition.private_headers.get(int(row["head"]), self._txn.handle)
        if record is not None and head is not None and record.serial == row["serial"] \
                and record.size + len(head) == int(row["size"]) + int(row["header_length"]):
            found[uid] = self._record(uid, digest, record, row)
            self._open[digest] = self._open.get(digest, 0) - 1

    def _expunged(self, mailbox: MailboxId, uid: int) -> bool:
        """Whether it is on record that the UID went after store.idx was written."""
        gone = self._txn.partition.vanished.since(mailbox, self._state, self._written, self._txn.handle)
        return gone is not None and uid in gone

    def _record(self, uid: int, digest: bytes, record: MessageRecord, row: Any | None) -> Any:
        """The record of a message whose place is certain, with what else can be found out of it."""
        kept = self._copies.get(uid)
        if kept is not None and bytes(kept["digest"]) != digest:
            kept = None
        if kept is not None and (row is None or row["modseq"] <= kept["modseq"]
                                 or row["modseq"] > self._state.highestmodseq):
            self._from_copy += row is None or row.tobytes() != kept.tobytes()
            row = kept
        made = np.zeros(1, ROW)
        if row is not None:
            made[0] = row
        else:
            self._without_flags += 1
            self.unsure.append(uid)
            made["header_length"] = record.trace
        made["uid"], made["digest"], made["serial"], made["modseq"] = uid, digest, record.serial, self._modseq
        made["flags"] &= ALL_FLAGS
        made["keywords"] &= np.uint64((1 << len(self._state.keywords)) - 1)
        if kept is not None and kept["head"] != LOST:       # these never change
            made["size"], made["header_length"], made["head"] = kept["size"], kept["header_length"], kept["head"]
        fit(made[0], record, self._txn)
        if abs(int(made["zone"][0])) > _ZONE:
            made["zone"] = 0
        if row is None or not 0 <= made["received"][0] < _LATEST:
            date = self._arrived(digest, record)
            made["received"], made["zone"] = date.seconds, date.zone
        if row is None:
            made["saved"] = made["received"]
        return made[0]

    def _arrived(self, digest: bytes, record: MessageRecord) -> InternalDate:
        """When the message came, as its file says."""
        from store.message.arrivaldate import HEAD, arrived  # here: it loads a parser, and is rarely needed
        path = self._txn.partition.files.locate(digest, record.serial)
        if path is None:
            return InternalDate(0, 0)
        with privatefiles.open_file(path, "rb") as file:
            return arrived(file.read(HEAD), path.stat().st_mtime)


def fit(row: Any, record: MessageRecord, txn: WriteTxn) -> None:
    """Make the record say how much of the message file it skips, which header fields of its own it has, and its size,
    whichever of these is damaged. Fields that are in no table are lost."""
    number, size = int(row["head"]), int(row["size"])
    head = txn.partition.private_headers.get(number, txn.handle) or b""
    if record.size + len(head) - size not in (0, record.trace) and record.size - size in (0, record.trace):
        head = b""
    header_length = record.size + len(head) - size
    if header_length not in (0, record.trace):
        header_length = record.trace if row["header_length"] not in (0, record.trace) else int(row["header_length"])
    row["head"], row["header_length"] = number if head else 0, header_length
    row["size"] = record.size - header_length + len(head)


def _as_here(copy: idxreading.Salvaged, state: MailboxState, txn: WriteTxn) -> Rows:
    """The records of store.idx with the bits that their keywords have now, and the numbers of their header fields."""
    assert copy.head is not None
    numbers = {number: txn.partition.private_headers.number(octets, txn.handle) for number,
               octets in copy.private_headers.items()}
    rows = renumbered(copy.rows, {old: new for old, new in numbers.items() if new is not None})
    names = copy.head.keywords
    if tuple(names) == state.keywords[:len(names)]:
        return rows
    bits = np.zeros(len(rows), np.uint64)
    for at, name in enumerate(names):
        if name in state.keywords:
            bits |= (rows["keywords"] >> np.uint64(at) & np.uint64(1)) << np.uint64(state.keywords.index(name))
    rows["keywords"] = bits
    return rows


def mend_own_flags(txn: WriteTxn, mailbox: MailboxId) -> list[tuple[int, str]]:
    """Make readers' own flags whole that do not agree with their checksum: chunk and reader of each.

    What flags there are stay, and get a new MODSEQ.
    """
    damaged = list(txn.partition.readers.damaged(mailbox, txn.handle))
    state = txn.any_state(mailbox)
    if not damaged or state is None or state.moving:
        return []
    modseq = state.highestmodseq + 1
    txn.set_state(mailbox, state, evolve(state, highestmodseq=modseq, changed=modseq))
    for number, reader, own in damaged:
        own["flags"] &= np.uint8(txn.partition.settings.private_bits)
        own["modseq"] = modseq
        txn.put_own(mailbox, number, reader, own)
    return [(number, reader) for number, reader, _ in damaged]
