"""A partition comes home: the promoted machine was not asked to protect it, so only the machine that comes back has it.

That machine asks for it, and then both change sides on the connection: the promoted one copies the list and this
partition as a standby does (`store.standby.seeding`), into the folder `coming` of the partition, and what was cut off
goes on there. Databases are compared with the digests of a snapshot, recovered and read through; each message file is
compared with its digest, which is its name.

The promoted machine's list decides what has become of the mailboxes meanwhile. One that it does not know was made
or restored on the other machine after the standby had its last state: it gets its row. One that was deleted there
since is as it was: that is not done again. One that is not on the partition any more is there again, empty, under a new
UIDVALIDITY. The mark that the partition is absent goes last: until then nobody opens it, and all of this is done again.
The other machine keeps what it has until it is a standby.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from attrs import define, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.engine.btree import Txn
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.snapshotlist import SnapshotList
from store.errors import Problem, StoreError
from store.expiry import rulebook
from store.filelock import exclusive
from store.mailboxes import deletion
from store.mailboxes.deletion import DOOMED
from store.partition.filecontent import trace_of
from store.partition.marks import ABSENT, STANDBY, is_absent, mark_behind, write_epoch
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.partitions import volumes
from store.partitions.volumes import PARTS
from store.quota import roots
from store.rebuild.userareascan import free_name
from store.recovery.reconciliation import agree_about
from store.snapshots.taking import LIST
from store.standby import seeding
from store.standby.copyformat import FILES, Listed
from store.standby.filecopies import FileCopies
from store.standby.promotion import PROMOTED
from store.standby.sourcepeer import SourcePeer
from store.store import Store

log = logging.getLogger(__name__)

COMING = "coming"           # a folder in that of the partition
HOME = "came-home"          # in the folder of the common place: a line for each partition that has come home, with its
                            # `Whence`
CACHE = 16 << 20


@frozen(order=True)
class Whence:
    """The machine that brings something home, and the identity of the last promotion that it has seen: it has nothing
    new in what it has brought, unless it has been promoted, or preferred, since."""

    host: str
    promotion: str


def came_home(root: Path, whence: Whence) -> list[str]:
    """The partitions that have come home since the promotion from there. Another machine may have more of them."""
    return [name for name, each in _came_home(root) if each == whence]


def _came_home(root: Path) -> list[tuple[str, Whence]]:
    try:
        lines = privatefiles.read_text(root / PROMOTED / HOME).splitlines()
    except FileNotFoundError:
        return []
    return [(words[0], Whence(words[1], words[2])) for words in (line.split(" ") for line in lines) if len(words) == 3]


def take(store: Store, name: str, source: SourcePeer, whence: Whence) -> None:
    """Have the partition of that name, which is absent, from the machine at the other end, and in use. Raises
    StoreError, OSError."""
    folder = store.root / "partitions" / name
    if not is_absent(folder):
        raise StoreError(Problem.GONE, f"Partition {name} is not absent here")
    with exclusive(folder, Problem.STORE_IN_USE, f"Partition {name} is being brought already", folder=True):
        coming = folder / COMING
        inner = coming / "partitions" / name
        if not (coming / STANDBY).exists():     # it was being removed: all was in its place
            shutil.rmtree(coming, ignore_errors=True)
        state = seeding.begin(coming, source, f"{whence.host}=:1", (name,))
        _move(folder, inner)            # where this was cut off
        if state.identity != store.mailboxes.identity:
            raise StoreError(Problem.UNAVAILABLE, "The other machine has another store")
        state = seeding.seed(coming, state, source, partial(_require_room, store, folder))
        _move(inner, folder)
        _move_rules(inner, folder)
        write_epoch(folder, state.epochs.get(name, 0))
        privatefiles.touch(folder / "index" / "unclean")    # its store.idx files are to be written
        with closing(SnapshotList(coming / LIST, CACHE)) as theirs:
            arriving = _Arriving(store, theirs, source, coming, whence)
            volumes.put_in_use(store, name, arriving.agree)
    store.partition(name)
    log.warning("partition %s has come home: %d mailboxes were made there since, %d are empty here", name,
                arriving.made, arriving.emptied)


def _require_room(store: Store, folder: Path, what: str, done: int, total: int) -> None:
    """Who uses this machine needs what it keeps free. Raises StoreError DISK_FULL, OSError."""
    if shutil.disk_usage(folder).free < store.settings.disk_reserve:
        raise StoreError(Problem.DISK_FULL, f"{folder / COMING} has what has come: make room, and go on")


def _move(source: Path, target: Path) -> None:
    """Have the folders of a partition, as far as they are in the one, in the other, on disk."""
    for part in PARTS:
        if (source / part).is_dir():
            privatefiles.make_folder(target, parents=True, exist_ok=True)
            shutil.rmtree(target / part, ignore_errors=True)        # begun, and not whole
            os.rename(source / part, target / part)
            sync_folder(target)
            sync_folder(source)


def _move_rules(source: Path, target: Path) -> None:
    """Have the partition's rules of expiry there, too, on disk."""
    if (source / rulebook.FILE).exists():
        os.replace(source / rulebook.FILE, target / rulebook.FILE)
        sync_folder(target)


