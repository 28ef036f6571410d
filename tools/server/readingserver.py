"""`onecopy standby serve`: mail is read from a standby, and what is read stays new.

This process has the listening sockets, and opens no store. A process that it makes is the supervisor of a server for
the newest copy (`store/standby/reading`). When that is older than `exchange.reading_age`, and the standby has more, the
next copy is made, and gets a server of its own at these sockets; the one before takes nobody new (SIGUSR1), and ends
when its last session has, or after `workers.drain_time` with BYE. So there is always one that answers.
"""

import logging
import os
import select
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from signal import SIGHUP, SIGTERM, SIGUSR1
from threading import Event

from attrs import define, field

from store.accounts.throttle.loginmemory import LoginMemory
from store.errors import Problem, StoreError
from store.partition.marks import STANDBY
from store.standby.reading import readingcopies
from tools.cli.options import Config
from tools.exits import Failure
from tools.server.fork import Child, end_with
from tools.server.process.sockets import Listening
from tools.server.process.workerconfig import READY
from tools.server.supervisor import Supervisor, reloaded
from tools.serversettings import Exchange, Workers

log = logging.getLogger(__name__)

SERVED = ("imap", "pop3", "managesieve", "http")
LOOK = 1.0                  # seconds between two looks
RETRY = 30.0                # seconds until a copy that could not be made, or a server that ended, is tried again
OLDER = 2                   # servers of older copies that go on at most: the oldest is ended
KILL_TIME = 60.0            # seconds that a stop may take longer than its sessions are given


@define(eq=False)
class ReadingServer:
    """See the module's text. `stop` ends it, `again` has the servers read their configuration again."""

    config: Config
    sockets: list[Listening]
    stop: Event
    again: Event
    ready: Callable[[], None] = lambda: None        # called when the first server serves
    _logins: LoginMemory = field(factory=LoginMemory.shared, init=False)    # failed ones count on in the next server
    _place: Path | None = field(default=None, init=False)       # what is served,
    _server: Child | None = field(default=None, init=False)     # by which server,
    _next: tuple[Path, Child] | None = field(default=None, init=False)      # which will be,
    _maker: Child | None = field(default=None, init=False)      # and who makes the copy after that
    _older: list[Child] = field(factory=list, init=False)
    _retry: float = field(default=0.0, init=False)

    def run(self) -> None:
        """Until `stop`. Raises StoreError NO_STORE when there is no standby any more: the store's own server will need
        these ports; OSError."""
        try:
            while not self.stop.is_set():
                if not (self.config.root / STANDBY).exists():
                    raise StoreError(Problem.NO_STORE, f"There is no standby in {self.config.root} any more")
                self._look()
                self.stop.wait(LOOK)
        finally:
            self._end()

    def _look(self) -> None:
        if self.again.is_set():
            self.again.clear()
            self.config = reloaded(self.config)
            for each in self._servers():
                each.send_signal(SIGHUP)
        self._older = [each for each in self._older if each.poll() is None]
        if self._server is not None and (status := self._server.poll()) is not None:
            log.error("what serves %s has ended: exit status %d; it is started again", self._place, status)
            self._server = self._place = None
            self._retry = time.monotonic() + RETRY
        self._look_at_copy()
        self._look_at_server()
        if self._next is None and self._maker is None and self._place is not None:
            readingcopies.remove_older(self.config.root)

    def _look_at_copy(self) -> None:
        """Have the next copy made when it is time to."""
        if self._maker is not None:
            if (status := self._maker.poll()) is None:
                return
            self._maker = None
            if status:
                self._retry = time.monotonic() + RETRY
        root, settings = self.config.root, self.config.settings("exchange", Exchange)
        found = readingcopies.newest(root)
        if time.monotonic() < self._retry or self._next is not None or (
                found is not None and time.time() - found[1].moment < settings.reading_age):
            return
        try:
            if found is None or readingcopies.is_behind(root):
                self._maker = Child.start(partial(_make, root, os.getpid(), indexes=settings.reading_indexes), ())
        except (StoreError, OSError) as error:
            log.error("how far the standby is cannot be seen: %s", error)
            self._retry = time.monotonic() + RETRY

    def _look_at_server(self) -> None:
        """Have the newest copy served, in the place of the one before."""
        if self._next is not None:
            place, server = self._next
            if not select.select([server.stdout], [], [], 0)[0]:
                return
            said, self._next = server.stdout.read(len(READY)), None
            server.stdout.close()
            if said != READY:
                log.error("%s cannot be served; the one before goes on", place)
                self._retry = time.monotonic() + RETRY
                server.terminate()
                self._older.append(server)
                return
            first = not self._older and self._server is None
            self._retire()
            self._place, self._server = place, server
            log.info("what is read from this standby is %s now", place)
            if first:
                self.ready()
            return
        found = readingcopies.newest(self.config.root)
        if found is not None and found[0] != self._place and time.monotonic() >= self._retry:
            work = partial(_serve, self.config.at(found[0]), self.sockets, self._logins, os.getpid())
            self._next = found[0], Child.start(work, [self._logins.handle, *(
                each.socket.fileno() for each in self.sockets)])

    def _retire(self) -> None:
        if self._server is not None:
            self._server.send_signal(SIGUSR1)
            self._older.append(self._server)
        for each in self._older[:-OLDER]:
            each.terminate()

    def _servers(self) -> list[Child]:
        return [*self._older, *([self._server] if self._server is not None else []),
                *([self._next[1]] if self._next is not None else [])]

    def _end(self) -> None:
        """End all that was started."""
        deadline = time.monotonic() + self.config.settings("workers", Workers).stop_time + KILL_TIME
        all_of_them = [*self._servers(), *([self._maker] if self._maker is not None else [])]
        for each in all_of_them:
            each.terminate()
        for each in all_of_them:
            try:
                each.wait(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                each.kill()


def _make(root: Path, parent: int, *, indexes: bool) -> int:
    end_with(parent, SIGTERM)
    try:
        log.info("%s is made for reading", readingcopies.make_next(root, indexes=indexes))
    except (StoreError, OSError) as error:
        log.error("no newer copy for reading can be made: %s", error)
        return 1
    return 0


def _serve(config: Config, sockets: list[Listening], logins: LoginMemory, parent: int) -> int:
    end_with(parent, SIGTERM)
    try:
        Supervisor(config, _say_ready, list(sockets), hands_on=True, logins=logins).run()
    except Failure as failure:
        log.error("%s", failure)
        return failure.status
    return 0


def _say_ready() -> None:
    os.write(1, READY)
