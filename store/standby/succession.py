"""Which of several machines may serve a store: `succession.json` in its folder.

Each promotion raises a number, which goes on to whoever follows. Of two machines with one store, the one with the
higher number serves. The other one is superseded: it notes that, and serves no more, until an administrator has it
follow (`onecopy standby rejoin`), or says that the other one is gone for good (`onecopy standby forget`).

So a machine notes who follows it, before it sends the first octet of its store: any of these may be promoted while it
is away. It asks them when it starts, and while it serves (`tools.server.control.fencing`).

Two standbys of one machine that are both promoted have the same number. So each promotion has a random identity, too:
where the numbers of two machines are equal and their last promotions are not, they *contest* the store. Neither follows
the other, nor starts, until an administrator has chosen.
"""

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from store.errors import Problem, StoreError
from store.filelock import in_turn
from store.partition.marks import SUCCESSION
from store.usermove.messageformat import Message

LOCK = "run/succession.lock"
LINE = 1000         # promotions whose identities are kept, at most
PARTINGS = 20     # and of which it is kept where they left the machine before


@frozen
class Lineage:
    """How many promotions a store has seen, and their identities, the last one at the end."""

    number: int = 0
    line: tuple[str, ...] = ()

    @classmethod
    def of(cls, message: Message) -> "Lineage":
        """As another machine says it; one of an earlier version names no promotion. Raises BadMessage."""
        number = message.number("succession")
        return cls(number, tuple(message.texts("line", LINE)) if "line" in message.fields else unnamed(number))

    def fields(self) -> dict[str, Any]:
        """As it is said to another machine."""
        return {"succession": self.number, "line": list(self.line)}

    def promoted(self, number: int = 0) -> "Lineage":
        """After one more promotion, the one of that number."""
        return Lineage(number or self.number + 1, (*self.line, secrets.token_hex(8))[-LINE:])

    def contests(self, other: "Lineage") -> bool:
        """Whether both were promoted from one state, so that neither serves in the place of the other."""
        return self.number == other.number and self.line[-1:] != other.line[-1:]

    def goes_on_from(self, other: "Lineage") -> bool:
        """Whether this store has seen every promotion that the other one has."""
        return self.line[:len(other.line)] == other.line


@frozen
class Parting:
    """What a machine that was promoted had of the one before it. By environment `ends`: file and octet up to where it
    had the log, and the checksum of what stands before (`LogEnd`); `epochs` of its partitions; `moment`: the Unix time
    at which the store was like that, by the clock of the one before. `stays`: it is the one before itself, which an
    administrator has preferred: nobody who followed it has more."""

    ends: dict[str, tuple[int, int, int]] = field(factory=dict)
    epochs: dict[str, int] = field(factory=dict)
    moment: float = 0.0
    stays: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Parting":
        """From the stored form. Raises ValueError, TypeError, KeyError."""
        ends = {str(name): (int(file), int(octet), int(checksum)) for name, (file, octet, checksum) in dict(
            fields["ends"]).items()}
        epochs = {str(name): int(epoch) for name, epoch in dict(fields["epochs"]).items()}
        return cls(ends, epochs, float(fields["moment"]), bool(fields["stays"]))

    def has_all(self, left: "Parting") -> bool:
        """Whether that machine had no more of the one before, as far as can be told: else it may have. A checksum of 0
        is not known."""
        same = True
        for name, (file, octet, checksum) in left.ends.items():
            then = self.ends.get(name, (0, 0, 0))
            if name in self.ends and (file, octet) > then[:2]:
                return False
            same &= (file, octet) == then[:2] and (checksum == then[2] or 0 in (checksum, then[2]))
        return same or left.moment <= self.moment and all(
            epoch <= self.epochs.get(name, epoch) for name, epoch in left.epochs.items())


Partings = Mapping[str, Parting]        # by the identities of promotions


def partings_of(fields: Mapping[str, Any]) -> dict[str, Parting]:
    """From the stored form. Raises ValueError, TypeError, KeyError."""
    return {str(name): Parting.of(each) for name, each in fields.items()}


