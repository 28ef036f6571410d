"""Every answer that was given before the power went, and what a store must show for it afterwards.

An `Actor` is alone with its users: it knows their mailboxes exactly, and what one command under way may have made of
them. Mail by LMTP comes from several connections to users of its own: a message is there whole if it was acknowledged,
and whole or not at all if it was not. What anybody has seen under a UID is remembered for ever.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence

from attrs import define, evolve, field, frozen

from tools.benchmarks.powercut.mailclients import Message

Who = tuple[str, str]                   # store, user
NUMBER = b"X-Number: "
_NUMBER = re.compile(rb"^X-Number: (\d+)\r$", re.MULTILINE)
_TRACE = re.compile(rb"(?:(?:Return-Path|Received|Delivered-To):[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)*")


class PowerOffError(ConnectionError):
    """There is nobody any more who could do it."""


@frozen
class Known:
    """A message in a mailbox: a digest of its octets, and its flags."""

    digest: str
    flags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, message: Message) -> "Known":
        """As a client sees it."""
        return cls(digest(message.octets), message.flags)


@frozen
class Mailbox:
    """UIDVALIDITY (0: not known yet), messages by UID, and new ones whose UID nobody has said."""

    uidvalidity: int = 0
    messages: Mapping[int, Known] = field(factory=dict)
    new: tuple[Known, ...] = ()

    def without(self, uids: Sequence[int]) -> "Mailbox":
        """When these have gone."""
        return evolve(self, messages={uid: known for uid, known in self.messages.items() if uid not in uids})

    def plus(self, more: Mapping[int, Known]) -> "Mailbox":
        """With these too, or in the place of what they were."""
        return evolve(self, messages={**self.messages, **more})


State = Mapping[str, Mailbox]           # of a user, by name
World = Mapping[Who, State | None]      # None: no login


def digest(octets: bytes) -> str:
    """For comparison."""
    return f"{len(octets)}:{hashlib.blake2b(octets, digest_size=8).hexdigest()}"


def differences(found: State | None, wanted: State | None) -> list[str]:
    """Where a user's mailboxes are not what they should be."""
    if found is None or wanted is None:
        return [] if found is wanted else ["cannot log in, or read all mailboxes" if found is None else "can log in"]
    said = [f"{name} is {'missing' if name in wanted else 'there'}" for name in sorted(found.keys() ^ wanted.keys())]
    for name in sorted(found.keys() & wanted.keys()):
        here, there = found[name], wanted[name]
        if there.uidvalidity not in (0, here.uidvalidity):
            said.append(f"{name}: UIDVALIDITY {here.uidvalidity} instead of {there.uidvalidity}")
        more = dict(here.messages)
        for uid, known in there.messages.items():
            got = more.pop(uid, None)
            if got != known:
                said.append(f"{name}: UID {uid} is {got} instead of {known}")
        if sorted(map(_key, more.values())) != sorted(map(_key, there.new)):
            said.append(f"{name}: more than there should be: {more}" if len(more) > len(there.new) else
                        f"{name}: new are {more} instead of {there.new}")
        elif more and there.messages and min(more) < max(there.messages):
            said.append(f"{name}: new messages got the UIDs {sorted(more)}, and {max(there.messages)} was known")
    return said


def _key(known: Known) -> tuple[str, list[str]]:
    return known.digest, sorted(known.flags)


@define(eq=False)
class Actor:
    """One that does one thing after the other to users who are its own."""

    name: str
    _ledger: "Ledger"
    current: dict[Who, State | None]
    pending: list[World] = field(factory=list)          # what the command under way may have made of them
    doing: str = ""

    def begin(self, doing: str, *outcomes: World) -> None:
        """A command begins, after which some of the users are so; the last is what its answer means, the others what a
        cut may leave besides. Raises PowerOffError if the one before it got no answer that counts."""
        if self.pending:
            raise PowerOffError(self.doing)
        self.doing, self.pending = doing, list(outcomes)

    def done(self, outcome: World | None = None) -> None:
        """The answer has come; `outcome`: all that it told. Counts only while there is power."""
        if self._ledger.counts():
            self.current.update(self.pending[-1] if outcome is None else outcome)
            self.doing, self.pending = "", []

    def wrong(self, found: World) -> list[str]:
        """What is neither as before the command nor as one of its outcomes."""
        told: list[list[str]] = []
        for outcome in ({}, *self.pending):
            wanted = {**self.current, **outcome}
            said = [f"{user} ({store}): {what}" for store, user in sorted(wanted)
                    for what in differences(found[store, user], wanted[store, user])]
            if not said:
                return []
            told.append(said)
        return [f"{self.name}, {f'while {self.doing}' if self.doing else 'with nothing under way'}: {what}"
                for what in min(told, key=len)[:4]]


