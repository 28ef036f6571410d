"""A user gets another name, and all that the user has comes along.

It is done in pieces, so that nobody waits long for a lock. One transaction begins it: there are two rows of the
directory from then on, of the old and of the new name. Both refuse mail for now and let nobody in. Meanwhile no mailbox
of either is made, renamed, shared or deleted (`mboxlist.pending`), and no subscription, script, limit or app password
of either changes. Rights that are granted to the old one are the new one's.

Each of some transactions gives some mailboxes their new names; then come subscriptions, annotations and rights, and on
each partition quota roots and readers' own flags. The last one takes the old row away, and the new one is what the old
one was. Mail that was under way when it began is delivered: a mailbox keeps its id.

Each step finds what is left for it. So what is cut off is done again from the beginning, and goes on where it was: by
the same command, or by whoever finishes what was cut off (`store.finishing`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from attrs import evolve

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import SEPARATOR, MailboxName, NameProblem, legal_owner
from mboxlist.pending import Renaming
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.base import Status
from store.accounts.builtin import User
from store.errors import Problem, StoreError
from store.mailboxes import namespace
from store.mailboxes.authorization import rename_identifier, speaking_of
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.problems import nothing_shown, problems
from store.progress import Tell, silent
from store.quota import limitturns, roots
from store.store import Store
from store.users.lifecycle import concerned

T = TypeVar("T")

ROWS = 100              # small ones that one transaction changes: about 5 ms


@problems()
def rename_user(store: Store, old: str, new: str, tell: Tell = silent) -> None:
    """Give a user another user id; mailboxes, subscriptions, rights and quota come along. One that was cut off goes on.

    Raises StoreError NO_USER, USER_EXISTS, MAILBOX_EXISTS, BAD_NAME, BUSY.
    """
    try:
        legal_owner(new)
    except NameProblem as error:
        raise StoreError(Problem.BAD_NAME, str(error)) from error
    partitions = concerned(store, old, new)
    with nothing_shown():
        if not _has_begun(store, old, new):
            namespace.wait_until_settled(store, old)
            with limitturns.in_turn(store, old):        # who changes limits comes to an end, or is refused
                transact(store.mailboxes.env, partial(_begin, store, old, new))
            store.mailboxes.env.flush()
            store.directory.noticed(old)
        _rename_mailboxes(store, old, new, tell)
        leave_others(store, old, new)
        store.mailboxes.env.flush()
        AccessFiles(store.root).rename(old, new)        # meanwhile nobody can log in
        for partition in partitions:
            _rename_on_partition(store, partition, old, new, tell)
        roots.recharge_renamed(store, new)      # a start in between has charged mailboxes by rows with the old name
        transact(store.mailboxes.env, partial(_end, store, old, new))
    store.mailboxes.env.flush()
    store.domains.refresh()
    for user in (old, new):
        store.directory.noticed(user)
    store.news.tell([entry.id for entry in store.names(new)])


def half_renamed(store: Store) -> Iterator[tuple[str, str]]:
    """Old and new name of each user of whom the list says that this has begun, and not come to its end."""
    for renaming in list(store.mailboxes.renames.all()):
        if renaming.user and renaming.owner == renaming.user:
            row = store.directory.user(renaming.user)
            if row is not None and row.renamed_from:
                yield row.renamed_from, renaming.user


def _has_begun(store: Store, old: str, new: str) -> bool:
    """Another one may have got the old name since, where an earlier version was cut off."""
    there, row = store.directory.user(new), store.directory.user(old)
    return there is not None and there.renamed_from == old and (row is None or row.renamed_to == new)


def _begin(store: Store, old: str, new: str, txn: Txn) -> None:
    directory, mailboxes = store.directory, store.mailboxes
    row = directory.user(old, txn)
    if row is None:
        raise StoreError(Problem.NO_USER)
    row.require_settled()
    if directory.user(new, txn) is not None:
        raise StoreError(Problem.USER_EXISTS)
    if row.account.status is Status.REMOVED:
        raise StoreError(Problem.NO_PERMISSION, "The user has been removed: restore the user first")
    if next(mailboxes.below(new, txn=txn), None) is not None:
        raise StoreError(Problem.MAILBOX_EXISTS, f"There are mailboxes of {new}")
    directory.erase(old, txn)               # first: the aliases are free then
    waiting = evolve(row.account, status=Status.INACTIVE)
    directory.write(User(evolve(waiting, user=new), row.password, row.account.status, renamed_from=old), txn)
    directory.write(User(evolve(waiting, aliases=()), row.password, row.account.status, renamed_to=new), txn)
    for owner in (old, new):
        mailboxes.guard(owner, txn)
        mailboxes.settled(owner, txn)
        mailboxes.renames.put(Renaming(owner, "", "", user=new), txn)


def _end(store: Store, old: str, new: str, txn: Txn) -> None:
    directory = store.directory
    row = directory.user(new, txn)
    if row is not None and row.renamed_from == old:
        directory.erase(old, txn)
        directory.write(evolve(row, before=None, renamed_from="", account=evolve(
            row.account, status=row.before or Status.ACTIVE)), txn)
    for owner in (old, new):
        store.mailboxes.renames.forget(owner, txn)


def _rename_mailboxes(store: Store, old: str, new: str, tell: Tell) -> None:
    mailboxes, count = store.mailboxes, 0
    names = [entry.name for entry in mailboxes.listed(old)]
    for done, some in _pieces(names, namespace.RENAMED):
        tell("mailboxes", done, len(names))
        transact(mailboxes.env, partial(_rename_some, store, new, some))
        count = len(names)
    tell("mailboxes", count, count)
    deleted = [entry.id for _, entry in mailboxes.deleted.all() if entry.name.owner == old]
    for _, ids in _pieces(deleted, ROWS):
        transact(mailboxes.env, partial(_rename_deleted, store, old, new, ids))


def _rename_some(store: Store, new: str, names: Sequence[MailboxName], txn: Txn) -> None:
    for name in names:
        entry = store.mailboxes.find(name, txn)
        if entry is not None:               # else a repair has taken it out of the list
            store.mailboxes.remove(name, txn, guarded=False)
            store.mailboxes.write(_renamed(entry, new), txn, guarded=False)


def _rename_deleted(store: Store, old: str, new: str, ids: Sequence[MailboxId], txn: Txn) -> None:
    for mailbox in ids:
        found = store.mailboxes.deleted.find(mailbox, txn)
        if found is not None and found[1].name.owner == old:
            store.mailboxes.deleted.add(_renamed(found[1], new), found[0], txn)


def _renamed(entry: MailboxEntry, owner: str) -> MailboxEntry:
    return evolve(entry, name=MailboxName(owner, entry.name.path))


def leave_others(store: Store, old: str, new: str | None) -> None:
    """In what others have the user has another name, or (None) none: in access control lists and annotations, and for
    another name in subscriptions. Not flushed."""
    mailboxes, env = store.mailboxes, store.mailboxes.env
    for ids in _until_none(partial(speaking_of, store, old), namespace.RENAMED):
        transact(env, partial(rename_identifier, store, old, new, ids))
    for keys in _until_none(partial(mailboxes.annotations.of_user, old), ROWS):
        transact(env, partial(mailboxes.annotations.rename_user, keys, new))
    if new is not None:
        for keys in _until_none(partial(mailboxes.subscriptions.naming, old), ROWS):
            transact(env, partial(mailboxes.subscriptions.rename_user, keys, old, new))


def leave_readers(partition: Partition, old: str, new: str | None) -> None:
    """On that partition the user's own flags in others' mailboxes are those of another name, or (None) go. Flushed."""
    for keys in _until_none(lambda: list(partition.readers.of_reader(old)), ROWS):
        partition.transact(partial(_leave_readers, keys, new))
    partition.flush()


def _leave_readers(keys: Sequence[bytes], new: str | None, txn: WriteTxn) -> None:
    txn.partition.readers.rename(keys, new, txn.handle)


def _rename_on_partition(store: Store, partition: Partition, old: str, new: str, tell: Tell) -> None:
    """Which roots mailboxes are charged to, the roots themselves, and readers' own flags. What is charged to either
    root is right at any time."""
    deleted = [entry.id for _, entry in store.mailboxes.deleted.all() if entry.name.owner == new]
    charged = [mailbox for mailbox in sorted({*(entry.id for entry in store.names(new)), *deleted})
               if (state := partition.any_state(mailbox)) is not None
               and _renamed_root(state.quota_root, old, new) != state.quota_root]
    for done, some in _pieces(charged, roots.ARRANGED):
        tell(f"{partition.name}: quota", done, len(charged))
        partition.transact(partial(_recharge_some, some, old, new))
    partition.transact(partial(_rename_roots, old, new))
    leave_readers(partition, old, new)


def _recharge_some(mailboxes: Sequence[MailboxId], old: str, new: str, txn: WriteTxn) -> None:
    for mailbox in mailboxes:
        state = txn.any_state(mailbox)
        if state is None or (root := _renamed_root(state.quota_root, old, new)) == state.quota_root:
            continue
        if not state.removed:
            txn.partition.quotas.hand_over(state.quota_root, root, state.octets, state.messages, txn.handle)
        txn.set_state(mailbox, None, evolve(state, quota_root=root))


def _rename_roots(old: str, new: str, txn: WriteTxn) -> None:
    quotas = txn.partition.quotas
    for root in (old, *quotas.roots_below(old, txn.handle)):
        quotas.rename(root, _renamed_root(root, old, new), txn.handle)


def _renamed_root(root: str, old: str, new: str) -> str:
    return new + root[len(old):] if root == old or root.startswith(old + SEPARATOR) else root


def _until_none(find: Callable[[], Sequence[T]], most: int) -> Iterator[Sequence[T]]:
    """What is found, so many at a time, until nothing is found: others go on meanwhile. What is found twice running
    cannot be changed, and is left to the check."""
    before: Sequence[T] = ()
    while (found := find()) and found != before:
        for _, some in _pieces(found, most):
            yield some
        before = found


def _pieces(items: Sequence[T], most: int) -> Iterator[tuple[int, Sequence[T]]]:
    """So many at a time, each time with how many were before."""
    for begun in range(0, len(items), most):
        yield begun, items[begun:begun + most]
