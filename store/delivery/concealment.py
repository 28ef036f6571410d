"""Whether a message takes the way of a new one, file and sync and all, though its content may be there.

A client that stores messages could else tell by the time of the answer which ones others have. So APPEND takes the
long way (setting `conceal_sharing`), unless the same user has stored the same content a short while ago: that the store
has it then is what the user knows, and follows from nothing that others do. It is still there for the purge delay even
if the user expunges it at once.

LMTP takes the short way, since relays split long lists of recipients, and the second transaction would cost what the
first did. What a relay hands over begins with a Received field of that relay: nobody but the relay can bring these
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
REMEMBERED = 5000               # messages that users have stored, in a process
SECONDS = 3600                  # for which they are remembered, or the purge delay if that is shorter
_OCTETS = 16                    # of a digest


@define
class StoredLately:
    """What users of this process have stored themselves."""

    clock: Callable[[], float] = time.monotonic
    _when: OrderedDict[tuple[str, str, bytes], float] = field(factory=OrderedDict, init=False)

    def note(self, store: Store, target: Target, staged: Staged) -> None:
        """The target's user has stored that message."""
        if target.appended and store.settings.conceal_sharing in (CLIENTS, ALL):
            key = _key(target, staged)
            self._when[key] = self.clock()
            self._when.move_to_end(key)
            if len(self._when) > REMEMBERED:
                self._when.popitem(last=False)

    def has(self, store: Store, target: Target, staged: Staged) -> bool:
        """Whether the target's user has stored that message, and the store has it because of that."""
        when = self._when.get(_key(target, staged))
        return when is not None and self.clock() - when < min(SECONDS, store.settings.purge_delay)


def _key(target: Target, staged: Staged) -> tuple[str, str, bytes]:
    return target.reader, target.entry.partition, staged.digest[:_OCTETS]


def stored_lately(store: Store) -> StoredLately:
    """That of an open store."""
    return store.owned.get(StoredLately, StoredLately)


def takes_long_way(store: Store, staged: Staged, targets: Sequence[Target]) -> bool:
    """Whether a message that is finished does, on the way to these targets."""
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
