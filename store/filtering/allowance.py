"""How much the scripts of one user may send in an hour, so that nobody fills the relay's queue for the others; and how
many mailboxes they may make in a day, since a sender may choose the names."""

import time
from collections import Counter
from collections.abc import Callable
from threading import Lock

from attrs import define, field

from store.filtering.storesurroundings import seen_key
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn

HOUR = 3600
DAY = 24 * HOUR


@define(eq=False)
class Allowance:
    """Counts letters by user, in this process and in this hour. `clock` gives seconds."""

    clock: Callable[[], float] = time.monotonic
    _hour: int = field(default=-1, init=False)
    _sent: Counter[str] = field(factory=Counter, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def take(self, user: str, letters: int, most: int) -> bool:
        """Whether the user may send so many more, of `most` in an hour (0: any number); then they count."""
        with self._lock:
            hour = int(self.clock() // HOUR)
            if hour != self._hour:
                self._hour = hour
                self._sent.clear()
            if most and self._sent[user] + letters > most:
                return False
            self._sent[user] += letters
            return True


def take_creation(partition: Partition, begin: bytes, most: int) -> bool:
    """Whether scripts may make one more mailbox, of `most` on one day (UTC); then it counts, in all processes. `begin`
    is `owned_key` of the user. Raises StoreError.

    Each mailbox that was made is a key in `arrivals.db`, numbered from 0: how many there are is found by halving.
    """
    day = int(partition.duplicates.clock() // DAY)

    def work(txn: WriteTxn) -> bool:
        first, last = 0, most                   # the first number that is free is one of these
        while first < last:
            middle = (first + last) // 2
            if partition.duplicates.counts(seen_key(begin, f"created\0{day}\0{middle}"), txn.handle):
                first = middle + 1
            else:
                last = middle
        if first == most:
            return False
        partition.duplicates.add(seen_key(begin, f"created\0{day}\0{first}"), DAY, txn.handle)
        return True

    return partition.transact(work)
