"""The databases of a snapshot, for reading by many processes: `taken_for` makes one for the time being, `prepared` has
its databases recovered beside it, as for users who look into it (`store.snapshots.opened`), and `opened_list` and
`opened_partition` open those of one environment in this process.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, frozen

from mboxlist.deleted import DeletedMailboxes
from mboxlist.engine.btree import Table
from mboxlist.engine.hotcopy import Still
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.snapshotlist import SnapshotList
from store.partition.serials import META_KEY, meta_of
from store.snapshots import taking
from store.snapshots.opened import Prepared
from store.snapshots.taking import LIST, Snapshot
from store.store import Store

CACHE = 4 << 20             # octets of memory for each environment, in each process


@frozen
class Folders:
    """Where the recovered databases are: of the list, and of each partition by its name."""

    mailboxes: str
    partitions: Mapping[str, str]


def taken_for(store: Store, kind: str, on_record: ExitStack) -> Snapshot:
    """A snapshot for an operation of that kind, until `given_up`. It is on record as long as `on_record` lasts, so that
    a start, or housekeeping, removes what a killed command leaves. Raises StoreError, OSError."""
    with store.begun("snapshot create", {}, stops=True):
        made = taking.create(store)
        on_record.enter_context(store.begun(kind, {"snapshots": [made.name]}, stops=True))
    return made


def given_up(store: Store, made: Snapshot) -> None:
    """Remove it. Raises StoreError, OSError."""
    taking.remove(made)
    taking.keep_what_is_needed(store)


@contextmanager
def prepared(snapshot: Snapshot) -> Iterator[Folders]:
    """The databases of a snapshot, to be read until the block ends. Raises StoreError, OSError, Failure."""
    place = Prepared.of(snapshot.path)
    try:
        found = {}
        for name in snapshot.manifest.environments:
            def fill(target: Path, name: str = name) -> None:
                taking.put_back(snapshot, name, target)
                for path in target.glob("log.*"):
                    path.unlink()

            found[name] = str(place.environment(name, fill))
        yield Folders(found.pop(LIST), {name.split("/")[1]: path for name, path in found.items()})
    finally:
        let_go()
        place.release()


@define(eq=False)
class ListTables:
    """The list of mailboxes, those that were deleted, and the built-in directory."""

    names: SnapshotList
    deleted: DeletedMailboxes
    users: Table

    def entry(self, mailbox: MailboxId) -> tuple[int, MailboxEntry] | None:
        """When the mailbox of that id was deleted (0: it is there), and its row in the list."""
        found = self.names.find_id(mailbox)
        return (0, found) if found is not None else self.deleted.find(mailbox)


@define(eq=False)
class PartitionTables:
    """Tables of a partition, and its epoch."""

    epoch: int
    states: Table
    index: Table
    messages: Table
    cache: Table
    quotas: Table
    removed: Table


_lists: dict[str, tuple[ListTables, Still]] = {}
_partitions: dict[str, tuple[PartitionTables, Still]] = {}


def opened_list(folder: str) -> ListTables:
    """The tables of the list; they stay open in this process until `let_go`."""
    if folder not in _lists:
        names, others = SnapshotList(Path(folder), CACHE), Still(Path(folder), CACHE)
        _lists[folder] = ListTables(names, DeletedMailboxes(others.table("deleted.db")),
                                    others.table("users.db")), others
    return _lists[folder][0]


def opened_partition(folder: str) -> PartitionTables:
    """The tables of a partition; they stay open in this process until `let_go`. Raises StoreError UNAVAILABLE."""
    if folder not in _partitions:
        still = Still(Path(folder), CACHE)
        states, *others = (still.table(f"{name}.db") for name in (
            "state", "index", "messages", "cache", "quota", "removed"))
        epoch, _, _ = meta_of(states.get(META_KEY) or b"", "That snapshot")
        _partitions[folder] = PartitionTables(epoch, states, *others), still
    return _partitions[folder][0]


def let_go() -> None:
    """Close all that is open in this process."""
    for names, others in _lists.values():
        names.names.close()
        others.close()
    for _, still in _partitions.values():
        still.close()
    _lists.clear()
    _partitions.clear()
