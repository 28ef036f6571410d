"""Operations of the table beside it: archives that are restored, to an empty store and beside what is there.

An archive lies in the store's folder, where no part of the program looks for it. After a crash it is restored once
more (`restored_again`): nothing may be missing then, and nothing be there twice.
"""

import hashlib
import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import pytest

from store.backup import restore
from store.backup.archive import Archive, Scope
from store.backup.creation import Making
from store.backup.restore import Choice, Restoring
from store.errors import Problem, StoreError
from store.mailboxes import authorization, firstuse, namespace, subscribing
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.migration import messageimport
from store.opening import make_empty_store, open_store
from store.quota import roots
from store.rebuild import liveloader
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.crash.places import ALICE, BOB, LATER, NEW, OLD, PROBES, SETTINGS, TRACE, WORK, Answered, Place, deliver
from tests.crash.views import Box, Picture, view
from tests.support.stores.purging import purge
from tests.support.stores.stores import HASH

ARCHIVE = "archive"             # the file, in the store's folder
ALL = Choice()
BESIDE = Choice(users=frozenset({"alice"}), into="Restored")
OVER = Choice(users=frozenset({"alice"}), over=True)
ALL_OVER = Choice(over=True)
LIMIT = 9_000_000               # octets, of alice


class _CutOff(Exception):
    """The restore is ended in the middle."""


# Archives

def prepare_empty(store: Store) -> None:
    """The archive of another store, with accounts, limits, rights and flags."""
    with tempfile.TemporaryDirectory() as folder:
        make_empty_store(Path(folder) / "store")
        other = open_store(Path(folder) / "store", SETTINGS)
        for user in ("alice", "bob"):
            firstuse.inbox(other, other.directory.add(user, HASH))        # type: ignore[attr-defined]
        namespace.create_mailbox(other, WORK)
        _fill(other)
        roots.set_quota(other, "alice", LIMIT)
        subscribing.subscribe(other, "alice", "Work")
        authorization.set_acl(other, WORK, "bob", "lrs")
        change_flags(other, other.entry(WORK), [1], FlagAction.ADD, Flags(Flag.SEEN), "bob")
        _back_up(other, store.root)
        other.close()


def _fill(store: Store) -> None:
    deliver(store, NEW[1], ALICE, BOB, trace=TRACE, header=b"Delivered-To: {}\r\n")
    deliver(store, NEW[2], ALICE, WORK, trace=TRACE, flags=Flags(Flag.SEEN, ("todo",)))
    deliver(store, NEW[3], ALICE, flags=Flags(keywords=("$Forwarded",)))
    deliver(store, NEW[2], WORK)                                # the same without its trace header


def _back_up(store: Store, folder: Path) -> None:
    with (folder / ARCHIVE).open("wb") as file:
        making = Making(store, Scope())
        making.write(file.write)
    assert making.findings == []


def prepare_beside(store: Store) -> None:
    """Its own archive."""
    _back_up(store, store.root)


def prepare_over(store: Store) -> None:
    """Its own archive; messages of it have been removed since, of two of them also the files."""
    _back_up(store, store.root)
    remove(store, store.entry(ALICE), [1, 2, 3])
    remove(store, store.entry(WORK), [1])
    partition = store.partitions["primary"]
    while purge(partition, time.time() + LATER):
        pass
    partition.flush()


def prepare_lost(store: Store) -> None:
    """Its own archive; the file of one of alice's messages, which nobody else has, is lost."""
    _back_up(store, store.root)
    partition = store.partitions["primary"]
    partition.files.drop_staged_names()
    os.unlink(partition.files.path(hashlib.blake2b(OLD[2], digest_size=32).digest()))


# Restores

