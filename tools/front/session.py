"""What nginx's mail proxy asks of each login (`auth_http`): may this client in, and where does its mail lie?

The password is checked by the authenticator as that of any login, for the client's own address: what slows guessing
down, the rules of access and the memory of good passwords are those of all servers. The proxy waits for us
(Auth-Wait) what the next attempt would have to wait. The user's own password opens the back end, too.
"""

import hmac
import ipaddress
import logging
import math
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from attrs import frozen

import imap.refusals
import pop3.refusals
from store.accounts import refusallines
from store.accounts.base import Account
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.callers import Admitted, Behind, Caller
from store.net.limits import is_this_host
from store.net.stream import Stream
from store.problems import tell_refusal
from store.store import Store
from store.values import Secret
from tools.front.hosts import Hosts, Unknown, parse_server
from tools.front.settings import Settings
from tools.http.webpages import Answer, Asked, Refused

log = logging.getLogger(__name__)

SERVICES = {"imap": "imap", "pop3": "pop", "smtp": "smtp"}      # nginx's words, and those of the rules of access
UNREADABLE = (413, 414, 431)        # what nginx asks has no body, and is short
LONGEST_NAME, LONGEST_PASSWORD = 1024, 1024                     # octets


@frozen(eq=False)
class Listener:
    """What all sessions of a process share. `secret`: what proxies must send."""

    store: Store
    settings: Settings
    clock: Callable[[], float]
    hosts: Hosts
    secret: bytes


@frozen
class Question:
    """What counts of a proxy's request."""

    protocol: str
    method: str
    user: bytes
    password: Secret
    peer: str                   # of the client
    secure: bool
    attempt: int

    @classmethod
    def parse(cls, asked: Asked) -> "Question":
        """Raises Refused."""
        fields = asked.fields
        protocol = fields.get("auth-protocol", "")
        if protocol not in SERVICES:
            raise Refused(400, "Auth-Protocol is none of imap, pop3, smtp")
        try:
            peer = str(ipaddress.ip_address(fields.get("client-ip", "")))
        except ValueError:
            raise Refused(400, "Client-IP is no address") from None
        attempt = fields.get("auth-login-attempt", "1")
        if not (attempt.isascii() and attempt.isdigit() and len(attempt) < 10):
            raise Refused(400, "Auth-Login-Attempt is no number")
        user = unquote_to_bytes(fields.get("auth-user", "").encode("latin-1"))
        password = Secret(unquote_to_bytes(fields.get("auth-pass", "").encode("latin-1")))
        return cls(protocol, fields.get("auth-method", "").lower(), user, password, peer,
                   fields.get("auth-ssl", "").lower() == "on", int(attempt))


@frozen(eq=False)
class Answering:
    """Answers the questions of proxies, each on a connection of its own."""

    _listener: Listener

    async def answer(self, asked: Asked) -> Answer:
        """Raises Refused, ConnectionLost, Stopping."""
        assert asked.stream is not None
        return await _Asking(asked.stream, self._listener).answer(asked)


def refusal(refused: Refused) -> Answer | None:
    """What a proxy hears of what is none of its questions; nothing, where it has not come in time."""
    if refused.status == 408:
        return None
    status = 400 if refused.status in UNREADABLE else 503 if refused.status == 500 else refused.status
    return Answer(status, fields=refused.fields)


