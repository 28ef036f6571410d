"""What SORT, THREAD and SEARCH compare, of all messages of a mailbox side by side, kept in memory between commands.

A column knows one field of the envelope: dates and message ids as numbers, texts folded for comparison. It is made from
cache records as far as messages are asked for, and only grows; what is new costs reading its records and no others.
Messages go by the first octets of their digests: they say what the content is wherever the message is.
"""

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store import envelopes, headers
from store.cache import CachedMessage
from store.collation import collation_key
from store.errors import StoreError
from store.index import ROW, Rows
from store.mailbox import Mailbox
from store.subjects import base_subject
from store.text import decode_words

if TYPE_CHECKING:
    from store.store import Store

log = logging.getLogger(__name__)

KEPT = 500_000              # messages in all columns of a process together: some 100 MB
BATCH = 256                 # cache records that are read together
SPARE = 1000                # messages that have gone of which a column still knows
NO_DATE = np.iinfo(np.int64).min

Numbers = NDArray[np.int64]
Places = NDArray[np.intp]

_BEFORE = sum(ROW[name].itemsize for name in takewhile(lambda name: name != "mid", ROW.names or ()))
_DIGEST = np.dtype([("before", f"V{_BEFORE}"), ("digest", "<u8"), ("after", f"V{ROW.itemsize - _BEFORE - 8}")])
_MSG_ID = re.compile(rb"<([^<>]++)>")
_BLANK = re.compile(rb'[ \t\r\n"]++')


class Words:
    """A text of each message, equal ones kept once: `ids` are equal where texts are."""

    def __init__(self) -> None:
        self.ids: Numbers = np.zeros(1, np.int64)           # place 0: an empty text
        self._numbers: dict[bytes, int] = {b"": 0}
        self._ranks: Numbers = np.zeros(1, np.int64)

    def add(self, texts: Iterable[bytes]) -> None:
        """Texts of further messages."""
        numbers = self._numbers
        more = [numbers.setdefault(text, len(numbers)) for text in texts]
        self.ids = np.concatenate((self.ids, np.array(more, np.int64)))

    def ranks(self, places: Places) -> Numbers:
        """Numbers in the order of these messages' texts."""
        if len(self._ranks) < len(self._numbers):
            known = list(self._numbers)
            ranks = np.empty(len(known), np.int64)
            ranks[sorted(range(len(known)), key=known.__getitem__)] = np.arange(len(known))
            self._ranks = ranks
        return self._ranks[self.ids[places]]


class Texts:
    """A text of each message that is searched in; all of them in one string, so that one search finds all."""

    def __init__(self) -> None:
        self.there = np.zeros(1, np.bool_)                  # whether the field is there at all
        self._joined = b"\n"
        self._starts: Numbers = np.zeros(1, np.int64)

    def add(self, texts: Sequence[bytes | None]) -> None:
        """Texts of further messages, None where the field is not there."""
        pieces = [(text or b"").replace(b"\n", b" ") + b"\n" for text in texts]
        lengths = np.array([len(piece) for piece in pieces], np.int64)
        self._starts = np.concatenate((self._starts, len(self._joined) + np.cumsum(lengths) - lengths))
        self.there = np.concatenate((self.there, np.array([text is not None for text in texts], np.bool_)))
        self._joined += b"".join(pieces)

    def having(self, wanted: bytes) -> NDArray[np.bool_]:
        """Which messages have the text, folded as these are, in theirs."""
        if not wanted:
            return self.there
        joined, step = self._joined, len(wanted)
        hits = []
        at = joined.find(wanted) if b"\n" not in wanted else -1
        while at >= 0:
            hits.append(at)
            at = joined.find(wanted, joined.find(b"\n", at + step))     # once a message is enough
        found = np.zeros(len(self.there), np.bool_)
        found[np.searchsorted(self._starts, np.array(hits, np.int64), side="right") - 1] = True
        return found


