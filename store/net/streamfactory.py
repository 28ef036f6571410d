"""What makes a `Stream` of each connection that is accepted, and tells all of them when the server stops."""

import itertools
from collections.abc import Callable

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory

from store.net.admission import AdmissionControl
from store.net.channel import Session
from store.net.linestates import Clock
from store.net.stream import Stream

_numbers = itertools.count(1)   # of connections, over all servers of this process


class StreamFactory(Factory):
    """Makes a `Stream` of each accepted connection, and a session of each stream.

    `tls` is the context factory for STARTTLS (None: not offered); `implicit_tls`: connections arrive under TLS.
    `admission` is what all listeners of the server share; `full` what a client hears for whom no descriptor is left.
    """

    noisy = False

    def __init__(self, start: Callable[[Stream], Session], clock: Clock, tls: object | None = None,
                 implicit_tls: bool = False, admission: AdmissionControl | None = None, full: bytes = b"") -> None:
        self.start = start
        self.full = full
        self.clock = clock
        self.tls = tls
        self.implicit_tls = implicit_tls
        self.admission = admission or AdmissionControl.open_to_all()
        self.streams: set[Stream] = set()
        self.stopping = False

    def buildProtocol(self, addr: IAddress | None) -> Stream:
        stream = Stream(self, next(_numbers))
        self.streams.add(stream)
        return stream

    def gone(self, stream: Stream) -> None:
        """Forget a connection, which has ended."""
        self.streams.discard(stream)
        counted = self.admission.counted
        counted["octets received"] += stream.received
        counted["octets sent"] += stream.sent

    def drain(self) -> None:
        """Let nobody new in. Sessions in which somebody has logged in go on; all others hear of it as at a stop."""
        self.admission.draining = self.stopping = True
        for stream in tuple(self.streams):
            if not stream.entered:
                stream.stop()

    def stop(self) -> None:
        """Tell every session that the server is going down, also those that a proxy has not introduced yet."""
        self.stopping = True
        for stream in tuple(self.streams):
            stream.stop()
