"""The server's keeper in a process of its own, as it starts after something was cut off: it opens the store, does each
task of housekeeping once, and closes it. It may itself be killed at any moment (see `killing`)."""

import io
import os
import resource
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from store.finishing.cutoperations import Finishing
from store.housekeeping.tasks import Round
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
        more = cutcommands.finishing(config, _Forked(config.root)).task()
        for task in [*tasks(store, keeper=True), more]:
            if task.name in TASKS:
                turn = Round(task, store)
                while turn.step(lambda: False) is not None:
                    pass
                assert not turn.status().failures, f"{task.name} fails: see the log"
        store.close()
    except BaseException:
        said.write_text(traceback.format_exc())
        raise
    told.write_text(str(seen.passed))


def _counted(seen: Moments, original: Any) -> Any:
    """Moments are those of finishing what was cut off, not of opening the store."""
    def call(*arguments: Any) -> Any:
        with seen:
            return original(*arguments)

    return call


class _Forked(cutcommands.Repeated):
    """What is done again is done in a process that is a copy of this one, and waited for; it is not killed."""

    def begin(self, words: list[str], folder: str, environment: dict[str, str]) -> Any:
        """See Repeated."""
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
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        complaints = io.BytesIO(streams[2].read_bytes())
        shutil.rmtree(place)
        return SimpleNamespace(poll=lambda: status, returncode=status), complaints
