"""What sessions note in the audit trail: who acts as whom, and what is done to what others have; nothing of what users
do in their own mailboxes, and nothing that a client could not be told."""

from base64 import b64encode

import pytest
from twisted.internet.task import Clock

from imap import protocol as imap
from imap.managesieve import protocol as managesieve
from imap.managesieve.managesettings import Settings as ManageSieveSettings
from imap.settings import Settings as ImapSettings
from mboxlist.names import MailboxName
from pop3 import protocol as pop3
from pop3.settings import Settings as Pop3Settings
from store.accounts.loginsettings import Settings as LoginSettings
from store.audit import sessionaudit
from store.audit.auditline import CHOICES
from store.audit.auditverification import read, verify
from store.audit.trail import Trail
from store.check.wholecheck import check
from store.mailboxes import namespace
from store.mailboxes.authorization import set_acl
from store.net import authentication
from store.offload import Threads
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import deliver, make_store

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"
SESSION = {"number", "time", "before", "session", "address", "service"}


@pytest.fixture
def store(tmp_path):
    store = make_store(tmp_path / "store", ("alice", "bob", "root", "front"))
    authentication.attach(store, LoginSettings(slow_first=0, administrators=("root",), proxies=("front",),
                                               proxy_networks=("192.0.2.1",)))
    sessionaudit.attach(store, Trail(store.root, CHOICES))
    for _ in range(2):
        deliver(store, MESSAGE, "user/alice/INBOX")
    yield store
    assert check(store) == [] and verify(store.root).faults == []
    store.close()


def noted(store):
    return [{name: value for name, value in line.facts.items() if name not in SESSION} for line in read(store.root)]


def talk(store, user, *commands, acts=b"", peer="127.0.0.1"):
    clock = Clock()
    wire = Wire(imap.factory(store, ImapSettings(plaintext_login=True, admins="root"), clock), clock, peer)
    plain = b64encode(acts + b"\0" + user + b"\0secret")
    for number, command in enumerate((b"AUTHENTICATE PLAIN " + plain, *commands)):
        wire.send(b"t%d %s\r\n" % (number, command))
        assert b"t%d OK" % number in wire.received(), command


def test_what_users_do_in_their_own_mailboxes_is_not_noted(store):
    talk(store, b"alice", b"SELECT INBOX", b"SEARCH TEXT hello", b"STORE 1 +FLAGS (\\Deleted)", b"EXPUNGE",
         b"STORE 1 +FLAGS (\\Deleted)", b"CLOSE", b"LOGOUT")
    assert noted(store) == []


def test_changed_rights_limits_and_deleted_mailboxes_are(store):
    talk(store, b"alice", b"CREATE Work", b"SETACL Work bob lrs", b"DELETEACL Work bob", b"GETACL Work",
         b"DELETE Work")
    talk(store, b"root", b"SETQUOTA alice (STORAGE 500)")
    assert noted(store) == [
        {"kind": "share", "what": "SETACL", "actor": "alice", "mailbox": "Work", "identifier": "bob", "rights": "lrs"},
        {"kind": "share", "what": "DELETEACL", "actor": "alice", "mailbox": "Work", "identifier": "bob"},
        {"kind": "delete", "what": "DELETE", "actor": "alice", "mailbox": "Work"},
        {"kind": "quota", "what": "SETQUOTA", "actor": "root", "root": "alice", "limits": ["STORAGE 500"]}]


@pytest.mark.parametrize(("command", "what"), [
    (b"EXPUNGE", "EXPUNGE"), (b"UID EXPUNGE 1:*", "EXPUNGE"), (b"CLOSE", "CLOSE"), (b"MOVE 1 INBOX", "MOVE")])
def test_messages_that_are_removed_in_mailboxes_of_others_are_one_line(store, command, what):
    namespace.create_mailbox(store, MailboxName("bob", "Team"))
    set_acl(store, MailboxName("bob", "Team"), "alice", "lrswite")
    for _ in range(2):
        deliver(store, MESSAGE, "user/bob/Team")
    before = len(noted(store))
    flag = [b"STORE 1:2 +FLAGS (\\Deleted)"] if what != "MOVE" else []
    talk(store, b"alice", b"SELECT user/bob/Team", *flag, command, b"NOOP")
    line, = noted(store)[before:]
    assert (line["kind"], line["what"], line["actor"], line["mailbox"], line["owner"], line["messages"]) == (
        "delete", what, "alice", "user/bob/Team", "bob", 1 if what == "MOVE" else 2)


def test_what_removes_nothing_is_not_noted(store):
    namespace.create_mailbox(store, MailboxName("bob", "Team"))
    set_acl(store, MailboxName("bob", "Team"), "alice", "lrswite")
    talk(store, b"alice", b"SELECT user/bob/Team", b"EXPUNGE", b"CLOSE")
    assert noted(store) == []


def test_an_administrator_who_acts_as_a_user_is_noted_with_what_is_opened_searched_and_removed(store):
    talk(store, b"root", b"SELECT INBOX", b"UID SEARCH TEXT confidential", b"FETCH 1 BODY.PEEK[]",
         b"STORE 1 +FLAGS (\\Deleted)", b"EXPUNGE", b"COPY 1 INBOX", acts=b"alice")
    found = noted(store)
    assert [(line["kind"], line["what"], line["actor"], line["user"]) for line in found] == [
        ("act", "login", "root", "alice"), ("read", "SELECT", "root", "alice"), ("search", "SEARCH", "root", "alice"),
        ("delete", "EXPUNGE", "root", "alice")]
    assert "confidential" not in str(found) and "secret" not in str(found)


