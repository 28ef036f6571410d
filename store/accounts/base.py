"""What the store asks of a directory, whichever it is."""

from enum import Enum
from typing import Protocol

from attrs import frozen

from store.values import Secret


class Status(Enum):
    """What an account may do, by Sun's names (mailUserStatus)."""

    ACTIVE = "active"
    INACTIVE = "inactive"       # mail is refused for now, no login
    DISABLED = "disabled"       # mail is refused for good, no login
    REMOVED = "removed"         # the same; all that the account has goes when the delay has passed


@frozen
class Account:
    """A user as the store needs to know it: `user` is the user id, `name` in the default domain, else `name@domain`.

    `removed` is the Unix time at which it was removed, or 0; `groups` are those that access control lists speak of.
    """

    user: str
    partition: str
    status: Status = Status.ACTIVE
    removed: int = 0
    groups: tuple[str, ...] = ()


class Directory(Protocol):
    """Says who the users are."""

    def find(self, user: str) -> Account | None:
        """The account of that user id."""

    def look_up(self, address: str) -> Account | None:
        """The account that mail to that address (with or without a domain, no sub-address) is for."""

    def remembers(self, login: str, password: Secret) -> Account | None:
        """The account, if this password was found right a short while ago: at once, and without going anywhere."""

    def authenticate(self, login: str, password: Secret) -> Account:
        """The account that logs in. For a thread: it takes its time, for an unknown user as for a wrong password.

        Raises StoreError BAD_LOGIN, UNAVAILABLE.
        """
