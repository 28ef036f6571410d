"""Back ends speak to each other: connections under TLS, on which both prove that they know the same secret.

Threads and blocking sockets: a move of a user is long work on files and databases, and no client waits for it.
"""

import contextlib
import hashlib
import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path

from attrs import define, field, frozen

from store.delivery.batch import in_threads
from store.errors import Problem, StoreError
from store.housekeeping.tasks import Task
from store.partitions.partitionmove import alone
from store.store import Store
from store.usermove import proof
from store.usermove.messageformat import BadMessage, Ended
from store.usermove.peer import Peer
from store.usermove.proof import SECRET, Identity, NotProved
from store.usermove.responder import Session
from store.usermove.sourceside import finish, unfinished
from store.usermove.targetside import Arrivals
from tools.cli.exits import Failure
from tools.cli.options import Config
from tools.cli.storeaccess import tls_folder
from tools.server.settings import Exchange, Tls
from tools.server.sockets import Listening
from tools.server.tls.contexts import CERTIFICATE, KEY

log = logging.getLogger(__name__)

PROVING = 10.0              # seconds in which a caller must have shown that it knows the secret
STRANGERS = 32              # callers that have not, at a time
ENDING = 30.0               # seconds that a stop waits for what is being written
UNFINISHED_INTERVAL = 60    # seconds between two tries to finish a move that was cut off


@frozen
class Address:
    """Where another back end is called."""

    host: str
    address: str
    port: int


@frozen
class Place:
    """What this back end needs to speak with others."""

    settings: Exchange
    host: str
    secret: bytes = field(repr=False)
    certificate: Path
    key: Path
    peers: dict[str, Address]

    @classmethod
    def of(cls, config: Config, host: str) -> "Place":
        """As configured. Raises Failure."""
        settings, tls = config.settings("exchange", Exchange), config.settings("tls", Tls)
        if not host:
            raise Failure("store.host is not set: other back ends must know this one by a name")
        if settings.secret is None:
            raise Failure("exchange.secret is not set: no back end can prove who it is")
        folder = tls_folder(config.root)
        certificate = tls.certificate or folder / CERTIFICATE
        key = (tls.key or certificate) if tls.certificate else folder / KEY
        return cls(settings, host, _secret(settings.secret), certificate, key,
                   {peer.host: peer for peer in map(_peer, settings.peers)})

    def identity(self, certificate: bytes) -> Identity:
        """This one's, on a connection that shows that certificate (DER)."""
        return Identity(self.host, self.secret, hashlib.sha256(certificate).digest())

    def connect(self, host: str) -> Peer:
        """Call another back end. Raises StoreError UNAVAILABLE."""
        peer = self.peers.get(host)
        if peer is None:
            raise StoreError(Problem.NO_PERMISSION, f"{host} is not among exchange.peers")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE      # the secret proves who it is
        try:
            plain = socket.create_connection((peer.address, peer.port), PROVING)
        except OSError as error:
            raise _unreachable(host, error) from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = _Tls(context.wrap_socket(plain))
        except OSError as error:
            plain.close()
            raise _unreachable(host, error) from error
        try:
            proof.call(wire, self.identity(wire.socket.getpeercert(binary_form=True) or b""), host)
        except (NotProved, BadMessage, Ended, OSError) as error:
            wire.close()
            raise _unreachable(host, error) from error
        wire.limit(self.settings.timeout)
        return Peer(host, wire)


def _unreachable(host: str, error: Exception) -> StoreError:
    reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return StoreError(Problem.UNAVAILABLE, f"{host} cannot be reached: {reason}")


def _secret(path: Path) -> bytes:
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise Failure(f"exchange.secret: {path}: {error.strerror}") from None
    if len(secret) < SECRET:
        raise Failure(f"exchange.secret: {path}: at least {SECRET} octets are needed, drawn at random")
    return secret


def _peer(text: str) -> Address:
    host, _, where = text.partition("=")
    address, colon, port = where.rpartition(":")
    if not host or not address or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Failure(f"exchange.peers: {text!r} is not host=address:port")
    return Address(host.strip().lower(), address.strip().strip("[]"), int(port))


@define(eq=False)
class _Tls:
    """A connection as `store.exchange` wants it."""

    socket: ssl.SSLSocket

    def read(self, count: int) -> bytes:
        """Up to that many octets."""
        return self.socket.recv(min(count, 1 << 18))

    def write(self, data: bytes) -> None:
        """All of it."""
        self.socket.sendall(data)

    def limit(self, seconds: float) -> None:
        """How long one wait may take."""
        self.socket.settimeout(seconds)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self.socket.close()


