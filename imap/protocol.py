"""IMAP's rim: what the reactor listens with, in the clear and under TLS alike."""

from imap.session import Listener, Session
from imap.settings import Settings
from imap.verbs.append import receive
from imap.verbs.dispatch import READING, VERBS, WATCHED
from imap.wire.responses import bye
from store.net.admission import AdmissionControl
from store.net.limits import TOO_MANY
from store.net.linestates import Clock
from store.net.streamfactory import StreamFactory
from store.store import Store


def factory(store: Store, settings: Settings, clock: Clock, tls: object | None = None, *, implicit_tls: bool = False,
            admission: AdmissionControl | None = None) -> StreamFactory:
    """A factory whose connections speak IMAP. `clock` is the reactor; `tls` the context for STARTTLS, or of the port;
    `admission` that of several listeners together."""
    listener = Listener(store, settings, clock, VERBS, WATCHED, READING, receive)
    return StreamFactory(lambda stream: Session(stream, listener), clock, tls, implicit_tls,
                         admission or AdmissionControl.from_settings("imap", settings),
                         bye(TOO_MANY, b"UNAVAILABLE"))
