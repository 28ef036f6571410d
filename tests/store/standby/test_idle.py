"""A connection to a standby costs next to nothing while nothing is changed."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field

from store.standby.source import copysource
from store.standby.source.instep import LONGEST_LOOK, Step
from store.store import Store
from tests.support.faults.planted import Faults
from tests.support.stores.standbypair import HOST, INBOX
from tests.support.stores.stores import deliver

pytestmark = pytest.mark.few_folders


@define(eq=False)
class Clock:
    """A clock that goes on while somebody waits; what is to be done is `at` its time."""

    now: float = 1000.0
    at: dict[float, Any] = field(factory=dict)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for when in [each for each in self.at if each <= self.now]:
            self.at.pop(when)()

    def module(self) -> SimpleNamespace:
        return SimpleNamespace(monotonic=lambda: self.now, monotonic_ns=lambda: int(self.now * 1e9), sleep=self.wait,
                               time=time.time, time_ns=time.time_ns)


def in_step(clock: Clock) -> Any:
    """A standby for which answers wait, and nobody does."""
    asked = SimpleNamespace(wait=clock.wait, is_awaited=lambda number: False)
    return SimpleNamespace(asked=asked, step=Step.IN_STEP, number=0, behind=0, is_sent=lambda number: None,
                           has=lambda number: None, has_all=lambda number: None)


def test_an_idle_standby_is_looked_for_seldom_and_news_come_soon(
        store: Store, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty looks a second took 1 % of a core."""
    clock = Clock()
    monkeypatch.setattr(copysource, "time", clock.module())
    source = copysource.Source(store, HOST)
    source.member = in_step(clock)
    known, small = copysource.taking.log_ends(source._environments())[0], source._signatures()
    looks = faults.watch(copysource.taking, "log_ends", lambda *_: clock.now)
    source._news(known, small, 10.0)
    assert clock.now == pytest.approx(1010, abs=0.1) and len(looks) <= 25
    looks.clear()
    clock.at[clock.now + 5] = lambda: deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
    began = clock.now
    _, _, (ends, _), _ = source._news(known, source._signatures(), 30.0)
    assert ends != known and clock.now <= began + 5 + LONGEST_LOOK
