"""How a store is opened. The steps are: write freeze, recovery, the list and the partitions, reconciliation.

The first process to open a store recovers every environment, whether the last end was a clean one or not. Other
processes join what the first one has opened.
"""

import logging
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.freezegate import PartFreeze, WriteFreeze
from mboxlist.engine.kv import NeedsRecovery
from mboxlist.engine.transact import transact
from mboxlist.engine.troubles import after_commit
from mboxlist.table import MailboxList
from store import hosting
from store.accounts.builtin import BuiltinDirectory
from store.changes import News, account
from store.errors import Problem, StoreError, disk_problem
from store.events import receivers
from store.events.listrecording import ListRecording
from store.filelock import exclusive, in_turn, sweep
from store.mailboxes import namespace
from store.partition.marks import (
    READ_ONLY,
    RESTORING,
    SCRATCH,
    STANDBY,
    absent,
    generations_of_list,
    is_absent,
    is_half_made,
    read_epoch,
    require_no_standby,
)
from store.partition.partition import Partition
from store.partition.processes import ProcessRegistry, partitions_in_use, use_partitions
from store.partitions.volumes import PARTS, REBUILD, named_there
from store.readonly import readingcopy
from store.recovery.environments import Recovery
from store.recovery.reconciliation import agree
from store.settings import Settings
from store.store import Store
from store.userarea import writing

log = logging.getLogger(__name__)

T = TypeVar("T")

PRIMARY = "primary"
_OPENED = "opened"          # in a copy for reading: the file that says that it has been recovered
CLOCKS_APART = 1_000_000    # nanoseconds that the clocks of two outboxes may differ by
LIST_CACHE = 16 << 20       # octets of memory for the cache of the list of mailboxes

class Opener(Protocol):
    """Opens an environment of the store, mended first where it is damaged."""

    def opened(self, environment: str, begin: Callable[[], T]) -> T:
        """What `begin` gives."""


class _AsItIs:
    """For a process that is not the first one: others have the environments open, so they need no check."""

    def opened(self, environment: str, begin: Callable[[], T]) -> T:
        """What `begin` gives."""
        return begin()


def is_there(root: Path) -> bool:
    """Whether that folder has a store, or what is left of one."""
    return (root / "mboxlist").is_dir() or any(read_epoch(place) for place in (root / "partitions").glob("*"))


def open_store(root: Path, settings: Settings | None = None, *, who: str = "", broken: Callable[[],
                                                                                                None] = lambda: None,
               directory: Callable[[MailboxList, str],
                                   BuiltinDirectory] = BuiltinDirectory, empty: bool = False) -> Store:
    """Open the store at `root`. Other processes read `who` if they find this one dead in the store.

    `broken` is called when a database needs recovery: then all processes must leave the store, and the next to open it
    recovers it. `directory` makes the directory, from the list with its users and the default domain. `empty`: the
    databases are to be empty.

    Raises StoreError NO_STORE, UNAVAILABLE, DISK_FULL, READ_ONLY.
    """
    settings = settings or Settings()
    _require_whole(root, empty=empty)
    try:
        processes = ProcessRegistry(root / "run", who)
    except OSError as error:
        raise disk_problem(error) from error
    opening = _Opening(root, settings, processes, broken, empty=empty)
    try:
        return opening.run(directory)
    except NeedsRecovery as error:
        opening.give_up()
        raise StoreError(Problem.UNAVAILABLE, "The store needs recovery: stop every process that uses it",
                         str(error)) from error
    except OSError as error:
        opening.give_up()
        raise disk_problem(error) from error
    except BaseException:
        opening.give_up()
        raise


def _require_whole(root: Path, *, empty: bool) -> None:
    require_no_standby(root)
    if (root / RESTORING).exists():
        raise StoreError(Problem.UNAVAILABLE, "A restore was cut off: a start of the server or onecopy snapshot "
                                              "restore finishes it")
    if is_half_made(root) and not empty:
        raise StoreError(Problem.UNAVAILABLE, "A rebuild was cut off: a start of the server or "
                                              "onecopy reconstruct --all finishes it")
    if not is_there(root):
        raise StoreError(Problem.NO_STORE, f"There is no store in {root}; `onecopy init` makes one")


