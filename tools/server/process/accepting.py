"""How connections are accepted, also when a process has few descriptors left, or none: each hears why it is refused.

The last descriptors of a process are for message files, logs and other processes, which those who are there need. A
connection that gets one of them is *surplus*: it hears the protocol's refusal (`StreamFactory.full`), under TLS after
the handshake, and is closed. Few of a port are surplus at a time; the next ones wait in the kernel's queue, where any
process that has room takes them. Where not a single descriptor is left a spare one is given up for it. (Twisted's own
ports close such a connection without a word.)

All processes wait at the same sockets, and the kernel wakes them all: of 64 connections that come one by one the one
had 40 and the other 24, of 8 sometimes all. A process works in one thread, so the busier one is what all wait for.
Therefore a process that has more connections of a server than another one leaves the next to that one for a moment; so
does one that could only refuse it, to one that has room.
"""

import errno
import logging
import os
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from attrs import define, field
from twisted.internet import tcp, unix
from twisted.python.failure import Failure

from mboxlist import privatefiles
from mboxlist.engine.troubles import TROUBLES
from store.net.admission import descriptors_for_connections
from store.net.limits import ConnectionLimits

log = logging.getLogger(__name__)

SPARES = 8              # descriptors of a process that are kept for refusing
SURPLUS = 8             # connections of a port that are being refused at a time
MOST = 100              # connections that are accepted in one turn of the event loop
LEFT = 0.001            # seconds for which a connection is left to another process, which may be busy or gone
AGAIN = 0.1             # seconds until one that could have no descriptor tries again, or a full one refuses
FEW = "there are too few descriptors for more connections"
_NONE_LEFT = (errno.EMFILE, errno.ENFILE)
_GONE = (errno.ECONNABORTED, errno.EPERM)       # who waited has gone, or a packet filter lets nobody accept it


@define(eq=False)
class Spares:
    """Descriptors that a process keeps to be able to refuse."""

    _held: list[int] = field(factory=list, init=False)

    def fill(self) -> None:
        """Have as many as there are to be, or as can be had."""
        try:
            while len(self._held) < SPARES:
                self._held.append(privatefiles.nothing())
        except OSError as error:
            if error.errno not in _NONE_LEFT:
                raise

    def accept(self, listening: socket.socket) -> tuple[socket.socket, Any, bool]:
        """The next connection, its address, and whether it is surplus. Raises OSError, BlockingIOError: nobody waits.
        """
        given = False
        while True:
            try:
                client, address = listening.accept()
                return client, address, given or client.fileno() >= descriptors_for_connections()
            except OSError as error:
                if error.errno not in _NONE_LEFT or not self._held:
                    raise
            given = True            # another thread may take the one that is closed here
            os.close(self._held.pop())


    def accept_one(self, listening: socket.socket, stop: socket.socket) -> tuple[socket.socket, Any, bool] | None:
        """`accept` for a thread; None when there is nobody any more. Where no descriptor can be had it waits a moment,
        and no longer than until something comes on `stop`."""
        try:
            return self.accept(listening)
        except OSError as error:
            if error.errno in _NONE_LEFT:
                TROUBLES.met(FEW, str(error))
                select.select([stop], [], [], AGAIN)
        return None


class Port(tcp.Port):
    """A port of Twisted's that accepts as is said above. Call `begin`."""

    spares: Spares

    def begin(self, spares: Spares, limits: ConnectionLimits | None = None) -> None:
        """Accept from now on; `spares` are those of the process; `limits` say whether another one that waits at the
        same socket should have the next connection, and hear whether this one has room."""
        self.spares = spares
        self._limits = limits or ConnectionLimits(1 << 62, 1 << 62)
        self._limits.show()
        self._surplus: set[Any] = set()
        self._most = 1
        self._retry: Any = None
        spares.fill()
        self.startListening()

    def doRead(self) -> None:
        """Somebody waits."""
        self._accept(self._limits.is_ahead)

    def _accept(self, is_ahead: Callable[[], bool]) -> None:
        accepted = 0
        while accepted < self._most:
            if is_ahead():
                self._wait_for(AGAIN if self._limits.full else LEFT, self._take)
                return
            if len(self._surplus) >= SURPLUS:
                self._wait()
                return
            try:
                client, address, surplus = self.spares.accept(self.socket)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _GONE:
                    continue
                TROUBLES.met(FEW, str(error))
                self._wait_for(AGAIN, self._go_on)
                return
            accepted += 1
            if surplus != self._limits.full:
                self._limits.show(full=surplus)
            self._serve(client, address, surplus)
        # Few: to find that nobody waits any more costs as much as to accept. Many: when more come than were accepted.
        self._most = min(self._most + 20, MOST) if accepted == self._most else max(1, accepted)

    def connectionLost(self, reason: Failure) -> None:
        """It accepts no more."""
        if self._retry is not None:
            self._retry.cancel()
        tcp.Port.connectionLost(self, reason)   # type: ignore[no-untyped-call]

    def _serve(self, client: socket.socket, address: Any, surplus: bool) -> None:
        if self.addressFamily == socket.AF_INET6 and address[3]:        # RFC 4007 §11: the zone belongs to it
            address = (socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0], *address[1:])
        try:
            client.setblocking(False)
            place: Any = self._buildAddr(address)       # type: ignore[no-untyped-call]
            protocol: Any = cast(Any, self.factory).buildProtocol(place)
            self.sessionno += 1
            made: Any = cast(Any, self.transport)(client, protocol, address, self, self.sessionno, self.reactor)
            made.surplus = surplus
            if surplus:
                TROUBLES.met(FEW, f"{getattr(place, 'host', 'local')} is refused")
                self._surplus.add(made)
                made.connectionLost = partial(self._refused, made, made.connectionLost)
            protocol.makeConnection(made)
        except Exception:
            log.exception("a connection could not be served")
            client.close()

    def _refused(self, connection: Any, lost: Callable[[Failure], None], reason: Failure) -> None:
        """A surplus connection has ended: there is room to refuse another one."""
        lost(reason)
        self._surplus.discard(connection)
        self._go_on()

    def _go_on(self) -> None:
        self._retry = None
        self.spares.fill()
        if self.connected and not self.disconnecting:
            self.startReading()         # type: ignore[no-untyped-call]

    def _take(self) -> None:
        """What was left to other processes and waits still is served here."""
        self._go_on()
        if self.connected and not self.disconnecting:
            self._accept(lambda: False)

    def _wait_for(self, seconds: float, then: Callable[[], None]) -> None:
        self._wait()
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self.reactor.callLater(seconds, then)

    def _wait(self) -> None:
        self.stopReading()              # type: ignore[no-untyped-call]


class UnixPort(Port, unix.Port):
    """One of a UNIX socket. It leaves the socket's name on disk alone: it belongs to the process that made it."""


def listen_unix(reactor: Any, spares: Spares, address: Any, factory: Any, backlog: int, mode: int) -> UnixPort:
    """A new UNIX socket, whose name whoever asks for it takes away in the end."""
    port = UnixPort(address, factory, backlog, mode, reactor)
    port.begin(spares)
    return port
