"""App passwords in sessions: who takes them, what they may do, and when a session that one has opened ends."""

import base64
import re
import time

import pytest
from attrs import evolve
from twisted.internet.task import Clock

import imap.protocol
import imap.settings
import lmtp.protocol
import lmtp.settings
import pop3.protocol
import pop3.settings
from store.accounts.apppasswords import apppassword
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.apppasswords.accessrecord import Totp
from store.accounts.apppasswords.apppassword import SERVICES
from store.accounts.base import Status
from store.accounts.loginsettings import OFF, REQUIRED, Settings
from store.accounts.passwords import hash_password
from store.audit import sessionaudit
from store.audit.auditline import CHOICES
from store.audit.auditverification import read
from store.audit.trail import Trail
from store.net import authentication
from store.net.authentication import Authenticator
from store.net.openlogins import CUT_OFF, GLANCE, OpenLogins
from store.users import lifecycle, renaming, restorable
from store.values import Secret
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import deliver

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"
SETTINGS = Settings(slow_first=0, administrators=("root",), scram_keys=("SCRAM-SHA-256",))


class Place:
    """Servers on a store, and what alice has beside her password."""

    def __init__(self, store):
        self.store, self.clock = store, Clock()
        authentication.attach(store, SETTINGS)
        self.files = AccessFiles(store.root)

    def settings(self, **words):
        Authenticator.of(self.store).follow(evolve(SETTINGS, **words))
        OpenLogins.of(self.store).look_at_all()

    def make(self, user="alice", services=SERVICES, read_only=False, until=None):
        """An app password: its id, and itself."""
        made, shown = apppassword.make("phone", services, read_only=read_only, now=time.time(), until=until)
        self.files.change(user, lambda before: before.with_password(made, time.time()))
        return made.id, shown.encode()

    def revoke(self, id, news=True):
        self.files.change("alice", lambda before: before.without_passwords([id]))
        if news:
            self.store.directory.noticed("alice")

    def second_factor(self, user="alice"):
        self.files.change(user, lambda before: evolve(before, totp=Totp("JBSWY3DPEHPK3PXP", 0)))
        self.store.directory.noticed(user)

    def wire(self, protocol):
        made = {"imap": lambda: imap.protocol.factory(self.store, imap.settings.Settings(), self.clock),
                "pop3": lambda: pop3.protocol.factory(self.store, pop3.settings.Settings(
                    sharing="shared", mark_seen=True, leave_on_server=False), self.clock),
                "lmtp": lambda: lmtp.protocol.factory(self.store, lmtp.settings.Settings(
                    auth_users=("alice",), networks=("192.0.2.0/24",)), self.clock)}[protocol]()
        wire = Wire(made, self.clock)
        wire.received()
        return wire

    def talk(self, wire, *lines):
        """What comes back, all in one."""
        for line in lines:
            wire.send((line.encode() if isinstance(line, str) else line) + b"\r\n")
        return wire.received()

    def login(self, protocol, password, user="alice", how="PLAIN", acts_as=""):
        """A connection on which somebody has tried to log in, and the last line of the answer."""
        wire = self.wire(protocol)
        name, word = user.encode(), password
        plain = base64.b64encode(b"\0".join((acts_as.encode(), name, word)))
        prefix = b"a AUTHENTICATE " if protocol == "imap" else b"AUTH "
        lines = {
            "PLAIN": [prefix + b"PLAIN " + plain] if protocol != "lmtp" else [b"LHLO x", b"AUTH PLAIN " + plain],
            "LOGIN": [prefix + b"LOGIN", base64.b64encode(name), base64.b64encode(word)],
            "bare": [b'a LOGIN %s "%s"' % (name, word)] if protocol == "imap" else [b"USER " + name, b"PASS " + word],
        }[how]
        return wire, (self.talk(wire, *lines).splitlines() or [b""])[-1]


GOOD = {"imap": b"a OK", "pop3": b"+OK", "lmtp": b"235"}


def is_in(protocol, answer):
    return answer.startswith(GOOD[protocol])


@pytest.fixture
def place(store):
    deliver(store, MESSAGE, "user/alice/INBOX")
    return Place(store)


@pytest.mark.parametrize("how", ["PLAIN", "LOGIN", "bare"])
@pytest.mark.parametrize("protocol", ["imap", "pop3"])
def test_each_way_to_log_in_with_a_password_takes_one(place, protocol, how):
    _, shown = place.make()
    for typed in (shown, shown.replace(b"-", b""), shown.upper()):
        assert is_in(protocol, place.login(protocol, typed, how=how)[1])
    assert is_in(protocol, place.login(protocol, b"secret", how=how)[1])         # the user's own does, too


