"""An LDAP server that answers what a test wants: its own BER, right or wrong (RFC 4511 §4, X.690)."""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock, Thread

BIND, UNBIND, SEARCH, EXTENDED = 0x60, 0x42, 0x63, 0x77       # requests
BOUND, ENTRY, DONE, REFERENCE = 0x61, 0x64, 0x65, 0x73

Answers = Callable[[int, int, bytes], "bytes | None | Iterator[bytes]"]


def tlv(tag: int, *parts: bytes) -> bytes:
    """A tag, the length, and what is in it."""
    content = b"".join(parts)
    if len(content) < 128:
        return bytes([tag, len(content)]) + content
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def message(number: int, *operation: bytes) -> bytes:
    """A message of that number."""
    octets = number.to_bytes(number.bit_length() // 8 + 1, "big")
    return tlv(0x30, tlv(0x02, octets), *operation)


def result(kind: int, code: int, *more: bytes, text: bytes = b"") -> bytes:
    """A result of that kind."""
    return tlv(kind, tlv(0x0A, bytes([code])), tlv(0x04), tlv(0x04, text), *more)


def entry(dn: bytes, values: Mapping[bytes, Sequence[bytes]]) -> bytes:
    """An entry that was found."""
    return tlv(ENTRY, tlv(0x04, dn), tlv(0x30, *(
        tlv(0x30, tlv(0x04, name), tlv(0x31, *(tlv(0x04, value) for value in some)))
        for name, some in values.items())))


class FalseLdap:
    """It gives each request, by operation, number and octets, to `answers`: octets are sent, also one after the other;
    None ends the connection; no octets are silence. `requests` are the operations so far, without those that end a
    connection."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.requests: list[int] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = Lock()
        self._connections: list[socket.socket] = []
        self._threads = [Thread(target=self._accept, daemon=True)]

    @property
    def uri(self) -> str:
        """Where it is."""
        return f"ldap://127.0.0.1:{self.port}"

    def __enter__(self) -> "FalseLdap":
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        for thread in self._threads:
            thread.join(180)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                self._connections.append(connection)
                self._threads.append(Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (request := _read(connection)) is not None:
                    number, operation = request[4:4 + request[3]], request[4 + request[3]]
                    if operation == UNBIND:
                        return
                    self.requests.append(operation)
                    answer = self.answers(operation, int.from_bytes(number, "big"), request)
                    if answer is None:
                        return
                    for piece in [answer] if isinstance(answer, bytes) else answer:
                        connection.sendall(piece)
            except (OSError, IndexError):       # what is too short is no request, but the start of a handshake
                return
            finally:
                with self._lock:
                    self._connections.remove(connection)


def _read(connection: socket.socket) -> bytes | None:
    """A request with a length below 64 Ki, its head made to have two octets."""
    head = _exactly(connection, 2)
    if not head:
        return None
    size = head[1]
    if size & 0x80:
        size = int.from_bytes(_exactly(connection, size & 0x7F), "big")
    return b"\x30\x00" + _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    octets = b""
    while len(octets) < count:
        more = connection.recv(count - len(octets))
        if not more:
            return b""
        octets += more
    return octets
