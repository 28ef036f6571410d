"""Mailboxes are made and renamed (RFC 3501 §6.3.3, §6.3.5)."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from attrs import evolve, frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import Failure, Unflushed, transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import SEPARATOR, MailboxName, NameProblem, legal_path, new_name
from mboxlist.pending import Renaming
from mboxlist.table import MailboxList
from store.errors import Problem, StoreError
from store.mailboxes import authorization, deletion
from store.mailboxes.placement import for_new_mail
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.problems import nothing_shown, problems
from store.quota import roots
from store.store import Store
from store.tables.slices import PartlyDone
from store.tables.state import UNLISTED, MailboxState
from store.userarea import unlisted

log = logging.getLogger(__name__)

T = TypeVar("T")

MAILBOXES = 100             # that one transaction makes: some milliseconds
RENAMED = 24                # that one transaction renames: about 5 ms
PAUSE = 0.02                # seconds between two looks whether a tree is still being renamed


@frozen
class Wanted:
    """A mailbox that is to be made; `replace`: also where there is one of that name. Without an `acl` it is shared as
    the one above it is."""

    name: MailboxName
    partition: str
    special_use: str | None = None
    acl: dict[str, str] | None = None
    replace: bool = False


@frozen
class _Coming:
    """A mailbox that is being made."""

    wanted: Wanted
    id: MailboxId
    place: Partition
    state: MailboxState


@problems()
def create_mailbox(store: Store, name: MailboxName, *, special_use: str | None = None, acl: dict[str, str] | None = None
                   ) -> MailboxEntry:
    """Make a mailbox, shared as the one above it is unless another `acl` is given. One of that name that damage took
    out of the list is brought back instead, and exists.

    Raises StoreError MAILBOX_EXISTS, BAD_NAME, NO_USER, LIMIT, UNAVAILABLE.
    """
    wait_until_settled(store, name.owner)
    if store.mailboxes.find(name) is not None:
        raise StoreError(Problem.MAILBOX_EXISTS)
    _require_new_name(name)
    if (lost := unlisted.of_name(store, name)) is not None:
        unlisted.bring_back(store, lost)
        raise StoreError(Problem.MAILBOX_EXISTS)
    account = store.directory.find(name.owner) if name.owner else None
    if name.owner and account is None:
        raise StoreError(Problem.NO_USER)
    if len(store.names(name.owner)) >= store.settings.mailbox_limit:
        raise StoreError(Problem.LIMIT, "There are too many mailboxes")
    place = account.partition if account else for_new_mail(store)
    return insert_mailbox(store, name, place, special_use, acl=acl)


def insert_mailbox(store: Store, name: MailboxName, partition: str, special_use: str | None, *,
                   replace: bool = False, acl: dict[str, str] | None = None) -> MailboxEntry:
    """Make a mailbox on that partition; `replace`: also where there is one of that name."""
    return insert_mailboxes(store, [Wanted(name, partition, special_use, acl, replace)])[0]


def insert_mailboxes(store: Store, wanted: Sequence[Wanted]) -> list[MailboxEntry]:
    """Make mailboxes, some in each transaction, and each step of all of them with one flush.

    The figures come first, then the row in the list: what a crash leaves in between is seen by nobody. Nobody writes
    to a mailbox before its row is on disk, or a crash could leave mail where nobody finds it."""
    listed, created = store.mailboxes, int(time.time())
    places = {name: store.partition(name) for name in {each.partition for each in wanted}}
    with nothing_shown():
        given = [identity for part in _some(wanted)
                 for identity in transact(listed.env, partial(_identities, listed, len(part)))]
        listed.env.flush()          # an id or UIDVALIDITY that was used must never come again
    coming = [_Coming(each, mailbox, places[each.partition], MailboxState.new(
        validity, places[each.partition].epoch, roots.root_for(places[each.partition], each.name), UNLISTED))
        for each, (mailbox, validity) in zip(wanted, given, strict=True)]
    made = list[MailboxEntry]()
    try:
        with nothing_shown():
            _on_partitions(coming, lambda txn, each: txn.set_state(each.id, None, each.state))
            for place in places.values():
                place.flush()
        for part in _some(coming):
            made += transact(listed.env, partial(_list, store, part, created))
    except (StoreError, OSError, Failure):
        with suppress(StoreError, Unflushed), nothing_shown():      # then housekeeping does it
            for each in coming[len(made):]:
                deletion.destroy(each.place, each.id, created)
            _open(store, coming[:len(made)])
        raise
    _open(store, coming)
    return made


def _identities(listed: MailboxList, count: int, txn: Txn) -> list[tuple[MailboxId, int]]:
    return [listed.next_identity(txn) for _ in range(count)]


def _open(store: Store, coming: Sequence[_Coming]) -> None:
    """Have the list on disk, in which these mailboxes are now, and let them be written to. Raises Unflushed."""
    store.mailboxes.env.flush()
    after_commit(_on_partitions, coming, lambda txn, each: txn.make_writable(each.id, store.mailboxes, each.state))
    for each in coming:
        after_commit(_recharge, store, each.place, each.wanted.name, each.state.quota_root)


def _some(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The next mailboxes, as many as one transaction takes."""
    for begin in range(0, len(items), MAILBOXES):
        yield items[begin:begin + MAILBOXES]