def test_one_is_for_its_services_its_user_and_its_time(place):
    wrong = {name: place.login(name, b"wrong")[1] for name in ("imap", "pop3", "lmtp")}
    _, mine = place.make(services=("imap",))
    _, others = place.make(user="bob")
    _, ended = place.make(until=time.time() - 1)
    assert is_in("imap", place.login("imap", mine)[1])
    assert place.login("pop3", mine)[1] == wrong["pop3"]
    assert place.login("imap", others)[1] == place.login("imap", ended)[1] == wrong["imap"]
    assert place.login("lmtp", others)[1] == wrong["lmtp"]
    place.settings(app_passwords=OFF)
    assert place.login("imap", mine)[1] == wrong["imap"]


def test_one_of_an_account_that_may_not_log_in_is_a_wrong_password(place):
    _, shown = place.make()
    wrong = place.login("imap", b"wrong")[1]
    place.store.directory.change("alice", status=Status.HOLD)
    assert place.login("imap", shown)[1] == wrong
    place.store.directory.change("alice", status=Status.ACTIVE)
    assert is_in("imap", place.login("imap", shown)[1])


def test_one_acts_as_nobody_else(place):
    place.store.directory.add("root", hash_password(Secret(b"secret")))
    _, shown = place.make(user="root")
    assert is_in("imap", place.login("imap", b"secret", user="root", acts_as="alice")[1])
    assert place.login("imap", shown, user="root", acts_as="alice")[1].startswith(b"a NO")


def test_the_log_says_which_one_and_not_the_password(place, caplog):
    caplog.set_level("INFO")
    for protocol in ("imap", "pop3"):
        id, shown = place.make()
        wire, _ = place.login(protocol, shown)
        assert f"by app password {id}" in caplog.text
        wire.hang_up()
        assert re.search(rf'address=.* user="alice" service={protocol[:4].rstrip("3")} .*'
                         r' session=[0-9a-f-]+ app_password="phone"$', caplog.text, re.MULTILINE)
        assert shown.decode() not in caplog.text and shown.replace(b"-", b"").decode() not in caplog.text


def test_what_is_done_and_refused_by_one_names_it(place, caplog):
    """And nothing names one that was wrong, or one where another password was shown."""
    sessionaudit.attach(place.store, Trail(place.store.root, CHOICES))
    for _, shown in (place.make(), ("", b"secret")):
        wire, _ = place.login("imap", shown)
        place.talk(wire, "b CREATE Work", "b SETACL Work bob lrs", "b DELETE Work")
    assert [line.facts.get("app_password") for line in read(place.store.root)] == ["phone", "phone", None, None]
    place.store.directory.change("alice", access="-imap:*")
    caplog.clear()
    _, shown = place.make()
    place.login("imap", shown)
    assert "(app password phone)" in caplog.text
    caplog.clear()
    for wrong in (b"secret", shown[:-1]):
        place.login("imap", wrong)
    assert "refused" in caplog.text and "app password" not in caplog.text


# Reading only

CHANGING = ("CREATE x", "DELETE Work", "RENAME Work x", "SUBSCRIBE Work", "UNSUBSCRIBE INBOX", "SETACL Work bob lr",
            "DELETEACL Work bob", "SETQUOTA alice (STORAGE 5)", "EXPUNGE", "UID EXPUNGE 1:*",
            "STORE 1 +FLAGS (\\Deleted)", "UID STORE 1 +FLAGS.SILENT (\\Seen)", "COPY 1 Work", "UID COPY 1 Work",
            "MOVE 1 Work", "UID MOVE 1 Work", "APPEND Work {5+}\r\nHello")


