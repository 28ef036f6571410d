"""One process at a time: who is second is refused at once, or waits for its turn."""

import fcntl
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from store.errors import Problem, StoreError
from store.filelock import exclusive, in_turn
from tests.support.faults.planted import Faults


@pytest.mark.parametrize("folder", [False, True])
def test_the_second_is_refused_until_the_first_has_gone(tmp_path: Path, folder: bool) -> None:
    path = tmp_path if folder else tmp_path / "lock"
    for _ in range(2):
        with exclusive(path, Problem.BUSY, "Another one", folder=folder):
            with pytest.raises(StoreError) as refused, exclusive(path, Problem.BUSY, "Another one", folder=folder):
                pytest.fail("two at once")
            assert refused.value.problem is Problem.BUSY and refused.value.public == "Another one"


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Its volume may be missing."""
    with pytest.raises(FileNotFoundError), exclusive(tmp_path / "volume", Problem.BUSY, "", folder=True):
        pytest.fail("nothing is there")
    assert not list(tmp_path.iterdir())


def test_what_the_first_runs_into_is_not_taken_for_the_lock(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), exclusive(tmp_path / "lock", Problem.BUSY, "Another one"):
        raise BlockingIOError("of its own")


def test_in_turn_the_second_waits(tmp_path: Path, faults: Faults) -> None:
    order, waits = [], Event()

    def told(flock: Callable[[int, int], None], handle: int, how: int) -> None:
        try:
            flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            waits.set()
            if how & fcntl.LOCK_NB:
                raise
            flock(handle, how)

    def second() -> None:
        with in_turn(tmp_path / "lock"):
            order.append("second")

    thread = Thread(target=second)
    with in_turn(tmp_path / "lock"):
        faults.around(fcntl, "flock", told)
        thread.start()
        assert waits.wait(180)
        order.append("first")
    thread.join(180)
    assert order == ["first", "second"]
