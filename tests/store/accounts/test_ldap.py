"""The directory in LDAP, asked of a real slapd: who is who, what is mirrored, and what is believed for how long."""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from attrs import evolve

from mboxlist.kv import Txn, transact
from mboxlist.moves import Move, Phase
from mboxlist.names import MailboxName
from store import users
from store.accounts.base import Status
from store.accounts.builtin import BuiltinDirectory
from store.accounts.ldap import LdapDirectory
from store.accounts.ldappool import Servers
from store.errors import Problem, StoreError
from store.net import offload
from store.net.entrance import Entrance
from store.store import Store
from store.values import Secret
from tests.conftest import MEMORY
from tests.store.accounts.ldap_support import MAP, QUICK, Clock, open_store, settings_for
from tests.support.slapd import BASE, ROOT, ROOT_PASSWORD, SERVICE, Slapd, person
from tests.support.stores import HASH

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
    opened, _ = open_store(tmp_path / "store", settings_for(tmp_path, slapd), HERE,
                           evolve(MAP, default_host=HERE), clock)
    yield opened
    opened.close()


@pytest.fixture
def directory(store: Store) -> LdapDirectory:
    assert isinstance(store.directory, LdapDirectory)
    return store.directory


def login(store: Store, name: str, password: bytes = b"secret") -> str:
    return offload.now(offload.authenticate(store, name, Secret(password))).user


def refusal(store: Store, name: str, password: bytes = b"secret") -> Problem:
    with pytest.raises(StoreError) as refused:
        login(store, name, password)
    return refused.value.problem


