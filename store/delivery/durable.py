"""The whole way of a message into the store: when a function here returns, what it says is on disk.

`deliver` is the way of a message, and `severalmessages` brings several to one mailbox. `flushed` comes before every
other positive answer. `Durability` syncs each thing by itself; a server has `net.sharedsyncs`, where syncs that come at
the same time are shared. The setting `store.sync` says what is synced. With "messages", flag changes, copies and
expunges are acknowledged first, and are on disk within a second; with "none" nothing is waited for.
"""

import logging
import time
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from attrs import evolve

from mboxlist.engine.transact import Commits, Unflushed, unless_committed
from mboxlist.engine.troubles import TROUBLES, after_commit
from mboxlist.entry import MailboxEntry
from store import hosting, offload
from store.delivery import repeats
from store.delivery.commit import Delivered, Locked, NotOnDisk, Outcome, Target, commit, is_known
from store.delivery.concealment import stored_lately, takes_long_way
from store.delivery.lockedmailboxes import LockedMailboxes
from store.delivery.replacement import LostFile, let_go
from store.errors import Problem, StoreError
from store.offload import AT_ONCE, change, run, threads_of
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.settings import SYNC_LEVELS
from store.store import Store
from store.values import InternalDate

log = logging.getLogger(__name__)

Found = TypeVar("Found", bound=Outcome)

EVERYTHING, _, NOTHING = SYNC_LEVELS
FEW = 50                    # at most so many messages are delivered together on the event loop
MANY = 200                  # mailboxes of a message that are delivered to on the event loop: about 3 ms
PAUSE = 0.05                # seconds between two tries


class Durability:
    """The syncs of an open store."""

    def staged(self, staged: Staged, partition: Partition) -> Awaitable[None]:
        """Ends when the message file and its name are on disk."""
        return _sync_staged(staged)

    def all_staged(self, messages: Sequence[Staged], partition: Partition) -> Sequence[Awaitable[None]]:
        """`staged` of each of several messages."""
        return [self.staged(staged, partition) for staged in messages]

    def log(self, partition: Partition, staged: Sequence[Staged] = ()) -> Awaitable[None]:
        """Ends when everything committed so far is on disk; then these messages get their places."""
        return _flush(partition, staged)

    def discard(self, staged: Staged) -> None:
        """Remove a message that nobody refers to. Its file is removed when there is time; nobody uses the message any
        more."""
        staged.abort()

    def make_ready(self, partition: Partition) -> None:
        """Make files for messages to come, if there are too few."""


def durability_of(store: Store) -> Durability:
    """The `Durability` of whoever serves the store."""
    return store.owned.get(Durability, Durability)


async def _sync_staged(staged: Staged) -> None:
    staged.sync()
    if not staged.named:
        staged.files.sync_names(staged.names_since)


async def _flush(partition: Partition, staged: Sequence[Staged]) -> None:
    partition.flush()
    place_all(staged)


def place_all(batch: Iterable[Staged]) -> None:
    """Give the messages their places. They are safe under their staged names already, so a failure here does not
    concern their senders."""
    for staged in batch:
        try:
            staged.place()
        except Exception as error:
            TROUBLES.met("messages keep their names in staging for now", str(error))


async def spill(store: Store, staged: Staged) -> None:
    """Write what a message being received holds in memory to its file; call it when `Staged.write` says so."""
    await run(store, "files", staged.spill)


