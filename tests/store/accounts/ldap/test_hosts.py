"""The directory in LDAP: on which back end the mail is, and what it should not say."""

import errno
import logging
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from mboxlist.engine.btree import Txn
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact
from mboxlist.usermoves import Move, Phase
from store.accounts.base import Status
from store.accounts.ldap.ldapdirectory import LdapDirectory
from store.accounts.ldap.ldappool import Servers
from store.errors import Problem, StoreError
from store.store import Store
from tests.store.accounts.ldap import ldap_place
from tests.store.accounts.ldap.ldap_place import HERE, PEOPLE, login, refusal
from tests.store.accounts.ldap.ldap_support import MAP, QUICK, Clock, open_with_ldap, settings_for
from tests.support.faults.planted import Faults
from tests.support.servers.slapd import ROOT, ROOT_PASSWORD, SERVICE, Slapd, person

pytestmark = pytest.mark.few_folders

slapd, clock, store, directory = ldap_place.slapd, ldap_place.clock, ldap_place.store, ldap_place.directory


# Where the mail is

@pytest.fixture
def writing(slapd: Slapd, tmp_path: Path) -> Iterator[tuple[Store, LdapDirectory, Clock]]:
    """A back end that may tell the directory of moves, with a user."""
    clock, file = Clock(), tmp_path / "root-password"
    file.write_text(ROOT_PASSWORD)
    settings = evolve(settings_for(tmp_path, slapd), write_dn=ROOT, write_password_file=file, cache_host_time=10)
    store, directory = open_with_ldap(tmp_path / "store", settings, HERE, MAP, clock)
    if not slapd.search("(uid=mover)", "1.1"):
        slapd.add(person("mover", "secret", f"departmentNumber: {HERE}"))
    directory.set_host("mover", HERE)
    assert directory.fetch("mover") is not None
    yield store, directory, clock
    store.close()


def host(directory: LdapDirectory) -> str:
    """Where the row says that the mover's mail is."""
    row = directory.find("mover")
    assert row is not None
    return row.host


def set_row(store: Store, directory: LdapDirectory, host: str, move: Move | None) -> None:
    """As a move does, in one transaction."""
    def work(txn: Txn) -> None:
        row = directory.user("mover", txn)
        assert row is not None
        directory.write(evolve(row, account=evolve(row.account, host=host)), txn)
        store.mailboxes.moves.forget("mover", txn)
        if move is not None:
            store.mailboxes.moves.put(move, txn)

    transact(store.mailboxes.env, work)


def test_the_directory_is_told_of_a_move(writing: tuple[Store, LdapDirectory, Clock], slapd: Slapd) -> None:
    _, directory, clock = writing
    assert directory.may_set_hosts()
    directory.set_host("mover", "two.example.org")
    directory.set_host("mover", "two.example.org")              # no harm
    assert "departmentNumber: two.example.org\n" in slapd.search("(uid=mover)", "departmentNumber")
    clock.now += 901
    assert directory.fetch("mover") is not None and host(directory) == "two.example.org"
    directory.try_set_host("mover")
    assert "departmentNumber: two.example.org\n" in slapd.search("(uid=mover)", "departmentNumber")
    if not slapd.search("(uid=hostless)", "1.1"):
        slapd.add(person("hostless"))
    directory.try_set_host("hostless")                          # as good as what it had
    assert f"departmentNumber: {HERE}\n" in slapd.search("(uid=hostless)", "departmentNumber")
    with pytest.raises(StoreError) as refused:
        directory.set_host("nobody", HERE)
    assert refused.value.problem is Problem.UNAVAILABLE


def test_no_move_begins_where_the_directory_cannot_be_told(directory: LdapDirectory) -> None:
    assert not directory.may_set_hosts()
    for refused in (partial(directory.set_host, "alice", HERE), partial(directory.try_set_host, "alice")):
        with pytest.raises(StoreError, match="directory.write_dn"):
            refused()


