"""The table of operations that are cut off everywhere, and the store that they work on.

An operation calls `answered` whenever a server would give a positive answer: what it did until then must last. Between
two answers all is done or nothing, unless `between` names more states that a crash may leave.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve, frozen

from mboxlist.engine.logfiles import LogAhead
from mboxlist.engine.transact import Failure
from store.errors import Problem, StoreError
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import expunge, remove
from store.mailboxes.flagchanges import change_flags
from store.partition import messagefiles
from store.quota import roots
from store.settings import Settings
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.crash import operations_events as sending
from tests.crash import operations_journal as journal
from tests.crash import operations_mailboxes as mailboxes
from tests.crash import operations_restore as restore
from tests.crash import operations_scripts as scripts
from tests.crash import operations_wide as wide
from tests.crash.places import (
    ALICE,
    BIG,
    BOB,
    LATER,
    NEW,
    OLD,
    SETTINGS,
    TRACE,
    WORK,
    Answered,
    Place,
    fill,
)
from tests.crash.views import Picture
from tests.support.stores.purging import purge


@frozen
class Operation:
    """Something that is done to an open store. `prepare` makes ready what `fill` does not.

    `alone`: it opens and closes the store itself, with `Place.open` and `Place.close`. `inspect` says what else is
    wrong in a store that was opened after so many answers; `finish` what is when all that was cut off is done again,
    from what should be there then. `fill`: or it begins with nothing. `events`: a receiver wants all events, and from
    what waits for it must know what is in the store.
    """

    run: Callable[["Place", Answered], None]
    prepare: Callable[[Store], None] = lambda store: None
    between: Callable[[Picture, Picture], list[Picture]] = lambda before, after: []
    alone: bool = False
    tolerated: str = ""             # what `check` may find
    inspect: Callable[[Store, int], list[str]] = lambda store, answers: []
    finish: Callable[[Store, Picture], list[str]] | None = None
    fill: Callable[[Store], None] = fill
    settings: Settings = SETTINGS
    events: bool = True


FILE_LOST = "its file is missing"


# The operations

def _deliver_one(place: Place, answered: Answered) -> None:
    place.deliver(NEW[0], ALICE, trace=TRACE)
    answered()


def _deliver_three(place: Place, answered: Answered) -> None:
    place.deliver(NEW[1], ALICE, BOB, WORK, trace=TRACE, flags=Flags(Flag.FLAGGED), header=b"Delivered-To: {}\r\n")
    answered()


def _deliver_known(place: Place, answered: Answered) -> None:
    place.deliver(OLD[3], BOB, trace=TRACE)
    answered()
    place.deliver(NEW[0], ALICE, trace=TRACE)
    answered()
    place.deliver(NEW[0], BOB, WORK, trace=TRACE)           # a relay that splits a long list of recipients
    answered()


def _deliver_released(place: Place, answered: Answered) -> None:
    """What was expunged everywhere and not purged yet comes again."""
    change_flags(place.store, place.entry(ALICE), [3], FlagAction.ADD, Flags(Flag.DELETED))
    expunge(place.store, place.entry(ALICE))
    place.flushed(ALICE)
    answered()
    place.deliver(OLD[2], BOB, trace=TRACE)
    answered()


def _prepare_orphan(store: Store) -> None:
    """A message file that nothing is known of."""
    path = Path(store.partitions["primary"].files.path(hashlib.blake2b(NEW[0], digest_size=32).digest()))
    path.write_bytes(NEW[0])


def _deliver_bare(place: Place, answered: Answered) -> None:
    place.deliver(NEW[0], ALICE)
    answered()


def _deliver_big(place: Place, answered: Answered) -> None:
    place.deliver(BIG, ALICE, BOB, trace=TRACE)
    answered()


def _deliver_refused(place: Place, answered: Answered) -> None:
    roots.set_quota(place.store, "bob", 10)
    try:
        place.deliver(NEW[0], BOB, trace=TRACE)
    except StoreError:
        answered()
    place.deliver(NEW[0], ALICE, trace=TRACE)
    answered()


def _append(place: Place, answered: Answered) -> None:
    place.deliver(NEW[2], WORK, flags=Flags(Flag.SEEN | Flag.DRAFT, ("todo", "another")))
    answered()
    place.deliver(OLD[1], WORK, flags=Flags(keywords=("$Forwarded",)))
    answered()


def _copy(place: Place, answered: Answered) -> None:
    copy_messages(place.store, place.entry(ALICE), place.entry(BOB), place.uids(ALICE))
    place.flushed(BOB)
    answered()
    copy_messages(place.store, place.entry(ALICE), place.entry(ALICE), [1, 2])
    place.flushed(ALICE)
    answered()


def _move(place: Place, answered: Answered) -> None:
    copy_messages(place.store, place.entry(ALICE), place.entry(WORK), [1, 2], remove=True)
    place.flushed(WORK)
    answered()
    copy_messages(place.store, place.entry(WORK), place.entry(BOB), place.uids(WORK), remove=True)
    place.flushed(BOB)
    answered()
    copy_messages(place.store, place.entry(BOB), place.entry(BOB), place.uids(BOB), remove=True)
    place.flushed(BOB)
    answered()


def _flags(place: Place, answered: Answered) -> None:
    change_flags(place.store, place.entry(ALICE), place.uids(ALICE), FlagAction.ADD, Flags(Flag.SEEN, ("new",)))
    place.flushed(ALICE)
    answered()
    change_flags(place.store, place.entry(ALICE), [1], FlagAction.REPLACE, Flags(Flag.ANSWERED))
    change_flags(place.store, place.entry(ALICE), [2], FlagAction.REMOVE, Flags(Flag.SEEN, ("todo",)))
    place.flushed(ALICE)
    answered()


def _after_first_flags(before: Picture, after: Picture) -> list[Picture]:
    """Of two changes that are answered together, the first one alone."""
    box = after["user/alice/INBOX"]
    old = {message.uid: message for message in before["user/alice/INBOX"].messages}
    return [{**before, "user/alice/INBOX": evolve(box, highestmodseq=0, messages=tuple(
        message if message.uid == 1 else old[message.uid] for message in box.messages))}]


def _expunge(place: Place, answered: Answered) -> None:
    expunge(place.store, place.entry(ALICE))
    place.flushed(ALICE)
    answered()


def _settle(place: Place, answered: Answered) -> None:
    place.deliver(NEW[0], ALICE, trace=TRACE)
    place.deliver(NEW[1], BOB, trace=TRACE)
    answered()
    with _reported():
        place.store.partitions["primary"].files.drop_staged_names()
    answered()
    place.deliver(NEW[1], ALICE, trace=TRACE)
    answered()


def _after_first_delivery(before: Picture, after: Picture) -> list[Picture]:
    return [{**before, "user/alice/INBOX": after["user/alice/INBOX"]}]


def _purge(place: Place, answered: Answered) -> None:
    partition = place.store.partitions["primary"]
    while purge(partition, time.time() + LATER):
        pass
    partition.env.flush()
    answered()
    place.deliver(OLD[2], ALICE, trace=TRACE)
    answered()


def _prepare_purge(store: Store) -> None:
    """Message files that nothing refers to any more, and one that is still in another mailbox."""
    alice = store.entry(ALICE)
    change_flags(store, alice, [1, 2, 3], FlagAction.ADD, Flags(Flag.DELETED))
    expunge(store, alice)


def _purge_many(place: Place, answered: Answered) -> None:
    """More than are synced folder by folder; one of the messages comes again when its file has gone, and its record
    has not."""
    partition = place.store.partitions["primary"]
    sync, again = partition.files.sync_removed, [OLD[3]]

    def meanwhile(digests: Collection[bytes]) -> None:
        while again:
            place.deliver(again.pop(), BOB, trace=TRACE)
            answered()
        sync(digests)

    folders = messagefiles.FEW_FOLDERS
    try:
        messagefiles.FEW_FOLDERS = 0
        partition.files.sync_removed = meanwhile            # type: ignore[method-assign]
        with _reported():
            while purge(partition, time.time() + LATER):
                pass
    finally:
        messagefiles.FEW_FOLDERS = folders
        del partition.files.sync_removed
    partition.flush()
    answered()
    place.deliver(OLD[2], ALICE, trace=TRACE)
    answered()


def _prepare_purge_many(store: Store) -> None:
    """Of all message files one is still in a mailbox."""
    for entry in list(store.mailboxes.all()):
        uids = store.open_mailbox(entry).rows["uid"]
        remove(store, entry, uids[uids > 1] if entry.name == BOB else uids)


def _without_expunged(before: Picture, after: Picture) -> list[Picture]:
    """What was expunged is forgotten before its files go."""
    return [after, {name: evolve(box, expunged=()) for name, box in before.items()}]


def _checkpoint(place: Place, answered: Answered) -> None:
    place.deliver(NEW[0], ALICE, BOB, trace=TRACE)
    answered()
    change_flags(place.store, place.entry(BOB), [1], FlagAction.ADD, Flags(Flag.SEEN))
    checkpoint(place.store)
    place.flushed(BOB)
    answered()
    place.deliver(NEW[1], ALICE, trace=TRACE)
    answered()


def checkpoint(store: Store) -> None:
    """What housekeeping does from time to time."""
    for env in (*(partition.env for partition in store.partitions.values()), store.mailboxes.env):
        with _reported():
            env.checkpoint()
            env.drop_logs()


@contextmanager
def _reported() -> Iterator[None]:
    """Housekeeping reports whatever fails, and tries again later."""
    try:
        yield
    except (Failure, OSError) as error:
        raise StoreError(Problem.UNAVAILABLE, detail=str(error)) from error


def _day(place: Place, answered: Answered) -> None:
    """A little of everything, until the log has gone on to new files."""
    for turn in range(3):
        place.deliver(NEW[turn], ALICE, BOB, trace=TRACE)
        answered()
        copy_messages(place.store, place.entry(BOB), place.entry(WORK), place.uids(BOB)[-2:])
        place.flushed(WORK)
        answered()
        checkpoint(place.store)
        change_flags(place.store, place.entry(WORK), place.uids(WORK), FlagAction.ADD, Flags(Flag.DELETED))
        place.flushed(WORK)
        answered()
        expunge(place.store, place.entry(WORK), place.uids(WORK)[-1:])
        place.flushed(WORK)
        answered()
        place.store.partitions["primary"].files.drop_staged_names()


def _new_logs(place: Place, answered: Answered) -> None:
    """So many changes that the log goes on to a new file, and to the one after that."""
    words = tuple(f"keyword-{number:02d}-{'x' * 900}" for number in range(60))
    change_flags(place.store, place.entry(WORK), place.uids(WORK), FlagAction.ADD, Flags(keywords=words))
    place.flushed(WORK)
    answered()
    for turn in range(6):
        place.deliver(NEW[turn % 3], WORK, BOB, trace=TRACE)
        answered()


def _logs_ahead(place: Place, answered: Answered) -> None:
    """The same in a server, which has log files written before they are used: here in the thread that asks for it."""
    begin = LogAhead.begin
    LogAhead.begin = LogAhead.make_next                                     # type: ignore[method-assign]
    try:
        place.store.write_logs_ahead(first=True)
        _new_logs(place, answered)
    finally:
        LogAhead.begin = begin                                              # type: ignore[method-assign]


def _open_and_close(place: Place, answered: Answered) -> None:
    place.open()
    answered()
    place.close()
    answered()
    place.open()
    answered()


def _close(place: Place, answered: Answered) -> None:
    place.open()
    place.deliver(NEW[0], ALICE, BOB, trace=TRACE)
    answered()
    expunge(place.store, place.entry(ALICE))
    place.close()
    answered()
    place.open()
    place.deliver(NEW[1], ALICE, trace=TRACE)
    answered()


#: By name, for the tests. What is added to the store and changes its disk is added here.
OPERATIONS: dict[str, Operation] = {
    "deliver": Operation(_deliver_one),
    "deliver with a journal": Operation(journal.deliver),
    "deliver until it is full": Operation(journal.deliver_until_full),
    "append several ahead": Operation(journal.append_ahead),
    "deliver to three": Operation(_deliver_three),
    "deliver what is known": Operation(_deliver_known),
    "deliver what was released": Operation(_deliver_released),
    "deliver much": Operation(_deliver_big),
    "deliver and refuse": Operation(_deliver_refused),
    "deliver over an orphan": Operation(_deliver_bare, prepare=_prepare_orphan,
                                        tolerated="nothing is known of this file"),
    "deliver by scripts": Operation(scripts.deliver_by_scripts, prepare=scripts.prepare_scripts,
                                    between=scripts.one_has_it, inspect=scripts.letters_agree, events=False),
    "scripts for a copy": Operation(scripts.run_for_a_copy, prepare=scripts.prepare_events,
                                    inspect=scripts.events_agree, events=False),
    "append": Operation(_append),
    "copy": Operation(_copy),
    "move": Operation(_move),
    "copy in slices": Operation(wide.copy_in_slices),
    "move in slices": Operation(wide.move_in_slices, between=wide.some_moved),
    "flags": Operation(_flags, between=_after_first_flags),
    "expunge": Operation(_expunge),
    "settle": Operation(_settle, between=_after_first_delivery),
    "purge": Operation(_purge, prepare=_prepare_purge, between=_without_expunged),
    "purge many": Operation(_purge_many, prepare=_prepare_purge_many, between=_without_expunged),
    "create": Operation(mailboxes.create),
    "delete": Operation(mailboxes.delete),
    "delete and create": Operation(mailboxes.delete_and_create),
    "undelete a mailbox": Operation(mailboxes.undelete_mailbox, events=False),  # it comes with its messages: one event
    "undelete messages": Operation(mailboxes.undelete_messages, prepare=_prepare_purge),
    "purge mailboxes": Operation(mailboxes.purge_mailbox, prepare=mailboxes.prepare_purge_mailbox),
    "rename a tree": Operation(mailboxes.rename_tree),
    "rename a tree in slices": Operation(wide.rename_in_slices),
    "rename INBOX": Operation(mailboxes.rename_inbox, between=mailboxes.new_name_empty),
    "remove a user": Operation(mailboxes.remove_user, between=mailboxes.some_gone),
    "small things": Operation(mailboxes.small_things),
    "checkpoint": Operation(_checkpoint),
    "a day": Operation(_day),
    "new logs": Operation(_new_logs),
    "new logs, written beforehand": Operation(_logs_ahead),
    "open and close": Operation(_open_and_close, alone=True),
    "close": Operation(_close, alone=True),
    "store.idx": Operation(wide.write_idx, inspect=wide.files_agree),
    "store.idx of one mailbox": Operation(wide.write_one_idx, inspect=wide.files_agree),
    "store.idx after a rename": Operation(wide.idx_of_renamed, inspect=wide.files_agree),
    "deliver to two partitions": Operation(wide.deliver_to_both, prepare=wide.prepare_second,
                                           between=wide.some_partitions),
    "copy to another partition": Operation(wide.copy_across, prepare=wide.prepare_second),
    "move a user": Operation(wide.move_user, prepare=wide.prepare_second, between=wide.bob_or_others),
    "rename a user": Operation(wide.rename_user),
    "rights": Operation(wide.grant_rights),
    "quota roots": Operation(wide.quota_roots),
    "send events": Operation(sending.send_events, prepare=sending.prepare_events,
                             inspect=sending.what_was_not_sent_waits, events=False),
    # A mailbox that is restored comes with its messages: one event.
    "restore": Operation(restore.restore_all, fill=restore.prepare_empty, between=restore.any_mailboxes, events=False,
                         inspect=restore.accounts_are_there, finish=restore.all_again),
    "restore a user": Operation(restore.restore_user, fill=restore.prepare_empty, between=restore.any_mailboxes,
                                inspect=restore.accounts_are_there, finish=restore.user_again, events=False),
    "restore again": Operation(restore.restore_again, fill=restore.prepare_empty, between=restore.any_mailboxes,
                               inspect=restore.accounts_are_there, finish=restore.all_again, events=False),
    "restore beside": Operation(restore.restore_beside, prepare=restore.prepare_beside, between=restore.any_mailboxes,
                                inspect=restore.one_file_each, finish=restore.beside_again, events=False),
    "restore what was removed": Operation(restore.restore_over, events=False, prepare=restore.prepare_over,
                                          between=restore.any_mailboxes, inspect=restore.few_files,
                                          finish=restore.user_again),
    "restore what was lost": Operation(restore.restore_over, prepare=restore.prepare_lost, inspect=restore.few_files,
                                       finish=restore.user_again, tolerated=FILE_LOST),
    "deliver what was lost": Operation(restore.deliver_lost, prepare=restore.prepare_lost,
                                       between=restore.any_mailboxes, inspect=restore.few_files, tolerated=FILE_LOST),
}
