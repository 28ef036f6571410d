"""Logins that were refused or kept waiting, and acts that were refused for want of a right: who, from where, and why;
never a password.

What is refused is a line of the log at once (`refusallines`), and noted for those who ask later (`onecopy explain
login`), with a better reason.

What is the same within one writing of the journal is one note with a count, and only so many different ones are noted
in that time: who tries many names from many places fills neither the memory nor the disk.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field

from store.accounts import refusallines
from store.deliverylog import DeliveryLog, short
from store.errors import Problem, StoreError

if TYPE_CHECKING:
    from store.accounts.builtin import BuiltinDirectory

KIND = "login"
MOST = 200                  # different notes between two writings
NO_LOGIN = "no login in time"
WRONG = "wrong name or password"
AGAIN = "the same wrong password again"
QUIET = 1.0                 # seconds in which the same limit, hit from the same address, is one line of the log
MOST_QUIET = 2000           # addresses and limits of which that is known
LINES = 50                  # within QUIET, of logins that nobody has looked at, and of acts for want of a right; what
#                             comes then is counted
MORE = "more of these"      # the reason of a line that counts acts
MANY_PLACES = "::"          # its address, where these came from more than are told apart (RFC 4291 §2.5.2)

_KINDS = {Problem.BAD_LOGIN: refusallines.LOGIN, Problem.NOT_AUTHORIZED: refusallines.LOGIN,
          Problem.LIMIT: refusallines.SLOWED}

_Key = tuple[str, str, str, Problem | None, str]


@define(eq=False)
class RejectedLogins:
    """Those of one process."""

    delivery_log: DeliveryLog
    directory: "BuiltinDirectory"
    clock: Callable[[], float] = time.monotonic
    counted: Counter[tuple[str, str]] = field(factory=Counter, init=False)      # by service and kind, since the start
    _quiet: dict[tuple[str, str, str, str, str], int] = field(factory=dict, init=False)     # since `_looked`, untold
    _looked: float = field(default=0.0, init=False)
    _told: int = field(default=0, init=False)
    _acts: int = field(default=0, init=False)       # since `_looked`, that were refused for want of a right
    _same: dict[_Key, list[int]] = field(factory=dict, init=False)

    def refused(self, service: str, peer: str, user: str, error: StoreError, *, again: bool = False, session: str = "",
                app_password: str = "") -> None:
        """A login as that user id ("": it is not known whose) has been refused; `again`: as it was before. `session`,
        here and below: the id of the connection, which the line has. `app_password`: the name of one that was right."""
        if again:
            kind, reason = refusallines.REPEATED, AGAIN
        else:
            kind = _KINDS.get(error.problem, refusallines.UNAVAILABLE)
            public = error.public if error.problem is not Problem.BAD_LOGIN else WRONG
            reason = f"{public}: {error.detail}" if error.detail else public
            reason += refusallines.by_app_password(app_password)
        self.counted[service, kind] += 1
        refusallines.refused(kind, peer, user, service, reason, session=session)
        self._note(service, peer, user, error.problem, error.detail or error.public)

    def waits(self, service: str, peer: str, user: str, seconds: float) -> None:
        """It has been made to wait for earlier failures."""
        self._note(service, peer, user, None, f"had to wait {seconds:.0f} s: logins of this user, or from there, had "
                                              "failed before (login.slow_first)")

    def at_admission(self, service: str, peer: str, user: str, why: str, *, session: str = "") -> None:
        """A connection has been ended by a limit. What crowds hit is one line in a while, with how often it was."""
        self.counted[service, refusallines.LIMIT] += 1
        self._tell_once(self.clock(), (refusallines.LIMIT, service, peer, user, why), session)
        self._note(service, peer, user, Problem.LIMIT, why)

    def not_looked_at(self, service: str, peer: str, user: str, why: str, *, given_up: bool = False, session: str = ""
                      ) -> None:
        """A login that the directory is not asked about: it cannot be one, or the client has given it up."""
        now, kind = self.clock(), refusallines.CANCELLED if given_up else refusallines.INVALID
        self.counted[service, kind] += 1
        if now - self._looked >= QUIET:
            self._tell_rest(now)
        self._told += 1
        if self._told <= LINES:
            refusallines.refused(kind, peer, user, service, why, session=session)
        else:
            self._tell_once(now, (kind, service, peer, user, why), session)
        self._note(service, peer, user, Problem.NOT_AUTHORIZED, why)

    def lacks_right(self, service: str, peer: str, user: str, why: str, *, session: str = "") -> None:
        """An act of administration has been refused to a user, or a token, of that id. Whoever is logged in can try as
        fast as answers come: after LINES acts in a time of QUIET the others are counted, in a line for each who has
        tried, by user and address."""
        now = self.clock()
        if now - self._looked >= QUIET:
            self._tell_rest(now)
        self._acts += 1
        if self._acts <= LINES:
            refusallines.refused(refusallines.RIGHT, peer, user, service, why, session=session)
            return
        key = refusallines.RIGHT, service, peer, user, MORE
        if key not in self._quiet and len(self._quiet) >= MOST_QUIET:
            key = refusallines.RIGHT, service, MANY_PLACES, user, MORE
        self._quiet[key] = self._quiet.get(key, 0) + 1

    def tell_counted(self) -> None:
        """Tell what was only counted, unless that was done within QUIET. Whoever serves calls it from time to time, so
        that no count waits for the next refusal."""
        if self._quiet and (now := self.clock()) - self._looked >= QUIET:
            self._tell_rest(now)

    def _tell_once(self, now: float, key: tuple[str, str, str, str, str], session: str) -> None:
        if now - self._looked >= QUIET or len(self._quiet) >= MOST_QUIET:
            self._tell_rest(now)
        if key in self._quiet:
            self._quiet[key] += 1
        elif len(self._quiet) < MOST_QUIET:
            self._quiet[key] = 0
            kind, service, peer, user, why = key
            refusallines.refused(kind, peer, user, service, why, session=session)

    def _tell_rest(self, now: float) -> None:
        quiet, self._quiet, self._looked, self._told, self._acts = self._quiet, {}, now, 0, 0
        for (kind, service, peer, user, why), times in quiet.items():
            if times:
                refusallines.refused(kind, peer, user, service, why, times)

    def _note(self, service: str, peer: str, user: str, problem: Problem | None, why: str) -> None:
        key = service, peer, user, problem, why
        known = self._same.get(key)
        if known is not None:
            known[0] += 1
        elif len(self._same) < MOST:
            self._same[key] = count = [1]
            self.delivery_log.note(KIND, partial(self._facts, key, count))
        else:
            self.delivery_log.counted["not noted"] += 1

    def _facts(self, key: _Key, count: list[int]) -> dict[str, Any]:
        """In the thread that writes: there the directory can be looked at."""
        self._same.pop(key, None)           # before the count is read: what comes from now on is another note
        service, peer, user, problem, why = key
        if problem is Problem.BAD_LOGIN:
            why = self._reason(user)
        return {"service": service, "peer": short(peer), "user": short(user), "why": short(why), "times": count[0],
                "refused": problem is not None}

    def _reason(self, user: str) -> str:
        """Why name and password, or whatever else was shown, did not do."""
        found = self.directory.find(user) if user else None
        if found is None:
            return ("there is no such user" if user and not self.directory.remote else
                    "no such user is known here, or the password is wrong" if user else "what was shown is nobody's")
        if not found.status.may_log_in:
            return f"the account's status is {found.status.value}"
        return "the password, or what was shown in its place, is wrong"