class _Opening:
    """A store that is being opened."""

    def __init__(self, root: Path, settings: Settings, processes: ProcessRegistry, broken: Callable[[], None], *,
                 empty: bool) -> None:
        self.root = root
        self.settings = settings
        self.processes = processes
        self.broken = broken
        self.recover = processes.alone
        self.empty = empty
        self.news = News()
        self.freeze: WriteFreeze | None = None
        self.opener: Opener = _AsItIs()
        self.copies = readingcopy.some(root)
        self.read_only: dict[str, PartFreeze] = {}

    def run(self, directory: Callable[[MailboxList, str], BuiltinDirectory]) -> Store:
        """Open the store; each step needs those before it."""
        if self.recover and not self.empty:
            shutil.rmtree(self.root / SCRATCH, ignore_errors=True)      # a killed process may have left it
            sweep(self.root)
        read_only = (self.root / READ_ONLY).exists()
        freeze = self.freeze = WriteFreeze(self.root / "run" / "gate")
        if self.recover:
            freeze.second.forget()
        with freeze.second.exempt():            # nobody gets an answer for this
            return self._all(directory, freeze, read_only=read_only)

    def _all(self, directory: Callable[[MailboxList, str], BuiltinDirectory], freeze: WriteFreeze, *, read_only: bool
             ) -> Store:
        recovery = self._recovery() if self.recover and not self.empty else None
        mailboxes = self.opener.opened("mboxlist", lambda: MailboxList(
            self.root / "mboxlist", cache=LIST_CACHE, recover=self.recover, broken=self.broken, write_freeze=freeze,
            marks=lambda: [] if read_only else generations_of_list(self.root)))
        partitions = self._partitions(freeze)
        users = directory(mailboxes, self.settings.default_domain)
        store = Store(self.root, self.settings, self.news, mailboxes, partitions, users, freeze,
                      self.processes,
                      lambda folder, recover: self._partition(folder, freeze, recover=recover),
                      writing.write_what_is_left)
        for partition in partitions.values():
            partition.domains = store.domains
            partition.record(store.recorder)
        self._record(store)
        mailboxes.noticed = lambda entry: writing.note(store, entry)
        users.noticed = lambda user: self._changed(store, user)
        users.domains.noticed = lambda domain: self._changed(store, f"@{domain}")
        mailboxes.settled = lambda owner, txn: namespace.require_settled(store, owner, txn)
        if self.settings.host:
            mailboxes.guard = lambda owner, txn: hosting.require_here(store, owner, txn)
        if self.recover:
            self._reconcile(store, users, recovery, read_only=read_only)
        if read_only:
            users.domains.secret()          # made at its first use
        freeze.read_only = read_only
        mailboxes.read_only = frozenset(self.copies)
        for each in self.read_only.values():
            each.read_only = True
        self.processes.opened()
        return store

    def _record(self, store: Store) -> None:
        """Record events for the receivers that want them."""
        outbox = store.outbox
        if self.recover:
            transact(store.mailboxes.env, outbox.set_clock)
            self._same_clocks(store)
        else:
            outbox.read_clock()
        recording = ListRecording(store.recorder, outbox)
        store.mailboxes.changed = recording.changed
        store.mailboxes.subscriptions.changed = recording.subscribed
        if not self.recover:
            store.recorder.look()           # else after the rebuild, of which there are no events

    def _changed(self, store: Store, user: str) -> None:
        """The row of a user has changed, and the change is on disk."""
        after_commit(self.news.tell, [account(user)])
        after_commit(writing.note_user, store, user)

    def _recovery(self) -> Recovery:
        from store.recovery.environments import Recovery  # here: only a process that is alone in the store needs it
        recovery = self.opener = Recovery(self.root, self.settings)
        return recovery

    def _partitions(self, freeze: WriteFreeze) -> dict[str, Partition]:
        """All partitions that are there. One whose volume is missing is left out, and reported."""
        folder = self.root / "partitions"
        names = partitions_in_use(self.root)
        if self.recover or names is None:
            names = named_there(self.root)
        missing = [name for name in names if self._is_missing(folder / name)]
        for name in missing:
            _report_missing(folder / name)
        found = {name: self._partition(folder / name, freeze, recover=self.recover)
                 for name in names if name not in missing}
        if self.recover:
            use_partitions(self.root, list(found))
        return found

    def _is_missing(self, folder: Path) -> bool:
        if folder.name in self.copies:
            return self.copies[folder.name] is None
        return is_absent(folder) or (folder / REBUILD).is_dir() or not any((folder / part).is_dir() for part in PARTS)

    def _for_reading(self, folder: Path, copy: Path, freeze: WriteFreeze) -> Partition:
        """A partition of which a copy of the databases is read. The first process recovers that copy."""
        own = self.read_only[folder.name] = PartFreeze(freeze, folder.name)
        with in_turn(copy / _OPENED):
            first = not (copy / _OPENED).stat().st_size
            partition = Partition(folder, self.settings, self.news, recover=first, broken=self.broken,
                                  write_freeze=own, databases=copy)
            privatefiles.write(copy / _OPENED, "recovered")
        return partition

    def _partition(self, folder: Path, freeze: WriteFreeze, *, recover: bool) -> Partition:
        copy = self.copies.get(folder.name)
        if copy is not None:
            return self._for_reading(folder, copy, freeze)
        return self.opener.opened(f"partitions/{folder.name}/index", lambda: Partition(
            folder, self.settings, self.news, recover=recover, broken=self.broken, write_freeze=PartFreeze(
                freeze, folder.name, asynchronous=folder.name in self.settings.asynchronous_partitions)))

    def _reconcile(self, store: Store, users: BuiltinDirectory, recovery: Recovery | None, *,
                   read_only: bool) -> None:
        """Rebuild environments that have not come back, and make the partitions agree with the list. A copy for reading
        is left as it is, since this changes files, too."""
        rebuilt = False
        if recovery is not None:
            store.owned.put(type(recovery), recovery)
            if recovery.events:
                from store.recovery.startrebuild import rebuild_at_start  # here: it is rarely needed
                rebuilt = rebuild_at_start(store, recovery)
        outboxes = [store.outbox, *(partition.outbox for partition in store.partitions.values())]
        if not read_only and (any(each.fresh for each in outboxes) or recovery is not None and any(
                not event.exact for event in recovery.events.values())):
            _note_missed(self.root)
        store.recorder.look()
        if not read_only and agree(store, wholly=rebuilt):
            users.reconcile_aliases()
        for env in (store.mailboxes.env, *(partition.env for partition in store.partitions.values())):
            env.opened()
        if recovery is not None:
            if recovery.is_needed():
                log.warning("what was done is in %s", recovery.report())
            recovery.ended()

    def _same_clocks(self, store: Store) -> None:
        """Make the outboxes of all environments use one clock, so that events in several of them have an order."""
        outboxes = [(store.mailboxes.env, store.outbox), *((partition.env, partition.outbox) for name, partition
                                                           in store.partitions.items() if name not in self.copies)]
        most = max(outbox.ahead for _, outbox in outboxes)
        for env, outbox in outboxes:
            if most - outbox.ahead > CLOCKS_APART:
                transact(env, partial(outbox.set_clock, least=most))

    def give_up(self) -> None:
        """Leave the store: it could not be opened."""
        self.processes.leave()
        if self.freeze is not None:
            self.freeze.close()


