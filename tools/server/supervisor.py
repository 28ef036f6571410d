"""Starts the processes of the server, watches them, and stops them.

The supervisor itself never opens the store: a process that dies inside Berkeley DB, one of the server's or a command
line tool, may leave locks behind on which every other one hangs. So then all that have the store open are killed, the
first of the new processes (the keeper) recovers it, and the rest follow. The listening sockets stay open meanwhile;
clients see a dropped connection and nothing else.

When the volume of the store takes no writes any more, all starts again, too, on a copy for reading (`store/readonly`);
and once more on the store itself when it takes them again.
"""

import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from attrs import define, field

from mboxlist import privatefiles
from mboxlist.engine.troubles import TROUBLES
from store.accounts.throttle import sharedcounts
from store.accounts.throttle.loginmemory import LoginMemory
from store.accounts.throttle.sharedcounts import Place
from store.errors import StoreError, in_words
from store.net import controlchannel
from store.news import changeboard
from store.partition import processes as process_registry
from store.partition.marks import SUCCESSION, require_no_standby
from store.readonly import readingcopy, volumestate
from store.settings import Settings
from tools.cli.later import Later
from tools.cli.options import Config
from tools.cli.storeaccess import is_store
from tools.exits import Failure
from tools.server.fork import Child
from tools.server.process import clearing, logs, reloadable, sockets
from tools.server.process.sockets import BESIDE, EXCHANGE, HTTP, SERVERS, Listening
from tools.server.process.workerconfig import BROKEN, HELD_BACK, READY, WorkerConfig
from tools.server.roles import STANDBYS, roles
from tools.server.tls.tickets import TicketKeys
from tools.server.watchdog import Watchdog
from tools.serversettings import Exchange, Log, Tls, Workers

log = logging.getLogger(__name__)

KEEPER = "keeper"
PERIOD = 600.0          # seconds within which `restarts` are counted
FIRST_PAUSE = 0.1       # seconds before a restart; doubled for each that follows in the period
LONGEST_PAUSE = 30.0
KILL_TIME = 15.0        # seconds that a stop may take longer than the sessions are given: a full cache is written
LOOK = 1.0              # seconds between two looks for tools that died in the store, and at its volume
ALIVE_TIME = 1.0        # seconds that a process may take to answer that it is there
NEXT_COPY = 5.0         # seconds until a copy for reading is tried again
UNSEEN = "it cannot be seen who died in the store, and whether its volumes take writes; the server goes on"

_WORKER = "tools.server.worker:main"        # loaded before the first process is begun: they share what it needs

_may_serve = Later("tools.server.control.fencing:require_first")
_may_go_on = Later("tools.server.control.fencing:require_again")
_still_serves = Later("tools.server.control.fencing:require")
_require_known_standbys = Later("tools.server.control.backendlink:require_known_standbys")

_LAST = (f"{EXCHANGE}-1", KEEPER)           # to be stopped, in this order
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)


class _Stopped(Exception):
    """A signal says that the server is to stop."""


class _Died(Exception):
    """A process has ended that should not have."""


class _OtherVolume(_Died):
    """The volume of the store takes no writes any more, or takes them again."""

    def __str__(self) -> str:
        return "a volume takes no writes any more, or takes them again"


class _ToolDied(_Died):
    """A process has ended that is not the server's: no reason to doubt the server."""


def reloaded(config: Config) -> Config:
    """What a process that starts others has after a reload: those that it starts from now on have what those that run
    take over, and nothing else. It logs as the new one says, and keeps the old one where that cannot be read."""
    try:
        joined = reloadable.joined(config, config.again())
    except Failure as error:
        log.error("the configuration is not taken over: %s", error)
        return config
    logs.follow(joined.settings("log", Log))
    return joined


