"""A slapd with some people, and a store that asks it."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from attrs import evolve

from store import offload
from store.accounts.ldap.ldapdirectory import LdapDirectory
from store.accounts.ldap.ldappool import Servers
from store.errors import Problem, StoreError
from store.net import authentication
from store.store import Store
from store.values import Secret
from tests.store.accounts.ldap.ldap_support import MAP, Clock, open_with_ldap, settings_for
from tests.support.faults.planted import Faults
from tests.support.servers.slapd import BASE, Slapd, person

HERE = "one.example.org"
PEOPLE = f"ou=people,{BASE}"


@pytest.fixture(scope="module")
def slapd() -> Iterator[Slapd]:
    with TemporaryDirectory(prefix="onecopy-") as folder, Slapd(Path(folder) / "slapd") as running:
        running.add("".join([
            person("alice", "secret", "mail: info@example.org"), person("bob"),
            person("idle", "secret", "employeeType: inactive"),
            person("other", "secret", "departmentNumber: two.example.org"),
            person("first", "secret", "mail: both@example.org"), person("second", "secret", "mail: both@example.org"),
            person("a(b)&c=d"),
            f"dn: cn=nameless,{PEOPLE}\nobjectClass: inetOrgPerson\nsn: x\nmail: nameless@example.org\n"
            "userPassword: secret\n\n"]))
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(slapd: Slapd, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    opened, _ = open_with_ldap(tmp_path / "store", settings_for(tmp_path, slapd), HERE,
                           evolve(MAP, default_host=HERE), clock)
    yield opened
    opened.close()


@pytest.fixture
def directory(store: Store) -> LdapDirectory:
    assert isinstance(store.directory, LdapDirectory)
    return store.directory


def login(store: Store, name: str, password: bytes = b"secret") -> str:
    return offload.now(authentication.account_that_logs_in(store, name, Secret(password))).user


def refusal(store: Store, name: str, password: bytes = b"secret") -> Problem:
    with pytest.raises(StoreError) as refused:
        login(store, name, password)
    return refused.value.problem


def asked(faults: Faults) -> list[str]:
    """What the servers are asked from now on."""
    found: list[str] = []
    faults.before(Servers, "search", lambda servers, base, filter, *_, **__: found.append(filter))
    faults.before(Servers, "proves", lambda servers, dn, *_, **__: found.append(f"bind {dn}"))
    return found
