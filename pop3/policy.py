"""What differs from user to user, in the words of one setting: how long messages stay, how often one may log in."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from attrs import field, frozen

from store.addresses import canonical_domain

DAY = 86400
LONGEST = 1 << 31           # seconds
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": DAY, "w": 7 * DAY}
_TIME = re.compile(r"([0-9]{1,10})([smhdw]?)")


@frozen
class PerUser:
    """A time in seconds for everybody, and for `others` another one: by user id, or by domain with an @ before it."""

    everybody: int
    others: Mapping[str, int] = field(factory=lambda: MappingProxyType({}), hash=False)

    @classmethod
    @lru_cache(maxsize=16)
    def parse(cls, everybody: int, others: str) -> "PerUser":
        """Of a setting such as "alice=90d @example.net=30d". Raises ValueError."""
        found: dict[str, int] = {}
        for word in others.replace(",", " ").split():
            who, equals, time = word.rpartition("=")
            match = _TIME.fullmatch(time)
            if not who or not equals or not match:
                raise ValueError(f"{word!r} is not a user or @domain, = and a time such as 90, 30m, 12h, 7d")
            seconds = int(match[1]) * _UNITS[match[2]]
            if seconds > LONGEST:
                raise ValueError(f"{word!r} is too long")
            name, at, domain = who.rpartition("@")
            found[f"{name}@{canonical_domain(domain)}" if at else who] = seconds
        return cls(everybody, MappingProxyType(found))

    def of(self, user: str, default_domain: str) -> int:
        """That of a user, by user id: of a domain's users, those of the default one are named without it."""
        name, _, domain = user.rpartition("@")
        address = user if name else f"{user}@{default_domain}"
        for key in (user, address, address[address.rindex("@"):]):
            if key in self.others:
                return self.others[key]
        return self.everybody

    @property
    def differs(self) -> bool:
        """Whether it depends on the user."""
        return bool(self.others)

    @property
    def values(self) -> frozenset[int]:
        """All that there are."""
        return frozenset((self.everybody, *self.others.values()))


def shortest(expiry: PerUser) -> int:
    """The smallest of times of which 0 is for ever."""
    return min((time for time in expiry.values if time), default=0)
