"""ManageSieve's rim: what the reactor listens with."""

from imap.managesieve.answers import bye
from imap.managesieve.conversation import Listener, Session
from imap.managesieve.managesettings import Settings
from store.net.admission import AdmissionControl
from store.net.limits import TOO_MANY
from store.net.linestates import Clock
from store.net.streamfactory import StreamFactory
from store.store import Store


def factory(store: Store, settings: Settings, clock: Clock, tls: object | None = None, *, implicit_tls: bool = False,
            admission: AdmissionControl | None = None) -> StreamFactory:
    """A factory whose connections speak ManageSieve. `clock` is the reactor; `tls` the context for STARTTLS;
    `admission` that of several listeners together."""
    listener = Listener(store, settings, clock.seconds)
    return StreamFactory(lambda stream: Session(stream, listener), clock, tls, implicit_tls,
                         admission or AdmissionControl.from_settings("managesieve", settings),
                         bye(TOO_MANY, "TRYLATER"))
