"""`onecopy` with arguments, in a process of its own that has imported everything before it begins: that is what takes
longest.

The processes come from one (multiprocessing's fork server) that imports the program and does nothing else. In them is
small what `tests.support.stores.small` makes small.
"""

import contextlib
import faulthandler
import io
import os
import resource
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.processes import twonetworks
from tests.support.stores import small
from tools.benchmarks import forkedprograms
from tools.cli import program

_context = forkedprograms.forking(__name__)


def run(arguments: Sequence[str], environment: Mapping[str, str], octets: bytes, limit: float) -> tuple[int, str, str]:
    """The exit status of `onecopy`, and what it printed, after it has read `octets`. Raises AssertionError after so
    many seconds, which says where each of its threads was."""
    with tempfile.TemporaryDirectory(prefix="onecopy-command-") as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        for path in streams:
            path.write_bytes(octets if path.name == "in" else b"")
        process = start(arguments, environment, streams)
        process.join(limit)
        late = process.exitcode is None
        if late:
            os.kill(process.pid, signal.SIGABRT)
            process.join()
        out, error = (path.read_text() for path in streams[1:])
        assert not late, f"onecopy {' '.join(arguments)}: not after {limit:g} s\n{out}{error}"
        return process.exitcode, out, error


def run_here(arguments: Sequence[str], environment: Mapping[str, str], octets: bytes) -> tuple[int, str, str]:
    """What `run` returns, of a command in this process: a fork and its end take longer than most commands do."""
    out, error = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    umask = os.umask(0o077)
    try:
        with (mock.patch.dict(os.environ, environment, clear=True),
              mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(octets))),
              contextlib.redirect_stdout(out), contextlib.redirect_stderr(error)):
            found = program.main(list(arguments))
    finally:
        os.umask(umask)
    for stream in (out, error):
        stream.flush()
    return found, *(stream.buffer.getvalue().decode() for stream in (out, error))    # type: ignore[attr-defined]


def start(arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[Path], *, ended: bool = False,
          network: str = "") -> Any:
    """Start it, and do not wait; `streams` are its input, and what it appends its output and its complaints to.

    `ended`: with SIGTERM, if it is still there when this process ends (which waits for others). `network`: as
    `twonetworks.enter` takes it.
    """
    process = _context.Process(target=_program, args=(arguments, dict(environment), streams, os.getcwd(), resource
                                                      .getrlimit(resource.RLIMIT_NOFILE), network), daemon=ended)
    process.start()
    return process


def _program(arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[Path], folder: str,
             files: tuple[int, int], network: str = "") -> None:
    if network:
        twonetworks.enter(network)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    os.chdir(folder)
    for number, path in enumerate(streams):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY)
        os.dup2(handle, number)
        os.close(handle)
    faulthandler.enable()
    small.make()
    forkedprograms.become(arguments, environment)