def asked(directory: LdapDirectory, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the servers are asked from now on."""
    found: list[str] = []
    search, proves = Servers.search, Servers.proves

    def told_search(self: Servers, base: str, filter: str, *rest: object, **more: object) -> object:
        found.append(filter)
        return search(self, base, filter, *rest, **more)        # type: ignore[arg-type]

    def told_proves(self: Servers, dn: str, password: Secret, **more: bool) -> bool:
        found.append(f"bind {dn}")
        return proves(self, dn, password, **more)

    monkeypatch.setattr(Servers, "search", told_search)
    monkeypatch.setattr(Servers, "proves", told_proves)
    return found


# Logging in

def test_the_right_password_lets_in(store: Store) -> None:
    assert login(store, "alice") == "alice"
    assert login(store, "ALICE@example.org") == "alice"


@pytest.fixture(scope="module")
def shared(slapd: Slapd) -> Iterator[Store]:
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        opened, _ = open_store(Path(folder) / "store", settings_for(Path(folder), slapd))
        yield opened
        opened.close()


@pytest.mark.parametrize(("name", "password"), [
    ("alice", b"wrong"), ("alice", b""), ("alice", b"\xff\xfe"), ("alice", b"secret\0"), ("nobody", b"secret"),
    ("info", b"secret"),                # an alias
    ("idle", b"secret"), ("*", b"secret"), ("ali*", b"secret"), ("alice)(uid=*", b"secret"), ("", b"secret"),
    ("@", b"secret"), ("a\0b", b"secret"), (SERVICE, b"for searching"), ("\\61lice", b"secret")])
def test_nothing_else_does(shared: Store, name: str, password: bytes) -> None:
    assert refusal(shared, name, password) is Problem.BAD_LOGIN


def test_signs_that_filters_are_made_of_are_part_of_a_name(store: Store) -> None:
    assert login(store, "a(b)&c=d") == "a(b)&c=d"


def test_an_unknown_user_and_a_wrong_password_are_asked_for_alike(store: Store, directory: LdapDirectory,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 4513 §6.3.1 is the attack; what takes the time are searches and binds."""
    assert refusal(store, "nobody") is Problem.BAD_LOGIN       # that the directory is whole need not be found out again
    kinds = []
    found = asked(directory, monkeypatch)
    for name in ("alice", "nobody2", "idle"):
        assert refusal(store, name, b"wrong") is Problem.BAD_LOGIN
        kinds.append([text.partition(" ")[0] == "bind" for text in found])
        found.clear()
    assert kinds == [[False, True]] * 3


def test_no_bind_is_made_without_a_password(store: Store, slapd: Slapd, directory: LdapDirectory,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 4513 §5.1.2"""
    def connect(*_: object) -> None:
        raise AssertionError("a connection for a bind")
    monkeypatch.setattr(Servers, "_connect", connect)
    assert not directory.servers.proves(f"uid=alice,{PEOPLE}", Secret(b""))
    assert not directory.servers.proves("", Secret(b"secret"))


def test_a_password_found_right_is_remembered_for_the_entry_as_it_was(
        store: Store, slapd: Slapd, directory: LdapDirectory, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    slapd.add(person("changes"))
    assert login(store, "changes") == "changes"
    found = asked(directory, monkeypatch)
    assert login(store, "changes") == "changes"
    assert found == []
    slapd.change(f"dn: uid=changes,{PEOPLE}\nchangetype: modify\nreplace: employeeType\nemployeeType: disabled\n")
    clock.now += 901
    assert refusal(store, "changes") is Problem.BAD_LOGIN
    assert directory.remembers("changes", Secret(b"secret")) is None
    row = directory.find("changes")
    assert row is not None and row.status is Status.DISABLED


def test_names_of_certificates_and_tokens_are_asked_for(store: Store) -> None:
    """They were never seen here before."""
    entrance = Entrance.of(store)
    assert offload.now(entrance.find_named(("nobody@example.org", "bob@example.org"))).user == "bob"
    for names, problem in {("info",): Problem.BAD_LOGIN, ("nobody", "idle"): Problem.BAD_LOGIN,
                           ("both", "alice"): Problem.UNAVAILABLE}.items():
        with pytest.raises(StoreError) as refused:
            offload.now(entrance.find_named(names))
        assert refused.value.problem is problem


def test_scram_is_not_offered(directory: LdapDirectory) -> None:
    assert not directory.has_keys
    assert directory.find_keys("alice", "SCRAM-SHA-256")[1] is None


def test_a_local_user_is_known_here_alone(slapd: Slapd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = evolve(settings_for(tmp_path, slapd), local=("proxy", "bob"))
    store, directory = open_store(tmp_path / "store", settings, HERE, evolve(MAP, default_host=HERE))
    directory.add("proxy", HASH)
    with pytest.raises(StoreError):
        directory.add("alice", HASH)                            # whom the directory has, or has not
    found = asked(directory, monkeypatch)
    assert login(store, "proxy") == "proxy"
    assert refusal(store, "bob") is Problem.BAD_LOGIN          # whatever the directory says
    assert found == []
    store.close()


def test_a_password_of_before_the_directory_lets_nobody_in(slapd: Slapd, tmp_path: Path) -> None:
    store, directory = open_store(tmp_path / "store", settings_for(tmp_path, slapd), HERE,
                                  evolve(MAP, default_host=HERE))
    slapd.add(person("before", "new"))
    BuiltinDirectory.add(directory, "before", HASH)             # of "secret"
    BuiltinDirectory.add(directory, "stays", HASH)              # whom the directory does not have
    assert refusal(store, "before") is Problem.BAD_LOGIN
    assert refusal(store, "stays") is Problem.BAD_LOGIN
    assert login(store, "before", b"new") == "before"
    store.close()


# Mail

def test_an_address_is_looked_up_once_and_mirrored(store: Store, directory: LdapDirectory,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    assert directory.look_up("alice") is None
    found = asked(directory, monkeypatch)
    for address in ("info@example.org", "alice@EXAMPLE.org", "INFO"):
        account = offload.now(offload.look_up(store, address))
        assert account is not None and account.user == "alice"
    assert len(found) == 1              # the alias; then the user is known, too
    row = directory.find("alice")
    assert row is not None and row.aliases == ("info",) and directory.look_up("info") == row


def test_what_has_not_changed_is_not_written(store: Store, directory: LdapDirectory, clock: Clock,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    assert directory.fetch("alice") is not None
    monkeypatch.setattr(directory, "_change", lambda work: pytest.fail("a row is written"))
    clock.now += 901
    assert directory.fetch("alice") is not None


def test_answers_are_believed_for_a_time(store: Store, slapd: Slapd, directory: LdapDirectory, clock: Clock) -> None:
    """cache_time 900 s, cache_negative_time 60 s"""
    assert directory.fetch("later") is None
    slapd.add(person("later"))
    clock.now += 59
    assert directory.fetch("later") is None
    clock.now += 2
    assert directory.fetch("later") is not None
    slapd.change(f"dn: uid=later,{PEOPLE}\nchangetype: modify\nreplace: employeeType\nemployeeType: disabled\n")
    clock.now += 899
    account = directory.fetch("later")
    assert account is not None and account.status is Status.ACTIVE
    clock.now += 2
    account = directory.fetch("later")
    assert account is not None and account.status is Status.DISABLED


def test_a_flush_counts_for_all_at_once(store: Store, slapd: Slapd, directory: LdapDirectory) -> None:
    assert login(store, "bob") == "bob"
    assert directory.fetch("flushed") is None
    slapd.add(person("flushed"))
    directory.flush()
    assert directory.at_once("bob") is None and directory.remembers("bob", Secret(b"secret")) is None
    assert directory.fetch("flushed") is not None


def test_an_answer_from_before_a_flush_is_not_kept(store: Store, directory: LdapDirectory,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    entry = directory._entry

    def slow(name: str) -> object:
        found = entry(name)
        directory.flush()               # while the answer is on its way
        directory.at_once("alice")      # and another thread has seen that
        return found

    monkeypatch.setattr(directory, "_entry", slow)
    assert directory.fetch("bob") is not None and directory.at_once("bob") is None
    assert directory.fetch("nobody at all") is None and directory.at_once("nobody at all") is None


def test_a_user_of_another_back_end_is_not_mirrored(store: Store, slapd: Slapd, directory: LdapDirectory,
                                                    clock: Clock) -> None:
    account = offload.now(offload.look_up(store, "other"))
    assert account is not None and account.host == "two.example.org" and not store.is_here(account)
    assert directory.find("other") is None
    slapd.add(person("moves"))
    assert directory.fetch("moves") is not None
    slapd.change(f"dn: uid=moves,{PEOPLE}\nchangetype: modify\nadd: departmentNumber\n"
                 "departmentNumber: two.example.org\n")
    clock.now += 901
    assert directory.fetch("moves") is not None
    row = directory.find("moves")
    assert row is not None and row.host == "two.example.org"    # the row that is there follows


def test_a_user_who_is_gone_gets_no_mail_and_keeps_it(store: Store, slapd: Slapd, directory: LdapDirectory, clock: Clock
                                                      ) -> None:
    slapd.add(person("leaves", "secret", "mail: leaving@example.org"))
    account = directory.fetch("leaves")
    assert account is not None
    store.inbox(account)
    slapd.delete(f"uid=leaves,{PEOPLE}")
    clock.now += 901
    assert directory.fetch("leaves") is None and directory.fetch("leaving") is None
    row = directory.find("leaves")
    assert row is not None and row.status is Status.DELETED and row.removed > 0 and row.aliases == ()
    clock.now += 61
    assert directory.fetch("leaves") is None and directory.find("leaves") == row        # since when, stays
    assert list(users.due(store, row.removed + 10 ** 9)) == []  # only `onecopy user purge` takes the mail away
    assert store.entry(MailboxName("leaves", "INBOX"))
    slapd.add(person("leaves"))
    clock.now += 61
    back = directory.fetch("leaves")
    assert back is not None and back.status is Status.ACTIVE and back.removed == 0


def test_nobody_is_gone_as_long_as_one_server_has_them(slapd: Slapd, tmp_path: Path) -> None:
    """A replica that is behind, or that is filled at this moment, would have mail refused for good."""
    with Slapd(tmp_path / "behind") as behind:
        behind.add(person("second", "secret", "mail: behind@example.org"))
        store, directory = open_store(tmp_path / "store", settings_for(tmp_path, behind, slapd))
        for name in ("info", "bob"):
            assert directory.fetch(name) is not None
        assert directory.fetch("nobody") is None
        directory.flush()
        assert login(store, "bob") == "bob"                     # who was there before
        row = directory.find("bob")
        assert row is not None and row.status is Status.ACTIVE
        account = directory.fetch("behind")
        assert account is not None and account.user == "second"     # the first one that has the address is believed
        store.close()


def test_an_alias_may_become_anothers(store: Store, slapd: Slapd, directory: LdapDirectory, clock: Clock) -> None:
    slapd.add(person("had", "secret", "mail: shared@example.org") + person("gets"))
    for name in ("had", "gets"):
        assert directory.fetch(name) is not None
    slapd.change(f"dn: uid=had,{PEOPLE}\nchangetype: modify\ndelete: mail\nmail: shared@example.org\n\n"
                 f"dn: uid=gets,{PEOPLE}\nchangetype: modify\nadd: mail\nmail: shared@example.org\n")
    clock.now += 901
    account = directory.fetch("shared@example.org")
    assert account is not None and account.user == "gets"
    assert directory.look_up("shared") == account and directory.wrong_aliases() == []
    account = directory.fetch("had")
    assert account is not None and account.aliases == ()


def test_an_alias_that_is_no_more(store: Store, slapd: Slapd, directory: LdapDirectory, clock: Clock) -> None:
    slapd.add(person("loses", "secret", "mail: lost@example.org"))
    assert directory.fetch("lost") is not None
    slapd.change(f"dn: uid=loses,{PEOPLE}\nchangetype: modify\ndelete: mail\nmail: lost@example.org\n")
    clock.now += 901
    assert directory.fetch("lost") is None
    assert directory.look_up("lost") is None and directory.look_up("loses") is not None


# Where the mail is

@pytest.fixture
def writing(slapd: Slapd, tmp_path: Path) -> Iterator[tuple[Store, LdapDirectory, Clock]]:
    """A back end that may tell the directory of moves, with a user."""
    clock, file = Clock(), tmp_path / "root-password"
    file.write_text(ROOT_PASSWORD)
    settings = evolve(settings_for(tmp_path, slapd), write_dn=ROOT, write_password_file=file, cache_host_time=10)
    store, directory = open_store(tmp_path / "store", settings, HERE, MAP, clock)
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
    store, directory = open_store(tmp_path / "store", settings, HERE, MAP, Clock())
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


def test_a_move_while_the_answer_is_on_its_way(writing: tuple[Store, LdapDirectory, Clock],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Here and employeeType are said; before that is written the user has gone, and must not come back by it."""
    store, directory, clock = writing
    alter = directory.alter

    def late(user: str, change: Any) -> object:
        set_row(store, directory, "two.example.org", Move("mover", "1", Phase.GONE, "two.example.org"))
        return alter(user, change)

    monkeypatch.setattr(directory, "alter", late)
    clock.now += 901
    account = directory.find("mover")
    assert account is not None
    directory.mirror(evolve(account, status=Status.HOLD))
    assert host(directory) == "two.example.org"


@pytest.mark.parametrize("begun", [False, True])
def test_a_whole_move_while_the_answer_is_on_its_way(writing: tuple[Store, LdapDirectory, Clock], begun: bool,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory has said that the user is here; when that is written the user is somewhere else for good."""
    store, directory, clock = writing
    mirror = directory.mirror
    if begun:
        set_row(store, directory, "two.example.org", Move("mover", "1", Phase.GONE, "two.example.org"))

    def late(*arguments: Any) -> object:
        set_row(store, directory, "two.example.org", None)
        return mirror(*arguments)

    monkeypatch.setattr(directory, "mirror", late)
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
    store, directory = open_store(tmp_path / "store", settings)
    unavailable(directory, "alice")
    unavailable(directory, "nobody")
    store.close()


@pytest.mark.parametrize("base", ["ou=nowhere,dc=example,dc=org", "dc=nowhere"])
def test_a_base_that_is_not_there_makes_nobody_unknown(slapd: Slapd, tmp_path: Path, base: str) -> None:
    store, directory = open_store(tmp_path / "store", settings_for(tmp_path, slapd),
                                  map_settings=evolve(MAP, base=base))
    unavailable(directory, "nobody")
    assert refusal(store, "alice") is Problem.UNAVAILABLE
    store.close()


def test_a_service_that_is_not_let_in(slapd: Slapd, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, slapd)
    assert settings.bind_password_file is not None
    settings.bind_password_file.write_text("wrong")
    store, directory = open_store(tmp_path / "store", settings)
    assert "bind_dn" in unavailable(directory, "alice")
    store.close()


def test_nobody_answers(tmp_path: Path, slapd: Slapd, caplog: pytest.LogCaptureFixture) -> None:
    """Except for what is still believed."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    with Slapd(tmp_path / "own") as own:
        own.add(person("alice"))
        store, directory = open_store(tmp_path / "store", settings_for(tmp_path, own, base=QUICK), clock=clock)
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
