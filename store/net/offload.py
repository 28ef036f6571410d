"""Work that may wait for the disk or takes long, done in threads, so that the event loop goes on.

`deliver` is the way of every message into the store, `flushed` what comes before every positive answer. Their syncs are
`durability`'s. The setting `store.sync` says what is synced: with "messages", flag changes, copies and expunges are
acknowledged before, and are on disk within a second; with "none" nothing is waited for.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from attrs import evolve
from numpy.typing import NDArray
from twisted.internet.defer import DeferredList, ensureDeferred

from mboxlist.entry import MailboxEntry
from mboxlist.names import INBOX, MailboxName
from store import hosting
from store.accounts.base import Account
from store.delivery.commit import Locked, NotOnDisk, Outcome, Target, commit, commit_all, is_known
from store.errors import Problem, StoreError, WritesFrozen
from store.mailboxes import crosspartition, firstuse
from store.mailboxes import uidskip as settling
from store.mailboxes.copymessages import copy_messages
from store.net.durability import Durability, place_all
from store.net.threads import Inline, Threads
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.progress import Progress
from store.settings import SYNC_LEVELS
from store.store import Store
from store.values import InternalDate, Secret

log = logging.getLogger(__name__)

T = TypeVar("T")
Told = TypeVar("Told", bound=Outcome)

EVERYTHING, _, NOTHING = SYNC_LEVELS
AT_ONCE = 0.01              # seconds in which a transaction must get its locks on the event loop
FEW = 50                    # messages that are delivered together on the event loop


def attach(store: Store, threads: Threads) -> None:
    """Have the store's long work done by `threads`. Until then it is done at once. For the thread of the event loop."""
    store.owned.put(Durability, Durability(store, threads))
    if threads.real:
        store.write_freeze.never_waits()


def _durability(store: Store) -> Durability:
    return store.owned.get(Durability, lambda: Durability(store, Inline()))


async def run(store: Store, kind: str, function: Callable[..., T], *args: Any) -> T:
    """The result of a function that takes long, or waits: `kind` is one of `threads.POOLS`."""
    return await _durability(store).threads.run(kind, lambda: function(*args))


def start(store: Store, kind: str, function: Callable[[], object]) -> None:
    """Have a function done in a thread of that kind; nobody waits for it."""
    done = _durability(store).threads.run(kind, function)
    done.addErrback(lambda failure: log.error("work in a thread failed: %s", failure.value))


async def change(store: Store, work: Callable[[], T]) -> T:
    """The result of work that begins with a transaction and is short: at once; while the store is held still, after
    that, and the event loop goes on meanwhile."""
    while True:
        try:
            return work()
        except WritesFrozen:
            await _durability(store).thaw.ask()


async def settled(store: Store, entries: Iterable[MailboxEntry]) -> None:
    """Before UIDNEXT of these mailboxes is shown: see `store.settled`."""
    found = settling.unsettled(store, entries)
    if found:
        await run(store, "changes", settling.settle, store, found)


def sometime(store: Store, work: Callable[[], object]) -> None:
    """The same for work that nobody waits for: what it raises later goes to the log."""
    try:
        work()
    except WritesFrozen:
        later = ensureDeferred(change(store, work))
        later.addErrback(lambda failure: log.warning("after the store was held still: %s", failure.value))


async def spill(store: Store, staged: Staged) -> None:
    """Write what a message being received holds in memory to its file; call it when `staged.full`."""
    await run(store, "files", staged.spill)


async def deliver(store: Store, staged: Staged, targets: Sequence[Target], received: InternalDate | None = None
                  ) -> list[Outcome]:
    """Deliver a received message to all targets; when this returns, what it says is on disk.

    An outcome for each target, in their order; a StoreError for one that was refused. A partition on which all fails
    does not harm the others. The staged message is used up, also when this raises.
    """
    if staged.costly:
        await run(store, "files", staged.finish)
    else:
        staged.finish()
    received = received or InternalDate(int(time.time()))
    deadline = time.monotonic() + crosspartition.PATIENCE
    outcomes: dict[int, Outcome] = {}
    left = dict(enumerate(targets))
    try:
        while True:
            outcomes |= await _deliver_to(store, staged, left, received)
            tried = left
            moved = {at: _as_it_is_now(store, target, outcomes[at]) for at, target in tried.items()}
            left = {at: target for at, target in moved.items() if target is not None}
            if not left or time.monotonic() > deadline:
                return [_or_elsewhere(store, targets[at].entry, outcomes[at]) for at in range(len(targets))]
            if any(left[at].entry.partition == tried[at].entry.partition for at in left):
                await _durability(store).threads.pause(crosspartition.PAUSE)
    finally:
        if not staged.committed:
            staged.abort()


