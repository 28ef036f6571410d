"""What a transaction of a partition did to records, as events; written by that transaction before it is committed.

A `Recording` remembers each chunk of the index as it was before the transaction touched it. At the end it compares: a
UID that is new has arrived, one that is missing was expunged, another flag was set or cleared. Of a mailbox that is on
its way to another partition, was deleted, or is being made nothing is told: its events are those of the list.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from mboxlist.engine.btree import Table, Txn
from mboxlist.entry import MailboxEntry, MailboxId
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
    mailbox_url,
    named_flags,
)
from store.events.outboxtable import OutboxTable
from store.events.receivers import Receiver, Receivers
from store.tables.index import Rows, chunk_key, join
from store.tables.state import DELETED, SEEN, MailboxState, is_here, state_key

log = logging.getLogger(__name__)

_SYSTEM = 0xFFFF


@define(eq=False)
class Recorder:
    """Of an open store: who wants what, and what events say of the store. `entry_of` finds a mailbox in the list."""

    root: Path
    server: str = ""
    entry_of: Callable[[MailboxId], MailboxEntry | None] = lambda mailbox: None
    receivers: Receivers = field(factory=Receivers)
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
            self.receivers = receivers.read(self.root)
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
        wanting = [each for each in among if each.wants(event)]
        for each in wanting:
            if each.full:
                self.lost[each.name] = self.lost.get(each.name, 0) + 1
        names = [each.name for each in wanting if not each.full]
        return outbox.add(names, EVENT, event.body(self.server), mailbox, txn) if names else []

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
class Recording:
    """Of one transaction. `delivered`: what came by a delivery; `expired`: mailboxes from which it takes messages by
    rules."""

    recorder: Recorder
    delivered: set[tuple[int, int]] = field(factory=set)
    expired: set[int] = field(factory=set)
    _before: dict[tuple[MailboxId, int], bytes | None] = field(factory=dict)
    _own: dict[tuple[MailboxId, int, str], tuple[NDArray[np.void], NDArray[np.void]]] = field(factory=dict)

    def note(self, mailbox: MailboxId, number: int, value: bytes | None) -> None:
        """That chunk is written now; so far its value was this."""
        self._before.setdefault((mailbox, number), value)

    def note_own(self, mailbox: MailboxId, number: int, reader: str, old: NDArray[np.void], new: NDArray[np.void]
                  ) -> None:
        """A reader's own flags in that chunk are written now."""
        first, _ = self._own.get((mailbox, number, reader), (old, old))
        self._own[mailbox, number, reader] = first, new.copy()

    def write(self, tables: Tables, txn: Txn) -> None:
        """Compare, and write what has happened. The last thing that the transaction does."""
        chunks: dict[MailboxId, list[int]] = {}
        for mailbox, number in self._before:
            chunks.setdefault(mailbox, []).append(number)
        for mailbox in sorted({*chunks, *(mailbox for mailbox, _, _ in self._own)}):
            data = tables.states.get_to_change(state_key(mailbox), txn)
            if data is None or not is_here(data):
                continue
            entry = self.recorder.entry_of(mailbox)
            among = self.recorder.receivers.of_records
            if entry is None or not any(each.concerns(entry.name.owner, str(entry.name)) for each in among):
                continue
            state = MailboxState.from_bytes(data, tables.epoch)
            of = _OfMailbox(self, entry, state)
            for event in (*of.of_records(tables, sorted(chunks.get(mailbox, ())), txn), *of.of_own_flags()):
                self.recorder.write(tables.outbox, event, mailbox, txn, among)

    def old(self, mailbox: MailboxId, numbers: list[int]) -> Rows:
        """The records that these chunks had before."""
        return join(value for number in numbers if (value := self._before[mailbox, number]) is not None)

    def own_flags(self, mailbox: MailboxId) -> Iterator[tuple[int, str, NDArray[np.void], NDArray[np.void]]]:
        """Chunks in which readers' own flags were written: number, reader, before, now."""
        for (where, number, reader), (old, new) in sorted(self._own.items(), key=lambda item: item[0]):
            if where == mailbox:
                yield number, reader, old, new