def _note_missed(root: Path) -> None:
    """Tell the receivers of events that what waited for them was lost. If that fails, the store is opened all the same.
    """
    try:
        receivers.note_missed(root, "databases were rebuilt")
    except OSError as error:
        log.error("that events were lost cannot be written down: %s", error)


def _report_missing(folder: Path) -> None:
    name = folder.name
    if is_absent(folder):
        log.error("partition %s is only on %s, whose place this machine has taken: onecopy standby rejoin, typed "
                  "there, brings it here", name, absent(folder.parent.parent)[name])
        return
    if _is_in_hand(folder):
        log.info("partition %s is being rebuilt", name)
        return
    log.error("partition %s is not there (%s), or has no databases: its mailboxes cannot be used until the store is "
              "opened again, or onecopy reconstruct --partition %s has made them", name, os.path.realpath(folder), name)


def _is_in_hand(folder: Path) -> bool:
    """Whether some process is rebuilding the partition's databases now (`livepartition`)."""
    try:
        with exclusive(folder, Problem.STORE_IN_USE, "It is being rebuilt", folder=True):
            return False
    except StoreError:
        return True
    except OSError:
        return False


def make_empty_store(root: Path) -> None:
    """Make an empty store with one partition. If an earlier call was cut off and there are only folders, go on from
    there. Raises StoreError STORE_IN_USE when there is a store already."""
    if any((root / name).exists() for name in ("mboxlist", RESTORING, STANDBY)):
        raise StoreError(Problem.STORE_IN_USE, f"There is a store in {root} already")
    if any(path.is_file() for path in (root / "partitions").rglob("*")):
        raise StoreError(Problem.STORE_IN_USE, f"There is mail in {root / 'partitions'}, and no list of mailboxes: "
                                               "onecopy reconstruct --all makes one")
    privatefiles.make_folder(root, parents=True, exist_ok=True)
    privatefiles.make_folder(root / "run", exist_ok=True)
    Partition.make(root / "partitions" / PRIMARY)
    privatefiles.make_folder(root / "mboxlist")
    sync_folder(root)

