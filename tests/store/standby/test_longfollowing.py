"""A process that follows goes on by itself after all that can happen."""

import errno
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import cycle, islice
from pathlib import Path

import pytest
from attrs import define

from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.partition.messagefiles import MessageFiles
from store.standby import applying, longfollowing, purgedfiles, standbystate
from store.standby import following as following_rounds
from store.standby.source.instep import InStep
from store.standby.sourcepeer import SourcePeer
from store.standby.standbystate import FOLLOWING
from store.store import Store
from tests.support.stores.standbypair import HOST, Standby, exchange, is_equal, promoted, work

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@define(eq=False)
class Until:
    """Stands for the event that ends the process which follows: it is asked before each round, and does something."""

    step: Callable[[int], bool]
    asked: int = 0

    def is_set(self) -> bool:
        self.asked += 1
        assert self.asked < 3000, "it does not come to where it should"
        return self.step(self.asked)

    def wait(self, seconds: float) -> bool:
        return False


def test_a_process_that_follows(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """It connects again, has the tables take over what the logs have, and copies the databases again by itself."""
    standby.create()
    monkeypatch.setattr(longfollowing, "APPLY_OCTETS", 1)
    monkeypatch.setattr(longfollowing, "WAIT", 0.01)
    tried, exchanged, seen = list[int](), list[int](), set[str]()

    def connect() -> SourcePeer:
        tried.append(1)
        if len(tried) == 1:
            raise StoreError(Problem.UNAVAILABLE, "not yet")
        return stack.enter_context(standby.connected())

    def step(asked: int) -> bool:
        state = standbystate.read(standby.root)
        assert state is not None
        seen.add(str(state.applied))
        if asked in (3, 5):
            work(store, asked)
        if len(seen) > 1 and not exchanged:
            exchanged.append(1)
            exchange(store)
            work(store, 8)
        return (len(tried) == 3 and state.phase == FOLLOWING and not applying_is_under_way(standby)
                and longfollowing.seen(standby.root)["trouble"] == "")

    with ExitStack() as stack:
        until = Until(step)
        longfollowing.LongFollowing(standby.root, connect, until).run()     # type: ignore[arg-type]
    assert longfollowing.seen(standby.root)["trouble"] == ""
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


@pytest.mark.parametrize("fails", [False, True])
def test_what_could_not_be_applied_is_no_trouble_once_the_databases_are_new(
        store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """The process that applies fails, or is ended before it has begun: the databases are copied again just then."""
    standby.create()
    monkeypatch.setattr(longfollowing, "APPLY_OCTETS", 1)
    monkeypatch.setattr(longfollowing, "WAIT", 0.01)
    tried = list[int]()

    def not_applied(*_: object, looks: bool) -> None:
        if fails:
            os._exit(1)
        signal.pause()

    def connect() -> SourcePeer:
        tried.append(1)
        return stack.enter_context(standby.connected())

    monkeypatch.setattr(longfollowing, "_apply_and_end", not_applied)

    def step(asked: int) -> bool:
        if asked == 3:
            work(store, 3)
            exchange(store)
        return len(tried) > 1 and longfollowing.seen(standby.root)["trouble"] == ""

    with ExitStack() as stack:      # else what an earlier test has left for a SIGTERM would be done by the new process
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL))
        longfollowing.LongFollowing(standby.root, connect, Until(step)).run()     # type: ignore[arg-type]
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def applying_is_under_way(standby: Standby) -> bool:
    return any(standby.root.glob(f"**/{applying.APPLYING}"))


@pytest.mark.parametrize("problem", [Problem.BUSY, Problem.GONE, Problem.DISK_FULL])
def test_following_goes_on_after_what_the_other_side_cannot_do_now(
        store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, problem: Problem) -> None:
    """A log that grows too fast to be read at one moment, a file that was purged between two questions."""
    standby.create()
    refusals = [StoreError(problem, "not now")]
    ends = SourcePeer.ends

    def refused(*arguments: object, **how: object) -> object:
        if refusals:
            raise refusals.pop()
        return ends(*arguments, **how)      # type: ignore[arg-type]

    monkeypatch.setattr(SourcePeer, "ends", refused)
    with ExitStack() as stack:
        until = Until(lambda asked: not refusals and longfollowing.seen(standby.root).get("trouble") == "")
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()),
                                    until).run()        # type: ignore[arg-type]
    assert not refusals


