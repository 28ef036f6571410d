"""Who gets in: the one way of every login, whichever protocol carries it and by whatever mechanism (RFC 4422)."""

import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from attrs import define, field

from store import hosting, offload
from store.accounts import mechanisms as sasl
from store.accounts.accessrules import BadRule, Rules
from store.accounts.apppasswords.applogins import AppLogins
from store.accounts.apppasswords.apppassword import SERVICES, AppPassword
from store.accounts.base import Account
from store.accounts.loginsettings import REQUIRED, Settings
from store.accounts.mechanisms import (
    MECHANISMS,
    Challenge,
    Channel,
    CheckPassword,
    CheckToken,
    FindKeys,
    FindNamed,
    GivenUp,
    Malformed,
    NotOffered,
    Proved,
    Question,
)
from store.accounts.networks import Networks
from store.accounts.rejectedlogins import RejectedLogins
from store.accounts.sasl.scram import PLUS
from store.accounts.throttle.loginmemory import LoginMemory
from store.accounts.throttle.slowdown import NOWHERE, Place, SlowDown, Turn
from store.accounts.tokens import Tokens
from store.audit.sessionaudit import note
from store.errors import Problem, StoreError
from store.net.callers import IN_THE_CLEAR, Admitted, Caller, Elsewhere, Line
from store.net.limits import is_this_host
from store.net.linestates import ConnectionLost
from store.net.stream import Stream
from store.store import Store
from store.values import Secret

log = logging.getLogger(__name__)

LOOK = 1.0                  # seconds after which one that waits looks whether its user has become known where it is

Talk = Callable[[bytes], Awaitable[Secret]]     # says a challenge, and reads the response




