"""USER and PASS, and AUTH: RFC 1939 §7, RFC 5034."""

from collections.abc import Awaitable, Callable

from attrs import define

from pop3 import replies
from pop3.refusals import CODES, refusal
from pop3.replies import ok, refused
from pop3.settings import Settings
from pop3.states import Farewell
from pop3.wire import Auth, Pass, SyntaxProblem, User, response
from store.accounts.mechanisms import GivenUp, Malformed, NotOffered
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.callers import IN_THE_CLEAR, Admitted, Caller
from store.net.linestates import LineTooLong
from store.net.stream import Stream
from store.store import Store
from store.values import Secret

LOGINS = (b"USER", b"PASS", b"AUTH", b"APOP")


class _GivenUp(GivenUp):
    """The exchange ends without a login; whether the client has broken its rules."""

    def __init__(self, reply: bytes, *, malformed: bool = False) -> None:
        super().__init__(reply.decode("ascii").rstrip().removeprefix("-ERR "), malformed=malformed)
        self.reply = reply


@define(eq=False)
class Login:
    """What a client says until it is logged in. `enter` opens the maildrop and answers; the other three are the
    session's, too: how it says something, answers a command that makes no sense, and reads a line in time."""

    _stream: Stream
    _store: Store
    _settings: Settings
    _say: Callable[[bytes], None]
    _refuse: Callable[[bytes], None]
    _line: Callable[[int], Awaitable[bytes]]
    _enter: Callable[[Admitted], Awaitable[None]]
    name: str | None = None                     # what USER said, until the command after it
    _failed: int = 0

    @property
    def caller(self) -> Caller:
        """Who wants in; passwords may be sent under TLS, from this host, or where that is allowed to everybody."""
        private = self._settings.plaintext_login or Authenticator.of(self._store).is_private(self._stream)
        return Caller(self._stream, "pop", private)

    def capabilities(self) -> list[str]:
        """What CAPA says of it (RFC 2449 §6.3, RFC 5034 §3)."""
        authenticator, caller = Authenticator.of(self._store), self.caller
        mechanisms = authenticator.mechanisms(caller)
        return [*(["USER"] if authenticator.takes_passwords(caller) else []),
                *([" ".join(("SASL", *mechanisms))] if mechanisms else [])]

    def not_looked_at(self, why: str, name: str = "") -> None:
        """A login is refused of which the directory is not asked."""
        Authenticator.of(self._store).not_looked_at(self.caller, why, name)

    async def user(self, command: User) -> None:
        """A name, for the password that comes next."""
        authenticator, caller = Authenticator.of(self._store), self.caller
        if not authenticator.takes_passwords(caller):
            self.not_looked_at("passwords are not taken without SASL" if caller.passwords else IN_THE_CLEAR,
                               command.name)
            self._refuse(replies.NEEDS_TLS)
            return
        self.name = command.name                # who is there, and who not, is not told
        self._say(ok("send the password"))

    async def password(self, command: Pass) -> None:
        """The password of the name that came just before."""
        name, self.name = self.name, None
        if name is None:                        # RFC 1939 §7: only right after USER
            self.not_looked_at("USER comes first")
            self._refuse(refused("USER comes first"))
            return
        await self._log_in(name, Authenticator.of(self._store).password(self.caller, name, command.password))

    async def auth(self, command: Auth) -> None:
        """A SASL exchange."""
        authenticator, caller = Authenticator.of(self._store), self.caller
        if not command.mechanism:               # no RFC has it, clients ask it
            self._say(replies.several("mechanisms", authenticator.mechanisms(caller)))
            return
        try:
            await self._log_in("", authenticator.authenticate(caller, command.mechanism, command.initial, self._talk))
        except NotOffered:
            self._refuse(refused("unknown mechanism") if caller.passwords else replies.NEEDS_TLS)
        except Malformed as problem:
            raise SyntaxProblem(str(problem)) from None
        except _GivenUp as reason:
            if reason.malformed:
                self._refuse(reason.reply)
            else:
                self._say(reason.reply)

    async def _talk(self, octets: bytes) -> Secret:
        self._say(replies.challenge(octets))
        try:
            line = await self._line(self._settings.response_limit)
        except LineTooLong:
            raise _GivenUp(replies.LINE_TOO_LONG, malformed=True) from None
        if line == b"*":                        # RFC 5034 §4
            raise _GivenUp(refused("the exchange was cancelled"))
        try:
            return response(line)
        except SyntaxProblem as problem:
            raise _GivenUp(refused(str(problem)), malformed=True) from None

    async def _log_in(self, name: str, login: Awaitable[Admitted]) -> None:
        try:
            admitted = await login
        except StoreError as error:
            if CODES[error.problem] != "AUTH" and error.problem is not Problem.LIMIT:
                raise
            self._refused(error)
            return
        await self._enter(admitted)

    def _refused(self, error: StoreError) -> None:
        self._failed += 1
        if self._failed >= self._settings.login_attempts:
            Authenticator.of(self._store).turned.at_admission("pop", self.caller.peer, "", "too many failed logins",
                                                                session=self._stream.id)
            raise Farewell(replies.TOO_MANY_LOGINS)
        self._say(refusal(error))
