"""The server's keeper in a process of its own, as it starts after something was cut off: it opens the store, does each
task of housekeeping once, and closes it. It may itself be killed at any moment (see `killing`)."""

import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from store.finishing.cutoperations import Finishing
from store.housekeeping.tasks import Round, Task
from store.store import Store
from tests.support.faults.killing import LIMIT, STORE, Moments, Ran
from tests.support.processes import command
from tests.support.processes.environment import plain
from tests.support.stores import small
from tools.cli import program
from tools.server import cutcommands
from tools.server.process.housekeeper import tasks

#: Of the tasks, those that end what has begun; the others take long and do nothing to it.
TASKS = ("operations", "pending", "settle", "store.idx", "partitions")


def start(here: Path, options: dict[str, str], *, at: int = 0) -> Ran:
    """Start it on the store `here`/store; `at`: it is killed at that moment, from 1."""
    with tempfile.TemporaryDirectory(prefix="onecopy-start-") as folder:
        told, said = Path(folder, "moments"), Path(folder, "said")
        process = command._context.Process(target=_keeper, args=(
            {**plain(), "ONECOPY_ROOT": str(here / STORE), **options}, at, told, said,
            resource.getrlimit(resource.RLIMIT_NOFILE)))
        process.start()
        process.join(LIMIT)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode is not None, f"the start of {here} has not ended after {LIMIT:g} s"
        return Ran(process.exitcode, "", said.read_text() if said.exists() else "",
                   int(told.read_text()) if told.exists() else 0)


def _keeper(environment: dict[str, str], at: int, told: Path, said: Path, files: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    os.environ.clear()
    os.environ.update(environment)
    small.make()
    small.few_folders()
    config = program.parse(["status"]).config
    seen = Moments(at, transactions=False)
    for name in ("before_opening", "at_start", "finish"):
        setattr(Finishing, name, _counted(seen, getattr(Finishing, name)))
    try:
        store = cutcommands.open_as_keeper(config, "the keeper")
        again = _Forked(config.root)
        more = cutcommands.finishing(config, again).task()
        for task in [*tasks(store, keeper=True), more]:
            if task.name in TASKS:
                _once(task, store)
        while again.wait():                 # and what came of those that are done again
            _once(more, store)
        store.close()
    except BaseException:
        said.write_text(traceback.format_exc())
        raise
    told.write_text(str(seen.passed))


def _once(task: Task, store: Store) -> None:
    turn = Round(task, store)
    while turn.step(lambda: False) is not None:
        pass
    assert not turn.status().failures, f"{task.name} fails: see the log"


def _counted(seen: Moments, original: Any) -> Any:
    """Moments are those of finishing what was cut off, not of opening the store."""
    def call(*arguments: Any) -> Any:
        with seen:
            return original(*arguments)

    return call


class _Forked(cutcommands.Repeated):
    """What is done again is done in a process that is a copy of this one; it is not killed."""

    def wait(self) -> bool:
        """Wait for the end of one, if one is being done again."""
        for process, _ in self._running.values():
            process.wait()
            return True
        return False

    def begin(self, words: list[str], folder: str, environment: dict[str, str], locks: list[int]) -> Any:
        """See Repeated. The copy has all descriptors of this process, and so these locks."""
        place = Path(tempfile.mkdtemp(prefix="onecopy-command-"))
        streams = [place / name for name in ("in", "out", "err")]
        for path in streams:
            path.write_bytes(b"")
        pid = os.fork()
        if not pid:
            code: object = 70
            try:
                command._program(words, environment, streams, folder, resource.getrlimit(resource.RLIMIT_NOFILE))
            except SystemExit as end:
                code = end.code
            finally:
                sys.stderr.flush()
                os._exit(code if isinstance(code, int) else 70)
        return _Child(pid), privatefiles.open_file(streams[2], "rb")


class _Child:
    """As far as `Repeated` needs it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it has ended, or None."""
        return self.wait(os.WNOHANG)

    def wait(self, options: int = 0) -> int | None:
        """See poll."""
        if self.returncode is None:
            pid, status = os.waitpid(self._pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode
