"""Deliveries as a process that serves the store makes them: the file journal is synced, and the message files later."""

import os
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial

from store import offload
from store.delivery import durable
from store.delivery.commit import Target
from store.delivery.sentahead import Message, deliver_each
from store.errors import Problem, StoreError
from store.partition.filejournal import PAGE, FileJournal
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.quota import roots
from store.store import Store
from tests.crash.places import ALICE, ARCHIVE, BIG, BOB, NEW, TRACE, WHEN, WORK, Answered, Place


class Journalled(durable.Durability):
    """As `SharedSyncs` without an event loop. Of the pages of the journal one is its head; a message takes another."""

    def __init__(self, store: Store, partition: Partition, pages: int) -> None:
        self.journal = FileJournal.make(partition.files, partition.serials.next_serial(), pages * PAGE)
        partition.files.journal = self.journal
        store.owned.put(durable.Durability, self)

    def staged(self, staged: Staged, partition: Partition) -> Awaitable[None]:
        return self._journalled(staged, super().staged(staged, partition))

    async def _journalled(self, staged: Staged, by_itself: Awaitable[None]) -> None:
        if staged.named and self.journal.append(staged, partial(os.fdatasync, self.journal.handle)):
            by_itself.close()           # type: ignore[attr-defined]
            staged.on_disk = True
        else:
            await by_itself


def _served(place: Place, pages: int) -> Journalled:
    partition = place.store.partitions["primary"]
    made = Journalled(place.store, partition, pages)
    with suppress(StoreError, OSError):         # a server does it in a thread, and goes on without
        partition.files.make_ready(partition.serials.next_serial() for _ in range(6))
    return made


def _settle(place: Place) -> None:
    with suppress(OSError):                     # housekeeping tries again
        place.store.partitions["primary"].files.drop_staged_names()


def deliver(place: Place, answered: Answered) -> None:
    """Some messages, a sync of all message files, and more messages, one of which is written over the first."""
    _served(place, 4)
    place.deliver(NEW[0], ALICE, trace=TRACE)
    answered()
    place.deliver(NEW[1], ALICE, BOB, trace=TRACE)
    answered()
    _settle(place)
    for body in (NEW[2], NEW[3]):
        place.deliver(body, ARCHIVE)
        answered()


def append_ahead(place: Place, answered: Answered) -> None:
    """What a client has sent without waiting: some share the journal's sync, a transaction and a flush, and for one of
    them there is no room; then two more."""
    _served(place, 8)
    roots.set_quota(place.store, "bob", 3 * sum(map(len, NEW)))
    for bodies in ((NEW[0], NEW[1], BIG, NEW[0]), (NEW[2], NEW[3])):
        messages = []
        for body in bodies:
            entry = place.entry(BOB)
            staged = place.store.stage(entry)
            if staged.write(body):
                offload.now(durable.spill(place.store, staged))
            messages.append((staged, Target(entry, reader="bob", appended=True), WHEN))
        try:
            for outcome in _together(place.store, messages):
                if isinstance(outcome, StoreError) and outcome.problem is not Problem.OVER_QUOTA:
                    raise outcome
        finally:
            for staged, _, _ in messages:
                staged.abort()              # what is committed stays
        answered()
    _settle(place)


def _together(store: Store, messages: Sequence[Message]) -> Sequence[object]:
    """Where that cannot be, nothing has been done: a server delivers each alone then, and some may be refused."""
    found = offload.now(deliver_each(store, messages))
    if found is None:
        raise StoreError(Problem.UNAVAILABLE)
    return found


def deliver_until_full(place: Place, answered: Answered) -> None:
    """More than the journal takes: the file of the last one is synced for itself. Then the journal grows."""
    journal = _served(place, 3).journal
    for body in NEW[:3]:
        place.deliver(body, WORK)
        answered()
    with suppress(StoreError):
        journal.grow()
    _settle(place)
    place.deliver(NEW[3], BOB, trace=TRACE)
    answered()
