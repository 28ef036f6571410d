"""Failed logins slow the next ones down."""

import pytest

from store.accounts.slowdown import Scale, SlowDown

SCALE = Scale(first=1.0, longest=30.0, half_life=600.0, free_of_address=5, free_of_user=3)
HERE, THERE = "192.0.2.1", "198.51.100.1"


@pytest.fixture
def slow():
    return Clocked(SCALE)


class Clocked(SlowDown):
    def __init__(self, scale, most=100_000):
        self.now = 0.0
        super().__init__(scale, most, lambda: self.now)


def fail(slow, times, address=HERE, user="alice"):
    for _ in range(times):
        slow.failed(address, user)


def test_it_grows_by_user(slow):
    found = []
    for number in range(10):
        found.append(slow.delay(f"203.0.113.{number}", "alice"))
        fail(slow, 1, f"203.0.113.{number}")            # from everywhere
    assert found == [0, 0, 0, 1, 2, 4, 8, 16, 30, 30]
    assert slow.delay(HERE, "bob") == 0


def test_it_grows_by_address(slow):
    found = []
    for number in range(12):
        found.append(slow.delay(HERE, f"user{number}"))
        fail(slow, 1, user=f"user{number}")             # everybody's
    assert found == [0] * 5 + [1, 2, 4, 8, 16, 30, 30]
    assert slow.delay(THERE, "user99") == 0


def test_it_is_forgotten(slow):
    fail(slow, 7)
    assert slow.delay(THERE, "alice") == 16
    slow.now = 600 * 1.1                                # 7 have become 3.3
    assert slow.delay(THERE, "alice") == 1
    slow.now = 1200                                     # and 1.75, which are two
    assert slow.delay(THERE, "alice") == 0
    fail(slow, 1)
    assert slow.delay(THERE, "alice") == 1
    slow.now = 1e9
    assert slow.delay(THERE, "alice") == slow.delay(HERE, "x") == 0


def test_who_is_known_somewhere(slow):
    """What strangers do slows nobody down where he has logged in from; his own failures do."""
    slow.succeeded(HERE, "alice")
    fail(slow, 50, THERE, "alice")
    fail(slow, 50, HERE, "bob")
    assert slow.delay(HERE, "alice") == 0
    assert slow.delay(HERE, "bob") == slow.delay(THERE, "alice") == 30
    fail(slow, 4, HERE, "alice")
    assert slow.delay(HERE, "alice") == 2
    slow.succeeded(HERE, "alice")
    assert slow.delay(HERE, "alice") == 0
    assert slow.delay(HERE, "carol") == 30              # success of one does not make up for failures of others


def test_an_address_that_does_not_count(slow):
    fail(slow, 50, "", "alice")
    assert slow.delay("", "alice") == 30 and slow.delay("", "bob") == 0


def test_memory_is_bounded():
    slow = Clocked(SCALE, most=100)
    for number in range(1000):
        slow.failed(f"a{number}", f"u{number}")
        slow.succeeded(f"b{number}", f"v{number}")
    assert len(slow) <= 200
    assert slow._weight(("a999", "")) == 1 and slow._weight(("a1", "")) == 0
    fail(slow, 5000)
    assert slow.delay(HERE, "alice") == 30              # and no number is too large for a float


def test_nothing_is_slow_when_told_so():
    slow = Clocked(Scale(first=0))
    fail(slow, 1000)
    slow.succeeded(HERE, "alice")
    assert slow.delay(HERE, "alice") == slow.delay(HERE, "bob") == 0 and len(slow) == 0


def test_turns_and_doubt(slow):
    assert slow.key(HERE, "alice") == (HERE, "") and slow.key("", "alice") == ("", "alice")
    assert not slow.doubtful(HERE, "alice")
    fail(slow, 1, HERE, "bob")
    assert slow.doubtful(HERE, "alice")
    slow.succeeded(HERE, "alice")
    assert not slow.doubtful(HERE, "alice") and slow.key(HERE, "alice") == (HERE, "alice")
    assert not slow.doubtful("", "alice")
    fail(slow, 1, "", "carol")
    assert slow.doubtful("", "carol")
