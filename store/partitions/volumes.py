"""The partitions of a store: found, added, filled, removed.

Each is a folder of `partitions/`, or a symbolic link there to a folder on another volume. The first process to open the
store recovers all that are there, and writes their names to `run/partitions`; the others join these. One that is added
later is made whole first, and then gets its name there: a process that comes upon a mailbox on it joins it then.
"""

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

from mboxlist.engine.disk import sync_folder
from store.errors import Problem, StoreError
from store.filelock import in_turn
from store.partition.marks import EPOCH, GENERATION_OF_LIST, GENERATIONS, absent, only_elsewhere
from store.partition.partition import Partition
from store.partition.processes import partitions_in_use, use_partitions
from store.store import Store

log = logging.getLogger(__name__)

NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
PARTS = ("index", "messages", "staging", "users")
LOCK = "partitions.lock"
REBUILD = "rebuild"             # a folder in a partition whose databases are being rebuilt: see `livepartition`


@frozen
class Figures:
    """What is on a partition, in octets where not said otherwise; `full`: it takes no more mail."""

    partition: str
    mailboxes: int
    messages: int
    octets: int
    free: int
    used: int
    full: bool


def is_whole(folder: Path) -> bool:
    """Whether a partition has its databases, unless it was never in use, and they are not being rebuilt."""
    return (folder / "index").is_dir() and not (folder / REBUILD).is_dir() and (
        any((folder / "index").glob("*.db")) or not (folder / "users" / EPOCH).exists())


def with_messages(root: Path) -> list[Path]:
    """The folders of the partitions that have message files, whether they have databases or not."""
    folder = root / "partitions"
    return sorted(path for path in folder.iterdir() if (path / "messages").is_dir()) if folder.is_dir() else []


def named_there(root: Path) -> list[str]:
    """The partitions that the store in that folder has, whether their volumes are there or not."""
    return sorted(path.name for path in (root / "partitions").iterdir() if NAME.fullmatch(path.name))


def added(store: Store) -> list[str]:
    """Those that this process has not joined yet."""
    return [name for name in partitions_in_use(store.root) or () if name not in store.partitions]


def add(store: Store, name: str, folder: Path | None = None) -> Partition:
    """Make a partition, on another volume if `folder` is given: an empty folder, or one that is not there yet.

    Every process takes it up when it needs it. Raises StoreError BAD_NAME, STORE_IN_USE, OSError.
    """
    if not NAME.fullmatch(name):
        raise StoreError(Problem.BAD_NAME, f"{name} cannot name a partition: letters, digits, - and _, not too many")
    link = store.root / "partitions" / name
    require_here(store.root, name)
    with in_turn(store.root / "run" / LOCK):
        if name in store.partitions or name in (partitions_in_use(store.root) or ()):
            raise StoreError(Problem.STORE_IN_USE, f"There is a partition {name} already")
        there = link.is_symlink() or link.exists()
        if there and folder is not None:
            raise StoreError(Problem.STORE_IN_USE, f"There is a {link} already")
        place = None if folder is None else _empty(store, folder)
        with store.begun("partition add", {"name": name, "path": None if place is None else str(place)}):
            if not there:
                _make(link, place)
            _begin(store, link)
            use_partitions(store.root, [*(partitions_in_use(store.root) or store.partitions), name])
    return store.partition(name)


def require_here(root: Path, name: str) -> None:
    """Nothing takes the place of a partition that another machine has. Raises StoreError UNAVAILABLE."""
    if (host := absent(root).get(name)) is not None:
        raise StoreError(Problem.UNAVAILABLE, f"Nothing was changed: {only_elsewhere(name, host)}")


def _empty(store: Store, folder: Path) -> Path:
    place = folder.absolute()
    if place.is_relative_to(store.root.absolute()):
        raise StoreError(Problem.BAD_NAME, f"{place} is inside the store: leave it out, or take another volume")
    if any((place / part).exists() for part in PARTS):
        raise StoreError(Problem.STORE_IN_USE, f"{place} is not empty")
    return place


def _make(link: Path, place: Path | None) -> None:
    if place is not None:
        try:
            Partition.make(place)
        except BaseException:
            remove_parts(place)
            raise
        link.symlink_to(place, target_is_directory=True)
    else:
        place = link.with_name(f".{link.name}.new")
        shutil.rmtree(place, ignore_errors=True)
        Partition.make(place)
        place.rename(link)
    sync_folder(link.parent)


def put_in_use(store: Store, name: str, reconcile: Callable[[Store, Partition], None]) -> None:
    """Have a partition in use whose databases have been rebuilt, once `reconcile` has done what only can be done while
    nobody has it."""
    with in_turn(store.root / "run" / LOCK):
        _begin(store, store.root / "partitions" / name, reconcile)
        use_partitions(store.root, sorted({*(partitions_in_use(store.root) or store.partitions), name}))


