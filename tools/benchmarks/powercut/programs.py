"""`onecopy` in processes that are forked from one that has imported it (multiprocessing's fork server): the import is
what takes a command longest."""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from mboxlist import privatefiles
from store.accounts import passwords
from tools.cli import program

#: What the program imports late; without the event loop, of which each process has its own.
_LATE = ("store.net.threads", "tools.server.control.controlserver", "tools.server.control.backendlink",
         "tools.server.process.housekeeper", "tools.server.process.reactor", "tools.server.start",
         "tools.server.process.listeners", "tools.server.supervisor")
program.every_parser()                            # which loads the modules of all commands
for _name in _LATE:
    import_module(_name)
passwords._LOG_N = 10           # the cheapest that is taken: each cut has dozens of logins
_context = multiprocessing.get_context("forkserver")

_context.set_forkserver_preload([__name__])


def start(arguments: Sequence[str], environment: Mapping[str, str], log: Path, octets: bytes = b""
          ) -> ForkServerProcess:
    """Start a command, which reads `octets`, and appends to `log` what it says."""
    process = _context.Process(target=_program, args=(list(arguments), dict(environment), log, octets))
    process.start()
    return process


def _program(arguments: list[str], environment: Mapping[str, str], log: Path, octets: bytes) -> None:
    os.environ.clear()
    os.environ.update(environment)
    reading, writing = os.pipe()
    os.write(writing, octets)           # less than a pipe holds
    os.close(writing)
    os.dup2(reading, 0)
    with privatefiles.open_file(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = ["onecopy", *arguments]
    sys.exit(program.main())
