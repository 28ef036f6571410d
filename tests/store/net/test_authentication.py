"""The way in: failed logins wait, nobody waits for others for long, who may act as whom, what rules of access say."""

import gc
import logging
from base64 import b64encode
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from store import offload
from store.accounts.base import Status
from store.accounts.loginsettings import Settings
from store.accounts.mechanisms import NotOffered
from store.errors import Problem, StoreError
from store.net import authentication
from store.net import authentication as module
from store.net.authentication import Authenticator
from store.net.callers import AT_ONCE, PATIENCE, Admitted, Caller
from store.net.linestates import ConnectionLost, Stopping
from store.net.streamfactory import StreamFactory
from store.values import Secret
from tests.conftest import MEMORY
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import make_store

GOOD, BAD = b"secret", b"wrong"
HERE, THERE = "192.0.2.1", "198.51.100.1"


@pytest.fixture(scope="module")
def whole_store():
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        store = make_store(Path(folder) / "store", ["alice", "bob", "root", "proxy"])
        yield store
        store.close()


@pytest.fixture
def place(whole_store, monkeypatch):
    gc.freeze()                 # what there is by now need not be searched in the end
    made = Place(whole_store, monkeypatch)
    yield made
    made.authenticator = None
    made.looking.clear()
    gc.collect()                # logins that still wait end now: not in the middle of another test
    whole_store.directory.change("alice", status=Status.ACTIVE, access="")


class Place:
    """An authenticator on a fake clock. Passwords are looked at when `look` says so."""

    def __init__(self, store, monkeypatch):
        self.store = store
        self.clock = Clock()
        self.looking = []                   # those whose passwords are being looked at: user, kind, and what ends it
        self.slowly = False
        self.guesses = count()
        self.configure()
        monkeypatch.setattr(authentication, "account_that_logs_in", self.authenticate)

    def configure(self, **settings):
        self.authenticator = Authenticator(self.store, evolve(Settings(slow_exclude=()), **settings))
        self.authenticator.slow.clock = self.clock.seconds

    async def authenticate(self, store, user, password, kind="directory"):
        done = Deferred()
        self.looking.append((user, kind, done))
        if self.slowly:
            await done
        if password.reveal() != GOOD or (found := store.directory.find(store.directory.user_id(user))) is None:
            raise StoreError(Problem.BAD_LOGIN)
        return found

    def login(self, user="alice", password=None, peer=HERE, service="imap"):
        """Without a password by a wrong one, another each time: the same one again would be no guess."""
        password = b"wrong %d" % next(self.guesses) if password is None else password
        return Login(self, peer, service, lambda caller: self.authenticator.password(caller, user, Secret(password)))

    def sasl(self, mechanism, *responses, peer=HERE, service="imap", passwords=True):
        said = list(responses)
        heard = []

        async def talk(challenge):
            heard.append(challenge)
            return Secret(said.pop(0))

        made = Login(self, peer, service,
                     lambda caller: self.authenticator.authenticate(caller, mechanism, None, talk), passwords)
        made.heard = heard
        return made


class Login:
    """A connection that tries to log in; `outcome` is what came of it, at `when`."""

    def __init__(self, place, peer, service, work, passwords=True):
        self.outcome = self.when = None
        self._place, self._work, self._service, self._passwords = place, work, service, passwords
        self.factory = StreamFactory(self._start, place.clock)
        self.wire = Wire(self.factory, place.clock, peer=peer)

    def _start(self, stream):
        self.stream = stream
        return self

    async def run(self):
        try:
            self.outcome = await self._work(Caller(self.stream, self._service, self._passwords))
        except StoreError as error:
            self.outcome = error.problem
        except Exception as error:
            self.outcome = type(error)
        self.when = self._place.clock.seconds()


# Slow-down

def test_failures_of_a_user_slow_its_next_login_down(place):
    found = []
    for number in range(8):
        login = place.login(peer=f"203.0.113.{number}")
        before = place.clock.seconds()
        while login.outcome is None:
            place.clock.advance(0.5)
        assert login.outcome is Problem.BAD_LOGIN
        found.append(login.when - before)
    assert found == [0, 0, 0, 1, 2, 4, 8, 16]
    assert place.login("bob", GOOD, peer=THERE).outcome.account.user == "bob"


