"""Decides whether a message goes the way of a new one, with file and sync, though the store may have its content.

Otherwise a client that stores messages could learn from the time of the answer which ones others have. So APPEND goes
the long way (setting `conceal_sharing`), unless the same user has stored the same content a short while ago. Then the
user knows that the store has it, whatever others do: the content stays for the purge delay even if the user expunges it
at once.

LMTP goes the short way: relays split long lists of recipients, and the second transaction would cost as much as the
first one. What a relay hands over begins with a Received field of that relay, so nobody but the relay can send these
octets.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from attrs import define, field

from store.delivery.commit import Target
from store.partition.staged import Staged
from store.settings import CONCEALED
from store.store import Store

CLIENTS, ALL, _ = CONCEALED
REMEMBERED = 5000               # so many messages that users have stored are remembered in a process,
SECONDS = 3600                  # so long, or for the purge delay if that is shorter
_OCTETS = 16                    # of a digest


@define
class StoredLately:
    """The messages that users have lately stored by this process."""

    clock: Callable[[], float] = time.monotonic
    _when: OrderedDict[tuple[str, str, bytes], float] = field(factory=OrderedDict, init=False)

    def note(self, store: Store, target: Target, staged: Staged) -> None:
        """Note that the target's user has stored that message."""
        if target.appended and store.settings.conceal_sharing in (CLIENTS, ALL):
            key = _key(target, staged)
            self._when[key] = self.clock()
            self._when.move_to_end(key)
            if len(self._when) > REMEMBERED:
                self._when.popitem(last=False)

    def has(self, store: Store, target: Target, staged: Staged) -> bool:
        """Whether the target's user has stored that message, and the store still has it because of that."""
        when = self._when.get(_key(target, staged))
        return when is not None and self.clock() - when < min(SECONDS, store.settings.purge_delay)


def _key(target: Target, staged: Staged) -> tuple[str, str, bytes]:
    return target.reader, target.entry.partition, staged.digest[:_OCTETS]


def stored_lately(store: Store) -> StoredLately:
    """The `StoredLately` of an open store."""
    return store.owned.get(StoredLately, StoredLately)


def takes_long_way(store: Store, staged: Staged, targets: Sequence[Target]) -> bool:
    """Whether a finished message goes the long way to these targets."""
    setting = store.settings.conceal_sharing
    if setting not in (CLIENTS, ALL):
        return False
    clients = others = False
    for target in targets:
        if not target.appended:
            others = True
        elif not stored_lately(store).has(store, target, staged):
            return True
        else:
            clients = True
    return others and (clients or setting == ALL)
