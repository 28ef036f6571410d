"""What there can be more and more of, one thing at a time: for each a store and a server, and all operations on it."""

import base64
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from attrs import field, frozen

from store.accounts.passwords import DIGEST_OCTETS
from store.opening import PRIMARY, open_store
from store.partitions import volumes
from store.settings import Settings
from tools.benchmarks import manymessages
from tools.benchmarks.compare.growth import costs, idle
from tools.benchmarks.compare.ourselves import Ourselves, onecopy
from tools.benchmarks.temporaryserver import PASSWORD, USER, fill_with_users

USERS, MESSAGES = 100, 1000         # where the dimension is another
MAILBOX = b"Large"
MANY = "100000"                     # connections that are allowed, in all, from an address and of a user
LIMITS = tuple(word for name in ("", "-per-address", "-per-user") for word in (f"--imap-connections{name}", MANY))
MEMORY = "memory of a connection, KiB"


@frozen
class Dimension:
    """`values`: how many there are, one after the other. `may_grow`: the operations that do more work by their nature
    when there are more."""

    heading: str
    values: Sequence[int]
    measure: Callable[[Path, int], dict[str, float]]
    may_grow: frozenset[str] = field(default=frozenset(), converter=frozenset)


def make_store(root: Path, users: int, *, messages: int = MESSAGES, partitions: int = 1) -> None:
    """Users, spread over partitions, and a mailbox of the first one. Nothing is synced: nobody loses power here."""
    store = open_store(root, Settings(sync="none", special_mailboxes=()), who="tools/bench")
    try:
        places = [PRIMARY, *(f"p{number}" for number in range(1, partitions))]
        for name in places[1:]:
            volumes.add(store, name)
        fill_with_users(store, users, places, _quick_hash())
        manymessages.fill(store, USER % 0, MAILBOX.decode(), messages)
    finally:
        store.close()


def _quick_hash() -> str:
    """Of the password, one that is soon compared: so many log in for the first time that it would be all there is."""
    salt, octets = os.urandom(16), PASSWORD.encode()
    digest = hashlib.scrypt(octets, salt=salt, n=1 << 10, r=1, p=1, dklen=DIGEST_OCTETS)
    return "$".join(["scrypt", "10", "1", "1", *(base64.b64encode(each).decode() for each in (salt, digest))])


def _served(place: Path, users: int, workers: int = 1, messages: int = MESSAGES, partitions: int = 1
            ) -> dict[str, float]:
    style = Ourselves("onecopy", workers=workers,
                      make=partial(make_store, messages=messages, partitions=partitions))
    with onecopy(place, users, style) as target:
        return costs(target, MAILBOX)


def _connected(place: Path, connections: int) -> dict[str, float]:
    """Each of another user."""
    with onecopy(place, max(USERS, connections), Ourselves(
            "onecopy", workers=1, make=make_store, options=LIMITS)) as target:
        opened, memory = idle(target, connections)
        found = costs(target, MAILBOX)
        for imap in opened:
            imap.close()
    return {**found, MEMORY: memory}


DIMENSIONS = {
    "workers": Dimension("Workers", (1, 2, 4), lambda place, value: _served(place, USERS, workers=value)),
    "messages": Dimension("Messages in the mailbox", (1_000, 10_000, 100_000, 1_000_000),
                          lambda place, value: _served(place, USERS, messages=value)),
    "users": Dimension("Users", (100, 1_000, 10_000, 100_000), _served),
    "connections": Dimension("Other connections in IDLE", (100, 1_000, 5_000, 20_000), _connected),
    "partitions": Dimension("Partitions", (1, 2, 4, 8), lambda place, value: _served(place, USERS, partitions=value)),
}
