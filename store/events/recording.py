"""What a transaction of a partition did to records, as events; written by that transaction before it is committed.

What is done to single records (a delivery, a flag) says itself what it did, since that is most of what happens. Of all
else a `Recording` remembers each chunk of the index as it was before the transaction touched it, and compares at the
end: a UID that is new has arrived, one that is missing was expunged, another flag was set or cleared. Of a mailbox that
is on its way to another partition, was deleted, or is being made nothing is told: its events are those of the list.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName
from store.events import receivers
from store.events.eventvalues import APPEND, CLEAR, EVENT, EXPIRE, EXPUNGE, GAP, NEW, READ, SET, TRASH, Event
from store.events.outboxtable import OutboxTable
from store.events.packedevents import MOST, pack_event, words
from store.events.receivers import Receiver, Receivers
from store.tables.index import Rows, arrival_of, chunk_key, chunk_number, join
from store.tables.state import DELETED, SEEN, in_epoch, is_here, keywords_of, shown, state_key

log = logging.getLogger(__name__)

_SYSTEM = 0xFFFF
REMEMBERED = 10_000         # names of mailboxes of which it is known who wants their events


@define(eq=False)
class Recorder:
    """Of an open store: who wants what, and what events say of the store. `entry_of` finds a mailbox in the list."""

    root: Path
    server: str = ""
    entry_of: Callable[[MailboxId], MailboxEntry | None] = lambda mailbox: None
    receivers: Receivers = field(factory=Receivers)
    _concerned: dict[MailboxName, tuple[Receiver, ...]] = field(factory=dict, init=False)
    lost: dict[str, int] = field(factory=dict)      # of receivers that are full, what this process did not write
    _seen: tuple[int, ...] | None = None
    _said: str = ""         # why the file could not be read

    def __attrs_post_init__(self) -> None:
        self.server = self.server or socket.gethostname().lower()

    def look(self) -> bool:
        """Have the filters that the file has now; whether they are other ones. Those of before hold while it cannot be
        read: mail goes on, whoever is to hear of it."""
        try:
            seen = receivers.seen(self.root)
            if seen == self._seen:
                return False
            self.receivers, self._concerned = receivers.read(self.root), {}
        except OSError as error:
            if str(error) != self._said:
                log.error("who wants which events cannot be read: %s; what was wanted before holds", error)
            self._said = str(error)
            return False
        self._seen, self._said = seen, ""
        return True

    def write(self, outbox: OutboxTable, event: Event, mailbox: int, txn: Txn, among: Iterable[Receiver]
              ) -> list[bytes]:
        """Write the event for those of these receivers who want it; the keys of its rows."""
        names = [each.name for each in among if each.wants(event) and not self.is_full(each)]
        return outbox.add(names, EVENT, event.body(self.server), mailbox, txn) if names else []

    def concerned(self, name: MailboxName) -> tuple[Receiver, ...]:
        """Those who want events of records of that mailbox."""
        found = self._concerned.get(name)
        if found is None:
            if len(self._concerned) >= REMEMBERED:
                self._concerned.clear()
            found = self._concerned[name] = tuple(each for each in self.receivers.of_records
                                                  if each.concerns(name.owner, str(name)))
        return found

    def is_full(self, receiver: Receiver) -> bool:
        """Whether it gets no more; that it does not get this is counted."""
        if receiver.full:
            self.lost[receiver.name] = self.lost.get(receiver.name, 0) + 1
        return receiver.full

    def write_gap(self, outbox: OutboxTable, why: str, txn: Txn, names: Iterable[str] | None = None) -> None:
        """Events may be missing from here on back, for those receivers or all: they had better look at what there is.
        """
        wanted = [each.name for each in self.receivers.all if each.wanted] if names is None else list(names)
        if wanted:
            outbox.add(wanted, EVENT, Event(GAP, "", None, {"vnd.onecopy.reason": why}).body(self.server), 0, txn)


@frozen
class Tables:
    """Those of a partition that a recording reads, and the outbox; the `epoch` is that of the figures."""

    index: Table
    states: Table
    outbox: OutboxTable
    epoch: int


@define(eq=False)
class _Arrived:
    """Messages that came one after the other, all in the same way and with the same flags."""

    mailbox: MailboxId
    kind: str
    first: int
    last: int
    flags: int
    size: int
    figures: bytes          # of the mailbox then, as they are stored


@frozen
class _Flagged:
    """Flags of one message: bits that came, and that went."""

    mailbox: MailboxId
    uid: int
    came: int
    went: int
    figures: bytes


@define(eq=False)
class Recording:
    """Of one transaction. `delivered`: what came by a delivery; `expired`: mailboxes from which it takes messages by
    rules. `arrivals`, `flags`: whether anybody wants to hear of such."""

    recorder: Recorder
    arrivals: bool = field(init=False)
    flags: bool = field(init=False)
    delivered: set[tuple[int, int]] = field(factory=set)
    expired: set[int] = field(factory=set)
    _steps: list[_Arrived | _Flagged] = field(factory=list)
    _before: dict[tuple[MailboxId, int], bytes | None] = field(factory=dict)
    _own: dict[tuple[MailboxId, int, str], tuple[NDArray[np.void], NDArray[np.void]]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        wanted = self.recorder.receivers
        self.arrivals, self.flags = wanted.arrivals, wanted.flags

    def arrived(self, mailbox: MailboxId, value: bytes | None, record: bytes, figures: bytes) -> None:
        """A message has come, with that record, into a chunk whose value was this; the mailbox has those figures."""
        uid, flags, keywords, size = arrival_of(record)
        number = chunk_number(uid)
        if keywords or (mailbox, number) in self._before:
            self.note(mailbox, number, value)
            return
        kind = NEW if (mailbox, uid) in self.delivered else APPEND
        if self._steps:
            last = self._steps[-1]
            if isinstance(last, _Arrived) and (last.mailbox, last.kind, last.flags, last.last) == (
                    mailbox, kind, flags, uid - 1):
                last.last, last.size, last.figures = uid, last.size + size, figures
                return
        self._steps.append(_Arrived(mailbox, kind, uid, uid, flags, size, figures))

    def flagged(self, mailbox: MailboxId, uid: int, came: int, went: int, figures: bytes) -> None:
        """System flags (bits) of a message were set and cleared; the mailbox has those figures."""
        if (mailbox, chunk_number(uid)) not in self._before:
            self._steps.append(_Flagged(mailbox, uid, came, went, figures))

    def note(self, mailbox: MailboxId, number: int, value: bytes | None) -> None:
        """That chunk is written now; so far its value was this."""
        self._before.setdefault((mailbox, number), value)

    def note_own(self, mailbox: MailboxId, number: int, reader: str, old: NDArray[np.void], new: NDArray[np.void]
                  ) -> None:
        """A reader's own flags in that chunk are written now."""
        first, _ = self._own.get((mailbox, number, reader), (old, old))
        self._own[mailbox, number, reader] = first, new.copy()

    def write(self, tables: Tables, txn: Txn) -> None:
        """Say what has happened to single records, compare chunks, and write all of it. The last thing that the
        transaction does."""
        if not (self._steps or self._before or self._own):
            return
        found = _Events(self.recorder)
        for step in self._steps:
            if isinstance(step, _Arrived):
                uids = str(step.first) if step.first == step.last else f"{step.first}:{step.last}"
                found.add(step.kind, step.mailbox, step.figures, uids, step.size, step.flags)
            else:
                for kind, bits in kinds_of_flags(step.came, step.went):
                    found.add(kind, step.mailbox, step.figures, str(step.uid), 0, bits)
        if self._before or self._own:
            self._compare(tables, found, txn)
        found.write(tables.outbox, txn)

    def _compare(self, tables: Tables, found: "_Events", txn: Txn) -> None:
        chunks: dict[MailboxId, list[int]] = {}
        for mailbox, number in self._before:
            chunks.setdefault(mailbox, []).append(number)
        for mailbox in sorted({*chunks, *(mailbox for mailbox, _, _ in self._own)}):
            if found.of(mailbox) is None:
                continue
            data = tables.states.get_to_change(state_key(mailbox), txn)
            if data is not None and is_here(data):
                of = _OfMailbox(self, mailbox, in_epoch(data, tables.epoch), found)
                of.of_records(tables, sorted(chunks.get(mailbox, ())), txn)
                of.of_own_flags()

    def old(self, mailbox: MailboxId, numbers: list[int]) -> Rows:
        """The records that these chunks had before."""
        return join(value for number in numbers if (value := self._before[mailbox, number]) is not None)

    def own_flags(self, mailbox: MailboxId) -> Iterator[tuple[int, str, NDArray[np.void], NDArray[np.void]]]:
        """Chunks in which readers' own flags were written: number, reader, before, now."""
        for (where, number, reader), (old, new) in sorted(self._own.items(), key=lambda item: item[0]):
            if where == mailbox:
                yield number, reader, old, new


