"""App passwords of users of a real slapd: nothing is written there, and what it says of the account holds."""

import base64
import time

import pytest
from attrs import evolve
from twisted.internet.task import Clock as Reactor

import imap.protocol
import imap.settings
from store.accounts.apppasswords import apppassword
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.loginsettings import REQUIRED, Settings
from store.check.wholecheck import check
from store.net import authentication
from store.net.authentication import Authenticator
from store.store import Store
from tests.store.accounts.ldap import ldap_place
from tests.store.accounts.ldap.ldap_place import PEOPLE, asked
from tests.support.conversations.wire import Wire
from tests.support.faults.planted import Faults

pytestmark = pytest.mark.few_folders

slapd, clock, store = ldap_place.slapd, ldap_place.clock, ldap_place.store
SETTINGS = Settings(slow_first=0)


@pytest.fixture(autouse=True)
def attached(store: Store) -> None:
    authentication.attach(store, SETTINGS)


def make(store: Store, user: str) -> bytes:
    made, shown = apppassword.make("phone", ("imap",), read_only=False, now=time.time())
    AccessFiles(store.root).change(user, lambda before: before.with_password(made, 0))
    return shown.encode()


def login(store: Store, user: str, password: bytes) -> bytes:
    reactor = Reactor()
    wire = Wire(imap.protocol.factory(store, imap.settings.Settings(), reactor), reactor)
    wire.send(b"a AUTHENTICATE PLAIN " + base64.b64encode(b"\0".join((b"", user.encode(), password))) + b"\r\n")
    answer = wire.received().splitlines()[-1]
    wire.hang_up()
    return answer


def test_a_user_who_has_never_been_here_logs_in_by_one(store: Store) -> None:
    shown = make(store, "alice")
    assert store.directory.find("alice") is None                # no row
    assert login(store, "alice", shown).startswith(b"a OK")
    assert login(store, "alice", b"secret").startswith(b"a OK")
    assert login(store, "bob", shown) == login(store, "bob", b"wrong") == login(store, "nobody", shown)
    assert check(store) == []


def test_an_account_that_may_not_log_in_does_not_by_one(store: Store) -> None:
    assert login(store, "idle", make(store, "idle")) == login(store, "alice", b"wrong")


def test_a_password_that_does_not_do_is_not_tried_at_the_users_entry(store: Store, faults: Faults) -> None:
    """A server that counts wrong passwords would lock it: a program that has the old password asks every minute. What
    is asked is as many searches and binds as for a wrong password."""
    found = asked(faults)
    login(store, "alice", b"wrong")
    usual = [text.split()[0] for text in found]
    assert any(text.startswith(f"bind uid=alice,{PEOPLE}") for text in found)
    Authenticator.of(store).follow(evolve(SETTINGS, app_passwords=REQUIRED))
    found.clear()
    assert login(store, "alice", b"secret").startswith(b"a NO")
    assert [text.split()[0] for text in found] == usual
    assert not any(f"bind uid=alice,{PEOPLE}" in text for text in found)
