"""Lists that scripts ask about (RFC 6134): each is a group of the directory.

A list can be named in these ways:

    tag:example.org,2026:staff                  a tag URI (RFC 4151) of the user's own domain, or of the store's
    group:staff                                 as in access control lists
    ldap:///cn=staff,ou=groups,dc=example       the group's distinguished name, as a URI (RFC 4516) or alone
    mailto:staff@example.org                    the group's address, as a URI or alone

A script may ask about the groups that its owner is in, and about those of the setting `sieve.lists`. Of any other it
learns nothing: it looks as one that is not there.
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote

from attrs import define, field

from mboxlist.acl import GROUP
from store.accounts.base import Account
from store.addresses import canonical, canonical_domain
from store.errors import Problem, StoreError
from store.filtering.sievesettings import Settings
from store.sieve.scriptproblems import RunProblem
from store.store import Store

LONGEST = 1000              # characters of the name of a list
_TAG = re.compile(r"tag:([A-Za-z0-9.-]{1,253}),[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?:([^#]{1,500})", re.IGNORECASE)
_DN = re.compile(r"[A-Za-z][A-Za-z0-9-]*\s*=")
SCHEMES = ("tag", "group", "ldap", "mailto")


class DirectoryNeeded(Exception):  # noqa: N818 - not an error
    """The directory must be asked, which takes a thread that may wait for it: the run begins again there."""


@define(eq=False)
class ExternalLists:
    """Those that the scripts of `user` may ask about, for one run. `may_wait`: whether the directory may be asked."""

    store: Store
    settings: Settings
    user: str
    may_wait: bool
    _groups: Mapping[str, str] | None = field(default=None, init=False)         # by their folded names
    _members: dict[str, frozenset[str]] = field(factory=dict, init=False)       # the groups of an address

    def has(self, name: str) -> bool:
        """Whether there is that list, and the owner may ask about it (RFC 6134 §2.4). Raises RunProblem,
        DirectoryNeeded."""
        return self._group(name) is not None

    def holds(self, name: str, address: str) -> bool:
        """Whether the address is a member of that list. Raises RunProblem, DirectoryNeeded."""
        group = self._group(name)
        return group is not None and group in self._groups_of(address)

    def _group(self, name: str) -> str | None:
        """The group that is meant, if the owner may ask about it."""
        named = self._named(name) if len(name) <= LONGEST else ""
        if self._groups is None:
            account = self.store.directory.find(self.user)
            allowed = (*self.settings.lists, *(account.groups if account is not None else ()))
            self._groups = {_folded(group): group for group in allowed}
        return self._groups.get(_folded(named)) if named else None

    def _named(self, name: str) -> str:
        """The name of a group, as access control lists have it; "" for none."""
        tag = _TAG.fullmatch(name)
        if tag is not None:
            return tag[2] if _domain(tag[1]) in self._domains() else ""
        lower = name.lower()
        if lower.startswith(GROUP):
            return name[len(GROUP):]
        if lower.startswith("ldap:///") or _DN.match(name):
            dn = unquote(name[len("ldap:///"):].partition("?")[0]) if lower.startswith("ldap:///") else name
            return self.store.directory.group_of_dn(dn)
        address = unquote(name[len("mailto:"):].partition("?")[0]) if lower.startswith("mailto:") else name
        return self._of_mail(address) if "@" in address and ":" not in address else ""

    def _domains(self) -> set[str]:
        return {self.store.directory.domain(self.user), self.store.settings.default_domain}

    def _of_mail(self, address: str) -> str:
        directory = self.store.directory
        try:
            address = canonical(address)
        except ValueError:
            return ""
        known = directory.group_at_once(address)
        if known is not None:
            return known
        if not self.may_wait:
            raise DirectoryNeeded
        try:
            return directory.fetch_group(address)
        except StoreError as error:
            raise _unavailable(error) from None

    def _groups_of(self, address: str) -> frozenset[str]:
        """Those that the one with that address is in; none for a stranger."""
        try:
            address = canonical(address)
        except ValueError:
            return frozenset()
        if address not in self._members:
            account = self._account(address)
            self._members[address] = frozenset(account.groups if account is not None else ())
        return self._members[address]

    def _account(self, address: str) -> Account | None:
        directory = self.store.directory
        known = directory.at_once(address)
        if known is not None:
            return known.account
        if not self.may_wait:
            raise DirectoryNeeded
        try:
            return directory.fetch(address)
        except StoreError as error:
            if getattr(error, "of_one", False):         # what it says of this one makes no sense
                return None
            raise _unavailable(error) from None


def _unavailable(error: StoreError) -> RunProblem:
    why = "does not answer" if error.problem is Problem.UNAVAILABLE else "cannot be asked"
    return RunProblem(f"the directory {why}, which has the lists that the script asks about")


def _folded(group: str) -> str:
    return unquote(group).lower()


def _domain(name: str) -> str:
    try:
        return canonical_domain(name)
    except ValueError:
        return ""