@frozen
class _OfMailbox:
    """What happened in one mailbox; `state`: its figures now."""

    recording: Recording
    entry: MailboxEntry
    state: MailboxState

    def of_records(self, tables: Tables, numbers: list[int], txn: Txn) -> Iterator[Event]:
        """Arrivals, expunges and flags that everybody sees."""
        if not numbers:
            return
        old = self.recording.old(self.entry.id, numbers)
        values = [tables.index.get(chunk_key(self.entry.id, number), txn) for number in numbers]
        new = join(value for value in values if value is not None)
        before, now, fresh = old, new[:len(old)], new[len(old):]
        if len(now) < len(old) or not (old["uid"] == now["uid"]).all():         # something went: rarer, and dearer
            stays = np.isin(old["uid"], new["uid"], assume_unique=True)
            if not stays.all():
                kind = EXPIRE if self.entry.id in self.recording.expired else EXPUNGE
                yield self._event(kind, old[~stays]["uid"])
            was_there = np.isin(new["uid"], old["uid"], assume_unique=True)
            before, now, fresh = old[stays], new[was_there], new[~was_there]
        if before.tobytes() != now.tobytes():
            yield from self._of_flags(now["uid"], before["flags"], now["flags"], before["keywords"], now["keywords"])
        yield from self._of_new_records(fresh)

    def of_own_flags(self) -> Iterator[Event]:
        """Flags that a reader of a shared mailbox has for itself."""
        for number, reader, old, new in self.recording.own_flags(self.entry.id):
            at = np.flatnonzero(old["flags"] != new["flags"])
            uids = (at + number * len(new) + 1).astype(np.uint32)
            none = np.zeros(len(at), np.uint64)
            for event in self._of_flags(uids, old["flags"][at].astype(np.uint16),
                                         new["flags"][at].astype(np.uint16), none, none):
                yield Event(event.type, event.owner, event.name, {**event.parameters, "user": reader})

    def _of_new_records(self, rows: Rows) -> Iterator[Event]:
        """One event for all that came in the same way with the same flags."""
        if not len(rows):
            return
        byway = [(self.entry.id, uid) in self.recording.delivered for uid in rows["uid"].tolist()]
        groups: dict[tuple[bool, int, int], list[int]] = {}
        for at, key in enumerate(zip(byway, rows["flags"].tolist(), rows["keywords"].tolist(), strict=True)):
            groups.setdefault(key, []).append(at)
        for (delivered, system, words), places in groups.items():
            some = rows[places]
            more: dict[str, object] = {"messageSize": int(some["size"].sum())}
            if flags := named_flags(system, self._words(words)):
                more["flagNames"] = flags
            if len(some) == 1:
                more["uri"] = f"{mailbox_url(self.recording.recorder.server, self.entry)}/;UID={int(some['uid'][0])}"
            yield self._event(NEW if delivered else APPEND, some["uid"], more)

    def _of_flags(self, uids: NDArray[np.uint32], old: NDArray[Any], new: NDArray[Any], old_words: NDArray[np.uint64],
                  new_words: NDArray[np.uint64]) -> Iterator[Event]:
        r"""One event for all that got, or lost, the same flags. What got \Seen is MessageRead, what got \Deleted is
        MessageTrash, and neither is told once more as a flag."""
        came, went = new & ~old, old & ~new
        for kind, bit in ((READ, SEEN), (TRASH, DELETED)):
            if len(some := uids[came & bit != 0]):
                yield self._event(kind, some)
        rest = _SYSTEM & ~(SEEN | DELETED)
        for kind, bits, words in ((SET, came & rest, new_words & ~old_words), (CLEAR, went, old_words & ~new_words)):
            at = np.flatnonzero((bits != 0) | (words != 0))
            groups: dict[tuple[int, int], list[int]] = {}
            for place, key in zip(at.tolist(), zip(bits[at].tolist(), words[at].tolist(), strict=True), strict=True):
                groups.setdefault(key, []).append(place)
            for (system, keywords), places in groups.items():
                yield self._event(kind, uids[places], {"flagNames": named_flags(system, self._words(keywords))})

    def _words(self, bits: int) -> list[str]:
        return [name for at, name in enumerate(self.state.keywords) if bits >> at & 1]

    def _event(self, kind: str, uids: NDArray[np.uint32], more: dict[str, object] | None = None) -> Event:
        assert kind in OF_RECORDS
        return Event(kind, self.entry.name.owner, self.entry.name, {
            "mailboxID": mailbox_url(self.recording.recorder.server, self.entry), "uidset": uid_set(uids),
            "uidnext": self.state.uidnext, "modseq": self.state.highestmodseq, "messages": self.state.messages,
            "vnd.onecopy.mailbox": self.entry.id, **(more or {})})


def uid_set(uids: NDArray[np.uint32]) -> str:
    """Ascending UIDs as IMAP writes a set of them (RFC 3501 §9, sequence-set)."""
    if len(uids) == 1:
        return f"{uids[0]}"
    breaks = np.flatnonzero(np.diff(uids.astype(np.int64)) != 1)
    firsts, lasts = uids[np.concatenate(([0], breaks + 1))], uids[np.concatenate((breaks, [len(uids) - 1]))]
    return ",".join(f"{first}" if first == last else f"{first}:{last}"
                    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True))
