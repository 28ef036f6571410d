"""Users who are removed, restored, or get another name.

A removed user can be restored until `Settings.user_delay` has passed: nobody logs in, mail is refused for good, and
all that the user has stays. Then the mailboxes are deleted, which can still be undone one by one, and the user is
forgotten.

A renamed user is renamed in the list, with everything that lies beside it, in one transaction; then on the partitions.
Meanwhile mail is refused for now. After a crash in between the same command goes on where it was cut off.
"""

import time
from collections.abc import Iterator
from functools import partial

from attrs import evolve

from mboxlist.acl import NEGATIVE
from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry
from mboxlist.names import SEPARATOR, MailboxName, NameProblem, legal_owner
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.base import Status
from store.accounts.builtin import User
from store.errors import Problem, StoreError
from store.mailboxes import deletion, subscribing
from store.mailboxes.authorization import rename_identifier
from store.partition.marks import absent, only_elsewhere
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.problems import problems
from store.quota import roots
from store.store import Store


def concerned(store: Store, *users: str) -> list[Partition]:
    """The partitions that may have something of these users. Raises StoreError READ_ONLY when one has that takes no
    changes, UNAVAILABLE when one has that is not here."""
    for name, host in absent(store.root).items():
        if any(_is_concerned(entry, user) for entry in _on(store, name) for user in users):
            raise StoreError(Problem.UNAVAILABLE, f"{users[0]} has something on it: {only_elsewhere(name, host)}")
    for partition in store.partitions.values():
        if partition.read_only and any(_has_anything(store, partition, user) for user in users):
            raise StoreError(Problem.READ_ONLY, detail=f"partition {partition.name} takes no changes")
    return list(store.writable.values())


def _has_anything(store: Store, partition: Partition, user: str) -> bool:
    """Mailboxes, deleted ones, limits, own flags in others' mailboxes, or rights in them."""
    return any(_is_concerned(entry, user) for entry in _on(store, partition.name)) or bool(
        partition.quotas.has(user) or partition.quotas.roots_below(user)) or partition.readers.has(user)


def _on(store: Store, partition: str) -> list[MailboxEntry]:
    """The mailboxes on that partition, by the list, and the deleted ones."""
    found = [*store.mailboxes.all(), *(entry for _, entry in store.mailboxes.deleted.all())]
    return [entry for entry in found if entry.partition == partition]


def _is_concerned(entry: MailboxEntry, user: str) -> bool:
    """Whether the mailbox is the user's, or the user has rights in it."""
    return entry.name.owner == user or user in entry.acl or NEGATIVE + user in entry.acl


# Remove and restore

def remove_user(store: Store, user: str, *, now: float | None = None) -> None:
    """Remove the user after the delay; app passwords and second factor go at once. Raises StoreError NO_USER."""
    when = int(time.time() if now is None else now)

    def change(old: User) -> User:
        if old.account.status is Status.REMOVED:
            return old
        return evolve(old, before=old.account.status, account=evolve(
            old.account, status=Status.REMOVED, removed=when))

    store.directory.alter(user, change)
    after_commit(AccessFiles(store.root).remove, user)


@problems()
def remove_mail(store: Store, user: str) -> None:
    """Remove a user's mailboxes, subscriptions and quota; the directory's entry is the caller's business."""
    partitions = concerned(store, user)
    for entry in reversed(store.names(user)):
        deletion.delete_mailbox(store, entry.name, even_inbox=True)
    for name in subscribing.subscriptions(store, user):
        subscribing.unsubscribe(store, user, name)
    for partition in partitions:
        partition.transact(partial(_forget_quota, store, user))
        partition.flush()


def _forget_quota(store: Store, user: str, txn: WriteTxn) -> None:
    """Together with what the disk has kept from being given back when a mailbox was deleted: it would be taken off the
    next user of that name."""
    deletion.bury_all(store, user, txn)
    txn.partition.quotas.forget_user(user, txn.handle)


def restore_user(store: Store, user: str) -> None:
    """Have a removed user back, as before. Raises StoreError NO_USER."""
    def change(old: User) -> User:
        if old.account.status is not Status.REMOVED:
            raise StoreError(Problem.NO_PERMISSION, "The user has not been removed")
        return evolve(old, before=None, account=evolve(
            old.account, status=old.before or Status.ACTIVE, removed=0))

    AccessFiles(store.root).remove(user)        # which a removal that was killed may have left
    store.directory.alter(user, change)


