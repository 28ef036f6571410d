"""A change of many messages, cut into slices.

Until a transaction ends, others wait for the pages that it has changed, which may have rows of theirs. So each slice is
a transaction of UNITS of work at most, about 5 ms.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from store.errors import NotAtOnce, StoreError
from store.tables.index import CHUNK

T = TypeVar("T")

UNITS = 5000        # of work in a slice; a unit is about a microsecond. So many units cost:
CHUNK_UNITS = 16    # a chunk that is read and written again,
FLAG_UNITS = 0.5    # a message whose flags change,
EXPUNGE_UNITS = 2   # a message that is expunged,
COPY_UNITS = 4      # copied,
MOVE_UNITS = 8      # or moved


def sorted_uids(uids: Iterable[int] | NDArray[np.uint32]) -> NDArray[np.uint32]:
    """These UIDs as an ascending array, each once."""
    array = np.asarray(uids if isinstance(uids, np.ndarray) else list(uids), np.uint32)
    return array if len(array) < 2 or (array[1:] > array[:-1]).all() else np.unique(array)


def slices(uids: NDArray[np.uint32], price: float) -> Iterator[NDArray[np.uint32]]:
    """These UIDs (ascending), cut into pieces of UNITS of work; `price` is the cost of a message. No chunk is in two
    pieces. Without any UIDs there is one empty piece."""
    if units(uids, price) <= UNITS:
        yield uids
        return
    begins = np.flatnonzero(starts((uids - 1) // CHUNK))
    sizes = np.diff(begins, append=len(uids))
    spent = np.cumsum(sizes * price + CHUNK_UNITS)
    cuts = begins[1:][np.diff((spent - 1) // UNITS) > 0]
    yield from np.split(uids, cuts)


class PartlyDone(StoreError):
    """A change of many messages was refused half way. `done` is the result of the slices before, which stays. A client
    hears of these changes, as of any in the mailbox, before it hears the refusal."""

    def __init__(self, refusal: StoreError, done: Sequence[Any]) -> None:
        super().__init__(refusal.problem, f"Done in part: {refusal.public}", refusal.detail)
        self.done = done


def in_slices(uids: NDArray[np.uint32], price: float, work: Callable[[NDArray[np.uint32]], T]) -> list[T]:
    """Run `work`, a transaction, for each of the `slices`; their results. Raises StoreError when nothing is done,
    PartlyDone when some is."""
    done: list[T] = []
    for some in slices(uids, price):
        try:
            done.append(work(some))
        except StoreError as refusal:
            if not done or isinstance(refusal, NotAtOnce):
                raise
            raise PartlyDone(refusal, done) from refusal
    return done


def units(uids: NDArray[np.uint32], price: float) -> float:
    """How much work a change of these messages (ascending) is."""
    if len(uids) == 1:
        return price + CHUNK_UNITS
    if len(uids):                       # so many at most, and in most mailboxes just so many: then none are counted
        most = len(uids) * price + CHUNK_UNITS * min(
            len(uids), int(uids[-1] - 1) // CHUNK - int(uids[0] - 1) // CHUNK + 1)
        if most <= UNITS // 2:
            return most
    return len(uids) * price + CHUNK_UNITS * int(np.count_nonzero(starts((uids - 1) // CHUNK)))


def distinct(ascending: NDArray[Any]) -> NDArray[Any]:
    """Each number once."""
    return ascending[starts(ascending)]


def starts(ascending: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of these numbers are other than the one before."""
    new = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    return new

