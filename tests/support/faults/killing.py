"""A command of `onecopy` that is killed at any moment, and then run again: the work must be done, and done once.

The moments are not of time. The process counts what it does to the disk (calls of the system, also Berkeley DB's own),
each transaction and each row that it writes in one, and kills itself with SIGKILL just before the one that was named.
A first run, which is let be, tells how many there are; and what its store holds then is what every other run must come
to. Moments are drawn by a seed, one from each of as many equal parts of the work as are wanted.

    kill_and_repeat(start, folder, "relink", look=lambda store, here: everything(store), kills=3)

A command that works in batches has more transactions where the batches are small: `batches` says which numbers of the
program are others in that process, and then only the beginnings of transactions are moments. Most of the others lie
within one, where a death undoes what it has done.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from attrs import frozen

from mboxlist.engine.btree import Table
from mboxlist.engine.kv import Env
from store.check.wholecheck import check
from store.opening import open_store
from store.settings import Settings
from store.store import Store
from tests.support.faults.recorder import Recorder
from tests.support.processes import command
from tests.support.processes.environment import plain
from tests.support.stores import small
from tests.support.stores.stores import SMALL

STORE = "store"                         # the store's folder in `start`
HERE = "{here}"                         # in a word: the copy of `start` that the command works on
_KILLS = os.environ.get("KILLS", "0")
# Moments of each command, in place of the few that a test asks for; or "all".
KILLS = sys.maxsize if _KILLS == "all" else int(_KILLS)
LIMIT = 300.0                           # seconds, far more than anything takes
_UNHEARD_OF = ("truncate", "writev", "pwritev", "sendfile", "copy_file_range", "symlink", "renames")
_SMALL = {"ONECOPY_STORE_CACHE": "1M", "ONECOPY_STORE_DISK_RESERVE": "0", "ONECOPY_STORE_DATABASE_LOCKS": "20000",
          "ONECOPY_STORE_SPECIAL_MAILBOXES": ""}

Look = Callable[[Store, Path], object]


@frozen
class Ran:
    """What became of a command: its exit status, negative for a signal; what it printed; and how many moments it came
    to."""

    status: int
    out: str
    error: str
    moments: int


@frozen
class Kill:
    """A command was killed at that moment of so many; `again` is how the same went afterwards."""

    moment: int
    of: int
    again: Ran


def kill_and_repeat(start: Path, folder: Path, *words: str, look: Look, kills: int = 3, seed: int = 1,
                    again: Sequence[str] = (), statuses: Collection[int] = (0,), octets: bytes = b"",
                    environment: Mapping[str, str] | None = None, settings: Settings = SMALL,
                    tolerated: Collection[str] = (), batches: Mapping[str, int] | None = None) -> list[Kill]:
    """Run `onecopy WORDS` on copies of `start` (a folder with the store `store`, closed, in it) below `folder`: once in
    peace, then killed at each of `kills` moments and run again, by `again` if other words are needed for that.

    What `look` finds in the open store and its folder must be the same as after the run in peace, the second run must
    end with one of `statuses` (a command may say that there is nothing left to do), and the check must find nothing but
    what is `tolerated`. Raises AssertionError that names the moment.
    """
    given: dict[str, Any] = {"environment": {**_SMALL, **(environment or {})}, "batches": batches}
    with copied(start, folder) as here:
        whole = run(here, words, octets=octets, **given)
        assert whole.status in statuses, f"onecopy {' '.join(words)}: status {whole.status}\n{whole.out}{whole.error}"
        wanted = _judged(here, look, settings, tolerated, "in peace")
    done = []
    for moment in moments(whole.moments, KILLS or kills, seed):
        at = f"onecopy {' '.join(words)}: killed at moment {moment} of {whole.moments}"
        with copied(start, folder) as here:
            first = run(here, words, at=moment, octets=octets, **given)
            assert first.status in (-signal.SIGKILL, *statuses), f"{at}: status {first.status}\n{first.error}"
            second = run(here, again or words, octets=octets, **given)
            assert second.status in statuses, f"{at}, then: status {second.status}\n{second.out}{second.error}"
            found = _judged(here, look, settings, tolerated, at)
            assert found == wanted, f"{at}: afterwards the store has\n{found}\ninstead of\n{wanted}"
            done.append(Kill(moment, whole.moments, second))
    return done


def moments(of: int, kills: int, seed: int) -> list[int]:
    """Some moments (from 1), one drawn from each of `kills` parts of the work."""
    chance, parts = Random(seed), min(kills, of)
    return [chance.randrange(of * part // parts, of * (part + 1) // parts) + 1 for part in range(parts)]


def run(here: Path, words: Sequence[str], *, at: int = 0, environment: Mapping[str, str] | None = None,
        octets: bytes = b"", batches: Mapping[str, int] | None = None) -> Ran:
    """Run `onecopy` on the store `here`/store in a process of its own, which kills itself at the moment `at`, from 1;
    0: never. `batches` are numbers of the program by their full names ("store.joining.BATCH")."""
    variables = {**plain(), "ONECOPY_ROOT": str(here / STORE), **(environment or {})}
    filled = [word.replace(HERE, str(here)) for word in words]
    with tempfile.TemporaryDirectory(prefix="onecopy-command-") as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        for path in streams:
            path.write_bytes(octets if path.name == "in" else b"")
        told = Path(folder, "moments")
        process = command._context.Process(target=_mortal, args=(filled, variables, streams, str(here), at, told,
                                                                   dict(batches or {})))
        process.start()
        process.join(LIMIT)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode is not None, f"onecopy {' '.join(filled)}: not after {LIMIT:g} s"
        counted = int(told.read_text()) if told.exists() else 0
        return Ran(process.exitcode, streams[1].read_text(), streams[2].read_text(), counted)


@contextlib.contextmanager
def copied(start: Path, folder: Path) -> Iterator[Path]:
    """A copy of `start`, always in the same place: plans and marks may name it."""
    here = folder / "killed"
    subprocess.run(["cp", "-a", start, here], check=True)
    try:
        yield here
    finally:
        subprocess.run(["rm", "-rf", here], check=True)


def _judged(here: Path, look: Look, settings: Settings, tolerated: Collection[str], at: str) -> object:
    store = open_store(here / STORE, settings)
    try:
        wrong = [f"{finding.where}: {finding.what}" for finding in check(store) if finding.what not in tolerated]
        assert wrong == [], f"{at}: the check finds {wrong}"
        return look(store, here)
    finally:
        store.close()


# In the process

class Moments(Recorder):
    """Counts what this process does while it is entered, and kills it at the moment `at`."""

    def __init__(self, at: int, *, transactions: bool) -> None:
        super().__init__(Path("/nonexistent"))
        self.passed = 0
        self._at = at
        self._transactions = transactions       # nothing else counts

    def step(self, *, transaction: bool = False) -> None:
        """A moment."""
        if self._transactions and not transaction:
            return
        self.passed += 1
        if self.passed == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def __enter__(self) -> "Moments":
        kept = {name: getattr(os, name) for name in _UNHEARD_OF}
        super().__enter__()
        for name, original in kept.items():
            setattr(os, name, self._counted(original))
        for where, name in ((Env, "begin"), (Table, "delete")):
            self.replace(where, name, self._counted(getattr(where, name), transaction=where is Env))
        use = Table.use

        def with_counted_puts(table: Table, handle: Any) -> None:
            use(table, handle)
            table.put = self._counted(table.put)

        self.replace(Table, "use", with_counted_puts)
        return self

    def _counted(self, original: Any, *, transaction: bool = False) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.step(transaction=transaction)
            return original(*arguments, **options)

        return call

    # What Recorder knows of a root holds for every place that is a file's

    def _ours(self, full: str) -> str | None:
        return None if full.startswith(("/proc/", "/dev/null", "/sys/")) or not full.startswith("/") else full

    def about(self, name: str, path: str | None, *, changes: bool = True, database: bool = False) -> None:
        """See Recorder."""
        if path is not None and changes:
            self.step()

    def about_to_sync(self, fileno: int, path: str | None, *, database: bool = False) -> None:
        """See Recorder."""
        self.step()

    def opened(self, path: str, fileno: int, existed: bool, flags: int) -> None:
        """See Recorder."""

    def named(self, kind: str, path: str, to: str = "") -> None:
        """See Recorder."""

    def wrote(self, fileno: int, offset: int, data: bytes) -> None:
        """See Recorder."""

    def truncated(self, fileno: int, size: int) -> None:
        """See Recorder."""

    def synced(self, fileno: int, path: str) -> None:
        """See Recorder."""


def _mortal(arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[Path], folder: str, at: int,
            told: Path, batches: Mapping[str, int]) -> None:
    for name, value in batches.items():
        module, _, number = name.rpartition(".")
        assert isinstance(getattr(import_module(module), number), int), name
        setattr(import_module(module), number, value)
    small.few_folders()                         # or most moments are those of making them
    seen = Moments(at, transactions=bool(batches))
    status: object = 0
    with seen:
        try:
            command._program(arguments, environment, streams, folder, resource.getrlimit(resource.RLIMIT_NOFILE))
        except SystemExit as end:
            status = end.code
    told.write_text(str(seen.passed))
    sys.exit(status)        # type: ignore[arg-type]
