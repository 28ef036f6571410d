"""Mail that comes from elsewhere (a backup, another server, a folder of files) and is to be here what it was there.

`Contents` puts message octets on a partition, one file for each content. `new_rows` makes index records of messages
from elsewhere. `add` puts those records into a mailbox that it lacks; `rebuild.liveloader` makes a mailbox that is not
there yet. Whatever is cut off can be done again with the same input and then adds only what is missing. Limits of quota
are not enforced, though all is charged.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.delivery.batch import (
    BatchStore,
    CopiedFile,
    NotCopied,
    SideBySide,
    head_of,
    in_threads,
    refer,
    seems_usable,
    usable,
)
from store.delivery.replacement import fits
from store.errors import Problem, StoreError
from store.message.cacherecord import CachedMessage
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.rebuild.desired import DesiredMailbox, Own
from store.rebuild.repair import ALL_FLAGS
from store.tables.index import CHUNK, MAX_UID, OWN, ROW, Rows, take
from store.tables.privateheaders import renumbered
from store.tables.references import MessageRecord
from store.tables.state import MAX_KEYWORDS, MailboxState, gained, keyword_bits
from store.tables.uidls import is_legal
from store.values import Flags, InternalDate

ROWS_AT_A_TIME = 2000       # records that one transaction adds
FILES_AT_A_TIME = 1000      # message files that are put on disk together
CONTENTS_REMEMBERED = 50_000

Key = tuple[bytes, int, int, int]       # what makes two records the same message: digest, date, zone, own header fields


@define(eq=False)
class Contents:
    """Message octets on their way to a partition. They wait there for the purge until records refer to them."""

    partition: Partition
    side_by_side: SideBySide = in_threads
    _batch: BatchStore = field(init=False)
    _whole: dict[bytes, bytes] = field(factory=dict, init=False)    # of contents that are here behind another header
    _known: dict[bytes, MessageRecord] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._batch = BatchStore(self.partition, self.side_by_side, most=FILES_AT_A_TIME, at_once=True,
                                overtaken=self._store_whole)

    @property
    def files(self) -> int:
        """How many message files have been made."""
        return self._batch.files

    @property
    def octets(self) -> int:
        """What they have."""
        return self._batch.octets

    def store(self, data: Iterable[bytes], *, digest: bytes = b"", trace: int = 0, limit: int = 1 << 40,
             cached: CachedMessage | None = None) -> bytes:
        """Put the message on the partition, its first `trace` octets being its trace header; its digest. `cached` may
        be its cache record, which came with it.

        With a `digest` that the partition has already the rest of `data` is not read. It is on disk after `keep`.
        Raises StoreError CORRUPT when it is not what `digest` says, or cannot stand in for a file that was lost here;
        TOO_BIG, DISK_FULL, UNAVAILABLE.
        """
        self.partition.check_room()
        head, rest = _divided(iter(data), trace)
        if digest in self._batch.batch:
            self.keep()
        known = seems_usable(self.partition, digest) if digest else None
        if known is not None and (not trace or known.trace == trace and head_of(self.partition, digest, known) == head):
            return digest
        if known is None and (not trace or fits(self.partition, digest, trace)):
            return self._stage(rest, head, limit, digest, cached).digest
        staged = self._stage(chain((head,), rest), b"", limit, b"")     # its content is here behind another header
        self._whole[digest] = staged.digest
        return digest

    def _stage(self, data: Iterable[bytes], head: bytes, limit: int, digest: bytes,
               cached: CachedMessage | None = None) -> Staged:
        self._batch.begin()
        staged = Staged(self.partition.files, self.partition.serials.next_serial(), head, limit, cached=cached)
        try:
            for octets in data:
                if staged.write(octets):
                    staged.spill()
            staged.finish()
            if digest and staged.digest != digest:
                raise StoreError(Problem.CORRUPT, f"What came for message {digest.hex()} is not what its digest says")
            if staged.digest in self._batch.batch or seems_usable(self.partition, staged.digest) is not None:
                staged.abort()
            else:
                self._batch.add(staged)
        except BaseException:
            staged.abort()
            raise
        self._batch.keep_if_full()
        return staged

    def keep(self) -> None:
        """Have on disk, and on record, what has come. Raises StoreError DISK_FULL, UNAVAILABLE."""
        while self.waiting:
            self._batch.keep()

    def _store_whole(self, staged: Staged) -> None:
        """Somebody else has stored the content meanwhile: if that is behind another trace header, this one becomes a
        file of its own, header and all."""
        try:
            with staged.opened() as file:
                known, head = usable(self.partition, staged.digest), file.read(0, staged.trace)
                if head and (known is None or head_of(self.partition, staged.digest, known) != head):
                    self._whole[staged.digest] = self._stage(file.pieces(), b"", staged.size, b"").digest
        finally:
            staged.abort()

    @property
    def waiting(self) -> bool:
        """Whether `keep` is due."""
        return bool(self._batch.batch)

    def drop(self) -> None:
        """Forget what has come since."""
        self._batch.drop()

    def find(self, digest: bytes, size: int, *, bare: bool = False) -> CopiedFile | None:
        """What a message of that content and size is here; None when it is not, or is not so long.

        Its size says whether it shows the trace header that its file has; unless it is `bare` and shows none.
        """
        whole = self._whole.get(digest)
        for name in (digest,) if bare or whole is None else (whole, digest):
            record = self._record(name)
            for header_length in () if record is None else (record.trace,) if bare else (0, record.trace):
                if record is not None and record.size - header_length == size:
                    return CopiedFile(name, record.serial, header_length)
        return None

    def _record(self, digest: bytes) -> MessageRecord | None:
        """The record of a content; some are remembered. Whoever refers to it sees whether it is so still."""
        record = self._known.get(digest)
        if record is None:
            record = usable(self.partition, digest)
            if record is not None:
                if len(self._known) >= CONTENTS_REMEMBERED:
                    self._known.clear()
                self._known[digest] = record
        return record

    def translated(self, rows: Rows, private_headers: Mapping[int, bytes]) -> tuple[Rows, NDArray[np.bool_]]:
        """Records as they are on this partition, and which of all of them could be had; `private_headers` are their own
        header fields by the numbers that they have. `keep` comes first. Raises StoreError LIMIT."""
        there = {0: 0} | {number: len(octets) for number, octets in private_headers.items()}
        found: dict[tuple[bytes, int, bool], CopiedFile | None] = {}
        copied = []
        for digest, size, header_length, head in zip(*(rows[name].tolist() for name in ("digest", "size",
                                                                                        "header_length", "head")),
                                         strict=True):
            octets = there.get(head, -1)
            key = digest, size - octets, header_length > 0
            if key not in found:
                found[key] = self.find(digest, size - octets, bare=header_length > 0) if octets >= 0 else None
            copied.append(found[key])
        had = np.array([each is not None for each in copied], np.bool_)
        new = take(rows, had)
        if len(new):
            new["digest"] = np.frombuffer(b"".join([each.digest for each in copied if each]), ROW["digest"])
            new["serial"] = [each.serial for each in copied if each]
            new["header_length"] = [each.header_length for each in copied if each]
        numbers = self.partition.transact(lambda txn: txn.partition.private_headers.numbers_for(
            new, private_headers, txn.handle)) if private_headers else {}
        return renumbered(new, numbers), had


def _divided(data: Iterator[bytes], count: int) -> tuple[bytes, Iterator[bytes]]:
    """The first octets, and the rest. Raises StoreError CORRUPT when there are fewer."""
    head = b""
    while len(head) < count:
        octets = next(data, b"")
        if not octets:
            raise StoreError(Problem.CORRUPT, "A message is shorter than its trace header")
        head += octets
    return head[:count], chain((head[count:],), data)


# Records

@frozen
class Known:
    """What is to be recorded of one message beside its octets: `uid` where it comes from, or 0; `uidl` see `uidls`."""

    digest: bytes
    size: int
    received: InternalDate
    flags: Flags = Flags()
    uid: int = 0
    uidl: bytes = b""


def new_rows(contents: Contents, messages: Sequence[Known]) -> tuple[Rows, tuple[str, ...], list[bool]]:
    r"""Records, their keywords, and which of all the messages could be had. `keep` comes first.
    Keywords past what a mailbox can have are left out."""
    rows, words = np.zeros(len(messages), ROW), dict[str, tuple[int, str]]()
    for at, known in enumerate(messages):
        bits = 0
        for word in known.flags.keywords:
            if word.lower() not in words and len(words) < MAX_KEYWORDS:
                words[word.lower()] = len(words), word
            bits |= 1 << words[word.lower()][0] if word.lower() in words else 0
        row = rows[at]
        row["uid"], row["size"], row["digest"] = known.uid, known.size, known.digest
        row["flags"], row["keywords"] = int(known.flags.system), bits
        row["received"], row["zone"] = known.received.seconds, known.received.zone
    rows["saved"] = int(time.time())
    rows, had = contents.translated(rows, {})
    return rows, tuple(word for _, word in words.values()), had.tolist()


def keys_of(rows: Rows) -> list[Key]:
    """What makes a record the same message as another one of the same partition, whatever its UID."""
    return list(zip(*(rows[name].tolist() for name in ("digest", "received", "zone", "head")), strict=True))


def lacking(there: Rows, wanted: Rows) -> NDArray[np.bool_]:
    """Which of the wanted records a mailbox with these lacks. One with the same UID and content is the same message;
    any other counts for one of the same content and date."""
    lacks = np.ones(len(wanted), np.bool_)
    keys = keys_of(wanted)
    left = Counter(keys_of(there))
    uids = dict(zip(there["uid"].tolist(), keys_of(there), strict=True))
    for at, uid in enumerate(wanted["uid"].tolist()):
        if uid and uids.get(uid, (b"",))[0] == keys[at][0]:
            lacks[at] = False
            left[uids[uid]] -= 1
    for at in np.flatnonzero(lacks).tolist():
        if left[keys[at]] > 0:
            lacks[at] = False
            left[keys[at]] -= 1
    return lacks


@frozen(eq=False)
class Added:
    """What `add` did: the UIDs that the new ones of the given records have here, by their places, and how many others
    were there already."""

    uids: dict[int, int]
    there: int


def add(partition: Partition, entry: MailboxEntry, desired: DesiredMailbox, *, all_of_them: bool = False) -> Added:
    """Add those records that the mailbox is to have and lacks (`lacking`), in order of UID, and have them on disk; or
    `all_of_them`, by a caller who knows that it lacks them.

    A record keeps its UID where the mailbox has not come so far yet; else it gets the next one, and a new MODSEQ in any
    case. Raises StoreError NO_MAILBOX, BUSY, DISK_FULL, UNAVAILABLE; what has been added by then stays.
    """
    rows = desired.rows
    assert rows is not None
    order = np.argsort(rows["uid"], kind="stable")
    wanted = take(rows, order)
    lacks = np.ones(len(wanted), np.bool_) if all_of_them else lacking(
        partition.transact(lambda txn: txn.load(entry.id)), wanted)
    places = np.flatnonzero(lacks)
    uids: dict[int, int] = {}
    for at in range(0, len(places), ROWS_AT_A_TIME):
        some = places[at:at + ROWS_AT_A_TIME]
        try:
            new = partition.transact(partial(_append, entry.id, take(wanted, some), desired))
        except NotCopied:
            raise StoreError(Problem.BUSY, detail="message files went while they were being imported") from None
        uids.update(zip(order[some].tolist(), new, strict=True))
    partition.flush()
    return Added(uids, len(rows) - len(places))


def _append(mailbox: MailboxId, rows: Rows, desired: DesiredMailbox, txn: WriteTxn) -> list[int]:
    """The UIDs that they get."""
    before = txn.state(mailbox)
    old = rows["uid"].tolist()
    uids, following = [], before.uidnext
    for uid in old:
        uids.append(max(uid, following))
        following = uids[-1] + 1
    if following > MAX_UID:
        raise StoreError(Problem.LIMIT, "The mailbox has no UIDs left")
    words, bits = _keywords(before, rows, desired.state.keywords)
    modseq = before.highestmodseq + 1
    rows["uid"], rows["modseq"], rows["keywords"] = uids, modseq, bits
    rows["flags"] &= ALL_FLAGS
    after = evolve(gained(before, rows), uidnext=following, highestmodseq=modseq, keywords=words)
    txn.charge(before, after.octets - before.octets, len(rows), enforce=False)
    txn.append(mailbox, rows)
    txn.set_state(mailbox, before, after)
    _put_own(txn, mailbox, dict(zip(old, uids, strict=True)), desired.own or (), modseq)
    uidls = desired.uidls or {}
    _put_uidls(txn, mailbox, {new: uidls[uid] for uid, new in zip(old, uids, strict=True) if uid in uidls})
    refer(txn, mailbox, rows)
    return uids


def _keywords(state: MailboxState, rows: Rows, keywords: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.uint64]]:
    """The mailbox's keywords with those of the records, and the records' bits; what does not fit is left out."""
    used = int(np.bitwise_or.reduce(rows["keywords"])) if len(rows) else 0
    words, bits = state.keywords, np.zeros(len(rows), np.uint64)
    for at, name in enumerate(keywords):
        if not used >> at & 1:
            continue
        try:
            bit, words = keyword_bits(evolve(state, keywords=words), [name], add=True)
        except StoreError:
            continue
        bits |= np.where(rows["keywords"] >> np.uint64(at) & np.uint64(1), np.uint64(bit), np.uint64(0))
    return words, bits


def _put_own(txn: WriteTxn, mailbox: MailboxId, uids: Mapping[int, int],
             own: Sequence[Own], modseq: int) -> None:
    for number, reader, flags in own:
        for place in np.flatnonzero(flags["flags"]).tolist():
            uid = uids.get(number * CHUNK + place + 1)
            if uid is not None:
                chunk = txn.partition.readers.chunk(mailbox, (uid - 1) // CHUNK, reader, txn.handle)
                assert chunk.dtype == OWN
                chunk[(uid - 1) % CHUNK] = int(flags["flags"][place]) & int(ALL_FLAGS), modseq
                txn.put_own(mailbox, (uid - 1) // CHUNK, reader, chunk)


def _put_uidls(txn: WriteTxn, mailbox: MailboxId, uidls: Mapping[int, bytes]) -> None:
    """Those that no message of the mailbox has."""
    table = txn.partition.uidls
    taken = set(table.of(mailbox, txn.handle).values()) if uidls else set()
    new: dict[int, bytes] = {}
    for uid, uidl in uidls.items():
        if is_legal(uidl) and uidl not in taken:
            taken.add(uidl)
            new[uid] = uidl
    table.put(mailbox, new, txn.handle)
