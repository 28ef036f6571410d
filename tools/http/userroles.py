"""Which role a user has in the console: by the settings of the HTTP door, which name user ids and groups of the
directory. Pure: no I/O. What a role may do is in `api/permissions`."""

from collections.abc import Collection, Iterable
from typing import Protocol

from mboxlist import acl
from tools.http.apitokens import ADMINISTRATOR, AUDITOR, HELPDESK, USER


class Named(Protocol):
    """The settings that say it."""

    @property
    def administrators(self) -> Collection[str]:
        """Users and groups."""

    @property
    def helpdesk(self) -> Collection[str]:
        """user=domain."""

    @property
    def auditors(self) -> Collection[str]:
        """Users and groups."""


def named_of(values: Iterable[str]) -> frozenset[str]:
    """Those who are named, users and groups. Raises ValueError."""
    for value in values:
        if value.startswith(acl.NEGATIVE) or value in (acl.ANYONE, acl.GROUP) or "=" in value:
            raise ValueError(f"{value} is neither a user id nor {acl.GROUP}NAME")
    return frozenset(values)


def helpdesks_of(values: Iterable[str]) -> dict[str, str]:
    """The domain of each user. Raises ValueError."""
    found: dict[str, str] = {}
    for value in values:
        user, equals, domain = value.rpartition("=")
        if not equals or not user or not domain:
            raise ValueError(f"{value} is no user=domain")
        if user in found:
            raise ValueError(f"{user} has a domain already: {found[user]}")
        found[user] = domain.lower()
    return found


def role_of(settings: Named, user: str, groups: Collection[str]) -> tuple[str, str]:
    """The role, the first of them that somebody has, and its scope: the domain of a helpdesk, the user of a user."""
    names = acl.identifiers(user, groups)
    if any(name in settings.administrators for name in names):
        return ADMINISTRATOR, ""
    if domain := helpdesks_of(settings.helpdesk).get(user):
        return HELPDESK, domain
    if any(name in settings.auditors for name in names):
        return AUDITOR, ""
    return USER, user


def superiors(settings: Named) -> frozenset[str]:
    """Users and groups who have another role than that of a user."""
    return frozenset((*settings.administrators, *helpdesks_of(settings.helpdesk), *settings.auditors))
