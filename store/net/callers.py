"""Who knocks, who waits for a turn to log in, and who got in."""

import math
from collections import deque

from attrs import define, field, frozen
from twisted.internet.defer import Deferred

from store.accounts.apppasswords.apppassword import AppPassword
from store.accounts.base import Account
from store.accounts.mechanisms import WITHOUT_PASSWORD
from store.accounts.refusallines import quoted
from store.errors import Problem, StoreError
from store.net.stream import Stream

AT_ONCE = 2                 # logins from one address that are looked at; others wait in line
PATIENCE = 60.0             # seconds in which their turn must come
IN_THE_CLEAR = "passwords are taken only under TLS"


class Elsewhere(StoreError):
    """The client has proved to be a user whose mail another back end keeps."""

    def __init__(self, account: Account) -> None:
        super().__init__(Problem.ELSEWHERE, detail=f"the mail of {account.user} is on {account.host}")
        self.account = account


@frozen
class Behind:
    """A client for which a proxy asks on a connection of its own: where it is, and whether it speaks TLS there."""

    peer: str
    secure: bool


@frozen
class Caller:
    """A client that wants to log in: by which service ("imap", "pop", "lmtp"), and whether `passwords` may be sent on
    the connection.

    `anywhere`: it wants no mail, so that its mail may be on another back end.
    """

    stream: Stream
    service: str
    passwords: bool
    anywhere: bool = False
    behind: Behind | None = None

    @property
    def peer(self) -> str:
        """Where the client is."""
        return self.stream.peer if self.behind is None else self.behind.peer


@frozen
class Admitted:
    """The user who got in, and who that was in truth, `own`: not the same when an administrator or a proxy acts as a
    user.

    `mechanism`: by which that was proved ("": name and password, without SASL); `app_password`: the one that was shown,
    if it was no password of the directory; `looked`: when it was asked whether all of that may be, by the clock of the
    connection.
    """

    account: Account
    own: Account
    caller: Caller
    mechanism: str = ""
    app_password: AppPassword | None = None
    looked: float = field(default=-math.inf, eq=False)

    @property
    def authenticated(self) -> str:
        """The user id of who that was in truth."""
        return self.own.user

    @property
    def by_password(self) -> bool:
        """Whether the directory's password has proved it."""
        return self.app_password is None and self.mechanism not in WITHOUT_PASSWORD

    @property
    def only_reads(self) -> bool:
        """Whether nothing may be changed."""
        return self.app_password is not None and self.app_password.read_only

    @property
    def by_name(self) -> str:
        """The name of the app password; "" for any other login."""
        return "" if self.app_password is None else self.app_password.name

    @property
    def how(self) -> str:
        """Words for the log: which app password it was, or nothing."""
        shown = self.app_password
        return "" if shown is None else f" by app password {shown.id} {quoted(shown.name)}"


@define(eq=False)
class Line:
    """`AT_ONCE` may go on at a time, in the order in which they came."""

    _inside: int = 0
    _waiting: "deque[Deferred[None]]" = field(factory=deque)

    async def enter(self, stream: Stream) -> None:
        """Wait for a turn. Raises ConnectionLost, Stopping, StoreError LIMIT; `leave` in any case."""
        if self._inside < AT_ONCE:
            self._inside += 1
            return
        turn: Deferred[None] = Deferred()
        self._waiting.append(turn)
        try:
            came = await stream.until(turn, PATIENCE)
        except BaseException:
            self._give_up(turn)
            raise
        if not came:
            self._give_up(turn)
            raise StoreError(Problem.LIMIT, "Too many logins are waiting: try again later")

    def _give_up(self, turn: "Deferred[None]") -> None:
        """Give a login that has not had a turn yet one, to be given back: the caller calls `leave` in any case."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            self._inside += 1

    def leave(self) -> bool:
        """The next one's turn. Whether nobody is there any more."""
        self._inside -= 1
        while self._waiting and self._inside < AT_ONCE:
            self._inside += 1
            self._waiting.popleft().callback(None)
        return not self._inside and not self._waiting
