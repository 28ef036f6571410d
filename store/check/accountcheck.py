"""Whose mailboxes nobody can use: the accounts are lost.

An account is a row of the table of users, and is in the `store.idx` of the user's INBOX as well, or, where there is no
INBOX, in `users/directory`. Where all are lost, with no snapshot, a rebuild gives each owner of a mailbox an account
that only stands for the lost one: inactive, and without a password.
"""

from collections import Counter
from collections.abc import Iterator

from store.accounts.base import Status
from store.accounts.builtin import NO_PASSWORD
from store.accounts.passwords import credential
from store.mend.userrecords import kept_for, lost_without_inbox
from store.store import Store
from store.values import RECONSTRUCT, Finding, Repair, few

NO_CREDENTIAL = credential(NO_PASSWORD)


def look(store: Store) -> Iterator[Finding]:
    """Owners of mailboxes without an account, each once; and accounts that only stand for one that has been lost. When
    nobody is left who could log in, that alone."""
    owned = Counter(entry.name.owner for entry in store.mailboxes.all() if entry.name.owner)
    lost = {user: f"the account is lost: nobody can use its mailboxes ({count})" for user, count in owned.items()
            if store.directory.find(user) is None}
    there = list(store.directory.all())
    standing = {account.user: "the account is lost: it is inactive, and has no password" for account in there
                if account.status is Status.INACTIVE and account.credential == NO_CREDENTIAL}
    beside = {row.account.user: "the account is lost; the user has no INBOX" for row in lost_without_inbox(store)
              if row.account.user not in lost}
    nowhere = {user for user in (*lost, *standing) if kept_for(store, user) is None}
    if len(nowhere) == len(lost) + len(standing) > 1 and len(there) == len(standing):
        yield Finding(f"the account is lost of each user ({len(nowhere)}), {few(sorted(nowhere))}: nobody can log in",
                      "mboxlist/users.db", Repair.USERS.of())
        return
    for user, what in (lost | standing | beside).items():
        yield Finding(what, f"user {user}", RECONSTRUCT if user not in nowhere else
                      Repair.ADD_USER.of(user) if user in lost else Repair.SET_USER.of(user))
