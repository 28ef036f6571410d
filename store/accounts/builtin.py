"""The built-in directory: a table of users in the environment of the mailbox list."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NoReturn

from attrs import evolve, frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import Deadlock, transact
from mboxlist.names import NameProblem, legal_owner
from mboxlist.table import MailboxNames
from store.accounts.aliases import Aliases, legal_aliases
from store.accounts.base import NO_USER_ID, Account, Known, Status
from store.accounts.domainrows import DomainRules
from store.accounts.passwordcache import VerifiedPasswords
from store.accounts.passwords import NOBODY, credential, kept_keys, scram_keys, verify_password, without_keys
from store.accounts.sasl.scram import Keys
from store.accounts.throttle.sharedcache import Remembered
from store.addresses import canonical, canonical_domain
from store.errors import NotAtOnce, Problem, StoreError
from store.problems import problems
from store.values import Secret

NO_PASSWORD = "*"           # a hash that fits no password


@frozen
class User:
    """A row of the directory; `password` is a hash of `passwords.hash_password`.

    `before` is the status that the account gets back when it is restored, or has been renamed: then `renamed_from` is
    the user id that it had. Until then there is the row of that user id, too, and `renamed_to` is what it becomes.
    """

    account: Account
    password: str
    before: Status | None = None
    renamed_from: str = ""
    renamed_to: str = ""

    @property
    def is_lost(self) -> bool:
        """Whether it only stands for an account that has been lost."""
        return self.password == NO_PASSWORD and self.account.status is Status.INACTIVE

    @property
    def is_being_renamed(self) -> bool:
        """Whether it is one of the two rows that there are meanwhile (`store.users.renaming`)."""
        return bool(self.renamed_from or self.renamed_to)

    def require_settled(self) -> None:
        """Raises StoreError BUSY while it is being renamed."""
        if self.is_being_renamed:
            raise StoreError(Problem.BUSY, "The user is being renamed, try again")

    def to_bytes(self) -> bytes:
        """The stored form; the user id is the key."""
        values: dict[str, object] = {
            "password": self.password, "partition": self.account.partition, "status": self.account.status.value}
        if self.account.groups:
            values["groups"] = self.account.groups
        if self.account.aliases:
            values["aliases"] = self.account.aliases
        if self.account.access:
            values["access"] = self.account.access
        if self.account.host:
            values["host"] = self.account.host
        if self.account.sieve:
            values["sieve"] = self.account.sieve
        if self.account.removed:
            values["removed"] = self.account.removed
        if self.before is not None:
            values["before"] = self.before.value
        if self.renamed_from:
            values["renamed_from"] = self.renamed_from
        if self.renamed_to:
            values["renamed_to"] = self.renamed_to
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    @lru_cache(maxsize=50_000)
    def from_bytes(cls, user: str, data: bytes) -> "User":
        """From the stored form. Equal octets give the same object."""
        values = json.loads(data)
        account = Account(user, values["partition"], Status(values["status"]), values.get("removed", 0),
                          tuple(values.get("groups", ())), tuple(values.get("aliases", ())),
                          values.get("access", ""), values.get("host", ""), credential(values["password"]),
                          values.get("sieve", ""))
        before = Status(values["before"]) if "before" in values else None
        return cls(account, values["password"], before, values.get("renamed_from", ""), values.get("renamed_to", ""))


class BuiltinDirectory:
    """Users in `users.db`, and whose each alias is in `aliases.db`: `write` and `erase` keep the two together. A
    key that begins with @ is that of a domain, or of the directory itself (`DomainRules`).

    A directory that is `remote` (`ldap`) answers `find` and `look_up` from the rows that it has, at once, to all that
    walk the users. Who acts on the answer asks `at_once`, and when that is None, in a thread, `fetch`
    (`store/offload.py`).
    """

    remote = False
    session_time = 0.0      # seconds after which `refresh` is to be called for users with open sessions; 0: never

    def __init__(self, mailboxes: MailboxNames, default_domain: str) -> None:
        self._env = mailboxes.env
        self._table = mailboxes.users
        self._aliases = Aliases(mailboxes.aliases)
        self._ending = "@" + canonical_domain(default_domain)
        self._verified = VerifiedPasswords()
        self.domains = DomainRules(mailboxes)
        self.noticed: Callable[[str], None] = lambda user: None     # a row has changed, and the change is committed

    def user_id(self, address: str) -> str:
        """The user id of an address or login name: its canonical form without the default domain; NO_USER_ID for what
        cannot be one."""
        try:
            return canonical(address).removesuffix(self._ending) or NO_USER_ID
        except ValueError:
            return NO_USER_ID

    def user(self, user: str, txn: Txn = None) -> User | None:
        """The row of that user id."""
        data = self._table.get(user.encode(), txn) if not user.startswith(NO_USER_ID) else None
        return User.from_bytes(user, data) if data is not None else None

    def require_settled(self, user: str, txn: Txn = None) -> None:
        """Raises StoreError BUSY while the user is being renamed; in a transaction that is not so to its end."""
        if (row := self.user(user, txn)) is not None:
            row.require_settled()

    def keeps(self, user: str) -> bool:
        """Whether what is known of that user is kept here alone."""
        return not user.startswith(NO_USER_ID)

    def find(self, user: str) -> Account | None:
        """The account of that user id."""
        found = self.user(user)
        return found.account if found else None

    def is_still(self, user: str, known: Account | None) -> bool:
        """Whether the row is the one that `known` was made of; it is not while somebody changes it. Waits for no lock.
        """
        data = self._table.glance(user.encode())
        return (data is None) if known is None else data is not None and User.from_bytes(user, data).account is known

    def find_at_once(self, user: str) -> Account | None:
        """What `find` says, for an event loop. Raises NotAtOnce while somebody changes the row, which has not changed
        then yet."""
        try:
            found = transact(self._env, partial(self.user, user), seconds=0, reads=True)
        except Deadlock:
            raise NotAtOnce from None
        return found.account if found is not None else None

    def look_up(self, address: str) -> Account | None:
        """The account that mail to that address (with or without a domain, no sub-address) is for: the user's own
        address or an alias, in any case and any form of its domain."""
        user = self.user_id(address)
        found = self.user(user)
        if found is None:
            owner = self._aliases.owner(user)
            found = self.user(owner) if owner is not None else None
        return found.account if found is not None else None

    def at_once(self, address: str) -> Known | None:
        """What `look_up` says, as far as that may be believed without asking anybody; None: it must ask."""
        return Known(self.look_up(address))

    def fetch(self, address: str) -> Account | None:
        """What `look_up` says, asked for if need be: for a thread. Raises StoreError UNAVAILABLE."""
        return self.look_up(address)

    def group_of_dn(self, dn: str) -> str:
        """What the group of a distinguished name is called in access control lists; "" for none."""
        return ""

    def group_at_once(self, address: str) -> str | None:
        """What the group with an address is called in access control lists, "" for none; None: `fetch_group` must ask.
        """
        return ""

    def fetch_group(self, address: str) -> str:
        """What `group_at_once` says, asked for if need be: for a thread. Raises StoreError UNAVAILABLE."""
        return self.group_at_once(address) or ""

    def refresh(self, user: str) -> Account | None:
        """What is said of a user now, whatever was said before. For a thread. Raises StoreError UNAVAILABLE."""
        return self.find(user)

    def flush(self) -> None:
        """Have all processes ask again."""

    def remembers(self, login: str, password: Secret) -> Account | None:
        """The account, if this password was found right a short while ago: at once, and without going anywhere."""
        found = self.user(self.user_id(login))
        if found is None or not found.account.status.may_log_in:
            return None
        return found.account if (found.account.user, password, found.password) in self._verified else None

    def authenticate(self, login: str, password: Secret) -> Account:
        """The account that logs in. For a thread: it takes its time, for an unknown user as for a wrong password.

        The login name is a user id, with or without the default domain, and no alias: aliases are published, come and
        go, and may be given to another user, who would meet the first one's clients.
        Raises StoreError BAD_LOGIN, UNAVAILABLE.
        """
        found = self.user(self.user_id(login))
        fits = verify_password(password, found.password if found else NOBODY)
        if found is None or not fits or not found.account.status.may_log_in:
            raise StoreError(Problem.BAD_LOGIN)
        self._verified.add(found.account.user, password, found.password)
        return found.account

    def turn_away(self, login: str, password: Secret) -> NoReturn:
        """Refuse a password that does not do, whether it is right or not: nobody looks at it, and it takes as long as
        when a wrong one is looked at. For a thread. Raises StoreError BAD_LOGIN, UNAVAILABLE."""
        verify_password(password, NOBODY)
        raise StoreError(Problem.BAD_LOGIN)

    def login_user(self, login: str) -> str:
        """The user id of a login name, as far as it is known at once."""
        return self.user_id(login)

    def is_login(self, login: str, account: Account) -> bool:
        """Whether the account, which `look_up` or `fetch` has just given for it, logs in by that name."""
        return account.user == self.user_id(login)

    @property
    def has_keys(self) -> bool:
        """Whether it has the keys of SCRAM, without which no user can log in that way."""
        return True

    def find_keys(self, login: str, mechanism: str) -> "tuple[Keys, Account | None]":
        """The keys of SCRAM of the one with that login name; for an unknown user, and one who cannot log in, keys that
        nothing fits, and None, in the same time: so does a user without keys look. For a thread, too."""
        name = self.user_id(login)
        found, nobody = self.user(name), self.nobodys_keys(login, mechanism)
        own = found is not None and mechanism in kept_keys(found.password)
        keys = scram_keys(mechanism, found.password if found is not None and own else f"nobody {nobody.to_text()}")
        if found is None or keys is None or not own or not found.account.status.may_log_in:
            return nobody, None
        return keys, found.account

    def nobodys_keys(self, login: str, mechanism: str) -> Keys:
        """Keys of SCRAM that nothing fits, always the same ones for that name."""
        return Keys.of_nobody(mechanism, self.user_id(login), self.domains.secret())

    def with_keys(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The users who have keys of SCRAM, and of which mechanisms, in order of user id."""
        for key, data in self._table.scan():
            if not key.startswith(NO_USER_ID.encode()) and b" SCRAM-" in data:
                yield key.decode(), kept_keys(User.from_bytes(key.decode(), data).password)

    def drop_keys(self, user: str, but: Collection[str]) -> None:
        """Leave a user the keys of these mechanisms alone; the password stays. Raises StoreError NO_USER."""
        self.alter(user, lambda old: evolve(old, password=without_keys(old.password, but)))

    def access_rules(self, account: Account) -> str:
        """The user's, else those of the user's domain."""
        return account.access or self.domains.access(self.domain(account.user))

    def domain(self, user: str) -> str:
        """The domain of a user."""
        return user.rpartition("@")[2] if "@" in user else self._ending[1:]

    def remember_for(self, seconds: float) -> None:
        """How long `remembers` knows."""
        self._verified.lifetime = seconds

    def share(self, shared: Remembered) -> None:
        """Have all processes of a server know what one of them `remembers`."""
        self._verified.share(shared)

    def add(self, address: str, password_hash: str, *, partition: str = "primary", aliases: Iterable[str] = (),
            host: str = "") -> Account:
        """A new user. Raises StoreError USER_EXISTS, BAD_NAME, LIMIT."""
        account = self.account(address, partition, aliases, host)
        self.insert(User(account, password_hash))
        return account

    def account(self, address: str, partition: str, aliases: Iterable[str] = (), host: str = "") -> Account:
        """That of a user who is to be added. Raises StoreError BAD_NAME, LIMIT."""
        return Account(self.user_id(address), partition, aliases=self._legal_aliases(aliases), host=host)

    def insert(self, user: User) -> None:
        """A new user, with all that its row says. Raises StoreError USER_EXISTS, BAD_NAME."""
        self._change(user.account.user, partial(self._insert, user))

    @problems()
    def insert_all(self, users: Sequence[User]) -> dict[str, StoreError]:
        """New users, in one transaction; by user id why some were refused: USER_EXISTS, BAD_NAME."""
        refused: dict[str, StoreError] = {}

        def work(txn: Txn) -> None:
            refused.clear()
            for user in users:
                try:
                    self._insert(user, txn)
                except StoreError as refusal:
                    refused[user.account.user] = refusal

        transact(self._env, work)
        self._env.flush()
        for user in users:
            if user.account.user not in refused:
                self.noticed(user.account.user)
        return refused

    def _insert(self, user: User, txn: Txn) -> None:
        try:
            legal_owner(user.account.user)
        except NameProblem as error:
            raise StoreError(Problem.BAD_NAME, str(error)) from error
        if self._table.get_to_change(user.account.user.encode(), txn) is not None:
            raise StoreError(Problem.USER_EXISTS)
        self.write(user, txn)

    def change(self, user: str, *, password_hash: str | None = None, status: Status | None = None,
               groups: Iterable[str] | None = None, aliases: Iterable[str] | None = None, access: str | None = None,
               host: str | None = None, sieve: str | None = None) -> Account:
        """Change what is given. Raises StoreError NO_USER, BUSY; for aliases USER_EXISTS, BAD_NAME, LIMIT."""
        names = None if groups is None else tuple(groups)
        addresses = None if aliases is None else self._legal_aliases(aliases)

        def changed(old: User) -> User:
            old.require_settled()
            return evolve(old, password=password_hash or old.password, account=evolve(
                old.account, status=status or old.account.status,
                groups=old.account.groups if names is None else names,
                aliases=old.account.aliases if addresses is None else addresses,
                access=old.account.access if access is None else access,
                host=old.account.host if host is None else host,
                sieve=old.account.sieve if sieve is None else sieve))

        return self.alter(user, changed).account

    def _legal_aliases(self, addresses: Iterable[str]) -> tuple[str, ...]:
        named = {address: self.user_id(address) for address in addresses}
        for address, alias in named.items():
            if alias == NO_USER_ID:
                raise StoreError(Problem.BAD_NAME, f"{address!r} is not an address")
        return legal_aliases(named.values())

    def alter(self, user: str, change: Callable[[User], User]) -> User:
        """Change a row. Raises StoreError NO_USER, and what `change` raises."""
        changed: list[User] = []

        def work(txn: Txn) -> None:
            data = self._table.get_to_change(user.encode(), txn)
            if data is None:
                raise StoreError(Problem.NO_USER)
            changed[:] = [change(User.from_bytes(user, data))]
            self.write(changed[0], txn)

        self._change(user, work)
        return changed[0]

    def place(self, user: str, partition: str, txn: Txn) -> None:
        """The user's new mailboxes are made on that partition from now on."""
        data = self._table.get_to_change(user.encode(), txn)
        if data is not None:
            found = User.from_bytes(user, data)
            self.write(evolve(found, account=evolve(found.account, partition=partition)), txn)

    def may_set_hosts(self) -> bool:
        """Whether `set_host` can do its work: no move of a user begins otherwise."""
        return True

    def try_set_host(self, user: str) -> None:
        """Make sure that `set_host` would do its work for that user, changing nothing. For a thread.

        Raises StoreError UNAVAILABLE, NO_PERMISSION with what is wrong, for administrators to read.
        """

    def set_host(self, user: str, host: str) -> None:
        """Have everybody outside of this store know which back end keeps the user's mail; the row here says so already.

        No harm if it was so before. For a thread. Raises StoreError UNAVAILABLE, NO_PERMISSION.
        """

    def remove(self, user: str) -> None:
        """Remove a user's row; the store removes the mailboxes. Raises StoreError NO_USER."""
        def work(txn: Txn) -> None:
            if not self.erase(user, txn):
                raise StoreError(Problem.NO_USER)
        self._change(user, work)

    def all(self) -> Iterator[Account]:
        """Every user, in order of user id."""
        for key, data in self._table.scan():
            if not key.startswith(NO_USER_ID.encode()):
                yield User.from_bytes(key.decode(), data).account

    def erase(self, user: str, txn: Txn) -> bool:
        """Take a row away, and its aliases; whether it was there."""
        for alias in self._aliases_of(user, txn) or ():
            self._aliases.remove(alias, user, txn)
        self._verified.forget(user)
        return self._table.delete(user.encode(), txn)

    def write(self, user: User, txn: Txn) -> None:
        """Set a row. Raises StoreError USER_EXISTS when the user's name, or a new alias, is taken already; then nothing
        has been set."""
        name, after = user.account.user, user.account.aliases
        before = self._aliases_of(name, txn)
        if before is None and (other := self._aliases.owner(name, txn)) is not None:
            raise StoreError(Problem.USER_EXISTS, f"{name} is an alias of {other}")
        new = sorted(set(after).difference(before or ()))
        for alias in new:
            if alias == name or self._table.get(alias.encode(), txn) is not None:
                raise StoreError(Problem.USER_EXISTS, f"{alias} is a user")
            self._aliases.require_free(alias, name, txn)
        for alias in set(before or ()).difference(after):
            self._aliases.remove(alias, name, txn)
        for alias in new:
            self._aliases.add(alias, name, txn)
        self._table.put(name.encode(), user.to_bytes(), txn)
        self._verified.forget(name, unless=user.password if user.account.status.may_log_in else "")

    def _aliases_of(self, user: str, txn: Txn) -> tuple[str, ...] | None:
        data = self._table.get_to_change(user.encode(), txn)
        return User.from_bytes(user, data).account.aliases if data is not None else None

    def wrong_aliases(self) -> list[tuple[str, str, bool]]:
        """Where the table of aliases and the users' rows differ: alias, user, and whether it is the table that has it;
        these come first."""
        rows = {(alias, key.decode()) for key, data in self._table.scan() if b'"aliases"' in data
                for alias in User.from_bytes(key.decode(), data).account.aliases}
        there = set(self._aliases.all())
        return [*((*pair, True) for pair in sorted(there - rows)), *((*pair, False) for pair in sorted(rows - there))]

    def reconcile_aliases(self) -> list[tuple[str, str, bool]]:
        """Have the table say what the users' rows say: it may be new, or an older one. Returns what was wrong.

        An alias that two rows have stays whose it is.
        """
        wrong = self.wrong_aliases()
        for alias, user, _ in wrong:
            transact(self._env, partial(self._reconcile, alias, user))
        if wrong:
            self._env.flush()
        return wrong

    def _reconcile(self, alias: str, user: str, txn: Txn) -> None:
        if alias not in (self._aliases_of(user, txn) or ()):
            self._aliases.remove(alias, user, txn)
        elif self._aliases.owner(alias, txn) is None:
            self._aliases.add(alias, user, txn)

    @problems()
    def _change(self, user: str, work: Callable[[Txn], None]) -> None:
        transact(self._env, work)
        self._env.flush()
        self.noticed(user)