def test_the_right_password_waits_as_well(place):
    """Or the time would tell a guess from the password before the answer comes."""
    waited = []
    for password in (GOOD, None):
        place.configure()
        for number in range(5):
            login = place.login(peer=f"203.0.113.{number}")
            place.clock.advance(5 if login.outcome is None else 0)
        before, login = place.clock.seconds(), place.login(password=password, peer=THERE)
        while login.outcome is None:
            place.clock.advance(0.5)
        waited.append(login.when - before)
    assert waited[0] == waited[1] > 0


def test_an_unknown_user_waits_like_any_other(place):
    times = {}
    for user in ("alice", "nobody"):
        for number in range(6):
            login = place.login(user, peer=f"203.0.{len(user)}.{number}")
            before = place.clock.seconds()
            while login.outcome is None:
                place.clock.advance(0.5)
            times.setdefault(user, []).append((login.when - before, login.outcome))
    assert times["alice"] == times["nobody"]


def test_who_has_logged_in_there_before_does_not_wait(place):
    assert isinstance(place.login(password=GOOD).outcome, Admitted)
    for number in range(20):
        login = place.login(peer=f"203.0.113.{number}")
        place.clock.advance(30 if login.outcome is None else 0)
    for _ in range(20):
        login = place.login("bob")
        place.clock.advance(30 if login.outcome is None else 0)
    assert place.login(password=GOOD, peer=HERE).outcome.account.user == "alice"
    assert place.login(password=GOOD, peer="192.0.2.200").outcome.account.user == "alice"
    assert place.login("bob", GOOD, peer=HERE).outcome is None
    assert place.login("bob", GOOD, peer=THERE).outcome is Problem.LIMIT      # one waits, and it would come after that
    assert place.login(peer="203.0.113.9").outcome is Problem.BAD_LOGIN
    assert place.login(password=GOOD, peer=THERE).outcome is None


def test_who_becomes_known_while_another_login_waits_lets_it_in(place):
    """A client that opens five connections at a time where it has not been before."""
    place.slowly = True
    logins = [place.login(password=GOOD) for _ in range(5)]
    for _, _, done in place.looking:
        done.callback(None)
    place.slowly = False
    place.clock.advance(1)
    assert all(isinstance(login.outcome, Admitted) for login in logins)
    assert max(login.when for login in logins) - min(login.when for login in logins) <= 1


def test_failures_from_an_address(place):
    for number in range(10):
        assert place.login(f"user{number}").outcome is Problem.BAD_LOGIN
    login = place.login("alice", GOOD)
    assert login.outcome is None
    place.clock.advance(0.9)
    assert login.outcome is None
    place.clock.advance(0.2)
    assert isinstance(login.outcome, Admitted)


@pytest.mark.parametrize(("peer", "other", "same"), [
    ("2001:db8::1", "2001:db8::2", True), ("2001:db8::1", "2001:db8:0:1::1", False),
    ("::ffff:192.0.2.9", "192.0.2.9", True), ("192.0.2.9", "192.0.2.10", False), ("local", "local", True)])
def test_what_is_one_address(place, peer, other, same):
    for number in range(10):
        place.login(f"user{number}", peer=peer)
    assert (place.login("alice", peer=other).outcome is None) == same


def test_addresses_that_do_not_count(place):
    place.configure(slow_exclude=("192.0.2.0/24",))
    for number in range(30):
        assert place.login(f"user{number}").outcome is Problem.BAD_LOGIN
    for _ in range(3):
        assert place.login("alice").outcome is Problem.BAD_LOGIN
    assert place.login("alice").outcome is None         # the user's count


def test_a_wait_ends_with_the_connection(place):
    for number in range(10):
        place.login(f"user{number}")
    logins = [place.login("alice") for _ in range(3)]
    assert {login.outcome for login in logins} == {None}
    looked = len(place.looking)
    for login in logins:
        login.wire.hang_up()
    assert {login.outcome for login in logins} == {ConnectionLost}
    assert place.authenticator._lines == {} and len(place.looking) == looked
    place.configure()
    for number in range(10):
        place.login(f"user{number}")
    stopped = place.login("alice")
    stopped.factory.stop()
    assert stopped.outcome is Stopping and place.authenticator._lines == {}
    assert not [call for call in place.clock.getDelayedCalls() if call.func.__name__ == "_event_is_late"]


