"""How many octets each partition keeps, and how many it would be if each reference had a file of its own: counted by
the keeper from time to time, for `onecopy stats`.

A round looks at a part of `messages.db` and no more, and the next one goes on there: so it costs the same whatever
there is, and the figures of very many messages are some hours old. They say when they were counted.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any, cast

import numpy as np
from attrs import define, field

from store.metrics.processcounters import Counters, Octets
from store.store import Store
from store.tables.references import STORED

INTERVAL = 10               # seconds between two rounds
PARTS = 10                  # of a partition in a round,
ROWS = 2000                 # with so many message files each


@define(eq=False)
class Counting:
    """Where it stands: for each partition the last digest that was looked at, and the sums so far."""

    _at: dict[str, tuple[bytes, Octets]] = field(factory=dict, init=False)

    def items(self, store: Store) -> Iterator[tuple[str, int]]:
        """The parts of this round."""
        for name in store.partitions:
            for part in range(PARTS):
                if not part or name in self._at:        # there is more of it
                    yield name, part

    def work(self, store: Store, item: tuple[str, int]) -> int:
        """Count the next part. How many message files there are in it."""
        name, _ = item
        after, sums = self._at.pop(name, (b"", Octets(0, 0, 0, 0, 0.0)))
        with closing(cast("Any", store.partitions[name].refs.messages.scan(after + b"\0"))) as scan:
            rows = list(islice(scan, ROWS))
        if rows:
            found = np.frombuffer(b"".join([value for _, value in rows]), STORED)
            used = found[found["references"] > 0]
            sums.files += len(used)
            sums.unique += int(used["size"].sum())
            sums.references += int(used["references"].sum())
            sums.referenced += int((used["size"] * used["references"]).sum())
        if len(rows) < ROWS:
            sums.when = time.time()
            Counters.of(store).octets[name] = sums
        else:
            self._at[name] = rows[-1][0], sums
        return len(rows)