def _on_partitions(coming: Sequence[_Coming], work: Callable[[WriteTxn, _Coming], None]) -> None:
    """Do `work` for each, on its partition."""
    for place in {each.place.name: each.place for each in coming}.values():
        for part in _some([each for each in coming if each.place is place]):
            place.transact(partial(_each, part, work))


def _each(coming: Sequence[_Coming], work: Callable[[WriteTxn, _Coming], None], txn: WriteTxn) -> None:
    for each in coming:
        work(txn, each)


def _list(store: Store, coming: Sequence[_Coming], created: int, txn: Txn) -> list[MailboxEntry]:
    """Their rows in the list. Raises StoreError MAILBOX_EXISTS."""
    made = list[MailboxEntry]()
    for each in coming:
        name, acl = each.wanted.name, each.wanted.acl
        old = store.mailboxes.find(name, txn)
        if old is not None:
            if not each.wanted.replace:
                raise StoreError(Problem.MAILBOX_EXISTS)
            store.mailboxes.annotations.forget(old.id, txn)
        like = old or authorization.parent(store, name, txn)        # a mailbox is shared as the one above it is
        held = acl if acl is not None else like.acl if like else {}
        made.append(MailboxEntry(each.id, name, each.place.name, each.state.uidvalidity, created,
                                 each.wanted.special_use, dict(held)))
        store.mailboxes.write(made[-1], txn)
    return made


def _recharge(store: Store, place: Partition, name: MailboxName, root: str) -> None:
    if root != roots.root_for(place, name):     # changed while the mailbox was not in the list yet
        roots.recharge(store, name.owner)


@problems()
def rename_mailbox(store: Store, old: MailboxName, new: MailboxName) -> None:
    """Rename a mailbox and all below it. INBOX stays, and gives its messages to the new one (RFC 3501 §6.3.5).

    Many are renamed some in each transaction, and still all or none of them: see `_rename_some_at_a_time`.

    Raises StoreError NO_MAILBOX, MAILBOX_EXISTS, BAD_NAME, NO_PERMISSION, LIMIT, OVER_QUOTA, BUSY; PartlyDone when the
    new one stays, with some of INBOX's messages, or none.
    """
    if old.owner != new.owner:
        raise StoreError(Problem.NO_PERMISSION, "A mailbox cannot be given to another user")
    if old.is_inbox():
        from store.mailboxes import crosspartition  # here: it loads all that brings messages to another partition
        inbox = store.entry(old)
        target = create_mailbox(store, new, acl=inbox.acl)
        try:
            crosspartition.copy(store, inbox, target, store.open_mailbox(inbox).rows["uid"], remove=True)
        except PartlyDone:
            store.partition_of(inbox).flush()
            raise
        except StoreError as refusal:
            _take_back(store, target, refusal)
            raise
        store.partition_of(inbox).flush()
        return
    if new.is_below(old) or new.is_inbox():
        raise StoreError(Problem.BAD_NAME, "A mailbox cannot be renamed to that")
    _require_new_name(new)
    wait_until_settled(store, old.owner)
    roots.check_rename(store, old, new)
    if len(_tree(store, old, new)) <= RENAMED:
        transact(store.mailboxes.env, partial(_rename_at_once, store, old, new))
    else:
        _rename_some_at_a_time(store, old, new)
    store.mailboxes.env.flush()
    after_commit(roots.recharge_renamed, store, new.owner)