@define(eq=False)
class _Arriving:
    """What is done with a partition before anybody uses it. `theirs` is the list of the machine that had it."""

    store: Store
    theirs: SnapshotList
    source: SourcePeer
    coming: Path
    whence: Whence
    made: int = field(default=0, init=False)
    emptied: int = field(default=0, init=False)

    def agree(self, store: Store, partition: Partition) -> None:
        """See the module's text. Raises StoreError, OSError."""
        self._require_messages(partition)
        before = store.partitions
        store.partitions = {**before, partition.name: partition}
        partition.domains = store.domains
        partition.record(store.recorder)
        try:
            for mailbox, _ in list(partition.all_states()):
                self._enlist(partition, mailbox)
            here = [entry for entry in store.mailboxes.all() if entry.partition == partition.name]
            for entry in here:
                state = partition.any_state(entry.id)
                if state is not None and state.removed == DOOMED:
                    deletion.destroy(partition, entry.id, int(time.time()))
                    state = None
                if state is None:
                    self._empty(entry)
                elif state.removed or state.uidvalidity != entry.uidvalidity:
                    _restore(partition, entry)
            store.mailboxes.env.flush()
            agree_about(store, partition)
            roots.agree(store)
            mark_behind(partition.folder)
            partition.flush()
            store.mailboxes.env.flush()
        finally:
            store.partitions = before
        self._end(partition)

    def _require_messages(self, partition: Partition) -> None:
        """Each message file that the databases know is here, and its content is what its name says; or the other
        machine has no better one."""
        copies, wrong = FileCopies(self.source, partition.folder), _wrong(partition)
        while some := [Listed(digest, 0, 0) for _, digest in zip(range(FILES), wrong, strict=False)]:
            for digest, is_there in copies.fetch(some):
                if not is_there or not _is_right(partition, digest, 0):
                    log.error("message %s of partition %s was lost or damaged on the other machine", digest.hex(),
                              partition.name)
        copies.settle()

    def _enlist(self, partition: Partition, mailbox: MailboxId) -> None:
        state, entry, mailboxes = partition.any_state(mailbox), self.theirs.find_id(mailbox), self.store.mailboxes
        if (state is None or entry is None or entry.partition != partition.name or state.removed == DOOMED
                or mailboxes.find_id(mailbox) is not None):
            return
        deleted = mailboxes.deleted.find(mailbox)
        if deleted is not None and deleted[1].partition != partition.name:
            return
        if mailboxes.find(entry.name) is not None:
            entry = evolve(entry, name=free_name(entry.name, mailbox, []))
        row = entry

        def work(txn: Txn) -> None:
            mailboxes.deleted.remove(mailbox, txn)          # the other machine has restored it since
            mailboxes.skip_identities(row.id, row.uidvalidity, txn)
            mailboxes.write(row, txn, guarded=False)

        transact(mailboxes.env, work)
        self.made += 1
        log.info("%s was made or restored on the other machine, and is in the list now", row.name)

    def _empty(self, entry: MailboxEntry) -> None:
        """What the other machine had of it is on another partition, or was destroyed."""
        mailboxes = self.store.mailboxes
        transact(mailboxes.env, lambda txn: mailboxes.write(
            evolve(entry, uidvalidity=mailboxes.next_identity(txn)[1]), txn, guarded=False))
        self.emptied += 1
        log.warning("%s is not on partition %s any more: it is empty, under a new UIDVALIDITY", entry.name,
                    entry.partition)

    def _end(self, partition: Partition) -> None:
        """It is here, and not absent any more."""
        top = self.store.root / PROMOTED
        privatefiles.make_folder(top, exist_ok=True)
        with privatefiles.replacing(top / HOME) as file:
            lines = {*_came_home(self.store.root), (partition.name, self.whence)}
            file.write("".join(f"{name} {each.host} {each.promotion}\n" for name, each in sorted(lines)).encode())
        shutil.rmtree(self.coming)
        (partition.folder / ABSENT).unlink()
        sync_folder(partition.folder)


def _restore(partition: Partition, entry: MailboxEntry) -> None:
    """The mailbox is what the list says: it was deleted on the other machine since, which is not done again."""
    def work(txn: WriteTxn) -> bool:
        state = txn.any_state(entry.id)
        assert state is not None
        root, modseq, removed = state.quota_root, state.highestmodseq + 1, bool(state.removed)
        if removed:
            root = roots.root_for(partition, entry.name)
            txn.charge_root(root, state.octets, state.messages, enforce=False)
        txn.set_state(entry.id, state, evolve(state, removed=0, moving=0, quota_root=root, highestmodseq=modseq,
                                              uidvalidity=entry.uidvalidity, changed=modseq))
        return removed

    if partition.transact(work):
        log.warning("%s was deleted on the other machine: it is there again", entry.name)


def _wrong(partition: Partition) -> Iterator[bytes]:
    """The digests of message files that are not here as they should be."""
    return (digest for digest, record in partition.refs.all(raw=True) if not _is_right(partition, digest, record.trace))


def _is_right(partition: Partition, digest: bytes, trace: int) -> bool:
    try:
        return trace_of(Path(partition.files.path(digest)), digest, (trace,)) is not None
    except (OSError, StoreError):
        return False
