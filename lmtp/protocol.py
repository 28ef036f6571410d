"""LMTP's rim: what the reactor listens with, on TCP, TLS and UNIX sockets alike."""

import time
from collections.abc import Callable

from lmtp.access import Access
from lmtp.session import Listener, Session
from lmtp.settings import Settings
from lmtp.verification import Verification
from store.net.limits import ConnectionLimits
from store.net.stream import Clock, StreamFactory
from store.store import Store


def factory(store: Store, settings: Settings, clock: Clock, tls: object | None = None, *, implicit_tls: bool = False,
            guaranteed: bool = False, limits: ConnectionLimits | None = None, now: Callable[[], float] = time.time
            ) -> StreamFactory:
    """A factory whose connections speak LMTP. `clock` is the reactor; `tls` the context for STARTTLS.

    `guaranteed`: what comes here ignores quota. `limits` are those of several listeners together.
    """
    limits = limits or connection_limits(settings)
    listener = Listener(store, settings, Access.from_settings(settings), limits, clock.seconds, now, guaranteed)
    return StreamFactory(lambda stream: Session(stream, listener), clock, tls, implicit_tls)


def connection_limits(settings: Settings) -> ConnectionLimits:
    """How many connections there may be."""
    return ConnectionLimits(settings.connections, settings.connections_per_address)


def verification_factory(store: Store, settings: Settings, clock: Clock) -> StreamFactory:
    """A factory whose connections answer what relays ask about recipients."""
    listener = Listener(store, settings, Access.from_settings(settings), connection_limits(settings), clock.seconds,
                        time.time)
    return StreamFactory(lambda stream: Verification(stream, listener), clock)
