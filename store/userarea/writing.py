"""Keeping each mailbox's `store.idx` up to date: the user area, from which the databases can be rebuilt.

Each process writes the files of the mailboxes that it changed, every `INTERVAL` seconds and when it leaves the store.
It has them in memory (`Unwritten`); what one that was killed did not write `userareacheck` finds after the next start.
"""

import logging
import math
import time
import zlib
from base64 import b64encode
from pathlib import Path

import numpy as np
from attrs import evolve, frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.generations import generation
from mboxlist.engine.transact import Failure, transact
from mboxlist.engine.troubles import TROUBLES
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, PUBLIC, SEPARATOR, MailboxName
from store.errors import Problem, StoreError
from store.partition.marks import mark_behind
from store.partition.messagefiles import sync_file_system
from store.partition.partition import Partition
from store.partition.processes import look
from store.store import Store
from store.tables.index import Rows, chunk_key, is_whole, join
from store.tables.quotatable import DEFAULT, DOMAIN, domain_of
from store.tables.state import MailboxState, state_key
from store.userarea import directoryfile, idxfile, idxreading
from store.userarea.idxfile import OWN, Contents, Head
from store.userarea.paths import Locks, give_name, in_folder, owner_of, place, place_of_deleted, remove_file
from store.userarea.unlisted import is_ahead

log = logging.getLogger(__name__)

INTERVAL = 20               # seconds
PATIENCE = 15.0             # seconds of one round that it may wait so as to keep to `Settings.index_rate`
BATCH = 256                 # mailboxes that are written and synced together,
BATCH_OCTETS = 32 << 20     # or fewer, when their files have so much
ONE_BY_ONE = 2              # so many files are synced each for itself; for more their whole file system is


def note(store: Store, entry: MailboxEntry) -> None:
    """What the list, or another table that is not the partition's, says of the mailbox changes."""
    partition = _partition(store, entry)
    if partition is not None:
        partition.unwritten.note(entry)
    if entry.name.is_inbox():                   # what `users/directory` has to tell depends on whether there is one
        for each in store.writable.values():
            each.unwritten.users.add(entry.name.owner)


def _partition(store: Store, entry: MailboxEntry) -> Partition | None:
    """The one that the row names. (Where the mailbox is now need not be asked, nor can it within a transaction.)"""
    try:
        return store.partition(entry.partition)
    except StoreError:
        return None


def note_user(store: Store, user: str) -> None:
    """Something changes that the file of the user's INBOX tells: subscriptions, limits, the account."""
    for partition in store.writable.values():
        partition.unwritten.users.add(user)
    entry = store.mailboxes.find(MailboxName(user, INBOX))
    if entry is not None:
        note(store, entry)


def note_limits(store: Store, root: str) -> None:
    """The limits of a quota root change."""
    if root.startswith(DOMAIN):
        domain = "" if root[1:].lower() == store.settings.default_domain.lower() else root[1:]
        user = next((entry.name.owner for entry in store.mailboxes.all()
                     if entry.name.is_inbox() and domain_of(entry.name.owner) == domain), "")
        note_user(store, user)
    elif root.startswith(PUBLIC):
        for entry in store.mailboxes.below(""):
            if str(entry.name) == root or str(entry.name).startswith(root + SEPARATOR):
                note(store, entry)
    else:
        note_user(store, root.partition(SEPARATOR)[0])


def right_place(partition: Partition, entry: MailboxEntry, removed: int) -> Path:
    """Where the file of a mailbox that `Store.known` found belongs."""
    return place_of_deleted(partition, entry.id) if removed else place(partition, entry.name)


