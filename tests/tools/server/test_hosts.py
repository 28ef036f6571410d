"""Users whose mail another back end keeps: what each server says to them, and to those who have mail for them."""

import base64
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from attrs import evolve
from twisted.internet.task import Clock

import imap.protocol
import imap.settings
import lmtp.protocol
import lmtp.settings
import pop3.protocol
import pop3.settings
from mboxlist.names import MailboxName
from store.accounts.base import Status
from store.accounts.builtin import BuiltinDirectory
from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.passwords import hash_password
from store.net.admission import AdmissionControl
from store.net.authentication import Authenticator
from store.opening import make_empty_store, open_store
from store.partitions.holding import hold, moves_no_more
from store.settings import Settings
from store.values import Secret
from tests.conftest import MEMORY
from tests.support.conversations.wire import Wire
from tests.support.processes.program import Program
from tests.support.stores.stores import deliver

HERE, THERE = "here.example.org", "there.example.org"
# RFC 2221 §3, RFC 5092 §11: enc-user, ";AUTH=*"
REFERRAL = re.compile(rb"t NO \[REFERRAL imap://([^@/; ]+);AUTH=\*@there\.example\.org/\] [ -~]+\r\n", re.IGNORECASE)


class BackEnd:
    """One of two: alice is here, bob and carol@example.net are there, dora nowhere in particular."""

    def __init__(self, folder: Path) -> None:
        make_empty_store(folder)
        self.store = open_store(folder, Settings(host=HERE, disk_reserve=0))
        self.directory: BuiltinDirectory = self.store.directory      # type: ignore[assignment]
        hashed = hash_password(Secret(b"secret"))
        for user, host in (("alice", HERE.upper()), ("bob", "There.Example.ORG"), ("carol@example.net", THERE),
                           ("dora", ""), ("proxy", THERE), ("relay", THERE)):
            self.directory.add(user, hashed, host=host, aliases=[f"{user.partition('@')[0]}.alias"])
        self.clock = Clock()

    def begin(self, **login: object) -> None:
        """Anew, with other settings of logins."""
        self.store.owned.put(Authenticator, Authenticator(self.store, evolve(LoginSettings(slow_first=0), **login)))

    def imap(self, *, peer: str = "127.0.0.1", **changes: object) -> Wire:
        server = imap.protocol.factory(self.store, evolve(imap.settings.Settings(), **changes), self.clock,
                                       admission=AdmissionControl.open_to_all())
        return Wire(server, self.clock, peer)

    def lmtp(self) -> Wire:
        return Wire(lmtp.protocol.factory(self.store, lmtp.settings.Settings(auth_users=("relay",)), self.clock),
                    self.clock)


def said(wire: Wire, line: str) -> bytes:
    """The answer to one line."""
    wire.received()
    wire.send(line.encode() + b"\r\n")
    return wire.received()


@pytest.fixture(scope="module")
def shared() -> Iterator[BackEnd]:
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        place = BackEnd(Path(folder) / "store")
        yield place
        place.store.close()


@pytest.fixture
def back_end(shared: BackEnd, caplog: pytest.LogCaptureFixture) -> Iterator[BackEnd]:
    caplog.set_level(logging.INFO)
    shared.begin()
    yield shared
    assert not [record for record in caplog.records if record.exc_info]
    # Nobody has got a mailbox here who lives elsewhere.
    for user in ("bob", "carol@example.net", "proxy", "relay"):
        assert shared.store.mailboxes.find(MailboxName(user, "INBOX")) is None


def plain(*parts: str) -> str:
    return base64.b64encode("\0".join(parts).encode()).decode()


# IMAP

@pytest.mark.parametrize(("login", "user"), [
    ("LOGIN bob secret", b"bob"), ("LOGIN BOB@example.org secret", b"bob"),
    ("LOGIN carol@example.net secret", b"carol%40example.net"),
    (f"AUTHENTICATE PLAIN {plain('', 'bob', 'secret')}", b"bob")])
def test_a_referral(back_end: BackEnd, login: str, user: bytes) -> None:
    wire = back_end.imap()
    found = REFERRAL.fullmatch(said(wire, f"t {login}"))
    assert found and found[1] == user
    assert said(wire, "t LOGIN alice secret").startswith(b"t OK ")


