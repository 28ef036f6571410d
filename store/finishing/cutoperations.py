"""What was cut off is finished or undone, at a start and by housekeeping: see the room's text."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from store.errors import Problem, StoreError, disk_problem
from store.finishing import ofdatabases, ofusers
from store.finishing.attempts import FOR_NOW
from store.finishing.ofmail import NOTHING
from store.finishing.operationkinds import KINDS, Finish, Kind
from store.housekeeping.tasks import Task
from store.operations import operationrecord
from store.operations.operationrecord import Cut, Operation
from store.partition.marks import RESTORING, is_half_made
from store.reconstruct.request import Refused
from store.settings import Settings
from store.store import Store

log = logging.getLogger(__name__)

INTERVAL = 10               # seconds between two looks
_EARLIER = Operation("", "", {}, 0.0, "", 0)        # what has left a mark and no record: an earlier version


@frozen
class Finishing:
    """Finishes what was cut off; `others` are kinds that the store does not know."""

    others: Mapping[str, Finish] = field(factory=dict)

    def before_opening(self, root: Path, settings: Settings) -> None:
        """What has to be done before the store can be opened. For who is to open it, and serves nobody yet.

        Raises StoreError, OSError.
        """
        with operationrecord.cut_off(root) as found:
            for cut in found:
                kind = KINDS.get(cut.operation.kind)
                if kind is not None and kind.before is not None:
                    outcome = kind.before(root, settings, cut.operation)
                    if outcome and kind.long:
                        log.warning("%s was cut off; %s", cut.operation, outcome)
                        cut.so_far(outcome)
                    elif outcome:
                        _ended(cut, outcome)
        if (root / RESTORING).exists():
            log.warning("a restore was cut off; %s", ofdatabases.restore(root, settings, _EARLIER))
        if is_half_made(root):
            log.warning("a rebuild was cut off; %s", ofdatabases.rebuild(root, settings, _EARLIER))

    def at_start(self, store: Store) -> None:
        """What does not take long. For the process that has just opened the store; what fails is tried again by
        housekeeping."""
        with operationrecord.cut_off(store.root) as found:
            for cut in found:
                kind = self._kind(cut.operation)
                if kind is None or not kind.long:
                    _finish(store, cut, kind)
        ofusers.go_on_renaming(store)

    def waiting(self, store: Store) -> Iterator[str]:
        """The ids of those that were cut off. For housekeeping."""
        yield from [operation.id for operation in operationrecord.under_way(store.root)[1]]

    def finish(self, store: Store, which: str) -> int:
        """Finish or undo one."""
        with operationrecord.cut_off(store.root, which) as found:
            for cut in found:
                _finish(store, cut, self._kind(cut.operation))
        return 1

    def finish_first(self, store: Store, kind: str, holds: Sequence[str]) -> None:
        """Finish what was cut off of those that must not be done at the same time as an operation of that kind which
        is to begin now: else it would be done behind that one, and against it.

        Raises StoreError UNAVAILABLE for what cannot be finished yet.
        """
        def in_the_way() -> list[Operation]:
            return [each for each in operationrecord.rivals_cut_off(store.root, kind, holds)
                    if self._kind(each) is not None]

        for each in in_the_way():
            self.finish(store, each.id)
        for each in in_the_way():
            raise StoreError(Problem.UNAVAILABLE, f"{each} was cut off, and cannot be finished yet: see onecopy status")

    def task(self) -> Task:
        """Housekeeping, of one process."""
        return Task("operations", INTERVAL, self.waiting, self.finish)

    def _kind(self, operation: Operation) -> Kind | None:
        other = self.others.get(operation.kind)
        return KINDS.get(operation.kind) if other is None else Kind(other, long=True)


def _finish(store: Store, cut: Cut, kind: Kind | None) -> None:
    if kind is None:
        _ended(cut, "left as it is: nothing is known of such an operation")
        return
    try:
        done = kind.after(store, cut.operation)
        before = cut.operation.outcome
        _ended(cut, before if done == NOTHING and before else "; ".join(filter(None, (before, done))))
    except (StoreError, Refused) as refusal:
        if isinstance(refusal, StoreError) and refusal.problem is Problem.BUSY:
            return                                  # somebody is at it
        if isinstance(refusal, StoreError) and refusal.problem in FOR_NOW:
            _put_off(cut, str(refusal))
        else:
            _ended(cut, f"left as it is: {refusal}")
    except OSError as error:
        _put_off(cut, str(disk_problem(error)))
    except (KeyError, TypeError, AttributeError) as error:      # a record of another version
        _ended(cut, f"left as it is: its record cannot be understood ({error!r})")


def _ended(cut: Cut, outcome: str) -> None:
    cut.end(outcome)
    log.warning("%s, begun by %s (%d), was cut off; %s", cut.operation, cut.operation.who, cut.operation.pid, outcome)


def _put_off(cut: Cut, problem: str) -> None:
    if problem != cut.operation.problem:
        log.error("%s was cut off, and cannot be finished yet: %s", cut.operation, problem)
    cut.so_far(problem=problem)
