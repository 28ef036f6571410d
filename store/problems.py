"""What disks and databases raise, as refusals of the store."""

from collections.abc import Iterator
from contextlib import contextmanager

from mboxlist.engine.disk import is_disk_full
from mboxlist.engine.kv import Deadlock, Failure
from store.errors import Problem, StoreError, disk_problem

NOT_NOW = frozenset({Problem.BUSY, Problem.DISK_FULL, Problem.READ_ONLY, Problem.UNAVAILABLE})


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