def test_only_who_knows_the_password_hears_where_it_is(back_end: BackEnd) -> None:
    """RFC 2221 §6: for all others bob is like nobody."""
    users = ("bob", "alice", "nobody")
    answers = {said(back_end.imap(), f"t LOGIN {user} wrong") for user in users}
    assert len(answers) == 1 and b"there" not in answers.pop()
    answers = {said(back_end.imap(), f"t AUTHENTICATE PLAIN {plain(acts_as, user, 'wrong')}")
               for user in users for acts_as in ("", "bob", "nobody")}
    assert len(answers) == 1 and b"there" not in answers.pop()
    wires = [Wire(pop3.protocol.factory(back_end.store, pop3.settings.Settings(), back_end.clock), back_end.clock)
             for _ in users]
    answers = {said(wire, f"USER {user}") + said(wire, "PASS wrong") for wire, user in zip(wires, users, strict=True)}
    assert len(answers) == 1 and b"there" not in answers.pop()
    back_end.directory.change("bob", status=Status.DISABLED)
    assert b"there" not in said(back_end.imap(), "t LOGIN bob secret")
    back_end.directory.change("bob", status=Status.ACTIVE, access="-imap:*")
    assert b"there" not in said(back_end.imap(), "t LOGIN bob secret")
    back_end.directory.change("bob", access="")


def test_the_same_as_somebody_else(back_end: BackEnd) -> None:
    """It is the mail of whom one acts as that counts (RFC 2221 §4), wherever one's own is."""
    back_end.begin(administrators=("relay", "alice"))
    assert said(back_end.imap(), f"t AUTHENTICATE PLAIN {plain('alice', 'relay', 'secret')}").startswith(b"t OK ")
    found = REFERRAL.fullmatch(said(back_end.imap(), f"t AUTHENTICATE PLAIN {plain('bob', 'alice', 'secret')}"))
    assert found and found[1] == b"bob"


def test_who_is_nowhere_in_particular_is_here(back_end: BackEnd) -> None:
    assert said(back_end.imap(), "t LOGIN dora secret").startswith(b"t OK ")


def test_a_referral_is_no_failed_login(back_end: BackEnd) -> None:
    wire = back_end.imap(login_attempts=2)
    for _ in range(5):
        assert REFERRAL.fullmatch(said(wire, "t LOGIN bob secret"))
    assert said(wire, "t LOGIN alice secret").startswith(b"t OK ")