def view(store: Store, partition: Partition, mailbox: int) -> tuple[Path, Contents] | None:
    """Where the file of a mailbox belongs, and what belongs into it; None when the mailbox is not, or no longer, here.

    Raises StoreError CORRUPT.
    """
    found = store.known(mailbox)
    if found is None or found[0].partition != partition.name:
        return None
    entry, removed = found

    def work(txn: Txn) -> tuple[MailboxState, Rows, list[tuple[int, str, "np.ndarray"]], dict[int, bytes], int] | None:
        state = partition.states.get(state_key(entry.id), txn)      # while this row is locked the chunks stand still
        if state is None:
            return None
        chunks = [value for _, value in partition.index.scan(
            chunk_key(entry.id, 0), chunk_key(MailboxId(entry.id + 1), 0), txn)]
        if not all(map(is_whole, chunks)):
            partition.found_damage(entry.id)
            raise StoreError(Problem.CORRUPT, detail="an index chunk does not agree with its checksum")
        figures, rows = MailboxState.from_bytes(state, partition.epoch), join(chunks)
        if len(rows) != figures.messages and not figures.moving:
            partition.found_damage(entry.id)        # its file may be all that has what is lost
            raise StoreError(Problem.CORRUPT, detail=f"it has {len(rows)} records, {figures.messages} by its figures")
        return (figures, rows,
                list(partition.readers.all(entry.id, txn)), partition.uidls.of(entry.id, txn),
                generation(partition.states, txn))

    read = transact(partition.env, work, reads=True)
    if read is None:
        return None
    state, rows, readers, uidls, there = read
    names: dict[str, int] = {}
    own = [(names.setdefault(reader, len(names)), number, flags) for number, reader, flags in readers]
    head = describe(store, partition, entry, removed, state, records=len(rows), readers=list(names))
    path = right_place(partition, entry, removed)
    account = account_of(store, entry, path)
    return path, Contents(evolve(head, account=zlib.crc32(account), generation=there), rows, np.array(own, OWN),
                          partition.private_headers.used(rows), uidls, account)


def account_of(store: Store, entry: MailboxEntry, path: Path) -> bytes:
    """The owner's account as the file of an INBOX has it. What the file in that place has stays while the directory has
    lost it, or has what only stands for it."""
    if not entry.name.is_inbox() or not entry.name.owner or not store.directory.keeps(entry.name.owner):
        return b""
    user = store.directory.user(entry.name.owner)
    return idxreading.read_account(path) if user is None or user.is_lost else user.to_bytes()


def describe(store: Store, partition: Partition, entry: MailboxEntry, removed: int, state: MailboxState, *,
             records: int, readers: list[str]) -> Head:
    """The head of the file of a mailbox with these figures."""
    name, inbox = entry.name, entry.name.is_inbox() and not removed
    return Head(
        id=entry.id, name=str(name), owner=name.owner, partition=partition.name, uidvalidity=state.uidvalidity,
        uidnext=state.uidnext, highestmodseq=state.highestmodseq, epoch=state.epoch, recent=state.recent,
        removed=removed, created=entry.created, special_use=entry.special_use, quota_root=state.quota_root,
        limits=limits_of(partition, name, state.quota_root) if inbox or not name.owner else {}, acl=dict(entry.acl),
        annotations=_annotations(store, entry), keywords=list(state.keywords),
        subscriptions=list(store.mailboxes.subscriptions.of(name.owner)) if inbox else [],
        readers=readers, records=records, written=time.time_ns(), store=store.mailboxes.identity)


def _annotations(store: Store, entry: MailboxEntry) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name, user, value in store.mailboxes.annotations.of(entry.id):
        found.setdefault(name, {})[user] = b64encode(value).decode()
    return found


def limits_of(partition: Partition, name: MailboxName, root: str) -> dict[str, list[int]]:
    """What the file of an INBOX has of limits: those of all roots of its user, and of the user's domain as they were
    when it was written; and that of a public mailbox those of its root."""
    quotas, user = partition.quotas, name.owner
    roots = {user, DOMAIN + domain_of(user), *quotas.roots_below(user)} if user else {root}
    uses = {name: quotas.find(name) for name in sorted(roots) if quotas.has(name)}
    return {name: [use.octet_limit, use.message_limit] for name, use in uses.items()
            if name != user or (use.octet_limit, use.message_limit) != (DEFAULT, DEFAULT)}


# Writing

