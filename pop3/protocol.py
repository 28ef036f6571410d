"""POP3's rim: what the reactor listens with, in the clear and under TLS alike."""

from pop3.logins import Logins
from pop3.maildrop import MaildropLocks
from pop3.maildropopening import Admission
from pop3.replies import limit_reached
from pop3.session import Listener, Session
from pop3.settings import Settings
from store.net.admission import AdmissionControl
from store.net.limits import TOO_MANY
from store.net.linestates import Clock
from store.net.streamfactory import StreamFactory
from store.store import Store


def factory(store: Store, settings: Settings, clock: Clock, tls: object | None = None, *, implicit_tls: bool = False,
            admission: AdmissionControl | None = None) -> StreamFactory:
    """A factory whose connections speak POP3. `clock` is the reactor; `tls` the context for STLS, or of the port;
    `admission` that of several listeners together."""
    run = store.root / "run"
    maildrops = Admission(store, settings, MaildropLocks(run / "pop3.lock"), Logins(run / "pop3.logins"), clock.seconds)
    listener = Listener(store, settings, maildrops, clock.seconds)
    return StreamFactory(lambda stream: Session(stream, listener), clock, tls, implicit_tls,
                         admission or AdmissionControl.from_settings("pop3", settings), limit_reached(TOO_MANY))
