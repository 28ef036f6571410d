"""Delivers several messages to one mailbox, all or none (MULTIAPPEND, RFC 3502): as `durable.deliver`, for many."""

import time
from collections.abc import Callable, Sequence

from attrs import evolve

from mboxlist.engine.troubles import after_commit
from store.delivery.commit import NotOnDisk, Target, commit_all, is_known
from store.delivery.concealment import stored_lately, takes_long_way
from store.delivery.durable import (
    FEW,
    NOTHING,
    PAUSE,
    copied,
    durability_of,
    forget_expunged,
    or_elsewhere,
    put_on_disk,
    spill,
)
from store.delivery.replacement import LostFile
from store.errors import Problem, StoreError
from store.offload import AT_ONCE, change, run, threads_of
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.store import Store
from store.values import InternalDate


async def deliver_all(store: Store, messages: Sequence[tuple[Staged, Target, InternalDate | None]]) -> list[int]:
    """Deliver received messages to one mailbox, all or none; returns their UIDs. When this returns they are on disk.

    It is tried again while the mailbox is being moved to another partition, up to `Store.patience`. The staged messages
    are used up, also when this raises. Raises StoreError.
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
                elsewhere = or_elsewhere(store, before, refusal)
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
                staged = await copied(store, staged, partition)
            here.append((staged, target, received))
        files = [staged for staged, _, _ in here]
        await secure(store, partition, files, spared_of(store, partition, here))
        try:
            uids = await _commit_all(store, partition, here)
        except NotOnDisk:               # a purge was quicker
            await secure(store, partition, files)
            try:
                uids = await _commit_all(store, partition, here)
            except LostFile as lost:
                await forget_expunged(store, partition, lost)
                uids = await _commit_all(store, partition, here)
        for staged, target, _ in here:
            after_commit(stored_lately(store).note, store, target, staged)
            staged.left = staged.concealed
        await put_on_disk(store, durability_of(store), partition, files)
        return uids
    finally:
        for (staged, _, _), (original, _, _) in zip(here, arrived, strict=False):
            if staged is not original and not staged.committed:
                after_commit(durability_of(store).discard, staged)


def spared_of(store: Store, partition: Partition, messages: Sequence[tuple[Staged, Target, InternalDate]]
              ) -> Callable[[Staged], bool]:
    """For `secure`: the messages whose content the partition has, unless the time that this saves would tell it."""
    targets = {id(staged): target for staged, target, _ in messages}

    def spared(staged: Staged) -> bool:
        staged.concealed = takes_long_way(store, staged, [targets[id(staged)]])
        return not staged.concealed and is_known(partition, staged)

    return spared


async def secure(store: Store, partition: Partition, messages: Sequence[Staged],
                 spared: Callable[[Staged], bool] = lambda staged: False) -> None:
    """Put received messages on disk, except those that are `spared`. After that they take no memory.

    Raises StoreError DISK_FULL, UNAVAILABLE.
    """
    if partition.files.few_ready:       # now: the next messages come before these have been committed
        after_commit(durability_of(store).make_ready, partition)
    at_first = len(messages) > FEW or store.settings.sync == NOTHING
    if at_first:
        await _finish(store, messages)
    else:
        for staged in messages:
            if not staged.digest:
                staged.digested()
    missing = [one for one in messages if not spared(one) and not one.on_disk]
    for at in range(0, len(missing), FEW):      # each of them has an open file
        await _secure_some(store, partition, missing[at:at + FEW])
    if not at_first:
        await _finish(store, messages)          # those that are spared


async def _finish(store: Store, messages: Sequence[Staged]) -> None:
    if len(messages) > FEW or not all(staged.finish(at_once=True) for staged in messages):
        await run(store, "files", _finish_all, messages)


def _finish_all(messages: Sequence[Staged]) -> None:
    for staged in messages:
        staged.finish()


async def _secure_some(store: Store, partition: Partition, messages: Sequence[Staged]) -> None:
    if store.settings.sync == NOTHING:
        for staged in messages:
            await spill(store, staged)
            staged.on_disk = True
    else:
        # All have ended before one that failed is raised, since the caller takes the files away then.
        begun = durability_of(store).all_staged(messages, partition)
        failures = []
        for one in (_finish(store, messages), *begun):          # while the disk is at work
            try:
                await one
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
    for staged in messages:
        staged.close()


async def _commit_all(store: Store, partition: Partition, messages: Sequence[tuple[Staged, Target, InternalDate]]
                      ) -> list[int]:
    """Commit them at once when they are few, unless another transaction holds a lock for longer than usual."""
    if len(messages) <= FEW:
        try:
            return await change(store, lambda: commit_all(partition, messages, seconds=AT_ONCE))
        except StoreError as refusal:
            if refusal.problem is not Problem.BUSY:
                raise
    return await run(store, "changes", lambda: commit_all(partition, messages, seconds=store.patience))
