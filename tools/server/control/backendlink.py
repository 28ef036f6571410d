"""Connections between back ends, under TLS on which both have shown a certificate: those that we make, and those of
others.

Threads and blocking sockets: a move of a user is long work on files and databases, and no client waits for it.
"""

import contextlib
import logging
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence

from attrs import define, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.secondcopy import SOURCES, State
from store.delivery.batch import in_threads
from store.errors import Problem, StoreError
from store.housekeeping.tasks import Task
from store.partitions.partitionmove import alone
from store.rejoin.takinghome import TakingHome
from store.standby.source.copysource import Source
from store.standby.source.instep import InStep, Member
from store.store import Store
from store.usermove.greeting import Refused, greet_called, greet_caller
from store.usermove.messageformat import BadMessage, Ended, Wire
from store.usermove.peer import Peer
from store.usermove.responder import Session
from store.usermove.sourceside import finish, moves_to_finish
from store.usermove.targetside import IncomingMoves
from tools.cli.options import Config
from tools.exits import Failure
from tools.server.process.accepting import FEW, Spares
from tools.server.process.sockets import Listening
from tools.server.tls.backendtls import BackEndTls, names_of, reason
from tools.serversettings import REFUSE, Exchange

log = logging.getLogger(__name__)

GREETING_SECONDS = 10.0     # in which a connection is made, the certificates are verified, and the caller has a name
PROBE_SECONDS = 5           # of silence after which the kernel asks whether the connection is there still,
SILENT_SECONDS = 20.0       # for which nothing at all came of a connection whose other end is gone: four probes
_LAST_HEARD = struct.Struct("=52xII")   # of `struct tcp_info` (tcp(7)): milliseconds since the last data, and the last
                                        # acknowledgement, which some kernels do not count where it comes with data
MOST_PROBES = 127           # so often at most: tcp(7)
MOST_STRANGERS = 32         # callers without a name at a time
FULL = f"{FEW}: call again later"
STOP_SECONDS = 30.0         # that a stop waits for what is being written
RETRY_SECONDS = 60     # between two tries to finish a move that was cut off
READ_OCTETS = 16_384        # of a connection at once, at most: TLS has no longer records (RFC 8446 §5.1);
WRITE_OCTETS = 256 << 10    # and to one
NOT_TRUSTED = ("exchange.authorities is not set: name a file with the certificates of the other back ends, as `onecopy "
               "config certificate` prints each, or of their authority")


@frozen
class Address:
    """The address and port on which another back end listens."""

    host: str
    address: str
    port: int


@frozen
class Place:
    """What this back end needs to speak with others."""

    settings: Exchange
    host: str
    tls: BackEndTls
    peers: dict[str, Address]
    standbys: dict[str, Address]
    authorities: bytes                          # what certificates are verified by, as it was when this was read
    greeting_time: float = GREETING_SECONDS

    @classmethod
    def of(cls, config: Config, host: str) -> "Place":
        """As configured; the certificate is made if none is named. Raises Failure."""
        settings = config.settings("exchange", Exchange)
        tls = BackEndTls.of(settings, config.root, host)
        if settings.authorities is None:
            raise Failure(NOT_TRUSTED)
        peers, standbys = {peer.host: peer for peer in map(_peer, settings.peers)}, standby_addresses(config)
        tls.make_certificate(config.root)
        tls.verify_files()
        return cls(settings, tls.host, tls, peers, standbys, privatefiles.read_named(settings.authorities))

    def allows(self, host: str) -> tuple[bool, bool]:
        """Whether that back end may move users here, and whether it may copy the store."""
        return host in self.peers, host in self.standbys

    def connect(self, host: str) -> Peer:
        """Call another back end. Raises StoreError UNAVAILABLE."""
        peer = self.peers.get(host) or self.standbys.get(host)
        if peer is None:
            raise StoreError(Problem.NO_PERMISSION, f"{host} is not among exchange.peers or exchange.standbys")
        try:
            connection = socket.create_connection((peer.address, peer.port), self.greeting_time)
        except OSError as error:
            raise _unreachable(host, error) from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _have_kernel_ask(connection, self.settings.timeout)
            connection = self.tls.calling(connection, host)
            wire = _Tls(connection)
            greet_called(wire, self.host)
        except (Refused, BadMessage, Ended, OSError, Failure) as error:
            connection.close()
            raise _unreachable(host, error) from error
        wire.limit(self.settings.timeout)
        return Peer(host, wire)


