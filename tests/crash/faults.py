"""System calls that fail: each call of an operation in turn, with each error that it can have."""

import errno
import logging
import os
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import define, evolve, frozen

from mboxlist.engine.transact import Unflushed
from store.errors import Problem, StoreError
from store.housekeeping import interrupted
from store.opening import open_store
from store.problems import NOT_NOW
from store.store import Store
from store.userarea import writing as portable
from tests.crash.harness import (
    Answered,
    Recording,
    SeenPlace,
    as_answered,
    findings,
    folder,
    goes_on,
    leave,
    small_stores,
)
from tests.crash.operations import OPERATIONS, Operation
from tests.crash.places import ALICE, BOB, PROBES, deliver
from tests.crash.raised import raised
from tests.crash.views import Picture, view
from tests.support.faults.disk import Image
from tests.support.faults.recorder import Call, Recorder

PROBE = PROBES[1]
#: What calls can have which error. File systems on a disk find out that there is no space when they are written to.
ERRORS: dict[int, tuple[str, ...]] = {
    errno.ENOSPC: ("create", "write", "truncate", "link", "rename", "mkdir"),
    errno.EIO: (),                          # any call
    errno.EMFILE: ("open", "create", "scandir"),
    errno.EACCES: ("open", "create", "link", "rename", "unlink", "mkdir", "stat", "scandir")}


@frozen
class Fault:
    """The call of that number fails (from 0, of those that an operation makes); with `lasting`, all like it that come
    after it fail too, until the operation has ended."""

    call: int
    error: int
    lasting: bool
    name: str           # of the call
    path: str

    def __str__(self) -> str:
        how = " and all after it" if self.lasting else ""
        return f"{errno.errorcode[self.error]} from call {self.call} ({self.name} {self.path}){how}"


def calls(recording: Recording) -> list[Call]:
    """The calls that the operation makes when nothing fails."""
    outcome = _in_a_process(recording, None, lambda root: None)
    said: list[Call] = outcome.calls
    return said


def faults(made: list[Call]) -> Iterator[Fault]:
    """Everything that can happen to these calls."""
    for number, call in enumerate(made):
        for error in ERRORS:
            if _can_have(call, error):
                for lasting in (False, True):
                    yield Fault(number, error, lasting, _kind(call), call.path)


@define
class Faults:
    """Judges one operation's faults, in the order of `faults`. A lasting one is not done where the same as a single one
    was not followed by any call that it could have met: nothing would be different."""

    recording: Recording
    done: int = 0                   # faults for which the operation was carried out
    _alike: tuple[int, int] = (-1, 0)   # call and error of a single fault that is no other if it lasts

    def judge(self, fault: Fault) -> list[str]:
        """What is wrong after the operation has met that fault."""
        if fault.lasting and self._alike == (fault.call, fault.error):
            return []                       # it has been said
        operation = OPERATIONS[self.recording.name]
        wrong: list[str] = []

        def look(root: Path) -> None:
            wrong.extend(_opened_again(root, operation, self.recording, outcome_of[0], after_loss=False))

        outcome_of: list[_Outcome] = []
        outcome = _in_a_process(self.recording, fault, look, outcome_of)
        self.done += 1
        wrong[:0] = outcome.wrong
        if outcome.lost is not None:
            with folder() as root, small_stores():
                outcome.lost.write(root)
                wrong += _opened_again(root, operation, self.recording, outcome, after_loss=True)
        if not any(_can_have(call, fault.error) for call in outcome.calls[fault.call + 1:]):
            self._alike = fault.call, fault.error
        return [f"{self.recording.name}: {fault}: {what}" for what in wrong]


@define
class _Outcome:
    """What a process says of itself."""

    calls: list[Call]
    wrong: list[str]
    answers: int = 0
    probes: int = 0             # messages that were delivered after the fault
    broken: bool = False
    lost: Image | None = None   # what a loss of power then leaves


def _in_a_process(recording: Recording, fault: Fault | None, then: Any,
                  outcome_of: "list[_Outcome] | None" = None) -> _Outcome:
    with folder() as root, small_stores():
        recording.start.write(root)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.close(reading)
                logging.disable()
                with os.fdopen(writing, "wb") as said:
                    pickle.dump(_meet(root, recording, fault), said)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(writing)
        with open(reading, "rb") as said:
            told = said.read()
        status = os.waitpid(child, 0)[1]
        outcome = pickle.loads(told) if status == 0 else _Outcome([], [f"the process ended with status {status}"])
        if outcome_of is not None:
            outcome_of.append(outcome)
        then(root)
        return outcome


