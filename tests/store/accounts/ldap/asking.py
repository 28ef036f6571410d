"""All searches for an address, as a profile wants them, at a real server."""

from store.accounts.ldap.ldapentry import Entry, Found, Here, Search
from store.accounts.ldap.ldapmap import Profile
from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapprofiles import MapSettings
from store.accounts.ldap.ldapreading import read_account


class Asking:
    """What the servers have for an address; two entries for it are a mistake of the test."""

    def __init__(self, servers: Servers, settings: MapSettings) -> None:
        self.servers = servers
        self.profile = Profile.of(settings, "example.org")

    def __call__(self, address: str, here: Here) -> Found | None:
        profile, parts = self.profile, self.profile.whole(address)
        assert parts is not None
        domain = self._one(profile.domain_search(parts[1]))
        user = self._one(profile.user_search(address, domain))
        if user is None:
            return None
        search = profile.group_search(user, domain)
        return read_account(profile, user, domain, here, self._entries(search) if search is not None else ())

    def _entries(self, search: Search) -> list[Entry]:
        answer = self.servers.search(search.base, search.filter, search.attributes,
                                     scope="subtree" if search.below else "base", may_lack=True, most=100)
        return [Entry.of(entry.dn, entry.values) for entry in answer.entries]

    def _one(self, search: Search | None) -> Entry | None:
        found = [] if search is None else self._entries(search)
        assert len(found) < 2
        return found[0] if found else None
