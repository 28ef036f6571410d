"""Every operation is cut off before and after every call that changes the disk, by a stop and by a loss of power. (Of
writes in a row to one file three are looked at.)

The store is opened again after each and compared with what had been answered; contents that are new are checked, and
used. `CRASH_SEEDS=50` looks at more of the states in which a part of what was not synced has reached the disk, and
checks and uses each; `CRASH_KEEP=folder` keeps the states that show something wrong. `CRASH_TORN=1` also tears pages of
the databases, which Berkeley DB does not promise to survive.
"""

import gc
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from random import Random
from typing import TypeVar

import pytest
from attrs import frozen

from tests.crash import faults, harness, killedprocess
from tests.crash.conftest import Counts
from tests.crash.operations import OPERATIONS

T = TypeVar("T")

SEEDS = int(os.environ.get("CRASH_SEEDS", "1"))
TORN = bool(os.environ.get("CRASH_TORN"))
EVERYTHING = SEEDS > 2
MIXED = 100_000 if EVERYTHING else 24       # states of each operation with a random part of what was not synced
RECOVERIES = 20 if EVERYTHING else 1        # states of each operation whose recovery is cut off as well
FAULTS = 10_000 if EVERYTHING else 12       # failing calls of each operation that are tried
AGAIN = 100_000 if EVERYTHING else 12       # states that a recovery which was cut off left, and that are looked at
KILLS = 8 if EVERYTHING else 1              # processes that are killed before a change, and as many after one

#: Operations whose system calls fail.
FAULTY = ["deliver", "deliver with a journal", "deliver until it is full", "append several ahead", "deliver by scripts",
          "deliver what is known", "deliver much", "append", "copy", "scripts for a copy", "move", "flags", "expunge",
          "undelete messages", "purge many", "settle",
          "checkpoint", "store.idx of one mailbox", "restore", "restore what was removed",
          "deliver what was lost", "create", "delete", "undelete a mailbox", "purge mailboxes", "rename a tree",
          "rename INBOX", "remove a user", "rename a user", "rights", "quota roots", "small things"]

#: At least so many changes of the disk are seen in all operations together, so that the recorder cannot go blind; and
#: each operation makes some that are its own.
FEWEST = 1000
FEWEST_EACH = 3


@frozen
class Verdict:
    """Of one operation: calls that change the disk, different states they can leave, moments at which these can come,
    and what is wrong."""

    points: int
    states: int
    moments: int
    wrong: list[str]


@cache
def recorded(name: str) -> harness.Recording:
    """An operation, done once for all that a process is to do with it."""
    return harness.record(name)


def cut_off(name: str) -> Verdict:
    """An operation's every boundary. For a process of its own."""
    recording = recorded(name)
    found = list(harness.states(recording, range(SEEDS), torn=TORN, every=EVERYTHING).values())
    certain = [each for each in found if not harness.is_mixed(each[1])]
    looked_at = certain + _sample(Random(name), [each for each in found if harness.is_mixed(each[1])], MIXED)
    wrong = [what for image, moments in looked_at
             for what in harness.judge(recording, image, moments, every=EVERYTHING)]
    return Verdict(recording.points, len(looked_at), sum(len(moments) for _, moments in looked_at), wrong)


def cut_off_again(name: str) -> Verdict:
    """The boundaries of recovery, after some of an operation's crashes: AGAIN of them. For a process of its own."""
    recording = recorded(name)
    some = _sample(Random(name), list(harness.states(recording, range(1), every=EVERYTHING).values()), RECOVERIES)
    points = states = moments = 0
    wrong = []
    for recovery in harness.recordings_of_recovery(recording, some):
        points += recovery.points
        left = list(harness.states(recovery, range(1), every=EVERYTHING).values())
        for image, each in _sample(Random(name), left, AGAIN):
            states, moments = states + 1, moments + len(each)
            wrong += harness.judge(recovery, image, each, every=EVERYTHING)
    return Verdict(points, states, moments, wrong)


def kill(name: str) -> Verdict:
    """An operation in processes that are really killed. For a process of its own."""
    recording = recorded(name)
    random = Random(f"kill {name}")
    changes = _sample(random, list(range(recording.points)), KILLS)
    wrong = [what for change in changes for before in (True, False)
             for what in killedprocess.kill_at(recording, change if before else change + 1, before=before)]
    return Verdict(recording.points, 2 * len(changes), 2 * len(changes), wrong)


def make_fail(name: str) -> Verdict:
    """System calls of an operation fail, with errors that they can have: FAULTS of all. For a process of its own."""
    recording = recorded(name)
    made = faults.calls(recording)
    found, judged = _sample(Random(name), list(faults.faults(made)), FAULTS), faults.Faults(recording)
    wrong = [what for fault in found for what in judged.judge(fault)]
    return Verdict(len(made), judged.done, len(found), wrong)


def _sample(random: Random, items: list[T], most: int) -> list[T]:
    return items if len(items) <= most else random.sample(items, most)


class Jobs:
    """Work that is done ahead of the tests that ask for it, in two processes."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self._futures: dict[tuple[str, str], Future[Verdict]] = {}

    def ahead(self, work: str, name: str) -> "Future[Verdict]":
        """Have it done."""
        if (work, name) not in self._futures:
            self._futures[work, name] = self._pool.submit(WORK[work], name)
        return self._futures[work, name]


WORK = {"cut_off": cut_off, "cut_off_again": cut_off_again, "kill": kill, "make_fail": make_fail}


def _little_garbage() -> None:
    """What is imported is none, and the rest is small."""
    gc.freeze()
    gc.set_threshold(50_000)


@pytest.fixture(scope="module")
def jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    with ProcessPoolExecutor(2, get_context("spawn"), _little_garbage) as pool:
        jobs = Jobs(pool)
        for item in request.session.items:
            if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec"):
                jobs.ahead(item.originalname.removeprefix("test_"), item.callspec.params["name"])
        yield jobs
        pool.shutdown(cancel_futures=True)


def judge(verdict: Verdict) -> None:
    """Nothing is wrong; else the first few of what is."""
    assert not verdict.wrong, f"{len(verdict.wrong)} things are wrong, first of all\n" + "\n".join(verdict.wrong[:8])


@pytest.mark.parametrize("name", OPERATIONS)
def test_cut_off(jobs: Jobs, counts: Counts, name: str) -> None:
    verdict = jobs.ahead("cut_off", name).result()
    counts.add("crashes", name, verdict.points, verdict.states, verdict.moments)
    assert verdict.points >= FEWEST_EACH
    judge(verdict)


@pytest.mark.parametrize("name", OPERATIONS)
def test_cut_off_again(jobs: Jobs, counts: Counts, name: str) -> None:
    verdict = jobs.ahead("cut_off_again", name).result()
    counts.add("crashes in recovery", name, verdict.points, verdict.states, verdict.moments)
    judge(verdict)


@pytest.mark.parametrize("name", OPERATIONS)
def test_kill(jobs: Jobs, name: str) -> None:
    judge(jobs.ahead("kill", name).result())


@pytest.mark.parametrize("name", FAULTY)
def test_make_fail(jobs: Jobs, counts: Counts, name: str) -> None:
    verdict = jobs.ahead("make_fail", name).result()
    counts.add("failing calls", name, verdict.points, verdict.states, verdict.moments)
    judge(verdict)


def test_enough_was_seen(counts: Counts) -> None:
    """Comes last: the harness has not gone blind."""
    if set(counts.of("crashes")) != set(OPERATIONS):
        pytest.skip("only with all operations")
    assert sum(points for points, _, _ in counts.of("crashes").values()) >= FEWEST