async def deliver(store: Store, staged: Staged, targets: Sequence[Target], received: InternalDate | None = None
                  ) -> list[Outcome]:
    """Deliver a received message to all targets; when this returns, what it says is on disk. Raises Unflushed when what
    was done may not be on disk: then there must be no answer. When it raises anything else, nothing has been done.

    Returns an outcome for each target, in their order; a StoreError for one that was refused. A partition on which all
    fails does not harm the others. The staged message is used up, also when this raises.
    """
    if not staged.digest:
        staged.digested()
    received = received or InternalDate(int(time.time()))
    deadline = time.monotonic() + store.patience
    outcomes: dict[int, Outcome] = {}
    left = dict(enumerate(targets))
    try:
        while True:
            try:
                places: dict[str, dict[int, Target]] = {}       # the targets that are left, by partition
                for at, target in left.items():
                    places.setdefault(target.entry.partition, {})[at] = target
                if len(places) == 1:
                    (name, here), = places.items()
                    outcomes.update(zip(here, await _deliver_on(
                        store, name, staged, tuple(here.values()), received, alone=True), strict=True))
                else:
                    outcomes |= await _deliver_to_several(store, staged, places, received)
            except Unflushed:
                after_commit(unanswered, store, staged, targets)
                raise
            tried, left, broken = left, {}, set()
            for at, target in tried.items():
                if isinstance(outcomes[at], StoreError):
                    if (now := _as_it_is_now(store, target, outcomes[at])) is not None:
                        left[at] = now
                    elif target.group:
                        broken.add(target.group)
            if broken:
                left = {at: target for at, target in left.items() if target.group not in broken}
            if not left or time.monotonic() > deadline:
                found = []
                for at, target in enumerate(targets):
                    outcome = outcomes[at]
                    found.append(or_elsewhere(store, target.entry, outcome) if isinstance(outcome, StoreError)
                                 else outcome)
                return found
            if any(left[at].entry.partition == tried[at].entry.partition for at in left):
                await threads_of(store).pause(PAUSE)
    finally:
        if not staged.committed:
            after_commit(durability_of(store).discard, staged)


def unanswered(store: Store, staged: Staged, targets: Sequence[Target]) -> None:
    """Note that the sender of the message gets no answer, and will send it again."""
    if targets[0].repeat:
        offload.start(store, "changes", partial(
            repeats.note, store, staged.digest, [target.entry for target in targets], targets[0].repeat))


async def forget_expunged(store: Store, partition: Partition, lost: LostFile) -> None:
    """Remove what is left of a lost file, so that its message can be delivered as a new one. Raises `lost` when more
    than expunged messages use the file."""
    if not await run(store, "changes", let_go, partition, lost.digest):
        raise lost


async def _deliver_to_several(store: Store, staged: Staged, by_partition: dict[str, dict[int, Target]],
                              received: InternalDate) -> dict[int, Outcome]:
    """One try on several partitions. The partition that the message was staged on comes last: until then its file is
    there to be copied from."""
    own, outcomes = staged.files, dict[int, Outcome]()
    for name in sorted(by_partition, key=lambda name: name in store.partitions and store.partitions[name].files is own):
        places = by_partition[name]
        found = await _deliver_on(store, name, staged, tuple(places.values()), received, alone=False)
        outcomes.update(zip(places, found, strict=True))
    return outcomes


async def _deliver_on(store: Store, name: str, staged: Staged, targets: Sequence[Target], received: InternalDate, *,
                      alone: bool) -> Sequence[Outcome]:
    """One try on the partition of that name; `alone`: on no other. The caller must still remove the file, unless it has
    been committed, or `left`."""
    copy, durability, before = staged, store.owned.get(Durability, Durability), Commits.total
    try:
        partition = store.partition(name)
        if partition.files is not staged.files:
            await run(store, "files", staged.finish)
            copy = await copied(store, staged, partition)
        copy.concealed = takes_long_way(store, copy, targets)
        known = not copy.concealed and is_known(partition, copy)
        written = None
        if not known and not copy.on_disk:              # else this is another try
            written = durability.staged(copy, partition) if store.settings.sync != NOTHING else _written(store, copy)
        try:
            if not copy.finish(at_once=True):           # while the disk is at work
                await run(store, "files", copy.finish)
        finally:
            if written is not None:
                await written
        if known:
            try:
                outcomes = await _commit(store, partition, copy, targets, received)
            except NotOnDisk:               # a purge was quicker
                known = False
                await durability.staged(copy, partition)
        if not known:
            copy.close()
            outcomes = await _commit(store, partition, copy, targets, received)
        refused = False
        for target, outcome in zip(targets, outcomes, strict=True):
            if isinstance(outcome, StoreError):
                refused = True
            elif target.appended and isinstance(outcome, Delivered):
                after_commit(stored_lately(store).note, store, target, copy)
        if alone and copy.concealed and not refused:
            copy.left = True                # there is no other try
        await put_on_disk(store, durability, partition, (copy,))
        return outcomes
    except StoreError as refusal:
        if not staged.finish(at_once=True):             # who notes that it was refused names it
            await run(store, "files", staged.finish)
        return [refusal] * len(targets)
    except Unflushed:
        raise
    except Exception as error:              # on this partition nothing is done; on another one it may be
        unless_committed(before, error)
        log.exception("a message could not be delivered on partition %s", name)
        return [StoreError(Problem.UNAVAILABLE, detail=str(error))] * len(targets)
    finally:
        if copy is not staged and not copy.committed:
            after_commit(durability.discard, copy)


