"""One process of the server: serves what its supervisor has given it.

It says on standard output that it serves, or why it cannot. Its supervisor has loaded this module, and with it all that
a process needs, before it is copied: so all processes share that memory. The event loop is each one's own.
"""

import errno
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define
from twisted.internet.defer import ensureDeferred

from mboxlist.engine import transact
from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.throttle import formerlogins
from store.accounts.throttle.formerlogins import FormerLogins
from store.accounts.throttle.sharedcache import Remembered
from store.accounts.throttle.sharedcounts import Counts
from store.audit import sessionaudit
from store.audit.auditsettings import Settings as AuditSettings
from store.audit.trail import Trail
from store.errors import StoreError
from store.filtering.filters import Filters
from store.filtering.sievesettings import Settings as SieveSettings
from store.housekeeping.tasks import Task
from store.metrics.processcounters import Counters
from store.net import authentication, sharedsyncs
from store.net.authentication import Authenticator
from store.net.kernelsyncs import KernelSyncs
from store.net.openlogins import OpenLogins
from store.net.threads import ReactorThreads
from store.news.changeboard import Board
from store.news.notify import NewsSocket
from store.partition.marks import READ_ONLY
from store.readonly import volumestate
from store.store import Store
from tools.cli.later import Later
from tools.cli.options import Config
from tools.cli.storeaccess import open_configured
from tools.exits import Failure
from tools.outbox import hostlookups
from tools.outbox.sendall import Dispatch, of_config
from tools.server.control import backendlink, fencing
from tools.server.control.controlserver import ControlServer
from tools.server.cutcommands import Repeated, finishing, open_as_keeper
from tools.server.doorpages import add_pages
from tools.server.fork import end_with
from tools.server.metrics import history
from tools.server.metrics.history import History
from tools.server.process import logs
from tools.server.process.freedmemory import give_back
from tools.server.process.housekeeper import Housekeeping, tasks
from tools.server.process.largepages import LargePages
from tools.server.process.listeners import SETTINGS, Server
from tools.server.process.reactor import install
from tools.server.process.sockets import EXCHANGE, HTTP, Listening
from tools.server.process.workerconfig import BROKEN, HELD_BACK, NAME, READY, WorkerConfig
from tools.server.tls.contexts import Certificates
from tools.server.tls.tickets import TicketKeys
from tools.server.transcripts.transcriptfile import FOLDER as TRANSCRIPTS
from tools.server.transcripts.transcriptfile import files as transcripts
from tools.serversettings import Log, Tls, Trace, Workers, tls_folder

log = logging.getLogger(__name__)

LEAVING = 3.0               # seconds of a stop in which `store.idx` are written; the next start writes the others
FORGET_INTERVAL = 600       # seconds between two looks at transcripts that are too old
SAVE_INTERVAL = 60          # seconds between two writings of who has logged in from where
SWITCH_SECONDS = 0.0005     # after which a thread at work gives way to the event loop, each of whose calls may wait


_spans = Later("tools.server.metrics.spans:begin", "tools.server.metrics.spanpackages:require")


def run(worker_config: WorkerConfig) -> None:
    """Open the store and serve until a signal says stop. Raises Failure."""
    config = worker_config.config
    reactor = install()
    give_back()
    _allow_many_files()
    who, broken = f"{NAME}, {worker_config.name}", partial(_end_broken, config.root)
    finishes = worker_config.keeper and not (config.root / READ_ONLY).exists()
    opened = (open_as_keeper if finishes else open_configured)(config, who, broken)
    try:
        opened.write_logs_ahead(first=worker_config.keeper)
        _serve(reactor, worker_config, opened, _certificates(config, worker_config.tickets))
    finally:
        _leave(opened)


def _leave(opened: Store) -> None:
    """Leave the store; where its volume takes no writes any more, as one that is killed does."""
    try:
        opened.close(within=LEAVING)
    except (OSError, StoreError, transact.Failure):
        why = volumestate.why_not_writable(opened.root)
        if not why:
            raise
        log.warning("the store is left as after a kill: %s", why)


def _certificates(config: Config, tickets: TicketKeys) -> dict[str, Certificates]:
    """What each server shows. The keys of tickets are those of all. Raises Failure."""
    settings = config.settings("tls", Tls)
    return {server: Certificates.from_settings(settings, tls_folder(config.root),
                                               config.settings(server, of_server).client_ca, server=server,
                                               tickets=tickets) for server, of_server in SETTINGS.items()}


