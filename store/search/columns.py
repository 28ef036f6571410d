"""What SORT, THREAD and SEARCH compare, of all messages of a mailbox side by side and in memory between commands: dates
and message ids as numbers, texts folded for comparison, and what must be decoded before a body can be searched."""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from heapq import merge
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mboxlist.entry import MailboxId
from store.message import envelopes, headers
from store.message.basesubject import base_subject
from store.message.cacherecord import Leaf, texts
from store.message.collation import collation_key
from store.message.text import COMPATIBLE, ENCODED, UTF8, charset_kind, decode_words, unconvertible
from store.progress import Progress
from store.readable import Readable
from store.search.projection import Batch, Column, Numbers, Places, read
from store.tables.index import Rows
from store.tables.state import Mailbox

KEPT = 500_000              # messages in all columns of a process together: some 100 MB
EACH = 10                   # messages that a column counts for beside its own: empty ones take memory, too
FEW = 8                     # bodies of a message that need decoding of which a column knows
TEXTS_AT_A_TIME = 5000                # texts that are sorted in one go
SPARE = 1000                # messages that have gone of which a column still knows
NO_DATE = np.iinfo(np.int64).min

_ENCODINGS = (b"BASE64", b"QUOTED-PRINTABLE")
_MSG_ID = re.compile(rb"<([^<>@]+@[^<>]+)>")
_QUOTING = re.compile(rb'\\(.)|[ \t\r\n"]', re.DOTALL)


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
            # In pieces: while one list is sorted nobody else in the process can do anything.
            order = merge(*[sorted(range(at, min(at + TEXTS_AT_A_TIME, len(known))), key=known.__getitem__)
                            for at in range(0, len(known), TEXTS_AT_A_TIME)], key=known.__getitem__)
            ranks = np.empty(len(known), np.int64)
            ranks[np.fromiter(order, np.int64, len(known))] = np.arange(len(known))
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


class Dates(Column):
    """The Date field: RFC 5256 §2.2."""

    def __init__(self) -> None:
        super().__init__()
        self.day: Numbers = np.full(1, NO_DATE)             # in the message's own zone, since 1970
        self.time: Numbers = np.full(1, NO_DATE)            # Unix time

    def take(self, batch: Batch) -> None:
        values = [envelopes.string(date) for date, _, _, _ in batch.ends]
        found = [(headers.sent(value) if value else None) or (NO_DATE, NO_DATE) for value in values]
        self._new.append(np.array(found, np.int64).reshape(-1, 2))

    def extend(self, new: list[Any]) -> None:
        self.day = np.concatenate((self.day, *[piece[:, 0] for piece in new]))
        self.time = np.concatenate((self.time, *[piece[:, 1] for piece in new]))


class Subjects(Column):
    """The Subject field: RFC 5256 §2.1."""

    def __init__(self) -> None:
        super().__init__()
        self.text = Texts()
        self.base = Words()
        self.is_reply = np.zeros(1, np.bool_)

    def take(self, batch: Batch) -> None:
        for _, field, _, _ in batch.ends:
            value = envelopes.string(field)
            if value is None:
                self._new.append((None, b"", False))
                continue
            subject = decode_words(value)
            base, is_reply = base_subject(subject)
            text = collation_key(subject)
            if (octets := unconvertible(value)) is not None:
                base, is_reply = base_subject(octets.decode("latin-1"))     # one octet, one character: there and back
                key = _unconverted(base.encode("latin-1"))
            else:
                key = text if base == subject else collation_key(base)
            self._new.append((text, key, is_reply))

    def extend(self, new: list[Any]) -> None:
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
        self._remembered: dict[bytes, tuple[bytes | None, bytes, bytes]] = {}

    def take(self, batch: Batch) -> None:
        remembered = self._remembered
        for fields in batch.fields:
            field = fields[self._field]
            said = remembered.get(field)        # by few people are most messages
            if said is None:
                said = remembered[field] = _said(field)
            self._new.append(said)

    def extend(self, new: list[Any]) -> None:
        self._remembered.clear()
        self.text.add([text for text, _, _ in new])
        self.mailbox.add([mailbox for _, mailbox, _ in new])
        self.display.add([display for _, _, display in new])


def _said(field: bytes) -> tuple[bytes | None, bytes, bytes]:
    people = envelopes.people(field)
    if not people:
        return None, b"", b""
    return (collation_key(envelopes.shown(people)), _order(envelopes.mailbox(people[0])),
            _order(envelopes.display(people[0])))


def _order(value: bytes) -> bytes:
    """What a string goes by in SORT: those that cannot be converted come last, by their octets (RFC 5255 §4.6)."""
    octets = unconvertible(value)
    return collation_key(decode_words(value)) if octets is None else _unconverted(octets)


def _unconverted(octets: bytes) -> bytes:
    return b"\xff" + octets if octets else b""          # no octet of UTF-8


