"""Delivers one received message into any number of mailboxes of a partition, in one transaction.

`durable.deliver` is the whole way: it syncs the message file before this, and flushes the log after it.
"""

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from attrs import define, evolve, frozen

from mboxlist.entry import MailboxEntry, MailboxId
from store.delivery.repeats import repeated
from store.delivery.replacement import put_back
from store.errors import Problem, StoreError
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn, set_own
from store.tables.duplicates import arrival_key
from store.tables.index import ROW
from store.tables.references import MessageRecord, mark, sum_of_marks
from store.tables.state import keyword_bits
from store.values import Flags, InternalDate

_HEAD = struct.Struct("<IHhQQ")             # the fields of index.ROW that differ from mailbox to mailbox,
_TAIL = struct.Struct("<qQQII32sII")        # and the others
assert _HEAD.size + _TAIL.size == ROW.itemsize

TRIES = 5                   # for a message whose content comes and goes meanwhile
_PLAIN, _BARE = {b"": (0, 0)}, {b""}        # of a message without header fields of its own
#: Refusals that concern one mailbox and leave the others to be delivered to.
_ONE_MAILBOX = frozenset({
    Problem.NO_MAILBOX, Problem.BUSY, Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED, Problem.LIMIT})
_NO_ROOM = frozenset({Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED, Problem.LIMIT})    # for one message of several


@define(unsafe_hash=True)       # `frozen` would set each of the attributes by a call, for each recipient
class Target:
    """A mailbox that a message is for, and the flags that it gets there. Nobody changes one.

    `appended`: a client stores it itself; a refusal does not begin the period of grace (setting `quota_grace`).
    `own` is those of the flags (bits) that are the `reader`'s own in this mailbox; see `Store.private_bits`.
    `header` is header fields, each with its CRLF, that the message gets in this mailbox alone, before all others.
    `suppress`: for so many seconds the same Message-ID from the same sender does not come to the mailbox again; 0: it
    may. `repeat`: a delivery that ended without an answer is recognised for so many seconds (`delivery.repeats`).

    What scripts want (`store.filtering`): of a `group` other than 0 all targets are delivered to, or none. With `filed`
    False the mailbox gets nothing. `follows` are done in the transaction that delivers; one may refuse its group.
    """

    entry: MailboxEntry
    flags: Flags = Flags()
    ignore_quota: bool = False
    reader: str = ""
    own: int = 0
    appended: bool = False
    header: bytes = b""
    suppress: int = 0
    repeat: int = 0
    group: int = 0
    filed: bool = True
    follows: tuple[Callable[[WriteTxn], None], ...] = ()


@frozen
class Delivered:
    """The message is in the mailbox, with that UID."""

    entry: MailboxEntry
    uid: int


@frozen
class Duplicate:
    """The message is, or was, in the mailbox already, and did not come again: by `Target.suppress`, or with `repeated`
    by `Target.repeat`."""

    entry: MailboxEntry
    repeated: bool = False


@frozen
class Unfiled:
    """All that was wanted has been done; the mailbox was to get nothing (`Target.filed`)."""

    entry: MailboxEntry


Outcome = Delivered | Duplicate | Unfiled | StoreError


class NotOnDisk(Exception):
    """The message's content is new to the partition after all: its file must be synced first."""


class _GroupRefused(Exception):
    """A target of that group is refused, and so the whole group: the delivery is tried again without it."""

    def __init__(self, group: int, refusal: StoreError) -> None:
        self.group = group
        self.refusal = refusal
        super().__init__()


class _ShownOtherwise(Exception):
    """The records must have other trace fields than it seemed before the transaction."""

    def __init__(self, record: MessageRecord | None, own: bytes) -> None:
        self.record = record
        self.own = own
        super().__init__()


_Arrival = tuple[int, int, bytes]
"""What is the same for all mailboxes: zone, size, and the fields of their records from `received` on."""


def is_known(partition: Partition, staged: Staged) -> bool:
    """Whether the partition seems to have the content already, so that its file need not be synced again."""
    if partition.refs.messages.glance(staged.digest) is None:       # nearly always
        return False
    try:
        record = partition.refs.glance(staged.digest)
    except StoreError:              # the file cannot be read just now
        return False
    return record is not None and record.references > 0 and partition.files.seems_whole(
        staged.digest, record.serial, record.size)


