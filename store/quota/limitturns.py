"""Limits of an owner change, or they go along with the owner, who moves to another partition or back end: one after the
other. Else a change between the moment at which limits are read and the one at which the move is decided would be lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.filelock import in_turn_for
from store.tables.quotatable import LimitsTurn

if TYPE_CHECKING:           # who only asks loads nothing that is for messages
    from store.store import Store


@contextmanager
def in_turn(store: "Store", owner: str) -> Iterator[LimitsTurn]:
    """Nobody else changes limits of that owner ("": public mailboxes, "@DOMAIN": a domain), or takes them along. Who
    has the turn must not ask for another one of the same owner. Raises StoreError."""
    with in_turn_for(store.root / "run" / "limits.lock", owner):
        yield LimitsTurn(owner)
