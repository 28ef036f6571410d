"""A connection to an LDAP server (RFC 4511). ldap3 makes and reads the messages; what reaches it is bounded here: whole
messages of a limited size, with the number of the request that waits, before a deadline. So whatever a server does,
each call ends in time, with an answer, `Refused` or `Broken`.
"""

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import ldap3
from attrs import define, field, frozen

from store.accounts.ldap.ldapentry import Entry
from store.accounts.ldap.ldapsettings import ServerUri
from store.values import Secret

MOST = 8 << 20              # octets of the whole answer to one request
_STARTTLS = "1.3.6.1.4.1.1466.20037"        # RFC 4511 §4.14.1
_BIND_RESPONSE = 0x61       # [APPLICATION 1], RFC 4511 §4.2.2
_SCOPES = {"subtree": ldap3.SUBTREE, "one level": ldap3.LEVEL, "base": ldap3.BASE}

# Result codes, RFC 4511 appendix A.
SUCCESS, TIME_LIMIT, SIZE_LIMIT, REFERRAL, ADMIN_LIMIT = 0, 3, 4, 10, 11
CONSTRAINT, NO_SUCH_OBJECT, BAD_DN, INAPPROPRIATE, BAD_CREDENTIALS = 19, 32, 34, 48, 49
BUSY, UNAVAILABLE, UNWILLING = 51, 52, 53
#: A bind with these was looked at and is no proof; 19 and 53 say some servers of accounts that are locked.
NO_PROOF = frozenset({CONSTRAINT, NO_SUCH_OBJECT, BAD_DN, INAPPROPRIATE, BAD_CREDENTIALS, UNWILLING})
#: Another server may do better.
_OTHERS_MAY = frozenset({TIME_LIMIT, ADMIN_LIMIT, BUSY, UNAVAILABLE})


class Broken(Exception):
    """The server does not answer, or not as LDAP wants it; another one may. `closed`: it has ended the connection."""

    def __init__(self, text: str, *, closed: bool = False) -> None:
        super().__init__(text)
        self.closed = closed


class Refused(Exception):
    """The server's answer is a refusal, which another one would give, too; `code` is that of the result."""

    def __init__(self, text: str, code: int = -1) -> None:
        super().__init__(text)
        self.code = code


@frozen
class Answer:
    """What a search came to: `complete` unless there are more than was asked for; `referrals` are URIs of the rest, or
    of all (`elsewhere`)."""

    entries: tuple[Entry, ...]
    complete: bool = True
    referrals: tuple[str, ...] = ()
    elsewhere: bool = False


