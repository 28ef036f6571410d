"""Users whom a directory has deleted, or has no longer: found, noted, removed after the delay (`Settings.user_delay`).

The delay begins when it is seen first. Nothing is done when the directory cannot be asked, nor when more users seem to
be gone than usually go: then something is wrong with the directory, or with how it is asked.
"""

import time
from collections.abc import Callable, Iterator
from enum import Enum

from attrs import evolve, frozen

from store.accounts.base import Account, Status
from store.accounts.builtin import User
from store.accounts.ldap.ldapentry import Found
from store.errors import Problem, StoreError
from store.store import Store
from store.users.restorable import forget_user

Consult = Callable[[str], Found | None]


class Presence(Enum):
    """How the directory sees a user whom the store has."""

    THERE = "there"
    GONE = "gone"               # it has no such user
    DELETED = "deleted"         # it says so, or that the user is removed
    RENAMED = "renamed"         # it has another name for the one with this address
    UNCLEAR = "unclear"         # what it says makes no sense


@frozen
class Seen:
    """A user of the store, and what the directory says of it; `since`: when it was first seen to be deleted, or 0, also
    if it is back."""

    user: str
    presence: Presence
    since: int = 0
    detail: str = ""

    @property
    def doomed(self) -> bool:
        """Whether all that the user has goes when the delay has passed."""
        return self.presence in (Presence.GONE, Presence.DELETED)

    def is_due(self, store: Store, now: float) -> bool:
        """Whether it has passed."""
        return self.doomed and bool(self.since) and self.since + store.settings.user_delay <= now


def look(account: Account, consult: Consult) -> Seen:
    """How the directory sees the user. Raises StoreError UNAVAILABLE when it cannot be asked."""
    user = account.user
    try:
        found = consult(user)
    except StoreError as error:
        if not getattr(error, "of_one", False):
            raise
        return Seen(user, Presence.UNCLEAR, account.removed, error.detail or error.public)
    if found is None:
        return Seen(user, Presence.GONE, account.removed)
    if found.account.user != user:
        return Seen(user, Presence.RENAMED, account.removed, f"is {found.account.user} now")
    if found.account.status in (Status.DELETED, Status.REMOVED):
        return Seen(user, Presence.DELETED, account.removed, found.origins.get("status", ""))
    return Seen(user, Presence.THERE, account.removed)


def look_at_all(store: Store, consult: Consult, outside: Callable[[str], bool]) -> Iterator[Seen]:
    """Every user about whom the outside directory decides, in order. Raises StoreError UNAVAILABLE."""
    for account in list(store.directory.all()):
        if outside(account.user):
            yield look(account, consult)


def too_many(seen: list[Seen], share: float) -> bool:
    """Whether more users are gone than that share of all (0 to 1). One may always be."""
    gone = sum(each.presence is Presence.GONE for each in seen)
    return gone > max(1.0, share * len(seen))


def note_back(store: Store, user: str) -> None:
    """The user is not to go: if that happens again, another delay begins. Raises StoreError NO_USER."""
    store.directory.alter(user, lambda row: evolve(row, account=evolve(row.account, removed=0)))


def note(store: Store, seen: Seen, now: float | None = None) -> bool:
    """Begin the delay for a user who is to go; whether it begins now. Raises StoreError NO_USER."""
    when = int(time.time() if now is None else now)
    begun: list[bool] = []

    def change(row: User) -> User:
        if row.is_being_renamed:
            return row
        account = row.account
        gone = account.status in (Status.DELETED, Status.REMOVED)
        begun[:] = [not account.removed]
        return evolve(row, account=evolve(account, status=account.status if gone else Status.DELETED,
                                          removed=account.removed or when))

    if seen.doomed:
        store.directory.alter(seen.user, change)
    return any(begun)


def remove(store: Store, seen: Seen, consult: Consult, now: float) -> None:
    """Remove all that the user has, if the directory still says so at this moment.

    Raises StoreError BUSY when it does not; UNAVAILABLE, NO_USER.
    """
    account = store.directory.find(seen.user)
    if account is None:
        raise StoreError(Problem.NO_USER)
    if not look(account, consult).is_due(store, now):
        raise StoreError(Problem.BUSY, "The directory says something else now")
    forget_user(store, seen.user)
