"""Subscriptions of users (RFC 3501 §6.3.6)."""

from collections.abc import Collection

from mboxlist import acl
from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName, NameProblem
from store.errors import Problem, StoreError
from store.mailboxes.authorization import may
from store.problems import problems
from store.store import Store
from store.userarea import writing


@problems()
def subscribe(store: Store, user: str, name: str, *, durable: bool = True) -> None:
    """Subscribe the user to a name, written as that user's client writes it. `durable`: it is on disk, too; whoever
    makes many changes flushes once. Raises StoreError BAD_NAME, BUSY."""
    try:
        name = MailboxName.from_client(user, name).to_client(user)
    except NameProblem as error:
        raise StoreError(Problem.BAD_NAME, str(error)) from error

    def add(txn: Txn) -> None:
        store.mailboxes.guard(user, txn)
        store.directory.require_settled(user, txn)
        store.mailboxes.subscriptions.add(user, name, txn)

    transact(store.mailboxes.env, add)
    if durable:
        store.mailboxes.env.flush()
    after_commit(writing.note_user, store, user)


@problems()
def unsubscribe(store: Store, user: str, name: str) -> bool:
    """End a subscription; whether there was one. Raises StoreError BUSY."""
    def remove(txn: Txn) -> bool:
        store.mailboxes.guard(user, txn)
        store.directory.require_settled(user, txn)
        return store.mailboxes.subscriptions.remove(user, name, txn)

    removed = transact(store.mailboxes.env, remove)
    store.mailboxes.env.flush()
    after_commit(writing.note_user, store, user)
    return removed


def subscribe_granted(store: Store, entry: MailboxEntry, identifiers: Collection[str] = ()) -> list[str]:
    """Subscribe the users whom these identifiers of the list stand for, or all whom it speaks of, and who may look the
    mailbox up: mail programs show others' mailboxes only then. The users, in order; the owner is none of them."""
    wanted = frozenset(acl.parse_identifier(name) for name in identifiers or entry.acl)
    subscribed = []
    for account in list(store.directory.all()):
        names = {account.user} | {acl.GROUP + group for group in account.groups} | {acl.ANYONE}
        if account.user != entry.name.owner and not wanted.isdisjoint(names) and may(store, account.user, entry, "l"):
            subscribe(store, account.user, str(entry.name))
            subscribed.append(account.user)
    return sorted(subscribed)


def subscriptions(store: Store, user: str) -> list[str]:
    """The names that the user is subscribed to, in order."""
    return list(store.mailboxes.subscriptions.of(user))
