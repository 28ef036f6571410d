"""The standbys at the one that serves: how far each is, which of them answers wait for, and whether these are in step.

A standby that answers wait for is away, or it joins, or it is in step. It joins when all that it lacks fits into one
answer: from then on answers wait. It is in step once it has what there was when it joined; so no answer was given since
for what it has not. It is away when its connection ends, when it copies databases, and when somebody waits and it has
said nothing for `patience` seconds. Then answers do not wait for it (`refuse` is not set), or nothing is changed at all
until it is in step again.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import define, field

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from mboxlist.engine.secondcopy import Asked, Lead, SecondCopy, State

log = logging.getLogger(__name__)

SEEN = "standbys"           # in `run/`: what was noted last
NOTE_SECONDS = 1.0          # between two notes
LOOK = 0.2                  # seconds between two looks whether a standby is silent
LOOK_FOR_NEWS = 0.05        # seconds between two looks for news that nobody waits for; twice as many after each look
LONGEST_LOOK = 0.5          # that finds none, up to so many


class Step(Enum):
    """How a standby stands to answers."""

    AWAY = "away"
    FOLLOWS = "follows"         # and nobody waits for it
    JOINING = "joining"
    IN_STEP = "in step"


@define(eq=False)
class Member:
    """One standby, by the name in its certificate; where answers wait for it, what is `asked`. Its methods are called
    by the thread of its connection, whose `session` is a number of its own."""

    host: str
    asked: Asked | None
    group: "InStep"
    step: Step = Step.AWAY
    session: int = 0
    through: str = ""           # the standby that it follows, in the place of this machine
    joined: int = 0             # moments, as `SecondCopy.number`: when it joined,
    number: int = 0             # of which it has all,
    sent: int = 0               # and of which it has been sent all
    heard: float = 0.0          # when it said something last; monotonic
    trip: float = 0.0           # seconds that its last answer took
    current: float = 0.0        # the Unix time of which it has all
    behind: int = 0             # octets of logs that it lacked when that was looked at last
    unprotected: list[str] = field(factory=list)        # partitions that it does not have, as far as is known
    _sent_time: float = 0.0
    _sent_at: float = 0.0

    def begin(self) -> int:
        """A connection; its session."""
        with self.group.lock:
            self.session += 1
            self.through = ""
            self._be(Step.AWAY, "it connects")
            return self.session

    def is_of(self, session: int) -> bool:
        """Whether this is the session of the newest connection."""
        return session == self.session

    def has(self, number: int) -> None:
        """Note that the standby has on disk all that it was sent until that moment."""
        with self.group.lock:
            now = time.monotonic()
            self.heard, self.behind = now, 0
            if number and number == self.sent:
                self.trip, self.current = now - self._sent_at, self._sent_time
            if number > self.number:
                self.number = number
                if self.step is Step.JOINING and number >= self.joined:
                    self._be(Step.IN_STEP, "")
                else:
                    self.group.publish_number()
        if self.asked is not None:
            self.asked.answer(number)

    def _tell(self) -> None:
        if self.asked is not None:
            self.asked.tell()

    def says_something(self) -> None:
        """Note that the standby is still there."""
        self.heard = time.monotonic()

    def wants(self, partitions: Collection[str]) -> None:
        """It asks for these, or for all: changes of what it lacked of these wait for it from now on, also after a
        crash. Raises OSError."""
        self.lacks([name for name in self.unprotected if partitions and name not in partitions])

    def lacks(self, unprotected: list[str]) -> None:
        """It has no more than the other partitions, or all. Raises OSError: then what it had as far as was known before
        counts, too."""
        with self.group.lock:
            if unprotected != self.unprotected:
                surely = [name for name in unprotected if name in self.unprotected]
                try:
                    self.unprotected = unprotected
                    self.group.note(sync=True)
                except OSError:
                    self.unprotected = surely
                    raise
                finally:
                    self.group.publish()

    def joins(self) -> None:
        """Answers wait for it from now on: what is read next of the logs is sent whole, at once."""
        with self.group.lock:
            if self.step is Step.AWAY:
                self.joined = time.monotonic_ns()
                self._be(Step.FOLLOWS if self.asked is None else Step.JOINING, "")

    def has_all(self, number: int) -> None:
        """There is nothing that it could be sent: it has all of that moment."""
        trip = self.trip
        self.is_sent(number)
        self.has(number)
        self.trip = trip            # nothing has been anywhere

    def is_sent(self, number: int) -> None:
        """All of that moment."""
        self.sent, self._sent_at, self._sent_time = number, time.monotonic(), time.time()
        self.heard = self._sent_at

    def goes_away(self, session: int, why: str) -> None:
        """Answers wait for it no more, unless a newer connection has begun."""
        with self.group.lock:
            if self.is_of(session):
                self._be(Step.AWAY, why)
                self.group.further(self, {})
        self._tell()

    def follows(self, other: "Member", behind: float) -> None:
        """It follows that standby, and is so many seconds behind this machine."""
        self.through, self.current, self.unprotected = other.host, time.time() - behind, []
        self._be(Step.FOLLOWS, f"{other.host}, a standby itself")

    def is_lost(self, other: "Member") -> None:
        """It follows that one no more."""
        self.through = ""
        self._be(Step.AWAY, f"nothing is heard of it from {other.host}")

    def is_silent(self) -> bool:
        """Whether somebody waits, and it has said nothing for too long."""
        return (self.asked is not None and self.step is not Step.AWAY
                and time.monotonic() - self.heard > self.group.patience and self.asked.newest() > self.number)

    def _be(self, step: Step, why: str) -> None:
        if step is not self.step:
            before, self.step = self.step, step
            if step is Step.AWAY:
                self._tell_away(why)
            elif self.asked is None:
                log.info("the standby %s", f"{self.host} {step.value} {why}".rstrip())
            elif step is Step.IN_STEP:
                log.warning("the standby %s is in step: answers wait for it", self.host)
            else:
                log.info("the standby %s joins, it was %s", self.host, before.value)
        self.group.publish()

    def _tell_away(self, why: str) -> None:
        if self.asked is None:
            log.info("the standby %s is away (%s)", self.host, why)
        else:
            log.warning("the standby %s is away (%s): %s", self.host, why,
                        "what it has is not changed until it is back" if self.group.refuse else
                        "answers do not wait for it")

    def begins(self) -> None:
        """The server does, and nobody has heard of it yet."""
        if self.asked is not None:
            self._tell_away("it has not connected since the server has begun")


@define(eq=False)
class InStep:
    """All standbys. For the one process that has their connections."""

    second: SecondCopy
    refuse: bool
    patience: float
    lead: Lead | None
    lock: threading.RLock = field(factory=threading.RLock, init=False)
    members: dict[str, Member] = field(factory=dict, init=False)
    _counted: list[Member] = field(factory=list, init=False)           # of `publish`: whose numbers count
    _free: frozenset[str] | None = field(default=None, init=False)     # partitions that none of them has
    _stopped: threading.Event = field(factory=threading.Event, init=False)

    @classmethod
    def of(cls, second: SecondCopy, hosts: Sequence[str], *, waited: Sequence[str] = (), refuse: bool = True,
           patience: float = 10.0) -> "InStep":
        """Those with these names; answers wait for `waited`. From now on nothing is changed,
        or answered for this machine alone, until these are there. Raises OSError."""
        group = cls(second, refuse, patience, second.lead() if waited else None)
        before = seen(second.folder.parents[1]).get("standbys", {})
        for host in hosts:
            asked = group.lead.source(waited.index(host)) if group.lead is not None and host in waited else None
            group.members[host] = Member(host, asked, group)
            group.members[host].unprotected = list(before.get(host, {}).get("unprotected", ()))
        group.publish()
        for each in group.members.values():
            each.begins()
        group.note()            # so that nobody who asks just now hears that there are none
        threading.Thread(target=group._watch, name="standby-watch", daemon=True).start()
        return group

    def follow(self, hosts: Sequence[str]) -> None:
        """Those are standbys from now on. One that answers wait for stays, and is away."""
        with self.lock:
            kept = {host: each for host, each in self.members.items() if host in hosts or each.asked is not None}
            self.members = {**{host: Member(host, None, self) for host in hosts}, **kept}

    def further(self, member: Member, found: Mapping[str, float]) -> None:
        """Those are the standbys of that standby, and so many seconds behind."""
        with self.lock:
            for host, each in self.members.items():
                if each.through == member.host and host not in found:
                    each.is_lost(member)
                elif host in found and each.asked is None and each is not member and (
                        each.through or each.step is Step.AWAY):
                    each.follows(member, found[host])

    def publish(self) -> None:
        """Have all processes know how it is. A change that one of those lacks which count has no answer: with `refuse`
        all count, also one that has just gone away. But a change of a partition that none of them has is no matter of
        theirs."""
        with self.lock:
            waited = [each for each in self.members.values() if each.asked is not None]
            if not waited:
                return
            there = [each for each in waited if each.step is not Step.AWAY]
            state = State.WAITING if there else State.ALONE
            if self.refuse and not all(each.step is Step.IN_STEP for each in waited):
                state = State.REFUSING
            self._counted = waited if self.refuse else there
            self._put_free(frozenset.intersection(*(frozenset(each.unprotected) for each in waited)))
            self.second.put(state, min((each.number for each in self._counted), default=0))

    def publish_number(self) -> None:
        """Likewise, when nothing but a number is another one. The caller has the lock."""
        if self._counted:
            self.second.put_number(min([each.number for each in self._counted]))

    def _put_free(self, names: frozenset[str]) -> None:
        if names != self._free:
            self._free = names
            self.second.put_free(names)

    def _watch(self) -> None:
        noted = 0.0
        while not self._stopped.wait(LOOK):
            for each in tuple(self.members.values()):
                if each.is_silent():
                    each.goes_away(each.session, f"it has said nothing for {self.patience:g} s")
            if (now := time.monotonic()) - noted > NOTE_SECONDS:
                noted = now
                self.note()

    def note(self, *, sync: bool = False) -> None:
        """For metrics, `onecopy standby status`, health, and the next start. Raises OSError where it is to `sync`."""
        with self.lock:
            self._note(sync=sync)

    def _note(self, *, sync: bool) -> None:
        found = {each.host: {"waited": each.asked is not None, "step": each.step.value, "current": each.current,
                             "behind": each.behind, "trip": each.trip, "through": each.through,
                             "unprotected": each.unprotected}
                 for each in self.members.values()}
        text = json.dumps({"time": time.time(), "refuse": self.refuse, "standbys": found}).encode()
        path = self.second.folder.with_name(SEEN)
        if sync:
            replace_file(path, text)
            return
        with contextlib.suppress(OSError), privatefiles.replacing(path, sync=False) as to:
            to.write(text)

    def close(self) -> None:
        """No standby is there any more: the server stops."""
        self._stopped.set()
        for each in self.members.values():
            each.goes_away(each.session, "the server stops")
            if each.asked is not None:
                each.asked.close()
        if self.lead is not None:
            self.lead.close()


def seen(root: Path) -> dict[str, Any]:
    """What the server has noted last of its standbys: `time`, `refuse`, and `standbys`, by host: whether answers wait
    for it (`waited`), its `step`, the Unix time of which it has all (`current`; 0: nobody knows), octets of logs that
    it was `behind`, seconds of the last round `trip`, the standby that it follows instead of this machine (`through`),
    and the partitions that it does not have (`unprotected`). Empty where there is none."""
    try:
        found = json.loads(privatefiles.read(root / "run" / SEEN))
        return found if isinstance(found, dict) and isinstance(found["standbys"], dict) else {}
    except (OSError, ValueError, KeyError):
        return {}


def forget(root: Path) -> None:
    """What was noted is of an earlier time: they may have other partitions since. Raises OSError."""
    (root / "run" / SEEN).unlink(missing_ok=True)
