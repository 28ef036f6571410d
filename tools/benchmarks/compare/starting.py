"""Starting a server, and ending all of its processes."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mboxlist import privatefiles
from tools.benchmarks.load import procfs
from tools.benchmarks.temporaryserver import answers
from tools.exits import Failure

START_TIME = 120.0      # seconds until all ports must answer
STOP_TIME = 20.0        # seconds until all processes must have ended, and again after SIGKILL
CHECK = 0.05
# A server ends with this program, whatever ends it.
WITH_US = ("setpriv", "--pdeathsig", "TERM", "--")

Identity = tuple[int, bytes]            # the number of a process, and when it was started


@contextmanager
def running(name: str, command: Sequence[str | Path], log: Path, ports: Sequence[int]) -> Iterator[int]:
    """A server that stays in the foreground, from when it answers on all ports. Gives its pid. Raises Failure."""
    with privatefiles.open_file(log, "ab") as output:
        process = subprocess.Popen([*WITH_US, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   start_new_session=True)
    try:
        wait_for(name, process, ports, log)
        yield process.pid
    finally:
        end(process)


def wait_for(name: str, process: "subprocess.Popen[bytes]", ports: Sequence[int], log: Path) -> None:
    """Until all ports answer. Raises Failure."""
    deadline = time.monotonic() + START_TIME
    for port in ports:
        while not answers(port):
            if process.poll() is not None:
                raise Failure(f"{name} has ended at once: {_end_of(log)}", 1)
            if time.monotonic() > deadline:
                raise Failure(f"{name} does not answer: {_end_of(log)}", 1)
            time.sleep(CHECK)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Have a server end, and all processes below it. Raises Failure."""
    known = {(pid, procfs.start_time(pid)) for pid in procfs.process_tree(process.pid)}
    with suppress(ProcessLookupError):
        process.terminate()
    left = _left(process, known)
    for pid, _ in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left := _left(process, left):
        raise Failure(f"processes do not end: {', '.join(str(pid) for pid, _ in left)}", 1)


def _left(process: "subprocess.Popen[bytes]", known: set[Identity]) -> set[Identity]:
    """Those that have not ended after a while."""
    deadline = time.monotonic() + STOP_TIME
    while True:
        process.poll()
        left = {(pid, begun) for pid, begun in known if begun and procfs.start_time(pid) == begun}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(CHECK)


def _end_of(log: Path) -> str:
    return " | ".join(privatefiles.read_text(log, "replace").splitlines()[-3:]) or "it said nothing"