def test_a_session_that_only_reads_changes_nothing(place):
    full, _ = place.login("imap", b"secret")
    place.talk(full, "b CREATE Work", "b SELECT INBOX")
    wire, answer = place.login("imap", place.make(read_only=True)[1])
    assert is_in("imap", answer)
    said = place.talk(wire, "b SELECT INBOX")
    assert b"b OK [READ-ONLY]" in said and b"[PERMANENTFLAGS ()]" in said       # as EXAMINE: RFC 3501 §6.3.2
    assert b"Hello." in place.talk(wire, "c FETCH 1 (BODY[] FLAGS)")
    for command in CHANGING:
        said = place.talk(wire, f"d {command}").splitlines()[-1]
        assert said.startswith(b"d NO [NOPERM]"), (command, said)
    for command in ("NOOP", "IDLE\r\nDONE", "STATUS Work (MESSAGES)", "SEARCH ALL", "LIST \"\" *", "GETACL Work",
                    "MYRIGHTS Work", "GETQUOTAROOT INBOX", "CHECK", "CLOSE"):
        assert b"d OK" in place.talk(wire, f"d {command}"), command
    for command in ("MYRIGHTS Work", 'LIST "" Work RETURN (MYRIGHTS)'):      # RFC 4314 §3.5, RFC 8440: what it may do
        assert b"* MYRIGHTS Work lr\r\n" in place.talk(wire, f"d {command}"), command
    said = place.talk(full, "e STATUS Work (MESSAGES)", "e FETCH 1 (FLAGS)", 'e LIST "" *', 'e LSUB "" *')
    assert b"(MESSAGES 0)" in said and b"\\Seen" not in said and b"\\Deleted" not in said and b" x\r\n" not in said


def test_an_append_that_only_reads_is_refused_before_the_message_is_sent(place):
    wire, _ = place.login("imap", place.make(read_only=True)[1])
    assert place.talk(wire, "b APPEND INBOX {100000}").startswith(b"b NO [NOPERM]")


def test_the_next_who_logs_in_on_the_connection_may_change_things(place):
    wire, _ = place.login("imap", place.make(read_only=True)[1])
    said = place.talk(wire, "b UNAUTHENTICATE", 'c LOGIN alice "secret"', "d CREATE x")
    assert said.splitlines()[-1].startswith(b"d OK")


def test_pop3_that_only_reads_removes_nothing_and_marks_nothing(place):
    wire, _ = place.login("pop3", place.make(read_only=True)[1])
    said = place.talk(wire, "RETR 1", "DELE 1", "QUIT")
    assert b"Hello." in said and b"-ERR this app password is only for reading" in said
    assert said.splitlines()[-1].startswith(b"+OK")
    wire, _ = place.login("imap", b"secret")
    said = place.talk(wire, "b SELECT INBOX", "c FETCH 1 (FLAGS)")
    assert b"* 1 EXISTS" in said and b"* 1 FETCH (FLAGS (\\Recent))" in said


# The end of a session

ENDS = {"imap": b"* BYE [EXPIRED]", "pop3": b"-ERR [AUTH]"}


@pytest.mark.parametrize("protocol", ["imap", "pop3"])
def test_a_session_ends_soon_after_its_app_password_is_revoked(place, protocol):
    id, shown = place.make()
    other, _ = place.login(protocol, place.make()[1])
    wire, _ = place.login(protocol, shown)
    place.revoke(id)
    place.clock.pump([0, CUT_OFF])
    assert wire.received().startswith(ENDS[protocol]) or wire.closed
    assert wire.closed and not other.closed
    assert not is_in(protocol, place.login(protocol, shown)[1])
    other.hang_up()


def test_also_when_the_news_is_lost(place):
    id, shown = place.make()
    wire, _ = place.login("imap", shown)
    place.clock.pump([GLANCE] * 2)
    place.revoke(id, news=False)
    place.clock.pump([GLANCE, 0.1, CUT_OFF])
    assert wire.closed


def test_no_command_is_carried_out_with_what_was_revoked(place):
    id, shown = place.make()
    wire, _ = place.login("imap", shown)
    place.revoke(id, news=False)
    place.clock.advance(0.5)            # `LOOK`
    said = place.talk(wire, "b CREATE x")
    assert b"* BYE [EXPIRED]" in said and b"b OK" not in said


def test_a_session_ends_when_its_app_password_does(place):
    id, shown = place.make(until=time.time() + 3600)
    wire, _ = place.login("imap", shown)
    logins = Authenticator.of(place.store).app_logins
    logins.clock = lambda: time.time() + 3601
    place.clock.pump([3600, 1, CUT_OFF])
    assert wire.closed


def test_another_password_ends_no_session_of_an_app_password(place):
    wire, _ = place.login("imap", place.make()[1])
    mine, _ = place.login("imap", b"secret")
    place.store.directory.change("alice", password_hash=hash_password(Secret(b"new")))
    place.clock.pump([0, CUT_OFF])
    assert mine.closed and not wire.closed
    wire.hang_up()


# App passwords that are required

