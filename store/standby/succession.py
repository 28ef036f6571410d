"""Which of several machines may serve a store: `succession.json` in its folder.

Each promotion raises a number, which goes on to whoever follows. Of two machines with one store, the one with the
higher number serves. The other one is superseded: it notes that, and serves no more, until an administrator has it
follow (`onecopy standby rejoin`), or says that the other one is gone for good (`onecopy standby forget`).

So a machine notes who follows it, before it sends the first octet of its store: any of these may be promoted while it
is away. It asks them when it starts, and while it serves (`tools.server.control.fencing`).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from store.errors import Problem, StoreError
from store.filelock import in_turn
from store.partition.marks import SUCCESSION

LOCK = "run/succession.lock"


@frozen
class Succession:
    """What is on record: how many promotions the store has seen, `number`; the `identity` of its list of mailboxes; who
    has followed this machine since it serves, `followers`; who serves in its place, `successor`, and the number of that
    one, `later`.

    Of the promotion that made it serve: whose place it took (`before`), and as of which Unix time (`moment`).
    """

    number: int = 0
    identity: str = ""
    followers: tuple[str, ...] = ()
    successor: str = ""
    later: int = 0
    before: str = ""
    moment: float = 0.0

    @classmethod
    def from_bytes(cls, data: bytes) -> "Succession":
        """From the stored form. Raises ValueError, TypeError, KeyError."""
        fields: dict[str, Any] = json.loads(data)
        return cls(**{**fields, "followers": tuple(fields["followers"])})

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


def note_follower(root: Path, identity: str, host: str) -> None:
    """That machine has begun to copy the store, or goes on. Raises StoreError UNAVAILABLE, OSError."""
    known = read(root)
    if host not in known.followers or known.identity != identity:
        change(root, lambda now: evolve(now, identity=identity, followers=tuple(sorted({*now.followers, host}))))


def note_successor(root: Path, host: str, number: int) -> None:
    """That machine knows of so many promotions. Raises StoreError UNAVAILABLE, OSError."""
    known = read(root)
    if number > max(known.number, known.later):
        change(root, lambda now: now if number <= max(now.number, now.later) else evolve(
            now, successor=host, later=number))


def forget(root: Path, host: str) -> bool:
    """That machine will never serve this store any more; whether anything was known of it. If it comes back all the
    same, it finds out that this one has been preferred. Raises StoreError UNAVAILABLE, OSError."""
    before = read(root)

    def without(now: Succession) -> Succession:
        found = evolve(now, followers=tuple(each for each in now.followers if each != host))
        return evolve(found, successor="", number=now.later + 1, later=0) if now.successor == host else found

    return change(root, without) != before


def require_not_superseded(root: Path) -> None:
    """Raises StoreError STORE_IN_USE when another machine serves this store, UNAVAILABLE."""
    known = read(root)
    if known.successor:
        raise StoreError(Problem.STORE_IN_USE, superseded(known.successor))


def superseded(host: str) -> str:
    """What an administrator reads who starts a machine whose store another one serves."""
    return (f"{host} has been promoted and serves this store: two machines must not. `onecopy standby rejoin --from "
            f"{host}:PORT` brings it the mail that only this machine has, and has this one follow it. If {host} is "
            f"gone for good, `onecopy standby forget {host}` lets this machine serve again")