def wait_until_settled(store: Store, owner: str) -> None:
    """Wait while a tree of the owner's mailboxes is being renamed, which takes less than a second. For a thread. Raises
    StoreError BUSY."""
    deadline = time.monotonic() + store.patience
    while store.mailboxes.renames.is_renaming(owner):
        if time.monotonic() > deadline:
            require_settled(store, owner, None)
        time.sleep(PAUSE)


def require_settled(store: Store, owner: str, txn: Txn) -> None:
    """Raises StoreError BUSY while a tree of the owner's mailboxes is being renamed: no other name changes."""
    if store.mailboxes.renames.is_renaming(owner, txn):
        raise StoreError(Problem.BUSY, "Mailboxes are being renamed, try again")


def _tree(store: Store, old: MailboxName, new: MailboxName, txn: Txn = None) -> list[MailboxEntry]:
    """The mailboxes that are to be renamed, parents before their children. Raises StoreError NO_MAILBOX,
    MAILBOX_EXISTS, BAD_NAME."""
    top = store.mailboxes.find(old, txn)
    tree = [*([top] if top else []), *store.mailboxes.below(old.owner, old.path, txn)]
    if not tree:
        raise StoreError(Problem.NO_MAILBOX)
    taken = {entry.name for entry in store.mailboxes.below(new.owner, new.path, txn)} - {entry.name for entry in tree}
    if store.mailboxes.find(new, txn) is not None or any(_moved(entry.name, old, new) in taken for entry in tree):
        raise StoreError(Problem.MAILBOX_EXISTS)
    return tree


def _rename_at_once(store: Store, old: MailboxName, new: MailboxName, txn: Txn) -> None:
    tree = _tree(store, old, new, txn)
    for entry in tree:
        store.mailboxes.remove(entry.name, txn)
    for entry in tree:
        store.mailboxes.write(evolve(entry, name=_moved(entry.name, old, new)), txn)


def _rename_some_at_a_time(store: Store, old: MailboxName, new: MailboxName) -> None:
    """Each of some transactions renames some, so that nobody waits long for a page. Which tree it is is on record from
    before the first to the last one: meanwhile no other name of that owner changes (`require_settled`), and what is cut
    off, or fails, is undone. What cannot be undone at once is left to housekeeping."""
    renames = store.mailboxes.renames

    def begin(txn: Txn) -> None:
        store.mailboxes.guard(old.owner, txn)
        require_settled(store, old.owner, txn)
        renames.put(Renaming(old.owner, old.path, new.path), txn)

    with nothing_shown():
        transact(store.mailboxes.env, begin)
        try:
            # those on the way to the new name come first: where that is above the old one, it may be one of theirs
            tree = sorted(_tree(store, old, new), key=lambda entry: entry.name.path.count(SEPARATOR))
            ids = tuple(entry.id for entry in tree)
            transact(store.mailboxes.env, lambda txn: renames.put(Renaming(old.owner, old.path, new.path, ids), txn))
            for begun in range(0, len(ids), RENAMED):
                done = min(begun + RENAMED, len(ids))
                transact(store.mailboxes.env, partial(
                    _rename_some, store, old, new, ids[begun:done], None if done == len(ids) else done))
        except BaseException:
            _undo_or_leave(store, old.owner)
            raise