def test_the_capability(back_end: BackEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 2221 §3. Without another back end there is nothing to refer to."""
    for line in ("t CAPABILITY", "t LOGIN alice secret"):
        assert b" LOGIN-REFERRALS " in said(back_end.imap(), line).replace(b"\r\n", b" ")
        assert b"LOGIN-REFERRALS" not in said(back_end.imap(referrals=False), line)
    assert b"t NO [UNAVAILABLE] " in said(back_end.imap(referrals=False), "t LOGIN bob secret")
    monkeypatch.setattr(back_end.store, "settings", evolve(back_end.store.settings, host=""))
    assert b"LOGIN-REFERRALS" not in said(back_end.imap(), "t CAPABILITY")


def test_no_referral_of_a_login_through_a_proxy(back_end: BackEnd) -> None:
    """The client cannot reach the other back end; it comes to the right one when it tries again (RFC 5530 §3)."""
    wire = back_end.imap()
    wire.protocol.proxy = "10.0.0.1"
    assert b"LOGIN-REFERRALS" not in said(wire, "t CAPABILITY")
    assert said(wire, "t LOGIN bob secret").startswith(b"t NO [UNAVAILABLE] ")
    assert b"LOGIN-REFERRALS" not in said(wire, "t LOGIN alice secret")


def test_who_listens_while_a_mailbox_is_held(back_end: BackEnd) -> None:
    """At the end of a move nobody may write; what came just before is told all the same, and IDLE goes on."""
    store = back_end.store
    wire = back_end.imap()
    said(wire, "t LOGIN alice secret")
    before = int(re.search(rb"\* (\d+) EXISTS", said(wire, "t SELECT INBOX"))[1])      # type: ignore[index]
    said(wire, "t IDLE")
    deliver(store, b"Subject: x\r\n\r\nx\r\n", "user/alice/INBOX")
    entry = store.entry(MailboxName("alice", "INBOX"))
    store.partition_of(entry).transact(lambda txn: hold(txn, [entry.id]))
    back_end.clock.advance(0)
    assert re.fullmatch(rb"\* %d EXISTS\r\n\* \d+ RECENT\r\n" % (before + 1), wire.received())
    assert said(wire, "DONE").startswith(b"t OK ")
    store.partition_of(entry).transact(lambda txn: moves_no_more(txn, entry.id))


@pytest.mark.parametrize("command", [
    'SELECT "user/bob/Team Work"', 'EXAMINE "user/bob/Team Work"', 'STATUS "user/bob/Team Work" (MESSAGES)',
    'GETACL "user/bob/Team Work"', 'DELETE "user/bob/Team Work"',
    'COPY 1 "user/bob/Team Work"', 'MOVE 1 "user/bob/Team Work"'])
def test_a_mailbox_of_a_user_of_another_back_end(back_end: BackEnd, command: str) -> None:
    """RFC 2193 §3, §4: who can reach that one may ask there; RFC 5092 §11: bchar."""
    wire = back_end.imap(mailbox_referrals=True)
    said(wire, "t LOGIN alice secret")
    said(wire, "t APPEND INBOX {1+}\r\nx")
    said(wire, "t SELECT INBOX")
    answer = said(wire, f"t {command}")
    assert re.search(rb"t NO \[REFERRAL imap://alice;AUTH=\*@There\.Example\.ORG/user/bob/Team%20Work\] [ -~]+\r\n$",
                     answer), answer


@pytest.mark.parametrize("command", [
    "SELECT", "EXAMINE", "GETACL", "DELETE", "SUBSCRIBE", "RENAME x", "COPY 1", "MOVE 1", "MYRIGHTS", "GETQUOTAROOT"])
def test_who_is_elsewhere_looks_like_nobody(back_end: BackEnd, command: str) -> None:
    """And like a user of this back end who shares nothing: nobody finds out by names who there is, and where."""
    found = set()
    for user in ("bob", "carol@example.net", "dora", "nobody"):
        wire = back_end.imap()
        said(wire, "t LOGIN alice secret")
        said(wire, "t SELECT INBOX")
        found.add(said(wire, f'a {command} "user/{user}/Team"'))
    assert len(found) == 1 and b"REFERRAL" not in (answer := found.pop()) and b"There" not in answer


@pytest.mark.parametrize("name", ["user/nobody/x", "user/dora/x", "user/gone/x", "public/x", "x"])
def test_what_is_nowhere_else(back_end: BackEnd, name: str) -> None:
    """Of users without a back end of their own, of nobody, of those who are no more: as ever."""
    if back_end.directory.find("gone") is None:
        back_end.directory.add("gone", "x", host=THERE)
        back_end.directory.change("gone", status=Status.DELETED)
    wire = back_end.imap(mailbox_referrals=True)
    said(wire, "t LOGIN alice secret")
    assert said(wire, f"t SELECT {name}").startswith(b"t NO [NONEXISTENT] ")
    wire = back_end.imap(referrals=False, mailbox_referrals=True)
    said(wire, "t LOGIN alice secret")
    assert said(wire, "t SELECT user/bob/x").startswith(b"t NO [NONEXISTENT] ")


# POP3

def test_pop3_has_no_referrals(back_end: BackEnd, caplog: pytest.LogCaptureFixture) -> None:
    """RFC 2449 §8.1.2, RFC 3206 §3: it will be well again, so that the client does not ask for the password."""
    wire = Wire(pop3.protocol.factory(back_end.store, pop3.settings.Settings(), back_end.clock), back_end.clock)
    said(wire, "USER bob")
    answer = said(wire, "PASS secret")
    assert answer.startswith(b"-ERR [SYS/TEMP] ") and b"there" not in answer.lower()
    assert THERE in caplog.text.lower()
    said(wire, "USER bob")
    assert said(wire, "PASS wrong").startswith(b"-ERR [AUTH] ")
    said(wire, "USER alice")
    assert said(wire, "PASS secret").startswith(b"+OK")


# LMTP

@pytest.mark.parametrize("address", ["bob@example.org", "BOB@example.org", "bob.alias@example.org",
                                     "bob+Archive@example.org", "carol@example.net"])
def test_mail_for_another_back_end(back_end: BackEnd, caplog: pytest.LogCaptureFixture, address: str) -> None:
    """RFC 3463 §3.5, 4.4.4: it is put off, and only the log says where it belongs. The other recipient gets it."""
    wire = back_end.lmtp()
    said(wire, "LHLO relay.example.org")
    said(wire, "MAIL FROM:<x@example.com>")
    answer = said(wire, f"RCPT TO:<{address}>")
    assert answer.startswith(b"450 4.4.4 ") and b"there" not in answer.lower()
    assert THERE in caplog.text.lower()
    assert said(wire, "DATA").startswith(b"503 ")
    assert said(wire, "RCPT TO:<alice@example.org>").startswith(b"250 ")
    assert said(wire, "DATA").startswith(b"354 ")
    answer = said(wire, "Subject: x\r\n\r\nx\r\n.")
    assert answer.startswith(b"250 ") and answer.count(b"\r\n") == 1


def test_who_has_no_mail_at_all_is_told_so(back_end: BackEnd) -> None:
    """What the directory says of an account counts before where it is."""
    wire = back_end.lmtp()
    said(wire, "LHLO relay.example.org")
    said(wire, "MAIL FROM:<x@example.com>")
    for status, code in ((Status.DISABLED, b"550 5.2.1"), (Status.DELETED, b"550 5.1.1"), (Status.HOLD, b"450 4.2.1"),
                         (Status.ACTIVE, b"450 4.4.4")):
        back_end.directory.change("bob", status=status)
        assert said(wire, "RCPT TO:<bob@example.org>").startswith(code)


def test_a_relay_of_another_back_end_may_log_in(back_end: BackEnd) -> None:
    wire = back_end.lmtp()
    said(wire, "LHLO relay.example.org")
    assert said(wire, f"AUTH PLAIN {plain('', 'relay', 'secret')}").startswith(b"235 ")


def test_any_back_end_can_be_asked_who_is_there(back_end: BackEnd) -> None:
    """As Postfix asks (SMTPD_POLICY_README, socketmap_table(5))."""
    server = lmtp.protocol.verification_factory(back_end.store, lmtp.settings.Settings(), back_end.clock)

    def policy(address: str) -> bytes:
        wire = Wire(server, back_end.clock)
        wire.send(b"request=smtpd_access_policy\nrecipient=%b\nsize=100\n\n" % address.encode())
        return wire.received()

    def mapped(address: str) -> bytes:
        wire = Wire(server, back_end.clock)
        key = b"recipients " + address.encode()
        wire.send(b"%d:%b," % (len(key), key))
        return wire.received().partition(b":")[2]

    for address in ("bob@example.org", "bob+Archive@example.org", "carol@example.net", "alice@example.org"):
        assert policy(address) == b"action=DUNNO\n\n"
        assert mapped(address).startswith(b"OK ")
    assert policy("nobody@example.org").startswith(b"action=550 5.1.1 ")
    assert mapped("nobody@example.org").startswith(b"NOTFOUND ")


# Proxies

def test_a_proxy_says_for_whom_it_connects(back_end: BackEnd, caplog: pytest.LogCaptureFixture) -> None:
    """ID before login, as proxies send it: rules of access are about the client; and only proxies are believed."""
    back_end.begin(proxy_networks=("10.0.0.0/8",), proxies_use_tls=True)
    back_end.directory.change("alice", access="+imaps:192.0.2.7")
    try:
        wire = back_end.imap(peer="10.0.0.1")
        assert b"LOGINDISABLED" in said(wire, "t CAPABILITY")
        assert b"t OK " in said(wire, 't ID ("name" "front" "X-Originating-IP" "192.0.2.7" "x-proxy-ttl" "4")')
        assert b"LOGINDISABLED" not in said(wire, "t CAPABILITY")
        assert said(wire, "t LOGIN alice secret").startswith(b"t OK ")
        assert "alice logged in from 192.0.2.7" in caplog.text
        for peer in ("192.0.2.9", "127.0.0.1"):
            wire = back_end.imap(peer=peer, plaintext_login=True)
            assert b"t OK " in said(wire, 't ID ("x-originating-ip" "192.0.2.7")')
            assert said(wire, "t LOGIN alice secret").startswith(b"t NO [AUTHORIZATIONFAILED]")
    finally:
        back_end.directory.change("alice", access="")


def test_a_proxy_says_it_once(back_end: BackEnd) -> None:
    """The client, whose commands the proxy passes on, cannot say it again: not as another client, nor after login."""
    back_end.begin(proxy_networks=("10.0.0.0/8",))
    wire = back_end.imap(peer="10.0.0.1", plaintext_login=True)
    said(wire, 't ID ("x-originating-ip" "10.0.0.5")')
    said(wire, 't ID ("x-originating-ip" "192.0.2.7")')
    assert wire.protocol.peer == "10.0.0.5" and wire.protocol.proxy == "10.0.0.1"
    wire = back_end.imap(peer="10.0.0.1", plaintext_login=True)
    assert said(wire, "t LOGIN alice secret").startswith(b"t OK ")
    assert b"t OK " in said(wire, 't ID ("x-originating-ip" "192.0.2.7")')
    assert wire.protocol.peer == "10.0.0.1"


@pytest.mark.parametrize("value", ['"nonsense"', '""', '"10.0.0.0/8"', '"fe80::1%eth0"', '"192.0.2.7 "'])
def test_what_is_no_address(back_end: BackEnd, value: str) -> None:
    back_end.begin(proxy_networks=("10.0.0.0/8",))
    wire = back_end.imap(peer="10.0.0.1")
    assert said(wire, f't ID ("x-originating-ip" {value})').startswith(b"t BAD ")
    assert wire.protocol.peer == "10.0.0.1"
    assert b"t OK " in said(wire, 't ID ("x-originating-ip" NIL)')
    assert b"t OK " in said(wire, "t ID NIL")


def test_the_client_counts_and_not_its_proxy(back_end: BackEnd) -> None:
    """In the limit of connections of an address, when it comes and when it goes."""
    back_end.begin(proxy_networks=("10.0.0.0/8",))
    server = imap.protocol.factory(back_end.store, imap.settings.Settings(connections_per_address=2), back_end.clock)

    def connect(client: str) -> Wire:
        wire = Wire(server, back_end.clock, "10.0.0.1")
        said(wire, f't ID ("x-originating-ip" "{client}")')
        return wire

    wires = [connect("192.0.2.7"), connect("192.0.2.7"), connect("192.0.2.8")]
    assert not any(wire.closed for wire in wires)
    assert connect("192.0.2.7").closed
    wires[0].hang_up()
    assert not connect("192.0.2.7").closed


def test_a_proxy_acts_as_a_user_behind_its_back(back_end: BackEnd) -> None:
    """SASL PLAIN with an authorization identity (RFC 4616 §2), also when it has told of its client before."""
    back_end.begin(proxy_networks=("10.0.0.0/8",), proxies=("proxy",))
    command = f"t AUTHENTICATE PLAIN {plain('alice', 'proxy', 'secret')}"
    wire = back_end.imap(peer="10.0.0.1", plaintext_login=True)
    said(wire, 't ID ("x-originating-ip" "192.0.2.7")')
    assert said(wire, command).startswith(b"t OK ")
    wire = back_end.imap(peer="192.0.2.7", plaintext_login=True)
    said(wire, 't ID ("x-originating-ip" "10.0.0.1")')
    assert said(wire, command).startswith(b"t NO [AUTHORIZATIONFAILED]")


# The command line

def test_user_set_host(onecopy: Program) -> None:
    onecopy("user", "set", "alice", "--host", "Two.Example.org")
    assert onecopy.json("user", "show", "alice")["host"] == "two.example.org"
    assert "two.example.org" in onecopy("user", "list")
    for wrong in ("", "two.example.org.", "two example", "http://two", "t/wo", "x" * 254, "-two"):
        assert "not the name of a host" in onecopy.refused("user", "set", "alice", f"--host={wrong}", status=2)
    onecopy("user", "set", "alice", "--status", "hold")
    assert onecopy.json("user", "show", "alice")["host"] == "two.example.org"
    onecopy("user", "set", "alice", "--no-host")
    assert "host" not in onecopy.json("user", "show", "alice")
    onecopy("user", "add", "carol", "--host", "two.example.org", "--password-stdin", octets=b"x\n")
    assert onecopy.json("user", "show", "carol")["host"] == "two.example.org"
