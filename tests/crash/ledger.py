"""What deliveries, readers and removals have been told over all crashes, and what must follow from it."""

import threading
from collections.abc import Sequence

from tests.support.readers import trace
from tests.support.stores import messages


class Ledger:
    """Thread-safe. A message is known by its number, a place in a mailbox by user, UIDVALIDITY and UID."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._lock = threading.Lock()
        self.sent: dict[int, bytes] = {}
        self._deliveries: dict[int, list[set[str]]] = {}            # the recipients of each delivery of a message
        self._answered: dict[str, set[int]] = {}                    # what got its 250
        self._places: dict[tuple[str, int, int], int] = {}          # what a UID means, for ever
        self._highest: dict[str, int] = {}                          # UID that some reader has seen
        self._removing: dict[str, set[int]] = {}                    # UIDs that a reader has asked to remove
        self._removed: dict[str, set[int]] = {}                     # and was told that they are
        self._there: dict[str, set[int]] = {}                       # numbers at the last inspection
        self._judged: set[tuple[str, int, int]] = set()             # places that some inspection has found
        self._waiting = threading.Event(), 0, False
        self._count = 0

    # Deliveries

    def begin(self, size: int, recipients: Sequence[str]) -> int:
        """The delivery of a new message of that size starts: its number."""
        with self._lock:
            number = len(self._deliveries)
            self._deliveries[number] = [set(recipients)]
        octets = messages.make(self.seed, number, size)
        with self._lock:
            self.sent[number] = octets
        return number

    def again(self, users: Sequence[str]) -> tuple[int, list[str]]:
        """The latest message, and those of `users` who have not been sent it yet: they get it too; nobody before the
        first."""
        with self._lock:
            if not self.sent:
                return -1, []
            number = max(self.sent)
            others = sorted(set(users).difference(*self._deliveries[number]))
            if others:
                self._deliveries[number].append(set(others))
            return number, others

    def answered(self, user: str, number: int) -> None:
        """A recipient got its 250."""
        with self._lock:
            self._answered.setdefault(user, set()).add(number)
            self._count += 1
            if self._count >= self._waiting[1]:
                self._waiting[0].set()

    def after(self, more: int, *, or_seen_early: bool) -> threading.Event:
        """Set when so many more 250s have come, or a reader has seen a message that was not answered yet."""
        with self._lock:
            self._waiting = threading.Event(), self._count + more, or_seen_early
            return self._waiting[0]

    # Readers

    def newest(self, user: str) -> int:
        """The highest UID that anybody has seen there; at least 1."""
        return self._highest.get(user, 1)

    def knows(self, user: str, uidvalidity: int, uid: int) -> bool:
        """Whether that one has been read after a restart: then it is on disk."""
        return (user, uidvalidity, uid) in self._judged

    def seen(self, user: str, uidvalidity: int, uid: int, octets: bytes) -> None:
        """A reader got these octets under that UID: it must be a whole message of ours, and always the same."""
        seed, number = messages.number_of(octets)
        assert seed == self.seed
        wanted = self._deliveries[number]
        assert user in set().union(*wanted), f"{user} has message {number}, which was for {wanted}"
        assert trace.below(octets, "sender@example.org") == self.sent[number], f"{user}: message {number} is torn"
        with self._lock:
            before = self._places.setdefault((user, uidvalidity, uid), number)
            self._highest[user] = max(self._highest.get(user, 1), uid)
            if self._waiting[2] and number not in self._answered.get(user, ()):
                self._waiting[0].set()
        assert before == number, f"{user}: UID {uid} was message {before} and is now {number}"

    def removing(self, user: str, uid: int) -> None:
        """From now on that message may be gone."""
        with self._lock:
            self._removing.setdefault(user, set()).add(uid)

    def removed(self, user: str, uid: int) -> None:
        """From now on it must be gone."""
        with self._lock:
            self._removed.setdefault(user, set()).add(uid)

    # After a restart

    def judge(self, user: str, uidvalidity: int, uids: Sequence[int]) -> None:
        """A mailbox holds what it must: `seen` has been told of every UID in it."""
        with self._lock:                        # others are told of other mailboxes meanwhile
            places = list(self._places)
        assert {place[1] for place in places if place[0] == user} <= {uidvalidity}, f"{user}: new UIDVALIDITY"
        numbers = [self._places[user, uidvalidity, uid] for uid in uids]
        assert len(numbers) == len(set(numbers)), f"{user} has a message twice"
        back = self._removed.get(user, set()) & set(uids)
        assert not back, f"{user}: UIDs {back} were expunged and are back"
        maybe_gone = {self._places[user, uidvalidity, uid] for uid in self._removing.get(user, ())}
        lost = self._answered.get(user, set()) - set(numbers) - maybe_gone
        assert not lost, f"{user}: messages {sorted(lost)} were answered 250 and are lost"
        self._there[user] = set(numbers)
        self._judged |= {(user, uidvalidity, uid) for uid in uids}

    def judge_recipients(self) -> None:
        """What was not answered is there for all recipients of a delivery or for none."""
        gone = {(user, number) for (user, _, uid), number in self._places.items()
                if uid in self._removing.get(user, ())}
        for number, deliveries in self._deliveries.items():
            for users in deliveries:
                there = {user for user in users if number in self._there.get(user, ())}
                must = {user for user in users if (user, number) not in gone}
                assert not there or must <= there, f"message {number} is there for {there}, and not for {must - there}"

    def visible(self) -> set[int]:
        """Numbers of all messages that are in some mailbox."""
        return set().union(*self._there.values())

    def gone(self) -> set[int]:
        """Numbers of the messages that somebody removed, or tried to."""
        return {number for (user, _, uid), number in self._places.items() if uid in self._removing.get(user, ())}