def due(store: Store, now: float | None = None) -> Iterator[str]:
    """The users that were removed longer ago than the delay."""
    until = (time.time() if now is None else now) - store.settings.user_delay
    if not store.directory.remote:
        for account in list(store.directory.all()):
            if account.status is Status.REMOVED and account.removed <= until:
                yield account.user


@problems()
# Rename

@problems()
def rename_user(store: Store, old: str, new: str) -> None:
    """Give a user another user id; mailboxes, subscriptions, rights and quota come along.

    Raises StoreError NO_USER, USER_EXISTS, MAILBOX_EXISTS, BAD_NAME, BUSY.
    """
    try:
        legal_owner(new)
    except NameProblem as error:
        raise StoreError(Problem.BAD_NAME, str(error)) from error
    partitions = concerned(store, old, new)
    directory = store.directory
    there = directory.user(new)
    if directory.user(old) is not None or there is None or there.renamed_from != old:
        transact(store.mailboxes.env, lambda txn: _rename_in_list(store, old, new, txn))
        store.mailboxes.env.flush()
        directory.noticed(old)
    AccessFiles(store.root).rename(old, new)        # meanwhile nobody can log in
    for partition in partitions:
        partition.transact(lambda txn: _rename_on_partition(store, txn, old, new))
        partition.flush()
    roots.recharge_renamed(store, new)       # a start in between has charged mailboxes by rows with the old name
    store.domains.refresh()
    directory.alter(new, lambda row: evolve(row, before=None, renamed_from="", account=evolve(
        row.account, status=row.before or Status.ACTIVE)))
    store.news.tell([entry.id for entry in store.names(new)])


def _rename_in_list(store: Store, old: str, new: str, txn: Txn) -> None:
    directory, mailboxes = store.directory, store.mailboxes
    row = directory.user(old, txn)
    if row is None:
        raise StoreError(Problem.NO_USER)
    if directory.user(new, txn) is not None:
        raise StoreError(Problem.USER_EXISTS)
    if row.account.status is Status.REMOVED:
        raise StoreError(Problem.NO_PERMISSION, "The user has been removed: restore the user first")
    if next(mailboxes.below(new, txn=txn), None) is not None:
        raise StoreError(Problem.MAILBOX_EXISTS, f"There are mailboxes of {new}")
    directory.erase(old, txn)               # first: the aliases are free then
    directory.write(User(evolve(row.account, user=new, status=Status.INACTIVE), row.password, row.account.status, old),
                    txn)
    for entry in list(mailboxes.below(old, txn=txn)):
        mailboxes.remove(entry.name, txn)
        mailboxes.write(_renamed(entry, new), txn)
    for when, entry in list(mailboxes.deleted.all(txn)):
        if entry.name.owner == old:
            mailboxes.deleted.add(_renamed(entry, new), when, txn)
    mailboxes.subscriptions.rename_user(old, new, txn)
    mailboxes.annotations.rename_user(old, new, txn)
    rename_identifier(store, old, new, txn)


def _renamed(entry: MailboxEntry, owner: str) -> MailboxEntry:
    return evolve(entry, name=MailboxName(owner, entry.name.path))


def _rename_on_partition(store: Store, txn: WriteTxn, old: str, new: str) -> None:
    """Quota roots and readers' own flags; no harm if it was done before."""
    partition: Partition = txn.partition
    deleted = [entry for _, entry in store.mailboxes.deleted.all() if entry.name.owner == new]
    for mailbox in sorted(entry.id for entry in (*store.names(new), *deleted)):
        state = txn.any_state(mailbox)
        if state is not None and (root := _renamed_root(state.quota_root, old, new)) != state.quota_root:
            txn.set_state(mailbox, None, evolve(state, quota_root=root))
    for root in (old, *partition.quotas.roots_below(old, txn.handle)):
        partition.quotas.rename(root, _renamed_root(root, old, new), txn.handle)
    partition.readers.rename(old, new, txn.handle)


def _renamed_root(root: str, old: str, new: str) -> str:
    return new + root[len(old):] if root == old or root.startswith(old + SEPARATOR) else root
