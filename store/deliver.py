"""One received message into any number of mailboxes of a partition, in one transaction.

`net.offload.deliver` is the whole way: it syncs the message file before this and flushes the log after it.
"""

import struct
import time
from collections.abc import Sequence

import numpy as np
from attrs import evolve, field, frozen

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.flags import keyword_bits, set_own
from store.index import ROW, chunk_number
from store.messagefiles import Staged
from store.partition import Partition
from store.refs import MessageRecord, sum_of_marks
from store.txn import WriteTxn
from store.values import Flags, InternalDate

_HEAD = struct.Struct("<IHhQQ")             # the fields of index.ROW that differ from mailbox to mailbox,
_TAIL = struct.Struct("<qQQII32s")          # and the others
assert _HEAD.size + _TAIL.size == ROW.itemsize

#: Refusals that concern one mailbox and leave the others to be delivered to.
_ONE_MAILBOX = frozenset({
    Problem.NO_MAILBOX, Problem.BUSY, Problem.OVER_QUOTA, Problem.QUOTA_GRACE_ENDED, Problem.LIMIT})


@frozen
class Target:
    """A mailbox that a message is for, and the flags that it gets there.

    `appended`: a client stores it itself; a refusal does not begin the period of grace (setting `quota_grace`).
    `own` is those of the flags (bits) that are the `reader`'s own in this mailbox; see `Store.private_bits`.
    """

    entry: MailboxEntry
    flags: Flags = Flags()
    ignore_quota: bool = False
    reader: str = ""
    own: int = 0
    appended: bool = False


@frozen
class Delivered:
    """The message is in the mailbox, under that UID."""

    entry: MailboxEntry
    uid: int


Outcome = Delivered | StoreError


class NotOnDisk(Exception):
    """The message's content is new to the partition after all: its file must be synced first."""


@frozen
class _Arrival:
    """What is the same for all mailboxes: the fields of their records from `received` on, and the size."""

    zone: int
    size: int
    tail: bytes = field(repr=False)


def is_known(partition: Partition, staged: Staged) -> bool:
    """Whether the partition seems to have the content already, so that its file need not be synced again."""
    record = partition.refs.find(staged.mid)
    return record is not None and record.references > 0


def commit(partition: Partition, staged: Staged, targets: Sequence[Target], received: InternalDate) -> list[Outcome]:
    """Deliver; an outcome for each target, in their order. Not flushed yet; after that `staged.place` is due.

    A target that is over quota, full of keywords, being moved, or deleted meanwhile is refused alone. Unless
    `staged.committed`, the file is not needed. Raises NotOnDisk, and StoreError when the transaction as a whole cannot
    be done.
    """
    order = sorted(range(len(targets)), key=lambda at: targets[at].entry.id)

    def work(txn: WriteTxn) -> tuple[list[Outcome | None], bool]:
        outcomes: list[Outcome | None] = [None] * len(targets)
        known = _usable(partition, txn.refs.find(staged.mid), staged.mid)
        if known is None and not staged.on_disk:
            raise NotOnDisk
        record = known or MessageRecord(staged.serial, 0, staged.size, staged.trace)
        arrival = _arrival(partition, record, staged, received)
        for at in order:
            try:
                outcomes[at] = _arrive(txn, targets[at], arrival)
            except StoreError as refusal:
                if refusal.problem not in _ONE_MAILBOX:
                    raise
                outcomes[at] = refusal
        made = [(outcome.entry.id, outcome.uid) for outcome in outcomes if isinstance(outcome, Delivered)]
        if made:
            _reference(txn, staged, known, len(made), sum_of_marks(made))
        return outcomes, bool(made) and known is None

    outcomes, new = partition.transact(work)
    staged.committed |= new
    return [outcome for outcome in outcomes if outcome is not None]


def _usable(partition: Partition, record: MessageRecord | None, mid: bytes) -> MessageRecord | None:
    """The record, unless its file went in a purge that was cut off before its end."""
    if record is not None and not record.references and partition.files.locate(mid, record.serial) is None:
        return None
    return record


def _arrival(partition: Partition, record: MessageRecord, staged: Staged, received: InternalDate) -> _Arrival:
    """Where the file begins with a trace header that is not this message's, its records skip that.

    An appended message has none; and one that came from another sender must not show the first one's address.
    """
    skip = record.trace
    if staged.trace and (record.serial == staged.serial or _sender(partition, record, staged.mid) == staged.sender):
        skip = 0
    size = record.size - skip
    tail = _TAIL.pack(received.seconds, size, record.serial, int(time.time()), skip, staged.mid)
    return _Arrival(received.zone, size, tail)


def _sender(partition: Partition, record: MessageRecord, mid: bytes) -> bytes:
    with partition.files.open(mid, record.serial, 0, record.trace) as file:
        return file.read(0, record.trace).partition(b"\n")[0]


def _arrive(txn: WriteTxn, target: Target, arrival: _Arrival) -> Delivered:
    entry, flags, system = target.entry, target.flags, int(target.flags.system)
    bits, keywords = keyword_bits(txn.state(entry.id), flags.keywords, add=True) if flags.keywords else (0, ())
    shown = system & ~target.own
    uid, modseq = txn.arrive(entry.id, arrival.size, shown, enforce=not target.ignore_quota,
                               delivery=not target.appended)
    txn.append_octets(entry.id, chunk_number(uid), _HEAD.pack(uid, shown, arrival.zone, bits, modseq) + arrival.tail)
    if keywords:                        # only now, since one that is refused for its quota brings no keywords
        txn.set_state(entry.id, None, evolve(txn.state(entry.id), keywords=keywords))
    if shown != system:
        _keep_own(txn, target, uid, modseq)
    return Delivered(entry, uid)


def _keep_own(txn: WriteTxn, target: Target, uid: int, modseq: int) -> None:
    """Those of the flags that are the reader's own."""
    row = np.zeros(1, ROW)
    row["uid"], row["flags"] = uid, target.flags.system.value
    set_own(txn, target.entry.id, target.reader, row, target.own, modseq)


def _reference(txn: WriteTxn, staged: Staged, known: MessageRecord | None, count: int, check: int) -> None:
    """Count the new references; the file's row is locked last, as everywhere, so that no two wait for each other."""
    record = _usable(txn.partition, txn.refs.find_to_change(staged.mid, txn.handle), staged.mid)
    if (record and record.serial) != (known and known.serial):      # another process was quicker, or purged it
        raise StoreError(Problem.BUSY, detail="the same message arrived at the same moment")
    if record is None:
        txn.refs.write(staged.mid, MessageRecord(staged.serial, 0, staged.size, staged.trace), txn.handle)
        txn.partition.write_cached(staged.serial, staged.cached, txn.handle)
    txn.refs.add(staged.mid, count, check, txn.handle)