def _meet(root: Path, recording: Recording, fault: Fault | None) -> _Outcome:
    operation = OPERATIONS[recording.name]
    outcome = _Outcome([], [])
    on = False

    def before(call: Call) -> None:
        if not on:
            return
        outcome.calls.append(call)
        number = len(outcome.calls) - 1
        if fault and (number == fault.call or fault.lasting and number > fault.call and _can_have(call, fault.error)):
            raise OSError(fault.error, os.strerror(fault.error), call.path)

    recorder = Recorder(root, before)
    place = SeenPlace(root, operation, recorder)
    with recorder:
        place.open()
        place.look = False          # its calls are none of the operation's
        on = True
        try:
            operation.run(place, place.answered)
        except StoreError as refusal:
            if refusal.problem not in NOT_NOW:
                outcome.wrong.append(f"it is refused for good: {refusal}")
        except Unflushed:
            pass                        # its client gets no answer
        except Exception as error:
            if not place.broken:        # else the process has ended by now
                outcome.wrong.append(raised("it raises", error))
        on = False
        outcome.answers = sum(isinstance(event.note, Answered) for event in recorder.events)
        outcome.broken = place.broken
        if not place.broken:
            _goes_on_here(place, operation, recording, outcome)
        outcome.broken = place.broken
        disk = recorder.base.copy()
        for event in recorder.events:
            disk.apply(event)
        outcome.lost = disk.lost()
        if not place.broken and fault and fault.call % 2:
            try:
                place.close()
            except Exception as error:
                outcome.wrong.append(raised("it does not close", error))
    return outcome


def _goes_on_here(place: SeenPlace, operation: Operation, recording: Recording, outcome: _Outcome) -> None:
    """The fault is gone: the same open store takes a delivery, and is whole. A mailbox of which it was not said that it
    is there may be one that takes no mail yet."""
    told = recording.views[outcome.answers]
    try:
        found = view(place.store)
        outcome.wrong += as_answered(operation, recording, found, outcome.answers, again=True)
        for name in (ALICE, BOB):
            if str(name) in found and not outcome.probes:
                try:
                    place.store.patience = 0.0
                    deliver(place.store, PROBE, name, ignore_quota=True)
                    outcome.probes += 1
                except StoreError as refusal:
                    if refusal.problem is not Problem.BUSY or str(name) in told:
                        raise
        if operation.inspect(place.store, outcome.answers):         # what failed comes again
            portable.write_changed(place.store, hurry=True)
        outcome.wrong += operation.inspect(place.store, outcome.answers)
        _keep_house(place.store)
        outcome.wrong += findings(place.store, operation)
    except Exception as error:
        if not place.broken:
            outcome.wrong.append(raised("it does not go on", error))


def _keep_house(store: Store) -> None:
    """What was stopped between the list and a partition is finished, a minute after that."""
    for item in list(store.mailboxes.pending.all()):
        interrupted.finish(store, item)


def _opened_again(root: Path, operation: Operation, recording: Recording, outcome: _Outcome, *, after_loss: bool
                  ) -> list[str]:
    how = "opened after a loss of power" if after_loss else "opened again"
    try:
        store = open_store(root, operation.settings)
    except Exception as error:
        return [raised(f"{how}: it does not open", error)]
    try:
        found, probes = _without_probe(view(store))
        wrong = findings(store, operation)
        if probes != outcome.probes:
            wrong.append(f"{probes} messages instead of {outcome.probes} of those that were delivered after the fault")
        wrong += as_answered(operation, recording, found, outcome.answers, again=True)
        if not after_loss:
            wrong += goes_on(store, operation, view(store))
        if operation.finish is not None:
            wrong += operation.finish(store, recording.views[-1])
    except Exception as error:
        wrong = [raised("it does not work", error)]
    finally:
        leave(store)
    return [f"{how}: {what}" for what in wrong]


def _without_probe(found: Picture) -> tuple[Picture, int]:
    start = f"{len(PROBE)} "
    rest = {name: evolve(box, messages=tuple(each for each in box.messages if not each.octets.startswith(start)))
            for name, box in found.items()}
    return rest, sum(len(box.messages) for box in found.values()) - sum(len(box.messages) for box in rest.values())


def _kind(call: Call) -> str:
    return "create" if call.name == "open" and call.changes else call.name


def _can_have(call: Call, error: int) -> bool:
    return not ERRORS[error] or _kind(call) in ERRORS[error]
