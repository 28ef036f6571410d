"""The directory in LDAP, asked of a real slapd: who is who, what is mirrored, and what is believed for how long."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store import hosting, offload
from store.accounts.base import Status
from store.accounts.builtin import BuiltinDirectory
from store.accounts.ldap.ldapdirectory import LdapDirectory
from store.accounts.ldap.ldappool import Servers
from store.errors import Problem, StoreError
from store.mailboxes import firstuse
from store.net.authentication import Authenticator
from store.store import Store
from store.users import lifecycle
from store.values import Secret
from tests.conftest import MEMORY
from tests.store.accounts.ldap import ldap_place
from tests.store.accounts.ldap.ldap_place import HERE, PEOPLE, asked, login, refusal
from tests.store.accounts.ldap.ldap_support import MAP, Clock, open_with_ldap, settings_for
from tests.support.faults.planted import Faults
from tests.support.servers.slapd import SERVICE, Slapd, person
from tests.support.stores.stores import HASH

pytestmark = pytest.mark.few_folders

slapd, clock, store, directory = ldap_place.slapd, ldap_place.clock, ldap_place.store, ldap_place.directory


# Logging in

def test_the_right_password_lets_in(store: Store) -> None:
    assert login(store, "alice") == "alice"
    assert login(store, "ALICE@example.org") == "alice"


@pytest.fixture(scope="module")
def shared(slapd: Slapd) -> Iterator[Store]:
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        opened, _ = open_with_ldap(Path(folder) / "store", settings_for(Path(folder), slapd))
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
                                                                  faults: Faults) -> None:
    """RFC 4513 §6.3.1 is the attack; what takes the time are searches and binds."""
    assert refusal(store, "nobody") is Problem.BAD_LOGIN       # that the directory is whole need not be found out again
    kinds = []
    found = asked(faults)
    for name in ("alice", "nobody2", "idle"):
        assert refusal(store, name, b"wrong") is Problem.BAD_LOGIN
        kinds.append([text.partition(" ")[0] == "bind" for text in found])
        found.clear()
    assert kinds == [[False, True]] * 3


def test_no_bind_is_made_without_a_password(store: Store, slapd: Slapd, directory: LdapDirectory,
                                            faults: Faults) -> None:
    """RFC 4513 §5.1.2"""
    faults.forbid(Servers, "_connect")
    assert not directory.servers.proves(f"uid=alice,{PEOPLE}", Secret(b""))
    assert not directory.servers.proves("", Secret(b"secret"))


def test_a_password_found_right_is_remembered_for_the_entry_as_it_was(
        store: Store, slapd: Slapd, directory: LdapDirectory, clock: Clock, faults: Faults) -> None:
    slapd.add(person("changes"))
    assert login(store, "changes") == "changes"
    found = asked(faults)
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
    authenticator = Authenticator.of(store)
    assert offload.now(authenticator.find_named(("nobody@example.org", "bob@example.org"))).user == "bob"
    for names, problem in {("info",): Problem.BAD_LOGIN, ("nobody", "idle"): Problem.BAD_LOGIN,
                           ("both", "alice"): Problem.UNAVAILABLE}.items():
        with pytest.raises(StoreError) as refused:
            offload.now(authenticator.find_named(names))
        assert refused.value.problem is problem


def test_scram_is_not_offered(directory: LdapDirectory) -> None:
    assert not directory.has_keys
    assert directory.find_keys("alice", "SCRAM-SHA-256")[1] is None


def test_a_local_user_is_known_here_alone(slapd: Slapd, tmp_path: Path, faults: Faults) -> None:
    settings = evolve(settings_for(tmp_path, slapd), local=("proxy", "bob"))
    store, directory = open_with_ldap(tmp_path / "store", settings, HERE, evolve(MAP, default_host=HERE))
    directory.add("proxy", HASH)
    with pytest.raises(StoreError):
        directory.add("alice", HASH)                            # whom the directory has, or has not
    found = asked(faults)
    assert login(store, "proxy") == "proxy"
    assert refusal(store, "bob") is Problem.BAD_LOGIN          # whatever the directory says
    assert found == []
    store.close()


def test_a_password_of_before_the_directory_lets_nobody_in(slapd: Slapd, tmp_path: Path) -> None:
    store, directory = open_with_ldap(tmp_path / "store", settings_for(tmp_path, slapd), HERE,
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
                                                   faults: Faults) -> None:
    assert directory.look_up("alice") is None
    found = asked(faults)
    for address in ("info@example.org", "alice@EXAMPLE.org", "INFO"):
        account = offload.now(hosting.look_up(store, address))
        assert account is not None and account.user == "alice"
    assert len(found) == 1              # the alias; then the user is known, too
    row = directory.find("alice")
    assert row is not None and row.aliases == ("info",) and directory.look_up("info") == row


def test_what_has_not_changed_is_not_written(store: Store, directory: LdapDirectory, clock: Clock,
                                             faults: Faults) -> None:
    assert directory.fetch("alice") is not None
    faults.forbid(directory, "_change")
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
                                                   faults: Faults) -> None:
    def flushed(name: str) -> None:
        directory.flush()               # while the answer is on its way
        directory.at_once("alice")      # and another thread has seen that

    faults.after(directory, "_entry", flushed)
    assert directory.fetch("bob") is not None and directory.at_once("bob") is None
    assert directory.fetch("nobody at all") is None and directory.at_once("nobody at all") is None


def test_a_user_of_another_back_end_is_not_mirrored(store: Store, slapd: Slapd, directory: LdapDirectory,
                                                    clock: Clock) -> None:
    account = offload.now(hosting.look_up(store, "other"))
    assert account is not None and account.host == "two.example.org" and not hosting.is_here(store, account)
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
    firstuse.inbox(store, account)
    slapd.delete(f"uid=leaves,{PEOPLE}")
    clock.now += 901
    assert directory.fetch("leaves") is None and directory.fetch("leaving") is None
    row = directory.find("leaves")
    assert row is not None and row.status is Status.DELETED and row.removed > 0 and row.aliases == ()
    clock.now += 61
    assert directory.fetch("leaves") is None and directory.find("leaves") == row        # since when, stays
    assert list(lifecycle.due(store, row.removed + 10 ** 9)) == []  # only `onecopy user purge` takes the mail away
    assert store.entry(MailboxName("leaves", "INBOX"))
    slapd.add(person("leaves"))
    clock.now += 61
    back = directory.fetch("leaves")
    assert back is not None and back.status is Status.ACTIVE and back.removed == 0


def test_nobody_is_gone_as_long_as_one_server_has_them(slapd: Slapd, tmp_path: Path) -> None:
    """A replica that is behind, or that is filled at this moment, would have mail refused for good."""
    with Slapd(tmp_path / "behind") as behind:
        behind.add(person("second", "secret", "mail: behind@example.org"))
        store, directory = open_with_ldap(tmp_path / "store", settings_for(tmp_path, behind, slapd))
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
