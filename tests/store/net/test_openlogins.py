"""Open sessions follow their accounts: who may not log in any more is told so and sent away, in all three protocols."""

import base64
import logging
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
from imap.selection import Selection
from mboxlist.names import MailboxName
from store import changes
from store.accounts.base import Account, Status
from store.accounts.loginsettings import Settings
from store.accounts.passwords import hash_password
from store.errors import Problem, StoreError
from store.mailboxes import authorization, firstuse
from store.mailboxes.firstuse import inbox
from store.net import authentication
from store.net.authentication import Authenticator
from store.net.openlogins import CUT_OFF, GLANCE, LOOK, TURNS, OpenLogin, OpenLogins
from store.news.notify import POLL
from store.users import lifecycle, renaming, restorable
from store.values import Secret
from tests.conftest import MEMORY
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import HASH, PASSWORD, SMALL, deliver, make_store

NEW = b"another"
NEW_HASH = hash_password(Secret(NEW))
HERE, THERE = "a.example.org", "b.example.org"
SETTINGS = Settings(slow_first=0, administrators=("root",), proxies=("proxy",), proxy_networks=("127.0.0.1",))


@pytest.fixture(scope="module")
def whole_store():
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        store = make_store(Path(folder) / "store", ["bob", "root", "proxy"], evolve(SMALL, host=HERE))
        yield store
        store.close()


@pytest.fixture
def place(whole_store):
    inbox(whole_store, whole_store.directory.add("alice", HASH))
    made = Place(whole_store)
    yield made
    for wire in made.wires:
        wire.hang_up()
    made.with_news()
    assert not OpenLogins.of(whole_store)._all and not whole_store.news.subscribed()
    for user in ("alice", "carol"):
        if whole_store.directory.find(user) is not None:
            whole_store.directory.change(user, host="")
            restorable.forget_user(whole_store, user)


class Place:
    """The three servers on one store, and sessions of alice's there."""

    def __init__(self, store):
        self.store, self.clock, self.wires = store, Clock(), []
        authentication.attach(store, SETTINGS)
        store.owned.put(OpenLogins, OpenLogins(store))
        self.noticed = store.directory.noticed, store.directory.domains.noticed

    def connect(self, protocol, password=PASSWORD, user="alice", acts_as=""):
        """A session in which somebody has logged in."""
        plain = base64.b64encode(b"\0".join((acts_as.encode(), user.encode(), password))).decode()
        lines = {"imap": ["a AUTHENTICATE PLAIN " + plain, "a SELECT INBOX"],
                 "pop3": [f"AUTH PLAIN {plain}"] if acts_as else [f"USER {user}", f"PASS {password.decode()}"],
                 "lmtp": ["LHLO relay.example.org", f"AUTH PLAIN {plain}"]}[protocol]
        factory = {
            "imap": lambda: imap.protocol.factory(self.store, imap.settings.Settings(), self.clock),
            "pop3": lambda: pop3.protocol.factory(self.store, pop3.settings.Settings(sharing="shared"), self.clock),
            "lmtp": lambda: lmtp.protocol.factory(self.store, lmtp.settings.Settings(
                auth_users=("alice", "carol"), networks=("192.0.2.0/24",)), self.clock)}[protocol]()
        wire = Wire(factory, self.clock)
        self.wires.append(wire)
        for line in lines:
            wire.received()
            wire.send(line.encode() + b"\r\n")
        assert wire.received().splitlines()[-1].startswith({"imap": b"a OK", "pop3": b"+OK", "lmtp": b"235"}[protocol])
        return wire

    def without_news(self):
        """No hint comes."""
        self.store.directory.noticed = self.store.directory.domains.noticed = lambda name: None

    def with_news(self):
        self.store.directory.noticed, self.store.directory.domains.noticed = self.noticed


@pytest.fixture
def quiet(place):
    """Nobody hears of what changes."""
    place.without_news()
    yield place
    place.with_news()


def changed(**words):
    return lambda store: store.directory.change("alice", **words)


def withdrawn(**words):
    def change(store):
        Authenticator.of(store).follow(evolve(SETTINGS, **words))
        OpenLogins.of(store).look_at_all()
    return change


