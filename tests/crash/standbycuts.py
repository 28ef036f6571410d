"""Both machines lose power, or end, at every moment of an operation: what the standby has then is promoted.

The operation is done on a store that a standby follows, over a real connection in this process, and a `Recorder` sees
every call by which the standby changes its disk. An answer is noted among these calls, so each state of the standby's
disk has the answers that had been given by then: these must be there after the promotion.

A third machine may follow the standby. Both disks are then below one folder, and all lose power in one moment. Either
the second machine is promoted, and the third follows it with what it has left; or the third is promoted, and has what
had come to it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import define, field, frozen

from mboxlist.engine.hotcopy import Position
from store.errors import StoreError
from store.events import receivers
from store.opening import open_store
from store.standby import applying, promotion, standbyjournal, standbyprocess
from store.standby.cascade.cascade import Cascade
from store.standby.following import Follower, Reseed
from store.standby.source import quickanswers
from store.standby.source.instep import InStep, Step
from store.store import Store
from tests.crash.harness import (
    Moment,
    Recording,
    Reported,
    Seen,
    SeenPlace,
    as_answered,
    findings,
    folder,
    goes_on,
    leave,
    prepared,
    small_stores,
    told,
)
from tests.crash.operations import OPERATIONS, Operation
from tests.crash.raised import raised
from tests.crash.views import Picture, retold, view
from tests.store.standby.test_cascade import THIRD, Further
from tests.support.faults.disk import Image
from tests.support.faults.recorder import Recorder
from tests.support.stores.heardevents import there
from tests.support.stores.standbypair import HOST, Standby

LIMIT = 180.0                    # seconds, far more than a round takes


@frozen
class Way:
    """How the standby has what comes. `journal`: when it is little, at once; else piece by piece. `then` is called
    after each round that brought something, also on the third machine, if there is one. `last`: which machine is
    promoted."""

    synchronous: bool = True
    journal: bool = True
    then: Callable[[Follower], None] = lambda follower: None
    third: bool = False
    last: str = "two"

    def root(self, folder: Path, name: str) -> Path:
        """The folder of a machine, below that of all disks."""
        return folder / name if self.third else folder

    def least(self, moment: Moment) -> int:
        """How many answers must be there."""
        return moment.answers if self.synchronous and self.last == "two" else moment.reported


def _apply(follower: Follower) -> None:
    """What `longfollowing` does in a process of its own."""
    follower.finish()
    until = follower.state
    applying.apply(follower.root, until)
    follower.state = applying.applied(follower.root, follower.state, until)


WAYS = {"by the journal": Way(), "emptied": Way(then=Follower.finish), "piece by piece": Way(journal=False),
        "applied": Way(then=_apply), "asynchronous": Way(synchronous=False),
        "followed by a third machine": Way(third=True), "lost with the first machine": Way(third=True, last="three"),
        "lost when it is emptied": Way(then=Follower.finish, third=True, last="three")}


class _AtOnce:
    """In the place of a thread: what it does is done when it is started, so that calls come in one order."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], name: str) -> None:
        self._work = lambda: target(*args)

    def start(self) -> None:
        """Do it."""
        self._work()

    def is_alive(self) -> bool:
        """Never."""
        return False

    def join(self) -> None:
        """It has ended."""


@define
class Following:
    """A thread in which the standby follows, and what it has seen."""

    place: SeenPlace
    standby: Standby
    way: Way
    third: "Third | None" = None
    stop: threading.Event = field(factory=threading.Event)
    errors: list[BaseException] = field(factory=list)
    reported: int = -1

    def answered(self) -> None:
        """The operation gives an answer. Of those for which nobody waits each second one is soon here."""
        self.place.answered()
        answers = len(self.place.views) - 1
        if not self.way.synchronous and answers % 2:
            self.wait()

    def wait(self) -> None:
        """Return when all is here."""
        answers = len(self.place.views) - 1
        while self.reported < answers and not self.errors:
            time.sleep(0.001)

    def run(self, follower: Follower) -> None:
        """Until `stop`."""
        try:
            while not self.stop.is_set():
                answers = len(self.place.views) - 1
                if follower.round(0.05, go_on=self.way.synchronous):
                    self.way.then(follower)
                if self.third is not None:
                    follower.ask(0.05)          # before all else: answers may wait for it
                    answers = self.third.round(answers, follower.newest.ends, self.way)
                if answers >= 0:
                    self.place.recorder.note(Reported(answers))
                    self.reported = answers
        except BaseException as error:
            self.errors.append(error)


@define
class Third:
    """A machine that follows the standby, round by round."""

    follower: Follower
    asked: int = -1
    ends: dict[str, Position] = field(factory=dict)     # where the logs of the standby were with so many answers

    def round(self, answers: int, ends: dict[str, Position], way: Way) -> int:
        """The standby has so many answers now; how many are known to be here, -1: nobody knows."""
        if self.asked < 0:
            self.asked, self.ends = answers, dict(ends)
        if self.follower.round(0.05):
            way.then(self.follower)
        if any(end < self.ends[name] for name, end in self.follower.state.ends.items()):
            return -1
        found, self.asked = self.asked, -1
        return found


@contextmanager
def _third(store: Store, standby: Standby, follower: Follower, root: Path) -> Iterator[Callable[[], Third]]:
    """What makes a third machine follow the standby; it has been created."""
    cascade = Cascade(standby.root, standby.connected, {THIRD})
    follower.shown, follower.further = cascade.show, cascade.further
    further = Further(store, root, host=THIRD, above=cascade)
    for _ in range(2):
        follower.round(0)
    follower.finish()
    further.create(age=0)
    with ExitStack() as undo:
        yield lambda: Third(undo.enter_context(further.following()))


