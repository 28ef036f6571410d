"""One received message into any number of mailboxes of a partition, in one transaction.

`net.offload.deliver` is the whole way: it syncs the message file before this and flushes the log after it.
"""

import struct
import time
from collections.abc import Sequence

from attrs import evolve, field, frozen

from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.flags import keyword_bits
from store.index import ROW, chunk_number
from store.mailbox import MailboxState
from store.messagefiles import Staged
from store.partition import Partition
from store.refs import MessageRecord
from store.txn import WriteTxn
from store.values import Flag, Flags, InternalDate

_HEAD = struct.Struct("<IHhQQ")             # the fields of index.ROW that differ from mailbox to mailbox,
_TAIL = struct.Struct("<qQQII32s")          # and the others
assert _HEAD.size + _TAIL.size == ROW.itemsize
_SEEN, _DELETED = Flag.SEEN.value, Flag.DELETED.value

#: Refusals that concern one mailbox and leave the others to be delivered to.
_ONE_MAILBOX = frozenset({Problem.NO_MAILBOX, Problem.OVER_QUOTA, Problem.LIMIT})


@frozen
class Target:
    """A mailbox that a message is for, and the flags that it gets there."""

    entry: MailboxEntry
    flags: Flags = Flags()
    ignore_quota: bool = False


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

    A target that is over quota, full of keywords, or deleted meanwhile is refused alone. Raises NotOnDisk, and
    StoreError when the transaction as a whole cannot be done.
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
        count = sum(isinstance(outcome, Delivered) for outcome in outcomes)
        if count:
            _reference(txn, staged, known, count)
        return outcomes, bool(count) and known is None

    outcomes, staged.committed = partition.transact(work)
    if not staged.committed:
        staged.abort()
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
    entry, flags = target.entry, target.flags
    before = txn.state(entry.id)
    bits, keywords = keyword_bits(before, flags.keywords, add=True)
    txn.charge(entry, arrival.size, 1, enforce=not target.ignore_quota)
    uid, modseq, system = before.uidnext, before.highestmodseq + 1, flags.system.value
    txn.append_octets(entry.id, chunk_number(uid), _HEAD.pack(uid, system, arrival.zone, bits, modseq) + arrival.tail)
    after = MailboxState(
        before.uidvalidity, uid + 1, modseq, before.changed, before.recent, before.messages + 1,
        before.unseen + (not system & _SEEN), before.deleted + (system & _DELETED != 0),
        before.octets + arrival.size, before.epoch, keywords)
    txn.set_state(entry.id, before, after)
    return Delivered(entry, uid)


def _reference(txn: WriteTxn, staged: Staged, known: MessageRecord | None, count: int) -> None:
    """Count the new references; the file's row is locked last, as everywhere, so that no two wait for each other."""
    record = _usable(txn.partition, txn.refs.find_to_change(staged.mid, txn.handle), staged.mid)
    if (record and record.serial) != (known and known.serial):      # another process was quicker, or purged it
        raise StoreError(Problem.BUSY, detail="the same message arrived at the same moment")
    if record is None:
        record = MessageRecord(staged.serial, 0, staged.size, staged.trace)
        txn.partition.write_cached(staged.serial, staged.cached, txn.handle)
    txn.refs.write(staged.mid, evolve(record, references=record.references + count, released=0), txn.handle)
