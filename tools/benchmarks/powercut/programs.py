"""Commands that run on the disk of a power cut: see `forkedprograms`."""

import os
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from mboxlist import privatefiles
from store.accounts import passwords
from tools.benchmarks import forkedprograms

passwords._LOG_N = 10           # the cheapest that is taken: each cut has dozens of logins
_context = forkedprograms.forking(__name__)


def start(arguments: Sequence[str], environment: Mapping[str, str], log: Path, octets: bytes = b""
          ) -> ForkServerProcess:
    """Start a command, which reads `octets`, and appends to `log` what it says."""
    process = _context.Process(target=_program, args=(list(arguments), dict(environment), log, octets))
    process.start()
    return process


def _program(arguments: list[str], environment: Mapping[str, str], log: Path, octets: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, octets)           # less than a pipe holds
    os.close(writing)
    os.dup2(reading, 0)
    with privatefiles.open_file(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    forkedprograms.become(arguments, environment)