class NoTokens:
    """Who is asked about tokens, and takes none."""

    def remembered(self, token):
        raise StoreError(Problem.BAD_LOGIN)


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "OAUTHBEARER", "XOAUTH2"])
def test_a_stale_device_keeps_nobody_out(place, caplog, mechanism):
    """It shows the same old password, or token, again and again, and nothing else."""
    place.configure(oauth_introspection="http://127.0.0.1/", oauth_audience="onecopy", slow_free_address=5)
    place.authenticator._tokens = NoTokens()
    said = {"PLAIN": [plain("", "alice", b"old")], "LOGIN": [b"alice", b"old"],
            "OAUTHBEARER": [b"n,a=alice,\1auth=Bearer old\1\1", b"\1"],
            "XOAUTH2": [b"user=alice\1auth=Bearer old\1\1", b""]}[mechanism]
    for _ in range(30):
        assert place.sasl(mechanism, *said, peer=THERE).outcome is Problem.BAD_LOGIN
    assert place.login(password=GOOD, peer="203.0.113.1").outcome.account.user == "alice"
    assert [record.getMessage().split()[0] for record in caplog.records] == ["login"] + ["repeated"] * 29


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize("service", ["imap", "pop", "lmtp"])
def test_every_way_in_is_slowed_down_alike(place, mechanism, service):
    place.configure(oauth_introspection="http://127.0.0.1/", oauth_audience="onecopy",
                    scram_keys=("SCRAM-SHA-256",))
    place.authenticator._tokens = NoTokens()
    found = []
    for number in range(6):
        peer, before = f"203.0.{number}.1", place.clock.seconds()
        if mechanism == "SCRAM-SHA-256":
            login = Scram(place, peer, service)
        elif mechanism == "PLAIN":
            login = place.sasl("PLAIN", plain("", "bob", b"%d" % number), peer=peer, service=service)
        else:
            token = b"n,a=bob,\1auth=Bearer %d\1\1" % number
            login = place.sasl("OAUTHBEARER", token, b"\1", peer=peer, service=service)
        while login.outcome is None:
            place.clock.advance(0.5)
        assert login.outcome is Problem.BAD_LOGIN
        found.append(login.when - before)
    assert found == [0, 0, 0, 1, 2, 4]


class Scram(Login):
    """A login as bob whose proof is wrong."""

    def __init__(self, place, peer, service):
        async def talk(challenge):
            if not challenge:
                return Secret(b"n,,n=bob,r=nonce")
            return Secret(b"c=biws," + challenge.split(b",")[0] + b",p=" + b64encode(bytes(32)))

        super().__init__(place, peer, service, lambda caller: place.authenticator.authenticate(
            caller, "SCRAM-SHA-256", None, talk))


# Lines

def test_a_few_from_an_address_at_a_time(place):
    place.slowly = True
    logins = [place.login(f"user{number}") for number in range(AT_ONCE + 3)]
    other = place.login("bob", GOOD, peer=THERE)
    assert [user for user, _, _ in place.looking] == ["user0", "user1", "bob"]
    place.looking[2][2].callback(None)
    assert other.outcome.account.user == "bob"
    place.looking[0][2].callback(None)
    assert logins[0].outcome is Problem.BAD_LOGIN and place.looking[3][0] == "user2"       # in the order they came
    logins[3].wire.hang_up()                                                                # who goes is left out
    place.looking[1][2].callback(None)
    assert place.looking[4][0] == "user4" and logins[3].outcome is ConnectionLost
    for _, _, done in place.looking[3:]:
        done.callback(None)
    assert place.authenticator._lines == {}


def test_nobody_waits_in_line_for_ever(place):
    place.slowly = True
    logins = [place.login() for _ in range(AT_ONCE + 1)]
    place.clock.advance(PATIENCE + 1)
    assert [login.outcome for login in logins] == [None, None, Problem.LIMIT]
    for _, _, done in place.looking:
        done.callback(None)
    assert place.authenticator._lines == {}


def test_tokens_from_an_address_that_does_not_count(place, faults):
    """Nothing is known of them: they stand in no line."""
    place.configure(slow_exclude=(HERE,), oauth_introspection="http://127.0.0.1/", oauth_audience="mail")
    asked = []

    async def run(_, store, kind, work, token):
        asked.append(kind)
        await Deferred()

    faults.around(offload, "run", run)
    for _ in range(AT_ONCE + 3):
        place.sasl("OAUTHBEARER", b"n,,\1auth=Bearer x\1\1")
    assert asked == ["tokens"] * (AT_ONCE + 3) and place.authenticator._lines == {}