class Column:
    """One field of the messages of a mailbox. Message n is at place n; 0 stands for those that cannot be read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._digests: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._order: Places = np.zeros(0, np.intp)
        self._asked: NDArray[np.uint64] = self._digests     # what was asked for last, and the answer
        self._answer: Places = np.zeros(0, np.intp)

    def __len__(self) -> int:
        return len(self._digests)

    def places(self, store: "Store", entry: MailboxEntry, rows: Rows) -> Places:
        """Where these messages are in the column, into which those that are new are read."""
        asked = np.ascontiguousarray(rows.view(_DIGEST)["digest"])
        with self._lock:
            if len(asked) == len(self._asked) and np.array_equal(asked, self._asked):
                return self._answer
            places = self._find(asked)
            missing = np.flatnonzero(places == 0)
            if len(missing):
                self._read(store, entry, rows, asked, missing)
                places = self._find(asked)
            if places.all():
                self._asked, self._answer = asked, places
            return places

    def _find(self, asked: NDArray[np.uint64]) -> Places:
        if not len(self._digests):
            return np.zeros(len(asked), np.intp)
        ordered = self._digests[self._order]
        at = np.minimum(np.searchsorted(ordered, asked), len(ordered) - 1)
        return np.where(ordered[at] == asked, self._order[at] + 1, 0)

    def _read(self, store: "Store", entry: MailboxEntry, rows: Rows, asked: NDArray[np.uint64],
              missing: Places) -> None:
        missing = missing[np.unique(asked[missing], return_index=True)[1]]
        missing.sort()                          # in the order in which the records are on disk
        known: list[int] = []
        for start in range(0, len(missing), BATCH):
            batch = missing[start:start + BATCH]
            records = readable(store, entry, rows[batch])
            known += [at for at, record in zip(batch.tolist(), records, strict=True) if record is not None]
            self.take([record for record in records if record is not None])
        self.settle()
        self._digests = np.concatenate((self._digests, asked[known]))
        self._order = np.argsort(self._digests)

    def take(self, records: Sequence[CachedMessage]) -> None:
        """Keep what these records say."""
        raise NotImplementedError

    def settle(self) -> None:
        """All records of one reading have been taken."""


class Dates(Column):
    """The Date field: RFC 5256 §2.2."""

    def __init__(self) -> None:
        super().__init__()
        self.day: Numbers = np.full(1, NO_DATE)             # in the message's own zone, since 1970
        self.time: Numbers = np.full(1, NO_DATE)            # Unix time
        self._new: list[tuple[int, int]] = []

    def take(self, records: Sequence[CachedMessage]) -> None:
        for record in records:
            value = envelopes.string(envelopes.split(record.envelope)[envelopes.DATE])
            self._new.append((headers.sent(value) if value else None) or (NO_DATE, NO_DATE))

    def settle(self) -> None:
        new, self._new = np.array(self._new, np.int64).reshape(-1, 2), []
        self.day = np.concatenate((self.day, new[:, 0]))
        self.time = np.concatenate((self.time, new[:, 1]))


class Subjects(Column):
    """The Subject field: RFC 5256 §2.1."""

    def __init__(self) -> None:
        super().__init__()
        self.text = Texts()
        self.base = Words()
        self.is_reply = np.zeros(1, np.bool_)
        self._new: list[tuple[bytes | None, bytes, bool]] = []

    def take(self, records: Sequence[CachedMessage]) -> None:
        for record in records:
            value = envelopes.string(envelopes.split(record.envelope)[envelopes.SUBJECT])
            if value is None:
                self._new.append((None, b"", False))
                continue
            subject = decode_words(value)
            base, is_reply = base_subject(subject)
            self._new.append((collation_key(subject), collation_key(base), is_reply))

    def settle(self) -> None:
        new, self._new = self._new, []
        self.text.add([text for text, _, _ in new])
        self.base.add([base for _, base, _ in new])
        self.is_reply = np.concatenate((self.is_reply, np.array([is_reply for _, _, is_reply in new], np.bool_)))


class People(Column):
    """A field of addresses; `field` is its number in the envelope."""

    def __init__(self, field: int) -> None:
        super().__init__()
        self.text = Texts()
        self.mailbox = Words()
        self.display = Words()
        self._field = field
        self._new: list[tuple[bytes | None, bytes, bytes]] = []

    def take(self, records: Sequence[CachedMessage]) -> None:
        for record in records:
            people = envelopes.people(envelopes.split(record.envelope)[self._field])
            if not people:
                self._new.append((None, b"", b""))
                continue
            self._new.append((collation_key(envelopes.shown(people)), collation_key(envelopes.mailbox(people[0])),
                              collation_key(envelopes.display(people[0]))))

    def settle(self) -> None:
        new, self._new = self._new, []
        self.text.add([text for text, _, _ in new])
        self.mailbox.add([mailbox for _, mailbox, _ in new])
        self.display.add([display for _, _, display in new])


class Ids(Column):
    """Message-ID and what it refers to (RFC 5256 §3), as numbers: the hash of an id, which is the process's secret."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Numbers = np.zeros(1, np.int64)         # where its references are among all
        self.count: Numbers = np.zeros(1, np.int64)         # how many there are
        self._own: Numbers = np.zeros(1, np.int64)          # 0: has none
        self._references: Numbers = np.zeros(0, np.int64)
        self._numbered: tuple[Numbers, Numbers, int] | None = None
        self._new: list[tuple[int, list[int]]] = []

    def numbered(self) -> tuple[Numbers, Numbers, int]:
        """The ids of messages, and all references, as small numbers, 0 for no id; and how many numbers there are."""
        if self._numbered is None:
            known, numbers = np.unique(np.concatenate((self._own, self._references)), return_inverse=True)
            none = int(numbers[0])                          # place 0 has no id: its number changes places with 0
            numbers = np.where(numbers == none, 0, np.where(numbers == 0, none, numbers))
            self._numbered = numbers[:len(self._own)], numbers[len(self._own):], len(known)
        return self._numbered

    def take(self, records: Sequence[CachedMessage]) -> None:
        for record in records:
            fields = envelopes.split(record.envelope)
            own = _ids(envelopes.string(fields[envelopes.MESSAGE_ID]))
            references = _ids(record.references) or _ids(envelopes.string(fields[envelopes.IN_REPLY_TO]))[:1]
            self._new.append((own[0] if own else 0, references))

    def settle(self) -> None:
        new, self._new = self._new, []
        counts = np.array([len(references) for _, references in new], np.int64)
        self._numbered = None
        self._own = np.concatenate((self._own, np.array([own for own, _ in new], np.int64)))
        self.first = np.concatenate((self.first, len(self._references) + np.cumsum(counts) - counts))
        self.count = np.concatenate((self.count, counts))
        self._references = np.concatenate((self._references, np.array(
            [one for _, references in new for one in references], np.int64)))


