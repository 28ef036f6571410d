"""A connection as admission control counts it: under its address, as its user's, by how much and how fast it sends."""

import logging
import os
import typing
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping

from twisted.internet.protocol import Protocol

from store.accounts import refusallines
from store.net.admission import MINUTE, AdmissionControl
from store.net.limits import TOO_MANY_EARLY, TOO_MANY_OF_USER
from store.net.linestates import Clock, LimitReached, Stopping

TOO_MUCH_BEFORE_LOGIN = "Too much was sent before login"
ACTS = ("read", "deleted", "expunged", "removed")       # of a user, which the line of the session's end has
MOST_REFUSED = 200          # connections of a server that hear why they are refused, at a time
TOO_FAST = "Too many commands in a minute"


class Tap(typing.Protocol):
    """Is told of all that is said on a connection."""

    def received(self, data: bytes) -> None:
        """The peer has said this."""

    def sent(self, data: bytes) -> None:
        """The session has; it may never arrive."""

    def lost(self) -> None:
        """The connection has ended."""


class Counted(Protocol, ABC):
    """What a `Stream` is to admission control; the rest of it reads and writes."""

    def __init__(self, admission: AdmissionControl, clock: Clock, number: int, *, stopping: bool) -> None:
        self._admission = admission
        self._clock = clock
        self._admitted = False                          # counted, under its address
        self._counted_early = False                     # and there as one that has not logged in
        self._user: str | None = None                   # and as this user's
        self._early = admission.early_octets                 # how much of that is left; 0: no limit (any more)
        self._lines, self._since = 0, 0.0               # since when so many lines have come
        self.entered_at = 0.0                           # when somebody logged in
        self.began = clock.seconds()                    # when it was made
        self.received = self.sent = 0                   # octets, under TLS those within
        self.operations = 0                             # commands that were answered
        self._told = (0, 0)                             # operations and octets that `Busiest` has been told of
        self.acts: Counter[str] = Counter()             # what its user has done: see `tell_end`
        self.tap: Tap | None = None                     # is told of all that is said
        self.waited: dict[str, float] = {}              # within the command: see `Running`
        self._before = (0, 0)                           # octets of the users before
        self.number, self.id = number, f"{os.getpid():x}-{number:x}"
        self.peer = ""
        self.proxy = ""                                 # the proxy that has told us of `peer`
        self.stopping = stopping

    @abstractmethod
    def stop(self) -> None:
        """See `Stream`."""

    @abstractmethod
    def abort(self) -> None:
        """See `Stream`."""

    @abstractmethod
    def flush(self) -> None:
        """See `Stream`."""

    def admit(self) -> None:
        """Count the connection, before anything is said. Raises LimitReached, Stopping."""
        if self.stopping:
            raise Stopping
        self._count()
        self._since = self._clock.seconds()

    def _count(self) -> None:
        admission = self._admission
        refused = self._refusal()
        admission.counted["connections turned away" if refused else "connections"] += 1
        if refused:
            admission.refused.add(self)
            if len(admission.refused) > MOST_REFUSED:      # they take no notice: under TLS they may linger
                self.abort()
            raise LimitReached(refused)
        self._admitted = True

    def _refusal(self) -> str:
        """Count the connection, and give ""; or why not."""
        admission = self._admission
        if (refused := admission.limits.refusal(self.peer)) or not admission.limits.early or admission.familiar(
                self.peer):
            return refused
        if not admission.limits.admit_early(self.peer):
            admission.limits.release(self.peer)
            return TOO_MANY_EARLY
        self._counted_early = True
        return ""

    def no_longer_early(self) -> None:
        """The client has shown who it is."""
        if self._counted_early:
            self._counted_early = False
            self._admission.limits.release_early(self.peer)

    def introduce(self, peer: str) -> None:
        """A proxy says who its client is; from now on that one counts in its place. Raises LimitReached."""
        self._admitted = False
        self.no_longer_early()
        self._admission.limits.release(self.peer)
        self.proxy, self.peer = self.peer, peer
        self._count()
        if self._admission.watch is not None:
            self._admission.watch(self)

    def enter(self, user: str) -> None:
        """The client has proved to be `user`: from now on the limits are wider. Raises LimitReached, Stopping."""
        if self._admission.draining:
            raise Stopping
        if not self._admission.limits.admit_user(user):
            raise LimitReached(TOO_MANY_OF_USER, user)
        self.no_longer_early()
        self._user, self._early, self.entered_at = user, 0, self._clock.seconds()
        self._admission.counted["logins"] += 1
        if self._admission.watch is not None:
            self._admission.watch(self, answers=1)

    def tell_end(self, service: str, user: str, reason: str, figures: Mapping[str, int] | None = None,
                 level: int = logging.INFO, app_password: str = "") -> None:
        """The session, of a user or a relay, is over: one line of the log. What comes after it counts anew. `figures`:
        what it has done, where that is nothing with a user's mail; `app_password`: the one by which it began."""
        self.flush()
        self.tell_busy(user)
        acts, received, sent = self.acts, self.received - self._before[0], self.sent - self._before[1]
        self.acts, self._before = Counter(), (self.received, self.sent)
        seconds = round(self._clock.seconds() - (self.entered_at or self.began))
        done = {name: acts.get(name, 0) for name in ACTS} if figures is None else figures
        refusallines.ended(self.peer, user, service, seconds, received, sent, done, reason,
                           session=self.id, level=level, app_password=app_password)

    def tell_busy(self, user: str) -> None:
        """Count for the user ("": nobody) what has been done since the last time."""
        (operations, octets), self._told = self._told, (self.operations, self.received + self.sent)
        if user:
            self._admission.busiest.add(user, self._told[0] - operations, self._told[1] - octets)

    @property
    def untold(self) -> int:
        """Octets since the last time."""
        return self.received + self.sent - self._told[1]

    def leave(self) -> None:
        """Nobody is logged in any more."""
        user, self._user = self._user, None
        if user is not None:
            self._admission.limits.release_user(user)
            self._early = self._admission.early_octets
            if self._admission.watch is not None:
                self._admission.watch(self)
            if self._admission.draining:
                self.stop()

    @property
    def clock(self) -> Clock:
        """The one that it goes by."""
        return self._clock

    @property
    def user(self) -> str:
        """Who is logged in; "" for nobody."""
        return self._user or ""

    @property
    def entered(self) -> bool:
        """Whether somebody is logged in."""
        return self._user is not None

    # Inside

    def _depart(self) -> None:
        """The connection counts no longer."""
        admission = self._admission
        admission.refused.discard(self)
        if self._admitted:
            self._admitted = False
            self.no_longer_early()
            admission.limits.release(self.peer)
        if self._user is not None:
            admission.limits.release_user(self._user)
            self._user = None

    def _look_at_rate(self) -> None:
        """So many lines have come as may come in a minute: how long did they take?"""
        now = self._clock.seconds()
        if now - self._since < MINUTE:
            raise LimitReached(TOO_FAST)
        self._lines, self._since = 1, now