def write_changed(store: Store, *, hurry: bool = False, batch: int = BATCH) -> int:
    """Write the files of the mailboxes that this process changed; how many. For a thread.

    It keeps to `Settings.index_rate`, but not so far that a mailbox would be more than a minute behind. With `hurry`
    (a process that ends) it waits only where another process has a mailbox's lock. What fails is logged, and comes
    again in the next round.
    """
    return sum(write_round(store, partition, hurry=hurry, batch=batch) for partition in store.writable.values())


def write_what_is_left(store: Store, seconds: float | None = None) -> None:
    """The process leaves the store, and begins with nothing more after so many seconds. What it could not write is left
    to `userareacheck`.

    Where another process died, its locks may keep everybody waiting, and `userareacheck` will look at everything
    anyway.
    """
    if look(store.root / "run")[1]:
        return
    partitions = tuple(store.writable.values())
    until = math.inf if seconds is None else time.monotonic() + seconds
    for partition in (*partitions, *partitions):        # what has moved keeps its old file until the new one is there
        partition.unwritten.stop.set()
        write_round(store, partition, hurry=True, until=until)
    for partition in partitions:
        try:
            if partition.unwritten.changed or partition.unwritten.users:
                mark_behind(partition.folder)
        except OSError as error:
            log.error("some store.idx on partition %s are not up to date: %s", partition.name, error)


def write_round(store: Store, partition: Partition, *, hurry: bool = False, until: float = math.inf, batch: int = BATCH
                ) -> int:
    """`write_changed` for one partition. It leaves off when the process is to leave the store, unless it is to `hurry`,
    and at that time (of the monotonic clock)."""
    written = _Round(store, partition, hurry=hurry, until=until, batch=batch).run()
    directoryfile.write(store, partition)
    return written


@frozen
class _Ready:
    """A file that waits for its name, or has it."""

    mailbox: int
    temporary: Path
    path: Path
    head: Head


