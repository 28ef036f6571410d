"""Who does most, in bounded memory: the algorithm Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation
of Frequent and Top-k Elements in Data Streams", 2005), with removal of many at a time, which costs less.

A name that is not there begins with the largest weight that was ever removed: so a weight may be too large by `error`,
and never too small, and a name with more weight than was ever removed is there.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

SHOWN = 20                  # names that are told,
KEPT = 10 * SHOWN           # and that stay when there are twice as many, so that those which are told are nearly exact


class SpaceSaving:
    """The names with most weight, of any number. For one thread."""

    __slots__ = ("_kept", "_removed", "_weights")

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._removed = 0                               # the largest weight that was
        self._weights: dict[str, list[int]] = {}        # weight, error

    def add(self, name: str, weight: int, error: int = 0) -> None:
        """It has so much more, of which `error` may be too much."""
        found = self._weights.get(name)
        if found is not None:
            found[0] += weight
            found[1] += error
            return
        self._weights[name] = [self._removed + weight, self._removed + error]
        if len(self._weights) >= 2 * self._kept:
            rows = sorted(self._weights.items(), key=lambda each: each[1][0], reverse=True)
            self._weights, self._removed = dict(rows[:self._kept]), rows[self._kept][1][0]

    def first(self, count: int = SHOWN) -> list[tuple[str, int, int]]:
        """Those with most weight: name, weight, and by how much that may be too large."""
        found = [(name, weight, error) for name, (weight, error) in list(self._weights.items())]
        return sorted(found, key=lambda each: (-each[1], each[0]))[:count]


@define(eq=False)
class Busiest:
    """The users and domains with most operations, and with most octets. A domain of "" is that of users without one."""

    users: dict[str, SpaceSaving] = field(factory=lambda: {"operations": SpaceSaving(), "octets": SpaceSaving()})
    domains: dict[str, SpaceSaving] = field(factory=lambda: {"operations": SpaceSaving(), "octets": SpaceSaving()})

    def add(self, user: str, operations: int, octets: int) -> None:
        """The user has done so much more."""
        domain = user.rpartition("@")[2] if "@" in user else ""
        users, domains = self.users, self.domains       # of each session and delivery, so without a loop
        if operations:
            users["operations"].add(user, operations)
            domains["operations"].add(domain, operations)
        if octets:
            users["octets"].add(user, octets)
            domains["octets"].add(domain, octets)

    def figures(self) -> dict[str, dict[str, list[tuple[str, int, int]]]]:
        """As it is given to those who ask the process: all that is counted, so that several can be merged."""
        return {what: {kind: each.first(KEPT) for kind, each in kinds.items()}
                for what, kinds in (("users", self.users), ("domains", self.domains))}


def merged(several: Iterable[Mapping[str, Mapping[str, Iterable[Any]]]]) -> dict[str, dict[str, list[Any]]]:
    """What several processes have told, in one."""
    found: dict[str, dict[str, SpaceSaving]] = {}
    for each in several:
        for what, kinds in each.items():
            for kind, rows in kinds.items():
                sums = found.setdefault(what, {}).setdefault(kind, SpaceSaving(1 << 30))
                for name, weight, error in rows:
                    sums.add(name, weight, error)
    return {what: {kind: [{"name": name, "weight": weight, "error": error} for name, weight, error in each.first()]
                   for kind, each in kinds.items()} for what, kinds in found.items()}