@define(eq=False)
class Ledger:
    """Thread-safe."""

    answers: int = 0
    actors: list[Actor] = field(factory=list)
    _open: bool = True
    _lock: threading.Lock = field(factory=threading.Lock)
    _sent: list[bytes] = field(factory=list)
    _offered: dict[Who, set[int]] = field(factory=dict)
    _answered: dict[Who, set[int]] = field(factory=dict)
    _meanings: dict[tuple[Who, str, int, int], str] = field(factory=dict)

    def actor(self, name: str, world: World) -> Actor:
        """A new one, which knows that much."""
        made = Actor(name, self, dict(world))
        self.actors.append(made)
        return made

    @property
    def is_open(self) -> bool:
        """Whether there is power."""
        return self._open

    def close(self) -> None:
        """The power goes: no answer counts that comes from now on."""
        with self._lock:
            self._open = False

    def counts(self) -> bool:
        """An answer has come: whether it counts."""
        with self._lock:
            self.answers += self._open
            return self._open

    # Mail by LMTP

    def begin(self, text: bytes, recipients: Sequence[Who]) -> tuple[int, bytes]:
        """A message that begins to be delivered: its number, and its octets."""
        with self._lock:
            number = len(self._sent)
            octets = b"Subject: %d\r\n%b%d\r\n\r\n%b\r\n" % (number, NUMBER, number, text)
            self._sent.append(octets)
            for who in recipients:
                self._offered.setdefault(who, set()).add(number)
            return number, octets

    def delivered(self, who: Who, number: int) -> None:
        """A recipient got its 250."""
        with self._lock:
            self.answers += self._open
            if self._open:
                self._answered.setdefault(who, set()).add(number)

    @property
    def recipients(self) -> list[Who]:
        """All who were sent something by LMTP."""
        return sorted(self._offered)

    def wrong_mail(self, who: Who, inbox: Mapping[int, Message]) -> list[str]:
        """What is wrong with an INBOX that gets mail by LMTP alone."""
        numbers, said = [], []
        for uid, message in inbox.items():
            found = _NUMBER.search(message.octets)
            number = int(found[1]) if found else -1
            if number not in self._offered.get(who, ()) or not _is_whole(message.octets, self._sent[number]):
                said.append(f"UID {uid} is no message that was sent: {message.octets[-60:]!r}")
            elif message.flags:
                said.append(f"UID {uid} has the flags {set(message.flags)}")
            numbers.append(number)
        if lost := self._answered.get(who, set()) - set(numbers):
            said.append(f"messages {sorted(lost)} were acknowledged and are lost")
        if len(set(numbers)) < len(numbers):
            said.append(f"a message is there twice: {sorted(numbers)}")
        return [f"{who[1]} ({who[0]}): {what}" for what in said]

    # UIDs

    def means(self, who: Who, name: str, uidvalidity: int, uid: int, known: str) -> str:
        """Somebody saw that under a UID; what is wrong with it: it meant another message before."""
        with self._lock:
            before = self._meanings.setdefault((who, name, uidvalidity, uid), known)
        return "" if before == known else f"{who[1]}: UID {uid} of {name} was {before} and is {known}"


def _is_whole(octets: bytes, sent: bytes) -> bool:
    trace = _TRACE.match(octets)
    return trace is not None and octets[trace.end():] == sent


Look = Callable[[Who], "tuple[State | None, Mapping[int, Message]]"]


def judge(ledger: Ledger, look: Look) -> list[str]:
    """Compare a store that has been started again with all that was answered. `look` gives the mailboxes of a user, and
    the messages of INBOX."""
    said = []
    for actor in ledger.actors:
        found = {}
        for who in dict.fromkeys([*actor.current, *(who for outcome in actor.pending for who in outcome)]):
            found[who] = state = look(who)[0]
            for name, mailbox in (state or {}).items():
                said += [what for uid, known in mailbox.messages.items()
                         if (what := ledger.means(who, name, mailbox.uidvalidity, uid, known.digest))]
        said += actor.wrong(found)
    return said + judge_mail(ledger, look)


def judge_mail(ledger: Ledger, look: Look) -> list[str]:
    """Only the mail by LMTP."""
    said = []
    for who in ledger.recipients:
        state, inbox = look(who)
        if state is None:
            said.append(f"{who[1]} ({who[0]}): cannot log in")
            continue
        said += ledger.wrong_mail(who, inbox)
        said += [what for uid, message in inbox.items()
                 if (what := ledger.means(who, "INBOX", state["INBOX"].uidvalidity, uid, digest(message.octets)))]
    return said
