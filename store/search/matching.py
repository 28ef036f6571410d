"""Which messages have in their headers or bodies what SEARCH keys ask for: RFC 3501 §6.4.4.

Messages are looked at in pages: the files of a page are read one after the other, and then searched all together
(`prefilter`). Only what that does not settle is taken apart.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from store.errors import StoreError
from store.message.cacherecord import CachedMessage, Leaf
from store.message.collation import casemap
from store.message.headers import header_end, unfold
from store.message.text import ENCODED, STRANGE, UTF8, body_text, decode_words, header_text, leaf_octets, octets_text
from store.partition.messagereading import MessageFile
from store.progress import Progress
from store.readable import Readable
from store.search.columns import columns_of
from store.search.prefilter import Prefilter
from store.search.projection import readable
from store.search.searchkeys import Among, And, Body, Header, Key, Mask, Not, Or, Text
from store.tables.index import take
from store.tables.state import Mailbox

log = logging.getLogger(__name__)

HEADER = 1 << 20            # octets of one header that are searched
SMALL = 64 << 10            # octets of a message that is read as a whole
PAGE = 256                  # messages in a page,
OCTETS = 4 << 20            # and how many octets of them may be in memory, about

Places = NDArray[np.intp]


def find(store: Readable, mailbox: Mailbox, key: Key, places: Places, progress: Progress) -> Mask:
    """Which of the messages at these places of the mailbox the prepared key finds; its texts are folded.

    A message that cannot be read is not found, and logged. Raises Abandoned.
    """
    prefilters: dict[str, Prefilter] = {}
    found = np.zeros(len(places), np.bool_)
    progress.begin(len(places))
    octets = np.cumsum(np.minimum(mailbox.rows["size"][places], np.uint64(SMALL)))
    start = 0
    while start < len(places):
        full = int(np.searchsorted(octets, octets[start] + np.uint64(OCTETS)))
        end = min(max(full, start + 1), start + PAGE)
        page = _Page(store, mailbox, places[start:end], prefilters)
        found[start:end] = page.found(key)
        progress.step(end - start)
        start = end
    return found


class _Page:
    """Some messages of a mailbox, and what has been read of them. They are known by their places in the page."""

    def __init__(self, store: Readable, mailbox: Mailbox, places: Places, prefilters: dict[str, Prefilter]) -> None:
        self._store = store
        self._mailbox = mailbox
        self._places = places
        self._prefilters = prefilters
        self._rows = rows = take(mailbox.rows, places)
        self._small = np.asarray(rows["size"] <= SMALL)
        self._unreadable = np.zeros(len(rows), np.bool_)
        self._whole: list[bytes | None] = [None] * len(rows)
        self._read = np.zeros(len(rows), np.bool_)
        self._skips: list[int] = rows["header_length"].tolist()
        self._heads = [0] * len(rows)                   # octets of header fields of their own, of those that were read
        self._cached: dict[int, CachedMessage | None] = {}
        self._first = _firsts(list(zip(rows["digest"].tolist(), rows["header_length"].tolist(), rows["head"].tolist(),
                                       strict=True)))

    def found(self, key: Key) -> Mask:
        """Which of all of them the key finds."""
        found = self._among(key, np.arange(len(self._rows)))
        return found & ~self._unreadable[self._first]

    def _among(self, key: Key, at: Places) -> Mask:
        """Which of these the key finds; what is dear is looked at only where something hangs on it."""
        match key:
            case Among(mask):
                return mask[self._places[at]]
            case And(keys):
                found = np.ones(len(at), np.bool_)
                for inner in keys:
                    left = np.flatnonzero(found)
                    if len(left):
                        found[left] = self._among(inner, at[left])
                return found
            case Or(first, second):
                found = self._among(first, at)
                left = np.flatnonzero(~found)
                if len(left):
                    found[left] = self._among(second, at[left])
                return found
            case Not(inner):
                return ~self._among(inner, at)
            case Header() | Body() | Text():
                if not len(at):
                    return np.zeros(0, np.bool_)
                once, back = np.unique(self._first[at], return_inverse=True)     # each content is looked at once
                found = self._having_field(key, once) if isinstance(key, Header) else self._having(key, once)
                return found[back]
        raise TypeError(key)

    # Octets

    def _wholes(self, at: Places) -> list[bytes | None]:
        """All octets of these messages, none of them large; None for one that cannot be read."""
        new = at[~self._read[at]]
        if len(new):
            self._read[new] = True
            self._read_files(new)
        return [self._whole[one] for one in at.tolist()]

    def _read_files(self, at: Places) -> None:
        rows, places = take(self._rows, at), at.tolist()
        try:
            partition = self._store.partition(self._mailbox.entry.partition)
            private_headers = [partition.private_headers.get(number)
                               or b"" if number else b"" for number in rows["head"].tolist()]
        except StoreError:
            return                                      # who takes it apart finds that, too
        header_lengths: list[int] = rows["header_length"].tolist()
        ends = [size - len(head) + header_length
                for size, head, header_length in zip(rows["size"].tolist(), private_headers, header_lengths,
                                                     strict=True)]
        files = partition.files.beginnings(rows["digest"].tolist(), rows["serial"].tolist(), ends)
        for one, head, header_length, octets in zip(places, private_headers, header_lengths, files, strict=True):
            if octets is not None:
                self._whole[one] = head + octets[header_length:] if head or header_length else octets
                self._heads[one] = len(head)

    def _taken_apart(self, at: Sequence[int]) -> Iterator[tuple[int, "Message"]]:
        """These messages with their structure; those that cannot be read are left out."""
        new = [one for one in at if one not in self._cached]
        if new:
            records = readable(self._store, self._mailbox.entry, take(self._rows, np.array(new, np.intp)))
            self._cached.update(zip(new, records, strict=True))
        for one in at:
            cached = self._cached[one]
            if cached is None:
                self._unreadable[one] = True
            else:
                yield one, Message(self._store, self._mailbox, self._rows[one], cached, self._whole[one])

    def _safely(self, at: Sequence[int], test: "Test") -> list[int]:
        """Those of these messages that pass the test."""
        passed = []
        for one, message in self._taken_apart(at):
            try:
                if test(message):
                    passed.append(one)
            except StoreError as error:
                log.warning("search: %s", error)
                self._unreadable[one] = True
            finally:
                message.close()
        return passed

    # HEADER

    def _having_field(self, key: Header, at: Places) -> Mask:
        name = key.name.encode("utf-8", "replace")
        found: list[int] = []
        closely = at[~self._small[at]].tolist()
        small = at[self._small[at]]
        for one, whole in zip(small.tolist(), self._wholes(small), strict=True):
            if whole is None:
                closely.append(one)
            elif has_field(whole[:header_end(whole) or len(whole)], name, key.text):
                found.append(one)
        found += self._safely(closely, lambda message: has_field(message.header(), name, key.text))
        return np.isin(at, found)

    # TEXT and BODY

    def _having(self, key: Body | Text, at: Places) -> Mask:
        wanted = key.text
        if not wanted:
            return np.ones(len(at), np.bool_)
        prefilter = self._prefilters.get(wanted) or self._prefilters.setdefault(wanted, Prefilter(wanted))
        small = at[self._small[at]] if prefilter.usable else at[:0]
        closely = np.setdiff1d(at, small).tolist()
        found: list[int] = []
        if len(small):
            whole = self._wholes(small)
            there = np.array([octets is not None for octets in whole], np.bool_)
            closely += small[~there].tolist()
            more, found = self._prefiltered(prefilter, small[there], [octets for octets in whole if octets is not None])
            closely += more
        elif not prefilter.usable:
            self._wholes(at[self._small[at]])
        in_header = isinstance(key, Text)
        found += self._safely(closely, lambda message: message.has(wanted, in_header))
        return np.isin(at, found)

    def _prefiltered(self, prefilter: Prefilter, at: Places, whole: list[bytes]) -> tuple[list[int], list[int]]:
        """Which of these messages must be taken apart, and which have the text in an encoded body."""
        bodies = columns_of(self._store).bodies(self._mailbox)
        places = bodies.places(self._store, self._mailbox.entry, take(self._rows, at))
        self._unreadable[at[places == 0]] = True
        kinds = bodies.kind[places]
        left = prefilter.left(whole, kinds == UTF8) | (kinds == STRANGE)
        found = []
        for one in np.flatnonzero(~left & (kinds == ENCODED) & (places != 0)).tolist():
            place = int(places[one])
            leaves = bodies.encoded.get(place)
            if leaves is None:
                left[one] = True
            else:
                shift = int(bodies.trace[place]) - self._skips[at[one]] + self._heads[at[one]]
                if _in_bodies(prefilter.wanted, whole[one], shift, leaves):
                    found.append(int(at[one]))
        return at[left & (places != 0)].tolist(), found


def _firsts(contents: Sequence[object]) -> Places:
    """Of each content the place where it comes first."""
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(content, at) for at, content in enumerate(contents)], np.intp)


class Message:
    """One message that is taken apart; its file is opened when it is needed, unless the `whole` of it is in memory."""

    def __init__(self, store: Readable, mailbox: Mailbox, row: np.void, cached: CachedMessage, whole: bytes | None
                 ) -> None:
        self._store = store
        self._mailbox = mailbox
        self._row = row
        self._whole = whole
        self._file: MessageFile | None = None
        self._before = cached.trace - int(row["header_length"])
        self._parts = cached.parts

    def _open(self) -> MessageFile:
        if self._file is None:
            self._file = self._store.open_message(self._mailbox.entry, self._row)
        return self._file

    @cached_property
    def shift(self) -> int:
        """How far its content is from its beginning: after header fields of its own, and the trace header."""
        if self._whole is None:
            return self._before + len(self._open().head)
        head = int(self._row["head"])
        private_headers = self._store.partition(self._mailbox.entry.partition).private_headers
        return self._before + (len(private_headers.find(head)) if head else 0)

    def read(self, offset: int, count: int) -> bytes:
        """Some octets of the message. Raises StoreError."""
        return self._open().read(offset, count) if self._whole is None else self._whole[offset:offset + count]

    def header(self) -> bytes:
        """The header, as far as it is searched. Raises StoreError."""
        return self.read(0, min(self._parts[()].body_start + self.shift, HEADER))

    def has(self, wanted: str, in_header: bool) -> bool:
        """Whether the folded text is in the body, or `in_header`. Raises StoreError."""
        return in_header and wanted in casemap(header_text(self.header())) or is_in(wanted, self._texts())

    def _texts(self) -> Iterator[Iterable[str]]:
        """All text of the body: headers of parts and messages in it, and bodies that are text, each in pieces."""
        own = (self._parts[()].header_start, self._parts[()].body_start)
        seen = {own}
        for path, part in self._parts.items():
            for span in (part, part.message):
                if span is not None and (place := (span.header_start, span.body_start)) not in seen:
                    seen.add(place)
                    octets = min(span.body_start - span.header_start, HEADER)
                    yield (header_text(self.read(span.header_start + self.shift, octets)),)
            if path and part.message is None and part.type in (b"TEXT", b"MESSAGE"):
                yield body_text(self.read, part, self.shift)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


Test = Callable[[Message], bool]


def _in_bodies(wanted: str, whole: bytes, shift: int, leaves: Sequence[Leaf]) -> bool:
    """Whether one of these bodies of a message, the content of which begins at `shift`, has the text."""
    for start, end, encoding, charset in leaves:
        octets = leaf_octets(whole[start + shift:end + shift], encoding)
        if wanted in casemap(octets_text(octets, charset)):
            return True
    return False


def is_in(wanted: str, texts: Iterable[Iterable[str]]) -> bool:
    """Whether one of the texts has `wanted` in it, without putting the pieces of a text together."""
    if not wanted:
        return True
    for pieces in texts:
        tail = ""
        for piece in pieces:
            tail += casemap(piece)
            if wanted in tail:
                return True
            tail = tail[max(0, len(tail) - len(wanted) + 1):]
    return False


def has_field(header: bytes, name: bytes, wanted: str) -> bool:
    """Whether a field of that name (lower case) has the folded text in it; an empty one: whether there is such a field.
    """
    for value in _values(name).findall(unfold(header)) if b":" not in name else ():
        if wanted in casemap(decode_words(value.strip())):
            return True
    return False


@lru_cache(64)
def _values(name: bytes) -> re.Pattern[bytes]:
    """Finds the values of the fields of that name in an unfolded header."""
    return re.compile(rb"^%b[ \t\r\v\f]*:([^\n]*)" % re.escape(name), re.IGNORECASE | re.MULTILINE)