class _Round:
    """The mailboxes of a partition that have changed, written in batches that share a sync before their files get their
    names; another one is for all of them in the end."""

    def __init__(self, store: Store, partition: Partition, *, hurry: bool, until: float, batch: int) -> None:
        self._store = store
        self._partition = partition
        self._unwritten = partition.unwritten
        self._hurry = hurry
        self._until = until
        self._most = batch
        self._todo = self._unwritten.take()
        self._single = len(self._todo) <= ONE_BY_ONE
        self._sync = store.settings.sync != "none"
        self._patience = PATIENCE
        self._octets = 0                    # written in the present batch

    def run(self) -> int:
        """How many were written."""
        done = count = 0
        try:
            while done < len(self._todo):
                if self._unwritten.stop.is_set() and not self._hurry or time.monotonic() >= self._until:
                    self._unwritten.changed.update(self._todo[done:])
                    self._todo = self._todo[:done]
                    break
                begun, self._octets = time.monotonic(), 0
                batch = sorted(self._todo[done:done + self._most])       # locked in this order by all
                self._todo[done:done + self._most] = batch
                dealt_with, written = self._batch(batch)
                done, count = done + dealt_with, count + written
                if done < len(self._todo):
                    self._pause(begun)
            if count and self._sync and not self._single:
                sync_file_system(self._partition.folder)
        except (StoreError, OSError, Failure) as error:         # the disk refuses, or the whole database
            TROUBLES.met(f"store.idx cannot be written on partition {self._partition.name}", str(error))
            self._unwritten.changed.update(self._todo)
            return 0
        except BaseException:
            self._unwritten.changed.update(self._todo)
            raise
        for mailbox in self._todo:
            if names := self._unwritten.names_of(mailbox):
                self._tidy(mailbox, names)
        return count

    def _pause(self, begun: float) -> None:
        """Wait as `Settings.index_rate` wants, as long as there is patience."""
        rate = self._store.settings.index_rate
        pause = min(self._octets / rate - (time.monotonic() - begun), self._patience) if rate and not self._hurry else 0
        if pause > 0:
            self._patience -= pause
            self._unwritten.stop.wait(pause)

    def _batch(self, mailboxes: list[int]) -> tuple[int, int]:
        """How many of them it has dealt with, and how many it has written. Raises StoreError when the disk refuses."""
        ready: list[_Ready] = []
        dealt_with = 0
        with Locks(self._partition) as locks:
            try:
                for mailbox in mailboxes:
                    if self._octets >= BATCH_OCTETS:
                        break
                    dealt_with += 1
                    if not locks.take(mailbox, wait=self._hurry):
                        self._unwritten.changed.add(mailbox)        # who has it may have read it before our change
                    elif (item := self._prepare(mailbox)) is not None:
                        ready.append(item)
                if ready:
                    self._flush()
                return dealt_with, sum(map(self._publish, ready))
            finally:
                for item in ready:
                    item.temporary.unlink(missing_ok=True)

    def _prepare(self, mailbox: int) -> _Ready | None:
        sync = self._sync and self._single
        try:
            found = view(self._store, self._partition, mailbox)
            if found is None:
                return None
            path, contents = found
            temporary = idxfile.temporary_name(path, mailbox)
            self._octets += in_folder(self._partition, path.parent, lambda: idxfile.prepare(
                temporary, contents, sync=sync), sync=sync)
        except (StoreError, Failure) as error:
            if isinstance(error, StoreError) and error.problem is Problem.DISK_FULL:
                raise
            self._unwritten.failed(mailbox, str(error))
            return None
        return _Ready(mailbox, temporary, path, contents.head)

    def _flush(self) -> None:
        """Have on disk the files, and all that they tell of."""
        self._partition.flush()
        self._store.mailboxes.env.flush()
        if self._sync and not self._single:
            sync_file_system(self._partition.folder)

    def _publish(self, item: _Ready) -> bool:
        """Give a file its name; whether it has it."""
        try:
            if not give_name(self._partition, item.temporary, item.path, item.mailbox,
                             lambda there: self._may_go(there, item.head)):
                self._partition.outdated.add(MailboxId(item.mailbox))   # housekeeping takes in what is newer, and tells
                self._unwritten.failed(item.mailbox, "the one that is there is newer than the mailbox, and stays",
                                       logging.DEBUG)
                return False
            if self._sync and self._single:
                sync_folder(item.path.parent)
        except (OSError, StoreError) as error:
            self._unwritten.failed(item.mailbox, str(error))
            return False
        self._unwritten.failing.pop(item.mailbox, None)
        return True

    def _may_go(self, there: Head, new: Head) -> bool:
        return self._partition.merged.get(MailboxId(new.id)) == there.written or not is_ahead(
            there, new, self._partition)

    def _tidy(self, mailbox: int, names: set[MailboxName]) -> None:
        """Take away the files that the mailbox has under other names, when its own is where it belongs."""
        try:
            if any(old.exists() for old in self._elsewhere(mailbox, names)):
                with Locks(self._partition) as locks:
                    if not locks.take(mailbox, wait=self._hurry) or not self._is_right(mailbox):
                        self._unwritten.changed.add(mailbox)
                        return
                    for old in self._elsewhere(mailbox, names):
                        remove_file(self._partition, old, mailbox)
        except (OSError, StoreError, Failure) as error:
            self._unwritten.failed(mailbox, str(error))
        else:
            self._unwritten.tidied(mailbox, names)

    def _elsewhere(self, mailbox: int, names: set[MailboxName]) -> set[Path]:
        """Where a file of the mailbox may be that does not belong there."""
        found = self._store.known(mailbox)
        here = found is not None and found[0].partition == self._partition.name
        now = right_place(self._partition, *found) if found is not None and here else None
        places = {place(self._partition, name) for name in names} | {place_of_deleted(self._partition, mailbox)}
        return places - {now} if now is not None else places

    def _is_right(self, mailbox: int) -> bool:
        """Whether the mailbox is no more, or has its file where it belongs, here or on another partition."""
        found = self._store.known(mailbox)
        if found is None:
            return True
        partition = _partition(self._store, found[0])
        return partition is not None and owner_of(right_place(partition, *found)) == mailbox