class Locked(StoreError):
    """BUSY: another transaction keeps the mailbox of the target at that place locked. Trying again does not help."""

    def __init__(self, at: int, detail: str = "") -> None:
        self.at = at
        super().__init__(Problem.BUSY, detail=detail)


def commit(partition: Partition, staged: Staged, targets: Sequence[Target], received: InternalDate, *,
           seconds: float | None = None) -> list[Outcome]:
    """Deliver; returns an outcome for each target, in their order. Not flushed yet; after the flush, call
    `staged.place`.

    A target is refused alone when it is over quota, full of keywords, being moved, or deleted meanwhile, and when it
    has the message already. If `staged.committed` is not set afterwards, the file is not needed. `seconds`: see
    `engine.transact`. Raises NotOnDisk; and StoreError, also Locked, when the transaction as a whole cannot be done.
    """
    seen = None if staged.on_disk else partition.refs.glance(staged.digest)
    if targets[0].repeat and (seen is not None or staged.concealed) and (again := repeated(
            partition, staged.digest, [target.entry.id for target in targets], targets[0].repeat)):
        left = [target for target in targets if target.entry.id not in again]
        others = iter(commit(partition, staged, [evolve(target, repeat=0) for target in left], received,
                             seconds=seconds) if left else ())
        return [Duplicate(target.entry, repeated=True) if target.entry.id in again else next(others)
                for target in targets]
    own = _own_trace(partition, seen, staged) if seen is not None else b""
    for _ in range(TRIES):
        try:
            return _commit(partition, staged, targets, received, seen, own, seconds=seconds)
        except _ShownOtherwise as found:        # it is on disk and known, or has been purged, or comes twice at once
            seen, own = found.record, found.own
    raise StoreError(Problem.BUSY, detail="the same message comes and goes at this moment")


def _commit(partition: Partition, staged: Staged, targets: Sequence[Target], received: InternalDate,
            seen: MessageRecord | None, own: bytes, *, seconds: float | None) -> list[Outcome]:
    """As `commit`, if the content is there as it was `seen`; then `own` are the trace fields that the records must
    have. Raises _ShownOtherwise."""
    asked = -1                      # the target whose mailbox is being asked for
    gone: dict[int, StoreError] = {}        # groups that are refused
    order = [0] if len(targets) == 1 else sorted(range(len(targets)), key=lambda at: targets[at].entry.id)
    headers, keys = set(), {}
    for at, target in enumerate(targets):
        headers.add(target.header)
        if target.suppress > 0 and staged.message_id:
            keys[at] = arrival_key(staged.message_id, staged.sender, target.entry.id)
    numbers = _numbers(partition, headers, staged, own, seconds) if own or headers != _BARE else _PLAIN

    def work(txn: WriteTxn) -> tuple[list[Outcome | None], bool]:
        nonlocal asked
        asked = -1
        outcomes: list[Outcome | None] = [None] * len(targets)
        known: MessageRecord | None = None
        if txn.refs.messages.glance(staged.digest) is not None and (
                found := txn.refs.glance(staged.digest)) is not None:
            known = _usable(txn, found, staged)
        if known is None and not staged.on_disk:
            raise NotOnDisk
        if staged.on_disk or (known and known.serial) != (seen and seen.serial):    # its file may have come now
            needed = _own_trace(partition, known, staged) if known is not None else b""
            if needed != own:
                raise _ShownOtherwise(known, needed)
        record = known or MessageRecord(staged.serial, 0, staged.size, staged.trace)
        forms = _for_targets(record, staged, received, numbers, len(own))
        there = set()
        for at in order if keys else ():        # mailboxes before keys: a wait for a mailbox holds up nobody else
            asked = at
            if at in keys and _is_there(txn, targets[at]):
                there.add(keys[at])
        asked = -1
        counted = {key for key in sorted(there) if partition.duplicates.counts(key, txn.handle)} if there else there
        for at in order:
            asked, target, key = at, targets[at], keys.get(at)
            if key in counted:
                outcomes[at] = Duplicate(target.entry)
                continue
            if gone and target.group in gone:
                outcomes[at] = gone[target.group]
                continue
            try:
                outcomes[at] = _arrive(txn, target, forms[target.header]) if target.filed else Unfiled(target.entry)
                for follow in target.follows:
                    follow(txn)
            except StoreError as refusal:
                if refusal.problem not in _ONE_MAILBOX and not (target.follows and target.group):
                    raise
                if target.group:
                    raise _GroupRefused(target.group, refusal) from None
                outcomes[at] = refusal
            else:
                if key is not None:
                    partition.duplicates.add(key, target.suppress, txn.handle)
                    counted.add(key)
        asked = -1
        made = []
        for outcome in outcomes:
            if isinstance(outcome, Delivered):
                made.append((outcome.entry.id, outcome.uid))
        if made:
            check = mark(*made[0]) if len(made) == 1 else sum_of_marks(made)
            if _reference(txn, staged, known, record, len(made), check):
                partition.serials.write_cached(staged.serial, staged.cached, txn.handle)
        return outcomes, bool(made) and known is None

    while True:
        try:
            done, new = partition.transact(work, seconds=seconds)
            break
        except _GroupRefused as group:
            gone[group.group] = group.refusal
        except StoreError as refusal:
            if refusal.problem is Problem.BUSY and asked >= 0:
                raise Locked(asked) from refusal
            raise
    staged.committed |= new
    given: Any = done
    outcomes: list[Outcome] = given         # none is None: each target has one, or the transaction has failed
    return outcomes


