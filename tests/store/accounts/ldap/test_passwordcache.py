"""A password that the directory has proved to one process need not be proved to another while the entry is the same.

Two processes are two directories over one store here, with the memory that all processes of a server have.
"""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from store.accounts.base import Status
from store.accounts.ldap.ldapdirectory import LdapDirectory
from store.accounts.ldap.ldapsettings import Settings
from store.accounts.passwordcache import VerifiedPasswords
from store.accounts.throttle.loginmemory import LoginMemory
from store.accounts.throttle.sharedcache import Remembered
from store.errors import Problem, StoreError
from store.store import Store
from store.values import Secret
from tests.store.accounts.ldap import ldap_place
from tests.store.accounts.ldap.ldap_place import HERE, PEOPLE, asked
from tests.store.accounts.ldap.ldap_support import MAP, Clock, settings_for
from tests.support.faults.planted import Faults
from tests.support.servers.slapd import SERVICE, Slapd, person

pytestmark = pytest.mark.few_folders

slapd, clock, store = ldap_place.slapd, ldap_place.clock, ldap_place.store
SECRET, CHANGED = Secret(b"secret"), Secret(b"changed")
MINUTE = 60
_numbers = count(1)

Process = Callable[..., LdapDirectory]


@pytest.fixture
def process(slapd: Slapd, store: Store, tmp_path: Path, clock: Clock) -> Iterator[Process]:
    """Makes another process of the server: its directory, which has asked nobody yet."""
    place = LoginMemory.shared()

    def make(settings: Settings | None = None, remember_for: float = 300) -> LdapDirectory:
        made = LdapDirectory(store.mailboxes, "example.org", settings or settings_for(tmp_path, slapd),
                             evolve(MAP, default_host=HERE), clock)
        made.here = store.directory.here
        made._verified = VerifiedPasswords(clock, remember_for)
        memory = Remembered.at(place)
        memory.clock = clock
        made.share(memory)
        return made

    yield make
    os.close(place.handle)


@pytest.fixture
def user(slapd: Slapd) -> str:
    """One who is in the directory since just now."""
    name = f"user{next(_numbers)}"
    slapd.add(person(name))
    return name


def set_password(slapd: Slapd, user: str, password: str) -> None:
    slapd.change(f"dn: uid={user},{PEOPLE}\nchangetype: modify\nreplace: userPassword\nuserPassword: {password}\n")


def is_refused(directory: LdapDirectory, user: str, password: Secret) -> bool:
    with pytest.raises(StoreError) as refused:
        directory.authenticate(user, password)
    return refused.value.problem is Problem.BAD_LOGIN


def binds(found: list[str]) -> list[str]:
    return [text for text in found if text.startswith("bind ")]


def test_another_process_asks_for_the_entry_and_not_for_a_bind(process: Process, user: str,
                                                               faults: Faults) -> None:
    one, two = process(), process()
    assert one.authenticate(user, SECRET).user == user
    found = asked(faults)
    assert two.remembers(user, SECRET) is None                  # what the entry says has to be asked
    assert two.authenticate(f"{user}@example.org", SECRET).user == user
    assert len(found) == 1 and not binds(found)
    assert two.remembers(user, SECRET) is not None and len(found) == 1


def test_any_other_password_is_proved_and_refused(process: Process, user: str, faults: Faults) -> None:
    one, two = process(), process()
    one.authenticate(user, SECRET)
    found = asked(faults)
    for password in (CHANGED, Secret(b""), Secret(b"secret\0"), Secret(b"\xff")):
        assert is_refused(two, user, password)
    assert is_refused(two, "bob", CHANGED) and len(binds(found)) == 5


