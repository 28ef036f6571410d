"""What the store asks of a directory, whichever it is."""

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from store.errors import Problem
from store.values import Secret

if TYPE_CHECKING:
    from store.accounts.sasl.scram import Keys


class Status(Enum):
    """What an account may do, by Sun's names (mailUserStatus). `delivery_problem` says what each means for mail."""

    ACTIVE = "active"
    INACTIVE = "inactive"       # mail is refused for now, no login
    HOLD = "hold"               # the same, while something is being done with the account
    OVERQUOTA = "overquota"     # mail is refused for now; the user can log in, to make room
    DISABLED = "disabled"       # mail is refused for good, no login
    DELETED = "deleted"         # to the world there is no such user; all that the account has stays
    REMOVED = "removed"         # the same; all that the account has goes when the delay has passed

    @property
    def may_log_in(self) -> bool:
        """Whether the user can log in."""
        return self in (Status.ACTIVE, Status.OVERQUOTA)


_DELIVERY = {
    Status.ACTIVE: None,
    Status.INACTIVE: Problem.USER_INACTIVE,
    Status.HOLD: Problem.USER_ON_HOLD,
    Status.OVERQUOTA: Problem.OVER_QUOTA,
    Status.DISABLED: Problem.USER_DISABLED,
    Status.DELETED: Problem.NO_USER,
    Status.REMOVED: Problem.NO_USER,
}


def delivery_problem(status: Status) -> Problem | None:
    """Why mail to an account of that status is refused; None: it is not."""
    return _DELIVERY[status]


@frozen
class Account:
    """A user as the store needs to know it: `user` is the user id, `name` in the default domain, else `name@domain`.

    `removed` is the Unix time at which it was removed, or 0; `groups` are those that access control lists speak of;
    `aliases` are further addresses, written as user ids are (mailAlternateAddress); `access` are the rules of what the
    user may use from where (access.py; mailAllowedServiceAccess), "" without any; `host` is the back end that keeps the
    account's mail (mailHost), "" when there is one only: `Store.is_here` says whether that is this one.
    """

    user: str
    partition: str
    status: Status = Status.ACTIVE
    removed: int = 0
    groups: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    access: str = ""
    host: str = ""


NO_USER_ID = "@"            # that nobody can have; "" owns the public mailboxes


@frozen
class Known:
    """What is known of an address: whose it is, or that it is nobody's."""

    account: Account | None


class Directory(Protocol):
    """Says who the users are.

    One that is `remote` answers `find` and `look_up` from what it has been told so far, at once, to all that walk the
    users. Who acts on the answer asks `at_once`, and when that is None, in a thread, `fetch` (`store/offload.py`).
    """

    remote: bool

    def user_id(self, address: str) -> str:
        """The user id that an address or login name would be, whoever there is; NO_USER_ID for what cannot be one."""

    def find(self, user: str) -> Account | None:
        """The account of that user id."""

    def look_up(self, address: str) -> Account | None:
        """The account that mail to that address (with or without a domain, no sub-address) is for: the user's own
        address or an alias, in any case and any form of its domain."""

    def at_once(self, address: str) -> Known | None:
        """The same, of what it may be believed without asking anybody; None: it must ask."""

    def fetch(self, address: str) -> Account | None:
        """What `look_up` says, asked for if need be: for a thread. Raises StoreError UNAVAILABLE."""

    def flush(self) -> None:
        """Have all processes ask anew."""

    @property
    def has_keys(self) -> bool:
        """Whether it has the keys of SCRAM, without which no user can log in that way."""

    def find_keys(self, login: str, mechanism: str) -> "tuple[Keys, Account | None]":
        """The keys of SCRAM of the one with that login name; for an unknown user, and one who cannot log in, keys that
        nothing fits, and None. For a thread, too."""

    def access_rules(self, account: Account) -> str:
        """What is said of the user's access to services, or of that of the user's domain; "" for neither."""

    def remember_for(self, seconds: float) -> None:
        """How long `remembers` knows."""

    def remembers(self, login: str, password: Secret) -> Account | None:
        """The account, if this password was found right a short while ago: at once, and without going anywhere."""

    def authenticate(self, login: str, password: Secret) -> Account:
        """The account that logs in. For a thread: it takes its time, for an unknown user as for a wrong password.

        The login name is a user id, with or without the default domain, and no alias: aliases are published, come and
        go, and may be given to another user, who would meet the first one's clients.
        Raises StoreError BAD_LOGIN, UNAVAILABLE.
        """
