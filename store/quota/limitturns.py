"""Limits of an owner change, or they go along with the owner, who moves to another partition or back end: one after the
other. Else a change between the moment at which limits are read and the one at which the move is decided would be lost.
"""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from store.filelock import in_turn_for

if TYPE_CHECKING:           # who only asks loads nothing that is for messages
    from store.store import Store


def in_turn(store: "Store", owner: str) -> AbstractContextManager[None]:
    """Nobody else changes limits of that owner ("": public mailboxes, "@DOMAIN": a domain), or takes them along.
    Raises StoreError."""
    return in_turn_for(store.root / "run" / "limits.lock", owner)
