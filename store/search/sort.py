"""SORT: RFC 5256, RFC 5957. Every criterion is one column of numbers, and one sort of numpy's does the rest."""

from collections.abc import Sequence
from enum import Enum

import numpy as np
from attrs import frozen

from store.progress import Progress
from store.readable import Readable
from store.search.columns import NO_DATE, columns_of
from store.search.projection import Numbers, Places
from store.tables.index import Rows, take
from store.tables.state import Mailbox


class SortKey(Enum):
    """sort-key (RFC 5256 §5, RFC 5957 §5)"""

    ARRIVAL = b"ARRIVAL"
    CC = b"CC"
    DATE = b"DATE"
    DISPLAYFROM = b"DISPLAYFROM"
    DISPLAYTO = b"DISPLAYTO"
    FROM = b"FROM"
    SIZE = b"SIZE"
    SUBJECT = b"SUBJECT"
    TO = b"TO"


_COLUMNS = {SortKey.DATE: "date", SortKey.SUBJECT: "subject", SortKey.DISPLAYFROM: "from", SortKey.DISPLAYTO: "to",
            SortKey.FROM: "from", SortKey.TO: "to", SortKey.CC: "cc"}


@frozen
class Criterion:
    """sort-criterion"""

    key: SortKey
    reverse: bool = False


def sort(store: Readable, mailbox: Mailbox, found: Places, criteria: Sequence[Criterion],
         progress: Progress | None = None) -> Places:
    """The messages at these ascending places of the mailbox in that order; equal ones stay as they are.

    For a thread: it may read the cache record of every message. One that cannot be read counts as empty.
    Raises Abandoned.
    """
    rows = take(mailbox.rows, found)
    kinds = filter(None, [_COLUMNS.get(criterion.key) for criterion in criteria])
    columns_of(store).read(store, mailbox, rows, kinds, progress or Progress())
    columns = []
    for criterion in criteria:
        values = _values(store, mailbox, rows, criterion.key)
        columns.append(-values if criterion.reverse else values)
    return found[np.lexsort(columns[::-1])]


def sent_times(store: Readable, mailbox: Mailbox, rows: Rows) -> Numbers:
    """The sent dates of messages (RFC 5256 §2.2): where there is none, the internal date."""
    dates = columns_of(store).dates(mailbox)
    places = dates.places(store, mailbox.entry, rows)       # first: the column grows with it
    times = dates.time[places]
    return np.where(times == NO_DATE, rows["received"], times)


def _values(store: Readable, mailbox: Mailbox, rows: Rows, key: SortKey) -> Numbers:
    """Numbers in the order of the criterion."""
    match key:
        case SortKey.ARRIVAL:
            return rows["received"].astype(np.int64)
        case SortKey.SIZE:
            return rows["size"].astype(np.int64)
        case SortKey.DATE:
            return sent_times(store, mailbox, rows)
        case SortKey.SUBJECT:
            subjects = columns_of(store).subjects(mailbox)
            return subjects.base.ranks(subjects.places(store, mailbox.entry, rows))
        case SortKey.DISPLAYFROM | SortKey.DISPLAYTO:
            people = columns_of(store).people(mailbox, _COLUMNS[key])
            return people.display.ranks(people.places(store, mailbox.entry, rows))
        case SortKey.FROM | SortKey.TO | SortKey.CC:
            people = columns_of(store).people(mailbox, _COLUMNS[key])
            return people.mailbox.ranks(people.places(store, mailbox.entry, rows))