def _ids(value: bytes | None) -> list[int]:
    """The message ids in a field, however they are quoted and folded."""
    if not value:
        return []
    return [hash(_BLANK.sub(b"", one) if b'"' in one or b" " in one or b"\t" in one else one) or 1
            for one in _MSG_ID.findall(value)]


def _people(field: int) -> Callable[[], Column]:
    return lambda: People(field)


_KINDS: dict[str, Callable[[], Column]] = {
    "date": Dates, "subject": Subjects, "ids": Ids, "from": _people(envelopes.FROM), "to": _people(envelopes.TO),
    "cc": _people(envelopes.CC), "bcc": _people(envelopes.BCC)}


class Columns:
    """The columns of all mailboxes that are in use; those that have not been used for longest are forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._columns: OrderedDict[tuple[int, str], Column] = OrderedDict()

    def dates(self, mailbox: Mailbox) -> Dates:
        """Its messages' Date fields."""
        return self._column(mailbox, "date")            # type: ignore[return-value]

    def subjects(self, mailbox: Mailbox) -> Subjects:
        """Its messages' subjects."""
        return self._column(mailbox, "subject")         # type: ignore[return-value]

    def people(self, mailbox: Mailbox, field: str) -> People:
        """Its messages' addresses in "from", "to", "cc" or "bcc"."""
        return self._column(mailbox, field)             # type: ignore[return-value]

    def ids(self, mailbox: Mailbox) -> Ids:
        """Its messages' ids and references."""
        return self._column(mailbox, "ids")             # type: ignore[return-value]

    def _column(self, mailbox: Mailbox, kind: str) -> Column:
        key = (mailbox.entry.id, kind)
        with self._lock:
            column = self._columns.get(key)
            if column is None or len(column) > 2 * len(mailbox.rows) + SPARE:
                column = self._columns[key] = _KINDS[kind]()
            self._columns.move_to_end(key)
            size = sum(map(len, self._columns.values()))
            while size > KEPT and len(self._columns) > 1:
                size -= len(self._columns.popitem(last=False)[1])
            return column


def readable(store: "Store", entry: MailboxEntry, rows: Rows) -> list[CachedMessage | None]:
    """The cache records of these messages; None, and a line in the log, for one that cannot be read."""
    try:
        return list(store.cached(entry, rows))
    except StoreError as error:
        if len(rows) == 1:
            log.warning("search in %s: %s", entry.name, error)
            return [None]
    return [readable(store, entry, rows[at:at + 1])[0] for at in range(len(rows))]
