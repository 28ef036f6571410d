"""What a transaction of a partition did to records, as events; written by that transaction before it is committed.

What is done to single records (a delivery, a flag) says itself what it did, since that is most of what happens. Of all
else a `Recording` remembers each chunk of the index as it was before the transaction touched it, and compares at the
end: a UID that is new has arrived, one that is missing was expunged, another flag was set or cleared. Of a mailbox that
is on its way to another partition, was deleted, or is being made nothing is told: its events are those of the list.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxId
from mboxlist.names import MailboxName
from mboxlist.table import AtZero
from store.events import receivers
from store.events.eventvalues import (
    APPEND,
    CLEAR,
    EVENT,
    EXPIRE,
    EXPUNGE,
    GAP,
    NEW,
    OF_RECORDS,
    READ,
    SET,
    TRASH,
    Event,
)
from store.events.outboxtable import OutboxTable
from store.events.packedevents import MOST, pack_event, sole_row, words
from store.events.receivers import Receiver, Receivers
from store.tables.index import CHUNK, ROW, Rows, arrival_of, arrivals_of, chunk_key, octets_of_chunks, rows_of
from store.tables.state import DELETED, SEEN, in_epoch, is_here, keywords_of, state_key

log = logging.getLogger(__name__)

_SYSTEM = 0xFFFF
REMEMBERED = 50_000         # names of mailboxes, and events of each, of which it is known who wants them
ALIKE = 10_000              # kinds of events, each of one mailbox, whose rows are made in the short way: 10 MB


@define(eq=False)
class Recorder:
    """Of an open store: who wants what, and what events say of the store. `name_of` finds a mailbox in the list
    by its id, four octets; `names` has at 0 another value after a name has changed. `known` is who wants events of
    records of a mailbox of that name, as `wanting` has found; `known_alike` is what `alike` has found."""

    root: Path
    server: str = ""
    name_of: Callable[[bytes], bytes | None] = lambda mailbox: None
    names: AtZero = (0,)
    receivers: Receivers = field(factory=Receivers)
    octets: bytes = field(init=False)               # the server's name, as rows have it
    known: dict[tuple[bytes, str], tuple[Receiver, ...]] = field(factory=dict, init=False)
    known_alike: "dict[tuple[int, str, int], Alike]" = field(factory=dict, init=False)
    lost: dict[str, int] = field(factory=dict)      # of receivers that are full, what this process did not write
    _seen: tuple[int, ...] | None = None
    _said: str = ""         # why the file could not be read

    def __attrs_post_init__(self) -> None:
        self.server = self.server or socket.gethostname().lower()
        self.octets = self.server.encode()

    def look(self) -> bool:
        """Have the filters that the file has now; whether they are other ones. Those of before hold while it cannot be
        read: mail goes on, whoever is to hear of it."""
        try:
            seen = receivers.seen(self.root)
            if seen == self._seen:
                return False
            self.receivers, self.known, self.known_alike = receivers.read(self.root), {}, {}
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

    def write_sole(self, step: "Step", outbox: OutboxTable, txn: Txn) -> None:
        """Write what was done to a single message, by a transaction that did nothing else: most are like that."""
        mailbox, kind, uid, _, size, flags, figures = step
        alike = self.known_alike.get((mailbox, kind, flags))
        if alike is None or alike[0] != self.names[0]:
            alike = self.alike(mailbox, kind, flags, outbox)
        _, wanting, waiting, row = alike
        if self.receivers.full:
            waiting = tuple([each.waiting for each in wanting if not self.is_full(each)])
        if waiting:
            outbox.add_event(waiting, row(uid, size, figures), txn)

    def alike(self, mailbox: MailboxId, kind: str, flags: int, outbox: OutboxTable) -> "Alike":
        """What events of that type have in common that are told of one mailbox, with these flags."""
        known, names = self.known_alike, self.names[0]          # before what may change is read
        name = self.name_of(mailbox.to_bytes(4, "big"))
        wanting = self.wanting(name, kind) if name else ()
        alike = (names, wanting, tuple([each.waiting for each in wanting]),
                 sole_row(self.octets, outbox.pid, kind, mailbox, name or b"", flags))
        if name:
            if len(known) >= ALIKE:
                known.clear()
            known[mailbox, kind, flags] = alike
        return alike

    def wanting(self, name: bytes, kind: str) -> tuple[Receiver, ...]:
        """Those who want such events of records of that mailbox."""
        known = self.known
        found = known.get((name, kind))
        if found is None:
            if len(known) >= REMEMBERED:
                known.clear()
            text = name.decode()
            owner = MailboxName.parse(text).owner
            found = known[name, kind] = tuple(each for each in self.receivers.of_records
                                                   if kind in each.wanted and each.concerns(owner, text))
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


class Tables(Protocol):
    """What a recording reads of a partition, and the outbox; the `epoch` is that of the figures."""

    index: Table
    states: Table
    outbox: OutboxTable
    epoch: int


Alike = tuple[object, tuple[Receiver, ...], tuple[bytes, ...], Callable[[int, int, bytes], bytes]]
"""Of events that are alike: `Recorder.names` when this was found; who wants them; what the keys of these begin with;
and what makes the row (`sole_row`)."""
Step = tuple[MailboxId, str, int, int, int, int, bytes]
"""What was done to single messages: mailbox, event, first and last UID, octets, system flags, and the figures of the
mailbox then, as they are stored."""


@define(eq=False)
class Recording:
    """Of one transaction that does more than one thing to one message (else `Recorder.write_sole`). What it did to
    single messages are its `steps`."""

    recorder: Recorder
    _steps: list[Step]
    _before: dict[tuple[MailboxId, int], bytes | None] | None = None
    _own: dict[tuple[MailboxId, int, str], tuple[NDArray[np.void], NDArray[np.void]]] | None = None
    _rows: dict[tuple[str, int], list[bytes]] | None = None
    _places: int = 0
    _delivered: set[tuple[int, int]] | None = None      # of what is compared, what came by a delivery
    _expired: set[int] | None = None

    def expire(self, mailbox: MailboxId) -> None:
        """What it takes from this mailbox, it takes by a rule."""
        self._expired = {mailbox, *(self._expired or ())}

    def is_expired(self, mailbox: MailboxId) -> bool:
        """Whether it takes messages from it by a rule."""
        return self._expired is not None and mailbox in self._expired

    def is_delivered(self, mailbox: MailboxId, uid: int) -> bool:
        """Whether that message, whose chunk is compared, came by a delivery."""
        return self._delivered is not None and (mailbox, uid) in self._delivered

    def arrived(self, mailbox: MailboxId, value: bytes | None, record: bytes, figures: bytes, *, delivery: bool
                ) -> None:
        """A message has come, with that record, into a chunk whose value was this; the mailbox has those figures."""
        uid, flags, keywords, size = arrival_of(record)
        if keywords or self._before and (mailbox, (uid - 1) // CHUNK) in self._before:
            self.note(mailbox, (uid - 1) // CHUNK, value)
            if delivery:
                self._delivered = self._delivered or set()
                self._delivered.add((mailbox, uid))
            return
        kind, first = NEW if delivery else APPEND, uid
        if self._steps:
            (where, last_kind, begin, end, octets, last_flags, _) = self._steps[-1]
            if (where, last_kind, end, last_flags) == (mailbox, kind, uid - 1, flags):
                self._steps.pop()
                first, size = begin, octets + size
        self._steps.append((mailbox, kind, first, uid, size, flags, figures))

    def flagged(self, mailbox: MailboxId, uid: int, came: int, went: int, figures: bytes) -> None:
        """System flags (bits) of a message were set and cleared; the mailbox has those figures."""
        if not self._before or (mailbox, (uid - 1) // CHUNK) not in self._before:
            for kind, flags in kinds_of_flags(came, went):
                self._steps.append((mailbox, kind, uid, uid, 0, flags, figures))

    def note(self, mailbox: MailboxId, number: int, value: bytes | None) -> None:
        """That chunk is written now; so far its value was this."""
        if self._before is None:
            self._before = {}
        self._before.setdefault((mailbox, number), value)

    def note_own(self, mailbox: MailboxId, number: int, reader: str, old: NDArray[np.void], new: NDArray[np.void]
                  ) -> None:
        """A reader's own flags in that chunk are written now."""
        if self._own is None:
            self._own = {}
        first, _ = self._own.get((mailbox, number, reader), (old, old))
        self._own[mailbox, number, reader] = first, new.copy()

    def write(self, tables: Tables, txn: Txn) -> None:
        """Say what has happened to single messages, compare chunks, and write all of it. The last thing that the
        transaction does."""
        for mailbox, kind, first, last, size, flags, figures in self._steps:
            if name := self.recorder.name_of(mailbox.to_bytes(4, "big")):
                said = b"%b\n%d\n" % (name, first) if first == last else b"%b\n%d:%d\n" % (name, first, last)
                self.add(name, kind, mailbox, figures, said, size, flags)
        if self._before or self._own:
            self._compare(tables, txn)
        if self._rows:
            tables.outbox.add_events(self._rows, self._places, self.recorder.octets, txn)

    def add(self, name: bytes, kind: str, mailbox: MailboxId, figures: bytes, said: bytes, size: int = 0,
            flags: int = 0) -> None:
        """An event of a mailbox of that name and those figures. `said`: see `packedevents.words`."""
        recorder, place = self.recorder, self._places
        wanting = recorder.known.get((name, kind))
        if wanting is None:
            wanting = recorder.wanting(name, kind)
        if wanting:
            octets = pack_event(place % MOST, kind, mailbox, figures, size, flags, said)
            self._places, self._rows = place + 1, self._rows or {}
            for each in wanting:
                if not each.full or not recorder.is_full(each):
                    self._rows.setdefault((each.name, place // MOST), []).append(octets)

    def _compare(self, tables: Tables, txn: Txn) -> None:
        chunks: dict[MailboxId, list[int]] = {}
        for mailbox, number in self._before or ():
            chunks.setdefault(mailbox, []).append(number)
        for mailbox in sorted({*chunks, *(mailbox for mailbox, _, _ in self._own or ())}):
            name = self.recorder.name_of(mailbox.to_bytes(4, "big"))
            if not name or not any(self.recorder.wanting(name, kind) for kind in OF_RECORDS):
                continue
            data = tables.states.get_to_change(state_key(mailbox), txn)
            if data is not None and is_here(data):
                of = _OfMailbox(self, mailbox, name, in_epoch(data, tables.epoch))
                of.of_records(tables, sorted(chunks.get(mailbox, ())), txn)
                if self._own:
                    of.of_own_flags()

    def old(self, mailbox: MailboxId, numbers: list[int]) -> bytes:
        """The records that these chunks had before."""
        before = self._before or {}
        return octets_of_chunks([before[mailbox, number] for number in numbers])

    def own_flags(self, mailbox: MailboxId) -> Iterator[tuple[int, str, NDArray[np.void], NDArray[np.void]]]:
        """Chunks in which readers' own flags were written: number, reader, before, now."""
        for (where, number, reader), (old, new) in sorted((self._own or {}).items(), key=lambda item: item[0]):
            if where == mailbox:
                yield number, reader, old, new


@lru_cache(maxsize=1024)
def kinds_of_flags(came: int, went: int) -> tuple[tuple[str, int], ...]:
    r"""The events of system flags (bits) that were set and cleared, each with the flags that it names. What got \Seen
    is MessageRead, what got \Deleted MessageTrash, and neither is told once more as a flag."""
    said = ((READ, came & SEEN), (TRASH, came & DELETED), (SET, came & ~(SEEN | DELETED)), (CLEAR, went))
    return tuple((kind, bits if kind in (SET, CLEAR) else 0) for kind, bits in said if bits)


@frozen
class _OfMailbox:
    """What happened in one mailbox, by chunks that were written; `figures`: its own now, as they are stored."""

    recording: Recording
    mailbox: MailboxId
    name: bytes
    figures: bytes

    def of_records(self, tables: Tables, numbers: list[int], txn: Txn) -> None:
        """Arrivals, expunges and flags that everybody sees."""
        values = [tables.index.get(chunk_key(self.mailbox, number), txn) for number in numbers]
        old, now = differing(self.recording.old(self.mailbox, numbers), octets_of_chunks(values))
        before, fresh = rows_of(old), rows_of(now)
        if len(old) and len(now):
            stays = np.isin(before["uid"], fresh["uid"], assume_unique=True)
            was_there = np.isin(fresh["uid"], before["uid"], assume_unique=True)
            of_both = before[stays], fresh[was_there]
            self._of_flags(of_both[1]["uid"], of_both[0]["flags"], of_both[1]["flags"], of_both[0]["keywords"],
                           of_both[1]["keywords"])
            before, fresh = before[~stays], fresh[~was_there]
        if len(before):
            self._add(EXPIRE if self.recording.is_expired(self.mailbox) else EXPUNGE, before["uid"])
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
        groups: dict[tuple[bool, int, int], list[int]] = {}
        for at, (uid, flags, keywords, _) in enumerate(arrivals_of(rows.tobytes())):
            groups.setdefault((self.recording.is_delivered(self.mailbox, uid), flags, keywords), []).append(at)
        for (delivered, system, keywords), places in groups.items():
            some = rows if len(places) == len(rows) else rows[places]
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
        said = words(self.name, uid_set(uids).encode(), reader,
                     [name for at, name in enumerate(names) if keywords >> at & 1])
        self.recording.add(self.name, kind, self.mailbox, self.figures, said, size, flags)


def differing(old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """Records in stored form, as they were and as they are, without those at the beginning and the end that are alike:
    mostly one is left, or none, on either side."""
    if new.startswith(old):
        return b"", new[len(old):]
    size = ROW.itemsize
    first = _alike(min(len(old), len(new)) // size, lambda begin, end: (
        old[begin * size:end * size] == new[begin * size:end * size]))
    last = _alike(min(len(old), len(new)) // size - first, lambda begin, end: (
        old[len(old) - end * size:len(old) - begin * size] == new[len(new) - end * size:len(new) - begin * size]))
    return old[first * size:len(old) - last * size], new[first * size:len(new) - last * size]


def _alike(most: int, same: Callable[[int, int], bool]) -> int:
    """How many, of so many, are alike from the first on: `same` says whether those from here to there are."""
    alike = 0
    while alike < most:
        half = (alike + most + 1) // 2
        if same(alike, half):
            alike = half
        else:
            most = half - 1
    return alike


def uid_set(uids: NDArray[np.uint32]) -> str:
    """Ascending UIDs as IMAP writes a set of them (RFC 3501 §9, sequence-set)."""
    if len(uids) == 1:
        return f"{uids[0]}"
    breaks = np.flatnonzero(np.diff(uids.astype(np.int64)) != 1)
    firsts, lasts = uids[np.concatenate(([0], breaks + 1))], uids[np.concatenate((breaks, [len(uids) - 1]))]
    return ",".join(f"{first}" if first == last else f"{first}:{last}"
                    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True))