@contextmanager
def _following(place: SeenPlace, root: Path, way: Way) -> Iterator[Following]:
    """A standby in that folder, in step, until the end of the body: then it ends as if it were killed."""
    store, undo = place.store, ExitStack()
    standby = Standby(store, way.root(root, "two"))
    second = store.write_freeze.second
    with undo:
        standby.group = InStep.of(second, [HOST, THIRD], waited=[HOST] if way.synchronous else [], refuse=True,
                                  patience=LIMIT)
        undo.callback(second.forget)
        undo.callback(standby.group.close)
        with second.exempt():
            standby.create(age=0)
        follower = undo.enter_context(standby.following())
        third = None
        if way.third:
            with second.exempt():
                third = undo.enter_context(_third(store, standby, follower, way.root(root, "three")))
        place.recorder = Recorder(root)
        with place.recorder:
            while follower.round(0) or standby.group.members[HOST].step not in (Step.IN_STEP, Step.FOLLOWS):
                pass
            if not way.journal:
                undo.callback(setattr, quickanswers, "QUICK_OCTETS", quickanswers.QUICK_OCTETS)
                quickanswers.QUICK_OCTETS = 0
            found = Following(place, standby, way, None if third is None else third())
            thread = threading.Thread(target=found.run, args=(follower,), daemon=True)
            thread.start()
            try:
                yield found
                found.wait()
            finally:
                found.stop.set()
                thread.join(LIMIT)
            assert not thread.is_alive()
            assert not found.errors, found.errors


def record(name: str, how: str) -> Recording:
    """Do the operation beside a standby that follows in that way, and see what that does to the standby's disk."""
    operation, way = OPERATIONS[name], WAYS[how]
    with folder() as top, small_stores(), ExitStack() as undo:
        undo.callback(setattr, standbyjournal, "GROW", standbyjournal.GROW)
        standbyjournal.GROW = 16 << 10              # each state of the disk has it
        undo.callback(setattr, standbyjournal, "threading", standbyjournal.threading)
        standbyjournal.threading = SimpleNamespace(Thread=_AtOnce)          # type: ignore[assignment]
        top.mkdir()
        start, root = prepared(operation), top / "disks"
        start.write(top / "one")
        root.mkdir()
        place = SeenPlace(top / "one", operation, Recorder(root))
        place.open()
        place.views.append(view(place.store))
        boxes = there(place.store)
        with _following(place, root, way) as found:
            recorder = place.recorder
            begin = len(recorder.events)
            operation.run(place, found.answered)
        end = len(recorder.events)
        base = recorder.base.copy()
        for event in recorder.events[:begin]:
            base.apply(event)
        leave(place.store)
        events = recorder.events[begin:end]
        return Recording(name, f"{name}, {how}", start, base, events, place.views,
                         [event.note.view for event in events if isinstance(event.note, Seen)], boxes=boxes)


def judge(recording: Recording, how: str, image: Image, moments: Sequence[Moment]) -> list[str]:
    """What is wrong with the store that comes of a promotion in this state of the standby's disk."""
    operation, way = OPERATIONS[recording.name], WAYS[how]
    with folder() as disks, small_stores():
        image.write(disks)
        root = way.root(disks, way.last)
        if receivers.FILE in recording.start.paths:     # the server writes it of its configuration
            (root / receivers.FILE).write_bytes(recording.start.paths[receivers.FILE])
        try:
            with standbyprocess.alone(root):
                promotion.promote(root)
            store = open_store(root, operation.settings)
        except Exception as error:
            wrong = [raised("it cannot be promoted", error)]
        else:
            wrong = [*_judged(operation, way, recording, moments, store)]
    first = moments[0]
    where = f"{recording.title}: {first.how} after change {first.changes} ({first.last}), {first.answers} answers"
    return [f"{where}: {what}" for what in wrong]


def _judged(operation: Operation, way: Way, recording: Recording, moments: Sequence[Moment], store: Store
            ) -> Iterator[str]:
    try:
        found = view(store)
        yield from findings(store, operation)
        if operation.events:
            yield from told(store, recording.boxes)
        yield from _compared(operation, way, recording, moments, found, partial(operation.inspect, store))
        if way.third and way.last == "two":
            yield from _followed(operation, way, recording, moments, store)
        yield from goes_on(store, operation, found)
    except Exception as error:
        yield raised("it does not work", error)
    finally:
        leave(store)


def _compared(operation: Operation, way: Way, recording: Recording, moments: Sequence[Moment], found: Picture,
              inspect: Callable[[int], list[str]]) -> Iterator[str]:
    """What is wrong. It may have more than was reported, so of the answers with its picture (which may be all) any may
    be the one that it is as after."""
    for answers, views, least in sorted({(each.answers, each.views, way.least(each)) for each in moments}):
        kept = [number for number in range(least, answers + 1) if not as_answered(operation, recording, found, number)]
        if not kept:
            yield from as_answered(operation, recording, found, answers)
        elif all(inspected := [inspect(number) for number in kept]):
            yield from inspected[-1]
        for each in recording.seen[:views]:
            yield from retold(each, found, lacks=True)


def _followed(operation: Operation, way: Way, recording: Recording, moments: Sequence[Moment], store: Store
              ) -> Iterator[str]:
    """The third machine goes on by the log of the one that has been promoted, and is promoted in its turn."""
    third = Standby(store, store.root.with_name("three"), host=THIRD)
    try:
        third.follow()
    except (Reseed, StoreError) as error:
        yield f"the third machine does not follow: {error!r}"
        return
    with standbyprocess.alone(third.root):
        promotion.promote(third.root)
    other = open_store(third.root, operation.settings)
    try:
        yield from (f"on the third machine: {what}" for what in _compared(
            operation, way, recording, moments, view(other), partial(operation.inspect, other)))
    finally:
        leave(other)
