"""An operation in a process that SIGKILL ends at a change of the disk, and what is wrong with what that leaves."""

import os
import signal
from pathlib import Path

from store.opening import open_store
from tests.crash.harness import Answered, Moment, Recording, SeenPlace, folder, judged, small_stores, standing_still
from tests.crash.operations import OPERATIONS, Operation
from tests.support.faults.disk import Event
from tests.support.faults.recorder import Call, Recorder


def kill_at(recording: Recording, change: int, *, before: bool) -> list[str]:
    """Do the operation again in a process that SIGKILL ends at that change of the disk, and judge what it leaves."""
    operation = OPERATIONS[recording.name]
    with folder() as root, small_stores(), standing_still(recording.ended):
        recording.start.write(root)
        answers, views = _killed(root, operation, change, before)
        wrong = judged(root, operation, recording, [Moment("killed", change, "", answers, views)], again=True)
    return [f"{recording.name}: killed {'before' if before else 'after'} change {change}: {what}" for what in wrong]


def _killed(root: Path, operation: Operation, change: int, before: bool) -> tuple[int, int]:
    """Answers and views that there were at the end of the process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            _until_killed(root, operation, change, before, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as said:
        notes = said.read()
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), f"change {change} did not come"
    return notes.count(b"a"), notes.count(b"s")


def _until_killed(root: Path, operation: Operation, change: int, before: bool, told: int) -> None:
    count = -1                  # until the operation begins
    write = os.write

    def at(call: Call) -> None:
        if before and count == change and call.changes:
            os.kill(os.getpid(), signal.SIGKILL)

    class Counted(list[Event]):
        def append(self, event: Event) -> None:
            nonlocal count
            super().append(event)
            if count < 0:
                return
            if event.kind == "note":
                write(told, b"a" if isinstance(event.note, Answered) else b"s")
                return
            count += 1
            if not before and count == change:
                os.kill(os.getpid(), signal.SIGKILL)

    recorder = Recorder(root, at)
    recorder.events = Counted()
    place = SeenPlace(root, operation, recorder)
    with recorder:
        if operation.alone:         # as when it was recorded: so the log is as long
            open_store(root, operation.settings).close()
        else:
            place.open()
        place.views.append({})
        count = 0
        operation.run(place, place.answered)