def standby_addresses(config: Config) -> dict[str, Address]:
    """Those of exchange.standbys, by their names. Raises Failure."""
    settings = config.settings("exchange", Exchange)
    return {each.host: each for each in (_standby(text, settings.port) for text in settings.standbys)}


def _have_kernel_ask(connection: socket.socket, timeout: float) -> None:
    """Hear soon that the other machine has begun anew and knows nothing of this connection: who waits for an answer
    sends nothing, and would wait to the end. One that says nothing at all has so many seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        connection.setsockopt(socket.IPPROTO_TCP, option, PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, min(MOST_PROBES, int(timeout / PROBE_SECONDS) + 1))


def _is_dead(connection: socket.socket) -> bool:
    """Whether nobody is at the other end: nothing comes, and not even its kernel has answered the last probes."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_HEARD.size)
        return float(min(_LAST_HEARD.unpack(info))) > SILENT_SECONDS * 1000
    except (OSError, struct.error):         # it has been ended, or the kernel is an old one
        return False


def _unreachable(host: str, error: Exception) -> StoreError:
    if isinstance(error, Refused):
        why = str(error)
    elif isinstance(error, ssl.SSLCertVerificationError):
        why = f"its certificate is refused: {reason(error)}"
    elif isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        why = f"it refuses the certificate of this back end: {reason(error)}; its log says more"
    else:
        why = (isinstance(error, OSError) and error.strerror) or str(error) or "it ended the connection"
    return StoreError(Problem.UNAVAILABLE, f"{host} cannot be reached: {why}")


def _peer(text: str) -> Address:
    host, _, where = text.partition("=")
    address, colon, port = where.rpartition(":")
    if not host or not address or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Failure(f"exchange.peers: {text!r} is not host=address:port")
    return Address(host.strip().lower(), address.strip().strip("[]"), int(port))


def _standby(text: str, port: int) -> Address:
    """Where its name leads to, unless an address is given; the port is then that of this machine."""
    return _peer(text) if "=" in text else Address(text.strip().lower(), text.strip(), port)


@define(eq=False)
class _Tls:
    """A connection as `store.usermove` wants it (`Wire`). `heard`: when the other side said something last; monotonic.
    """

    socket: socket.socket
    heard: float = field(factory=time.monotonic, init=False)
    _ahead: bytes = field(default=b"", init=False)      # what has been read, and not been asked for

    def read(self, count: int) -> bytes:
        """Up to that many octets. A record of TLS is read at once: most messages are one, in three parts."""
        found = self._ahead
        if not found:
            found = self.socket.recv(READ_OCTETS)
            self.heard = time.monotonic()
        self._ahead = found[count:]
        return found[:count]

    def write(self, data: bytes) -> None:
        """All of it. The time limit holds for each part: a slow network may take longer for many octets."""
        for at in range(0, len(data), WRITE_OCTETS):
            self.socket.sendall(memoryview(data)[at:at + WRITE_OCTETS])

    def limit(self, seconds: float) -> None:
        """How long one wait may take."""
        self.socket.settimeout(seconds)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self.socket.close()


