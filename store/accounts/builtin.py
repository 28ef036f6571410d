"""The built-in directory: a table of users in the environment of the mailbox list."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from attrs import evolve, frozen

from mboxlist.kv import Txn, transact
from mboxlist.names import NameProblem, legal_owner
from mboxlist.table import MailboxList
from store.accounts.base import Account, Status
from store.accounts.cache import VerifiedPasswords
from store.accounts.passwords import NOBODY, verify_password
from store.errors import Problem, StoreError
from store.values import Secret


@frozen
class User:
    """A row of the directory; `password` is a hash of `passwords.hash_password`.

    `before` is the status that the account gets back when it is restored, or has been renamed: then `renamed_from` is
    the user id that it had.
    """

    account: Account
    password: str
    before: Status | None = None
    renamed_from: str = ""

    def to_bytes(self) -> bytes:
        """The stored form; the user id is the key."""
        values: dict[str, object] = {
            "password": self.password, "partition": self.account.partition, "status": self.account.status.value}
        if self.account.groups:
            values["groups"] = self.account.groups
        if self.account.removed:
            values["removed"] = self.account.removed
        if self.before is not None:
            values["before"] = self.before.value
        if self.renamed_from:
            values["renamed_from"] = self.renamed_from
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    @lru_cache(maxsize=50_000)
    def from_bytes(cls, user: str, data: bytes) -> "User":
        """From the stored form. Equal octets give the same object."""
        values = json.loads(data)
        account = Account(user, values["partition"], Status(values["status"]), values.get("removed", 0),
                          tuple(values.get("groups", ())))
        before = Status(values["before"]) if "before" in values else None
        return cls(account, values["password"], before, values.get("renamed_from", ""))


class BuiltinDirectory:
    """Users in `users.db`. A Directory (accounts/base.py), and the calls that change it."""

    def __init__(self, mailboxes: MailboxList, default_domain: str) -> None:
        self._env = mailboxes.env
        self._table = mailboxes.users
        self._ending = "@" + default_domain.lower()
        self._verified = VerifiedPasswords()

    def user_id(self, address: str) -> str:
        """The user id of an address or login name: lower case, and without the default domain."""
        return address.lower().removesuffix(self._ending)

    def user(self, user: str, txn: Txn = None) -> User | None:
        """The row of that user id."""
        data = self._table.get(user.encode(), txn)
        return User.from_bytes(user, data) if data is not None else None

    def find(self, user: str) -> Account | None:
        """The account of that user id."""
        found = self.user(user)
        return found.account if found else None

    def look_up(self, address: str) -> Account | None:
        """The account that mail to that address is for."""
        return self.find(self.user_id(address))

    def remembers(self, login: str, password: Secret) -> Account | None:
        """The account, if this password was found right a short while ago."""
        found = self.user(self.user_id(login))
        if found is None or found.account.status is not Status.ACTIVE:
            return None
        return found.account if (found.account.user, password, found.password) in self._verified else None

    def authenticate(self, login: str, password: Secret) -> Account:
        """The account that logs in; see Directory. Raises StoreError BAD_LOGIN."""
        found = self.user(self.user_id(login))
        fits = verify_password(password, found.password if found else NOBODY)
        if found is None or not fits or found.account.status is not Status.ACTIVE:
            raise StoreError(Problem.BAD_LOGIN)
        self._verified.add(found.account.user, password, found.password)
        return found.account

    def add(self, address: str, password_hash: str, *, partition: str = "primary") -> Account:
        """A new user. Raises StoreError USER_EXISTS, BAD_NAME."""
        try:
            user = User(Account(legal_owner(self.user_id(address)), partition), password_hash)
        except NameProblem as error:
            raise StoreError(Problem.BAD_NAME, str(error)) from error

        def work(txn: Txn) -> None:
            if self._table.get_to_change(user.account.user.encode(), txn) is not None:
                raise StoreError(Problem.USER_EXISTS)
            self.write(user, txn)

        self._change(work)
        return user.account

    def change(self, user: str, *, password_hash: str | None = None, status: Status | None = None,
               groups: Sequence[str] | None = None) -> Account:
        """Change what is given. Raises StoreError NO_USER."""
        return self.alter(user, lambda old: evolve(
            old, password=password_hash or old.password, account=evolve(
                old.account, status=status or old.account.status,
                groups=old.account.groups if groups is None else tuple(groups)))).account

    def alter(self, user: str, change: Callable[[User], User]) -> User:
        """Change a row. Raises StoreError NO_USER, and what `change` raises."""
        changed: list[User] = []

        def work(txn: Txn) -> None:
            data = self._table.get_to_change(user.encode(), txn)
            if data is None:
                raise StoreError(Problem.NO_USER)
            changed[:] = [change(User.from_bytes(user, data))]
            self.write(changed[0], txn)

        self._change(work)
        return changed[0]

    def place(self, user: str, partition: str, txn: Txn) -> None:
        """The user's new mailboxes are made on that partition from now on."""
        data = self._table.get_to_change(user.encode(), txn)
        if data is not None:
            found = User.from_bytes(user, data)
            self.write(evolve(found, account=evolve(found.account, partition=partition)), txn)

    def remove(self, user: str) -> None:
        """Remove a user's row; the store removes the mailboxes. Raises StoreError NO_USER."""
        def work(txn: Txn) -> None:
            if not self.erase(user, txn):
                raise StoreError(Problem.NO_USER)
        self._change(work)

    def all(self) -> Iterator[Account]:
        """Every user, in order of user id."""
        for key, data in self._table.scan():
            yield User.from_bytes(key.decode(), data).account

    def erase(self, user: str, txn: Txn) -> bool:
        """Take a row away; whether it was there."""
        return self._table.delete(user.encode(), txn)

    def write(self, user: User, txn: Txn) -> None:
        """Set a row."""
        self._table.put(user.account.user.encode(), user.to_bytes(), txn)

    def _change(self, work: Callable[[Txn], None]) -> None:
        transact(self._env, work)
        self._env.flush()