CHANGES = {     # and the response code of IMAP and that of POP3
    "password": (changed(password_hash=NEW_HASH), b"EXPIRED", b"AUTH"),
    "inactive": (changed(status=Status.INACTIVE), b"UNAVAILABLE", b"AUTH"),
    "hold": (changed(status=Status.HOLD), b"UNAVAILABLE", b"AUTH"),
    "disabled": (changed(status=Status.DISABLED), b"CONTACTADMIN", b"AUTH"),
    "deleted": (changed(status=Status.DELETED), b"CONTACTADMIN", b"AUTH"),
    "removed": (lambda store: lifecycle.remove_user(store, "alice"), b"CONTACTADMIN", b"AUTH"),
    "forgotten": (lambda store: restorable.forget_user(store, "alice"), b"CONTACTADMIN", b"AUTH"),
    "renamed": (lambda store: renaming.rename_user(store, "alice", "carol"), b"CONTACTADMIN", b"AUTH"),
    "moved": (changed(host=THERE), b"UNAVAILABLE", b"SYS/TEMP"),
    "services": (changed(access="-imap,pop,lmtp:*"), b"AUTHORIZATIONFAILED", b"AUTH"),
    "domain": (lambda store: store.directory.domains.set_access("example.org", "-ALL:*"), b"AUTHORIZATIONFAILED",
               b"AUTH"),
    "rules": (withdrawn(service_access="-ALL:*"), b"AUTHORIZATIONFAILED", b"AUTH"),
    "mechanism": (withdrawn(mechanisms=("EXTERNAL",)), b"AUTHORIZATIONFAILED", b"AUTH")}
BUSY = {"imap": b"b CREATE made\r\n", "pop3": b"DELE 1\r\n", "lmtp": b"MAIL FROM:<>\r\n"}


@pytest.fixture(params=CHANGES)
def change(request, place):
    made, imap_code, pop3_code = CHANGES[request.param]
    yield request.param, made, {"imap": b"* BYE [" + imap_code + b"] ", "pop3": b"-ERR [" + pop3_code + b"] ",
                                "lmtp": b"421 4.7.0 "}
    place.store.directory.domains.set_access("example.org", "")


@pytest.mark.parametrize("protocol", ["imap", "pop3", "lmtp"])
def test_who_waits_hears_of_it_at_once(place, change, protocol, caplog):
    caplog.set_level(logging.INFO)
    name, make, farewell = change
    wires = [place.connect(protocol), place.connect(protocol)]
    other = place.connect("imap", user="bob")
    if protocol == "imap":
        wires[1].send(b"i IDLE\r\n")
    for wire in (*wires, other):
        wire.received()
    make(place.store)
    other.settle()
    if protocol == "lmtp" and name == "moved":          # a relay wants no mail
        assert not any(wire.closed for wire in wires)
        return
    for wire in wires:
        assert wire.received().startswith(farewell[protocol]) and wire.closed
    if name not in ("domain", "rules", "mechanism"):
        other.send(b"b NOOP\r\n")
        assert other.received() == b"b OK NOOP completed\r\n"
    assert len([line for line in caplog.messages if "alice, 127.0.0.1, is logged in no more: " in line]) == 2


@pytest.mark.parametrize("protocol", ["imap", "pop3", "lmtp"])
def test_no_command_goes_on_though_no_news_come(quiet, change, protocol):
    """The row is the truth: whoever has looked at it longer ago than LOOK looks again."""
    name, make, farewell = change
    if name in ("rules", "mechanism"):                  # these are of the process itself
        return
    wire, polled = quiet.connect(protocol), quiet.connect(protocol)
    make(quiet.store)
    if protocol == "lmtp" and name == "moved":
        return
    quiet.clock.advance(LOOK)
    wire.send(BUSY[protocol])
    assert wire.received().startswith(farewell[protocol]) and wire.closed
    assert [str(entry.name) for entry in quiet.store.names("alice")] in ([], ["user/alice/INBOX"])
    quiet.store.news.look([number for number in quiet.store.news.subscribed() if number % POLL < POLL])    # as a minute
    polled.settle()
    assert polled.received().startswith(farewell[protocol]) and polled.closed


@pytest.mark.parametrize("protocol", ["imap", "pop3"])
def test_who_waits_hears_of_it_in_a_second_though_no_news_come(quiet, change, protocol):
    """The hint to this process was lost: nobody says anything, and nobody is told."""
    name, make, farewell = change
    if name in ("rules", "mechanism", "domain"):        # these are no rows of users'
        return
    wire = quiet.connect(protocol)
    make(quiet.store)
    quiet.clock.advance(GLANCE)
    wire.settle()
    assert wire.received().startswith(farewell[protocol]) and wire.closed


