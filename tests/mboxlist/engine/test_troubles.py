"""What goes wrong for a while is told when it begins, counted while it lasts, and told when it ends."""

import logging

import pytest

from mboxlist.engine.troubles import QUIET, REMIND, TROUBLES, Troubles, after_commit


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_trouble_is_one_line_when_it_begins_counts_and_one_line_when_it_ends(
        caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    troubles = Troubles(clock)
    for _ in range(1800):
        troubles.met("no room", "alice: STORE")
        clock.now += 0.05
        troubles.look()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("no room: alice: STORE") and caplog.records[0].levelno == logging.ERROR
    assert len(lines) == 2 and "1201 times in 60 s" in lines[1]     # after a minute, of 90 seconds
    clock.now += QUIET
    troubles.look()
    assert [record.getMessage() for record in caplog.records[2:]] == ["no room: over; met 1800 times in 90 s"]
    assert not troubles.lasting()
    troubles.look()
    assert len(caplog.records) == 3


def test_what_is_known_to_end_lasts_until_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    troubles = Troubles(clock)
    troubles.over("read-only")
    troubles.met("read-only", until_over=True)
    clock.now += 10 * REMIND
    troubles.look()
    assert troubles.lasting() == {"read-only": 1}
    troubles.over("read-only")
    assert not troubles.lasting() and "over" in caplog.records[-1].getMessage()


def test_what_fails_after_a_commit_raises_nothing_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def tell() -> None:
        raise OSError("no more descriptors")

    caplog.set_level(logging.WARNING)
    for _ in range(5):
        after_commit(tell)
    line, = (record.getMessage() for record in caplog.records)
    assert "tell failed after a commit" in line and "no more descriptors" in line
    (kind, times), = [(kind, times) for kind, times in TROUBLES.lasting().items() if "tell failed" in kind]
    assert times == 5
    TROUBLES.over(kind)