def said_of(known: Partings) -> dict[str, Any]:
    """As it is said to another machine."""
    return {name: asdict(each) for name, each in known.items()}


def with_parting(known: Partings, lineage: Lineage, left: Parting) -> dict[str, Parting]:
    """With that of the last promotion, and without those of long ago."""
    found = {**known, lineage.line[-1]: left}
    return {name: found[name] for name in lineage.line[-PARTINGS:] if name in found}


@frozen
class Other:
    """What another machine says of itself. `skipped`: how far its promotion went ahead: see `promotion`. A standby says
    that of the machine that `serves`, which it follows."""

    lineage: Lineage = Lineage()
    skipped: int = 0
    serves: str = ""

    @classmethod
    def of(cls, message: Message) -> "Other":
        """What the other machine says of itself. Raises BadMessage."""
        return cls(Lineage.of(message), message.number("skipped") if "skipped" in message.fields else 1,
                   message.text("serves") if "serves" in message.fields else "")


@frozen
class Succession:
    """What is on record: how many promotions the store has seen, `number`, and the identities of these, `line`; the
    `identity` of its list of mailboxes; who has followed this machine since it serves, `followers`, each with its
    place among them; who serves in its place, `successor`, the number of that one, `later`, and the identity of its
    last promotion, `named`; who has been promoted besides, `contender`; and how far these two went ahead, `ahead`.

    Of the promotion that made it serve: whose place it took (`before`), as of which Unix time (`moment`), how far it
    went ahead (`skipped`); and the promotions before the one whose common place is kept (`common`). `partings`: what
    those had that were promoted, as far as it is known.
    """

    number: int = 0
    identity: str = ""
    followers: dict[str, int] = field(factory=dict)
    successor: str = ""
    later: int = 0
    before: str = ""
    moment: float = 0.0
    line: tuple[str, ...] = ()
    named: str = ""
    contender: str = ""
    ahead: int = 0
    skipped: int = 0
    common: tuple[str, ...] = ()
    partings: dict[str, Parting] = field(factory=dict)

    @property
    def lineage(self) -> Lineage:
        """The promotions that this store has seen."""
        return Lineage(self.number, self.line)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Succession":
        """From the stored form. Raises ValueError, TypeError, KeyError."""
        fields: dict[str, Any] = json.loads(data)
        followers = fields["followers"]
        if isinstance(followers, list):         # of a version in which promotions had no identities
            followers = {host: place for place, host in enumerate(followers)}
            line = unnamed(fields["number"])
            fields = {**fields, "line": line, "common": line[:-1]}
        return cls(**{**fields, "followers": {str(host): int(place) for host, place in followers.items()},
                      "line": tuple(fields["line"]), "common": tuple(fields["common"]),
                      "partings": partings_of(fields.get("partings", {}))})

    def save(self, root: Path) -> None:
        """Have it on disk. Raises OSError."""
        replace_file(root / SUCCESSION, json.dumps(asdict(self), sort_keys=True, indent=1).encode())


def read(root: Path) -> Succession:
    """What is on record; of a store that nobody has followed nothing is. Raises StoreError UNAVAILABLE when it cannot
    be read."""
    try:
        return Succession.from_bytes(privatefiles.read(root / SUCCESSION))
    except FileNotFoundError:
        return Succession()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(Problem.UNAVAILABLE, f"{root / SUCCESSION} cannot be read: {error}; without that file "
                         "this machine serves, so remove it only where no standby has been promoted") from error


def change(root: Path, how: Callable[[Succession], Succession]) -> Succession:
    """Have it changed, on disk, one process after the other. Raises StoreError UNAVAILABLE, OSError."""
    privatefiles.make_folder(root / "run", exist_ok=True)
    with in_turn(root / LOCK):
        before = read(root)
        after = how(before)
        if after != before:
            after.save(root)
        return after