def commit_all(partition: Partition, messages: Sequence[tuple[Staged, Target, InternalDate]], *,
               seconds: float | None = None) -> list[int]:
    """Deliver several messages to one mailbox of the partition, all or none (RFC 3502 §6.3.11); returns their UIDs.

    Not flushed yet; after the flush, call `place` for each. Raises NotOnDisk, StoreError.
    """
    return [uid for uid in _commit_several(partition, messages, frozenset(), seconds) if isinstance(uid, int)]


def commit_each(partition: Partition, messages: Sequence[tuple[Staged, Target, InternalDate]], *,
                seconds: float | None = None) -> list[int | StoreError]:
    """Deliver messages that have nothing to do with each other to one mailbox of the partition, in one transaction.
    Returns for each its UID, or why it is refused: there is no room for it, or none for its keywords.

    Not flushed yet; after the flush, call `place` for each. Raises NotOnDisk, StoreError: then none is delivered.
    """
    return _commit_several(partition, messages, _NO_ROOM, seconds)


def _commit_several(partition: Partition, messages: Sequence[tuple[Staged, Target, InternalDate]],
                    alone: frozenset[Problem], seconds: float | None) -> list[int | StoreError]:
    """As `commit_all`; with one of these problems a message is refused `alone`."""
    first: dict[bytes, Staged] = {}             # the first message of each content
    for staged, _, _ in messages:
        first.setdefault(staged.digest, staged)

    def work(txn: WriteTxn) -> tuple[list[int | StoreError], list[Staged]]:
        found = {digest: txn.refs.glance(digest) for digest in first}
        known = {digest: None if record is None else _usable(txn, record, first[digest])
                 for digest, record in found.items()}
        if not all(known[digest] or staged.on_disk for digest, staged in first.items()):
            raise NotOnDisk
        records = {digest: known[digest] or MessageRecord(one.serial, 0, one.size, one.trace)
                   for digest, one in first.items()}
        outcomes: list[int | StoreError] = []
        made: dict[bytes, list[tuple[MailboxId, int]]] = {}
        for staged, target, received in messages:
            arrival, = _for_targets(records[staged.digest], staged, received, _PLAIN, 0).values()
            try:
                uid = _arrive(txn, target, arrival).uid
            except StoreError as refusal:
                if refusal.problem not in alone:
                    raise
                outcomes.append(refusal)
                continue
            outcomes.append(uid)
            made.setdefault(staged.digest, []).append((target.entry.id, uid))
            for follow in target.follows:
                follow(txn)
        fresh = [first[digest] for digest in sorted(made)       # in a fixed order, so that no two wait for each other
                 if _reference(txn, first[digest], known[digest], records[digest], len(made[digest]),
                               sum_of_marks(made[digest]))]
        partition.serials.write_all_cached([(staged.serial, staged.cached) for staged in fresh], txn.handle)
        return outcomes, [first[digest] for digest in made if known[digest] is None]

    outcomes, new = partition.transact(work, seconds=seconds)
    for staged in new:
        staged.committed = True
    return outcomes