@define(eq=False)
class Listener:
    """Serves other back ends in this process: a thread that waits for callers, and one for each of them."""

    store: Store
    place: Place
    _arrivals: Arrivals = field(init=False)
    _stop: tuple[socket.socket, socket.socket] = field(factory=socket.socketpair, init=False)
    _threads: set[threading.Thread] = field(factory=set, init=False)
    _open: set[socket.socket] = field(factory=set, init=False)
    _proved: int = field(default=0, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._arrivals = Arrivals(self.store, in_threads)

    def start(self, sockets: Sequence[Listening]) -> None:
        """Begin to serve on these sockets."""
        thread = threading.Thread(target=self._wait, args=([each.socket for each in sockets],), name="exchange",
                                  daemon=True)
        self._threads.add(thread)
        thread.start()

    def stop(self) -> None:
        """Let go of all callers, and wait until nothing is written any more."""
        self._stop[0].close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in tuple(self._threads):
            thread.join(ENDING)

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
        try:
            caller, address = listening.accept()
        except OSError:                             # another process was quicker, or it has gone already
            return
        with self._lock:
            if len(self._open) - self._proved >= STRANGERS:
                caller.close()
                return
            self._open.add(caller)
            thread = threading.Thread(target=self._serve, args=(caller, str(address[0])), name="exchange-caller",
                                      daemon=True)
            self._threads = {each for each in self._threads if each.is_alive()} | {thread}
        thread.start()

    def _serve(self, caller: socket.socket, address: str) -> None:
        proved = False
        try:
            caller.settimeout(PROVING)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire, identity = self._shown(caller)
            with self._lock:
                self._open.discard(caller)          # its descriptor is the other one's now
                self._open.add(wire.socket)
            caller = wire.socket
            host = proof.be_called(wire, identity, frozenset(self.place.peers))
            with self._lock:
                proved = self._proved < self.place.settings.connections
                self._proved += proved
            if proved:
                log.debug("exchange: %s calls from %s", host, address)
                wire.limit(self.place.settings.timeout)
                Session(wire, host, self._arrivals).run()
            else:
                log.warning("exchange: %s calls from %s, and too many do", host, address)
        except (NotProved, BadMessage) as error:
            log.warning("exchange: a call from %s: %s", address, error)
        except (Ended, OSError, Failure) as error:
            log.info("exchange: a call from %s: %s", address, error or "it was ended")
        except Exception:
            log.exception("exchange: a call from %s", address)
        finally:
            with self._lock:
                self._proved -= proved
                self._open.discard(caller)
            caller.close()

    def _shown(self, caller: socket.socket) -> tuple[_Tls, Identity]:
        """TLS, with the certificate as it is now. Raises OSError, Failure."""
        place = self.place
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_cert_chain(place.certificate, place.key)
            shown = place.certificate.read_text()
        except OSError as error:
            raise Failure(f"[tls] {place.certificate}: {error}") from None
        begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
        first = begin + shown.partition(begin)[2].partition(end)[0] + end
        identity = place.identity(ssl.PEM_cert_to_DER_cert(first))
        return _Tls(context.wrap_socket(caller, server_side=True)), identity


def of_worker(config: Config, store: Store, sockets: Sequence[Listening]) -> tuple[Listener | None, list[Task]]:
    """What the process has to do that keeps the store for all: serve on these sockets, and finish what was cut off.

    Raises Failure.
    """
    settings = config.settings("exchange", Exchange)
    if not sockets and not settings.peers:
        return None, []
    place = Place.of(config, store.settings.host)
    return Listener(store, place) if sockets else None, [task(place)] if settings.peers else []


def task(place: Place) -> Task:
    """Housekeeping: moves that were cut off when the user had gone already are finished."""
    def work(store: Store, user: str) -> int:
        try:
            with alone(store):
                for move in unfinished(store):
                    if move.user == user:
                        with contextlib.closing(place.connect(move.host)) as peer:
                            finish(store, move, peer)
                        log.info("the move of %s to %s is finished", user, move.host)
        except StoreError as refused:
            if refused.problem is not Problem.BUSY:         # whoever moves it is still at it
                raise
        return 1

    return Task("moves", UNFINISHED_INTERVAL, lambda store: [move.user for move in unfinished(store)], work)
