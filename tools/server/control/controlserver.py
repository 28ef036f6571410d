"""What a process of the server can be asked for, on its control socket."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import asdict, define, field

from mboxlist import privatefiles
from store.accounts.throttle.slowdown import NOWHERE
from store.audit.sessionaudit import note
from store.deliverylog import LOGINS, FileDeliveryLog
from store.housekeeping import interrupted
from store.metrics.processcounters import Counters
from store.net.authentication import Authenticator
from store.net.controlchannel import ControlPort
from store.net.threads import ReactorThreads
from store.operations import clockrecord
from store.store import Store
from tools.cli.options import Config
from tools.server.control import loginfailures
from tools.server.control.connectionlist import Connections
from tools.server.process import newestlines
from tools.server.process.accepting import listen_unix
from tools.server.process.housekeeper import Housekeeping
from tools.server.process.listeners import Server
from tools.server.process.loglevels import Levels
from tools.server.process.reload import Reloading
from tools.server.process.workerconfig import WorkerConfig
from tools.server.tls.contexts import Certificates
from tools.server.transcripts.wantedsessions import WantedSessions
from tools.serversettings import Log

LOG_INTERVAL = 1.0      # seconds between two writes of what became of messages


@define(eq=False)
class ControlServer:
    """See the module's text."""

    _worker_config: WorkerConfig
    _server: Server
    _certificates: Mapping[str, Certificates]
    _threads: ReactorThreads
    _housekeeping: Housekeeping
    _reactor: Any
    _outbox: Callable[[], list[dict[str, Any]]] = list          # how the receivers of events stand
    _followers: Sequence[Callable[[Config], None]] = ()         # what else takes over a configuration, in a thread
    _port: ControlPort = field(init=False)
    _connections: Connections = field(init=False)
    _reloading: Reloading = field(init=False)
    _wanted: WantedSessions = field(init=False)
    _writing: Any = field(default=None, init=False)
    _started: float = field(factory=time.time, init=False)

    def __attrs_post_init__(self) -> None:
        store, name = self._store, self._worker_config.name
        self._connections = Connections(self._server, name, self._reactor)
        log = self._worker_config.config.settings("log", Log)
        levels = Levels(log, self._reactor)
        self._reloading = Reloading(self._worker_config.config, store, self._server, self._certificates, self._threads,
                                    levels, self._followers)
        self._wanted = WantedSessions(store.root, self._server, self._reactor, self._threads, log.transcripts)
        holds_back = partial(clockrecord.holds_back, store.root)
        store.delivery_log = FileDeliveryLog(store.root, name, lambda: (
            store.settings.journal_size, store.settings.journal_time), holds_back=holds_back)
        store.refusals = FileDeliveryLog(store.root, f"{name}-logins", lambda: (
            store.settings.journal_size // LOGINS, store.settings.journal_time), holds_back=holds_back)
        Authenticator.of(store).turned.delivery_log = store.refusals
        self._port = ControlPort(store.root / "run", name, {
            "connections": self._connections.tell, "end": self._connections.end, "config": self._reloading.tell,
            "alive": lambda _request: True, "stats": self._stats, "busiest": self._busiest, "slow": self._slow,
            "logins": self._logins, "outbox": lambda _request: self._outbox(),
            "level": levels.change, "levels": levels.tell, "transcript": self._wanted.order,
            "transcripts": self._wanted.tell, "log": newestlines.tell})

    @property
    def _store(self) -> Store:
        return self._server.store

    def start(self) -> None:
        """Listen, and begin to write the journal."""
        self._port.start(self._reactor, partial(listen_unix, self._reactor, self._server.spares))
        self._write()

    def stop(self) -> None:
        """Listen no more."""
        self._port.stop()
        self._wanted.stop()
        if self._writing is not None and self._writing.active():
            self._writing.cancel()

    async def reload(self) -> None:
        """See `Reloading`."""
        await self._reloading.reload()
        if self._reloading.applied and self._worker_config.keeper:
            await note(self._store, "configuration", "reload", actor="the server", options=self._reloading.shown())

    def _write(self) -> None:
        Authenticator.of(self._store).turned.tell_counted()
        if not (self._store.delivery_log.waits or self._store.refusals.waits):
            self._later()               # no thread is woken for nothing
            return
        done = self._threads.run("files", self._write_both)
        done.addBoth(lambda _: self._later())

    def _write_both(self) -> None:
        self._store.delivery_log.write()
        self._store.refusals.write()

    def _later(self) -> None:
        if not self._housekeeping.stopped:
            self._writing = self._reactor.callLater(LOG_INTERVAL, self._write)

    def _slow(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """How long a login has to wait for earlier failures: of that user, from that address."""
        user, peer = str(request["user"]), str(request["peer"])
        authenticator = Authenticator.of(self._store)
        return {"delay": round(authenticator.slow.delay(authenticator.place(peer) if peer else NOWHERE, user), 2)}

    def _logins(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return loginfailures.tell(Authenticator.of(self._store).slow, request)

    def _busiest(self, _request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Of users and domains those that do most (`store.metrics.spacesaving`): by server, and by mail that came."""
        return [*self._connections.busiest(), self._store.delivery_log.received.figures()]

    def _stats(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "process": self._worker_config.name, "pid": os.getpid(), "started": self._started, "memory": _memory(),
            "servers": self._connections.counted(), "failed_logins": Authenticator.of(self._store).failed,
            "mail": dict(self._store.delivery_log.counted), "interrupted": self._interrupted(),
            "login_failures": [[service, kind, number] for (service, kind), number in
                               Authenticator.of(self._store).turned.counted.items()],
            "unwritten": {name: len(partition.unwritten.changed) for name, partition in
                          self._store.partitions.items()},
            **Counters.of(self._store).figures(),
            "outbox": self._outbox(), "events_lost": dict(self._store.recorder.lost),
            "tasks": [asdict(status) for status in self._housekeeping.status()]}

    def _interrupted(self) -> int:
        """Changes of mailboxes that housekeeping has still to finish: the keeper counts them."""
        if not self._worker_config.keeper:
            return 0
        return sum(1 for _ in self._store.mailboxes.pending.all(int(time.time()) - interrupted.PENDING_SECONDS))


def _memory() -> int:
    """Octets of memory that the process has, its part of what is shared included."""
    with privatefiles.open_named("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