@pytest.mark.parametrize("what", ["userPassword: changed", "employeeType: disabled", "description: x"])
def test_an_entry_that_has_changed_is_another(process: Process, slapd: Slapd, user: str, what: str,
                                              faults: Faults) -> None:
    """Also within the second in which it was made."""
    one, two = process(), process()
    one.authenticate(user, SECRET)
    attribute = what.partition(":")[0]
    slapd.change(f"dn: uid={user},{PEOPLE}\nchangetype: modify\nreplace: {attribute}\n{what}\n")
    found = asked(faults)
    if attribute == "description":
        assert two.authenticate(user, SECRET).user == user
    else:
        assert is_refused(two, user, SECRET)
    assert len(binds(found)) == 1


def test_an_entry_that_was_made_anew_is_another(process: Process, slapd: Slapd, user: str) -> None:
    one, two = process(), process()
    one.authenticate(user, SECRET)
    slapd.delete(f"uid={user},{PEOPLE}")
    slapd.add(person(user, "changed"))
    assert is_refused(two, user, SECRET) and two.authenticate(user, CHANGED).user == user


def test_a_flush_ends_it_for_all(process: Process, user: str, faults: Faults) -> None:
    one, two = process(), process()
    one.authenticate(user, SECRET)
    two.authenticate(user, SECRET)
    one.flush()
    for each in (one, two):
        assert each.fetch(user) is not None                     # mail has come: the entry is known, and is as it was
        assert each.remembers(user, SECRET) is None
        each.drop(user)
    found = asked(faults)
    assert one.authenticate(user, SECRET).user == user and two.authenticate(user, SECRET).user == user
    assert len(binds(found)) == 1


@pytest.mark.parametrize(("cache_time", "remember_for"), [(MINUTE, 300), (900, MINUTE)])
def test_it_lasts_no_longer_than_answers_nor_than_passwords(
        process: Process, slapd: Slapd, tmp_path: Path, user: str, clock: Clock, faults: Faults,
        cache_time: float, remember_for: float) -> None:
    """directory.cache_time, login.remember_time"""
    settings = evolve(settings_for(tmp_path, slapd), cache_time=cache_time)
    one, two = process(settings, remember_for), process(settings, remember_for)
    one.authenticate(user, SECRET)
    found = asked(faults)
    clock.now += MINUTE - 1
    assert two.authenticate(user, SECRET).user == user and not binds(found)
    clock.now += 2                                              # that did not make it last longer
    for each in (one, two):
        each.drop(user)
        each.fetch(user)
        assert each.remembers(user, SECRET) is None
    assert two.authenticate(user, SECRET).user == user and len(binds(found)) == 1


@pytest.mark.parametrize(("cache_time", "remember_for"), [(0, 300), (900, 0)])
def test_every_login_can_be_proved(process: Process, slapd: Slapd, tmp_path: Path, user: str,
                                   faults: Faults, cache_time: float, remember_for: float) -> None:
    settings = evolve(settings_for(tmp_path, slapd), cache_time=cache_time)
    one, two = process(settings, remember_for), process(settings, remember_for)
    found = asked(faults)
    for each in (one, two, one):
        each.authenticate(user, SECRET)
    assert len(binds(found)) == 3


def test_without_a_time_of_its_change_every_process_has_it_proved(tmp_path: Path, process: Process) -> None:
    """Such an entry looks the same with another password."""
    rules = f"""\
access to attrs=userPassword by anonymous auth by * none
access to attrs=modifyTimestamp,entryCSN by * none
access to * by dn.base="{SERVICE}" read by * none
"""
    with Slapd(tmp_path / "reticent", rules=rules) as reticent:
        reticent.add(person("alice"))
        one, two = (process(settings_for(tmp_path, reticent)) for _ in range(2))
        one.authenticate("alice", SECRET)
        set_password(reticent, "alice", "changed")
        assert is_refused(two, "alice", SECRET)


def test_a_status_that_is_not_in_the_entry_counts(process: Process, user: str,
                                                  faults: Faults) -> None:
    """That of the domain."""
    one, two = process(), process()
    account = one.authenticate(user, SECRET)

    def closed(read: Any, *words: object) -> object:
        found, host = read(*words)
        return evolve(found, account=evolve(account, status=Status.INACTIVE)), host

    faults.around(two, "_read", closed)
    assert is_refused(two, user, SECRET)
