"""A local table of accounts that follows what an outside directory says."""

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from attrs import evolve

from mboxlist.table import MailboxList
from store.accounts.base import Account
from store.accounts.builtin import BuiltinDirectory, User
from store.accounts.ldap.ldapentry import Here
from store.accounts.ldap.ldapmap import mirrored
from store.accounts.passwords import outside
from store.errors import Problem, StoreError

log = logging.getLogger(__name__)

_TRIES = 3


class NotUnderstood(StoreError):
    """What the directory says of this one makes no sense; of others it may."""

    of_one = True


class Mirror(BuiltinDirectory):
    """The rows of users whose mail is here; of others, rows that are there already. `local` users are kept here alone,
    and changed by hand.

    A row is written only when it has changed, and keeps its partition, since that is where the mail lies. While a user
    moves, the move decides where the mail is (store/usermove).
    """

    remote = True

    def __init__(self, mailboxes: MailboxList, default_domain: str, local: Iterable[str]) -> None:
        super().__init__(mailboxes, default_domain)
        self.local = frozenset(map(self.user_id, local))
        self.here: Callable[[], Here] = Here
        self._moves = mailboxes.moves

    def keeps(self, user: str) -> bool:
        """See BuiltinDirectory: of local users."""
        return user in self.local

    def drop(self, name: str) -> None:
        """Believe nothing that was said before about that name."""

    def is_here(self, account: Account) -> bool:
        """Whether this back end keeps the account's mail, or is to."""
        host = self.here().host
        return not account.host or not host or account.host == host

    def add(self, address: str, *words: Any, **more: Any) -> Account:
        """See BuiltinDirectory: of local users. Raises StoreError NO_PERMISSION."""
        self._require_local(self.user_id(address))
        return super().add(address, *words, **more)

    def change(self, user: str, **more: Any) -> Account:
        """See BuiltinDirectory: of local users. Raises StoreError NO_PERMISSION."""
        self._require_local(user)
        return super().change(user, **more)

    def _require_local(self, user: str) -> None:
        if user not in self.local:
            raise StoreError(Problem.NO_PERMISSION, f"The directory says what there is to say about {user}; only those "
                                                    "of directory.local are kept here")

    def mirror(self, account: Account, host: str | None = None) -> Account:
        """Have the row say the same, if there is one or is to be one; what it says then.

        `host`: what the row named when the answer came. If that is another by now the user has moved, and the answer is
        older.
        """
        for _ in range(_TRIES):
            row = self.user(account.user)
            if row is None and not self.is_here(account):
                return account                  # what another back end keeps is its business
            if row is not None and row.is_being_renamed:
                return row.account              # a renaming is under way
            before = None if row is None else row.account
            if before is not None:
                moved = self._moves.find(account.user) is not None or host not in (None, before.host)
                account = evolve(account, partition=before.partition, host=before.host if moved else account.host)
            wanted = mirrored(before, account, time.time())
            try:
                if row is None:
                    self.insert(User(wanted, outside(wanted.credential)))
                elif before is not None and (wanted != before or wanted.credential != before.credential):
                    return self.alter(account.user, partial(_renewed, before, wanted)).account
                return wanted
            except StoreError as error:
                if error.problem is Problem.BAD_NAME:
                    raise not_understood(account.user, error) from None
                if error.problem is Problem.READ_ONLY:
                    return wanted               # who may log in does; the row says it later
                if error.problem not in (Problem.USER_EXISTS, Problem.NO_USER):
                    raise
                account = self._without_conflicts(account)
        raise StoreError(Problem.UNAVAILABLE, detail=f"the row of {account.user} cannot be written")

    def _without_conflicts(self, account: Account) -> Account:
        """The rows of those who have one of the names are older than this answer, or the directory contradicts itself.
        """
        name = account.user
        if (owner := self._aliases.owner(name)) is not None and owner != name:
            self._release(name, owner)
        for alias in account.aliases:
            owner = self._aliases.owner(alias)
            if owner is not None and owner != name:
                self._release(alias, owner)
        kept = tuple(alias for alias in account.aliases
                     if self.find(alias) is None and self._aliases.owner(alias) in (None, name))
        if len(kept) < len(account.aliases):
            log.warning("directory: %s: somebody else has, or had, the address %s: it gets no mail by this", name,
                        ", ".join(sorted(set(account.aliases).difference(kept))))
        return evolve(account, aliases=kept)

    def _release(self, alias: str, owner: str) -> None:
        """Take an alias from a row: the directory says that it is another's now."""
        if owner in self.local:
            return
        log.info("directory: %s is no alias of %s any more", alias, owner)
        self.drop(owner)
        self.alter(owner, lambda old: evolve(old, account=evolve(old.account, aliases=tuple(
            each for each in old.account.aliases if each != alias))))


def _renewed(before: Account, wanted: Account, row: User) -> User:
    """The row with what the directory wants; a user who has been moved meanwhile stays where that has led."""
    now = row.account
    host = wanted.host if now.host == before.host else now.host
    return evolve(row, account=evolve(wanted, partition=now.partition, host=host), password=outside(wanted.credential))


def not_understood(name: str, why: object) -> NotUnderstood:
    """What to raise when no account can be made of what the directory says; it is logged."""
    log.warning("directory: %s: %s", name, why)
    return NotUnderstood(Problem.UNAVAILABLE, detail=f"directory: {name}: {why}")
