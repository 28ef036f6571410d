"""POP3's rim: what the reactor listens with, in the clear and under TLS alike."""

from pop3.maildrop import MaildropLocks
from pop3.session import Listener, Session
from pop3.settings import Settings
from store.net.limits import ConnectionLimits
from store.net.stream import Clock, StreamFactory
from store.store import Store


def factory(store: Store, settings: Settings, clock: Clock, tls: object | None = None, *, implicit_tls: bool = False
            ) -> StreamFactory:
    """A factory whose connections speak POP3. `clock` is the reactor; `tls` the context for STLS, or of the port."""
    limits = ConnectionLimits(settings.connections, settings.connections_per_address)
    listener = Listener(store, settings, limits, MaildropLocks(store.root / "run" / "pop3.lock"), clock.seconds)
    return StreamFactory(lambda stream: Session(stream, listener), clock, tls, implicit_tls)
