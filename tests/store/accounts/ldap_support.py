"""Directories for tests: a store whose users a slapd has, read by a map that needs no schema of ours."""

from pathlib import Path

from attrs import evolve

from store.accounts.ldap.ldapdirectory import LdapDirectory
from store.accounts.ldap.ldapentry import Here
from store.accounts.ldap.ldapprofiles import MapSettings
from store.accounts.ldap.ldapsettings import Settings
from store.opening import make_empty_store, open_store
from store.store import Store
from tests.support.servers.slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd
from tests.support.stores.stores import SMALL

FILTER = "(&(objectClass=inetOrgPerson)(|(uid={user})(mail={address})))"
ATTRIBUTES = ("mail=mail", "aliases=mail", "status=employeeType", "host=departmentNumber", "quota=employeeNumber",
              "partition=roomNumber", "access=carLicense")
MAP = MapSettings(profile="posix", base=BASE, user_filter=FILTER, group_filter="none", attributes=ATTRIBUTES)
OPTIONS = {"directory.profile": "posix", "directory.base": BASE, "directory.user_filter": FILTER,
           "directory.group_filter": "none", "directory.attributes": ",".join(ATTRIBUTES)}
QUICK = Settings(starttls=False, bind_dn=SERVICE, retry_first=0.0, retry_longest=0.0)


class Clock:
    """Goes on when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def settings_for(folder: Path, *slapds: Slapd, base: Settings = QUICK) -> Settings:
    """Those of a directory on these servers."""
    file = folder / "service-password"
    file.write_text(SERVICE_PASSWORD + "\n")
    return evolve(base, uris=tuple(slapd.uri for slapd in slapds), bind_password_file=file)


def open_with_ldap(root: Path, settings: Settings, host: str = "", map_settings: MapSettings = MAP,
               clock: Clock | None = None) -> tuple[Store, LdapDirectory]:
    """A store with that directory; made if it is not there."""
    if not (root / "mboxlist").exists():
        make_empty_store(root)
    more = {} if clock is None else {"clock": clock}
    store = open_store(root, evolve(SMALL, host=host), directory=lambda mailboxes, domain: LdapDirectory(
        mailboxes, domain, settings, map_settings, **more))
    directory = store.directory
    assert isinstance(directory, LdapDirectory)
    directory.here = lambda: Here(host, frozenset(store.partitions), "primary")
    return store, directory