@pytest.mark.parametrize("whom", ["all", "who has a second factor"])
def test_where_one_is_required_the_password_is_a_wrong_one(place, whom):
    _, shown = place.make()
    wrong = {name: place.login(name, b"wrong")[1] for name in ("imap", "pop3")}
    if whom == "all":
        place.settings(app_passwords=REQUIRED)
    else:
        assert is_in("imap", place.login("imap", b"secret")[1])         # and it is remembered
        place.second_factor()
        assert is_in("imap", place.login("imap", b"secret", user="bob")[1])
    for protocol in ("imap", "pop3"):
        assert is_in(protocol, place.login(protocol, shown)[1])
        assert place.login(protocol, b"secret")[1] == wrong[protocol]
    assert is_in("lmtp", place.login("lmtp", b"secret")[1])             # that is no mail program


def test_the_password_is_not_even_looked_at(place, monkeypatch):
    """Or the time would tell that it is right: the second factor would have one factor less."""
    place.second_factor()
    looked = []
    for name in ("authenticate", "remembers"):
        monkeypatch.setattr(place.store.directory, name, lambda *given, name=name: looked.append(name))
    assert place.login("imap", b"secret")[1].startswith(b"a NO")
    assert looked == []


def test_without_the_switch_a_second_factor_is_for_the_console_alone(place):
    place.settings(second_factor_requires=False)
    place.second_factor()
    assert is_in("imap", place.login("imap", b"secret")[1])


def test_no_scram_goes_round_it(place):
    client_first = base64.b64encode(b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL")

    def answer():
        wire = place.wire("imap")
        capabilities = place.talk(wire, "a CAPABILITY")
        said = place.talk(wire, b"b AUTHENTICATE SCRAM-SHA-256 " + client_first)
        wire.hang_up()
        return b"AUTH=SCRAM-SHA-256" in capabilities, said

    offered, said = answer()
    salt = base64.b64decode(said[2:]).split(b"s=")[1] if offered else b""
    place.second_factor()
    offered_then, said = answer()
    assert offered and offered_then and said.startswith(b"+ ")
    assert base64.b64decode(said[2:]).split(b"s=")[1] != salt           # the keys of nobody
    place.settings(app_passwords=REQUIRED)
    offered, said = answer()
    assert not offered and not said.startswith(b"+ ")


def test_sessions_of_the_password_end_when_an_app_password_is_needed(place):
    _, shown = place.make()
    mine, _ = place.login("imap", b"secret")
    wire, _ = place.login("imap", shown)
    place.second_factor()
    place.clock.pump([0, CUT_OFF])
    assert mine.closed and not wire.closed
    wire.hang_up()


# Guesses

def test_guesses_are_slowed_down_as_wrong_passwords_are(place):
    place.settings(slow_first=1.0, slow_exclude=())
    Authenticator.of(place.store).slow.clock = place.clock.seconds
    waited = {}
    for name, user in (("a guess of one", "alice"), ("any other", "bob")):
        place.make(user="bob")
        for number in range(6):
            word = apppassword.make("x", SERVICES, read_only=False, now=0)[1].encode() if user == "alice" else (
                b"wrong%d" % number)
            wire, answer = place.login("imap", word, user=user)
            seconds = 0
            while not answer and seconds < 100:
                place.clock.advance(1)
                seconds += 1
                answer = (wire.received().splitlines() or [b""])[-1]
            assert answer.startswith(b"a NO"), answer
            waited.setdefault(name, []).append(seconds)
            wire.hang_up()
    assert waited["a guess of one"] == waited["any other"] and waited["any other"][-1] > 0


# What administrators do with users

def test_a_rename_carries_them_and_a_removal_ends_them(place):
    _, shown = place.make()
    renaming.rename_user(place.store, "alice", "carol")
    assert is_in("imap", place.login("imap", shown, user="carol")[1])
    lifecycle.remove_user(place.store, "carol")
    restorable.undelete_user(place.store, "carol")
    assert is_in("imap", place.login("imap", b"secret", user="carol")[1])
    assert not is_in("imap", place.login("imap", shown, user="carol")[1])


def test_one_that_a_killed_removal_has_left_does_not_come_back_with_the_user(place, monkeypatch):
    _, shown = place.make()
    with monkeypatch.context() as patched:
        patched.setattr(AccessFiles, "remove", lambda self, user: None)
        lifecycle.remove_user(place.store, "alice")
    restorable.undelete_user(place.store, "alice")
    assert not is_in("imap", place.login("imap", shown)[1])
