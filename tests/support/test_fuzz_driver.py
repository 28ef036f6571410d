"""What the fuzzers take for memory that is not given back."""

from functools import lru_cache

import pytest

from tests.support.fuzz.driver import memory

SOME = 4 << 20              # octets that come and go without anybody's doing


@pytest.mark.long
def test_what_a_bounded_cache_holds_is_no_leak():
    bounded = lru_cache(maxsize=20_000)(lambda number: [number])
    unbounded = lru_cache(maxsize=None)(lambda number: [number])
    before, _ = memory()
    for number in range(10_000):
        bounded(number + 1000)
    assert memory()[0] - before < 1000
    for number in range(100_000):
        unbounded(number + 1000)
    assert memory()[0] - before > 90_000        # less what others gave back meanwhile


@pytest.mark.long
def test_what_was_given_back_is_no_leak():
    _, before = memory()
    pieces = [bytearray(100_000) for _ in range(400)]       # too short to be mapped each for itself
    last = bytearray(100_000)                               # above them: so the heap does not end where they begin
    assert memory()[1] - before > len(pieces) * len(last) - SOME
    pieces.clear()
    assert memory()[1] - before < SOME
