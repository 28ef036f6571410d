"""What disks and databases raise, as refusals of the store; and what the log hears of refusals."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mboxlist.engine.disk import is_disk_full
from mboxlist.engine.kv import Deadlock, Failure
from mboxlist.engine.troubles import NO_ROOM, TROUBLES
from store.errors import Problem, StoreError, disk_problem

NOT_NOW = frozenset({Problem.BUSY, Problem.DISK_FULL, Problem.READ_ONLY, Problem.UNAVAILABLE})
#: What all are refused for while it lasts.
_LASTING = {Problem.DISK_FULL: NO_ROOM, **{problem: problem.value for problem in (
    Problem.READ_ONLY, Problem.UNAVAILABLE, Problem.STORE_IN_USE, Problem.NO_STORE)}}
#: What says nothing about the program: a line of the log is enough, without its code.
NO_BUG = (StoreError, OSError, Failure)


def is_no_room(error: Exception) -> bool:
    """Whether there was no room for something."""
    return error.problem is Problem.DISK_FULL if isinstance(error, StoreError) else (
        isinstance(error, OSError | Failure) and is_disk_full(error))


def tell_refusal(log: logging.Logger, level: int, where: str, error: StoreError) -> None:
    """A client, or a task, was refused: a line of the log, unless all are refused for the same reason at present; see
    `engine.troubles`."""
    kind = _LASTING.get(error.problem)
    if kind is None:
        log.log(level, "%s: %s", where, error)
    else:
        TROUBLES.met(kind, f"{where}: {error}", level=level)



@contextmanager
def problems() -> Iterator[None]:
    """What goes wrong below raises StoreError, one of NOT_NOW. Around all that a server or a command may have written,
    most often as a decorator."""
    try:
        yield
    except Deadlock as error:
        raise StoreError(Problem.BUSY, detail=str(error)) from error
    except OSError as error:
        raise disk_problem(error) from error
    except Failure as error:
        problem = Problem.DISK_FULL if is_disk_full(error) else Problem.UNAVAILABLE
        raise StoreError(problem, detail=str(error)) from error
