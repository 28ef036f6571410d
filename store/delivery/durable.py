"""The whole way of a message into the store: when a function here returns, what it says is on disk.

`deliver` is the way of every message, `flushed` what comes before every other positive answer. The setting `store.sync`
says what is synced: with "messages", flag changes, copies and expunges are acknowledged before, and are on disk within
a second; with "none" nothing is waited for.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from attrs import evolve

from mboxlist.engine.transact import Commits, Unflushed, unless_committed
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry
from store import hosting, offload
from store.delivery import repeats
from store.delivery.commit import Delivered, Locked, NotOnDisk, Outcome, Target, commit, commit_all, is_known
from store.delivery.concealment import stored_lately, takes_long_way
from store.delivery.durability import Durability, durability_of, place_all
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
FEW = 50                    # messages that are delivered together on the event loop
PAUSE = 0.05                # seconds between two tries


async def spill(store: Store, staged: Staged) -> None:
    """Write what a message being received holds in memory to its file; call it when `Staged.write` says so."""
    await run(store, "files", staged.spill)


async def deliver(store: Store, staged: Staged, targets: Sequence[Target], received: InternalDate | None = None
                  ) -> list[Outcome]:
    """Deliver a received message to all targets; when this returns, what it says is on disk. Raises Unflushed when what
    has been done may not be: then there is no answer. Whatever else it raises, nothing has been done.

    An outcome for each target, in their order; a StoreError for one that was refused. A partition on which all fails
    does not harm the others. The staged message is used up, also when this raises.
    """
    if staged.costly:
        await run(store, "files", staged.finish)
    else:
        staged.finish()
    received = received or InternalDate(int(time.time()))
    deadline = time.monotonic() + store.patience
    outcomes: dict[int, Outcome] = {}
    left = dict(enumerate(targets))
    try:
        while True:
            try:
                places: dict[str, dict[int, Target]] = {}       # what is left, by partition
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
            tried, left = left, {}
            for at, target in tried.items():
                if isinstance(outcomes[at], StoreError) and (
                        now := _as_it_is_now(store, target, outcomes[at])) is not None:
                    left[at] = now
            if not left or time.monotonic() > deadline:
                found = []
                for at, target in enumerate(targets):
                    outcome = outcomes[at]
                    found.append(_or_elsewhere(store, target.entry, outcome) if isinstance(outcome, StoreError)
                                 else outcome)
                return found
            if any(left[at].entry.partition == tried[at].entry.partition for at in left):
                await threads_of(store).pause(PAUSE)
    finally:
        if not staged.committed:
            after_commit(durability_of(store).discard, staged)


def unanswered(store: Store, staged: Staged, targets: Sequence[Target]) -> None:
    """Whoever brought the message has no answer, and brings it again."""
    if targets[0].repeat:
        offload.start(store, "changes", partial(
            repeats.note, store, staged.digest, [target.entry for target in targets], targets[0].repeat))


async def deliver_all(store: Store, messages: Sequence[tuple[Staged, Target, InternalDate | None]]) -> list[int]:
    """Deliver received messages to one mailbox, all or none; their UIDs. When this returns they are on disk.

    It is tried again while the mailbox is being moved to another partition, up to `Store.patience`. The staged
    messages are used up, also when this raises. Raises StoreError.
    """
    now = InternalDate(int(time.time()))
    arrived = [(staged, target, received or now) for staged, target, received in messages]
    deadline = time.monotonic() + store.patience
    try:
        while True:
            before = arrived[0][1].entry
            try:
                return await _deliver_all_to(store, store.partition_of(before), arrived)
            except StoreError as refusal:
                entry = store.mailboxes.find_id(before.id)
                elsewhere = _or_elsewhere(store, before, refusal)
                if elsewhere is not refusal:
                    raise elsewhere from refusal
                if entry is None or refusal.problem not in (Problem.BUSY, Problem.NO_MAILBOX):
                    raise
                if time.monotonic() > deadline:
                    raise StoreError(Problem.BUSY, "The mailbox is being moved") from refusal
            if entry.partition == before.partition:
                await threads_of(store).pause(PAUSE)
            arrived = [(staged, evolve(target, entry=entry), received) for staged, target, received in arrived]
    finally:
        for staged, _, _ in messages:
            if not staged.committed:
                after_commit(durability_of(store).discard, staged)


async def _deliver_all_to(store: Store, partition: Partition, arrived: Sequence[tuple[Staged, Target, InternalDate]]
                          ) -> list[int]:
    """One try. Messages that were staged on another partition are copied to this one."""
    here: list[tuple[Staged, Target, InternalDate]] = []
    try:
        for staged, target, received in arrived:
            if staged.files is not partition.files:
                own = next(one for one in store.partitions.values() if one.files is staged.files)
                await secure(store, own, [staged])
                staged = await _copy(store, staged, partition)
            here.append((staged, target, received))
        files = [staged for staged, _, _ in here]
        targets = {id(staged): target for staged, target, _ in here}

        def spared(staged: Staged) -> bool:
            staged.concealed = takes_long_way(store, staged, [targets[id(staged)]])
            return not staged.concealed and is_known(partition, staged)

        await secure(store, partition, files, spared)
        try:
            uids = await _commit_all(store, partition, here)
        except NotOnDisk:               # a purge was quicker
            await secure(store, partition, files)
            try:
                uids = await _commit_all(store, partition, here)
            except LostFile as lost:
                await _forget_expunged(store, partition, lost)
                uids = await _commit_all(store, partition, here)
        for staged, target, _ in here:
            after_commit(stored_lately(store).note, store, target, staged)
            staged.left = staged.concealed
        await _on_disk(store, durability_of(store), partition, files)
        return uids
    finally:
        for (staged, _, _), (original, _, _) in zip(here, arrived, strict=False):
            if staged is not original and not staged.committed:
                after_commit(durability_of(store).discard, staged)


async def secure(store: Store, partition: Partition, messages: Sequence[Staged],
                 spared: Callable[[Staged], bool] = lambda staged: False) -> None:
    """Have received messages on disk, but those that are `spared`. They take no memory then.

    Raises StoreError DISK_FULL, UNAVAILABLE.
    """
    if len(messages) > FEW or any(staged.costly for staged in messages):
        await run(store, "files", _finish, messages)
    else:
        _finish(messages)
    missing = [one for one in messages if not spared(one) and not one.on_disk]
    for at in range(0, len(missing), FEW):      # each has its file open
        await _secure_some(store, partition, missing[at:at + FEW])


def _finish(messages: Sequence[Staged]) -> None:
    for staged in messages:
        staged.finish()


async def _secure_some(store: Store, partition: Partition, messages: Sequence[Staged]) -> None:
    if store.settings.sync == NOTHING:
        for staged in messages:
            await spill(store, staged)
            staged.on_disk = True
    else:
        # All have ended before one that failed is raised, since the caller takes the files away then.
        begun = [durability_of(store).staged(staged, partition) for staged in messages]
        failures = []
        for one in begun:
            try:
                await one
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
    for staged in messages:
        staged.close()


async def _forget_expunged(store: Store, partition: Partition, lost: LostFile) -> None:
    """What is left of a lost file goes, and its message can be delivered as a new one. Raises `lost` when that is more
    than expunged messages."""
    if not await run(store, "changes", let_go, partition, lost.digest):
        raise lost


async def _commit_all(store: Store, partition: Partition, messages: Sequence[tuple[Staged, Target, InternalDate]]
                      ) -> list[int]:
    """At once when they are few, unless another transaction holds a lock for longer than usual."""
    if len(messages) <= FEW:
        try:
            return await change(store, lambda: commit_all(partition, messages, seconds=AT_ONCE))
        except StoreError as refusal:
            if refusal.problem is not Problem.BUSY:
                raise
    return await run(store, "changes", lambda: commit_all(partition, messages, seconds=store.patience))


async def _deliver_to_several(store: Store, staged: Staged, by_partition: dict[str, dict[int, Target]],
                              received: InternalDate) -> dict[int, Outcome]:
    """One try on several partitions. The one that the message was staged on comes last: until then its file is there to
    be copied from."""
    own, outcomes = staged.files, dict[int, Outcome]()
    for name in sorted(by_partition, key=lambda name: name in store.partitions and store.partitions[name].files is own):
        places = by_partition[name]
        found = await _deliver_on(store, name, staged, tuple(places.values()), received, alone=False)
        outcomes.update(zip(places, found, strict=True))
    return outcomes


async def _deliver_on(store: Store, name: str, staged: Staged, targets: Sequence[Target], received: InternalDate, *,
                      alone: bool) -> Sequence[Outcome]:
    """One try on the partition of that name; `alone`: on no other. The file stays the caller's business unless it has
    been committed, or `left`."""
    copy, durability, before = staged, durability_of(store), Commits.total
    try:
        partition = store.partition(name)
        if partition.files is not staged.files:
            copy = await _copy(store, staged, partition)
        copy.concealed = takes_long_way(store, copy, targets)
        outcomes = None
        if not copy.concealed and is_known(partition, copy):
            with suppress(NotOnDisk):       # a purge was quicker
                outcomes = await _commit(store, partition, copy, targets, received)
        if outcomes is None:
            if not copy.on_disk:            # else this is another try
                if store.settings.sync == NOTHING:
                    await spill(store, copy)
                    copy.on_disk = True
                else:
                    await durability.staged(copy, partition)
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
        await _on_disk(store, durability, partition, (copy,))
        return outcomes
    except StoreError as refusal:
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


def _as_it_is_now(store: Store, target: Target, outcome: Outcome) -> Target | None:
    """The target for another try, when its mailbox is being moved, or was since it was looked up; else None."""
    if not isinstance(outcome, StoreError) or isinstance(outcome, Locked) or outcome.problem not in (
            Problem.BUSY, Problem.NO_MAILBOX):
        return None
    entry = store.mailboxes.find_id(target.entry.id)
    return None if entry is None or _is_gone(store, entry) else evolve(target, entry=entry)


def _is_gone(store: Store, entry: MailboxEntry) -> bool:
    """Whether its owner has been moved to another back end, perhaps since the mailbox was looked up."""
    return hosting.is_elsewhere(store, entry.name.owner)


def _or_elsewhere(store: Store, entry: MailboxEntry, outcome: Found) -> Found | StoreError:
    """The outcome for that mailbox. The mail of one who has gone must come again, and will find the right back end."""
    if isinstance(outcome, StoreError) and outcome.problem in (Problem.BUSY, Problem.NO_MAILBOX) and _is_gone(
            store, entry):
        return StoreError(Problem.ELSEWHERE, detail=f"{entry.name.owner} has gone to another back end")
    if isinstance(outcome, StoreError) and outcome.problem is Problem.NO_MAILBOX:
        try:
            store.require_figures(entry)
        except StoreError as lost:
            return lost
    return outcome


def _on_disk(store: Store, durability: Durability, partition: Partition, messages: Sequence[Staged]
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
    """The outcomes, of a transaction that is not flushed yet; what is new to the partition is on disk before it. At
    once, unless another transaction holds a lock for longer than usual, or brought the same content."""
    try:
        return await change(store, partial(commit, partition, staged, targets, received, seconds=AT_ONCE))
    except LostFile as lost:
        await _forget_expunged(store, partition, lost)
        return await _commit(store, partition, staged, targets, received)
    except StoreError as refusal:
        if refusal.problem is not Problem.BUSY:
            raise
    return await store.owned.get(LockedMailboxes, LockedMailboxes).commit(store, partition, staged, targets, received)


async def _copy(store: Store, staged: Staged, partition: Partition) -> Staged:
    partition.check_room()
    if not staged.on_disk:              # they and its name are synced where it is delivered
        await spill(store, staged)
    serial = partition.serials.next_serial()
    return await run(store, "files", staged.copy_to, partition.files, serial)


async def flushed(store: Store, entry: MailboxEntry) -> None:
    """Return when everything committed so far on the mailbox's partition is on disk: before a positive answer.

    Unless the setting `sync` says not to wait for that. Raises Unflushed: there is no answer then.
    """
    if store.settings.sync == EVERYTHING:
        await durability_of(store).log(store.partition_of(entry))
