"""LMTP's rim: what the reactor listens with, on TCP, TLS and UNIX sockets alike."""

import time
from collections.abc import Callable

from lmtp.session import Listener, Session
from lmtp.settings import Settings
from store.net.limits import ConnectionLimits
from store.net.stream import Clock, StreamFactory
from store.store import Store


def factory(store: Store, settings: Settings, clock: Clock, tls: object | None = None, *, implicit_tls: bool = False,
            now: Callable[[], float] = time.time) -> StreamFactory:
    """A factory whose connections speak LMTP. `clock` is the reactor; `tls` the context for STARTTLS."""
    limits = ConnectionLimits(settings.connections, settings.connections_per_address)
    listener = Listener(store, settings, limits, clock.seconds, now)
    return StreamFactory(lambda stream: Session(stream, listener), clock, tls, implicit_tls)
