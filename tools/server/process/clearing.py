"""Has the processes leave a store that must be recovered: what a process that died in it holds, they may wait for."""

import logging
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from store.partition import processes
from store.partition.processes import Inside
from tools.server.process.workerconfig import NAME

log = logging.getLogger(__name__)

TIMES = ((signal.SIGTERM, 0.5), (signal.SIGKILL, 2.0))      # and for how many seconds at most each is waited for
STEP = 0.01


def clear(run: Path) -> None:
    """Before the processes of a server start: if one has died in the store, or is left of an earlier server, all leave.

    `run` is the store's folder of that name. Who cannot be made to leave is logged.
    """
    for number, limit in TIMES:
        _tell(run, _in_the_way(run), number, limit)
    for other in _in_the_way(run):
        log.error("%s does not leave the store, which must be recovered", other)
    processes.forget_dead(run)


def _in_the_way(run: Path) -> list[Inside]:
    living, dead = processes.look(run)
    return living if dead or any(other.who.startswith(NAME) for other in living) else []


def _tell(run: Path, others: Collection[Inside], number: signal.Signals, limit: float) -> None:
    """Send them the signal, and wait until they have left. Who comes in meanwhile has nothing to do with the dead."""
    for other in others:
        log.warning("%s is ended with %s: the store must be recovered", other, number.name)
        _signal(other, number)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline and not set(others).isdisjoint(processes.look(run)[0]):
        time.sleep(STEP)


def _signal(other: Inside, number: signal.Signals) -> None:
    """To the process that has this file open, and no other: a number can come to mean another process."""
    try:
        handle = os.pidfd_open(other.pid)
    except (OSError, OverflowError):
        return
    try:
        if _has_open(other.pid, other.path):
            signal.pidfd_send_signal(handle, number)
    except OSError as error:
        log.error("%s: %s", other, error)
    finally:
        os.close(handle)


def _has_open(pid: int, path: Path) -> bool:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if link.samefile(path):
                return True
        except OSError:
            continue
    return False
