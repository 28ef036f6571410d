"""Whose mailboxes nobody can use: the accounts are lost.

Passwords are in the table of users alone. When that is lost, with no snapshot, a rebuild gives each owner of a mailbox
an account that only stands for the lost one: inactive, and without a password.
"""

from collections import Counter
from collections.abc import Iterator

from store.accounts.base import Status
from store.accounts.passwords import credential
from store.rebuild.salvagedusers import NO_PASSWORD
from store.store import Store
from store.values import Finding, Repair

NO_CREDENTIAL = credential(NO_PASSWORD)


def look(store: Store) -> Iterator[Finding]:
    """Owners of mailboxes without an account, each once; and accounts that only stand for one that has been lost."""
    lost = Counter(entry.name.owner for entry in store.mailboxes.all() if entry.name.owner
                   and store.directory.find(entry.name.owner) is None)
    for user, count in lost.items():
        yield Finding(f"the account is lost: nobody can use its mailboxes ({count})", f"user {user}",
                      Repair.ADD_USER.of(user))
    for account in store.directory.all():
        if account.status is Status.INACTIVE and account.credential == NO_CREDENTIAL:
            yield Finding("the account is lost: it is inactive, and has no password", f"user {account.user}",
                          Repair.SET_USER.of(account.user))