@pytest.mark.parametrize("waited_for", [False, True])
def test_no_connection_waits_for_the_time_of_the_next_copy(store: Store, standby: Standby, waited_for: bool) -> None:
    """The other side ends one that says nothing for two minutes: the copy would never begin. Where answers wait for the
    standby, with `refuse`, no mail is taken until it has its copy: then it waits some seconds only."""
    standby.create()
    opened, waited = list[SourcePeer](), list[tuple[float, int]]()

    def connect() -> SourcePeer:
        opened.append(stack.enter_context(standby.connected()))
        return opened[-1]

    class Stop(Until):
        def wait(self, seconds: float) -> bool:
            waited.append((seconds, sum(each.peer.wire.socket.fileno() >= 0 for each in opened)))  # type: ignore[attr-defined]
            return False

    with ExitStack() as stack:
        if waited_for:
            second = store.write_freeze.second
            standby.group = InStep.of(second, [HOST], waited=[HOST], patience=300.0)
            stack.callback(second.forget)
            stack.callback(standby.group.close)

        def step(asked: int) -> bool:
            seen = longfollowing.seen(standby.root)
            if len(opened) == 1 and seen.get("step") == ("in step" if waited_for else ""):
                with store.write_freeze.second.exempt():
                    exchange(store)
            return len(opened) > 1 and seen["trouble"] == "" and "step" in seen

        follow = longfollowing.LongFollowing(standby.root, connect, Stop(step))       # type: ignore[arg-type]
        follow._next_copy = longfollowing.time.monotonic() + 500
        follow.run()
    (seconds, connected), = waited
    assert (seconds <= 10 if waited_for else seconds > 400) and not connected


def test_who_looks_for_purged_files_holds_up_no_end(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                    ) -> None:
    """To look at very many files takes long, and a promotion waits for the tables: the look ends with who follows."""
    standby.create()
    folders = MessageFiles.folders
    monkeypatch.setattr(MessageFiles, "folders", lambda files: islice(cycle(folders(files)), 500_000))
    monkeypatch.setattr(longfollowing, "APPLY_OCTETS", 1)
    monkeypatch.setattr(longfollowing, "WAIT", 0.01)
    work(store, 1)
    with ExitStack() as stack:
        until = Until(lambda asked: (standby.root / purgedfiles.UNKNOWN).is_dir())
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()),
                                    until).run()        # type: ignore[arg-type]
    assert not list((standby.root / purgedfiles.UNKNOWN).iterdir())


def test_an_answer_that_takes_long_is_as_old_as_its_question(store: Store, standby: Standby) -> None:
    """What was committed there while it was on its way is not here."""
    standby.create()
    with ExitStack() as stack:
        until = Until(lambda asked: "current" in longfollowing.seen(standby.root))
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()), until,
                                    clock=lambda: 1000.0).run()     # type: ignore[arg-type]
    assert longfollowing.seen(standby.root)["current"] == 1000.0


def test_logs_that_cannot_be_applied_are_seen(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    standby.create()
    monkeypatch.setattr(longfollowing, "APPLY_OCTETS", 1)
    monkeypatch.setattr(longfollowing, "WAIT", 0.01)

    def fail(root: Path, state: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(applying, "apply", fail)
    work(store, 1)
    with ExitStack() as stack:
        until = Until(lambda asked: "applied" in longfollowing.seen(standby.root).get("trouble", ""))
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()),
                                    until).run()        # type: ignore[arg-type]
    state = standbystate.read(standby.root)
    assert state is not None and applying.waiting(state)
    with closing(promoted(standby)) as other:
        is_equal(store, other)


def test_how_far_it_is_behind_is_no_matter_of_the_clock(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                        ) -> None:
    """The clock is set a day forward, or back, while the first machine cannot be reached."""
    standby.create()
    with ExitStack() as stack:
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()),
                                    Until(lambda asked: asked > 3)).run()       # type: ignore[arg-type]
    found, now = longfollowing.seen(standby.root), longfollowing.time.time()
    for days in (-1, 0, 1):
        monkeypatch.setattr(longfollowing.time, "time", lambda days=days: now + days * 86_400)
        assert 0 <= (longfollowing.behind(found) or 0) < 1000
    assert longfollowing.behind({**found, "boot": "another"}) > 80_000         # type: ignore[operator]
    assert longfollowing.behind({}) is None


@pytest.mark.parametrize(("steps", "soon"), [(["joining", "in step", "", "away", ""], True),
                                             (["follows", "", "away", ""], False)])
def test_a_standby_that_answers_wait_for_is_copied_again_soon(standby: Standby, monkeypatch: pytest.MonkeyPatch,
                                                              steps: list[str], soon: bool) -> None:
    """With `refuse` nothing is changed until it is back: also when it has been away since the copy before. "": the logs
    do not lead on."""
    standby.create()
    waited = list[float]()

    def following(follower: following_rounds.Follower, wait: float, *, go_on: bool = False) -> bool:
        follower.step = steps.pop(0)
        if not follower.step:
            raise following_rounds.Reseed("a table is another one")
        return False

    class Waits(Until):
        def wait(self, seconds: float) -> bool:
            waited.append(seconds)
            return False

    monkeypatch.setattr(following_rounds.Follower, "round", following)
    with ExitStack() as stack:
        longfollowing.LongFollowing(standby.root, lambda: stack.enter_context(standby.connected()),
                                    Waits(lambda asked: not steps)).run()       # type: ignore[arg-type]
    assert waited[0] == 0
    assert (waited[1] <= longfollowing.COPY_WAITED) == soon
