"""Who follows this standby: `standby-followers.json` in its folder, written before the first octet is sent.

Each has a place among all that may be promoted, which the machine that serves has given (`succession.note_follower`).
The record is of one course of events: that of these promotions, and of the machine that serves after them. In another
one it counts for nothing, and the places are asked for again.
"""

import json
from pathlib import Path

from attrs import asdict, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from store.standby.sourcepeer import PLACES
from store.standby.standbystate import StandbyState
from store.usermove.messageformat import BadMessage, whole

FILE = "standby-followers.json"


@frozen
class Followers:
    """What is on record: each machine with its place. The others say of which course of events it is."""

    identity: str
    line: tuple[str, ...]
    serves: str
    places: dict[str, int] = field(factory=dict)

    @classmethod
    def of(cls, state: StandbyState) -> "Followers":
        """Nobody yet, of this course of events."""
        return cls(state.identity, state.line, state.serves)

    def save(self, root: Path) -> None:
        """Have it on disk. Raises OSError."""
        replace_file(root / FILE, json.dumps(asdict(self), sort_keys=True).encode())


def read(root: Path, state: StandbyState) -> Followers:
    """Who follows the standby that is in this state. What cannot be read counts for nothing: they ask again."""
    none = Followers.of(state)
    try:
        found = json.loads(privatefiles.read(root / FILE))
        known = Followers(found["identity"], tuple(found["line"]), found["serves"], {
            str(host): whole(place, "place", 0, PLACES + 1) for host, place in found["places"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadMessage):
        return none
    return known if evolve(known, places={}) == none else none


def note(root: Path, state: StandbyState, host: str, place: int) -> None:
    """Note that a machine follows, with that place. Raises OSError."""
    known = read(root, state)
    if known.places.get(host) != place:
        evolve(known, places={**known.places, host: place}).save(root)


def forget(root: Path) -> None:
    """Remove the record, since this machine is a standby no more."""
    (root / FILE).unlink(missing_ok=True)