class Bodies(Column):
    """What must be decoded before a text can be looked for in a body; `matching` looks."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = np.full(1, ENCODED, np.int8)            # see `text.charset_kind`; or some body that is text is
        self.trace: Numbers = np.zeros(1, np.int64)         # octets of the message file before the content
        self.encoded: dict[int, tuple[Leaf, ...]] = {}      # of a place, if they are few

    def take(self, batch: Batch) -> None:
        for record in batch.records:
            leaves = texts(record.table)
            kind = max([charset_kind(leaf[3]) for leaf in leaves], default=UTF8)
            encoded = tuple([leaf for leaf in leaves if leaf[2] in _ENCODINGS])
            self._new.append((ENCODED if encoded and kind <= COMPATIBLE else kind, record.trace, encoded))

    def extend(self, new: list[Any]) -> None:
        for place, (kind, _, encoded) in enumerate(new, len(self.kind)):
            if kind == ENCODED and len(encoded) <= FEW:
                self.encoded[place] = encoded
        self.kind = np.concatenate((self.kind, np.array([kind for kind, _, _ in new], np.int8)))
        self.trace = np.concatenate((self.trace, np.array([trace for _, trace, _ in new], np.int64)))


class Ids(Column):
    """Message-ID and what it refers to (RFC 5256 §3), as numbers: the hash of an id, which is the process's secret."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Numbers = np.zeros(1, np.int64)         # where its references are among all
        self.count: Numbers = np.zeros(1, np.int64)         # how many there are
        self._own: Numbers = np.zeros(1, np.int64)          # 0: has none
        self._references: Numbers = np.zeros(0, np.int64)
        self._numbered: tuple[Numbers, Numbers, int] | None = None

    def numbered(self) -> tuple[Numbers, Numbers, int]:
        """The ids of messages, and all references, as small numbers, 0 for no id; and how many numbers there are."""
        if self._numbered is None:
            known, numbers = np.unique(np.concatenate((self._own, self._references)), return_inverse=True)
            none = int(numbers[0])                          # place 0 has no id: its number changes places with 0
            numbers = np.where(numbers == none, 0, np.where(numbers == 0, none, numbers))
            self._numbered = numbers[:len(self._own)], numbers[len(self._own):], len(known)
        return self._numbered

    def take(self, batch: Batch) -> None:
        for record, (_, _, in_reply_to, message_id) in zip(batch.records, batch.ends, strict=True):
            own = _ids(envelopes.string(message_id))
            references = _ids(record.references) or _ids(envelopes.string(in_reply_to))[:1]
            self._new.append((own[0] if own else 0, references))

    def extend(self, new: list[Any]) -> None:
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
    return [hash(_QUOTING.sub(rb"\1", one) if _QUOTING.search(one) else one) or 1 for one in _MSG_ID.findall(value)]


def _people(field: int) -> Callable[[], Column]:
    return lambda: People(field)


_KINDS: dict[str, Callable[[], Column]] = {
    "date": Dates, "subject": Subjects, "ids": Ids, "body": Bodies,
    "from": _people(envelopes.FROM), "to": _people(envelopes.TO),
    "cc": _people(envelopes.CC), "bcc": _people(envelopes.BCC)}


class Columns:
    """The columns of all mailboxes that are in use, by name: "date", "subject", "ids", "body", and those of addresses.

    Those that have not been used for longest are forgotten first: all of them together are of `kept` messages, each
    counts for `each` beside its own, and may have `spare` that have gone.
    """

    def __init__(self, kept: int = KEPT, each: int = EACH, spare: int = SPARE) -> None:
        self._kept, self._each, self._spare = kept, each, spare
        self._lock = threading.Lock()
        self._columns: OrderedDict[tuple[int, str], Column] = OrderedDict()
        self._counted: dict[tuple[int, str], int] = {}      # what each was found to count for, and all together
        self._size = 0

    def read(self, store: Readable, mailbox: Mailbox, rows: Rows, kinds: Iterable[str], progress: Progress) -> None:
        """Read what is missing in several of the mailbox's columns together. Raises Abandoned."""
        kinds = sorted(set(kinds))              # in one order: all wait for others
        columns = [self._column(mailbox, kind) for kind in kinds]
        if not columns:
            return
        try:
            with ExitStack() as locked:
                for column in columns:
                    locked.enter_context(column.lock)
                read(store, mailbox.entry, rows, columns, progress)
        finally:
            with self._lock:
                for kind in kinds:
                    self._count((mailbox.entry.id, kind))
                self._make_room()

    def forget(self, mailbox: MailboxId) -> None:
        """Keep nothing of a mailbox that has been deleted."""
        with self._lock:
            for kind in _KINDS:
                self._columns.pop((mailbox, kind), None)
                self._count((mailbox, kind))

    def bodies(self, mailbox: Mailbox) -> Bodies:
        """What must be decoded of its messages' bodies."""
        return self._column(mailbox, "body")            # type: ignore[return-value]

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
            if column is None or len(column) > 2 * len(mailbox.rows) + self._spare:
                column = self._columns[key] = _KINDS[kind]()
            self._columns.move_to_end(key)
            self._count(key)
            self._make_room()
            return column

    def _count(self, key: tuple[int, str]) -> None:
        """See how large a column is now. (To look at all of them each time would take long: they may be thousands.)"""
        self._size -= self._counted.pop(key, 0)
        if (column := self._columns.get(key)) is not None:
            self._counted[key] = self._each + len(column)
            self._size += self._counted[key]

    def _make_room(self) -> None:
        while self._size > self._kept and len(self._columns) > 1:
            key, _ = self._columns.popitem(last=False)
            self._count(key)


def columns_of(store: Readable) -> Columns:
    """What is remembered of the mailboxes of that store or snapshot that were searched or sorted."""
    def make() -> Columns:
        columns = Columns()
        store.owned.remembers_mailboxes(columns.forget)
        return columns

    return store.owned.get(Columns, make)