def kinds_of_flags(came: int, went: int) -> Iterator[tuple[str, int]]:
    r"""The events of system flags (bits) that were set and cleared, each with the flags that it names. What got \Seen
    is MessageRead, what got \Deleted MessageTrash, and neither is told once more as a flag."""
    if came & SEEN:
        yield READ, 0
    if came & DELETED:
        yield TRASH, 0
    if rest := came & ~(SEEN | DELETED):
        yield SET, rest
    if went:
        yield CLEAR, went


@define(eq=False)
class _Events:
    """Those of one transaction, packed as they are found, for those who want them."""

    recorder: Recorder
    _rows: dict[tuple[str, int], list[bytes]] = field(factory=dict)
    _places: int = 0
    _known: dict[MailboxId, tuple[MailboxEntry, tuple[Receiver, ...]] | None] = field(factory=dict)

    def of(self, mailbox: MailboxId) -> tuple[MailboxEntry, tuple[Receiver, ...]] | None:
        """The mailbox in the list, and who wants to hear of it; None when nobody does."""
        if mailbox not in self._known:
            entry = self.recorder.entry_of(mailbox)
            wanting = () if entry is None else self.recorder.concerned(entry.name)
            self._known[mailbox] = (entry, wanting) if entry is not None and wanting else None
        return self._known[mailbox]

    def add(self, kind: str, mailbox: MailboxId, figures: bytes, uids: str, size: int = 0, flags: int = 0,
            reader: str = "", keywords: Sequence[str] = ()) -> None:
        """An event of a mailbox that has those figures."""
        if (known := self.of(mailbox)) is None:
            return
        entry, among = known
        names = [each.name for each in among if kind in each.wanted and not self.recorder.is_full(each)]
        if names:
            thousands, place = divmod(self._places, MOST)
            octets = pack_event(place, kind, mailbox, entry.uidvalidity, shown(figures), size, flags,
                                words(entry.name, uids, reader, keywords))
            for name in names:
                self._rows.setdefault((name, thousands), []).append(octets)
            self._places += 1

    def write(self, outbox: OutboxTable, txn: Txn) -> None:
        """Have them in the outbox."""
        if self._rows:
            outbox.add_events(self._rows, self._places, self.recorder.server.encode(), txn)