def _begin(store: Store, folder: Path, reconcile: Callable[[Store, Partition], None] = lambda store, partition: None
           ) -> None:
    """Recover it, as the first process does, since nobody else has it yet. It counts as in use from here on."""
    partition = store.open_partition(folder, recover=True)
    try:
        source = next(iter(store.partitions.values()), None)
        if source is not None:
            partition.transact(lambda txn: partition.quotas.take_domains(source.quotas, txn.handle))
        reconcile(store, partition)
        (folder / "users" / GENERATION_OF_LIST).unlink(missing_ok=True)     # it may be that of another list
        partition.env.opened()
    finally:
        partition.close(clean=False)


def remove(store: Store, name: str) -> None:
    """Remove a partition on which nothing is any more, with all files that only wait for the purge. Events that have
    not been sent go into the list's outbox.

    Raises StoreError UNAVAILABLE when there is no such partition, NO_PERMISSION when something is on it, STORE_IN_USE
    when another process is in the store.
    """
    partition = named(store, name)
    reason = _needed(store, partition)
    if reason:
        raise StoreError(Problem.NO_PERMISSION, f"Partition {name} cannot be removed: {reason}")
    with store.alone():
        reason = _needed(store, partition)          # now that nobody can change it
        if reason:
            raise StoreError(Problem.NO_PERMISSION, f"Partition {name} cannot be removed: {reason}")
        link = store.root / "partitions" / name
        store.outbox.take(partition.outbox, store.mailboxes.env)
        with store.begun("partition remove", {"name": name, "path": str(link.resolve())}):
            store.partitions = {other: each for other, each in store.partitions.items() if other != name}
            partition.close(clean=True)
            use_partitions(store.root, list(store.partitions))
            (store.root / GENERATIONS / name).unlink(missing_ok=True)
            _leave(link)


def _leave(link: Path) -> None:
    if link.is_symlink():
        place = link.resolve()
        link.unlink()
        sync_folder(link.parent)
        remove_parts(place)
    else:
        place = place_of_removed(link.parent.parent, link.name)
        link.rename(place)
        sync_folder(link.parent)
        shutil.rmtree(place)


def place_of_removed(root: Path, name: str) -> Path:
    """Where the files of a partition are while they are removed, if it has no volume of its own."""
    return root / "partitions" / f".{name}.removed"


def _needed(store: Store, partition: Partition) -> str:
    """Why it cannot be removed; "" if it can."""
    name = partition.name
    if name == store.settings.default_partition or len(store.partitions) == 1:
        return "new users come to it"
    there = sum(entry.partition == name for entry in store.mailboxes.all())
    if there:
        return f"{there} mailboxes are on it"
    deleted = sum(entry.partition == name for _, entry in store.mailboxes.deleted.all())
    if deleted:
        return f"{deleted} deleted mailboxes on it can still be undeleted"
    users = [account.user for account in store.directory.all() if account.partition == name]
    if users:
        return f"it is the partition of {users[0]}" + (" and others" if len(users) > 1 else "")
    held = partition.removed.counts()
    used = any(record.references > held[digest] for digest, record in partition.refs.all())
    if used or next(iter(partition.all_states()), None):
        return "something on it belongs to no mailbox in the list: onecopy check says what"
    return ""


def named(store: Store, name: str) -> Partition:
    """The partition that a person has named. Raises StoreError UNAVAILABLE."""
    try:
        return store.partition(name)
    except StoreError as error:
        if name in (partitions_in_use(store.root) or ()):
            raise                       # it is there, and cannot be used
        require_here(store.root, name)
        raise StoreError(error.problem, f"There is no partition {name}: there are {', '.join(sorted(store.partitions))}"
                         ) from None


def figures(partition: Partition) -> Figures:
    """What is on it now."""
    states = [state for _, state in partition.all_states() if not state.removed]
    free, used = partition.files.volume()
    return Figures(partition.name, len(states), sum(state.messages for state in states),
                   sum(state.octets for state in states), free, used, partition.is_full())


def is_taken(place: Path) -> bool:
    """Whether a partition there has databases, so that it is more than one that was being made."""
    return any((place / "index").glob("*"))


def has_mailboxes(place: Path) -> bool:
    """Whether a partition there has mailboxes, which none has that is removed."""
    return next((place / "users").rglob("store.idx"), None) is not None


def remove_parts(place: Path) -> None:
    """Remove all that a partition has there. What cannot be removed stays."""
    for part in PARTS:
        shutil.rmtree(place / part, ignore_errors=True)
