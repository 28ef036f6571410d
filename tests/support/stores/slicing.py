"""Slices of one message, and what happens between them."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from store.mailboxes import copymessages, expunge
from store.tables import slices as cutting
from tests.support.faults.planted import Faults


def one_by_one(uids, price):
    """In the place of `slices.slices`: each message for itself, though they are in one chunk."""
    return np.split(uids, max(1, len(uids)))


def slice_finely(monkeypatch, between: Callable[[int], None] = lambda number: None):
    """Have COPY, MOVE, STORE and EXPUNGE take one message at a time; `between` is called before each but the first,
    with how many have been done."""
    def slices(_, uids, price):
        for number, some in enumerate(one_by_one(uids, price)):
            if number:
                between(number)
            yield some

    def copied(some, copying, txn, uids, *arguments, **more):
        """At its beginning the transaction holds no lock."""
        done[id(copying)] += 1
        if done[id(copying)] > 1:
            between(done[id(copying)] - 1)
        return some(copying, txn, uids, *arguments, **more)

    done: Counter[int] = Counter()
    planted = Faults(monkeypatch)
    planted.around(copymessages._Copying, "some", copied)
    planted.around(copymessages, "slices", lambda _, *given: one_by_one(*given))
    for room in (cutting, expunge):
        planted.around(room, "slices", slices)
