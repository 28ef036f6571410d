"""`onecopy` in processes that are forked from one that has imported it (multiprocessing's fork server): the import is
what takes a command longest."""

import gc
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.context import ForkServerContext
from typing import NoReturn

from tools.cli import program

#: What the program imports late; but not `tools.server.worker`, since there is one event loop for each process.
_LATE = ("caio", "encodings.idna", "multiprocessing.pool", "store.finishing.cutoperations", "store.net.sharedsyncs",
         "store.net.threads", "store.reconstruct.wholestore", "tomllib", "tools.http.clientconfig",
         "tools.http.gathering", "tools.outbox.hostlookups", "tools.server.control.backendlink",
         "tools.server.control.controlserver", "tools.server.control.fencing", "tools.server.cutcommands",
         "tools.server.doorpages", "tools.server.health", "tools.server.process.freedmemory",
         "tools.server.process.housekeeper", "tools.server.process.listeners", "tools.server.process.reactor",
         "tools.server.start", "tools.server.supervisor")


def forking(module: str) -> ForkServerContext:
    """Makes processes that have imported that module, and the program. For the module, which has a function for them to
    begin with, when it is imported."""
    program.every_parser()                            # which loads the modules of all commands
    for name in _LATE:
        import_module(name)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    return context


def become(arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """This process does the command, and ends; what it reads and writes is at 0, 1 and 2."""
    assert "twisted.internet.reactor" not in sys.modules, "its open files would be those of all"
    gc.freeze()             # all that is imported: a server looks for garbage before it forks its processes
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = ["onecopy", *arguments]
    sys.exit(program.main())
