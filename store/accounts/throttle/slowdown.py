"""Failed logins make the next ones slow: by user, by address and by network, over all processes.

A login has its failures counted before its password is looked at, and taken back when it was right: so as many as come
at a time are no more than as many that come one by one. Of those that are slowed down one is looked at after the other,
with the delay between them; who would have to wait longer than the longest delay is refused at once, and the password
is not looked at. What has passed since the last one counts as waited for.

Who has logged in from an address or its network before is told from others: neither a guest there nor a stranger
elsewhere can slow that user down there, and all that counts there is how often just the two have failed together.

The same wrong password of a user again, or the same token, is no guess, and is not counted again: a device that was
forgotten when the password was changed keeps nobody out. Only keyed digests of them are remembered, in memory.
"""

import hashlib
import ipaddress
import time
from collections.abc import Callable

from attrs import define, field, frozen

from store.accounts.throttle.failurecounts import ADDRESS, NETWORK, PAIR, USER, Count, FailureCounts, Name, Row
from store.accounts.throttle.formerlogins import FormerLogins
from store.accounts.throttle.loginmemory import LoginMemory, Part
from store.accounts.throttle.sharedcache import Remembered
from store.errors import Problem, StoreError
from store.values import Secret

MOST_DOUBLED = 64           # so many doublings are more than any delay
WRONG_TIME = 7 * 86400      # seconds for which a wrong password is known
ADDRESS_BITS = 64           # of an IPv6 address: a customer has as many addresses below that as it likes
NETWORK_BITS = {4: 24, 6: 48}


@frozen
class Scale:
    """`free` failures cost nothing, the next one `first` seconds, each further one twice that, up to `longest`; a
    failure counts half when `half_life` has passed. `first` 0: nothing is slowed down."""

    first: float = 1.0
    longest: float = 30.0
    half_life: float = 600.0
    free_of_address: int = 10
    free_of_user: int = 3
    free_of_network: int = 50


@frozen
class Place:
    """Where a login comes from: its address (of IPv6 the /64), and the network around it (/24; /48), "" for none."""

    address: str = ""
    network: str = ""

    @classmethod
    def of(cls, peer: str) -> "Place":
        """From an address as `Stream.peer` has it."""
        try:
            parsed = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return cls(peer)
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        network = str(ipaddress.ip_network((parsed, NETWORK_BITS[parsed.version]), strict=False))
        if parsed.version == 4:
            return cls(str(parsed), network)
        return cls(str(ipaddress.ip_network((parsed, ADDRESS_BITS), strict=False)), network)

    @property
    def known_by(self) -> tuple[str, ...]:
        """By what users are known here; without an address by that."""
        return tuple(dict.fromkeys((self.address, self.network or self.address)))


NOWHERE = Place()           # for addresses that do not count


@define(eq=False)
class Turn:
    """When a login may be looked at: after `wait` seconds. It counts as failed until `SlowDown.release`."""

    place: Place
    user: str
    wait: float
    doubtful: bool          # logins from there have failed lately
    counted: dict[Name, float]      # what it counts under, and when its look there is due


