"""LMTP's rim: what the reactor listens with, on TCP, TLS and UNIX sockets alike."""

import time
from collections.abc import Callable

from lmtp.access import Access, Trust
from lmtp.relay import Listener
from lmtp.replies import limit_reached
from lmtp.session import Session
from lmtp.settings import Settings
from lmtp.verification import Verification
from store.net.admission import AdmissionControl
from store.net.limits import TOO_MANY
from store.net.linestates import Clock
from store.net.streamfactory import StreamFactory
from store.store import Store


def factory(store: Store, settings: Settings, clock: Clock, tls: object | None = None, *, implicit_tls: bool = False,
            guaranteed: bool = False, admission: AdmissionControl | None = None, now: Callable[[], float] = time.time
            ) -> StreamFactory:
    """A factory whose connections speak LMTP. `clock` is the reactor; `tls` the context for STARTTLS.

    `guaranteed`: what comes here ignores quota. `admission` is that of several listeners together.
    """
    access = Access.from_settings(settings)
    listener = Listener(store, settings, access, clock.seconds, now, guaranteed)
    admission = admission or AdmissionControl.from_settings("lmtp", settings)
    admission.familiar = lambda peer: access.trust(peer, (), "") is not Trust.STRANGER
    return StreamFactory(lambda stream: Session(stream, listener), clock, tls, implicit_tls, admission,
                         limit_reached(TOO_MANY).octets)


def verification_factory(store: Store, settings: Settings, clock: Clock,
                         admission: AdmissionControl | None = None) -> StreamFactory:
    """A factory whose connections answer what relays ask about recipients."""
    listener = Listener(store, settings, Access.from_settings(settings), clock.seconds, time.time)
    admission = admission or AdmissionControl.from_settings("verification", settings)
    admission.familiar = lambda peer: True          # there is nothing to show
    return StreamFactory(lambda stream: Verification(stream, listener), clock, admission=admission)