def test_what_a_proxy_lets_in_is_of_a_kind_of_its_own_and_the_user_s_own_doing(store):
    talk(store, b"front", b"SELECT INBOX", b"SEARCH ALL", acts=b"alice", peer="192.0.2.1")
    assert [(line["kind"], line["actor"], line["user"]) for line in noted(store)] == [("proxy", "front", "alice")]


def test_the_next_who_logs_in_on_the_connection_is_not_watched(store):
    plain = b64encode(b"\0alice\0secret")
    talk(store, b"root", b"UNAUTHENTICATE", b"AUTHENTICATE PLAIN " + plain, b"SELECT INBOX", acts=b"alice")
    assert [line["kind"] for line in noted(store)] == ["act"]


def test_pop3_of_an_administrator(store):
    clock = Clock()
    wire = Wire(pop3.factory(store, Pop3Settings(plaintext_login=True), clock), clock)
    for line in (b"AUTH PLAIN " + b64encode(b"alice\0root\0secret"), b"DELE 1", b"QUIT"):
        wire.send(line + b"\r\n")
    assert b"-ERR" not in wire.received()
    assert noted(store) == [
        {"kind": "act", "what": "login", "actor": "root", "user": "alice", "mechanism": "PLAIN"},
        {"kind": "delete", "what": "QUIT", "actor": "root", "user": "alice", "messages": 1}]


def test_managesieve_of_an_administrator(store):
    """What is read is noted as well as what is changed; what users do with their own scripts is not."""
    for acts, expected in ((b"", []), (b"alice", [
            ("act", "login", None), ("mailbox", "PUTSCRIPT", "main"), ("read", "GETSCRIPT", "main"),
            ("mailbox", "DELETESCRIPT", "main")])):
        clock = Clock()
        wire = Wire(managesieve.factory(store, ManageSieveSettings(plaintext_login=True), clock), clock)
        plain = b64encode(acts + (b"\0root" if acts else b"\0alice") + b"\0secret")
        for line in (b'AUTHENTICATE "PLAIN" "%b"' % plain, b'PUTSCRIPT "main" {5+}\r\nkeep;', b"LISTSCRIPTS",
                     b'GETSCRIPT "main"', b'GETSCRIPT "none"', b'DELETESCRIPT "main"'):
            wire.send(line + b"\r\n")
        assert wire.received().count(b"NO ") == 1
        assert [(line["kind"], line["what"], line.get("script")) for line in noted(store)] == expected
    assert {(line["actor"], line["user"]) for line in noted(store)} == {("root", "alice")}


class Late(Threads):
    """Threads whose work is done when the test says so."""

    real = True

    def __init__(self):
        self.waiting = []

    def run(self, kind, work, then=None, user=""):
        from twisted.internet.defer import Deferred
        if kind != "audit":
            return super().run(kind, work, then, user)
        done = Deferred()
        self.waiting.append(lambda: done.callback(work()))
        return done


def test_a_client_hears_of_it_when_it_is_on_disk(store):
    late = Late()
    store.owned.put(Threads, late)
    clock = Clock()
    wire = Wire(imap.factory(store, ImapSettings(plaintext_login=True), clock), clock)
    wire.send(b"a LOGIN alice secret\r\n")
    while late.waiting:
        late.waiting.pop(0)()
    wire.received()
    wire.send(b"b SETACL INBOX bob lr\r\n")
    assert b"b OK" not in wire.received()
    while late.waiting:
        late.waiting.pop(0)()
    assert b"b OK" in wire.received()
    assert noted(store)[0]["what"] == "SETACL"
    store.owned.put(Threads, Threads())


def test_a_trail_that_cannot_be_written_does_not_turn_an_answer(store, caplog):
    (store.root / "audit").write_text("in the way")
    talk(store, b"alice", b"SETACL INBOX bob lr")
    assert "not in the audit trail" in caplog.text and '"identifier": "bob"' in caplog.text
    (store.root / "audit").unlink()


def test_who_fills_the_trail_is_answered_later_and_nobody_else(store, monkeypatch):
    """No line is left out, and each is there before the wait."""
    monkeypatch.setattr(sessionaudit, "FREE", 1000)
    clock = Clock()
    factory = imap.factory(store, ImapSettings(plaintext_login=True), clock)
    wires = [Wire(factory, clock) for _ in range(2)]
    for wire, user in zip(wires, (b"alice", b"bob"), strict=True):
        wire.send(b"a LOGIN %s secret\r\n" % user)
        wire.received()
    sent, answer = 0, b"OK"
    while b"OK" in answer:
        wires[0].send(b"b SETACL INBOX bob lr\r\n")
        answer = wires[0].received()
        sent += 1
        assert sent < 10 and len(noted(store)) == sent
    wires[1].send(b"c SETACL INBOX alice lr\r\n")
    assert b"c OK" in wires[1].received()
    clock.advance(1)
    assert b"b OK" in wires[0].received() and len(noted(store)) == sent + 1


def test_the_bound_is_one_of_octets_and_of_memory():
    pace = sessionaudit.Pace()
    waits = [pace.wait("alice", "\u20ac" * 1000, 0.0) for _ in range(200)]
    assert waits[0] == 0 and waits[-1] * sessionaudit.RATE >= 200 * 6000 - sessionaudit.FREE
    assert pace.wait("alice", "", waits[-1] + sessionaudit.FREE) == 0
    for number in range(2 * sessionaudit.MOST_ACTORS):
        pace.wait(f"user{number}", "", 0.0)
    assert len(pace._actors) <= sessionaudit.MOST_ACTORS
