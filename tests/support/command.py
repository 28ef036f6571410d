"""`onecopy` with arguments, in a process of its own that has imported everything before it begins: that is what takes
longest.

The processes come from one (multiprocessing's fork server) that imports the program and does nothing else. Their hashes
of passwords are the cheapest that it takes, since each first login to a server costs one.
"""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from store.accounts import passwords
from tools import cli

cli.tree()              # which loads the modules of all commands
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


def run(arguments: Sequence[str], environment: Mapping[str, str], octets: bytes, limit: float) -> tuple[int, str, str]:
    """The exit status of `onecopy`, and what it printed, after it has read `octets`. Raises AssertionError after so
    many seconds."""
    with tempfile.TemporaryDirectory(prefix="onecopy-command-") as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        for path in streams:
            path.write_bytes(octets if path.name == "in" else b"")
        process = _context.Process(target=_program, args=(arguments, dict(environment), streams, os.getcwd()))
        process.start()
        process.join(limit)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode is not None, f"onecopy {' '.join(arguments)}: not after {limit:g} s"
        return process.exitcode, streams[1].read_text(), streams[2].read_text()


def _program(arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[Path], folder: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in enumerate(streams):
        handle = os.open(path, os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdin = open(0, closefd=False)
    sys.argv = ["onecopy", *arguments]
    passwords._LOG_N = 10
    sys.exit(cli.main())
