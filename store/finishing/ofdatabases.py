"""Operations on whole databases that were cut off: snapshots, partitions, and what reconstruct makes anew."""

import contextlib
import shutil
from contextlib import nullcontext
from pathlib import Path

from store.accounts.builtin import User
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.finishing.ofmail import NOTHING
from store.mend import orphans
from store.operations.operationrecord import Operation
from store.partition.marks import is_down, is_half_made
from store.partitions import volumes
from store.rebuild.outcome import Outcome
from store.rebuild.salvagedusers import kept_accounts, salvage_users
from store.reconstruct import livepartition, mailboxlist, procedures, wholestore
from store.reconstruct.lostpartitions import is_lost
from store.reconstruct.request import Planner, Refused, Request, silent
from store.settings import Settings
from store.snapshots import reset, taking
from store.store import Store

# Snapshots

def restore(root: Path, settings: Settings, operation: Operation) -> str:
    """Once it was decided that a snapshot is put back it gets its place; before that nothing has happened."""
    with reset.nobody_else(root):
        if reset.finish(root):
            return "finished: the snapshot has been put back"
        return "undone: nothing had been put back" if reset.undo(root) else ""


def restored(store: Store, operation: Operation) -> str:
    """All that is left is done before the store is opened."""
    return NOTHING


def made_snapshot(store: Store, operation: Operation) -> str:
    """One that is not whole is removed."""
    return "undone: what was there of it is removed" if taking.clear(store) else NOTHING


def remove_snapshots(store: Store, operation: Operation) -> str:
    """Those that are still there."""
    names = operation.arguments["snapshots"]
    for each in taking.listed(taking.folder(store.root, store.settings), every=True):
        if each.name in names:
            taking.remove(each)
    taking.clear(store)
    return f"finished: {', '.join(names)} removed"


# Partitions

def add_partition(store: Store, operation: Operation) -> str:
    """A start takes up one that has its place; else it is made."""
    name, path = operation.arguments["name"], operation.arguments["path"]
    if name in store.partitions or (store.root / "partitions" / name).exists():
        return f"finished: {name} is there"
    place = Path(path) if path is not None else None
    if place is not None:
        if volumes.is_taken(place):
            return f"undone: {name} is not there; {place} has another partition, and is left as it is"
        volumes.remove_parts(place)
    volumes.add(store, name, place)
    return f"finished: {name} is there"


def remove_partition(root: Path, settings: Settings, operation: Operation) -> str:
    """Once it has left its place its files go."""
    name, place = operation.arguments["name"], Path(operation.arguments["path"])
    hidden = volumes.place_of_removed(root, name)
    if hidden.is_dir():
        shutil.rmtree(hidden)
    elif (root / "partitions" / name).is_symlink() or not place.is_dir():
        return ""
    elif not place.is_relative_to(root.resolve()):
        if volumes.has_mailboxes(place):
            return f"finished: {name} is removed; {place} has mailboxes, and is left as it is"
        volumes.remove_parts(place)
    return ""


def partition_removed(store: Store, operation: Operation) -> str:
    """What came of it."""
    name = operation.arguments["name"]
    return f"undone: {name} is still there" if name in store.partitions else f"finished: {name} is removed"


# Reconstruct

def rebuild(root: Path, settings: Settings, operation: Operation) -> str:
    """All databases, or the list, where the store has none that could be opened."""
    if not is_down(root) and not is_half_made(root):
        return ""
    if not is_half_made(root) and mailboxlist.only_list_is_lost(root):
        done = mailboxlist.rebuild_list(root, settings, users=_accounts(root, operation))
        return f"finished: the list has been rebuilt, with {done.mailboxes} mailboxes"
    if is_half_made(root) or operation.arguments.get("all"):
        done = wholestore.rebuild(root, settings, users=_accounts(root, operation))
        return f"finished: all databases have been rebuilt, with {done.mailboxes} mailboxes and {done.records} records"
    return ""


def _accounts(root: Path, operation: Operation) -> list[User]:
    named = operation.arguments.get("users")
    return salvage_users(Path(named)) if named and Path(named).is_file() else kept_accounts(root)


def rebuilt(store: Store, operation: Operation) -> str:
    """Partitions whose databases are not there; and message files that nothing claims go to the administrator."""
    name, done, found = operation.arguments.get("partition"), Outcome(), []
    for folder in volumes.with_messages(store.root):
        if name in (None, folder.name) and is_lost(store.root, folder.name):
            done.add(livepartition.rebuild_partition(
                store.root, folder.name, store.settings, lambda: nullcontext(store), restart=lambda: None))
            found.append(folder.name)
        elif name == folder.name and name in store.partitions:
            livepartition.complete(store, store.partition(name), done.findings)
    for partition in list(store.partitions.values()):
        if name in (None, partition.name):
            orphans.take_in_lost(store, partition, done)
    return f"finished: partition {', '.join(found)} rebuilt, with {done.records} records" if found else NOTHING


def correct(store: Store, operation: Operation) -> str:
    """Do it once more: each correction is whole, and what is right is left as it is."""
    def user_of(opened: Store, address: str) -> str:
        account = opened.directory.find(address)
        if account is None:
            raise StoreError(Problem.NO_USER)
        return account.user

    def no_planner() -> Planner:
        raise Refused("a plan is made by the command alone")

    request = Request(store.root, operation.who, lambda: store.settings, lambda: nullcontext(store), user_of,
                      check, no_planner, lambda: nullcontext(silent), **operation.arguments)
    with contextlib.suppress(Refused):
        done = procedures.reconstruct(request)
        return f"finished: {len(done.corrections)} more corrections, {len(done.left)} left"
    return NOTHING
