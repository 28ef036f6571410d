"""Accounts that the directory has lost, brought back from the `store.idx` of the users' INBOXes."""

from collections.abc import Iterator

from mboxlist.entry import MailboxEntry
from mboxlist.names import INBOX, MailboxName
from store.accounts.builtin import BuiltinDirectory, User
from store.errors import StoreError
from store.rebuild.outcome import Correction
from store.rebuild.salvagedusers import account_in
from store.store import Store
from store.userarea.writing import right_place


def kept_for(store: Store, user: str) -> User | None:
    """The account that the user area has for that user."""
    entry = store.mailboxes.find(MailboxName(user, INBOX))
    return None if entry is None else _kept(store, entry)


def _kept(store: Store, entry: MailboxEntry) -> User | None:
    partition = store.partitions.get(entry.partition)
    return None if partition is None else account_in(right_place(partition, entry, 0), entry.name.owner)


def restore_accounts(store: Store, user: str | None = None) -> Iterator[Correction]:
    """Of all users, or one, whom the directory does not know, or for whom it has what only stands for an account. One
    that cannot be had again, since another one has its name, is left: the check tells it. Raises StoreError."""
    if type(store.directory) is not BuiltinDirectory:       # what an outside one says is not kept
        return
    for entry in store.mailboxes.all() if user is None else store.names(user):
        if not entry.name.is_inbox():
            continue
        there = store.directory.user(entry.name.owner)
        if (there is None or there.is_lost) and (kept := _kept(store, entry)) is not None:
            try:
                _put(store.directory, kept, anew=there is None)
            except StoreError:
                continue
            yield Correction("its account was lost", f"user {entry.name.owner}")


def _put(directory: BuiltinDirectory, kept: User, *, anew: bool) -> None:
    if anew:
        directory.insert(kept)
    else:
        directory.alter(kept.account.user, lambda there: kept if there.is_lost else there)
