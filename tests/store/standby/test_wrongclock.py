"""The clock of either machine is a day wrong, or is set by a day while the standby follows, or before its promotion.

The standby goes on, copies the databases again, knows how far it is behind, and has mail, UIDs and internal dates as
they were. What a relay sends again comes once.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from attrs import define, evolve

from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Delivered, Duplicate, Outcome, Target
from store.standby import longfollowing, standbystate
from store.store import Store
from tests.conftest import UnixTime
from tests.store.standby.test_longfollowing import Until
from tests.support.stores.standbypair import INBOX, Standby, exchange, is_equal, promoted, work

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

DAY, HOUR = 86_400, 3600
MAIL = b"Received: from relay.example id %d\r\nSubject: no answer\r\n\r\nText\r\n"


@define(eq=False)
class Clocks:
    """What `time.time` says: so many seconds more than it is, on the first machine, and in the thread of the one that
    follows while it is `following`."""

    first: int = 0
    second: int = 0
    _follows: threading.Thread | None = None
    _real = staticmethod(time.time)

    def __call__(self) -> float:
        return self._real() + (self.second if threading.current_thread() is self._follows else self.first)

    @contextmanager
    def following(self, follows: bool = True) -> Iterator[None]:
        """Where this thread is: on the second machine, or on the first."""
        before, self._follows = self._follows, threading.current_thread() if follows else None
        try:
            yield
        finally:
            self._follows = before


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(time, "time", made)
    return made


def attempt(store: Store, number: int) -> Outcome:
    """What a relay does with the message of that number."""
    staged = store.stage(store.entry(INBOX), b"Return-Path: <>\r\n")
    staged.write(MAIL % number)
    outcome, = offload.now(durable.deliver(store, staged, [Target(store.entry(INBOX), repeat=HOUR)]))
    return outcome


@pytest.mark.parametrize("machine", ["first", "second"])
@pytest.mark.parametrize(("before", "then", "at_promotion"), [
    (DAY, DAY, DAY), (-DAY, -DAY, -DAY),        # it is wrong;
    (0, DAY, DAY), (0, -DAY, -DAY), (DAY, 0, 0), (-DAY, 0, 0),      # it is set while the other one follows,
    (0, 0, DAY), (0, 0, -DAY), (DAY, DAY, 0), (-DAY, -DAY, 0)])     # and just before the promotion
def test_a_clock_is_wrong_by_a_day(store: Store, standby: Standby, clocks: Clocks, monkeypatch: pytest.MonkeyPatch,
                                   machine: str, before: int, then: int, at_promotion: int) -> None:
    monkeypatch.setattr(longfollowing, "APPLY_OCTETS", 1)
    monkeypatch.setattr(longfollowing, "WAIT", 0.01)
    copies = list[int]()

    def step(asked: int) -> bool:
        seen = longfollowing.seen(standby.root)
        with clocks.following(False):
            if asked == 3:
                work(store, 1)
                setattr(clocks, machine, then)
                work(store, 2)
            if asked == 6:
                exchange(store)                 # what the log does not tell: the databases are copied again
                work(store, 3)
                assert isinstance(attempt(store, 1), Delivered)
        copies.extend([1] if "copied again" in seen.get("trouble", "") else [])
        return asked > 12 and seen["trouble"] == ""

    setattr(clocks, machine, before)
    with clocks.following(), ExitStack() as stack:
        standby.create()
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()),
                                    Until(step)).run()      # type: ignore[arg-type]
        assert copies
        setattr(clocks, machine, at_promotion)
        behind = longfollowing.behind(longfollowing.seen(standby.root))
        assert behind is not None and behind < HOUR
        with closing(promoted(standby)) as other:
            is_equal(store, other)
            assert check(other) == []
            assert isinstance(attempt(other, 1), Duplicate)
            assert isinstance(attempt(other, 2), Delivered)


def test_a_promotion_long_after_the_loss(store: Store, standby: Standby, unix_time: UnixTime) -> None:
    """The relay has had no answer, and tries again when there is a machine that takes mail. What came long before had
    one."""
    unix_time.now -= 5 * HOUR           # all long before the time that files here have
    standby.create()
    assert isinstance(attempt(store, 1), Delivered)
    unix_time.now += HOUR
    assert isinstance(attempt(store, 2), Delivered)
    standby.follow()
    unix_time.now += 2 * HOUR
    with closing(promoted(standby)) as other:
        assert isinstance(attempt(other, 2), Duplicate)
        assert isinstance(attempt(other, 1), Delivered)


@pytest.mark.parametrize("moment", [0.0, 0.5, 30.0, float(1 << 32), 9e10])
def test_a_moment_at_either_end_of_time(store: Store, standby: Standby, moment: float) -> None:
    """As of a machine that has no battery for its clock: a promotion is not stopped half way by it."""
    work(store, 1)
    standby.create()
    standby.follow()
    state = standbystate.read(standby.root)
    assert state is not None
    evolve(state, moment=moment).save(standby.root)
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []
