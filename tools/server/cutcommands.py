"""The keeper finishes what was cut off: before it opens the store, before anybody is served, and while it serves."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from attrs import define, field

from mboxlist import privatefiles
from mboxlist.usermoves import Phase
from store.errors import Problem, StoreError, disk_problem
from store.finishing.cutoperations import Finishing
from store.finishing.operationkinds import Finish
from store.operations.operationrecord import Operation, taken
from store.settings import Settings
from store.store import Store
from store.usermove.sourceside import finish
from tools.cli.invocation import AGAIN
from tools.cli.options import Config
from tools.cli.storeaccess import open_configured
from tools.exits import NO_ROOM, Failure, status
from tools.server.control.backendlink import Place, refuse_at_first

#: Commands that are done again as they were typed, in a process of their own: they do what is left.
REPEATED = ("restore", "import mbox", "import maildir", "import imap", "import dovecot", "import cyrus", "relink",
            "expire run", "undelete", "scrub",
            "messages flag", "messages move", "messages expunge", "messages deduplicate", "messages withdraw")
LAST = 400                  # letters of what a repeated command complained of, that are told
PAUSE = 300.0               # seconds until one that has found no room is done again
STOP_SECONDS = 5.0          # in which one must have left off when the server stops


def open_as_keeper(config: Config, who: str, broken: Callable[[], None] = lambda: None) -> Store:
    """Open the configured store, and finish what is quickly done and what keeps it from being opened. Raises Failure.
    """
    work = finishing(config)
    try:
        work.before_opening(config.root, config.settings("store", Settings))
    except (StoreError, OSError) as error:
        refusal = error if isinstance(error, StoreError) else disk_problem(error)
        raise Failure(f"what was cut off cannot be finished: {refusal}", status(refusal)) from error
    store = open_configured(config, who, broken)
    try:
        refuse_at_first(config, store)                  # other processes can open it now, too
        with store.write_freeze.second.exempt():        # nobody hears that it is done
            work.at_start(store)
    except BaseException:
        store.close()
        raise
    return store


@define(eq=False)
class Repeated:
    """Commands that are done again, each in a process of its own: they do what is left."""

    root: Path
    _running: dict[str, tuple[subprocess.Popen[bytes], BinaryIO]] = field(factory=dict, init=False)
    put_off: dict[str, float] = field(factory=dict, init=False)     # until when, of those that found no room

    def finish(self, store: Store, operation: Operation) -> str:
        """Begin, and at a later call say how it has ended. Raises StoreError BUSY while it runs, DISK_FULL when it has
        found no room, OSError."""
        if time.monotonic() < self.put_off.get(operation.id, 0.0):
            raise StoreError(Problem.DISK_FULL)
        folder = operation.arguments["folder"]
        if operation.id not in self._running:
            if not Path(folder).is_dir():
                return f"left as it is: {folder} is no more; the same command does what is left"
            self._running[operation.id] = self.begin(operation.arguments["words"], folder, {
                **os.environ, "ONECOPY_ROOT": str(self.root.absolute()), AGAIN: "1"}, taken(operation).done_again())
        process, complaints = self._running[operation.id]
        if process.poll() is None:
            raise StoreError(Problem.BUSY, "It is being done again")
        del self._running[operation.id]
        with complaints:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip()[-LAST:]
        if process.returncode == NO_ROOM:
            self.put_off[operation.id] = time.monotonic() + PAUSE
            raise StoreError(Problem.DISK_FULL)
        if process.returncode in (0, 1):
            return f"finished: done again, with status {process.returncode}"
        return f"left as it is: done again it says: {said}; the same command does what is left"

    def begin(self, words: list[str], folder: str, environment: dict[str, str], locks: list[int]
              ) -> tuple[subprocess.Popen[bytes], BinaryIO]:
        """The process, which has the lock of the record while it lives, and what it complains of. Raises OSError."""
        complaints = privatefiles.temporary_file()
        return subprocess.Popen([sys.executable, "-P", "-m", "tools.cli.program", *words], cwd=folder, env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaints,
                                pass_fds=locks), complaints

    def stop(self) -> None:
        """They leave off; the next start begins them again."""
        for process, complaints in self._running.values():
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            complaints.close()
        self._running.clear()


def finishing(config: Config, repeated: Repeated | None = None) -> Finishing:
    """With what only the program knows: other back ends, and commands that are done again. These are begun by
    housekeeping alone, so a start needs no `repeated`."""
    def move(store: Store, operation: Operation) -> str:
        return _move(store, operation, config)

    again = repeated or Repeated(config.root)
    others: dict[str, Finish] = dict.fromkeys(REPEATED, again.finish)
    return Finishing({**others, "user move": move})


def _move(store: Store, operation: Operation, config: Config) -> str:
    """Whoever has left this back end arrives at the other one; the others are here as before."""
    arrived, here = list[str](), list[str]()
    for user in operation.arguments["users"]:
        move = store.mailboxes.moves.find(user)
        if move is not None and move.phase in (Phase.GONE, Phase.LEFT):
            try:
                place = Place.of(config, store.settings.host)
            except Failure as error:
                raise StoreError(Problem.UNAVAILABLE, str(error)) from error
            with closing(place.connect(move.host)) as peer:
                finish(store, move, peer)
        row = store.directory.user(user)
        there = row is not None and row.account.host.lower() == operation.arguments["to"]
        (arrived if there else here).append(user)
    to = operation.arguments["to"]
    return "; ".join([*([f"finished: {', '.join(arrived)} on {to}"] if arrived else []),
                      *([f"undone: {', '.join(here)} here as before"] if here else [])])