def test_who_may_not_write_is_told_before_a_move(tmp_path: Path, slapd: Slapd) -> None:
    """RFC 4511 A.2: insufficientAccessRights is 50."""
    reading = settings_for(tmp_path, slapd)
    settings = evolve(reading, write_dn=SERVICE, write_password_file=reading.bind_password_file)
    store, directory = open_with_ldap(tmp_path / "store", settings, HERE, MAP, Clock())
    with pytest.raises(StoreError, match=r"directory\.write_dn.*\(50\)") as refused:
        directory.try_set_host("other")
    assert refused.value.problem is Problem.UNAVAILABLE
    assert "departmentNumber: two.example.org\n" in slapd.search("(uid=other)", "departmentNumber")
    store.close()


@pytest.mark.parametrize(("row", "phase", "says"), [
    ("two.example.org", Phase.GONE, HERE),      # gone from here, and the directory has not been told yet
    ("two.example.org", Phase.LEFT, HERE),
    ("two.example.org", Phase.READY, HERE),     # comes here; the directory has been told, the copy is not active yet
    (HERE, Phase.HERE, "two.example.org")])     # here, and a replica does not know it yet
def test_while_a_user_moves_the_move_decides(writing: tuple[Store, LdapDirectory, Clock], row: str, phase: Phase,
                                             says: str) -> None:
    store, directory, clock = writing
    set_row(store, directory, row, Move("mover", "1", phase, "two.example.org"))
    directory.set_host("mover", says)
    clock.now += 901
    account = directory.fetch("mover")
    assert account is not None and account.host == row and host(directory) == row
    set_row(store, directory, row, None)
    clock.now += 901
    assert directory.fetch("mover") is not None
    assert host(directory) == says


def test_what_cannot_be_written_keeps_nobody_out(writing: tuple[Store, LdapDirectory, Clock], faults: Faults) -> None:
    """The volume takes no writes: what the directory says counts, and the row says it later."""
    _, directory, _ = writing
    account = directory.find("mover")
    assert account is not None
    faults.fail(Env, "begin", OSError(errno.EROFS, os.strerror(errno.EROFS)),
                when=lambda *_, reads=False, **__: not reads)
    assert directory.mirror(evolve(account, status=Status.HOLD)).status is Status.HOLD
    faults.mend()
    row = directory.user("mover")
    assert row is not None and row.account.status is account.status


def test_a_move_while_the_answer_is_on_its_way(writing: tuple[Store, LdapDirectory, Clock],
                                               faults: Faults) -> None:
    """Here and employeeType are said; before that is written the user has gone, and must not come back by it."""
    store, directory, clock = writing
    faults.before(directory, "alter", lambda *_: set_row(
        store, directory, "two.example.org", Move("mover", "1", Phase.GONE, "two.example.org")))
    clock.now += 901
    account = directory.find("mover")
    assert account is not None
    directory.mirror(evolve(account, status=Status.HOLD))
    assert host(directory) == "two.example.org"


@pytest.mark.parametrize("begun", [False, True])
def test_a_whole_move_while_the_answer_is_on_its_way(writing: tuple[Store, LdapDirectory, Clock], begun: bool,
                                                     faults: Faults) -> None:
    """The directory has said that the user is here; when that is written the user is somewhere else for good."""
    store, directory, clock = writing
    if begun:
        set_row(store, directory, "two.example.org", Move("mover", "1", Phase.GONE, "two.example.org"))
    faults.before(directory, "mirror", lambda *_: set_row(store, directory, "two.example.org", None))
    clock.now += 901
    account = directory.fetch("mover")
    assert account is not None and account.host == host(directory) == "two.example.org"


def test_where_the_mail_is_a_replica_is_not_believed(writing: tuple[Store, LdapDirectory, Clock], slapd: Slapd,
                                                     tmp_path: Path) -> None:
    """It may be behind, and bring back a user who has gone."""
    store, directory, clock = writing
    with Slapd(tmp_path / "behind") as behind:
        behind.add(person("mover", "secret", f"departmentNumber: {HERE}"))
        directory.servers = Servers(settings_for(tmp_path, behind))
        directory.set_host("mover", "two.example.org")
        set_row(store, directory, "two.example.org", None)
        clock.now += 901
        account = directory.fetch("mover")
        assert account is not None and account.host == "two.example.org" and host(directory) == "two.example.org"
        directory.servers.close()


