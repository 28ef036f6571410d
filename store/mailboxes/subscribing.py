"""Subscriptions of users (RFC 3501 §6.3.6)."""

from mboxlist.engine.btree import Txn
from mboxlist.engine.kv import transact
from mboxlist.names import MailboxName, NameProblem
from store.errors import Problem, StoreError
from store.problems import problems
from store.store import Store
from store.userarea import writing


@problems()
def subscribe(store: Store, user: str, name: str) -> None:
    """Subscribe the user to a name, written as that user's client writes it. Raises StoreError BAD_NAME."""
    try:
        name = MailboxName.from_client(user, name).to_client(user)
    except NameProblem as error:
        raise StoreError(Problem.BAD_NAME, str(error)) from error

    def add(txn: Txn) -> None:
        store.mailboxes.guard(user, txn)
        store.mailboxes.subscriptions.add(user, name, txn)

    transact(store.mailboxes.env, add)
    store.mailboxes.env.flush()
    writing.note_user(store, user)


@problems()
def unsubscribe(store: Store, user: str, name: str) -> bool:
    """End a subscription; whether there was one."""
    def remove(txn: Txn) -> bool:
        store.mailboxes.guard(user, txn)
        return store.mailboxes.subscriptions.remove(user, name, txn)

    removed = transact(store.mailboxes.env, remove)
    store.mailboxes.env.flush()
    writing.note_user(store, user)
    return removed


def subscriptions(store: Store, user: str) -> list[str]:
    """The names that the user is subscribed to, in order."""
    return list(store.mailboxes.subscriptions.of(user))
