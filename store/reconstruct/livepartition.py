"""A partition whose databases are gone or damaged, rebuilt from its `messages/` and `users/`, and from the list of
mailboxes, while the rest of the store is in use.

    partitions/P/index.damaged-<time>/      what was there is set aside; if it can be opened, each `store.idx` of which
                                            it has a newer state is written first
    partitions/P/rebuild/P/                 while it is there nobody opens the partition: `index/` grows in it, beside
                                            links to the partition's other folders
    partitions/P/index/                     in the end it gets its place, with one rename, and the partition is joined

Until then who wants a mailbox on it is refused for now (UNAVAILABLE). The long part has the store not open: a server
that has to start again meanwhile does so, without this partition. An interrupted rebuild starts again.

The list decides which mailboxes there are; their records, with UIDs, flags and dates, come from `store.idx`. A mailbox
that the list has and of which there is no file is there again, empty, under a new UIDVALIDITY; one of another list, of
which this file may be all that is left, is added. UIDs and MODSEQs skip ahead, as after each unclean end.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from attrs import define, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.kv import NeedsRecovery
from mboxlist.engine.transact import Failure, transact
from mboxlist.entry import MailboxEntry, MailboxId
from store.changes import News
from store.errors import Problem, StoreError, disk_problem
from store.events import receivers
from store.filelock import exclusive
from store.mailboxes import deletion, namespace
from store.mend.orphans import take_in_lost
from store.partition.marks import mark_behind
from store.partition.messagefiles import sync_file_system
from store.partition.partition import Partition
from store.partition.processes import ProcessRegistry, leave_partition, look, partitions_in_use, server
from store.partitions import volumes
from store.partitions.volumes import REBUILD
from store.quota import roots
from store.rebuild.desired import enlist, limits_of, listed
from store.rebuild.emptying import adopt, aside_name, make_folders, read_adopted, write_adopted
from store.rebuild.messagescan import fill
from store.rebuild.outcome import Outcome
from store.rebuild.salvagedusers import add_users
from store.rebuild.userareascan import Source, free_name, sources
from store.reconstruct.lostpartitions import is_lost
from store.reconstruct.request import Progress, Refused, Request, silent
from store.settings import Settings
from store.store import Store
from store.tables.state import MODSEQ_SKIP, MailboxState
from store.userarea import writing
from store.userarea.idxreading import read_head
from store.values import RECONSTRUCT, RESTORE, Finding

log = logging.getLogger(__name__)

ADOPTED = "staged.json"         # in `rebuild/`: names that files of `staging/` got
LEAVE = 60.0                    # seconds in which the processes of a server must have left the partition
STEP = 0.05

Open = Callable[[], contextlib.AbstractContextManager[Store]]       # opens the store, beside others


def reconstruct_partitions(request: Request, names: Sequence[str]) -> Outcome:
    """Those partitions. Raises Refused, StoreError."""
    outcome = Outcome()
    for name in names:
        lost = is_lost(request.root, name)
        if request.check:
            outcome.left.append(Finding("it has no databases" if lost else "its databases would be rebuilt",
                                        f"partition {name}", RECONSTRUCT))
            continue
        if lost and not (request.root / "mboxlist").is_dir():
            raise Refused("the list of mailboxes is lost, too: rebuild everything (--all)")
        with request.begun("reconstruct", {"partition": name}), request.watched() as progress:
            done = rebuild_partition(request.root, name, request.settings(), request.open_store, force=request.force,
                                     restart=partial(_restart, request.root), progress=progress)
            with request.open_store() as store:
                take_in_lost(store, store.partition(name), done)
        outcome.add(done)
    return outcome


def _restart(root: Path) -> None:
    """Have a server's processes restart: when a process dies in the store its supervisor starts all of them again,
    and clients see a dropped connection. A command that has the store open must end by itself."""
    if not server(root / "run" / "server.pid"):
        return
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            ProcessRegistry(root / "run", "onecopy reconstruct, which has all processes restarted").opened()
        os._exit(1)
    os.waitpid(child, 0)


def rebuild_partition(root: Path, name: str, settings: Settings, open_store: Open, *, restart: Callable[[], None],
                      force: bool = False, progress: Progress = silent) -> Outcome:
    """Rebuild the databases of a partition, and have every process take it up; with `force` also if it has some.

    `restart` has the processes of a server restart, which leave the partition alone then; it is called if any of
    them has it open. Raises StoreError UNAVAILABLE when there is no such partition or they do not leave it,
    STORE_IN_USE when another process does the same, DISK_FULL.
    """
    folder = root / "partitions" / name
    volumes.require_here(root, name)
    if not (folder / "messages").is_dir():
        raise StoreError(Problem.UNAVAILABLE, f"There is no partition {name} with messages")
    with _nobody_else(folder):
        try:
            if not force and not is_lost(root, name):       # cut off when all had been done but this
                with open_store() as store:
                    if name not in store.partitions:
                        volumes.put_in_use(store, name, _agree)
                return Outcome()
            done = Outcome()
            _left_alone(root, folder, restart)
            if (folder / "index").is_dir():
                with open_store() as store:
                    _write_what_it_knows(store, folder)
            _set_aside(folder)
            rebuild = _PartitionRebuild(folder, settings, done, progress)
            rebuild.look()
            with open_store() as store:
                rebuild.choose(store)
            rebuild.make()
            with open_store() as store:
                rebuild.join(store)
        except OSError as error:
            raise disk_problem(error) from error
    return done


def _nobody_else(folder: Path) -> contextlib.AbstractContextManager[None]:
    """No other process does the same. Raises StoreError STORE_IN_USE."""
    return exclusive(folder, Problem.STORE_IN_USE, f"Another process rebuilds partition {folder.name}", folder=True)


def _left_alone(root: Path, folder: Path, restart: Callable[[], None]) -> None:
    """Nobody has the partition open, nor opens it from here on. Raises StoreError UNAVAILABLE."""
    privatefiles.make_folder(folder / REBUILD, exist_ok=True)      # whoever opens the store from now on leaves it out
    sync_folder(folder)
    deadline, asked = time.monotonic() + LEAVE, False
    while not _try_to_unlist(root, folder.name):
        if not asked:
            restart()
            asked = True
        if time.monotonic() > deadline:
            raise StoreError(Problem.UNAVAILABLE, f"Partition {folder.name} is in use: stop the server, and every "
                                                  "other program that has the store open")
        time.sleep(STEP)


def _try_to_unlist(root: Path, name: str) -> bool:
    privatefiles.make_folder(root / "run", exist_ok=True)
    admission = privatefiles.open_handle(root / "run" / "door.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(admission, fcntl.LOCK_EX)                        # nobody comes in meanwhile
        if look(root / "run")[0] and name in (partitions_in_use(root) or ()):
            return False
        leave_partition(root, name)
        return True
    finally:
        os.close(admission)


def _set_aside(folder: Path) -> None:
    """What is left of its databases gets another name."""
    index = folder / "index"
    if index.exists():
        index.rename(aside_name(index, time.time()))
        sync_folder(folder)


def _write_what_it_knows(store: Store, folder: Path) -> None:
    """Before the databases are given up: write each `store.idx` of which they have a newer state that is whole.

    A mailbox whose records do not agree with its figures may be damaged: its file stays as it is.
    """
    try:
        partition = store.open_partition(folder, recover=True)
    except (Failure, NeedsRecovery, StoreError, OSError) as error:
        log.warning("the databases of partition %s cannot be opened: %s", folder.name, error)
        return
    before = store.partitions
    store.partitions = {**before, folder.name: partition}
    partition.domains = store.domains
    try:
        partition.unwritten.changed.update(mailbox for mailbox, state in list(partition.all_states())
                                           if _is_newer(store, partition, mailbox, state))
        writing.write_round(store, partition, hurry=True)
    except (Failure, StoreError, OSError) as error:
        log.warning("the databases of partition %s cannot be read to their end: %s", folder.name, error)
    finally:
        store.partitions = before
        with contextlib.suppress(Failure, StoreError, OSError):
            partition.close(clean=True)


def _is_newer(store: Store, partition: Partition, mailbox: MailboxId, state: MailboxState) -> bool:
    """Whether the databases know more of the mailbox than its `store.idx`, and are whole there."""
    try:
        found = writing.view(store, partition, mailbox)
    except StoreError:
        return False
    if found is None or len(found[1].rows) != state.messages or state.moving:
        return False
    try:
        head = read_head(found[0])
    except StoreError:
        return True
    behind = max(0, state.epoch - head.epoch)
    return head.id != mailbox or state.highestmodseq > head.highestmodseq + behind * MODSEQ_SKIP


@frozen
class _Wanted:
    """A mailbox that is to be: its file, and its row in the list, which has it already if it is `known`."""

    source: Source
    entry: MailboxEntry
    known: bool


@define(eq=False)
class _PartitionRebuild:
    """See `livepartition`."""

    folder: Path
    settings: Settings
    done: Outcome
    progress: Progress
    _found: list[Source] = field(factory=list)
    _wanted: list[_Wanted] = field(factory=list)

    @property
    def _scratch(self) -> Path:
        return self.folder / REBUILD / self.folder.name

    # What there is to be

    def look(self) -> None:
        """Read what each `store.idx` tells."""
        self._found = list(sources(self.folder, self.done.findings))

    def choose(self, store: Store) -> None:
        """Find out which mailbox of the list each file is of; the newest counts."""
        chosen: dict[int, _Wanted] = {}
        order = sorted(self._found, key=lambda source: (source.found, source.head.written), reverse=True)
        for source in order:
            wanted = self._known(store, source)
            if wanted is None:
                wanted = self._unknown(store, source)
            if wanted is not None:
                chosen.setdefault(wanted.entry.id, wanted)
        self._wanted = [chosen[mailbox] for mailbox in sorted(chosen)]
        store.mailboxes.env.flush()

    def _known(self, store: Store, source: Source) -> _Wanted | None:
        """The mailbox of the list, if it is on this partition."""
        head, mailboxes = source.head, store.mailboxes
        if not source.found:                            # its place is all that says whose it is
            entry = mailboxes.find(source.name)
            if entry is None or entry.partition != self.folder.name:
                return None
            return _Wanted(_named(source, entry, 0), entry, True)
        found = store.known(MailboxId(head.id))
        if found is None:
            return None
        entry, removed = found
        if entry.partition != self.folder.name or entry.uidvalidity != head.uidvalidity and not removed:
            return None
        if head.store != mailboxes.identity and entry.name.owner != source.name.owner:
            return None                                 # the same id of another list
        return _Wanted(_named(source, entry, removed), entry, True)

    def _unknown(self, store: Store, source: Source) -> _Wanted | None:
        """A mailbox that is to be added; None for one that this list knows to be no more, or to be elsewhere."""
        head = source.head
        if source.found and head.store == store.mailboxes.identity and head.id <= store.mailboxes.last_identity()[0]:
            return None
        before = store.mailboxes.find(source.name)      # a try that was cut off has added it
        if before is not None and before.partition == self.folder.name and before.uidvalidity == head.uidvalidity:
            return _Wanted(_named(source, before, 0), before, True)
        mailbox, validity = transact(store.mailboxes.env, store.mailboxes.next_identity)
        entry = MailboxEntry(mailbox, source.name, self.folder.name, head.uidvalidity or validity,
                             head.created or int(time.time()), head.special_use)
        return _Wanted(_named(source, entry, head.removed), entry, False)

    # The databases

    def make(self) -> None:
        """Fill an empty partition beside its place. Raises OSError, StoreError."""
        self._clear()
        make_folders(self.folder, without=("index",))
        adopted = self._adopted()
        privatefiles.make_folder(self._scratch / "index", parents=True)
        for part in ("messages", "staging", "users"):
            (self._scratch / part).symlink_to(Path("..") / ".." / part, target_is_directory=True)
        partition = Partition(self._scratch, evolve(self.settings, sync="none", log_archive=None), News(), recover=True,
                              broken=_broken)
        try:
            wanted = [(each.source, each.entry) for each in self._wanted]
            fill(partition, wanted, limits_of((source for source, _ in wanted), self.folder.name), self.done,
                 listed=None, adopted=adopted, progress=self.progress)
        finally:
            partition.close(clean=True)
        for region in (self._scratch / "index").glob("__db.*"):
            region.unlink()
        sync_file_system(self._scratch / "index")

    def _clear(self) -> None:
        """Remove what a try that was cut off has left; links, not what they lead to."""
        if self._scratch.is_dir():
            shutil.rmtree(self._scratch)

    def _adopted(self) -> list[list[Path]]:
        """Have every message file a name in `messages/`; see `emptying.adopt`."""
        note, name = self.folder / REBUILD / ADOPTED, self.folder.name
        adopted = read_adopted(note).get(name, []) + adopt(self.folder / "staging", self.folder / "messages")
        sync_file_system(self.folder)
        write_adopted(note, {name: adopted})
        return adopted

    # The partition in its place

    def join(self, store: Store) -> None:
        """Have the partition in use again. Raises OSError, StoreError."""
        self._enlist(store)
        (self._scratch / "index").rename(self.folder / "index")
        mark_behind(self.folder)
        sync_folder(self.folder)
        receivers.note_missed(store.root, "databases were rebuilt")
        shutil.rmtree(self.folder / REBUILD)
        sync_folder(self.folder)
        volumes.put_in_use(store, self.folder.name, _agree)
        partition = store.partition(self.folder.name)
        complete(store, partition, self.done.findings)
        log.info("partition %s has been rebuilt: %d mailboxes, %d records", partition.name, self.done.mailboxes,
                 self.done.records)

    def _enlist(self, store: Store) -> None:
        """Add the mailboxes that the list does not know; who is not in the directory is inactive."""
        new = [each for each in self._wanted if not each.known and store.mailboxes.find_id(each.entry.id) is None]
        add_users(store.directory, [each.source for each in new], [], self.done.findings)
        for each in new:
            name = each.entry.name
            if not each.source.head.removed and store.mailboxes.find(name) is not None:
                name = free_name(name, each.entry.id, self.done.findings)
            transact(store.mailboxes.env, partial(enlist, store.mailboxes, listed(each.source, evolve(each.entry,
                                                                                                      name=name))))
        store.mailboxes.env.flush()


def complete(store: Store, partition: Partition, findings: list[Finding]) -> None:
    """What comes after a partition that has been rebuilt is in use: mailboxes of which nothing but their row is left
    are there, empty; quota roots; each `store.idx`. No harm if it was done before. Raises StoreError."""
    there = {mailbox for mailbox, _ in partition.all_states()}
    lost = [entry for entry in store.mailboxes.all() if entry.partition == partition.name and entry.id not in there]
    for entry in lost:
        findings.append(Finding("it has no store.idx: it is there again, empty, with a new UIDVALIDITY",
                                str(entry.name), RESTORE))
        namespace.insert_mailbox(store, entry.name, partition.name, entry.special_use, replace=True,
                                 acl=dict(entry.acl))
    for owner in {entry.name.owner for entry in store.mailboxes.all() if entry.partition == partition.name}:
        roots.recharge(store, owner)
    partition.unwritten.changed.update(mailbox for mailbox, _ in partition.all_states())
    writing.write_round(store, partition, hurry=True)


def _agree(store: Store, partition: Partition) -> None:
    """What happened to mailboxes on it in the list meanwhile; the list decides. Nobody else has the partition."""
    for mailbox, state in list(partition.all_states()):
        found = store.known(mailbox)
        if found is None or found[0].partition != partition.name:
            deletion.destroy(partition, mailbox, int(time.time()))
        elif found[1] and not state.removed:
            when = found[1]
            partition.transact(lambda txn, mailbox=mailbox, when=when: deletion.bury(    # type: ignore[misc]
                txn, mailbox, when))


def _named(source: Source, entry: MailboxEntry, removed: int) -> Source:
    """The source with the name, id and time of deletion that the list has."""
    return evolve(source, name=entry.name, head=evolve(source.head, id=entry.id, removed=removed))


def _broken() -> None:
    log.error("the databases that are being made need recovery: the rebuild starts again")