def _rename_some(store: Store, old: MailboxName, new: MailboxName, some: Iterable[MailboxId], done: int | None,
                 txn: Txn) -> None:
    """`done`: how many have their new names then; None: all that are to have them, and the tree is off the record."""
    listed, renames = store.mailboxes, store.mailboxes.renames
    listed.guard(old.owner, txn)
    for mailbox in some:
        entry = listed.find_id(mailbox, txn)
        if entry is None or entry.name != old and not entry.name.is_below(old):
            continue                            # a repair has taken it out of the list, or has named it
        name = _moved(entry.name, old, new)
        if listed.find(name, txn) is not None:
            raise StoreError(Problem.MAILBOX_EXISTS)
        listed.remove(entry.name, txn, guarded=False)
        listed.write(evolve(entry, name=name), txn, guarded=False)
    if done is None:
        renames.forget(old.owner, txn)
    else:
        renames.note_done(old.owner, done, txn)


def _undo_or_leave(store: Store, owner: str) -> None:
    try:
        _undo_rename(store, owner)
    except (StoreError, OSError, Failure) as error:
        store.mailboxes.renames.left.append(owner)
        log.error("the mailboxes of %s that were being renamed get their names back as soon as that can be done: %s",
                  owner or "all", error)


def _undo_rename(store: Store, owner: str) -> None:
    """Give the mailboxes of a tree that have their new names the old ones back. Raises StoreError, OSError, Failure."""
    renaming = store.mailboxes.renames.find(owner)
    if renaming is None:
        return
    old, new = MailboxName(owner, renaming.old), MailboxName(owner, renaming.new)
    left = [MailboxId(mailbox) for mailbox in renaming.mailboxes[:renaming.done]]
    while True:
        left, some = left[:-RENAMED], left[:-RENAMED - 1:-1]
        transact(store.mailboxes.env, partial(_rename_some, store, new, old, some, len(left) or None))
        if not left:
            return


def undo_renames(store: Store) -> None:
    """Undo what was cut off with the process that did it. For the one that opens the store first."""
    for renaming in list(store.mailboxes.renames.all()):
        if renaming.user:
            continue                            # a user gets another name: that goes on (`store.users.renaming`)
        log.info("%s of %s was being renamed when it was cut off: %d mailboxes get their names back", renaming.old,
                 renaming.owner or "all", renaming.done)
        _undo_or_leave(store, renaming.owner)
    store.mailboxes.env.flush()


def left(store: Store) -> list[str]:
    """The owners whose mailboxes this process has still to give their names back. For housekeeping."""
    return [] if store.read_only else list(store.mailboxes.renames.left)


@problems()
def undo_left(store: Store, owner: str) -> int:
    """Undo one of those that are `left`. Raises StoreError."""
    _undo_rename(store, owner)
    store.mailboxes.env.flush()
    store.mailboxes.renames.left.remove(owner)
    roots.recharge_renamed(store, owner)
    return 1


def _take_back(store: Store, made: MailboxEntry, refusal: StoreError) -> None:
    """A mailbox was made for messages that it cannot get, and goes again. Raises PartlyDone: that fails, too."""
    try:
        if not store.status(made).messages:
            deletion.delete_mailbox(store, made.name)
    except StoreError as error:
        log.warning("%s was made, and cannot be deleted again: %s", made.name, error)
        raise PartlyDone(refusal, ()) from refusal


def uidnext(store: Store, name: MailboxName) -> int:
    """The next UID of the mailbox; 0 if there is none."""
    entry = store.mailboxes.find(name)
    return 0 if entry is None else store.status(entry).uidnext


def _require_new_name(name: MailboxName) -> None:
    try:
        new_name(name)
    except NameProblem as error:
        raise StoreError(Problem.BAD_NAME, str(error)) from error


def _moved(name: MailboxName, old: MailboxName, new: MailboxName) -> MailboxName:
    try:
        return MailboxName(new.owner, legal_path(new.path + name.path[len(old.path):]))
    except NameProblem as error:
        raise StoreError(Problem.BAD_NAME, str(error)) from error