@contextmanager
def _few_together() -> Iterator[None]:
    """Message files, records and mailboxes are put on disk a few at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messageimport, "FILES_AT_A_TIME", 2)
        patch.setattr(restore, "MAILBOXES_TOGETHER", 1)
        patch.setattr(liveloader, "ROWS_AT_A_TIME", 2)
        yield


def _restored(store: Store, choice: Choice = ALL, *, cut: int = 0) -> None:
    """Restore what is chosen; or as far as to the member of that number. Raises StoreError, _CutOff."""
    count = itertools.count(1)

    def told(so_far: restore.Restored) -> None:
        if next(count) == cut:
            raise _CutOff

    with _few_together():
        done = Restoring(store, [Archive(store.root / ARCHIVE)], choice, told).run()
    if done.findings:
        raise StoreError(Problem.UNAVAILABLE, detail="; ".join(done.findings))


def restore_all(place: Place, answered: Answered) -> None:
    _restored(place.store)
    answered()


def restore_user(place: Place, answered: Answered) -> None:
    _restored(place.store, Choice(users=frozenset({"alice"})))
    answered()


def restore_again(place: Place, answered: Answered) -> None:
    """It is cut off twice, and then done."""
    for cut in (3, 6):
        try:
            _restored(place.store, cut=cut)
        except _CutOff:
            continue
    _restored(place.store)
    answered()


def restore_beside(place: Place, answered: Answered) -> None:
    _restored(place.store, BESIDE)
    answered()


def restore_over(place: Place, answered: Answered) -> None:
    _restored(place.store, OVER)
    answered()


def deliver_lost(place: Place, answered: Answered) -> None:
    """Somebody else gets the message whose file is lost."""
    place.deliver(OLD[2], BOB, trace=TRACE)
    answered()


# What a crash may leave

def any_mailboxes(before: Picture, after: Picture) -> list[Picture]:
    """Each mailbox comes as a whole, or gets all that it lacks."""
    changed = [name for name in after if before.get(name) != after[name]]
    return [{name: box for name, box in ((name, (after if name in some else before).get(name)) for name in after)
             if box is not None}
            for count in range(1, len(changed)) for some in combinations(changed, count)]


def accounts_are_there(store: Store, answers: int) -> list[str]:
    """What belongs to users, once the restore has said that it is done; and a file for each content, never more."""
    wrong = _files(store, NEW[1:], all_of_them=answers > 0)
    if answers:
        found = store.directory.user("alice")               # type: ignore[attr-defined]
        wrong += [] if found is not None and found.password == HASH else [f"alice's account is {found}"]
        wrong += [] if list(subscribing.subscriptions(store, "alice")) == ["Work"] else ["alice has no subscriptions"]
        limit = roots.quota(store, "alice").octet_limit
        wrong += [] if limit == LIMIT else [f"alice's limit is {limit}"]
        wrong += [] if store.entry(WORK).acl == {"bob": "lrs"} else ["alice's mailbox is not shared"]
        seen = store.open_mailbox(store.entry(WORK), "bob").rows["flags"][0] & Flag.SEEN
        wrong += [] if seen else ["bob has not seen the message"]
    return wrong


def one_file_each(store: Store, answers: int) -> list[str]:
    """No restore beside the same messages makes a file."""
    return _files(store, OLD, all_of_them=True)


def few_files(store: Store, answers: int) -> list[str]:
    """Those that have gone come back, and no others."""
    return _files(store, OLD, all_of_them=answers > 0)


def _files(store: Store, contents: list[bytes], *, all_of_them: bool) -> list[str]:
    """Of message files those that should not be, or are missing."""
    partition = store.partitions["primary"]
    wanted, more = ({hashlib.blake2b(content, digest_size=32).digest() for content in some}
                    for some in (contents, (NEW[0], *PROBES)))
    there = {bytes.fromhex(path.name) for path in partition.files.folder.glob("?/??/*")}
    wrong = [f"there is a message file {digest.hex()}" for digest in sorted(there - wanted - more)]
    for digest in sorted(wanted) if all_of_them else ():
        record = partition.refs.find(digest)
        if record is None or not partition.files.is_whole(digest, record.serial, record.size):
            wrong.append(f"there is no message file {digest.hex()}")
    return wrong


# Once more

def all_again(store: Store, after: Picture) -> list[str]:
    return _once_more(store, ALL_OVER, after)


def user_again(store: Store, after: Picture) -> list[str]:
    return _once_more(store, OVER, after)


def beside_again(store: Store, after: Picture) -> list[str]:
    return _once_more(store, BESIDE, after)


def _once_more(store: Store, choice: Choice, after: Picture) -> list[str]:
    """What is wrong when the archive has been restored to what a crash has left: mailboxes have each message of
    `after` as often as they had it then."""
    _restored(store, choice)
    found = view(store)
    wrong = []
    for name, box in after.items():
        wanted, here = _messages(box), _messages(found[name]) if name in found else Counter()
        wrong += [f"restored again, {name} has {here[message]} of {message} instead of {count}"
                  for message, count in wanted.items() if here[message] != count]
    return wrong


def _messages(box: Box) -> Counter[tuple[object, ...]]:
    return Counter((message.octets, message.flags, message.keywords, message.received) for message in box.messages)