def test_that_the_mail_is_elsewhere_is_believed_for_a_short_time(store: Store, slapd: Slapd, directory: LdapDirectory,
                                                                 clock: Clock) -> None:
    """cache_host_time 10 s"""
    assert directory.fetch("other") is not None and directory.at_once("other") is not None
    clock.now += 11
    assert directory.at_once("other") is None


# What the directory should not say

def unavailable(directory: LdapDirectory, name: str) -> str:
    """The detail, for the log."""
    with pytest.raises(StoreError) as refused:
        directory.fetch(name)
    assert refused.value.problem is Problem.UNAVAILABLE
    return refused.value.detail


def test_two_entries_for_one_address(store: Store, directory: LdapDirectory, caplog: pytest.LogCaptureFixture) -> None:
    assert "uid=first" in unavailable(directory, "both@example.org")
    assert "uid=first" in caplog.text and "uid=second" in caplog.text
    assert refusal(store, "both") is Problem.UNAVAILABLE
    assert directory.fetch("first") is not None         # the users themselves are known


def test_an_entry_without_a_name(store: Store, directory: LdapDirectory, caplog: pytest.LogCaptureFixture) -> None:
    assert "cn=nameless" in unavailable(directory, "nameless@example.org")
    assert refusal(store, "nameless") is Problem.UNAVAILABLE
    assert refusal(store, "nameless", b"wrong") is Problem.BAD_LOGIN
    assert "cn=nameless" in caplog.text


def test_garbage_as_a_quota_is_no_account_without_a_limit(store: Store, slapd: Slapd, directory: LdapDirectory) -> None:
    slapd.add(person("greedy", "secret", "employeeNumber: lots"))
    assert "lots" in unavailable(directory, "greedy")
    assert refusal(store, "greedy") is Problem.UNAVAILABLE
    assert directory.find("greedy") is None


def test_a_directory_whose_contents_are_not_to_be_seen_makes_nobody_unknown(slapd: Slapd, tmp_path: Path) -> None:
    """To one who may not read it, it looks empty (the service's rights, or its database, were lost)."""
    settings = evolve(settings_for(tmp_path, slapd), bind_dn=f"uid=bob,{PEOPLE}")
    assert settings.bind_password_file is not None
    settings.bind_password_file.write_text("secret")
    store, directory = open_with_ldap(tmp_path / "store", settings)
    unavailable(directory, "alice")
    unavailable(directory, "nobody")
    store.close()


@pytest.mark.parametrize("base", ["ou=nowhere,dc=example,dc=org", "dc=nowhere"])
def test_a_base_that_is_not_there_makes_nobody_unknown(slapd: Slapd, tmp_path: Path, base: str) -> None:
    store, directory = open_with_ldap(tmp_path / "store", settings_for(tmp_path, slapd),
                                  map_settings=evolve(MAP, base=base))
    unavailable(directory, "nobody")
    assert refusal(store, "alice") is Problem.UNAVAILABLE
    store.close()


def test_a_service_that_is_not_let_in(slapd: Slapd, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, slapd)
    assert settings.bind_password_file is not None
    settings.bind_password_file.write_text("wrong")
    store, directory = open_with_ldap(tmp_path / "store", settings)
    assert "bind_dn" in unavailable(directory, "alice")
    store.close()


def test_nobody_answers(tmp_path: Path, slapd: Slapd, caplog: pytest.LogCaptureFixture) -> None:
    """Except for what is still believed."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    with Slapd(tmp_path / "own") as own:
        own.add(person("alice"))
        store, directory = open_with_ldap(tmp_path / "store", settings_for(tmp_path, own, base=QUICK), clock=clock)
        assert login(store, "alice") == "alice"
        own.kill()
        assert login(store, "alice") == "alice" and directory.fetch("alice") is not None
        assert refusal(store, "alice", b"wrong") is Problem.UNAVAILABLE
        unavailable(directory, "bob")
        clock.now += 901
        unavailable(directory, "alice")
        assert refusal(store, "alice") is Problem.UNAVAILABLE
        row = directory.find("alice")
        assert row is not None and row.status is Status.ACTIVE      # nobody is taken to be gone
        own.start()
        assert login(store, "alice") == "alice"
        store.close()
    assert "Traceback" not in caplog.text and "secret" not in caplog.text
