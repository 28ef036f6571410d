"""Two back ends in one process: stores, each with a name, and connections between them that a test can cut."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, evolve, field

from store.store import Store
from store.usermove.messageformat import Wire
from store.usermove.peer import Peer
from store.usermove.responder import Session
from store.usermove.targetside import IncomingMoves
from tests.support.stores.stores import SMALL, make_store

ONE, TWO = "one.example.org", "two.example.org"
LIMIT = 180.0                # seconds that a test waits for a thread, far more than it takes


class Killed(BaseException):
    """A test has a thread end there as if its process had been killed."""


@define(eq=False)
class Plain:
    """A connection without TLS."""

    socket: socket.socket

    def read(self, count: int) -> bytes:
        return self.socket.recv(count)

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def limit(self, seconds: float) -> None:
        self.socket.settimeout(seconds)

    def close(self) -> None:
        self.socket.close()


@define(eq=False)
class Line:
    """Makes connections to a store; `wrap` may put something around our end of each."""

    store: Store
    caller: str
    wrap: Callable[[Wire], Wire] = lambda wire: wire
    threads: list[threading.Thread] = field(factory=list)
    _incoming: IncomingMoves | None = None

    def connect(self) -> Peer:
        if self._incoming is None or self._incoming.store is not self.store:
            self._incoming = IncomingMoves(self.store)
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.settimeout(LIMIT)
        session = Session(Plain(theirs), self.caller, self._incoming)
        thread = threading.Thread(target=_run, args=(session,), daemon=True)
        thread.start()
        self.threads.append(thread)
        return Peer(self.store.settings.host, self.wrap(Plain(ours)))

    def ended(self) -> None:
        """Wait until all sessions have."""
        for thread in self.threads:
            thread.join(LIMIT)
            assert not thread.is_alive()
        self.threads.clear()


def _run(session: Session) -> None:
    with suppress(Killed):
        session.run()


def make_back_end(folder: Path, host: str, users: tuple[str, ...] = ("alice", "bob"), at: str = ONE) -> Store:
    """A store of that name; the users have INBOXes if they are `at` it, and rows in any case."""
    settings = evolve(SMALL, host=host)
    store = make_store(folder / host, users if at == host else (), settings)
    return store


@contextmanager
def two_back_ends(folder: Path, users: tuple[str, ...] = ("alice", "bob")) -> Iterator[tuple[Store, Store]]:
    """Two stores, and their end."""
    one, two = make_two(folder, users)
    yield one, two
    for store in (one, two):
        store.close()


def make_two(folder: Path, users: tuple[str, ...] = ("alice", "bob")) -> tuple[Store, Store]:
    """Two stores; the users are on the first one, and the second knows nobody."""
    one, two = make_back_end(folder, ONE, users), make_back_end(folder, TWO)
    for user in users:
        one.directory.change(user, host=ONE)            # type: ignore[attr-defined]
    return one, two