@define(eq=False)
class Supervisor:
    """See the module's text."""

    config: Config
    ready: Callable[[], None] = lambda: None        # called when all serve for the first time
    _sockets: list[Listening] = field(factory=list)     # those that are bound already
    hands_on: bool = False                              # another server has them when this one is drained,
    logins: LoginMemory | None = None                   # and knows of logins what this one does
    _processes: dict[str, Child] = field(factory=dict, init=False)
    _restarts: list[float] = field(factory=list, init=False)
    _wake: int = field(default=-1, init=False)
    _served: bool = field(default=False, init=False)
    _next_look: float = field(default=0.0, init=False)
    _up: bool = field(default=False, init=False)            # all have been started
    _draining: bool = field(default=False, init=False)      # who has served the last one ends by itself
    _counts: int = field(default=-1, init=False)            # what all processes count together: see `Place`
    _board: int = field(default=-1, init=False)             # what they show each other: see `changeboard`
    _parts: int = field(default=0, init=False)
    _claim: int = field(default=-1, init=False)             # a descriptor: see `_claim_store`
    _copy: Path | None = field(default=None, init=False)    # what is served while nothing can be written to the store
    _refused: str = field(default="", init=False)           # why there is no such copy, said once
    _reading: dict[str, Path | None] = field(factory=dict, init=False)     # of single partitions, where it can be made
    _key: str = field(default="", init=False, repr=False)
    _logins: LoginMemory = field(init=False)                # outlives the processes
    _tickets: TicketKeys = field(init=False)
    _names: list[str] = field(factory=list, init=False)         # of the processes
    _watchdog: Watchdog = field(factory=lambda: Watchdog.of(os.environ), init=False)

    def run(self) -> None:
        """Until a signal says stop. Raises Failure when the server cannot start, or not stay up."""
        self._wake = _signals_to_pipe()
        self._logins = self.logins or LoginMemory.shared()
        self._tickets = TicketKeys.shared(self.config.settings("tls", Tls))
        try:
            while True:
                try:
                    self._start()
                    self._wait(None)
                except _Died as death:
                    self._end_all(death)
                except OSError as error:
                    if not self._served:
                        raise
                    self._end_all(_Died(f"the processes cannot be started: {in_words(error)}"))
        except _Stopped:
            self._stop()
            self._require_not_superseded(_still_serves)
        finally:
            self._kill()                                # nothing is left to kill after a clean stop
            sockets.close(self._sockets)
            self._let_go()

    def _end_all(self, death: _Died) -> None:
        """All leave the store, and a while passes before they are started again. A server that is drained is to stop
        in any case: it has done what it was to do, and systemd must not start it again. Raises _Stopped, Failure."""
        volume = isinstance(death, _OtherVolume) or self._has_changed()
        if self._draining:
            log.error("%s; the server, which was drained, stops, and who was left is disconnected", death)
        elif not volume:
            log.error("%s; all are started again", death)
        self._kill()
        if self._draining:
            raise _Stopped
        if not volume and not isinstance(death, _ToolDied):
            self._pause()

    def _start(self) -> None:
        self._up = False
        self._require_not_superseded(_may_go_on if self._served else _may_serve)
        self._choose()
        clearing.clear(self._run_folder)
        if not self._sockets:
            self._sockets = sockets.bind(self.config)
        bound = {each.server for each in self._sockets}
        if EXCHANGE in bound and not self._served:      # later a reload may have taken a name out
            _require_known_standbys(self.config)
        clients = roles(self.config.settings("workers", Workers), http=HTTP in bound)
        own = EXCHANGE in bound and bool(self.config.settings(EXCHANGE, Exchange).standbys)
        wanted = [*clients, STANDBYS] if own else clients
        self._names = [KEEPER, *(f"{role.name}-{number}" for role in wanted for number in range(1, role.processes + 1))]
        self._count_again(len(self._names))
        self._spawn(KEEPER, keeper=True, servers=[*([] if clients else (*SERVERS, HTTP)), *([] if own else [EXCHANGE])])
        self._wait_ready(KEEPER)
        names = []
        for role in wanted:
            for number in range(1, role.processes + 1):
                names.append(f"{role.name}-{number}")
                self._spawn(names[-1], keeper=False, servers=role.servers)
        for name in names:
            self._wait_ready(name)
        log.info("serving%s: %s", f" with {len(self._processes)} processes" if names else "",
                 ", ".join(map(str, self._sockets)))
        self._up = True
        if not self._served:
            self._served = True
            self.ready()

    # What is served

    def _require_not_superseded(self, look: Callable[[Config], None]) -> None:
        """No standby has been promoted in the place of this machine. Raises Failure."""
        if self._copy is None and (self.config.root / SUCCESSION).exists():
            look(self.config)

    @property
    def _served_config(self) -> Config:
        """What the processes get: with the copy that is served in the place of the store, if there is one."""
        return self.config if self._copy is None else self.config.at(self._copy)

    @property
    def _run_folder(self) -> Path:
        return self._served_config.root / "run"

    def _choose(self) -> None:
        """Own the store; or a copy of it for reading, while nothing can be written to it. Raises Failure, _Stopped."""
        if self._claim >= 0 and not self._has_changed():
            return
        root, had_copy, before = self.config.root, self._copy is not None, set(self._reading)
        self._let_go()
        if not is_store(root):
            require_no_standby(root)            # one that is not whole yet
            raise Failure(f"There is no store in {root}; `onecopy init` makes one")
        cache = self.config.settings("store", Settings).cache
        while self._copy is None and (why := volumestate.unwritable(root).get(volumestate.LIST)):
            try:
                self._copy = readingcopy.make(root, cache)
                log.critical("nothing can be written to the store: %s: mail can be read, from a copy of the databases "
                             "in %s, and nothing be changed until it can be written again", why, self._copy)
            except (StoreError, OSError) as error:
                if not self._refused:
                    log.critical("nothing can be written to the store: %s: nor can it be read: %s", why, error)
                self._refused = str(error)
                self._sleep(NEXT_COPY)
        self._claim = _claim_store(self._served_config.root)
        if self._copy is None:
            readingcopy.remove(root)            # of a server that was killed
            if had_copy or self._refused:
                log.warning("the store can be written to again")
            self._read_some(cache, before)
        self._refused = ""

    def _read_some(self, cache: int, before: set[str]) -> None:
        """Have copies of the partitions read to which nothing can be written; `before`: those that were until now."""
        found = volumestate.unwritable(self.config.root)
        for name, why in found.items():
            log.critical("nothing can be written to partition %s: %s: its mail can be read, from a copy of its "
                         "databases, and nothing there be changed until it can be written again; the other partitions "
                         "go on", name, why)
        for name in sorted(before - set(found)):
            log.warning("partition %s can be written to again", name)
        if found:
            self._reading = readingcopy.make_some(self.config.root, cache, found)

    def _let_go(self) -> None:
        """Own nothing any more, keep nothing of the volume open, and take the copy away."""
        if self._claim >= 0:
            os.close(self._claim)
            self._claim = -1
        if self._copy is not None or self._reading:
            self._copy, self._reading = None, {}
            readingcopy.remove(self.config.root)

    def _has_changed(self) -> bool:
        """Whether a volume of the store takes no writes any more; or takes them again, while a copy is served, or
        somebody has removed that (logind does at a logout of a user who is no system's: logind.conf(5), RemoveIPC).

        What cannot be looked at is as it was."""
        try:
            return self._is_otherwise()
        except OSError as error:
            TROUBLES.met(UNSEEN, in_words(error))
            return False

    def _is_otherwise(self) -> bool:
        root = self.config.root
        if self._copy is None:
            gone = {name for name in self._reading if not (root / "partitions" / name / "index").is_dir()}
            lost = any(path is not None and not path.is_dir() for path in self._reading.values())
            return lost or set(volumestate.unwritable(root)) | gone != set(self._reading)     # gone: to be mended
        if not is_store(self._copy):
            return True
        there = all((root / "partitions" / path.name / "index").is_dir() for path in (
            self._copy / "partitions").iterdir())       # it may have been unmounted, to be mended
        return is_store(root) and there and not volumestate.why_not_writable(root)

    def _look_at_volume(self) -> None:
        """Raise _OtherVolume for `_has_changed`, without writing to a volume that takes writes."""
        served = self._copy is not None or self._reading
        if self._has_changed() if served else volumestate.is_read_only(self.config.root):
            raise _OtherVolume

    def _count_again(self, processes: int) -> None:
        for handle in (self._counts, self._board):
            if handle >= 0:
                os.close(handle)
        self._board = changeboard.make(processes)
        self._counts, self._parts, self._key = sharedcounts.make(processes), processes, sharedcounts.new_key()

    def _spawn(self, name: str, *, keeper: bool, servers: Sequence[str]) -> None:
        mine = [each for each in self._sockets if BESIDE.get(each.server, each.server) in servers]
        place = Place(self._counts, len(self._processes), self._parts, self._key)
        board = changeboard.Place(self._board, len(self._processes), self._parts)
        worker_config = WorkerConfig(name, keeper, mine, self._served_config, place, board, self._logins, self._tickets,
                                     os.getpid(), tuple(self._names), self.hands_on, EXCHANGE in servers)
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        try:
            process = self._processes[name] = Child.start(
                partial(Later.function(_WORKER), worker_config), [self._counts, self._board, self._logins.handle, *(
                    each.socket.fileno() for each in mine)])
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
        log.debug("%s has been started: %d", name, process.pid)

    def _wait_ready(self, name: str) -> None:
        process = self._processes[name]
        with process.stdout as stdout:
            self._wait(stdout.fileno())
            said = stdout.read(len(READY))
            if said != READY:
                reason = (said + stdout.read()).decode(errors="replace")
                status = process.wait()
                # It may only have been kept out of the store because another one has been killed in it.
                killed = any((each.poll() or 0) < 0 for each in self._processes.values())
                known = status > 0 and status != BROKEN and not killed and not self._has_changed()
                if known and not self._served:
                    raise Failure(reason or f"{name} could not start (its own message is above)", status)
                raise _Died(f"{name} ({process.pid}) ended while it started: {reason or _how(status)}")

    def _wait(self, handle: int | None) -> None:
        """Until `handle` can be read, or for ever. Raises _Stopped, _Died."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            if handle is not None:
                selector.register(handle, selectors.EVENT_READ)
            while True:
                self._watchdog.beat(self._is_well)
                self._look()                    # first: a death may have been noted during an earlier wait
                ready = {key.fd for key, _ in selector.select(LOOK)}
                if self._wake in ready:
                    self._signals()
                if handle in ready:
                    return

    def _is_well(self) -> bool:
        """Whether each process answers; a start, and a drain, may take their time."""
        try:
            return not self._up or self._draining or all(
                controlchannel.ask(self._run_folder, name, "alive", timeout=ALIVE_TIME) for name in self._processes)
        except (controlchannel.Unanswered, OSError):
            return False

    def _signals(self) -> None:
        for number in os.read(self._wake, 4096):
            if number in (signal.SIGTERM, signal.SIGINT):
                raise _Stopped
            if number == signal.SIGHUP:
                self.config = reloaded(self.config)
                for process in self._processes.values():
                    process.send_signal(signal.SIGHUP)
            if number == signal.SIGUSR1 and not self._draining:
                if not self._up:
                    raise _Stopped
                self._drain()

    def _drain(self) -> None:
        """Have those that serve let nobody new in; when the last of them has ended, the server stops."""
        log.info("nobody new may log in; the server stops when all have left")
        self._draining = True
        for process in self._serving():
            process.send_signal(signal.SIGUSR1)

    def _serving(self) -> list[Child]:
        """Those that serve clients: the keeper only where no other does."""
        others = [process for name, process in self._processes.items() if name not in _LAST]
        return others or [self._processes[KEEPER]]

    def _look(self) -> None:
        """Raise _Died for a process that has ended; of one that is still starting, `_wait_ready` knows more to say.

        And for a tool that died in the store, at most every LOOK seconds. _Stopped when all have been drained.
        """
        if self._draining and not any(process.poll() is None for process in self._serving()):
            raise _Stopped
        for name, process in self._processes.items():
            status = process.poll()
            if status == 0 and self._draining:
                continue
            if status is not None and process.stdout.closed:
                raise _Died(f"{name} ({process.pid}) died: {_how(status)}")
        if (now := time.monotonic()) >= self._next_look:
            self._next_look = now + LOOK
            self._tickets.current()                 # forgets those of the past
            TROUBLES.look()
            try:
                self._look_at_volume()
                self._look_for_dead()
            except OSError as error:                # descriptors are used up, a disk fails: those who are served go on
                TROUBLES.met(UNSEEN, in_words(error))

    def _look_for_dead(self) -> None:
        """Raise _ToolDied for a process that died in the store and is not the server's."""
        ours = {process.pid for process in self._processes.values()}
        if not process_registry.strangers(self._run_folder, ours):      # as nearly always, and much cheaper
            return
        for other in process_registry.look(self._run_folder)[1]:
            if other.pid not in ours:
                raise _ToolDied(f"{other} died in the store")

    def _pause(self) -> None:
        """Wait before a restart, longer each time. Raises Failure when there were too many, _Stopped."""
        now = time.monotonic()
        self._restarts = [when for when in self._restarts if when > now - PERIOD] + [now]
        if len(self._restarts) > self.config.settings("workers", Workers).restarts:
            raise Failure("the processes of the server die again and again", 1)
        self._sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (len(self._restarts) - 1)))

    def _sleep(self, seconds: float) -> None:
        """Raises _Stopped."""
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0:
                self._watchdog.beat(self._is_well)
                if selector.select(min(left, LOOK)):
                    self._signals()

    def _stop(self) -> None:
        """End all cleanly: those that serve first, then what their answers may wait for, and the keeper, which leaves
        the store clean, last."""
        log.info("stopping")
        sockets.close(self._sockets)
        limit = self.config.settings("workers", Workers).stop_time + KILL_TIME
        first = [process for name, process in self._processes.items() if name not in _LAST]
        for group in (first, *([self._processes[name]] for name in _LAST if name in self._processes)):
            for process in group:
                process.terminate()
            deadline = time.monotonic() + limit
            for process in group:
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except TimeoutError:
                    log.error("%d takes too long to stop: all are killed", process.pid)
                    return
        log.info("stopped")

    def _kill(self) -> None:
        self._up = False                                # a drain before the next start has nobody to wait for
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
            process.stdout.close()
        self._processes.clear()


def _claim_store(root: Path) -> int:
    """Own the store, over all restarts of its processes; a descriptor. Raises Failure."""
    try:
        privatefiles.make_folder(root / "run", exist_ok=True)       # a copy of the store comes without it
        return process_registry.claim(root / "run" / "server.pid")
    except StoreError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{root / 'run'} cannot be used: {error.strerror}", 1) from error


def _signals_to_pipe() -> int:
    """A descriptor from which the numbers of the signals can be read that arrive from now on."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _how(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
