"""What the servers note in the audit trail: of a client who waits for an answer, in a thread."""

import logging
from functools import partial
from typing import Any

from store import offload
from store.audit.trail import Trail
from store.store import Store

log = logging.getLogger(__name__)


def attach(store: Store, trail: Trail) -> None:
    """Have what the sessions of this process do noted there."""
    trail.unwritten = partial(log.error, "%s")
    store.owned.put(Trail, trail)


async def note(store: Store, kind: str, what: str, **facts: Any) -> None:
    """Note that somebody does something: it is on disk when this ends. Nothing is noted of a store that no server has
    opened. Raises nothing: what is done is done, and an answer must say so."""
    trail = store.owned.find(Trail)
    if trail is not None and trail.wants(kind):
        await offload.run(store, "files", partial(trail.write, kind, what, **facts))
