"""Who the relay is at the other end, and how far it is believed: by its address, its certificate, a login, or what a
proxy says of it."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from attrs import frozen

from lmtp import noting, replies
from lmtp.access import Access, Trust
from lmtp.login import log_in, mechanisms, not_looked_at
from lmtp.replies import Farewell, Reply
from lmtp.settings import Settings
from lmtp.states import State
from lmtp.wire import XCLIENT_NAMES, Auth, Starttls, Xclient
from store.accounts import refusallines
from store.errors import StoreError
from store.net.limits import is_this_host
from store.net.openlogins import OpenLogin
from store.net.stream import Stream
from store.store import Store

RELAYS = Trust.RELAY, Trust.TRUSTED
UNKNOWN = "unknown"     # in the place of an address that a proxy does not know: in no network

log = logging.getLogger(__name__)


@frozen(eq=False)
class Listener:
    """What all sessions of a server share. `clock` measures spans of time, `now` is Unix time; `guaranteed`: mail that
    comes here ignores quota."""

    store: Store
    settings: Settings
    access: Access
    clock: Callable[[], float]
    now: Callable[[], float]
    guaranteed: bool = False


class Relay(ABC):
    """What a `Session` knows of it; the rest of a session takes mail."""

    def __init__(self, stream: Stream, listener: Listener) -> None:
        self._stream = stream
        self._listener = listener
        self._settings = listener.settings
        self._state = State.STRANGER
        self._client = ""               # what LHLO said
        self._peer = stream.peer        # this and the next two may be what a proxy said
        self._name = self._helo = ""
        self._login_by = listener.clock() + listener.settings.login_time
        self._user = ""                 # as whom the relay has logged in,
        self._login: OpenLogin | None = None    # if it has said so itself
        self._found_trust: Trust | None = None
        self._errors = 0                # since the last message
        self._open = True

    @abstractmethod
    def _reset(self) -> None:
        """See `Session`."""

    async def _greet(self) -> None:
        """The greeting, or a refusal. Raises ConnectionLost, TimedOut."""
        if self._stream.secure and self._trust is Trust.STRANGER:     # its certificate comes with the handshake
            await self._stream.established(self._settings.command_time)
            self._found_trust = None
        lost = self._stream.secure and self._trust is Trust.STRANGER and not self._listener.access.auth_users
        if lost or self._trust is Trust.REFUSED:
            refusallines.refused(refusallines.ADDRESS, self._peer, "", "lmtp", "not in lmtp.networks",
                                 session=self._stream.id)
            noting.refused(self._listener.store.delivery_log, noting.Envelope(
                "", self._peer, None, self._stream.id), (),
                           replies.REFUSED,
                           "the client may not deliver here: lmtp.networks")
            self._say(replies.REFUSED)
            self._open = False
        else:
            self._say(replies.greeting(self._settings.hostname))

    @property
    def _trust(self) -> Trust:
        if self._found_trust is None:
            certificate = self._stream.certificate_names if self._peer == self._stream.peer else ()     # else a proxy's
            trust = self._listener.access.trust(self._peer, certificate, self._user)
            if self._stream.handshaking:        # it may yet show a certificate
                return trust
            self._found_trust = trust
            if trust in RELAYS:
                self._stream.no_longer_early()
        return self._found_trust

    @property
    def _time(self) -> float:
        """How long the next line may take."""
        if self._trust is not Trust.STRANGER or self._may_proxy:
            return self._settings.command_time
        return min(self._settings.command_time, max(0.0, self._login_by - self._listener.clock()))

    def _extensions(self) -> Iterator[str]:
        """What is offered to this client and not to all."""
        if self._trust is Trust.TRUSTED:
            yield from ("IGNOREQUOTA", "XQUOTA")
        if self._may_proxy:
            yield " ".join(("XCLIENT", *XCLIENT_NAMES))
        if self._may_log_in:
            yield " ".join(("AUTH", *mechanisms(self._stream, self._listener.store)))
        if self._stream.can_start_tls:
            yield "STARTTLS"

    def _require_login(self) -> None:
        """Raises Farewell when the login of the relay holds no more."""
        assert self._login is not None
        try:
            self._login.require()
        except StoreError as ended:
            raise Farewell(replies.login_ended(ended.public)) from None

    def _log_out(self) -> None:
        login, self._login, self._user = self._login, None, ""
        if login is not None:
            login.leave()

    async def _starttls(self, command: Starttls) -> None:
        if not self._stream.can_start_tls:
            self._refuse(replies.TLS_ALREADY if self._stream.secure else replies.NOT_OFFERED)
            return
        self._say(replies.TLS_READY)
        self._stream.start_tls()
        self._client = ""                   # RFC 3207 §4.2: nothing said before counts
        self._log_out()
        self._found_trust = None
        self._reset()

    @property
    def _may_log_in(self) -> bool:
        here = self._stream.secure or is_this_host(self._stream.peer)
        return bool(self._listener.access.auth_users) and here and not self._user

    async def _auth(self, command: Auth) -> None:
        users = self._listener.access.auth_users
        wrong = (replies.NOT_OFFERED if not users else replies.AUTH_ALREADY if self._user else
                 None if self._may_log_in else replies.ENCRYPT_FIRST)
        if wrong is not None:
            not_looked_at(self._stream, self._listener.store, wrong.lines[0])
            self._refuse(wrong)
        else:
            admitted, reply = await log_in(
                self._stream, self._listener.store, command, users, self._settings.command_time)
            if admitted is not None:
                self._user = admitted.account.user
                self._login = OpenLogin.begin(self._listener.store, admitted, cuts=False)
            self._found_trust = None
            log.info("%s: AUTH %s from %s: %s", self._stream.id, self._user, self._peer, reply)
            if self._user:
                self._say(reply)
            else:
                self._refuse(reply)

    @property
    def _may_proxy(self) -> bool:
        return self._listener.access.trust(self._stream.peer) is Trust.TRUSTED

    async def _xclient(self, command: Xclient) -> None:
        if not self._may_proxy:
            self._refuse(replies.NOT_TRUSTED)
            return
        if command.address is not None:         # another client, of whom nothing has been said
            self._peer = command.address or UNKNOWN
            self._name = self._helo = ""
            self._log_out()
        self._name = self._name if command.name is None else command.name
        self._helo = self._helo if command.helo is None else command.helo
        self._user = self._user if command.login is None else command.login
        log.info("%s: XCLIENT: this is %s", self._stream.id, self._peer)
        self._client, self._found_trust = "", None
        self._reset()
        await self._greet()

    def _say(self, reply: Reply) -> None:
        self._stream.write(reply.octets)

    def _refuse(self, reply: Reply) -> None:
        """Answer a command that makes no sense, and count it."""
        self._say(reply)
        if reply is not replies.NO_RECIPIENTS:
            self._errors += 1
            if self._errors > self._settings.error_limit:
                raise Farewell(replies.TOO_MANY_ERRORS)