def test_who_is_known_does_not_stand_behind_strangers(place):
    place.login("alice", GOOD)
    place.slowly = True
    for number in range(10):
        place.login(f"user{number}")
    place.login("alice", GOOD)
    assert place.looking[-1][0] == "alice"


def test_those_who_failed_before_have_threads_of_their_own(place):
    place.login("alice", GOOD)
    place.login("x")
    place.login("y")
    place.login("alice", GOOD)
    place.login("bob", GOOD, peer=THERE)
    assert [(user, kind) for user, kind, _ in place.looking] == [
        ("alice", "directory"), ("x", "directory"), ("y", "doubtful"), ("alice", "directory"), ("bob", "directory")]


def test_nobody_waits_for_what_a_client_says(place):
    """An exchange that is not finished keeps nobody out, but its failure counts."""
    never = Deferred()
    place.configure(oauth_introspection="http://127.0.0.1/", oauth_audience="mail", scram_keys=("SCRAM-SHA-256",))

    class NoTokens:
        def remembered(self, token):
            return ""

        def check(self, token):
            raise StoreError(Problem.BAD_LOGIN)

    place.authenticator._tokens = NoTokens()
    for mechanism, message in (("SCRAM-SHA-256", b"n,,n=alice,r=x"), ("XOAUTH2", b"user=carol\1auth=Bearer x%d\1\1")):
        async def talk(challenge, message=message):
            if challenge:
                await never
            return Secret(message % next(place.guesses) if b"%" in message else message)

        for _ in range(3 * AT_ONCE):
            made = Login(place, HERE, "imap", lambda caller, mechanism=mechanism, talk=talk:
                         place.authenticator.authenticate(caller, mechanism, None, talk))
            place.clock.advance(60)
            assert made.outcome is None
        assert place.authenticator._lines == {}
    names = {row.name for row, _ in place.authenticator.slow.rows()}
    assert "carol" in names and "alice" not in names
    assert isinstance(place.login("bob", GOOD).outcome, Admitted)


# Who may act as whom

def plain(acts_as, user, password=GOOD):
    return b"\0".join((acts_as.encode(), user.encode(), password))


@pytest.mark.parametrize(("user", "acts_as", "peer", "found"), [
    ("alice", "", HERE, ("alice", "alice")), ("alice", "Alice@Example.ORG", HERE, ("alice", "alice")),
    ("alice", "bob", HERE, Problem.NOT_AUTHORIZED), ("alice", "nobody", HERE, Problem.NOT_AUTHORIZED),
    ("root", "alice", HERE, ("alice", "root")), ("root", "ALICE@example.org", HERE, ("alice", "root")),
    ("root", "nobody", HERE, Problem.NOT_AUTHORIZED), ("root", "@", HERE, Problem.NOT_AUTHORIZED),
    ("proxy", "alice", HERE, Problem.NOT_AUTHORIZED), ("proxy", "alice", "10.0.0.9", ("alice", "proxy")),
    ("alice", "bob", "10.0.0.9", Problem.NOT_AUTHORIZED), ("nobody", "alice", HERE, Problem.BAD_LOGIN)])
def test_acting_as_another(place, caplog, user, acts_as, peer, found):
    place.configure(administrators=("root",), proxies=("proxy",), proxy_networks=("10.0.0.0/8",))
    caplog.set_level(logging.INFO)
    outcome = place.sasl("PLAIN", plain(acts_as, user), peer=peer).outcome
    if isinstance(found, Problem):
        assert outcome is found
    else:
        assert (outcome.account.user, outcome.authenticated) == found
        assert (f"{user} acts as {found[0]}, from {peer}" in caplog.text) == (user != found[0])
    assert place.sasl("PLAIN", plain(acts_as, user, BAD), peer=THERE).outcome is Problem.BAD_LOGIN


def test_nobody_acts_as_one_who_may_not_log_in(place):
    place.configure(administrators=("root",))
    place.store.directory.change("alice", status=Status.DISABLED)
    assert place.sasl("PLAIN", plain("alice", "root")).outcome is Problem.NOT_AUTHORIZED


# Rules of access