def commit_within(txn: WriteTxn, staged: Staged, target: Target, received: InternalDate,
                  numbers: Mapping[bytes, tuple[int, int]]) -> bool:
    """Deliver one more message in a transaction of its partition; returns whether its file is used. The message is on
    disk, and has no trace fields; `numbers` are those of the target's header (`header_numbers`). Raises StoreError."""
    known = txn.refs.glance(staged.digest)
    known = None if known is None else _usable(txn, known, staged)
    record = known or MessageRecord(staged.serial, 0, staged.size, staged.trace)
    arrived = _arrive(txn, target, _for_targets(record, staged, received, numbers, 0)[target.header])
    if _reference(txn, staged, known, record, 1, mark(target.entry.id, arrived.uid)):
        txn.partition.serials.write_cached(staged.serial, staged.cached, txn.handle)
    return known is None


def header_numbers(partition: Partition, staged: Staged, target: Target) -> dict[bytes, tuple[int, int]]:
    """The numbers for `commit_within`; called before its transaction. Raises StoreError LIMIT, BUSY."""
    return _numbers(partition, {target.header, b""}, staged, b"", None)


def commit_patiently(partition: Partition, staged: Staged, targets: Sequence[Target], received: InternalDate,
                     seconds: float) -> list[Outcome]:
    """As `commit`, for a thread: it waits for locks, and refuses alone a target whose mailbox stays locked."""
    deadline = time.monotonic() + seconds
    outcomes: dict[int, Outcome] = {}
    left = list(range(len(targets)))
    while left:
        try:
            found = commit(partition, staged, [targets[at] for at in left], received,
                           seconds=deadline - time.monotonic())
            outcomes |= zip(left, found, strict=True)
            break
        except Locked as refusal:
            outcomes[left.pop(refusal.at)] = refusal
        except StoreError as refusal:
            if refusal.problem is not Problem.BUSY or time.monotonic() > deadline:
                raise
    return [outcomes[at] for at in range(len(targets))]


def _usable(txn: WriteTxn, record: MessageRecord, staged: Staged) -> MessageRecord | None:
    """The record, unless its file was removed in a purge that was cut off.

    A file that is missing or cut off, although messages use it, has been lost: the new message takes its place. Raises
    NotOnDisk; StoreError CORRUPT when it cannot, and UNAVAILABLE when the disk does not say what the file has.
    """
    if txn.partition.files.seems_whole(staged.digest, record.serial, record.size):
        return record
    if not record.references:
        return None
    if not staged.on_disk:
        raise NotOnDisk
    put_back(txn.partition, staged, txn)
    return txn.refs.find(staged.digest, txn.handle)        # of a file that nobody had looked at it says more now


def _own_trace(partition: Partition, record: MessageRecord, staged: Staged) -> bytes:
    """The trace fields that this delivery's records must have for themselves. They are the delivery's own, unless the
    file of that record has them already. Also b"" for a message without any."""
    if not staged.trace or record.serial == staged.serial:
        return b""
    if record.trace == staged.trace:                    # a file that was lost, and came again, has them
        with suppress(StoreError), partition.files.open(staged.digest, record.serial, 0, record.trace) as file:
            if file.read(0, record.trace) == staged.header:
                return b""
    return staged.header


def _numbers(partition: Partition, headers: set[bytes], staged: Staged, own: bytes, seconds: float | None
             ) -> dict[bytes, tuple[int, int]]:
    """For each of these header fields of targets, also for b"": the number of what the records have before the file,
    and how many octets that is. If there are trace fields `own`, they come behind these fields.

    New numbers are given in a transaction before the delivery's, which may have to wait for a mailbox: so nobody else's
    fields wait with it. Raises StoreError LIMIT, BUSY.
    """
    private_headers, message = partition.private_headers, staged.digest if own else b""
    texts = {header: header + own for header in headers}
    numbers = {b"": 0}
    if not own:                     # what is a delivery's own has no number yet
        numbers |= {octets: number for octets in texts.values()
                    if (number := private_headers.number(octets, lasting=True)) is not None}
    if new := sorted(set(texts.values()) - numbers.keys()):
        numbers |= partition.transact(lambda txn: private_headers.numbers(new, txn.handle, message), seconds=seconds)
    return {header: (numbers[octets], len(octets)) for header, octets in texts.items()}


