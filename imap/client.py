"""The client of a session: who it has proved to be, how it may do so, and what it has enabled."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from imap.capabilities import capabilities
from imap.commandreader import CommandReader
from imap.refusals import code
from imap.settings import Settings
from imap.states import Farewell
from imap.wire import responses
from imap.wire.commands import State
from store.accounts.base import Account
from store.accounts.refusallines import befell
from store.errors import StoreError
from store.net.authentication import Authenticator
from store.net.callers import Admitted, Caller
from store.net.linestates import Clock
from store.net.openlogins import OpenLogin
from store.net.stream import Stream
from store.progress import Progress
from store.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

_UTF8 = (b"IMAP4REV2", b"UTF8=ACCEPT")


class Client(ABC):
    """What a `Session` knows of it; the rest of a session is what the client asks for."""

    def __init__(self, stream: Stream, store: Store, settings: Settings, clock: Clock) -> None:
        self.stream = stream
        self.store = store
        self.settings = settings
        self.clock = clock
        self.authenticator = Authenticator.of(store)
        self.state = State.NOT_AUTHENTICATED
        self.login: OpenLogin | None = None
        self.user = ""                          # the user id; nothing before login
        self.enabled: frozenset[bytes] = frozenset()    # what ENABLE and CONDSTORE-enabling commands have turned on
        self.rev2 = False                       # whether that has IMAP4rev2 (RFC 9051)
        self.utf8 = False                       # whether mailbox names and quoted strings are UTF-8 (RFC 9051 §5.1,
                                                # RFC 6855 §3)
        self.failed_logins = 0
        self.client = ""                        # what the client says it is (RFC 2971), for administrators
        self.ending = "server error"            # why the session ended
        self.warned: set[str] = set()           # quota roots of which the user has been told that they are nearly full
        self.reading = CommandReader(stream, settings, clock)

    @abstractmethod
    async def patiently(self, work: Awaitable[T], progress: Progress | None = None) -> T:
        """See `Session`."""

    @abstractmethod
    def leave(self) -> None:
        """See `Session`."""

    @abstractmethod
    def account_changed(self) -> None:
        """See `Session`."""

    @property
    def account(self) -> Account | None:
        """As it was at the login; None before that."""
        return self.login.admitted.account if self.login is not None else None

    def have_enabled(self, names: Iterable[bytes]) -> None:
        """Let these, and no others, be what the client has turned on."""
        self.enabled = frozenset(names)
        self.rev2 = b"IMAP4REV2" in self.enabled
        self.utf8 = not self.enabled.isdisjoint(_UTF8)

    @property
    def acts(self) -> bool:
        """Whether an administrator acts as the user."""
        return self.login is not None and self.authenticator.is_administrator_acting(self.login.admitted)

    @property
    def only_reads(self) -> bool:
        """Whether the client may change nothing (an app password for reading)."""
        return self.login is not None and self.login.admitted.only_reads

    @property
    def caller(self) -> Caller:
        """Who wants in; passwords may be sent under TLS, from this host, or when settings say so."""
        private = self.settings.plaintext_login or self.authenticator.is_private(self.stream)
        return Caller(self.stream, "imap", private)

    @property
    def refers_logins(self) -> bool:
        """Whether who has logged in rightly hears on which other back end the mail is: not behind a proxy, which finds
        that by itself."""
        return bool(self.store.settings.host) and self.settings.referrals and not self.stream.proxy

    @property
    def refers_to_mailboxes(self) -> bool:
        """Whether who has logged in hears where the mail of others is."""
        return bool(self.store.settings.host) and self.settings.referrals and self.settings.mailbox_referrals

    @property
    def administrator(self) -> bool:
        """Whether the user may do what concerns others: set limits (RFC 9208 §4.1.3)."""
        return self.account is not None and self.account.user in self.settings.administrators

    def capability_code(self) -> bytes:
        """CAPABILITY and what is announced now: a response code, or data after `* `."""
        authenticator, logged_in = self.authenticator, self.login is not None
        caller = None if logged_in else self.caller
        return responses.capability_code(capabilities(
            logged_in=logged_in, can_start_tls=self.stream.can_start_tls,
            may_log_in=caller is not None and authenticator.takes_passwords(caller),
            append_limit=self.store.settings.message_limit, administrator=logged_in and self.administrator,
            refers=self.refers_logins,
            sieve_url=self.settings.sieve_url,
            mechanisms=() if caller is None else authenticator.mechanisms(caller)))

    def log_in(self, admitted: Admitted) -> None:
        """The client has proved who it is; the user's INBOX is there."""
        account = admitted.account
        self.stream.enter(account.user)
        self.login = OpenLogin.begin(self.store, admitted, self.account_changed)
        self.user = account.user
        self.state = State.AUTHENTICATED
        self.reading.log_in()
        befell(log, self.stream.id, f"{account.user} logged in from {self.stream.peer}{admitted.how}")

    @property
    def app_password(self) -> str:
        """The name of the app password by which the user has logged in; "" for any other login."""
        return self.login.admitted.by_name if self.login is not None else ""

    def log_out(self) -> None:
        """Nobody is logged in any more; another may (RFC 8437)."""
        self.stream.tell_end("imap", self.user, "unauthenticate", app_password=self.app_password)
        self.leave()
        self.stream.leave()
        self.end_login()
        self.state = State.NOT_AUTHENTICATED
        self.have_enabled(())
        self.warned.clear()
        self.reading.log_out()

    def end_login(self) -> None:
        """Nobody is logged in any more."""
        login, self.login, self.user = self.login, None, ""
        if login is not None:
            login.leave()

    def require_login(self) -> None:
        """Raises Farewell when the login does not hold any more: see `store.net.openlogins`."""
        if self.login is not None:
            try:
                self.login.require()
            except StoreError as ended:
                raise farewell(ended) from None


def farewell(ended: StoreError) -> Farewell:
    """The end of a session whose login holds no more."""
    return Farewell(ended.public[:1].upper() + ended.public[1:], code(ended))
