"""Deliveries to mailboxes that another transaction has locked. They wait in threads, and only a few for each mailbox,
so that one mailbox that stays locked holds up neither the event loop nor the mail of others."""

from collections import Counter
from collections.abc import Sequence

from mboxlist.entry import MailboxId
from store.delivery.commit import Locked, Outcome, Target, commit_patiently
from store.offload import run
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.store import Store
from store.values import InternalDate

THREADS = 16                # of a server, in which deliveries wait


class LockedMailboxes:
    """Counts how many deliveries wait for which mailboxes."""

    def __init__(self) -> None:
        self._waiting: Counter[MailboxId] = Counter()
        self._under_way = 0

    async def commit(self, store: Store, partition: Partition, staged: Staged, targets: Sequence[Target],
                     received: InternalDate) -> list[Outcome]:
        """`commit.commit`, as soon as the locks are free. A target behind which too many wait is refused (Locked)."""
        most = store.settings.mailbox_waiters if self._under_way < THREADS else 0
        mine = [target for target in targets if self._waiting[target.entry.id] < most]
        ids = [target.entry.id for target in mine]
        found: list[Outcome] = []
        if mine:
            self._under_way += 1
            self._waiting.update(ids)
            try:
                found = await run(store, "locked", commit_patiently, partition, staged, mine, received,
                                  store.settings.mailbox_wait)
            finally:
                self._under_way -= 1
                self._waiting.subtract(ids)
                self._waiting += Counter()          # drops mailboxes for which nobody waits
        outcomes = dict(zip(ids, found, strict=True))
        return [outcomes[target.entry.id] if target.entry.id in outcomes else
                Locked(at, f"too many deliveries wait for {target.entry.name}") for at, target in enumerate(targets)]