@pytest.mark.parametrize("change", ["password", "disabled", "moved"])
def test_what_changes_before_the_session_begins_counts_at_its_first_command(quiet, change, faults):
    def find(real, store, account):
        CHANGES[change][0](store)
        return real(store, account)

    faults.around(firstuse, "find_inbox", find)
    wire = Wire(imap.protocol.factory(quiet.store, imap.settings.Settings(), quiet.clock), quiet.clock)
    quiet.wires.append(wire)
    wire.send(b"a LOGIN alice %b\r\nb CAPABILITY\r\n" % PASSWORD)
    answer = wire.received()
    assert b"a OK" in answer and b"* BYE [%b]" % CHANGES[change][1] in answer and b"b OK" not in answer


def test_the_login_is_the_first_look(place, faults):
    looks = []
    faults.around(OpenLogin, "_look", lambda real, login: looks.append(login) or real(login))
    wire = place.connect("imap")
    place.clock.advance(LOOK / 2)
    wire.send(b"b NOOP\r\n")
    assert b"b OK" in wire.received() and not looks
    place.clock.advance(LOOK / 2)
    wire.send(b"c NOOP\r\n")
    assert b"c OK" in wire.received() and len(looks) == 1


def test_who_has_the_new_password_goes_on(place):
    old = place.connect("imap")
    place.store.directory.change("alice", password_hash=NEW_HASH)
    old.settle()
    assert old.closed
    new = place.connect("imap", NEW)
    place.store.directory.change("alice", groups=["staff"])
    place.clock.advance(LOOK)
    new.send(b"b NOOP\r\n")
    assert b"b OK" in new.received() and not new.closed


def test_what_stays_as_it_is_ends_nothing(place):
    """Nor do keys of SCRAM that are taken away or put beside the hash."""
    wires = [place.connect(protocol) for protocol in ("imap", "pop3", "lmtp")]
    for words in ({"groups": ["staff"]}, {"aliases": ["sales"]}, {"status": Status.OVERQUOTA}, {"host": HERE},
                  {"access": "+ALL:*"}, {"password_hash": HASH.partition(" ")[0]}):
        place.store.directory.change("alice", **words)
        place.clock.advance(LOOK)
        for wire in wires:
            wire.send(b"n NOOP\r\n" if wire is wires[0] else b"NOOP\r\n")
    assert not any(wire.closed for wire in wires)


@pytest.mark.parametrize(("user", "ends"), [("proxy", True), ("root", False)])
def test_who_acts_as_a_user(place, user, ends):
    """The user has shown the old password to the proxy. An administrator has shown another one."""
    wire = place.connect("imap", user=user, acts_as="alice")
    place.store.directory.change("alice", password_hash=NEW_HASH)
    wire.settle()
    assert wire.closed is ends
    other = place.connect("imap", user=user, acts_as="alice")
    place.store.directory.change(user, password_hash=NEW_HASH)
    other.settle()
    assert other.closed and b"[EXPIRED]" in other.received()
    place.store.directory.change(user, password_hash=HASH)


@pytest.mark.parametrize(("mechanism", "ends"), [("PLAIN", True), ("", True), ("EXTERNAL", False)])
def test_who_has_shown_no_password_stays_when_it_changes(place, mechanism, ends):
    """A certificate proves who one is whatever the password; the account ends that login as any other."""
    wire = place.connect("imap")
    login, = OpenLogins.of(place.store)._all
    login.admitted = evolve(login.admitted, mechanism=mechanism)
    place.store.directory.change("alice", password_hash=NEW_HASH)
    wire.settle()
    assert wire.closed is ends
    place.store.directory.change("alice", status=Status.DISABLED)
    wire.settle()
    assert wire.closed


def test_an_administrator_who_is_one_no_more_acts_no_more(place):
    wire = place.connect("imap", user="root", acts_as="alice")
    withdrawn(administrators=())(place.store)
    wire.settle()
    assert wire.closed and b"* BYE [AUTHORIZATIONFAILED] You may not act as another user" in wire.received()