@frozen
class _OfMailbox:
    """What happened in one mailbox, by chunks that were written; `figures`: its own now, as they are stored."""

    recording: Recording
    mailbox: MailboxId
    figures: bytes
    found: _Events

    def of_records(self, tables: Tables, numbers: list[int], txn: Txn) -> None:
        """Arrivals, expunges and flags that everybody sees."""
        if not numbers:
            return
        old = self.recording.old(self.mailbox, numbers)
        values = [tables.index.get(chunk_key(self.mailbox, number), txn) for number in numbers]
        new = join(value for value in values if value is not None)
        before, now, fresh = old, new[:len(old)], new[len(old):]
        if len(now) < len(old) or not (old["uid"] == now["uid"]).all():         # something went: rarer, and dearer
            stays = np.isin(old["uid"], new["uid"], assume_unique=True)
            if not stays.all():
                kind = EXPIRE if self.mailbox in self.recording.expired else EXPUNGE
                self._add(kind, old[~stays]["uid"])
            was_there = np.isin(new["uid"], old["uid"], assume_unique=True)
            before, now, fresh = old[stays], new[was_there], new[~was_there]
        if before.tobytes() != now.tobytes():
            self._of_flags(now["uid"], before["flags"], now["flags"], before["keywords"], now["keywords"])
        self._of_new_records(fresh)

    def of_own_flags(self) -> None:
        """Flags that a reader of a shared mailbox has for itself."""
        for number, reader, old, new in self.recording.own_flags(self.mailbox):
            at = np.flatnonzero(old["flags"] != new["flags"])
            uids = (at + number * len(new) + 1).astype(np.uint32)
            none = np.zeros(len(at), np.uint64)
            self._of_flags(uids, old["flags"][at].astype(np.uint16), new["flags"][at].astype(np.uint16), none, none,
                           reader)

    def _of_new_records(self, rows: Rows) -> None:
        """One event for all that came in the same way with the same flags."""
        if not len(rows):
            return
        byway = [(self.mailbox, uid) in self.recording.delivered for uid in rows["uid"].tolist()]
        groups: dict[tuple[bool, int, int], list[int]] = {}
        for at, key in enumerate(zip(byway, rows["flags"].tolist(), rows["keywords"].tolist(), strict=True)):
            groups.setdefault(key, []).append(at)
        for (delivered, system, keywords), places in groups.items():
            some = rows[places]
            self._add(NEW if delivered else APPEND, some["uid"], int(some["size"].sum()), system, keywords)

    def _of_flags(self, uids: NDArray[np.uint32], old: NDArray[Any], new: NDArray[Any], old_words: NDArray[np.uint64],
                  new_words: NDArray[np.uint64], reader: str = "") -> None:
        """One event for all that got, or lost, the same flags; see `kinds_of_flags`."""
        came, went = new & ~old, old & ~new
        for kind, bit in ((READ, SEEN), (TRASH, DELETED)):
            if len(some := uids[came & bit != 0]):
                self._add(kind, some, reader=reader)
        rest = _SYSTEM & ~(SEEN | DELETED)
        for kind, bits, named in ((SET, came & rest, new_words & ~old_words), (CLEAR, went, old_words & ~new_words)):
            at = np.flatnonzero((bits != 0) | (named != 0))
            groups: dict[tuple[int, int], list[int]] = {}
            for place, key in zip(at.tolist(), zip(bits[at].tolist(), named[at].tolist(), strict=True), strict=True):
                groups.setdefault(key, []).append(place)
            for (system, keywords), places in groups.items():
                self._add(kind, uids[places], 0, system, keywords, reader)

    def _add(self, kind: str, uids: NDArray[np.uint32], size: int = 0, flags: int = 0, keywords: int = 0,
             reader: str = "") -> None:
        names = keywords_of(self.figures) if keywords else ()
        self.found.add(kind, self.mailbox, self.figures, uid_set(uids), size, flags, reader,
                       [name for at, name in enumerate(names) if keywords >> at & 1])


def uid_set(uids: NDArray[np.uint32]) -> str:
    """Ascending UIDs as IMAP writes a set of them (RFC 3501 §9, sequence-set)."""
    if len(uids) == 1:
        return f"{uids[0]}"
    breaks = np.flatnonzero(np.diff(uids.astype(np.int64)) != 1)
    firsts, lasts = uids[np.concatenate(([0], breaks + 1))], uids[np.concatenate((breaks, [len(uids) - 1]))]
    return ",".join(f"{first}" if first == last else f"{first}:{last}"
                    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True))
