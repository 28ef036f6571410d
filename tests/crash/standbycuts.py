"""Both machines lose power, or end, at every moment of an operation: what the standby has then is promoted.

The operation is done on a store that a standby follows, over a real connection in this process, and a `Recorder` sees
every call by which the standby changes its disk. An answer is noted among these calls, so each state of the standby's
disk has the answers that had been given by then: these must be there after the promotion.
"""

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import define, field, frozen

from store.events import receivers
from store.opening import open_store
from store.standby import applying, promotion, standbyjournal, standbyprocess
from store.standby.following import Follower
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
from tests.crash.views import retold, view
from tests.support.faults.disk import Image
from tests.support.faults.recorder import Recorder
from tests.support.stores.heardevents import there
from tests.support.stores.standbypair import HOST, Standby

LIMIT = 180.0                    # seconds, far more than a round takes


@frozen
class Way:
    """How the standby has what comes. `journal`: when it is little, at once; else piece by piece. `then` is called
    after each round that brought something."""

    synchronous: bool = True
    journal: bool = True
    then: Callable[[Follower], None] = lambda follower: None


def _apply(follower: Follower) -> None:
    """What `longfollowing` does in a process of its own."""
    follower.finish()
    until = follower.state
    applying.apply(follower.root, until)
    follower.state = applying.applied(follower.root, follower.state, until)


WAYS = {"by the journal": Way(), "emptied": Way(then=Follower.finish), "piece by piece": Way(journal=False),
        "applied": Way(then=_apply), "asynchronous": Way(synchronous=False)}


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
                if follower.round(0.05):
                    self.way.then(follower)
                self.place.recorder.note(Reported(answers))
                self.reported = answers
        except BaseException as error:
            self.errors.append(error)


@contextmanager
def _following(place: SeenPlace, root: Path, way: Way) -> Iterator[Following]:
    """A standby in that folder, in step, until the end of the body: then it ends as if it were killed."""
    store, undo = place.store, ExitStack()
    standby = Standby(store, root)
    second = store.write_freeze.second
    with undo:
        standby.group = InStep.of(second, [HOST], waited=[HOST] if way.synchronous else [], refuse=True, patience=LIMIT)
        undo.callback(second.forget)
        undo.callback(standby.group.close)
        with second.exempt():
            standby.create(age=0)
        place.recorder = Recorder(root)
        with place.recorder, standby.following() as follower:
            while follower.round(0) or standby.group.members[HOST].step not in (Step.IN_STEP, Step.FOLLOWS):
                pass
            if not way.journal:
                undo.callback(setattr, quickanswers, "QUICK_OCTETS", quickanswers.QUICK_OCTETS)
                quickanswers.QUICK_OCTETS = 0
            found = Following(place, standby, way)
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
        undo.callback(setattr, standbyjournal, "threading", standbyjournal.threading)
        standbyjournal.threading = SimpleNamespace(Thread=_AtOnce)          # type: ignore[assignment]
        top.mkdir()
        start, root = prepared(operation), top / "two"
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
    operation = OPERATIONS[recording.name]
    with folder() as root, small_stores():
        image.write(root)
        if receivers.FILE in recording.start.paths:     # the server writes it of its configuration
            (root / receivers.FILE).write_bytes(recording.start.paths[receivers.FILE])
        try:
            with standbyprocess.alone(root):
                promotion.promote(root)
            store = open_store(root, operation.settings)
        except BaseException as error:
            wrong = [f"it cannot be promoted: {error!r}"]
        else:
            wrong = [*_judged(operation, WAYS[how], recording, moments, store)]
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
        for answers, views, least in sorted({(each.answers, each.views, each.answers if way.synchronous
                                              else each.reported) for each in moments}):
            kept = [number for number in range(least, answers + 1) if not as_answered(
                operation, recording, found, number)]
            if not kept:
                yield from as_answered(operation, recording, found, answers)
            for number in kept[:1]:
                yield from operation.inspect(store, number)
            for each in recording.seen[:views]:
                yield from retold(each, found)
        yield from goes_on(store, operation, found)
    except BaseException:
        yield f"it does not work: {traceback.format_exc(limit=-4)}"
    finally:
        leave(store)