def test_in_the_middle_of_a_command(place):
    """A literal that has been announced is not taken for a message; who says nothing is cut off."""
    wire = place.connect("imap")
    wire.send(b"b APPEND INBOX {10}\r\n")
    wire.received()
    silent = place.connect("imap")
    silent.send(b"b APPEND INBOX {10}\r\n")
    silent.received()
    aborted = []
    silent.transport.abortConnection = lambda: aborted.append(True)
    place.store.directory.change("alice", status=Status.DISABLED)
    wire.send(b"a: b\r\n\r\nhi\r\n")
    assert wire.closed and b"* BYE [CONTACTADMIN]" in wire.received()
    place.clock.advance(CUT_OFF)
    assert aborted
    entry, = place.store.names("alice")
    assert place.store.status(entry).messages == 0


@pytest.mark.parametrize("aborted", [False, True])
def test_nobody_waits_for_who_changes_a_row(place, aborted):
    """A change that is not committed is none yet: sessions go on meanwhile, and the event loop with them."""
    store, wire = place.store, place.connect("imap")
    row = store.directory.user("alice")
    txn = store.mailboxes.env.begin()
    store.directory.write(evolve(row, account=evolve(row.account, status=Status.DISABLED)), txn)
    place.clock.advance(LOOK)
    wire.send(b"b NOOP\r\n")
    assert b"b OK" in wire.received()
    if aborted:
        txn.abort()
    else:
        txn.commit()
    place.clock.advance(LOOK)
    wire.send(b"c NOOP\r\n")
    assert (b"* BYE [CONTACTADMIN]" in wire.received()) is not aborted


def test_pop3_removes_nothing_at_a_quit_that_comes_too_late(quiet):
    deliver(quiet.store, b"a: b\r\n\r\nhi\r\n", "user/alice/INBOX")
    wire = quiet.connect("pop3")
    wire.send(b"DELE 1\r\n")
    quiet.store.directory.change("alice", password_hash=NEW_HASH)
    quiet.clock.advance(LOOK)
    wire.received()
    wire.send(b"QUIT\r\n")
    assert wire.received() == b"-ERR [AUTH] The password has been changed\r\n"
    entry, = quiet.store.names("alice")
    assert quiet.store.status(entry).messages == 1


@pytest.mark.parametrize("lines", [
    [b"MAIL FROM:<>"], [b"MAIL FROM:<>", b"RCPT TO:<bob>"], [b"MAIL FROM:<>", b"RCPT TO:<bob>", b"DATA"],
    [b"MAIL FROM:<>", b"RCPT TO:<bob>", b"BDAT 5 LAST\r\nhello"],
    [b"MAIL FROM:<>", b"RCPT TO:<bob>", b"DATA", b"a: b\r\n."]], ids=["MAIL", "RCPT", "DATA", "BDAT", "message"])
def test_a_relay_is_refused_wherever_it_is(quiet, lines):
    """And for now: its mail waits until it can log in again."""
    before = quiet.store.status(quiet.store.names("bob")[0]).messages
    wire = quiet.connect("lmtp")
    for line in lines[:-1]:
        wire.send(line + b"\r\n")
    wire.received()
    quiet.store.directory.change("alice", password_hash=NEW_HASH)
    quiet.clock.advance(LOOK)
    wire.send(lines[-1] + b"\r\n")
    assert wire.received() == b"421 4.7.0 The password has been changed\r\n" and wire.closed
    assert quiet.store.status(quiet.store.names("bob")[0]).messages == before


def test_a_relay_in_a_transaction_is_not_cut_off(place):
    wire = place.connect("lmtp")
    wire.send(b"MAIL FROM:<>\r\n")
    wire.received()
    place.store.directory.change("alice", password_hash=NEW_HASH)
    place.clock.advance(2 * CUT_OFF)
    assert not wire.closed
    wire.send(b"RCPT TO:<bob>\r\n")
    assert wire.received() == b"421 4.7.0 The password has been changed\r\n" and wire.closed


def test_groups_reach_a_session_that_idles(place):
    store = place.store
    store.directory.change("alice", groups=["staff"])
    authorization.set_acl(store, MailboxName("bob", "INBOX"), "group:staff", "lr")
    wire = place.connect("imap")
    wire.send(b"b SELECT user/bob/INBOX\r\n")
    assert b"b OK" in wire.received()
    wire.send(b"i IDLE\r\n")
    store.directory.change("alice", groups=[])
    wire.settle()
    assert b"* BYE [NOPERM]" in wire.received() and wire.closed
    authorization.set_acl(store, MailboxName("bob", "INBOX"), "group:staff", "")


