"""Users who are removed and restored.

A removed user can be restored until `Settings.user_delay` has passed: nobody logs in, mail is refused for good, and
all that the user has stays. Then the mailboxes are deleted, which can still be undone one by one, and the user is
forgotten.
"""

import time
from collections.abc import Iterator
from functools import partial

from attrs import evolve

from mboxlist.acl import NEGATIVE
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.base import Status
from store.accounts.builtin import User
from store.errors import Problem, StoreError
from store.mailboxes import deletion, subscribing
from store.partition.marks import absent, only_elsewhere
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.problems import problems
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
    """Remove the user after the delay; app passwords and second factor go at once. Raises StoreError NO_USER, BUSY."""
    when = int(time.time() if now is None else now)

    def change(old: User) -> User:
        old.require_settled()
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
