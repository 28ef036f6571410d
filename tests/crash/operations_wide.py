"""Operations of the table beside it: on files of the user area, several partitions, users, and rights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attrs import evolve

from mboxlist.names import MailboxName
from store.errors import StoreError
from store.mailboxes import authorization, copymessages, crosspartition, deletion, firstuse, namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.flagchanges import change_flags
from store.partitions import partitionmove, volumes
from store.progress import Progress
from store.quota import roots
from store.store import Store
from store.userarea import idxreading, paths, writing
from store.users import renaming
from store.values import Flag, FlagAction, Flags
from tests.crash.places import (
    ALICE,
    ARCHIVE,
    BOB,
    NEW,
    OLD,
    TRACE,
    WORK,
    Answered,
    Place,
    deliver,
)
from tests.crash.views import Picture
from tests.support.stores.slicing import one_by_one
from tests.support.stores.stores import HASH

# Files of the user area

def write_idx(place: Place, answered: Answered) -> None:
    place.deliver(NEW[0], ALICE, BOB, WORK, trace=TRACE)
    answered()
    writing.write_changed(place.store, hurry=True)
    answered()
    change_flags(place.store, place.entry(BOB), [1], FlagAction.ADD, Flags(Flag.SEEN))
    place.flushed(BOB)
    answered()
    writing.write_changed(place.store, hurry=True)
    answered()


def write_one_idx(place: Place, answered: Answered) -> None:
    change_flags(place.store, place.entry(WORK), [1], FlagAction.ADD, Flags(Flag.SEEN))
    place.flushed(WORK)
    answered()
    writing.write_changed(place.store, hurry=True)
    answered()


def idx_of_renamed(place: Place, answered: Answered) -> None:
    namespace.rename_mailbox(place.store, ARCHIVE, MailboxName("alice", "Old/Mail"))
    answered()
    writing.write_changed(place.store, hurry=True)
    answered()
    deletion.delete_mailbox(place.store, WORK)
    answered()
    writing.write_changed(place.store, hurry=True)
    answered()


def files_agree(store: Store, answers: int) -> list[str]:
    """Every store.idx can be read; and after the second answer each says what its mailbox holds, and who it is.

    The flags of one message may be behind: they are changed after that answer.
    """
    wrong = []
    for entry in store.mailboxes.all():
        path = paths.place(store.partition_of(entry), entry.name)
        if not path.exists() and answers < 2:
            continue
        try:
            found = idxreading.read(path)
        except StoreError as error:
            wrong.append(f"{path}: {error}")
            continue
        uids, there = found.rows["uid"].tolist(), store.open_mailbox(entry).rows["uid"].tolist()
        if answers >= 2 and (uids, found.head.id, found.head.uidvalidity) != (there, entry.id, entry.uidvalidity):
            wrong.append(f"{path}: it tells of UIDs {uids} in mailbox {found.head.id}")
    return wrong


# Several partitions, users, rights

CAROL = MailboxName("carol", "INBOX")


def prepare_second(store: Store) -> None:
    volumes.add(store, "second")
    firstuse.inbox(store, store.directory.add("carol", HASH, partition="second"))     # type: ignore[attr-defined]
    deliver(store, OLD[0], CAROL, ALICE, trace=TRACE)


def deliver_to_both(place: Place, answered: Answered) -> None:
    place.deliver(NEW[0], ALICE, CAROL, BOB, trace=TRACE)
    answered()


def some_partitions(before: Picture, after: Picture) -> list[Picture]:
    """Each partition has a transaction of its own."""
    return [{name: (after if (name == str(CAROL)) is on_second else before)[name] for name in before}
            for on_second in (True, False)]


def copy_across(place: Place, answered: Answered) -> None:
    crosspartition.copy(place.store, place.entry(ALICE), place.entry(CAROL), place.uids(ALICE))
    place.flushed(CAROL)
    answered()


def move_user(place: Place, answered: Answered) -> None:
    partitionmove.move_owner(place.store, "alice", "second")
    answered()
    place.deliver(NEW[0], ALICE, CAROL, BOB, trace=TRACE)
    answered()


def bob_or_others(before: Picture, after: Picture) -> list[Picture]:
    """Of a delivery after the move, what each partition has got."""
    return [{name: (after if (name == str(BOB)) is bob else before)[name] for name in before} for bob in (True, False)]


def rename_user(place: Place, answered: Answered) -> None:
    renaming.rename_user(place.store, "alice", "alicia")
    answered()


def grant_rights(place: Place, answered: Answered) -> None:
    authorization.set_acl(place.store, ARCHIVE, "bob", "lrs")
    answered()
    change_flags(place.store, place.entry(ARCHIVE), [1], FlagAction.ADD, Flags(Flag.SEEN | Flag.FLAGGED), "bob")
    place.flushed(ARCHIVE)
    answered()
    authorization.set_acl(place.store, ARCHIVE, "bob", "")
    answered()


def quota_roots(place: Place, answered: Answered) -> None:
    roots.set_quota(place.store, "alice/Archive", 1_000_000, 100)
    answered()
    place.deliver(NEW[0], MailboxName("alice", "Archive/2026"), trace=TRACE)
    answered()
    roots.remove_quota_root(place.store, "alice/Archive")
    answered()


# Work on many messages, some at a time

@contextmanager
def _slices() -> Iterator[None]:
    """COPY and MOVE take one message at a time meanwhile."""
    real = copymessages.slices
    copymessages.slices = one_by_one
    try:
        yield
    finally:
        copymessages.slices = real


def _flushing(place: Place) -> Progress:
    """Before each slice those before it come to the disk."""
    return Progress(lambda: place.flushed(WORK) is not None)


def copy_in_slices(place: Place, answered: Answered) -> None:
    """All or none, also when it is cut off half way; mail that comes beside it stays."""
    with _slices():
        copy_messages(place.store, place.entry(ALICE), place.entry(WORK), place.uids(ALICE), progress=_flushing(place))
        place.flushed(WORK)
        answered()
        copy_messages(place.store, place.entry(WORK), place.entry(BOB), place.uids(WORK)[:3], progress=_flushing(place))
        place.flushed(BOB)
        answered()


def move_in_slices(place: Place, answered: Answered) -> None:
    """Each message is in one of the two, whenever it is cut off."""
    with _slices():
        copy_messages(place.store, place.entry(ALICE), place.entry(WORK), place.uids(ALICE)[:3], remove=True,
                      progress=_flushing(place))
        place.flushed(WORK)
        answered()


def rename_in_slices(place: Place, answered: Answered) -> None:
    """All or none of a tree, one in each transaction, each of which is on disk before the next."""
    some = namespace._rename_some

    def renamed(*arguments: Any) -> None:
        place.store.mailboxes.env.flush()
        some(*arguments)

    at_once, namespace.RENAMED, namespace._rename_some = namespace.RENAMED, 1, renamed
    try:
        namespace.rename_mailbox(place.store, ARCHIVE, MailboxName("alice", "Old/Mail"))
    finally:
        namespace.RENAMED, namespace._rename_some = at_once, some
    answered()


def some_moved(before: Picture, after: Picture) -> list[Picture]:
    """So many of three have been moved."""
    here, there = before[str(ALICE)].messages[:3], after[str(WORK)].messages[-3:]
    return [{**before,
             str(ALICE): evolve(before[str(ALICE)], messages=before[str(ALICE)].messages[count:]),
             str(WORK): evolve(before[str(WORK)], messages=before[str(WORK)].messages + there[:count])}
            for count in range(1, len(here))]
