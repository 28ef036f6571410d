"""What the servers note in the audit trail: of a client who waits for an answer, in a thread."""

import logging
from functools import partial
from typing import Any

from attrs import define, field

from store import offload
from store.audit.trail import Trail
from store.store import Store

log = logging.getLogger(__name__)

FREE = 512 << 10            # octets of lines of an actor that cost nothing,
RATE = 4 << 10              # and how many a second are forgotten again: some dozen lines
MOST_ACTORS = 1000          # of whom that is counted
LINE = 250                  # octets of a line beside its facts


def attach(store: Store, trail: Trail) -> None:
    """Have what the sessions of this process do noted there."""
    trail.unwritten = partial(log.error, "%s")
    store.owned.put(Trail, trail)


async def note(store: Store, kind: str, what: str, *, actor: str, **facts: Any) -> None:
    """Note that somebody does something: it is on disk when this ends. Nothing is noted of a store that no server has
    opened. Raises nothing: what is done is done, and an answer must say so.

    One thread writes what all have noted since it began to: a slow disk holds up those who wait for it, and no others.
    """
    trail = store.owned.find(Trail)
    if trail is not None and trail.wants(kind):
        await offload.run(store, "audit", trail.flush, trail.put(kind, what, actor=actor, **facts), user=actor)


@define(eq=False)
class Pace:
    """How long who fills the trail is made to wait, so that nobody can fill its volume: by octets of lines, which run
    out of a bucket at RATE. No line is left out. For one thread."""

    _actors: dict[str, tuple[float, float]] = field(factory=dict)       # octets in the bucket, and when that was

    @classmethod
    def of(cls, store: Store) -> "Pace":
        """That of an open store."""
        found: Pace = store.owned.get(cls, cls)
        return found

    def wait(self, actor: str, facts: object, now: float) -> float:
        """Seconds, after a line of the actor with these facts."""
        octets, since = self._actors.pop(actor, (0.0, now))
        octets = max(0.0, octets - RATE * (now - since)) + LINE + len(ascii(facts))
        self._actors[actor] = octets, now
        if len(self._actors) > MOST_ACTORS:
            self._actors.pop(next(iter(self._actors)))
        return max(0.0, octets - FREE) / RATE