@define(eq=False)
class Listener:
    """Serves other back ends in this process: one thread waits for callers, and each caller has one. `answer` answers
    one whose name is known, until it has had enough."""

    place: Place
    spares: Spares
    answer: "Answer"
    standbys: "Standbys | None" = None
    _stop: tuple[socket.socket, socket.socket] = field(factory=socket.socketpair, init=False)
    _threads: set[threading.Thread] = field(factory=set, init=False)
    _open: set[socket.socket] = field(factory=set, init=False)
    _known: dict[socket.socket, tuple[str, _Tls]] = field(factory=dict, init=False)     # callers that have a name
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def callers(self, seconds: float) -> set[str]:
        """Who is connected, and has said something in the last so many seconds. A network that is cut ends no
        connection."""
        since = time.monotonic() - seconds
        with self._lock:
            return {host for host, wire in self._known.values() if wire.heard >= since}

    def follow(self, config: Config) -> None:
        """Take over who may call, and for what. A caller for whom that has changed is cut off, and every one when what
        certificates are verified by has: whoever still may calls again. Raises Failure, OSError."""
        place = Place.of(config, self.place.host)
        with self._lock:
            before, self.place = self.place, place
            ended = [caller for caller, (host, _) in self._known.items() if before.authorities != place.authorities
                     or before.allows(host) != place.allows(host)]
            for each in ended:
                log.warning("%s is cut off: it has to show again that it may call", self._known[each][0])
                _cut_off(each)
        if self.standbys is not None:
            self.standbys.follow(place)

    def start(self, sockets: Sequence[Listening]) -> None:
        """Begin to serve on these sockets."""
        thread = threading.Thread(target=self._wait, args=([each.socket for each in sockets],), name="user-moves",
                                  daemon=True)
        self._threads.add(thread)
        thread.start()

    def stop(self) -> None:
        """End all connections, and wait until nothing is written any more."""
        self._stop[0].close()
        with self._lock:
            for each in self._open:
                _cut_off(each)
        for thread in tuple(self._threads):
            thread.join(STOP_SECONDS)
        if self.standbys is not None:
            self.standbys.close()

    def _wait(self, sockets: list[socket.socket]) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stop[1], selectors.EVENT_READ)
            for each in sockets:
                selector.register(each, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._stop[1] in ready:
                    return
                for each in sockets:
                    if each in ready:
                        self._accept(each)

    def _accept(self, listening: socket.socket) -> None:
        accepted = self.spares.accept_one(listening, self._stop[1])
        if accepted is None:                        # another process was quicker, or it has gone already
            return
        caller, address, surplus = accepted
        with self._lock:
            if len(self._open) - len(self._known) >= MOST_STRANGERS:
                caller.close()
                return
            self._open.add(caller)
            thread = threading.Thread(target=self._serve, args=(caller, str(address[0]), surplus),
                                      name="user-moves-caller", daemon=True)
            self._threads = {each for each in self._threads if each.is_alive()} | {thread}
        thread.start()

    def _has_room(self, host: str, most: int) -> bool:
        """Whether there is a place for one more call from that one. It has begun anew: so its calls at whose other end
        nobody is end, and what they hold is free; where no place is, those of others, too. For who has the lock."""
        for is_meant in (host.__eq__, host.__ne__):
            for each, (other, _) in list(self._known.items()):
                if is_meant(other) and _is_dead(each):
                    log.warning("a call from %s is ended, at whose other end nobody is: it calls again", other)
                    _cut_off(each)
                    del self._known[each]
                    self._open.discard(each)
            if len(self._known) < most:
                return True
        return False

    def _serve(self, caller: socket.socket, address: str, surplus: bool) -> None:
        host, place = "", self.place
        try:
            caller.settimeout(place.greeting_time)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _have_kernel_ask(caller, place.settings.timeout)
            connection = place.tls.called(caller)
            with self._lock:
                self._open.discard(caller)          # its descriptor is that of `connection` now
                self._open.add(connection)
            caller, wire = connection, _Tls(connection)
            connection.do_handshake()
            named = greet_caller(wire, names_of(connection), {*place.peers, *place.standbys}, FULL if surplus else "")
            with self._lock:
                if place is not self.place:
                    raise Refused("the configuration has changed meanwhile")
                if self._has_room(named, place.settings.connections):
                    host, self._known[connection] = named, (named, wire)
            if host:
                log.debug("back ends: %s calls from %s", host, address)
                wire.limit(place.settings.timeout)
                self.answer(wire, host, place)
            else:
                log.warning("back ends: %s calls from %s, and too many do", named, address)
        except (Refused, BadMessage) as error:
            log.warning("back ends: a call from %s is refused: %s", address, error)
        except (Ended, ConnectionError, TimeoutError, ssl.SSLEOFError) as error:
            log.info("back ends: a call from %s: %s", address, str(error) or "it was ended")
        except ssl.SSLError as error:
            log.warning("back ends: a call from %s is refused: %s", address, reason(error))
        except (OSError, Failure) as error:
            log.error("back ends: a call from %s cannot be answered: %s", address, error)
        except Exception:
            log.exception("back ends: a call from %s", address)
        finally:
            with self._lock:
                self._known.pop(caller, None)
                self._open.discard(caller)
            caller.close()
            self.spares.fill()


def _cut_off(caller: socket.socket) -> None:
    """End a connection at which another thread is. Not by the method of an SSLSocket, which first forgets that there is
    TLS: what that thread wrote at this moment would leave in the clear."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(caller, socket.SHUT_RDWR)


def refuse_at_first(config: Config, store: Store) -> None:
    """Where nothing may be changed without a standby, nothing is from the first moment on: until the process that has
    their connections says that all are in step. For the keeper, once it has opened the store."""
    settings = config.settings("exchange", Exchange)
    if settings.port and settings.synchronous and settings.without_standby == REFUSE and not store.read_only:
        store.write_freeze.second.put(State.REFUSING, 0)


def of_worker(config: Config, store: Store, sockets: Sequence[Listening], spares: Spares
              ) -> tuple[Listener | None, list[Task]]:
    """What the process that keeps the store for all has to do: serve on these sockets, and finish interrupted moves.

    Mail is served also where only the secret of former versions is configured. Raises Failure.
    """
    settings = config.settings("exchange", Exchange)
    if not sockets and not settings.peers:
        return None, []
    if settings.authorities is None and settings.secret is not None:
        log.error("no user can be moved: %s", NOT_TRUSTED)
        return None, []
    place = Place.of(config, store.settings.host)
    standbys = Standbys.of(store, place) if sockets else None
    return (Listener(place, spares, answering(store, standbys), standbys) if sockets else None,
            [task(place)] if settings.peers else [])


Answer = Callable[[Wire, str, Place], None]


def answering(store: Store, standbys: "Standbys | None" = None) -> Answer:
    """What a back end with an open store answers: users move to it, and standbys copy it."""
    incoming = IncomingMoves(store, in_threads)

    def answer(wire: Wire, host: str, place: Place) -> None:
        moves, copies = place.allows(host)
        source = Source(store, host, None if standbys is None else standbys.member(host))
        standby = {**source.actions(), **TakingHome(store, wire, host).actions()} if copies else {}
        try:
            Session(wire, host, incoming, standby, moves, source.answered).run()
        finally:
            source.close()

    return answer


@define(eq=False)
class Standbys:
    """The standbys of a store, and which of them answers wait for. Nothing runs for them where there is none."""

    store: Store
    _in_step: InStep | None = None

    @classmethod
    def of(cls, store: Store, place: Place) -> "Standbys":
        """As configured. Raises OSError."""
        found = cls(store)
        found.follow(place)
        return found

    def follow(self, place: Place) -> None:
        """Those are standbys from now on; which answers wait for stays as it is: also one that a reload has taken out
        of `exchange.standbys`, when the processes of the server begin again. Raises OSError."""
        settings, waited = place.settings, synchronous(place.settings)
        hosts = list(dict.fromkeys((*place.standbys, *waited)))
        if self._in_step is not None:
            self._in_step.follow(list(place.standbys))
        elif hosts and not self.store.read_only:
            self._in_step = InStep.of(
                self.store.write_freeze.second, hosts, waited=waited, refuse=settings.without_standby == REFUSE,
                patience=settings.standby_wait)

    def member(self, host: str) -> Member | None:
        """That one."""
        return None if self._in_step is None else self._in_step.members.get(host)

    def close(self) -> None:
        """The server stops."""
        if self._in_step is not None:
            self._in_step.close()


def synchronous(settings: Exchange) -> list[str]:
    """The names of those that answers wait for."""
    return [each.lower() for each in dict.fromkeys(settings.synchronous)]


def require_known_standbys(config: Config) -> None:
    """Those that answers wait for are standbys. For the start of a server. Raises Failure."""
    if reason := what_is_wrong(config.settings("exchange", Exchange)):
        raise Failure(f"exchange.synchronous: {reason}")


def what_is_wrong(settings: Exchange) -> str:
    """With `exchange.synchronous`; an empty text: nothing. Raises Failure for names that cannot be read."""
    waited = synchronous(settings)
    if unknown := set(waited) - {_standby(each, settings.port or 1).host for each in settings.standbys}:
        return f"{min(unknown)} is not among exchange.standbys"
    return f"more than {SOURCES}" if len(waited) > SOURCES else ""


def task(place: Place) -> Task:
    """Housekeeping: finish moves that were interrupted after the user had gone."""
    def work(store: Store, user: str) -> int:
        try:
            with alone(store):
                for move in moves_to_finish(store):
                    if move.user == user:
                        with contextlib.closing(place.connect(move.host)) as peer:
                            finish(store, move, peer)
                        log.info("the move of %s to %s is finished", user, move.host)
        except StoreError as refused:
            if refused.problem is not Problem.BUSY:         # whoever moves it is still at it
                raise
        return 1

    return Task("moves", RETRY_SECONDS, lambda store: [move.user for move in moves_to_finish(store)], work)
