"""Expunge: records go (RFC 3501 §6.4.3). When they can be restored no more their references are given back, and a
file without any waits for the purge.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from operator import itemgetter

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn, places
from store.store import Store
from store.tables.index import Rows, take
from store.tables.references import FOREVER, STORED, serial_of, since, waits_since
from store.tables.slices import EXPUNGE_UNITS, in_slices, slices, sorted_uids
from store.tables.state import MailboxState, gained
from store.values import Flag

log = logging.getLogger(__name__)

BATCH = 2000                # message files that the purge removes together: their names leave the disk with one sync,
LOCKED = 64                 # while they go their rows are locked, so many at a time, and for
HELD = 0.02                 # so many seconds,
FORGOTTEN = 256             # and their records leave in transactions of so many
FORGET = 1000               # records that are forgotten in one transaction, if they were not expunged in one;
LARGE = 5000                # of one with more than these, not all at once: a delivery may wait for their rows

Due = tuple[bytes, bytes]   # a message file that waits for the purge: the key of the list that it is in, and the digest


def expunge(store: Store, entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32] | None = None
            ) -> list[int]:
    """Remove the messages with \\Deleted, of `uids` or of all (RFC 4315 §2.1); the UIDs removed. Not flushed.

    Many go some at a time; so does what `remove` removes.
    """
    def work(some: NDArray[np.uint32] | None, txn: WriteTxn) -> list[int]:
        state = txn.state(entry.id)
        if not state.deleted:
            return []
        rows = txn.load(entry.id) if some is None else txn.rows_of(entry.id, some)
        return take_out(txn, entry.id, state, take(rows, rows["flags"] & np.uint16(Flag.DELETED) != 0))

    if uids is None:
        rows = store.open_mailbox(entry).rows
        if len(list(slices(rows["uid"], EXPUNGE_UNITS))) < 2:       # all that has the flag at one moment
            return store.transact(entry, partial(work, None))
        uids = rows["uid"][rows["flags"] & np.uint16(Flag.DELETED) != 0]
    return _in_slices(store, entry, uids, work)


def remove(store: Store, entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32]) -> list[int]:
    """Remove these messages, flagged or not; the UIDs that were there. Not flushed."""
    def work(some: NDArray[np.uint32], txn: WriteTxn) -> list[int]:
        state = txn.state(entry.id)
        return take_out(txn, entry.id, state, txn.rows_of(entry.id, some))

    return _in_slices(store, entry, uids, work)


def _in_slices(store: Store, entry: MailboxEntry, uids: Iterable[int] | NDArray[np.uint32],
               work: Callable[[NDArray[np.uint32], WriteTxn], list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(in_slices(
        sorted_uids(uids), EXPUNGE_UNITS, lambda some: store.transact(entry, partial(work, some)))))


def take_out(txn: WriteTxn, mailbox: MailboxId, state: MailboxState, gone: Rows, *, same_modseq: bool = False,
             release: bool = True) -> list[int]:
    """Take records out of their mailbox, and give back the quota. With `release` they are kept for `undelete`, and
    their references with them; else these are the caller's.

    `same_modseq` says that this transaction has already given the mailbox a new HIGHESTMODSEQ.
    """
    if not len(gone):
        return []
    uids = gone["uid"]
    rows = txn.load(mailbox, uids)
    kept = np.ones(len(rows), np.bool_)
    kept[places(rows, uids)] = False
    txn.rewrite(mailbox, rows, ~kept, kept)
    modseq = state.highestmodseq + (not same_modseq)
    after = evolve(gained(state, gone, -1), highestmodseq=modseq, changed=modseq)
    txn.charge(state, after.octets - state.octets, -len(gone))
    txn.set_state(mailbox, state, txn.partition.vanished.record(mailbox, after, uids, txn.handle))
    if release:
        txn.partition.removed.keep(int(time.time()), mailbox, modseq, state.keywords, gone, txn.handle, held=True)
    uidlist: list[int] = uids.tolist()
    txn.partition.uidls.drop(mailbox, uidlist, txn.handle)
    return uidlist


# The purge

@frozen
class Purged:
    """Message files that were removed, and their octets; what could not be removed, and why, is in `failed`."""

    files: int = 0
    octets: int = 0
    failed: Mapping[bytes, OSError] = field(factory=dict)


@frozen
class Batch:
    """Message files that are due, those that are removed together."""

    files: tuple[Due, ...]

    def __str__(self) -> str:
        first = f"message {self.files[0][1].hex()}"
        return first if len(self.files) == 1 else f"{len(self.files)} messages, the first one {first}"


@frozen
class Expunges:
    """Expunged messages that are forgotten together: keys of `removed`; and which of them have many records."""

    keys: tuple[bytes, ...]
    large: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, sizes: Mapping[bytes, int]) -> "Expunges":
        """The expunges that have so many records."""
        return cls(tuple(sizes), tuple(key for key, size in sizes.items() if size > LARGE))

    def __str__(self) -> str:
        return f"{len(self.keys)} expunges"


@frozen
class Staging:
    """The serials of the files that were in `staging/` at that Unix time."""

    when: int
    serials: frozenset[int]

    def may_have(self, serial: int, released: int) -> bool:
        """Whether a message file whose last reference went then has a name there. What is released later may have come
        later, too."""
        return serial in self.serials or released >= self.when - 1


def due(partition: Partition, now: float | None = None, most: int = BATCH) -> Iterator[Batch]:
    """The message files whose last reference went longer ago than the purge delay, so many at a time.

    What was expunged as long ago can no longer be restored. A snapshot keeps the files that had references when it
    was made. No transaction is open while the caller has its turn.
    """
    until = last_due(partition, time.time() if now is None else now)
    for some in expunges(partition, until):
        forget(partition, some)
    partition.flush()           # nothing can restore them any more, also after a crash: now their files may go
    last = b""
    while files := _next_lists(partition, until, last, most):
        last = files[-1][0]
        for at in range(0, len(files), most):
            yield Batch(tuple(files[at:at + most]))


def _next_lists(partition: Partition, until: int, after: bytes, most: int) -> list[Due]:
    """The entries of the next lists, until there are so many. No cursor is open any more when the caller has its
    turn."""
    files: list[Due] = []
    with closing(partition.refs.lists(until, after)) as lists:
        for key, digests in lists:
            files += [(key, digest) for digest in digests]
            if len(files) >= most:
                break
    return files


def last_due(partition: Partition, now: float) -> int:
    """The Unix time until which the last reference of a message file must have gone for the file to be due."""
    return max(0, min(int(now) - partition.settings.purge_delay, partition.kept_since() - 1))


def expunges(partition: Partition, until: int) -> Iterator[Expunges]:
    """The messages that were expunged until that Unix time, some at a time. No transaction is open while the caller has
    its turn."""
    sizes = {b"": 0}
    while sizes:
        last, sizes, records = next(reversed(sizes)), {}, 0
        with closing(partition.removed.all(until, after=last)) as items:
            for item in items:
                sizes[item.key] = len(item.rows)
                records += len(item.rows)
                if records >= FORGET:
                    break
        if sizes:
            yield Expunges.of(sizes)


def forget(partition: Partition, some: Expunges) -> int:
    """Have these restored no more; how many they are."""
    for key in some.large:
        while transact(partition.env, lambda txn, key=key: partition.removed.shorten(key, LARGE, txn)):  # type: ignore[misc]
            pass
    transact(partition.env, lambda txn: partition.removed.forget(some.keys, txn))
    return len(some.keys)


def forget_each(partition: Partition, keys: Iterable[bytes]) -> None:
    """Have these restored no more, some at a time, as the purge does; what is cut off leaves the others."""
    sizes: dict[bytes, int] = {}
    for key in keys:
        sizes[key] = len(partition.removed.rows(key))
        if sum(sizes.values()) >= FORGET:
            forget(partition, Expunges.of(sizes))
            sizes = {}
    if sizes:
        forget(partition, Expunges.of(sizes))


def drop_lost(partition: Partition) -> int:
    """Have those restored no more whose message files are gone, as in a snapshot that was put back, when they have
    been purged since; how many."""
    is_there = partition.files.may_be_there
    keys = [item.key for item in partition.removed.held() if not all(map(
        is_there, item.rows["digest"].tolist(), item.rows["serial"].tolist()))]
    return sum(transact(partition.env, lambda txn, key=key: partition.removed.drop(     # type: ignore[misc]
        key, is_there, txn)) for key in keys)


def waiting(partition: Partition, until: int = FOREVER) -> Iterator[tuple[bytes, int]]:
    """The message files that nothing uses since that Unix time, but what was expunged, and their octets: those on the
    purge list, and those that will be."""
    for _, digest in list(partition.refs.waiting(until)):      # no cursor is open while something else is looked up
        record = partition.refs.find(digest, raw=True)
        if record is not None and not record.references:
            yield digest, record.size
    for digest, count in sorted(partition.removed.counts(until=until).items()):
        record = partition.refs.find(digest, raw=True)
        if record is not None and record.references == count:
            yield digest, record.size


def purge_batch(partition: Partition, files: Sequence[Due]) -> Purged:
    """Remove the message files that are due, unless they have references again. One that cannot be removed, and its
    record, stay. Raises OSError when it is not known what is on disk: then all records stay.

    A file goes while its row is locked, so that a message arriving with the same content waits, and is stored again.
    Its record goes when the names of all files of the batch have left the disk: else a crash could bring a file back of
    which nothing is known. In between, and when the purge is cut off, a record without references and without a file
    is left, which `deliver` knows how to read, and which is still on the purge list. No lock is held during the sync.
    """
    gone: dict[bytes, bytes] = {}                   # the records, as they are stored, of those whose files are removed,
    failed: dict[bytes, OSError] = {}               # also by a transaction that met a deadlock
    in_order = sorted(files, key=itemgetter(1))     # of digest, as they lie in tables and folders
    staged = Staging(int(time.time()), partition.files.staged())
    at = 0
    while at < len(in_order):
        at += transact(partition.env, lambda txn, at=at: _unlink(       # type: ignore[misc]
            partition, in_order[at:at + LOCKED], staged, gone, failed, txn))
    if gone:
        partition.files.sync_removed(gone)
    for some in _together([each for each in files if each[1] not in failed], gone):
        transact(partition.env, lambda txn, some=some: _forget(partition, some, gone, txn))    # type: ignore[misc]
    octets = int(np.frombuffer(b"".join(gone.values()), STORED)["size"].sum())
    if gone:
        log.info("purged %d message files, %d octets", len(gone), octets)
    if log.isEnabledFor(logging.DEBUG):
        for digest in gone:
            log.debug("purged message %s", digest.hex())
    return Purged(len(gone), octets, failed)


def _unlink(partition: Partition, some: Sequence[Due], staged: Staging, gone: dict[bytes, bytes],
            failed: dict[bytes, OSError], txn: Txn) -> int:
    """Remove files that nothing refers to; how many of all have been dealt with when it has taken long enough."""
    deadline = time.monotonic() + HELD
    records = partition.refs.stored_to_change([digest for _, digest in some], txn)
    for done, ((key, digest), stored) in enumerate(zip(some, records, strict=True), 1):
        if stored is not None and waits_since(stored) == (released := since(key)):
            serial = serial_of(stored)
            try:
                partition.files.remove(digest, serial if staged.may_have(serial, released) else None)
            except OSError as error:
                failed[digest] = error
            else:
                gone[digest] = stored
            if time.monotonic() > deadline:
                return done
    return len(some)


def _together(files: Iterable[Due], gone: Mapping[bytes, bytes]) -> Iterator[list[Due]]:
    """So many that leave in one transaction, and their lists in order of arrival, as cache records lie: of all tables
    theirs is by far the largest."""
    lists = [list(each) for _, each in itertools.groupby(files, itemgetter(0))]
    lists.sort(key=lambda each: serial_of(gone[each[0][1]]) if each[0][1] in gone else 0)
    some: list[Due] = []
    for each in lists:
        if len(some) + len(each) > FORGOTTEN and some:
            yield some
            some = []
        some += each
    if some:
        yield some


def _forget(partition: Partition, some: Sequence[Due], gone: Mapping[bytes, bytes], txn: Txn) -> None:
    """Their names have left the disk: so do their records, unless a message has come again meanwhile."""
    over: dict[bytes, set[bytes]] = {key: set() for key, _ in some}
    forgotten: list[bytes] = []
    some = sorted(some, key=itemgetter(1))
    keys = iter([key for key, _ in some])

    def is_over(digest: bytes, stored: bytes | None) -> bool:
        key, as_before = next(keys), stored is not None and stored == gone.get(digest)
        if stored is not None and not as_before and waits_since(stored) == since(key):
            return False                # it came, and went again: it is on the list for itself
        over[key].add(digest)
        if as_before:
            forgotten.append(digest)
        return as_before

    partition.refs.forget([digest for _, digest in some], is_over, txn)
    for serial in sorted(serial_of(gone[digest]) for _, digest in some if digest in gone):
        partition.serials.forget_cached(serial, txn)
    partition.private_headers.forget(forgotten, txn)
    for key in sorted(over):
        partition.refs.strike(key, over[key], txn)
