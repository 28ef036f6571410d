"""Logins whose sessions are open: each ends when what it rests on is no longer so.

The truth is the user's row. A session asks `OpenLogin.require` before each command, which looks at the row when the
last look (the first one is the login's) is older than LOOK, or there has been news: so no command is carried out with
rights that were taken away longer ago than that. Every change of a row is told to all processes
(`store.changes.account`), and a session that waits for its client ends at once. That is a hint, and can be lost: as
long as there are sessions, the rows of all are compared after each second in which the list of mailboxes and users has
changed (GLANCE), or the folder of app passwords.

A session ends when the password is another one by which it, or the proxy in front of it, has logged in; when its app
password has ended or been revoked, or an app password is required now and it has shown none; when the account may not
log in any more, is gone, has another name, or is on another back end; when its access rules, those of its domain or the
settings deny the service, or the mechanism is withdrawn. Groups are read anew by each command.

An outside directory is asked again, by each process, about users who have sessions there (`directory.session_time`),
and all of them at once after `onecopy directory flush`. When it does not answer, what it said last holds on.

Each process notes once a minute who was logged in and has read something, as far as that is not on record of this day
(`users.lastuse`): what one that is killed has not noted is lost. A session in which an administrator acts as a user is
no login of the user's.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import define, evolve, field

from mboxlist.engine.transact import Failure
from store import changes
from store.accounts.base import Account, Status, delivery_problem
from store.errors import NotAtOnce, Problem, StoreError
from store.housekeeping.tasks import Task
from store.net.authentication import Authenticator
from store.net.callers import Admitted
from store.net.linestates import Clock
from store.partition.processes import look
from store.store import Store
from store.users import lastuse

log = logging.getLogger(__name__)

LOOK = 0.5              # seconds for which a look at the row is believed
CUT_OFF = 1.0           # seconds after which a session that is in the middle of a command is cut off
SPREAD = 500            # logins that are looked at in one turn when all must be,
TURNS = 0.02            # and seconds between two such turns
GLANCE = 1.0            # seconds between two looks whether anything has changed of which no news have come
RETRY = 30.0            # seconds for which a directory is left alone that has not answered
USE_INTERVAL = 60       # seconds between two looks at who is logged in
USERS = 200             # users of whom a transaction notes that

_TEXTS = {
    Problem.NO_USER: (Problem.USER_DISABLED, "The account is not there any more"),
    Problem.USER_INACTIVE: (Problem.USER_INACTIVE, "The account is not in use at present"),
    Problem.USER_ON_HOLD: (Problem.USER_ON_HOLD, "The account is on hold for now"),
    Problem.USER_DISABLED: (Problem.USER_DISABLED, "The account is disabled")}


@define(eq=False)
class OpenLogin:
    """The login of one session. `ended` says why it holds no more. `cuts`: whether a session in the middle of a command
    is cut off then, or hears of it at its next one."""

    _store: Store
    admitted: Admitted
    _changed: Callable[[], None]
    _cuts: bool = True
    ended: StoreError | None = field(default=None, init=False)
    trusted_until: float = field(default=-math.inf, init=False)
    """Up to then there is nothing that `require` would look for."""
    has_read: bool = field(default=False, init=False)       # something since that was noted last: the session says it
    _looked: float = field(default=-math.inf, init=False)
    _heard: bool = field(default=False, init=False)
    _open: bool = field(default=True, init=False)
    _rows: dict[str, Account | None] = field(init=False)    # as they were when last looked at
    _rowless: frozenset[str] = field(init=False)            # users who had none at the login
    _unsubscribe: list[Callable[[], None]] = field(factory=list, init=False)
    clock: Clock = field(init=False)                        # that of its connection

    @clock.default
    def _clock_of_connection(self) -> Clock:
        return self.admitted.caller.stream.clock

    @classmethod
    def begin(cls, store: Store, admitted: Admitted, changed: Callable[[], None] = lambda: None, *, cuts: bool = True
              ) -> "OpenLogin":
        """The session has begun. `changed` is called when the account may have changed, and the login holds."""
        made = cls(store, admitted, changed, cuts)
        made._believe_the_login()
        made._unsubscribe = [store.news.subscribe(changes.account(user), made.hear, made.is_behind)
                             for user in made.users]
        shown = admitted.app_password
        if shown is not None and shown.until is not None:
            at_end = made.clock.callLater(max(0.0, shown.until - time.time()), made.hear)
            made._unsubscribe.append(lambda: at_end.cancel() if at_end.active() else None)
        OpenLogins.of(store).add(made)
        return made

    @_rows.default
    def _rows_at_login(self) -> dict[str, Account | None]:
        directory, found = self._store.directory, dict[str, Account | None]()
        for account in {each.user: each for each in (self.admitted.own, self.admitted.account)}.values():
            try:
                found[account.user] = directory.find_at_once(account.user)
            except NotAtOnce:
                found[account.user] = account
        return found

    @_rowless.default
    def _without_rows(self) -> frozenset[str]:
        """The users who have no row here, since another back end keeps them."""
        return frozenset(user for user, row in self._rows.items() if row is None)

    @property
    def users(self) -> tuple[str, ...]:
        """The users whose rows the login rests on."""
        own, account = self.admitted.own.user, self.admitted.account.user
        return (own,) if own == account else (own, account)

    @property
    def is_use(self) -> bool:
        """Whether the user has logged in, to read mail; not an administrator as that user."""
        admitted = self.admitted
        return admitted.caller.service != "lmtp" and (
            admitted.own.user == admitted.account.user or Authenticator.of(self._store).is_for_proxy(admitted))

    def require(self) -> None:
        """Look whether the login still holds; called before each command. Raises StoreError when the login holds no
        more."""
        if self.ended is None and (
                self._heard or self.clock.seconds() - self._looked >= LOOK or self._store.settings.host and not all(
                    self._store.directory.is_still(user, row) for user, row in self._rows.items())):
            self._look()
        if self.ended is not None:
            raise self.ended

    @property
    def is_current(self) -> bool:
        """Whether the rows are those that the login has looked at."""
        return all(self._store.directory.is_still(user, row) for user, row in self._rows.items())

    def leave(self) -> None:
        """Forget the login: its session has ended, or somebody else is to log in."""
        self._open = False
        OpenLogins.of(self._store).discard(self)
        while self._unsubscribe:
            self._unsubscribe.pop()()

    def hear(self) -> None:
        """Have the rows looked at in another turn of the event loop, since something may have changed."""
        if not self._heard and self._open:
            self._heard, self.trusted_until = True, -math.inf
            self.clock.callLater(0, self._answer)

    def is_behind(self) -> bool:
        """Whether something has changed that the login has not heard of: then `hear` is due."""
        if not self._open or self.ended is not None:
            return False
        before = dict(self._rows)
        ended, self.ended = self._look(), None
        return ended is not None or any(self._rows[user] is not row for user, row in before.items())

    # Inside

    def _believe_the_login(self) -> None:
        """The login has looked at all that a look would, if the rows are what it has found."""
        for was in (self.admitted.own, self.admitted.account):
            row = self._rows[was.user]
            if row != was or row.credential != was.credential:
                return
        self._looked = self.admitted.looked
        self.trusted_until = -math.inf if self._store.settings.host else self._looked + LOOK

    def _answer(self) -> None:
        if not self._open or self.ended is not None:
            return
        ended = self._look()
        if ended is None:
            self._changed()
            return
        stream = self.admitted.caller.stream
        stream.dismiss(ended.public)
        if self._cuts:
            self.clock.callLater(CUT_OFF, self._cut_off)

    def _cut_off(self) -> None:
        stream = self.admitted.caller.stream
        if self._open and not stream.lost and not stream.closing:
            stream.abort()

    def _look(self) -> StoreError | None:
        """Why the login holds no more; None if it holds. A row that is being changed has not been changed yet."""
        self._heard, self._looked = False, self.clock.seconds()
        self.trusted_until = -math.inf if self._store.settings.host else self._looked + LOOK
        admitted, authenticator = self.admitted, Authenticator.of(self._store)
        directory = self._store.directory
        try:
            for user, row in self._rows.items():
                if not directory.is_still(user, row):
                    self._rows[user] = directory.find_at_once(user)
            own = self._now(admitted.own, same=admitted.by_password)
            account = own if admitted.account.user == own.user else self._now(
                admitted.account, same=authenticator.is_for_proxy(admitted))
            if not authenticator.offers(admitted.mechanism):
                raise StoreError(Problem.NOT_AUTHORIZED, "That way to log in is not offered any more")
            authenticator.require(evolve(admitted, own=own, account=account))
        except NotAtOnce:
            pass
        except StoreError as error:
            self.ended = error if error.problem is not Problem.ELSEWHERE else StoreError(
                Problem.ELSEWHERE, "Your mail is on another server now: connect again", error.detail)
            self.trusted_until = -math.inf
            stream = admitted.caller.stream
            log.info("%s: %s, %s, is logged in no more: %s", stream.id, admitted.account.user, stream.peer, self.ended)
        return self.ended

    def _now(self, was: Account, *, same: bool) -> Account:
        """The account as it is now; `same`: its password must be what it was. Raises StoreError."""
        now = self._rows[was.user]
        if now is None and was.user in self._rowless:
            now = OpenLogins.of(self._store).said.get(was.user, was)
        problem = delivery_problem(now.status) if now is not None else Problem.NO_USER
        if now is None or not now.status.may_log_in and problem is not None:
            raise StoreError(*_TEXTS[problem or Problem.NO_USER])
        if same and now.credential != was.credential:
            raise StoreError(Problem.LOGIN_EXPIRED, "The password has been changed")
        return now


@define(eq=False)
class OpenLogins:
    """The open logins of a process. `said`: what a directory has said of users who have no row here."""

    store: Store
    said: dict[str, Account] = field(factory=dict, init=False)
    _all: set[OpenLogin] = field(factory=set, init=False)
    _domains: dict[str, dict[OpenLogin, None]] = field(factory=dict, init=False)
    _unsubscribe: dict[str, Callable[[], None]] = field(factory=dict, init=False)       # by domain
    _rules: dict[str, str] = field(factory=dict, init=False)        # of each domain, as they were when last looked at
    _asked: dict[str, float] = field(factory=dict, init=False)      # when, by user; of those who have sessions
    _epoch: bytes = field(default=b"", init=False)
    _used: dict[str, bool] = field(factory=dict, init=False)    # who has logged in, and whether something was read
    _noted: dict[str, bool] = field(factory=dict, init=False)   # of the day
    _day: int = field(default=0, init=False)
    _left_alone_until: float = field(default=-math.inf, init=False)
    _version: tuple[int, int] = field(default=(0, 0), init=False)       # of the list when it was last glanced at
    _access: int = field(default=0, init=False)                         # of the app passwords, likewise
    _next_glance: Any = field(default=None, init=False)     # as long as there are any

    @classmethod
    def of(cls, store: Store) -> "OpenLogins":
        """The open logins of the process that serves the store."""
        return store.owned.get(cls, lambda: cls(store))

    def add(self, login: OpenLogin) -> None:
        """Have one more, which has begun."""
        self._all.add(login)
        if self._next_glance is None:
            self._next_glance = login.clock.callLater(GLANCE, self._glance, login.clock)
        if login.is_use:
            self._used.setdefault(login.admitted.account.user, False)
        for domain in map(self.store.directory.domain, login.users):
            if domain not in self._domains:
                self._domains[domain] = {}
                self._rules[domain] = self._rules_of(domain)
                self._unsubscribe[domain] = self.store.news.subscribe(
                    changes.account(f"@{domain}"), partial(self._domain_changed, domain),
                    partial(self._has_other_rules, domain))
            self._domains[domain][login] = None

    def discard(self, login: OpenLogin) -> None:
        """Forget one, which has ended."""
        self._all.discard(login)
        if not self._all and self._next_glance is not None:
            self._next_glance.cancel()
            self._next_glance = None
        if login.has_read and login.is_use:
            self._used[login.admitted.account.user] = True
        for domain in map(self.store.directory.domain, login.users):
            there = self._domains.get(domain, {})
            if there.pop(login, self) is None and not there:
                del self._domains[domain], self._rules[domain]
                self._unsubscribe.pop(domain)()

    def look_at_all(self) -> None:
        """Have all logins look again, since the settings have changed."""
        self._look_at(list(self._all))

    def _domain_changed(self, domain: str) -> None:
        self._rules[domain] = self._rules_of(domain)
        self._look_at(list(self._domains[domain]))

    def _has_other_rules(self, domain: str) -> bool:
        return self._rules_of(domain) != self._rules[domain]

    def _rules_of(self, domain: str) -> str:
        try:
            return self.store.directory.domains.access(domain)
        except ValueError:              # none can be made for it
            return ""

    def _glance(self, clock: Clock) -> None:
        """Look for changes of which no news came."""
        self._next_glance = None
        version = self.store.mailboxes.version()
        if version != self._version:
            self._version = version
            self._compare(clock, list(self._all))
        access = Authenticator.of(self.store).app_logins.version
        if access != self._access:
            self._access = access
            self._look_at([login for login in self._all if login.admitted.app_password is not None])
        self._next_glance = clock.callLater(GLANCE, self._glance, clock) if self._all else None

    def _compare(self, clock: Clock, logins: list[OpenLogin]) -> None:
        for login in logins[:SPREAD]:
            if login in self._all and not login.is_current:
                login.hear()
        if rest := logins[SPREAD:]:
            clock.callLater(TURNS, self._compare, clock, rest)

    def _look_at(self, logins: list[OpenLogin]) -> None:
        """Have all looked at, some in each turn of the event loop."""
        for login in logins[:SPREAD]:
            login.hear()
        if rest := logins[SPREAD:]:
            rest[0].clock.callLater(TURNS, self._look_at, rest)

    # Who uses the mail

    def use_task(self) -> Task:
        """What each process has to do so that the last use of each user is on record."""
        return Task("last use", USE_INTERVAL, lambda store: self._uses(), self._note)

    def app_passwords_task(self) -> Task:
        """What each process has to do so that the last use of each app password is on record."""
        def note(store: Store, _: bool) -> int:
            Authenticator.of(store).app_logins.note_uses()
            return 1

        return Task("app passwords", USE_INTERVAL, lambda store: (True,), note)

    def note_uses(self) -> None:
        """Note all that is not on record yet: for the end of the process. Nothing is noted where another process died,
        whose locks may keep everybody waiting."""
        try:
            for some in () if look(self.store.root / "run")[1] else self._uses():
                self._note(self.store, some)
        except (StoreError, Failure) as error:
            log.warning("who was logged in last is not on record: %s", error)

    def _uses(self) -> Iterator[tuple[tuple[str, bool], ...]]:
        """The users of whom something is to be noted, some at a time, and whether they have read. In a thread."""
        if (day := int(time.time() // 86400)) != self._day:
            self._day, self._noted = day, {}
        found: dict[str, bool] = {}
        while self._used:
            user, read = self._used.popitem()
            found[user] = found.get(user, False) or read
        for login in tuple(self._all):
            if login.is_use:
                user, read, login.has_read = login.admitted.account.user, login.has_read, False
                found[user] = found.get(user, False) or read
        news = [(user, read) for user, read in found.items() if read > self._noted.get(user, -1)]
        for start in range(0, len(news), USERS):
            yield tuple(news[start:start + USERS])

    def _note(self, store: Store, users: tuple[tuple[str, bool], ...]) -> int:
        try:
            lastuse.note(store, dict(users), time.time())
        except StoreError:
            self._used |= dict(users)           # then with the next
            raise
        self._noted |= dict(users)
        return len(users)

    # What an outside directory says

    def task(self) -> Task:
        """The task by which a process asks outside directories again."""
        return Task("sessions", 1, lambda store: self._due(), lambda store, user: self._ask(user))

    def _due(self) -> Iterator[str]:
        """The users about whom the directory is to be asked. In a thread."""
        directory, now = self.store.directory, time.monotonic()
        if not directory.session_time or now < self._left_alone_until:
            return
        there = {user for login in tuple(self._all) for user in login.users}
        epoch = directory.domains.epoch()
        flushed, self._epoch = self._epoch not in (b"", epoch), epoch
        self._asked = {user: -math.inf if flushed else self._asked.get(user, now) for user in there}
        self.said = {user: account for user, account in self.said.items() if user in there}
        for user, asked in tuple(self._asked.items()):
            if now - asked >= directory.session_time:
                yield user

    def _ask(self, user: str) -> int:
        if time.monotonic() < self._left_alone_until:
            return 0
        self._asked[user] = time.monotonic()
        directory = self.store.directory
        try:
            found = directory.refresh(user)
        except StoreError as error:
            if not getattr(error, "of_one", False):
                self._left_alone_until = time.monotonic() + RETRY
            log.warning("the directory cannot be asked about %s, who has sessions open: %s", user, error)
            return 1
        if directory.find(user) is None:
            self.said[user] = found or Account(user, "", Status.DELETED)
            self.store.news.tell([changes.account(user)])
        return 1