class _Asking:
    """One question, on that connection."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        self._stream = stream
        self._listener = listener
        self._settings = listener.settings

    async def answer(self, asked: Asked) -> Answer:
        """Raises Refused, ConnectionLost, Stopping."""
        if asked.method != "GET":
            return Answer(405, fields=[("Allow", "GET")])
        if asked.repeated:                      # which of the two counts would be a guess
            raise Refused(400, f"two fields {min(asked.repeated)}")
        if not asked.target.startswith("/"):
            raise Refused(400, "the target is no path")
        if not hmac.compare_digest(asked.fields.get("auth-key", "").encode("latin-1"), self._listener.secret):
            refusallines.refused(refusallines.ADDRESS, self._stream.peer, "", "front",
                                 "no Auth-Key, or another one than in front.secret_file", session=self._stream.id)
            return Answer(403)
        question = Question.parse(asked)
        user = _name(question.user)
        try:
            admitted = await self._log_in(question, user)
            account = admitted.account
            address, port = await self._place(question.protocol, account)
        except StoreError as error:
            return self._refusal(question, user, error)
        log.info("%s: %s (%s) from %s%s goes to %s port %d", self._stream.id, account.user, question.protocol,
                 question.peer, admitted.how, address, port)
        return Answer(fields=[("Auth-Status", "OK"), ("Auth-Server", address), ("Auth-Port", str(port))])

    async def _log_in(self, question: Question, user: str) -> Admitted:
        """Raises StoreError, ConnectionLost, Stopping."""
        listener = self._listener
        authenticator = Authenticator.of(listener.store)
        private = question.secure or self._settings.plaintext_login or is_this_host(question.peer)
        behind = Behind(question.peer, question.secure)
        caller = Caller(self._stream, SERVICES[question.protocol], private, anywhere=True, behind=behind)
        error = self._not_asked(question, user, passwords=authenticator.takes_passwords(caller))
        if error is not None:
            authenticator.turned.refused(caller.service, caller.peer, user, error, session=self._stream.id)
            raise error
        return await authenticator.password(caller, user, question.password)

    def _not_asked(self, question: Question, user: str, *, passwords: bool) -> StoreError | None:
        """Why a login is refused of which nobody asks the directory."""
        if question.method != "plain":          # what others send instead of the password, no back end could take
            return StoreError(Problem.NOT_AUTHORIZED, "Log in by LOGIN or PLAIN", f"method {question.method!r}")
        if not passwords:
            return StoreError(Problem.NOT_AUTHORIZED, "Passwords are taken only under TLS")
        if not user or not 0 < len(question.password.reveal()) <= LONGEST_PASSWORD:
            return StoreError(Problem.BAD_LOGIN)
        return None

    async def _place(self, protocol: str, account: Account) -> tuple[str, int]:
        """Where the proxy is to connect for that account. Raises StoreError UNAVAILABLE, NOT_AUTHORIZED."""
        settings = self._settings
        if protocol == "smtp":
            if not settings.smtp_server:
                raise StoreError(Problem.UNAVAILABLE, detail="front.smtp_server is not set")
            return parse_server(settings.smtp_server)
        name = account.host or settings.default_host
        if not name:
            raise StoreError(Problem.UNAVAILABLE, detail=f"no back end has {account.user}: set front.default_host")
        try:
            place = await self._listener.hosts.find(name)
        except Unknown as error:
            raise StoreError(Problem.UNAVAILABLE, detail=f"{account.user}: {error}") from None
        return place.address, place.ports.get(protocol, getattr(settings, f"{protocol}_port"))

    def _refusal(self, question: Question, user: str, error: StoreError) -> Answer:
        """The words and the code are those that a back end would say."""
        at_fault = error.problem in imap.refusals.OUR_FAULT
        if at_fault:
            tell_refusal(log, logging.ERROR,
                         f"{self._stream.id}: a login ({question.protocol}) from {question.peer} failed", error)
        fields = [("Auth-Status", _words(question.protocol, error))]
        if question.protocol == "smtp":
            fields.append(("Auth-Error-Code", "454 4.7.0" if at_fault else "535 5.7.8"))
        if not at_fault and question.attempt < self._settings.login_attempts:
            fields.append(("Auth-Wait", str(self._penalty(question.peer, user))))
        return Answer(fields=fields)

    def _penalty(self, peer: str, user: str) -> int:
        """Seconds after which the client may try again; it is told so. Without one, the proxy ends the connection."""
        listener = self._listener
        authenticator = Authenticator.of(listener.store)
        name = listener.store.directory.user_id(user) if user else ""
        return max(1, math.ceil(authenticator.slow.delay(authenticator.place(peer), name)))


def _name(octets: bytes) -> str:
    """The login name; "" for what cannot be one."""
    try:
        name = octets.decode()
    except UnicodeDecodeError:
        return ""
    return name if len(octets) <= LONGEST_NAME and name.isprintable() else ""


def _words(protocol: str, error: StoreError) -> str:
    """What the proxy says after NO, -ERR, or the code of SMTP."""
    text = "The user name or the password is wrong" if error.problem is Problem.BAD_LOGIN else error.public
    text = text[:1].upper() + text[1:]
    if protocol == "imap":
        return f"[{imap.refusals.code(error).decode('ascii')}] {text}"
    if protocol == "pop3" and (code := pop3.refusals.CODES[error.problem]):
        return f"[{code}] {text}"
    return text
