"""Whether twice the input is at most twice the work.

`python -m tests.PROTOCOL.fuzz.growth` shows the processor's time for each pattern, and how it grows: for what lines of
Python do not count, which is what regular expressions do. Only a person can judge it: 2 is linear, 4 is quadratic.
"""

import time

from attrs import frozen

from tests.support.fuzz.steps import lines_of

ROUNDS = 7


@frozen
class Pattern:
    """`start`, then `token` so often, then `end`; given to `read`. `count` is near the limit of what is read."""

    name: str
    read: object
    start: bytes
    token: bytes
    end: bytes
    count: int

    def of(self, count):
        """The input."""
        return self.start + self.token * count + self.end


def lines(pattern, places, part=10):
    """Lines of Python for half of the tokens, and for all of them, of such a part of the pattern: counting is slow."""
    count = max(2, pattern.count // part)
    half, whole = pattern.of(count // 2), pattern.of(count)
    pattern.read(half)              # what is made only once
    return lines_of(places, pattern.read, half), lines_of(places, pattern.read, whole)


def show(patterns):
    """The best times of some rounds, of a quarter, half, and all of the tokens, and how they grow. Other work on the
    machine makes single figures too large; what is quadratic grows in both steps."""
    for pattern in patterns:
        best = []
        for count in (pattern.count // 4, pattern.count // 2, pattern.count):
            octets = pattern.of(count)
            times = []
            for _ in range(ROUNDS):
                before = time.process_time()
                pattern.read(octets)
                times.append(time.process_time() - before)
            best.append(max(min(times), 1e-6))
        print(f"{best[1] / best[0]:5.2f} {best[2] / best[1]:5.2f} {best[2] * 1000:9.3f} ms {len(octets):8} octets  "
              f"{pattern.name}", flush=True)