async def deliver_all(store: Store, messages: Sequence[tuple[Staged, Target, InternalDate | None]]) -> list[int]:
    """Deliver received messages to one mailbox, all or none; their UIDs. When this returns they are on disk.

    It is tried again while the mailbox is being moved to another partition, up to `crosspartition.PATIENCE`. The staged
    messages are used up, also when this raises. Raises StoreError.
    """
    now = InternalDate(int(time.time()))
    arrived = [(staged, target, received or now) for staged, target, received in messages]
    deadline = time.monotonic() + crosspartition.PATIENCE
    try:
        while True:
            before = arrived[0][1].entry
            try:
                return await _deliver_all_to(store, store.partition_of(before), arrived)
            except StoreError as refusal:
                entry = store.mailboxes.find_id(before.id)
                told = _or_elsewhere(store, before, refusal)
                if told is not refusal:
                    raise told from refusal
                if entry is None or refusal.problem not in (Problem.BUSY, Problem.NO_MAILBOX):
                    raise
                if time.monotonic() > deadline:
                    raise StoreError(Problem.BUSY, "The mailbox is being moved") from refusal
            if entry.partition == before.partition:
                await _durability(store).threads.pause(crosspartition.PAUSE)
            arrived = [(staged, evolve(target, entry=entry), received) for staged, target, received in arrived]
    finally:
        for staged, _, _ in messages:
            if not staged.committed:
                staged.abort()


async def _deliver_all_to(store: Store, partition: Partition, arrived: Sequence[tuple[Staged, Target, InternalDate]]
                          ) -> list[int]:
    """One try. Messages that were staged on another partition are copied to this one."""
    here: list[tuple[Staged, Target, InternalDate]] = []
    try:
        for staged, target, received in arrived:
            if staged.files is not partition.files:
                own = next(one for one in store.partitions.values() if one.files is staged.files)
                await secure(store, own, [staged], known_too=True)
                staged = await _copy(store, staged, partition)
            here.append((staged, target, received))
        files = [staged for staged, _, _ in here]
        await secure(store, partition, files)
        try:
            uids = await _commit_all(store, partition, here)
        except NotOnDisk:               # a purge was quicker
            await secure(store, partition, files, known_too=True)
            uids = await _commit_all(store, partition, here)
        _durability(store).make_ready(partition)
        if store.settings.sync != NOTHING:
            await _durability(store).log(partition)
        await run(store, "files", place_all, [staged for staged in files if staged.committed])
        return uids
    finally:
        for (staged, _, _), (original, _, _) in zip(here, arrived, strict=False):
            if staged is not original and not staged.committed:
                staged.abort()


async def secure(store: Store, partition: Partition, messages: Sequence[Staged], *, known_too: bool = False) -> None:
    """Have received messages on disk, also, with `known_too`, those whose content the partition has already. They take
    no memory then. Raises StoreError DISK_FULL, UNAVAILABLE."""
    if len(messages) > FEW or any(staged.costly for staged in messages):
        await run(store, "files", _finish, messages)
    else:
        _finish(messages)
    missing = [one for one in messages if not one.on_disk and (known_too or not is_known(partition, one))]
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
        # All have ended before one that failed is told, since the caller takes the files away then.
        asked = [_durability(store).staged(staged, partition) for staged in messages]
        for well, outcome in await DeferredList(asked, consumeErrors=True):
            if not well:
                raise outcome.value             # type: ignore[attr-defined]
    for staged in messages:
        staged.close()


async def _commit_all(store: Store, partition: Partition, messages: Sequence[tuple[Staged, Target, InternalDate]]
                      ) -> list[int]:
    """At once when they are few, unless another transaction holds a lock for longer than usual."""
    if len(messages) <= FEW:
        try:
            return await change(store, lambda: commit_all(partition, messages, seconds=AT_ONCE))
        except StoreError as refusal:
            if refusal.problem is not Problem.BUSY:
                raise
    return await run(store, "changes", lambda: commit_all(partition, messages, seconds=crosspartition.PATIENCE))


async def _deliver_to(store: Store, staged: Staged, targets: dict[int, Target], received: InternalDate
                      ) -> dict[int, Outcome]:
    """One try. The partition that the message was staged on comes last: until then its file is there to be copied from.
    """
    own = staged.files
    by_partition: dict[str, list[int]] = {}
    for at, target in targets.items():
        by_partition.setdefault(target.entry.partition, []).append(at)
    last = next((name for name in by_partition if name in store.partitions and store.partitions[name].files is own), "")
    outcomes: dict[int, Outcome] = {}
    for name in sorted(by_partition, key=lambda name: name == last):
        places = by_partition[name]
        try:
            partition = store.partition(name)
            copy = staged if partition.files is own else await _copy(store, staged, partition)
            try:
                found = await _deliver_here(store, partition, copy, [targets[at] for at in places], received)
            finally:
                if copy is not staged and not copy.committed:
                    copy.abort()
        except StoreError as refusal:
            found = [refusal] * len(places)
        outcomes.update(zip(places, found, strict=True))
    return outcomes


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


def _or_elsewhere(store: Store, entry: MailboxEntry, outcome: Told) -> Told | StoreError:
    """The outcome for that mailbox. The mail of one who has gone must come again, and will find the right back end."""
    if isinstance(outcome, StoreError) and outcome.problem in (Problem.BUSY, Problem.NO_MAILBOX) and _is_gone(
            store, entry):
        return StoreError(Problem.ELSEWHERE, detail=f"{entry.name.owner} has gone to another back end")
    return outcome


