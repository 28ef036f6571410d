"""What disks and databases raise, as refusals of the store; and what the log hears of refusals."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mboxlist.engine.disk import is_disk_full
from mboxlist.engine.freezegate import Quiesced
from mboxlist.engine.transact import COMMITS, Deadlock, Failure, Unflushed
from mboxlist.engine.troubles import NO_ROOM, TROUBLES
from store.errors import NotAtOnce, Problem, StoreError, disk_problem

NOT_NOW = frozenset({Problem.BUSY, Problem.DISK_FULL, Problem.READ_ONLY, Problem.UNAVAILABLE})
#: What all are refused for while it lasts.
_LASTING = {Problem.DISK_FULL: NO_ROOM, **{problem: problem.value for problem in (
    Problem.READ_ONLY, Problem.UNAVAILABLE, Problem.STORE_IN_USE, Problem.NO_STORE)}}
#: What says nothing about the program: a line of the log is enough, without its code.
NO_BUG = (StoreError, OSError, Failure)
#: What a transaction raises.
REFUSED = (*Deadlock, Quiesced, Failure, OSError)


def is_no_room(error: Exception) -> bool:
    """Whether there was no room for something."""
    return error.problem is Problem.DISK_FULL if isinstance(error, StoreError) else (
        isinstance(error, OSError | Failure) and is_disk_full(error))


def is_standby_away(error: BaseException | None) -> bool:
    """Whether nothing may be changed since a standby is away, or nobody knows what it has (`engine.secondcopy`)."""
    while error is not None and not (isinstance(error, OSError) and error.errno == errno.ENOLINK):
        error = error.__cause__
    return error is not None


def tell_refusal(log: logging.Logger, level: int, where: str, error: StoreError) -> None:
    """A client, or a task, was refused: a line of the log, unless all are refused for the same reason at present; see
    `engine.troubles`."""
    kind = _LASTING.get(error.problem)
    if kind is None:
        log.log(level, "%s: %s", where, error)
    else:
        TROUBLES.met(kind, f"{where}: {error}", level=level)


@contextmanager
def nothing_shown() -> Iterator[None]:
    """Around commits, and their flush, before the commit that does what was asked for: when they fail, or it does,
    that is refused. Raises StoreError."""
    before = COMMITS.here
    try:
        yield
    except Unflushed as error:
        raise disk_problem(error) from error
    finally:
        COMMITS.here = before


@contextmanager
def problems() -> Iterator[None]:
    """What goes wrong below raises StoreError, one of NOT_NOW, or Unflushed. Around all that a server or a command may
    have written, most often as a decorator."""
    before = COMMITS.here
    try:
        yield
    except Unflushed:
        raise
    except (OSError, Failure) as error:
        if COMMITS.here != before:          # no refusal: what was asked for may be done
            raise Unflushed(getattr(error, "errno", None) or errno.EIO, str(error)) from error
        raise refusal(error) from error


@contextmanager
def refused(*, hurried: bool = False) -> Iterator[None]:
    """What a transaction raises, as StoreError; `hurried`: see `refusal`."""
    try:
        yield
    except REFUSED as error:
        raise refusal(error, hurried=hurried) from error


def refusal(error: Exception, *, hurried: bool = False) -> StoreError:
    """One of REFUSED as StoreError BUSY, DISK_FULL, UNAVAILABLE; NotAtOnce in a write freeze, or if the lock was asked
    for by who was not to wait for it (`hurried`)."""
    if isinstance(error, OSError):
        return disk_problem(error)
    if isinstance(error, Quiesced) or hurried and isinstance(error, Deadlock):
        return NotAtOnce()
    problem = Problem.BUSY if isinstance(error, Deadlock) else (
        Problem.DISK_FULL if is_disk_full(error) else Problem.UNAVAILABLE)
    return StoreError(problem, detail=str(error))
