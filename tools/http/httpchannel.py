"""twisted.web's HTTP/1.1 (RFC 9112) on a `Stream`: what it takes has limits, and what it does not take is told as
Refused, which the session answers."""

import re
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from twisted.internet.interfaces import ITransport
from twisted.web import http
from twisted.web.http_headers import Headers
from zope.interface import implementer

from store.net.stream import Stream
from tools.http.webpages import Refused

LINE_LIMIT = 8192           # octets of a line: nginx writes a password as up to three times as many
LINES_LIMIT = 64
HEAD_LIMIT = 64 << 10       # octets of all lines before the body
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()+,*;=:\[\]-]*")     # RFC 3986 §3.2.2, and a port


@implementer(ITransport)
class _Outward:
    """The transport that twisted.web sees."""

    disconnecting = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        """Octets for the peer."""
        self._stream.write(data)

    def writeSequence(self, data: Sequence[bytes]) -> None:
        """Likewise."""
        self._stream.write(b"".join(data))

    def loseConnection(self) -> None:
        """The session ends the connection when it sees this."""
        self.disconnecting = True

    def getPeer(self) -> None:
        """Nobody asks: `Stream.peer`."""

    def getHost(self) -> None:
        """Nobody asks."""


class Request(http.Request):
    """A request that is whole tells its channel, and waits for the session to answer it."""

    channel: "Channel"
    whole: BytesIO

    def gotLength(self, length: int | None) -> None:
        """In memory: it is not longer than the channel allows."""
        self.content = self.whole = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        """Raises Refused."""
        self.whole.write(data)
        if self.whole.tell() > self.channel.body_limit:
            raise Refused(413, "the body is too long")

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """It is whole."""
        self.method, self.uri, self.clientproto = command, path, version
        self.channel.asked = self


class Channel(http.HTTPChannel):
    """The requests of a connection, one after the other. Give it octets with `take`, until there is `asked`.

    Any method raises Refused for what is no request; the connection must end then.
    """

    requestFactory = Request
    delimiter = b"\n"           # RFC 9112 §2.2: a bare LF may end a line, too
    MAX_LENGTH = LINE_LIMIT
    maxHeaders = LINES_LIMIT
    totalHeadersSize = HEAD_LIMIT

    def __init__(self, stream: Stream, body_limit: int) -> None:
        super().__init__()      # type: ignore[no-untyped-call]
        self.body_limit = body_limit
        self.asked: Request | None = None
        self.headed: Request | None = None      # one whose body has not come yet
        self.answered = 0       # requests
        self._head = 0          # lines of it that have come
        self._first = True      # no request has come yet
        self._outward = _Outward(stream)
        self.makeConnection(self._outward)          # type: ignore[no-untyped-call]

    def take(self, data: bytes) -> None:
        """Octets that have come. Raises Refused."""
        self.dataReceived(data)                     # type: ignore[no-untyped-call]

    @property
    def ended(self) -> bool:
        """Whether no other request is answered."""
        return self._outward.disconnecting

    @property
    def begun(self) -> bool:
        """Whether a request has come in part."""
        return bool(self._head or self._buffer)

    def lineReceived(self, line: bytes) -> None:
        """A line of the head. Raises Refused."""
        line = line.removesuffix(b"\r")
        if not self._head and not line and self._first:
            raise Refused(400, "no request")
        if self._head and line[:1] in (b" ", b"\t"):
            raise Refused(400, "a field is folded (RFC 9112 §5.2)")
        if self._head and line and b"\r" in line:
            raise Refused(400, "a line has a bare CR")
        self._head += 1
        super().lineReceived(line)                  # type: ignore[no-untyped-call]
        if not self.requests:
            self._head = 0                          # an empty line before a request

    def lineLengthExceeded(self, line: bytes) -> None:
        """Raises Refused."""
        if self._head:
            raise Refused(431, "a field is too long")
        raise Refused(414, "the request line is too long")

    def allHeadersReceived(self) -> None:
        """The body comes next. Raises Refused."""
        fields: Headers = self.requests[-1].requestHeaders
        if any(value.strip().lower() != b"chunked" for value in fields.getRawHeaders(b"transfer-encoding", ())):
            raise Refused(501, "the transfer coding is not known (RFC 9112 §6.1)")
        hosts = fields.getRawHeaders(b"host", ())
        if not hosts and self._version == b"HTTP/1.1" or not all(map(_HOST.fullmatch, hosts)):
            raise Refused(400, "the field host is missing, or names no host (RFC 9112 §3.2)")
        length = self.length
        if (length or 0) > self.body_limit or length is None and not self.body_limit:
            raise Refused(413, "the body is too long")
        super().allHeadersReceived()                # type: ignore[no-untyped-call]
        if self.asked is None:
            self.headed = self.requests[-1]
            self.headed.method, self.headed.uri = self._command, self._path

    def allContentReceived(self) -> None:
        """The request is whole."""
        self._head, self._first, self.headed = 0, False, None
        super().allContentReceived()                # type: ignore[no-untyped-call]

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        """What we speak is 1.1, whatever the client does (RFC 9110 §2.5)."""
        super().writeHeaders(b"HTTP/1.1", code, reason, headers)    # type: ignore[no-untyped-call]

    def _respondToBadRequestAndDisconnect(self) -> None:
        """Raises Refused."""
        too_many: Any = self._receivedHeaderCount > self.maxHeaders or self._receivedHeaderSize > self.totalHeadersSize
        raise Refused(431, "there are too many fields") if too_many else Refused(400, "this is no request of HTTP/1.1")
