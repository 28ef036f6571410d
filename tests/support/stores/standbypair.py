"""A store and its standby in one process, with a connection between them that a test can cut."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field

from store.standby import seeding, standbystate
from store.standby.copysource import Source
from store.standby.following import Follower
from store.standby.sourcepeer import SourcePeer
from store.store import Store
from store.usermove.messageformat import Wire
from store.usermove.peer import Peer
from store.usermove.responder import Session
from store.usermove.targetside import IncomingMoves
from tests.support.stores.movepair import LIMIT, TWO, Plain


@define(eq=False)
class Standby:
    """The standby of a store, in that folder. `wrap` may put something around our end of each connection."""

    store: Store
    root: Path
    wrap: Callable[[Wire], Wire] = lambda wire: wire
    threads: list[threading.Thread] = field(factory=list)

    @contextmanager
    def connected(self) -> Iterator[SourcePeer]:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.settimeout(LIMIT)
        session = Session(Plain(theirs), TWO, IncomingMoves(self.store), Source(self.store).actions())
        thread = threading.Thread(target=session.run, daemon=True)
        thread.start()
        source = SourcePeer(Peer(self.store.settings.host, self.wrap(Plain(ours))))
        try:
            yield source
        finally:
            source.close()
            thread.join(LIMIT)
            assert not thread.is_alive()

    def create(self, progress: Callable[[str, int, int], None] = lambda what, done, total: None, age: int = 600
               ) -> None:
        """`onecopy standby create`."""
        with self.connected() as source:
            seeding.seed(self.root, seeding.begin(self.root, source, "127.0.0.1:1"), source, progress, age)

    @contextmanager
    def following(self) -> Iterator[Follower]:
        """After the first questions."""
        state = standbystate.read(self.root)
        assert state is not None
        with self.connected() as source:
            follower = Follower(self.root, source, state)
            follower.begin()
            yield follower

    def follow(self) -> None:
        """Have all there is now."""
        with self.following() as follower:
            follower.round(0)