def note_follower(root: Path, identity: str, host: str) -> int:
    """That machine has begun to copy the store, or goes on: its place among those that may be promoted, which no other
    one has. Raises StoreError UNAVAILABLE, OSError."""
    def noted(now: Succession) -> Succession:
        free = next(place for place in range(len(now.followers) + 1) if place not in now.followers.values())
        return evolve(now, identity=identity, followers={host: free, **now.followers},
                      contender="" if now.contender == host else now.contender)

    known = read(root)
    if host not in known.followers or known.identity != identity or known.contender == host:
        known = change(root, noted)
    return known.followers[host]


def note_other(root: Path, host: str, other: Other) -> None:
    """What that machine has said of itself. Raises StoreError UNAVAILABLE, OSError."""
    if noted(known := read(root), host, other) != known:
        change(root, lambda now: noted(now, host, other))


def noted(now: Succession, host: str, other: Other) -> Succession:
    """With what that machine says of itself."""
    theirs, newest = other.lineage, other.lineage.line[-1:]
    if theirs.number > max(now.number, now.later):
        return evolve(now, successor=host, later=theirs.number, named="".join(newest), contender="",
                      ahead=max(now.ahead, other.skipped))
    if theirs.contests(Lineage(now.later, (now.named,)) if now.successor else now.lineage):
        return evolve(now, contender=host, ahead=max(now.ahead, other.skipped))
    if now.successor and (theirs.number, "".join(newest)) == (now.later, now.named):
        now = evolve(now, ahead=max(now.ahead, other.skipped))          # it was heard of from another one
    return evolve(now, contender="") if now.contender == host else now


def forget(root: Path, host: str) -> bool:
    """That machine will never serve this store any more; whether it has been promoted. If it comes back all the same,
    it finds out that this one has been preferred. Raises StoreError UNAVAILABLE, OSError."""
    before = read(root)

    def without(now: Succession) -> Succession:
        found = evolve(now, followers={each: place for each, place in now.followers.items() if each != host})
        if host not in (now.successor, now.contender):
            return found
        if host == now.contender and now.successor:
            return evolve(found, contender="")
        preferred = now.lineage.promoted(max(now.number, now.later) + 1)
        return evolve(found, successor="", later=0, named="", contender="", ahead=0, number=preferred.number,
                      line=preferred.line,
                      partings=with_parting(now.partings, preferred, Parting(stays=True)))

    return change(root, without).number != before.number


def unnamed(number: int) -> tuple[str, ...]:
    """What stands for the identities of promotions that had none."""
    return tuple(f"#{each}" for each in range(1, number + 1))


def require_not_superseded(root: Path) -> None:
    """Raises StoreError STORE_IN_USE when another machine serves this store, UNAVAILABLE."""
    known = read(root)
    if known.successor:
        raise StoreError(Problem.STORE_IN_USE, superseded(known.successor, known.contender))


def require_first(root: Path) -> None:
    """Before it begins to serve. Raises StoreError STORE_IN_USE when another machine serves this store, or was promoted
    besides, UNAVAILABLE."""
    require_not_superseded(root)
    known = read(root)
    if known.contender:
        raise StoreError(Problem.STORE_IN_USE, contested("this machine", known.contender))


def superseded(host: str, contender: str = "") -> str:
    """What an administrator reads who starts a machine whose store another one serves."""
    if contender:
        return contested(host, contender)
    return (f"{host} has been promoted and serves this store: two machines must not. `onecopy standby rejoin --from "
            f"{host}:PORT` brings it the mail that only this machine has, and has this one follow it. If {host} is "
            f"gone for good, `onecopy standby forget {host}` lets this machine serve again")


def contested(one: str, host: str) -> str:
    """What an administrator reads who meets two machines that were promoted from one state."""
    where = "the other one" if one == "this machine" else "one of them"
    return (f"{one} and {host} have both been promoted in the place of one machine: only one may serve this store. "
            f"End the server of the one that is not to, and type there `onecopy standby rejoin --from HOST:PORT` of "
            f"{where}, which brings the mail over. If {host} is gone for good, `onecopy standby forget {host}` lets "
            f"this machine go on")