def test_all_are_looked_at_when_settings_change(place, monkeypatch, faults):
    """Some in each turn of the event loop, as when the rules of a domain have changed."""
    monkeypatch.setattr("store.net.openlogins.SPREAD", 2)
    wires = [place.connect("imap", user=user) for user in ("alice", "bob", "alice", "bob", "alice")]
    logins = OpenLogins.of(place.store)
    heard = []
    faults.around(OpenLogin, "hear", lambda _, login: heard.append(login))
    for look in (logins.look_at_all, lambda: place.store.news.hear([changes.account("@example.org")])):
        heard.clear()
        look()
        for expected in (2, 4, 5, 5):
            assert len(set(heard)) == len(heard) == expected
            place.clock.advance(TURNS)
    for wire in wires:
        wire.hang_up()
    assert not logins._domains and not logins._unsubscribe


def test_unauthenticate_lets_go(place):
    wire = place.connect("imap")
    wire.send(b"b UNAUTHENTICATE\r\n")
    assert not OpenLogins.of(place.store)._all
    place.store.directory.change("alice", status=Status.DISABLED)
    place.clock.advance(LOOK)
    wire.send(b"c NOOP\r\n")
    assert b"c OK" in wire.received()


# An outside directory

class Outside:
    """What `OpenLogins` asks of one, on a clock of its own."""

    session_time = 60.0

    def __init__(self, store, monkeypatch):
        self.now, self.asked, self.answer, self.epoch_now = 1000.0, [], None, b"1"
        self._own = store.directory
        monkeypatch.setattr("store.net.openlogins.time.monotonic", lambda: self.now)
        monkeypatch.setattr(store, "directory", self)
        self.domains = self

    def __getattr__(self, name):
        return getattr(self._own, name)

    def epoch(self):
        return self.epoch_now

    def refresh(self, user):
        self.asked.append(user)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_directory_is_asked_about_those_who_are_there(place, monkeypatch):
    place.connect("imap")
    place.connect("imap", user="bob")
    place.connect("imap", user="root", acts_as="alice")
    outside, logins = Outside(place.store, monkeypatch), OpenLogins.of(place.store)

    def round_at(seconds):
        outside.now, outside.asked = 1000.0 + seconds, []
        for user in logins._due():
            logins._ask(user)
        return sorted(outside.asked)

    assert round_at(0) == [] and round_at(59) == []
    assert round_at(60) == ["alice", "bob", "root"] and round_at(61) == [] and round_at(119) == []
    outside.epoch_now = b"2"                            # onecopy directory flush
    assert round_at(119.5) == ["alice", "bob", "root"] and round_at(120) == []
    outside.answer = StoreError(Problem.UNAVAILABLE)
    assert len(round_at(180)) == 1 and round_at(200) == []              # it is left alone for a while
    outside.answer = None
    assert sorted([*round_at(211), *round_at(240)]) == ["alice", "bob", "root"]
    place.wires[1].hang_up()
    assert round_at(400) == ["alice", "root"]


def test_who_has_no_row_here_is_known_by_what_is_said(place, monkeypatch):
    """A relay whose mail another back end keeps."""
    wire = place.connect("lmtp")
    login, = OpenLogins.of(place.store)._all
    place.without_news()
    place.store.directory.remove("alice")
    login._rowless = frozenset(["alice"])
    place.with_news()
    outside, logins = Outside(place.store, monkeypatch), OpenLogins.of(place.store)
    for answer, ends in ((Account("alice", "", credential=login.admitted.own.credential), False), (None, True)):
        outside.answer = answer
        logins._ask("alice")
        wire.settle()
        assert wire.closed is ends


@pytest.mark.parametrize("protocol", ["imap", "pop3"])
def test_nobody_is_woken_where_nothing_has_changed(quiet, faults, protocol):
    """Issue 24: each minute all sessions of a domain looked at everything, 20,000 in IDLE kept a processor busy."""
    wires = [quiet.connect(protocol) for _ in range(3)]
    if protocol == "imap":
        for wire in wires:
            wire.send(b"s SELECT INBOX\r\n")
            wire.send(b"i IDLE\r\n")
            wire.settle()
    woken = []
    faults.around(OpenLogin, "_answer", lambda _, login: woken.append(login))
    faults.around(Selection, "tell", lambda *_, **__: woken.append(protocol))
    quiet.store.news.look(quiet.store.news.subscribed())
    quiet.clock.advance(0)
    for wire in wires:
        wire.settle()
    assert woken == []
