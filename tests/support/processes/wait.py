"""Waiting for another process: always with a limit, and not a moment after it has died."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class TookTooLong(AssertionError):
    """What was waited for did not come."""


class Died(AssertionError):
    """The process that was to bring it has ended."""


def until(ready: Callable[[], T | None], what: str, *, pid: int, limit: float, step: float = 0.02) -> T:
    """The first answer of `ready` that is neither None nor False; process `pid` is to bring it.

    Raises TookTooLong, Died.
    """
    deadline = time.monotonic() + limit
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        raise Died(f"{what}: process {pid} has ended") from None
    try:
        ended = select.poll()
        ended.register(process, select.POLLIN)
        while True:
            if (answer := ready()) is not None and answer is not False:
                return answer
            if time.monotonic() > deadline:
                raise TookTooLong(f"{what}: not after {limit:g} s")
            if ended.poll(step * 1000):
                raise Died(f"{what}: process {pid} has ended")
    finally:
        os.close(process)


def emptied(left: Callable[[], Collection[str]], what: str, *, pid: int, limit: float, step: float = 0.02) -> None:
    """Wait until nothing is `left`, however long that takes, while something of it goes at least every `limit` seconds.

    Raises TookTooLong, Died.
    """
    there = set(left())

    def fewer() -> set[str] | None:
        now = set(left())
        return now if there - now else None

    while there:
        there = until(fewer, f"{what}: {len(there)} are left, and none of them went", pid=pid, limit=limit, step=step)


def gone(pid: int, what: str, *, limit: float) -> None:
    """Wait until a process that is not our child has ended. Raises TookTooLong."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended = select.poll()
        ended.register(process, select.POLLIN)
        if not ended.poll(limit * 1000):
            raise TookTooLong(f"{what}: still there after {limit:g} s")
    finally:
        os.close(process)


def ended(process: "subprocess.Popen[bytes]", what: str, *, limit: float) -> None:
    """Ask it to end, and when it has, kill what descends from it and is still there. Raises TookTooLong."""
    family = tree(process.pid)[1:]
    process.terminate()
    process.wait(limit)
    kill(family, f"a process of {what}", limit=limit)


def kill(pids: Iterable[int], what: str, *, limit: float) -> None:
    """SIGKILL for processes that are not our children; return when they are gone. Raises TookTooLong."""
    killed = []
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed.append(pid)
    for pid in killed:
        gone(pid, what, limit=limit)


def tree(pid: int) -> list[int]:
    """A process and all that descend from it and have not ended: what a shell began before it became this process is
    waited for by nobody."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += [int(child) for child in children.read_text().split() if not _has_ended(int(child))]
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def _has_ended(pid: int) -> bool:
    """Also one that nobody has waited for: a zombie (proc(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
