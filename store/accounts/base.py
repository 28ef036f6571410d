"""Accounts, whichever directory they come from."""

from enum import Enum

from attrs import field, frozen

from store.errors import Problem


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
    return None if status is Status.ACTIVE else _DELIVERY[status]


@frozen
class Account:
    """A user as the store needs to know it: `user` is the user id, `name` in the default domain, else `name@domain`.

    `removed` is the Unix time at which it was removed, or 0; `groups` are those that access control lists speak of;
    `aliases` are further addresses, written as user ids are (mailAlternateAddress); `access` are the rules of what the
    user may use from where (`accessrules`; mailAllowedServiceAccess), "" without any; `host` is the back end that keeps
    the account's mail (mailHost), "" when there is one only: `Store.is_here` says whether that is this one. `sieve`:
    what holds for the user's Sieve scripts (`sieverules`), "" for nothing else than for others.
    `credential` is another one for another password; it tells nothing of it, and is no part of who the user is.
    """

    user: str
    partition: str
    status: Status = Status.ACTIVE
    removed: int = 0
    groups: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    access: str = ""
    host: str = ""
    credential: str = field(default="", eq=False, repr=False)
    sieve: str = ""


NO_USER_ID = "@"            # that nobody can have; "" owns the public mailboxes


@frozen
class Known:
    """What is known of an address: whose it is, or that it is nobody's."""

    account: Account | None