def _for_targets(record: MessageRecord, staged: Staged, received: InternalDate,
                 numbers: Mapping[bytes, tuple[int, int]], own: int) -> dict[bytes, _Arrival]:
    """The message as it is for a target with each of these header fields; see `_numbers`. `own` is how many octets of
    trace fields are among these.

    If the file begins with a trace header that is not this message's, its records skip that.
    """
    header_length = record.trace if own or not staged.trace else 0
    size, saved = record.size - header_length, int(time.time())
    forms = {}
    for header, (number, more) in numbers.items():
        forms[header] = received.zone, size + more, _TAIL.pack(
            received.seconds, size + more, record.serial, saved, header_length, staged.digest, number, 0)
    return forms


def _is_there(txn: WriteTxn, target: Target) -> bool:
    """Whether the mailbox takes messages. It is locked from here on, for `_arrive`, which says why it takes none."""
    try:
        txn.state(target.entry.id)
    except StoreError:
        return False
    return True


def _arrive(txn: WriteTxn, target: Target, arrival: _Arrival) -> Delivered:
    entry, flags, system = target.entry, target.flags, int(target.flags.system)
    zone, size, tail = arrival
    bits, keywords = _keywords(txn, target) if flags.keywords else (0, ())
    shown = system & ~target.own
    uid, modseq = txn.arrive(entry.id, size, shown, enforce=not target.ignore_quota, delivery=not target.appended)
    txn.append_arrival(entry.id, uid, _HEAD.pack(uid, shown, zone, bits, modseq) + tail)
    if keywords:                        # only now, since one that is refused for its quota brings no keywords
        txn.set_state(entry.id, None, evolve(txn.state(entry.id), keywords=keywords))
    if shown != system:
        _keep_own(txn, target, uid, modseq)
    return Delivered(entry, uid)


def _keywords(txn: WriteTxn, target: Target) -> tuple[int, tuple[str, ...]]:
    """The bits of the target's keywords; new ones are added to the mailbox, and others hear of them. A keyword that a
    script sets is left out when there is no room for it. Raises StoreError LIMIT."""
    state, names = txn.state(target.entry.id), target.flags.keywords
    try:
        return keyword_bits(state, names, add=True)
    except StoreError:
        if not target.group:
            raise
        return keyword_bits(state, names, add=False)


def _keep_own(txn: WriteTxn, target: Target, uid: int, modseq: int) -> None:
    """Store those of the flags that are the reader's own."""
    row = np.zeros(1, ROW)
    row["uid"], row["flags"] = uid, target.flags.system.value
    set_own(txn, target.entry.id, target.reader, row, target.own, modseq)


def _reference(txn: WriteTxn, staged: Staged, known: MessageRecord | None, new: MessageRecord, count: int, check: int
               ) -> bool:
    """Count the new references. The file's row is locked last, as everywhere, so that no two transactions wait for each
    other. The file is `new` unless it is `known`. Returns whether the cache record must be written, which is done after
    all such rows."""
    stored = None
    if (data := txn.refs.messages.get_to_change(staged.digest, txn.handle)) is not None:
        stored = txn.refs.record(staged.digest, data)
    record = None if stored is None else _usable(txn, stored, staged)
    if (record and record.serial) != (known and known.serial):      # another process was quicker, or purged it
        raise StoreError(Problem.BUSY, detail="the same message arrived at the same moment")
    if record is None:
        # The list of files that wait for the purge may still have it.
        new = new if stored is None else evolve(new, released=stored.released)
    if stored is not None and (record is None or staged.digest in txn.partition.files.came_again):
        txn.refs.write_as_new(staged.digest, stored, txn.handle)
    txn.refs.write_with(staged.digest, record or new, count, check, txn.handle)
    return record is None