@define(eq=False)
class _Framed:
    """What ldap3 has for a socket: it gives whole messages out, those of the request that was sent last."""

    _socket: socket.socket
    _clock: Callable[[], float]
    deadline: float
    failure: str = ""                       # why it has stopped; ldap3 tells it in other words
    closed: bool = False
    last: bytes = b""                       # the body of the last message
    _request: int = field(default=-1, init=False)
    _left: int = field(default=MOST, init=False)
    _buffer: bytes = field(default=b"", init=False)

    def sendall(self, data: bytes) -> None:
        """Send one request."""
        _, at = _length(data[1:6])
        self._request, _ = _number(data[1 + at:])
        self._left, self._buffer = MOST, b""
        self._wait()
        try:
            self._socket.sendall(data)
        except TimeoutError:
            self._fail("it takes no request")
        except OSError as error:
            self._fail(f"the connection is lost: {error.strerror or type(error).__name__}", closed=True)

    def recv(self, most: int) -> bytes:
        """Octets of an answer."""
        if not self._buffer:
            self._buffer = self._message()
        data, self._buffer = self._buffer[:most], self._buffer[most:]
        return data

    def _message(self) -> bytes:
        """The next message (RFC 4511 §4.1.1, §5.1: BER, lengths in the definite form)."""
        head = self._exactly(2)
        if head[0] != 0x30:
            self._fail("what it says is not LDAP")
        if head[1] & 0x80:
            if not 0x81 <= head[1] <= 0x84:
                self._fail("a message without a length")
            head += self._exactly(head[1] & 0x7F)
        size, _ = _length(head[1:])
        if size > self._left:
            self._fail(f"an answer of more than {MOST} octets")
        self._left -= size
        body = self._exactly(size)
        number, good = _number(body)
        if not good:
            self._fail("a message without a number")
        if number == 0:                     # RFC 4511 §4.4.1: the server takes its leave
            self._fail("the server ends the connection", closed=True)
        if number != self._request:
            self._fail("an answer to something that was not asked")
        self.last = body
        return head + body

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._wait()
            try:
                data = self._socket.recv(min(count - len(parts), 1 << 16))
            except TimeoutError:
                self._fail("it does not answer")
            except OSError as error:
                self._fail(f"the connection is lost: {error.strerror or type(error).__name__}", closed=True)
            if not data:
                self._fail("the server has closed the connection", closed=True)
            parts += data
        return bytes(parts)

    def _wait(self) -> None:
        left = self.deadline - self._clock()
        if left <= 0:
            self._fail("it does not answer")
        self._socket.settimeout(left)

    def _fail(self, why: str, *, closed: bool = False) -> NoReturn:
        self.failure, self.closed = self.failure or why, closed
        raise ConnectionAbortedError(why)

    def settimeout(self, seconds: float | None) -> None:
        """The deadline is what counts."""

    def shutdown(self, how: int) -> None:
        """ldap3 ends the connection."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """ldap3 ends the connection."""
        self._socket.close()


def _length(octets: bytes) -> tuple[int, int]:
    """A length in the definite form, and how many octets say it."""
    more = octets[0] & 0x7F if octets[0] & 0x80 else 0
    return (int.from_bytes(octets[1:1 + more], "big"), 1 + more) if more else (octets[0], 1)


def _number(body: bytes) -> tuple[int, bool]:
    """The number of a message, and whether there is one (RFC 4511 §4.1.1.1)."""
    size = body[1] if len(body) > 2 and body[0] == 2 else 0
    good = 1 <= size <= 4 and len(body) >= 2 + size
    return int.from_bytes(body[2:2 + size], "big", signed=True) if good else -1, good


def result_code(body: bytes, kind: int) -> int:
    """That of a message whose operation has the tag `kind`, read strictly (RFC 4511 §4.1.9); -1 for anything else."""
    at = 2 + body[1]
    if body[at:at + 1] != bytes([kind]) or not 0 < len(body[at + 1:at + 2]) or body[at + 1] > 0x84:
        return -1
    size, more = _length(body[at + 1:at + 6])
    content = body[at + 1 + more:at + 1 + more + size]
    return content[2] if len(content) == size and content[:2] == b"\x0a\x01" else -1


class Connection:
    """A connection, for one thread at a time. When it has raised `Broken` it is closed."""

    def __init__(self, uri: ServerUri, context: ssl.SSLContext | None, seconds: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Connect; with a context under TLS, by StartTLS if the URI is not that of TLS. Raises Broken, Refused."""
        self.uri = uri
        self._clock = clock
        deadline = clock() + seconds
        self._ldap: Any = ldap3.Connection(
            ldap3.Server(uri.host, uri.port, get_info=ldap3.NONE, connect_timeout=seconds), version=3,
            client_strategy=ldap3.SYNC, auto_bind=ldap3.AUTO_BIND_NONE, auto_referrals=False, auto_range=False,
            auto_escape=False, check_names=False, return_empty_attributes=False, raise_exceptions=False)
        try:
            self._ldap.open(read_server_info=False)
        except Exception as error:              # its own kinds, and whatever it did not expect
            raise Broken(f"no connection: {_said(error)}") from None
        plain: socket.socket = self._ldap.socket
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)     # what is small waits for no acknowledgement
        self._framed = _Framed(plain, clock, deadline)
        self._ldap.socket = self._framed
        if context is None:
            return
        if not uri.tls:
            self._until(deadline, lambda: self._ldap.extended(_STARTTLS), "extendedResp")
            code, text = self._result()
            if code != SUCCESS:
                self.close()
                raise Refused(f"StartTLS is refused: {text}")
        try:
            plain.settimeout(max(deadline - clock(), 0.001))
            under = context.wrap_socket(plain, server_hostname=uri.host)
        except (OSError, ValueError) as error:
            self.close()
            raise Broken(f"no TLS: {_said(error)}") from None
        self._framed = _Framed(under, clock, deadline)
        self._ldap.socket = self._framed

    def bind(self, dn: str, password: Secret, seconds: float) -> int:
        """A simple bind (RFC 4513 §5.1.3); the result code, SUCCESS or of NO_PROOF. Raises Broken, Refused.

        Neither the name nor the password may be empty: to a server that is an anonymous bind, which succeeds (§5.1.1,
        §5.1.2).
        """
        if not dn or not password.reveal():
            raise Refused("a bind without a name or password proves nothing")
        self._ldap.user, self._ldap.password, self._ldap.authentication = dn, password.reveal(), ldap3.SIMPLE
        try:
            self._until(self._clock() + seconds, self._ldap.bind, "bindResponse")
        finally:
            self._ldap.password = None
        code, text = self._result()
        if result_code(self._framed.last, _BIND_RESPONSE) != code:
            self.close()
            raise Broken("an answer to a bind that cannot be read")
        if code == SUCCESS or code in NO_PROOF:
            return code
        self._refuse(code, f"bind as {dn}: {text}")

    def search(self, base: str, scope: str, filter: str, attributes: Sequence[str], most: int, seconds: float
               ) -> Answer:
        """Up to `most` entries; `base` may be an alias: of a domain, for one. Raises Broken, Refused."""
        self._until(self._clock() + seconds, lambda: self._ldap.search(
            base, filter, _SCOPES[scope], dereference_aliases=ldap3.DEREF_BASE, attributes=list(attributes) or ["1.1"],
            size_limit=most, time_limit=max(1, round(seconds))), "searchResDone")
        code, text = self._result()
        try:
            entries, referrals = self._found()
            if code == REFERRAL:
                referrals += [str(uri) for uri in self._ldap.result["referrals"] or ("",)]
        except Exception as error:              # what came was no answer to a search
            self.close()
            raise Broken(f"an answer that cannot be read: {_said(error)}") from None
        if code not in (SUCCESS, SIZE_LIMIT, REFERRAL):
            self._refuse(code, f"search below {base}: {text}")
        return Answer(tuple(entries), code != SIZE_LIMIT, tuple(referrals), code == REFERRAL)

    def replace(self, dn: str, attribute: str, values: Sequence[bytes], seconds: float) -> None:
        """Have the attribute of that entry have those values and no others. Raises Broken, Refused."""
        self._until(self._clock() + seconds, lambda: self._ldap.modify(
            dn, {attribute: [(ldap3.MODIFY_REPLACE, list(values))]}), "modifyResponse")
        code, text = self._result()
        if code != SUCCESS:
            self._refuse(code, f"change of {dn}: {text}")

    def _found(self) -> tuple[list[Entry], list[str]]:
        entries, referrals = [], []
        for item in self._ldap.response or ():
            if item["type"] == "searchResEntry":
                entries.append(Entry.of(item["raw_dn"].decode(), {name: [bytes(value) for value in values]
                                              for name, values in item["raw_attributes"].items()}))
            elif item["type"] == "searchResRef":
                referrals += [str(uri) for uri in item["uri"] or ("",)]
        return entries, referrals

    def close(self) -> None:
        """End it, without waiting for anything."""
        try:
            self._framed.deadline = self._clock() + 0.1
            self._ldap.unbind()
        except Exception:                       # it is of no use any more
            self._framed.close()

    def _until(self, deadline: float, work: Callable[[], object], expected: str) -> None:
        """Have ldap3 do it; its answer is of the expected kind. Raises Broken."""
        self._framed.deadline = deadline
        try:
            work()
            kind = self._ldap.result["type"]
        except Exception as error:              # its own kinds, and whatever a strange message makes its reader raise
            failure, closed = self._framed.failure or f"an answer that cannot be read: {_said(error)}", \
                self._framed.closed
            self.close()
            raise Broken(failure, closed=closed) from None
        if kind != expected:
            self.close()
            raise Broken(f"a {kind} is no answer to that")

    def _result(self) -> tuple[int, str]:
        """The result code, and what a log may say of it."""
        result = self._ldap.result
        text = f"{result['description']} ({result['result']})"
        return int(result["result"]), f"{text}: {_clean(result['message'])}" if result["message"] else text

    def _refuse(self, code: int, text: str) -> NoReturn:
        if code in _OTHERS_MAY:
            self.close()
            raise Broken(text)
        raise Refused(text, code)


def _clean(text: object) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in str(text))[:200]


def _said(error: Exception) -> str:
    return _clean(getattr(error, "strerror", None) or error or type(error).__name__) or type(error).__name__