async def _written(store: Store, staged: Staged) -> None:
    await spill(store, staged)
    staged.on_disk = True


def _as_it_is_now(store: Store, target: Target, outcome: Outcome) -> Target | None:
    """The target for another try, when its mailbox is being moved, or was since it was looked up; else None."""
    if not isinstance(outcome, StoreError) or isinstance(outcome, Locked) or outcome.problem not in (
            Problem.BUSY, Problem.NO_MAILBOX):
        return None
    entry = store.mailboxes.find_id(target.entry.id)
    return None if entry is None or _is_gone(store, entry) else evolve(target, entry=entry)


def _is_gone(store: Store, entry: MailboxEntry) -> bool:
    """Whether the mailbox's owner has been moved to another back end, perhaps since the mailbox was looked up."""
    return hosting.is_elsewhere(store, entry.name.owner)


def or_elsewhere(store: Store, entry: MailboxEntry, outcome: Found) -> Found | StoreError:
    """The outcome for that mailbox. If its owner has moved to another back end, the mail must come again: it then goes
    there."""
    if isinstance(outcome, StoreError) and outcome.problem in (Problem.BUSY, Problem.NO_MAILBOX) and _is_gone(
            store, entry):
        return StoreError(Problem.ELSEWHERE, detail=f"{entry.name.owner} has gone to another back end")
    if isinstance(outcome, StoreError) and outcome.problem is Problem.NO_MAILBOX:
        try:
            store.require_figures(entry)
        except StoreError as lost:
            return lost
    return outcome


def put_on_disk(store: Store, durability: Durability, partition: Partition, messages: Sequence[Staged]
             ) -> Awaitable[None]:
    """Ends when what has been committed is on disk; the messages get their places. Raises Unflushed, nothing else."""
    if partition.files.few_ready:
        after_commit(durability.make_ready, partition)
    return durability.log(partition, messages) if store.settings.sync != NOTHING else _place(store, messages)


async def _place(store: Store, messages: Sequence[Staged]) -> None:
    if len(messages) == 1:
        place_all(messages)
    else:
        after_commit(offload.start, store, "files", partial(place_all, messages))


async def _commit(store: Store, partition: Partition, staged: Staged, targets: Sequence[Target],
                  received: InternalDate) -> list[Outcome]:
    """The outcomes of a transaction that is not flushed yet. A content that is new to the partition is put on disk
    before it. It is done at once, unless it is for many, or another transaction holds a lock for longer than usual, or
    brought the same content."""
    work = partial(commit, partition, staged, targets, received, seconds=AT_ONCE)
    try:
        return await (change(store, work) if len(targets) <= MANY else run(store, "held", work))
    except LostFile as lost:
        await forget_expunged(store, partition, lost)
        return await _commit(store, partition, staged, targets, received)
    except StoreError as refusal:
        if refusal.problem is not Problem.BUSY:
            raise
    return await store.owned.get(LockedMailboxes, LockedMailboxes).commit(store, partition, staged, targets, received)


async def copied(store: Store, staged: Staged, partition: Partition) -> Staged:
    """The message, staged on that partition."""
    partition.check_room()
    if not staged.on_disk:              # they and its name are synced where it is delivered
        await spill(store, staged)
    serial = partition.serials.next_serial()
    return await run(store, "files", staged.copy_to, partition.files, serial)


async def flushed(store: Store, entry: MailboxEntry) -> None:
    """Return when everything committed so far on the mailbox's partition is on disk. Call it before a positive answer.

    It does not wait if the setting `sync` says so. Raises Unflushed: then there must be no answer.
    """
    on_disk = syncing(store, entry)
    if on_disk is not None:
        await on_disk


def syncing(store: Store, entry: MailboxEntry) -> Awaitable[None] | None:
    """An awaitable that does what `flushed` does; if possible, the sync has begun already. None when the setting `sync`
    says not to wait. Raises StoreError UNAVAILABLE."""
    return durability_of(store).log(store.partition_of(entry)) if store.settings.sync == EVERYTHING else None
