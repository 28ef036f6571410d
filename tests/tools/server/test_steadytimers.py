"""What waits for its time waits that long, whatever is done to the clock of the day."""

import time

import pytest
from twisted.internet.base import ReactorBase

from tools.server.process.reactor import Reactor

DAY = 86_400


@pytest.mark.parametrize("days", [-1, 1])
def test_the_clock_is_set(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    before, now = Reactor.seconds(), time.time()
    monkeypatch.setattr(time, "time", lambda: now + days * DAY)
    assert 0 <= Reactor.seconds() - before < 1000
    assert abs(Reactor.seconds() - now) < DAY / 2 <= abs(Reactor.seconds() - time.time())
    assert Reactor.timeout is ReactorBase.timeout and Reactor.callLater is ReactorBase.callLater     # go by `seconds`