async def _deliver_here(store: Store, partition: Partition, staged: Staged, targets: Sequence[Target],
                        received: InternalDate) -> list[Outcome]:
    """Deliver on one partition. The file stays the caller's business unless it has been committed."""
    durability = _durability(store)
    outcomes = None
    if is_known(partition, staged):
        try:
            outcomes = await _commit(store, partition, staged, targets, received)
        except NotOnDisk:
            pass
    if outcomes is None:
        if staged.on_disk:
            pass                        # this is another try
        elif store.settings.sync == NOTHING:
            await spill(store, staged)
            staged.on_disk = True
        else:
            await durability.staged(staged, partition)
        staged.close()
        outcomes = await _commit(store, partition, staged, targets, received)
    durability.make_ready(partition)
    if store.settings.sync == NOTHING:
        place_all([staged])
    else:
        await durability.log(partition, staged)
    return outcomes


async def _commit(store: Store, partition: Partition, staged: Staged, targets: Sequence[Target],
                  received: InternalDate) -> list[Outcome]:
    """At once, unless another transaction holds a lock for longer than usual, or brought the same content."""
    try:
        return await change(store, lambda: commit(partition, staged, targets, received, seconds=AT_ONCE))
    except StoreError as refusal:
        if refusal.problem is not Problem.BUSY:
            raise
    return await _durability(store).locked.commit(partition, staged, targets, received)


async def _copy(store: Store, staged: Staged, partition: Partition) -> Staged:
    partition.check_room()
    if not staged.on_disk:              # they and its name are synced where it is delivered
        await spill(store, staged)
    serial = partition.next_serial()
    return await run(store, "files", staged.copy_to, partition.files, serial)


async def copy(store: Store, source: MailboxEntry, target: MailboxEntry, uids: NDArray[np.uint32], *,
               remove: bool = False, reader: str = "", at_once: bool = False,
               progress: Progress | None = None) -> list[int]:
    """COPY (with `remove`, MOVE) of all of `uids` or none, to wherever the target is; the new UIDs. It is on disk when
    this returns (see `flushed`). `at_once`: without a thread, if it can be done without.

    Raises StoreError GONE, NO_MAILBOX, OVER_QUOTA, LIMIT, BUSY, DISK_FULL, CORRUPT; Abandoned.
    """
    new = None
    if at_once and store.partition_of(source) is store.partition_of(target):
        try:
            new = await change(store, lambda: copy_messages(store, source, target, uids, remove=remove, reader=reader))
        except StoreError as error:
            if error.problem not in (Problem.BUSY, Problem.NO_MAILBOX):
                raise
    if new is None:
        side_by_side = _durability(store).threads.side_by_side
        new = await run(store, "changes", lambda: crosspartition.copy(
            store, source, target, uids, remove=remove, reader=reader, side_by_side=side_by_side, progress=progress))
    written = (target, source) if remove else (target,)
    for entry in {store.partition_of(entry).name: entry for entry in written}.values():
        await flushed(store, entry)
    return new


async def flushed(store: Store, entry: MailboxEntry) -> None:
    """Return when everything committed so far on the mailbox's partition is on disk: before a positive answer.

    Unless the setting `sync` says not to wait for that.
    """
    if store.settings.sync == EVERYTHING:
        await _durability(store).log(store.partition_of(entry))


async def authenticate(store: Store, login: str, password: Secret, kind: str = "directory") -> Account:
    """The account that logs in. Raises StoreError BAD_LOGIN, UNAVAILABLE. `kind`: of the threads that do it."""
    account = store.directory.remembers(login, password)
    if account is None:
        if kind == "directory" and store.directory.remote:
            kind = "remote"                     # there a login waits, and costs no time of a processor
        account = await run(store, kind, store.directory.authenticate, login, password)
    return account


async def inbox(store: Store, account: Account) -> MailboxEntry:
    """The account's INBOX; at its first use it is made in a thread, with what else a new user gets.

    Raises StoreError NO_USER, LIMIT, DISK_FULL.
    """
    entry = store.mailboxes.find(MailboxName(account.user, INBOX))
    return entry if entry is not None else await run(store, "names", firstuse.inbox, store, account)


async def look_up(store: Store, address: str) -> Account | None:
    """The account that mail to the address is for (the built-in directory answers at once). Raises StoreError
    UNAVAILABLE."""
    known = store.directory.at_once(address)
    return known.account if known is not None else await run(store, "remote", store.directory.fetch, address)


async def find(store: Store, user: str) -> Account | None:
    """The account of that user id, of which nothing is an alias. Raises StoreError UNAVAILABLE."""
    found = await look_up(store, user)
    return found if found is not None and found.user == user else None


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that does not wait for anything: with `Inline`, everything here."""
    steps: Generator[Any, Any, T] = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("this work waits for an event loop")
