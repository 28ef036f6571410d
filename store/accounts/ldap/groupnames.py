"""What groups of a directory are called in access control lists, by their distinguished names and their addresses."""

import time
from collections.abc import Callable

from store.accounts.ldap import ldapnames
from store.accounts.ldap.freshness import Ages
from store.accounts.ldap.ldapentry import BadEntry
from store.accounts.ldap.ldapmap import Profile
from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapreading import group_name

KEPT = 1000                 # addresses of which each process remembers the group


class GroupNames:
    """Only groups below `directory.group_base` have a name. What the directory says is believed for `seconds`."""

    def __init__(self, servers: Servers, profile: Profile, seconds: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._servers = servers
        self._profile = profile
        self._known: Ages[str] = Ages(KEPT, seconds, clock)

    def clear(self) -> None:
        """Believe nothing that was said before."""
        self._known.clear()

    def of_dn(self, dn: str) -> str:
        """The name; "" where there can be none. Nobody is asked: no user is in a group that is not there."""
        settings = self._profile.settings
        try:
            base = settings.group_base or settings.base
            if base and not ldapnames.is_below(dn, base):
                return ""
            return group_name(dn, None, self._profile.schema.group_name, whole=settings.group_names == "dn")
        except ValueError:
            return ""

    def of_mail_at_once(self, address: str) -> str | None:
        """The name of the group with that address, "" for none; None: the directory must be asked."""
        return self._known.get(address) if self._profile.schema.group_mail_filter else ""

    def of_mail(self, address: str) -> str:
        """The name of the one group with that address, "" for none. For a thread. Raises StoreError UNAVAILABLE."""
        known = self.of_mail_at_once(address)
        if known is None:
            schema, settings = self._profile.schema, self._profile.settings
            answer = self._servers.search(
                settings.group_base or settings.base, ldapnames.fill(schema.group_mail_filter, {"mail": address}),
                schema.group_name, scope="subtree", most=2)
            known = ""
            if len(answer.entries) == 1 and answer.complete:
                try:
                    known = group_name(answer.entries[0].dn, answer.entries[0], schema.group_name,
                                       whole=settings.group_names == "dn")
                except (ValueError, BadEntry):
                    known = ""
            self._known.put(address, known)
        return known