@define(eq=False)
class Authenticator:
    """Shared by all servers of a process. `memory`: what all processes know of logins."""

    store: Store
    settings: Settings
    memory: LoginMemory = field(factory=LoginMemory.private)
    slow: SlowDown = field(init=False)
    _tokens: Tokens = field(init=False)
    _lines: dict[tuple[str, str], Line] = field(factory=dict, init=False)
    _excluded: Networks = field(init=False)
    _proxies: Networks = field(init=False)
    _offered: frozenset[str] = field(init=False)
    app_logins: AppLogins = field(init=False)
    place: Callable[[str], Place] = field(init=False)   # of a peer, as failed logins count by it
    failed: int = field(default=0, init=False)      # logins since the start
    turned: RejectedLogins = field(init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self.slow = SlowDown(settings.scale, self.memory)
        self.turned = RejectedLogins(self.store.refusals, self.store.directory)
        self.app_logins = AppLogins(self.store.root, settings)
        self._tokens = Tokens(settings)
        self._excluded, self._proxies = Networks.parse(settings.slow_exclude), Networks.parse(settings.proxy_networks)
        self._offered = settings.offered
        self.place = lru_cache(maxsize=10_000)(self._place)
        self.store.directory.remember_for(settings.remember_time)

    def follow(self, settings: Settings) -> None:
        """Have these settings from now on. What is remembered of failed logins stays."""
        slow, turned, app_logins = self.slow, self.turned, self.app_logins
        self.settings = app_logins.settings = settings
        self.__attrs_post_init__()
        self.slow, self.turned, self.app_logins = slow, turned, app_logins
        slow.follow(settings.scale)

    @classmethod
    def of(cls, store: Store) -> "Authenticator":
        """The authenticator of an open store. Until `attach` it has default settings and slows nobody down."""
        return store.owned.get(cls, lambda: cls(store, Settings(slow_first=0)))

    def is_secure(self, stream: Stream) -> bool:
        """Whether the client speaks TLS, to us or to the proxy through which it comes."""
        return stream.secure or bool(stream.proxy and self.settings.proxies_use_tls)

    def is_private(self, stream: Stream) -> bool:
        """Whether nobody else can read what the client sends."""
        return self.is_secure(stream) or is_this_host(stream.peer)

    def believes(self, stream: Stream) -> bool:
        """Whether the peer is a proxy that may say for whom it connects."""
        return not stream.proxy and stream.peer in self._proxies

    def is_familiar(self, peer: str) -> bool:
        """Whether an address is one of ours, or somebody has logged in from it before."""
        return peer in self._excluded or peer in self._proxies or self.slow.former.has(self.place(peer).address, "")

    def takes_passwords(self, caller: Caller) -> bool:
        """Whether a name and a password are taken without SASL: where PLAIN or LOGIN is."""
        return caller.passwords and not self._offered.isdisjoint(("PLAIN", "LOGIN"))

    def mechanisms(self, caller: Caller) -> tuple[str, ...]:
        """The mechanisms that the client may use as the connection is now."""
        return tuple([name for name in MECHANISMS if name in self._offered and self._possible(name, caller)])

    def _possible(self, name: str, caller: Caller) -> bool:
        if not caller.passwords:            # SCRAM sends none, and the mail would follow in the clear
            return False
        if name.startswith("SCRAM-"):
            required = self.settings.app_passwords == REQUIRED and caller.service in SERVICES
            return not required and self.store.directory.has_keys and (not name.endswith(PLUS)
                                                                       or caller.stream.can_bind)
        if name == "EXTERNAL":
            return bool(caller.stream.certificate_names)
        return True

    async def password(self, caller: Caller, user: str, password: Secret) -> Admitted:
        """A name and a password, without SASL.

        Raises StoreError BAD_LOGIN, NOT_AUTHORIZED, LIMIT, UNAVAILABLE, Elsewhere; ConnectionLost, Stopping.
        """
        attempt = _Attempt(self, caller)
        with attempt:
            account = await attempt.answer(CheckPassword(user, password))
            return await attempt.admit(Proved(account), "")

    async def second_factor(self, caller: Caller, user: str, check: Callable[[], bool]) -> None:
        """What a user shows beside the password, which has been right; `check`, in a thread, says whether it is. Wrong
        ones are slowed down, and told to the log, as wrong passwords are.

        Raises StoreError BAD_LOGIN, LIMIT, and what `check` raises; ConnectionLost, Stopping.
        """
        attempt = _Attempt(self, caller)
        with attempt:
            await attempt.second(user, check)

    async def authenticate(self, caller: Caller, mechanism: str, initial: Secret | None, talk: Talk) -> Admitted:
        """A SASL exchange, from the initial response if there is one.

        Raises NotOffered, Malformed, StoreError BAD_LOGIN, NOT_AUTHORIZED, LIMIT, UNAVAILABLE, Elsewhere;
        ConnectionLost, Stopping; and what `talk` raises: GivenUp, if the client does not go on.
        """
        offered = self.mechanisms(caller)
        if mechanism not in offered:
            self.not_looked_at(caller, f"{mechanism} is not offered" if caller.passwords else IN_THE_CLEAR)
            raise NotOffered
        stream = caller.stream
        channel = Channel(stream.secure, stream.certificate_names, stream.channel_binding,
                          any(name.endswith(PLUS) for name in offered))
        exchange = sasl.begin(mechanism, channel, self.settings.wanted)
        attempt = _Attempt(self, caller)
        with attempt:
            try:
                step = next(exchange)
                while True:
                    if isinstance(step, Challenge):
                        attempt.pass_on()
                        response = initial if initial is not None else await talk(step.octets)
                        initial = None
                        step = exchange.send(response.reveal())
                        continue
                    try:
                        answer = await attempt.answer(step)
                    except StoreError as error:
                        attempt.refused(error)
                        step = exchange.throw(error)
                    else:
                        step = exchange.send(answer)
            except StopIteration as end:
                return await attempt.admit(end.value, mechanism)
            except Malformed as problem:
                attempt.left_off(str(problem))
                raise
            except GivenUp as problem:
                attempt.left_off(str(problem), given_up=not problem.malformed)
                raise
            finally:
                exchange.close()

    def not_looked_at(self, caller: Caller, why: str, name: str = "", *, given_up: bool = False) -> None:
        """A login, of who calls itself that, is refused of which the directory is not asked."""
        user = self.store.directory.user_id(name) if name else ""
        self.turned.not_looked_at(caller.service, caller.peer, user, why, given_up=given_up, session=caller.stream.id)

    def _place(self, peer: str) -> Place:
        return NOWHERE if peer in self._excluded else Place.of(peer)

    async def check_token(self, token: Secret) -> Account:
        """The account of the one to whom a token was given. Raises StoreError BAD_LOGIN, UNAVAILABLE."""
        name = self._tokens.remembered(token)
        if not name:
            name = await offload.run(self.store, "tokens", self._tokens.check, token)
        return await self._login_account(name)

    async def find_named(self, names: tuple[str, ...]) -> Account:
        """The account with one of the names of a certificate. Raises StoreError BAD_LOGIN, UNAVAILABLE."""
        for name in names:
            try:
                return await self._login_account(name)
            except StoreError as error:
                if error.problem is not Problem.BAD_LOGIN:
                    raise
        raise StoreError(Problem.BAD_LOGIN, detail="nobody has the name of the certificate")

    async def _login_account(self, name: str) -> Account:
        found = await hosting.find(self.store, self.store.directory.user_id(name))
        if found is None or not found.status.may_log_in:
            raise StoreError(Problem.BAD_LOGIN)
        return found

    async def app_password(self, login: str, password: Secret, service: str) -> tuple[Account, AppPassword] | None:
        """The user whose app password that is, and its name. Raises StoreError UNAVAILABLE, CORRUPT."""
        directory = self.store.directory
        account = await hosting.look_up(self.store, login)
        if account is None or not account.status.may_log_in or not directory.is_login(login, account):
            return None
        found = self.app_logins.find(account.user, password, service)
        return None if found is None else (account, found)

    async def authorize(self, proved: Proved, caller: Caller, mechanism: str, app_password: AppPassword | None = None
                        ) -> Admitted:
        """The client has proved who it is; whether it may act as it wants to, and use the service, here.

        Raises StoreError NOT_AUTHORIZED, UNAVAILABLE; Elsewhere.
        """
        own, stream = proved.account, caller.stream
        wanted = self.store.directory.user_id(proved.acts_as) if proved.acts_as else own.user
        account = own
        if wanted != own.user:
            if app_password is not None:
                raise StoreError(Problem.NOT_AUTHORIZED, "An app password opens its own user's mail alone")
            self._require_acting(own.user, wanted, stream)
            found = await hosting.find(self.store, wanted)
            if found is None or not found.status.may_log_in:
                raise StoreError(Problem.NOT_AUTHORIZED, "Nobody can act as that user", f"{own.user} as {wanted!r}")
            account = found
            log.info("%s: %s acts as %s, from %s", stream.id, own.user, wanted, caller.peer)
        admitted = Admitted(account, own, caller, mechanism, app_password, stream.clock.seconds())
        self.require(admitted)
        if wanted != own.user:
            kind = "proxy" if self.is_for_proxy(admitted) else "act"
            await note(self.store, kind, "login", actor=own.user, user=wanted, address=caller.peer,
                       service=caller.service, session=stream.id, mechanism=mechanism)
        return admitted

    def require(self, admitted: Admitted) -> None:
        """Whether these accounts, as they are now, may do that: asked at the login, and while its session is open.

        Raises StoreError NOT_AUTHORIZED, UNAVAILABLE; Elsewhere.
        """
        own, account, caller = admitted.own, admitted.account, admitted.caller
        self._require_password(admitted)
        if account.user != own.user:
            self._require_acting(own.user, account.user, caller.stream)
        for subject in (own, account) if self.is_for_proxy(admitted) else (own,):
            self._require_access(subject, caller)
        if not caller.anywhere and not hosting.is_here(self.store, account):
            raise Elsewhere(account)

    def _require_password(self, admitted: Admitted) -> None:
        """Whether the password by which that was proved does, and goes on to do."""
        user, shown = admitted.own.user, admitted.app_password
        if shown is not None:
            if not self.app_logins.still(user, shown):
                raise StoreError(Problem.LOGIN_EXPIRED, "The app password holds no more", f"app password {shown.id}")
        elif admitted.by_password and self.app_logins.requires(user, admitted.caller.service):
            raise StoreError(Problem.LOGIN_EXPIRED, "An app password is needed now")

    def is_for_proxy(self, admitted: Admitted) -> bool:
        """Whether a proxy lets a user in, who has proved to the proxy to be that one, and may not use what the user's
        rules deny."""
        own = admitted.own.user
        return admitted.account.user != own and own not in self.settings.administrators

    def is_administrator_acting(self, admitted: Admitted) -> bool:
        """Whether this login is of an administrator who acts as the user."""
        return admitted.account.user != admitted.own.user and not self.is_for_proxy(admitted)

    def _require_acting(self, own: str, wanted: str, stream: Stream) -> None:
        proxy = own in self.settings.proxies and (stream.proxy or stream.peer) in self._proxies
        if not proxy and own not in self.settings.administrators:
            raise StoreError(Problem.NOT_AUTHORIZED, "You may not act as another user", f"{own} as {wanted!r}")

    def offers(self, mechanism: str) -> bool:
        """Whether logins by that one ("": without SASL) are taken from anybody."""
        return not self._offered.isdisjoint((mechanism,) if mechanism else ("PLAIN", "LOGIN"))

    def _require_access(self, account: Account, caller: Caller) -> None:
        own = self.store.directory.access_rules(account)
        secure = self.is_secure(caller.stream) if caller.behind is None else caller.behind.secure
        for text in (self.settings.service_access, own or self.settings.access):
            try:
                rules = Rules.parse(text)
            except BadRule as error:
                raise StoreError(Problem.UNAVAILABLE, detail=f"access rules of {account.user}: {error}") from None
            if not rules.allow(caller.service, caller.peer, secure=secure):
                raise StoreError(Problem.NOT_AUTHORIZED, "This service is not for you from where you are",
                                 f"{account.user}: {caller.service} from {caller.peer}")

    def line(self, key: tuple[str, str]) -> Line:
        """The logins that wait for a turn under that key."""
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = Line()
        return found

    def left(self, key: tuple[str, str]) -> None:
        """Note that one of them has had its turn."""
        if self._lines[key].leave():
            del self._lines[key]


def attach(store: Store, settings: Settings, memory: LoginMemory | None = None) -> None:
    """Have all logins of this process obey these settings, and share that memory with other processes."""
    store.owned.put(Authenticator, Authenticator(store, settings, memory or LoginMemory.private()))
    if settings.oauth_lacks:
        log.error("no token is taken, and OAUTHBEARER and XOAUTH2 are not offered: set %s", settings.oauth_lacks)
    if store.directory.has_keys and settings.kept_keys:
        store.directory.find_keys("", MECHANISMS[0].removesuffix(PLUS))     # what has to be made and synced once, is


@define(eq=False)
class _Attempt:
    """One login. Used as a context, it counts how the login ended, and gives the turn to the next one."""

    _authenticator: Authenticator
    _caller: Caller
    _place: Place = field(init=False)
    _user: str = ""                             # whoever the client says to be
    _shown: Secret | None = None                # a password or token by which it may be the same login again
    _turn: Turn | None = None                   # what it counts under
    _looked_at: bool = False
    _refused: bool = False
    _key: tuple[str, str] | None = None         # of the line in which it has its turn
    _app_password: AppPassword | None = None    # that was shown, and holds

    def __attrs_post_init__(self) -> None:
        self._place = self._authenticator.place(self._caller.peer)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, StoreError):
            self.refused(error)
        elif self._turn is not None and not self._looked_at:
            self._authenticator.slow.release(self._turn)
        self.pass_on()

    def refused(self, error: StoreError) -> None:
        """Count the login as failed, though the client may yet have something to say."""
        if self._refused:
            return
        self._refused = True
        authenticator, caller, turn = self._authenticator, self._caller, self._turn
        guess = True
        if error.problem is Problem.BAD_LOGIN:
            authenticator.failed += 1
            if turn is not None:
                guess = authenticator.slow.failed(turn, self._shown)
        elif turn is not None:
            authenticator.slow.release(turn)
        authenticator.turned.refused(
            caller.service, caller.peer, self._user, error, again=not guess, session=caller.stream.id,
            app_password=self._app_password.name if self._app_password is not None else "")

    def left_off(self, why: str, *, given_up: bool = False) -> None:
        """The exchange has ended before its end. What was refused before has been told."""
        if not self._refused:
            self._authenticator.not_looked_at(self._caller, why, self._user, given_up=given_up)

    def pass_on(self) -> None:
        """The next one's turn: nobody waits for what a client says."""
        key, self._key = self._key, None
        if key is not None:
            self._authenticator.left(key)

    async def admit(self, proved: Proved, mechanism: str) -> Admitted:
        """The end of a good one. Raises StoreError NOT_AUTHORIZED, UNAVAILABLE."""
        slow, user = self._authenticator.slow, proved.account.user
        slow.succeeded(self._turn or slow.untaken(self._place), user)
        self._user = self._user or user
        return await self._authenticator.authorize(proved, self._caller, mechanism, self._app_password)

    async def answer(self, question: Question) -> Any:
        """What the directory says. Raises StoreError, ConnectionLost, Stopping."""
        store = self._authenticator.store
        if isinstance(question, FindNamed):
            return await self._authenticator.find_named(question.names)
        if isinstance(question, FindKeys):          # what they tell, anybody may know
            user = store.directory.user_id(question.user)
            if self._authenticator.app_logins.requires(user, self._caller.service):
                return await offload.change(store, lambda: (store.directory.nobodys_keys(
                    question.user, question.mechanism), None))
            return await offload.change(store, lambda: store.directory.find_keys(question.user, question.mechanism))
        await self._wait(question.user)
        self._looked_at = True
        if isinstance(question, sasl.Turn):
            return None
        if isinstance(question, CheckToken):
            self._shown = question.token
            return await self._authenticator.check_token(question.token)
        return await self._check_password(question.user, question.password)

    async def _check_password(self, login: str, password: Secret) -> Account:
        """The account with that password, an app password or the directory's. One that is wrong, that has ended, or
        that does not do, takes the same time to be refused, whatever passwords the user has."""
        self._shown = password
        store, app_logins, service = self._authenticator.store, self._authenticator.app_logins, self._caller.service
        if app_logins.takes(service, password):
            found = await self._authenticator.app_password(login, password, service)
            if found is not None:
                account, self._app_password = found
                return account
        kind = "doubtful" if self._turn is not None and self._turn.doubtful else "directory"
        user = store.directory.login_user(login)
        if app_logins.requires(user, service):
            kind = "remote" if kind == "directory" and store.directory.remote else kind
            await offload.run(store, kind, store.directory.turn_away, login, password)
        account = await account_that_logs_in(store, login, password, kind)
        if account.user != user and app_logins.requires(account.user, service):    # the directory has said who that is
            raise StoreError(Problem.BAD_LOGIN)
        return account

    async def second(self, user: str, check: Callable[[], bool]) -> None:
        """A second factor is shown. Who knows the password cannot make its failures forgotten by logging in again: they
        count under a name of their own."""
        self._user = user
        await self._take_turn(f"{user} (second factor)")
        self._looked_at = True
        if not await offload.run(self._authenticator.store, "directory", check):
            raise StoreError(Problem.BAD_LOGIN, detail="second factor")
        if self._turn is not None:
            self._authenticator.slow.succeeded(self._turn, self._turn.user)

    async def _wait(self, name: str) -> None:
        """Wait for as long as earlier failures demand, and for a turn."""
        self._user = self._authenticator.store.directory.user_id(name) if name else ""
        if self._place.address or self._user:       # else a token, by way of an address that does not count
            await self._take_turn(self._user)

    async def _take_turn(self, counted: str) -> None:
        authenticator, stream = self._authenticator, self._caller.stream
        self._turn = turn = authenticator.slow.take(self._place, counted)
        if turn.wait > 0:
            log.debug("%s: a login from %s waits for %.2f s", stream.id, self._caller.peer, turn.wait)
            authenticator.turned.waits(self._caller.service, self._caller.peer, self._user, turn.wait)
            await self._pause(turn)
        key = authenticator.slow.line(self._place, counted)
        self._key = key
        await authenticator.line(key).enter(stream)
        if stream.lost:
            raise ConnectionLost

    async def _pause(self, turn: Turn) -> None:
        slow = self._authenticator.slow
        end = slow.clock() + turn.wait
        stranger = not slow.knows(turn.place, turn.user)
        while (left := end - slow.clock()) > 0 and not (stranger and slow.knows(turn.place, turn.user)):
            await self._caller.stream.pause(min(left, LOOK))


async def account_that_logs_in(store: Store, login: str, password: Secret, kind: str = "directory") -> Account:
    """The account that logs in. Raises StoreError BAD_LOGIN, UNAVAILABLE. `kind`: of the threads that do it."""
    account = store.directory.remembers(login, password)
    if account is None:
        if kind == "directory" and store.directory.remote:
            kind = "remote"                     # there a login waits, and costs no time of a processor
        account = await offload.run(store, kind, store.directory.authenticate, login, password)
    return account