def _allow_many_files() -> None:
    """A connection is an open file, and the soft limit is 1,024 nearly everywhere."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _end_broken(root: Path) -> None:
    """A database needs recovery. The supervisor starts all processes again, and every start recovers. Where the volume
    takes no writes no database is damaged, and the supervisor says what there is."""
    if not volumestate.why_not_writable(root):
        log.critical("a database is damaged: this process ends, so that the next start recovers it")
    os._exit(BROKEN)


def _serve(reactor: Any, worker_config: WorkerConfig, opened: Store, certificates: Mapping[str, Certificates]) -> None:
    threads = ReactorThreads(reactor.callFromThread)
    _attach(reactor, worker_config, opened, threads)
    news = NewsSocket(opened.root, opened.news, Board(worker_config.board))
    serving = _Serving.of(reactor, worker_config, opened, certificates, threads, news)
    trace = worker_config.config.settings("trace", Trace)
    spans = _spans(trace, worker_config.name) if trace.collector else None
    _on_signals(reactor, {signal.SIGTERM: serving.end, signal.SIGINT: serving.end, signal.SIGUSR1: serving.drain,
                          signal.SIGHUP: serving.asked.reload})
    reactor.callWhenRunning(serving.begin)
    sys.setswitchinterval(SWITCH_SECONDS)
    with logs.gathering(reactor):
        reactor.run(installSignalHandlers=False)
    serving.repeated.stop()
    threads.stop()
    news.stop()
    if spans is not None:
        spans.stop()
    if worker_config.keeper:
        _save(Authenticator.of(opened).slow.former, opened.root)
    opened.delivery_log.close()
    opened.refusals.close()
    if serving.failure is not None:
        raise serving.failure


def _attach(reactor: Any, worker_config: WorkerConfig, opened: Store, threads: ReactorThreads) -> None:
    """What an open store lacks to serve clients: threads, shared syncs, logins, scripts."""
    config = worker_config.config
    Counters.of(opened).turns = reactor.turns
    sharedsyncs.attach(opened, threads, KernelSyncs.of(reactor), reactor)
    sessionaudit.attach(opened, Trail(config.root, config.settings("audit", AuditSettings).kinds))
    authentication.attach(opened, config.settings("login", LoginSettings), worker_config.logins)
    opened.directory.share(Remembered.at(worker_config.logins))
    if worker_config.keeper:
        Authenticator.of(opened).slow.former.load(opened.root / formerlogins.FILE)
    Filters.of(opened, config.settings("sieve", SieveSettings))


@define(eq=False)
class _Serving:
    """What runs in this process beside the reactor. `others` serves what calls from other machines, on the sockets
    `called`; `failure`: why it could not begin."""

    worker_config: WorkerConfig
    reactor: Any
    threads: ReactorThreads
    news: NewsSocket
    server: Server
    others: backendlink.Listener | None
    called: Sequence[Listening]
    watch: fencing.Watch | None
    dispatch: Dispatch | None
    housekeeping: Housekeeping
    end_pages: Callable[[], None]
    asked: ControlServer
    repeated: Repeated
    failure: Exception | None = None
    _stopping: bool = False

    @classmethod
    def of(cls, reactor: Any, worker_config: WorkerConfig, opened: Store, certificates: Mapping[str, Certificates],
           threads: ReactorThreads, news: NewsSocket) -> "_Serving":
        """What this process is to do. Raises Failure."""
        config, keeper = worker_config.config, worker_config.keeper
        called = [each for each in worker_config.sockets if each.server == EXCHANGE]
        server = Server(reactor, opened, config, certificates, Counts.at(worker_config.counts))
        others, moves = backendlink.of_worker(config, opened, called, server.spares) if (
            keeper or worker_config.exchange) else (None, [])
        repeated = Repeated(config.root)
        dispatch = Dispatch(opened, of_config(config), threads, reactor) if keeper and not opened.read_only else None
        if dispatch is not None:
            hostlookups.install(reactor)
        watch = fencing.watch(config, opened, others, worker_config.supervisor) if worker_config.exchange else None
        housekeeping = Housekeeping(reactor, opened, threads, [
            *tasks(opened, keeper=keeper), *(moves if keeper else []), *_own_tasks(worker_config, opened, repeated),
            *([] if dispatch is None else [dispatch.task()])])
        end_pages = add_pages(server, opened, worker_config) if any(
            each.server == HTTP for each in worker_config.sockets) else lambda: None
        asked = ControlServer(worker_config, server, certificates, threads, housekeeping, reactor,
                              list if dispatch is None else dispatch.status, [] if others is None else [others.follow])
        return cls(worker_config, reactor, threads, news, server, others, called, watch, dispatch, housekeeping,
                   end_pages, asked, repeated)

    def begin(self) -> None:
        """Serve. What fails ends the process: Twisted would log it and go on without."""
        try:
            self.news.start(self.reactor)
            self.server.listen([each for each in self.worker_config.sockets if each.server != EXCHANGE])
            if self.others is not None:
                self.others.start(self.called)
            if self.watch is not None:
                self.watch.start()
            self.housekeeping.start()
            if self.dispatch is not None:
                self.dispatch.start()
            self.asked.start()
            os.write(1, READY)
        except Exception as error:
            self.failure = error
            self.reactor.stop()

    async def end(self) -> None:
        """Stop, once the sessions have had their time."""
        if self._stopping:
            return
        self._stopping = True
        log.debug("stopping")
        try:
            self.housekeeping.stop()
            if self.watch is not None:
                self.watch.stop()
            if self.dispatch is not None:
                self.dispatch.stop()
            self.asked.stop()
            self.end_pages()
            ending = self.threads.run("files", self.others.stop) if self.others is not None else None
            await self.server.stop(self.worker_config.config.settings("workers", Workers).stop_time)
            if ending is not None:
                await ending
        finally:
            self.reactor.stop()

    async def drain(self) -> None:
        """Stop when those who are logged in have gone, or after a while."""
        log.info("nobody new may log in")
        await self.server.drain(self.worker_config.config.settings("workers", Workers).drain_time,
                                lambda: self._stopping, leave=self.worker_config.hands_on)
        await self.end()


def _own_tasks(worker_config: WorkerConfig, opened: Store, repeated: Repeated) -> list[Task]:
    """Housekeeping that a process of a server has, and a store by itself has not."""
    config, found = worker_config.config, list[Task]()
    if any(each.server in SETTINGS and each.server != HTTP for each in worker_config.sockets):
        found.append(LargePages().task())
    logins = OpenLogins.of(opened)
    if opened.directory.session_time:
        found.append(logins.task())
    if not opened.read_only:
        found += [logins.use_task(), logins.app_passwords_task()]
        opened.at_close(logins.note_uses)
    if worker_config.keeper:
        found += [_saving(Authenticator.of(opened).slow.former),
                  _forgetting(config.settings("log", Log).transcript_time)]
        if not opened.read_only:
            found += [finishing(config, repeated).task(), History(opened.root / history.FILE).task()]
    return found


def _forgetting(seconds: int) -> Task:
    """Remove transcripts that are so old."""
    return Task("transcripts", FORGET_INTERVAL, lambda store: [
        path for path, _, when in transcripts(store.root / TRANSCRIPTS) if when < time.time() - seconds],
        lambda store, path: int(path.unlink(missing_ok=True) is None), by_age=True)


def _saving(former: FormerLogins) -> Task:
    return Task("logins", SAVE_INTERVAL, lambda store: [formerlogins.FILE],
                lambda store, file: int(former.save(store.root / file)))


def _save(former: FormerLogins, root: Path) -> None:
    try:
        former.save(root / formerlogins.FILE)
    except OSError as error:
        if error.errno == errno.EROFS:
            return
        log.warning("%s cannot be written: %s", root / formerlogins.FILE, error)


def _on_signals(reactor: Any, actions: Mapping[signal.Signals, Callable[[], Coroutine[Any, Any, None]]]) -> None:
    def begin(action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        ensureDeferred(action()).addErrback(lambda failure: log.error("%s", failure.getTraceback()))

    for number, action in actions.items():
        signal.signal(number, lambda *_, action=action: reactor.callFromThread(begin, action))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)       # by the supervisor, until there is an action


def main(worker_config: WorkerConfig) -> int:
    """Serve as ordered; the exit status."""
    end_with(worker_config.supervisor, signal.SIGKILL)      # nobody may be left in the store
    try:
        run(worker_config)
    except Failure as failure:
        os.write(1, str(failure).encode(errors="replace"))
        return failure.status
    return 0