@pytest.mark.parametrize(("settings", "own", "domain", "service", "gets_in"), [
    ({}, "", "", "imap", True),
    ({}, "-imap:*", "", "imap", False), ({}, "-imap:*", "", "pop", True),
    ({}, "", "-imap:*", "imap", False), ({}, "+imap:*", "-imap:*", "imap", True),      # the user's own come first
    ({"access": "-imap:*"}, "", "", "imap", False), ({"access": "-imap:*"}, "+ALL:*", "", "imap", True),
    ({"access": "-imap:*"}, "", "+ALL:*", "imap", True),
    ({"service_access": "-imap:192.0.2.0/24"}, "+ALL:*", "", "imap", False),           # besides all others
    ({"service_access": "-imap:198.51.100.0/24"}, "+ALL:*", "", "imap", True),
    ({}, "+imaps:*", "", "imap", False)])
def test_rules_of_access(place, settings, own, domain, service, gets_in):
    place.configure(**settings)
    place.store.directory.change("alice", access=own)
    place.store.directory.domains.set_access("example.org", domain)
    try:
        for login in (place.login(password=GOOD, service=service),
                      place.sasl("PLAIN", plain("", "alice"), service=service)):
            assert isinstance(login.outcome, Admitted) if gets_in else login.outcome is Problem.NOT_AUTHORIZED
        assert place.login(service=service).outcome is Problem.BAD_LOGIN       # a wrong password hears nothing of rules
    finally:
        place.store.directory.domains.set_access("example.org", "")


def test_a_proxy_lets_nobody_in_past_the_rules_and_an_administrator_does(place):
    place.configure(administrators=("root",), proxies=("proxy",), proxy_networks=(HERE,))
    place.store.directory.change("alice", access="-ALL:*")
    assert place.sasl("PLAIN", plain("alice", "proxy")).outcome is Problem.NOT_AUTHORIZED
    assert place.sasl("PLAIN", plain("alice", "root")).outcome.account.user == "alice"


def test_rules_that_cannot_be_read_let_nobody_in(place):
    place.store.directory.change("alice", access="whatever")
    assert place.login(password=GOOD).outcome is Problem.UNAVAILABLE


def test_who_has_proved_to_be_a_user_is_not_slowed_down_by_rules(place):
    place.store.directory.change("alice", access="-ALL:*")
    for _ in range(20):
        assert place.login(password=GOOD).outcome is Problem.NOT_AUTHORIZED


# What is offered

def test_what_is_offered(place):
    login = place.login(password=GOOD)
    caller = Caller(login.stream, "imap", True)
    assert place.authenticator.mechanisms(caller) == ("PLAIN", "LOGIN")
    place.configure(scram_keys=("scram-sha-256",))
    assert place.authenticator.mechanisms(caller) == ("SCRAM-SHA-256", "PLAIN", "LOGIN")
    place.configure(scram_keys=("SCRAM-SHA-1", "SCRAM-SHA-256"))
    assert place.authenticator.mechanisms(caller) == ("SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "LOGIN")
    assert place.authenticator.mechanisms(Caller(login.stream, "imap", False)) == ()
    place.configure(mechanisms=("login", "oauthbearer"))
    assert place.authenticator.mechanisms(caller) == ("LOGIN",) and place.authenticator.takes_passwords(caller)
    place.configure(mechanisms=("OAUTHBEARER", "SCRAM-SHA-256"), oauth_introspection="http://127.0.0.1/",
                    oauth_audience="mail", scram_keys=("SCRAM-SHA-256",))
    assert place.authenticator.mechanisms(caller) == ("SCRAM-SHA-256", "OAUTHBEARER")
    assert not place.authenticator.takes_passwords(caller)
    for name in ("PLAIN", "SCRAM-SHA-256-PLUS", "EXTERNAL", "XOAUTH2", "CRAM-MD5", ""):
        assert place.sasl(name).outcome is NotOffered
    assert place.sasl("SCRAM-SHA-256", passwords=False).outcome is NotOffered


def test_the_entrance_of_a_store(whole_store):
    assert Authenticator.of(whole_store) is Authenticator.of(whole_store)
    assert not Authenticator.of(whole_store).settings.slow_first
    module.attach(whole_store, Settings())
    assert Authenticator.of(whole_store).settings == Settings()


def test_what_is_said_in_an_exchange(place):
    login = place.sasl("LOGIN", b"alice", GOOD)
    assert login.heard == [b"Username:", b"Password:"] and login.outcome.account.user == "alice"