@define(eq=False)
class SlowDown:
    """What all processes remember."""

    scale: Scale
    memory: LoginMemory = field(factory=LoginMemory.private)
    clock: Callable[[], float] = time.monotonic
    former: FormerLogins = field(init=False)
    _counts: FailureCounts = field(init=False)
    _wrong: Remembered = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.former = FormerLogins.at(self.memory)
        self._counts = FailureCounts.at(self.memory, self.scale.half_life)
        self._wrong = Remembered.at(self.memory, Part.WRONG)

    def follow(self, scale: Scale) -> None:
        """Have this scale from now on."""
        self.scale, self._counts.half_life = scale, scale.half_life

    # A login

    def take(self, place: Place, user: str) -> Turn:
        """A login begins. Raises StoreError LIMIT if it would have to wait for too long."""
        if not self.scale.first:
            return self.untaken(place)
        names = self._names(place, user)
        with self.memory.locked(Part.FAILURES):
            now = self.clock()
            found = {name: self._counts.get(name) for name in names}
            starts = {name: self._start(count, free, now) for (name, free), count in zip(
                names.items(), found.values(), strict=True)}
            wait = max(starts.values(), default=now) - now
            if wait > self.scale.longest:
                raise StoreError(Problem.LIMIT, "Too many logins have failed: try again later",
                                 f"the next one would wait {wait:.0f} s")
            for name, count in found.items():
                self._counts.put(name, Count(count.at(now, self.scale.half_life) + 1, now, starts[name]))
        count = found.get(Name(ADDRESS, place.address), found.get(Name(USER, user), Count()))
        doubtful = count.at(now, self.scale.half_life) > 0.5
        return Turn(place, user, wait, doubtful=doubtful, counted=starts)

    def untaken(self, place: Place) -> Turn:
        """For a login that waits for nothing: a certificate says whose it is."""
        return Turn(place, "", 0.0, doubtful=False, counted={})

    def release(self, turn: Turn) -> None:
        """It has not failed, or nobody has looked at it: it counts no longer."""
        with self.memory.locked(Part.FAILURES):
            self._release(turn)

    def _release(self, turn: Turn) -> None:
        counted, turn.counted = turn.counted, {}
        now = self.clock()
        for name, start in counted.items():
            count = self._counts.get(name)
            if count.weight:
                last = min(count.last, now) if count.last == start else count.last     # nobody comes after it
                self._counts.put(name, Count(count.at(now, self.scale.half_life) - 1, now, last))

    def succeeded(self, turn: Turn, user: str) -> None:
        """It has; `user` is who that was."""
        if not self.scale.first:
            self.release(turn)
            return
        places = turn.place.known_by
        with self.memory.locked(Part.FAILURES):
            self._release(turn)
            for where in places:
                self._counts.put(Name(PAIR, f"{where} {user}"), Count())
        for where in places:
            self.former.add(where, user)
        self.former.add(turn.place.address, "")

    def failed(self, turn: Turn, shown: Secret | None) -> bool:
        """It has, by that password or token, if it was one that can be told from others; whether that is a guess."""
        if shown is None or not self.scale.first:
            return True
        digest = hashlib.blake2b(b"\0".join((turn.user.encode(errors="replace"), shown.reveal())), key=self._wrong.key,
                                 digest_size=32).digest()
        again = digest in self._wrong
        self._wrong.add(digest, WRONG_TIME)
        if again:
            self.release(turn)
        return not again

    # What holds now

    def delay(self, place: Place, user: str) -> float:
        """Seconds that a login would have to wait."""
        now = self.clock()
        return max((self._start(self._counts.get(name), free, now) for name, free in self._names(place, user).items()),
                   default=now) - now

    def knows(self, place: Place, user: str) -> bool:
        """Whether that user has logged in from there, or from the network around it, before."""
        return any(self.former.has(where, user) for where in place.known_by)

    def line(self, place: Place, user: str) -> tuple[str, str]:
        """By which logins are to be looked at in turn: so a stranger keeps no user waiting who is known there."""
        return (place.address, user) if not place.address or self.knows(place, user) else (place.address, "")

    # For administrators

    def rows(self) -> list[tuple[Row, float]]:
        """What has failed, and for how long the next login of that kind would wait for it."""
        now = self.clock()
        return [(row, self._start(row.count, self._free(row.kind), now) - now) for row in self._counts.rows(now)]

    def clear(self, kind: str, text: str) -> None:
        """Forget what has failed by that name."""
        with self.memory.locked(Part.FAILURES):
            self._counts.put(Name(kind, text), Count())

    # Inside

    def _names(self, place: Place, user: str) -> dict[Name, int]:
        """What a login counts under, with the failures that are free there."""
        if user:
            for where in place.known_by:
                if self.former.has(where, user):
                    return {Name(PAIR, f"{where} {user}"): self.scale.free_of_user}
        names = [Name(USER, user)] if user else []
        names += [Name(kind, text) for kind, text in ((ADDRESS, place.address), (NETWORK, place.network)) if text]
        return {name: self._free(name.kind) for name in names}

    def _free(self, kind: str) -> int:
        return {ADDRESS: self.scale.free_of_address, NETWORK: self.scale.free_of_network}.get(
            kind, self.scale.free_of_user)

    def _start(self, count: Count, free: int, now: float) -> float:
        """When the next login may be looked at."""
        beyond = round(count.at(now, self.scale.half_life)) - free
        if beyond < 0 or not self.scale.first:
            return now
        delay = min(self.scale.longest, self.scale.first * (1 << min(beyond, MOST_DOUBLED)))
        return max(now, count.last + delay)
