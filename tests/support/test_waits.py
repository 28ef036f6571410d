"""Waiting until nothing is left: it may take any time while something goes."""

import os

import pytest

from tests.support.processes import wait


def test_it_waits_as_long_as_something_goes() -> None:
    states = iter([["a", "b", "c"], ["a", "b", "c"], ["b", "c", "d"], ["d"], ["d", "e"], ["e"], []])
    wait.emptied(lambda: next(states), "the queue", pid=os.getpid(), limit=60, step=0.0)
    assert list(states) == []


@pytest.mark.parametrize("later", [["a", "b"], ["a", "b", "c"]])
def test_it_leaves_off_when_nothing_goes(later: list[str]) -> None:
    """What comes in is no progress."""
    states = iter([["a", "b", "z"], ["a", "b"]])
    with pytest.raises(wait.TookTooLong, match="the queue: 2 are left, and none of them went"):
        wait.emptied(lambda: next(states, later), "the queue", pid=os.getpid(), limit=0, step=0.0)
