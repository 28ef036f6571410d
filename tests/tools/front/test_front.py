"""tools/front: what nginx asks of each login (ngx_mail_auth_http_module), and what it hears."""

import logging
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import Clock

from store import offload
from store.accounts.base import Status
from store.accounts.builtin import BuiltinDirectory
from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.passwords import hash_password
from store.net.authentication import Authenticator
from store.opening import make_empty_store, open_store
from store.values import Secret
from tests.conftest import MEMORY
from tests.support.conversations.wire import Wire
from tests.support.faults.planted import Faults
from tools.exits import Failure
from tools.front import protocol
from tools.front.hosts import Hosts, Place, Unknown, parse_hosts, parse_server
from tools.front.settings import Settings

PASSWORD = "sesame open"
HERE, THERE = "192.0.2.1", "198.51.100.7"
LOGIN = LoginSettings()
QUESTION = (b"GET / HTTP/1.0\r\nAuth-Method: plain\r\nAuth-User: alice\r\nAuth-Pass: sesame%20open\r\n"
            b"Auth-Protocol: imap\r\nClient-IP: 192.0.2.1\r\nAuth-SSL: on\r\nAuth-Key: between us\r\n")
TABLE = ("one.example.org=10.0.0.1", "two.example.org=10.0.0.2:1143:1110", "six.example.org=[2001:db8::6]:2143")
WRONG = "[AUTHENTICATIONFAILED] The user name or the password is wrong"


class Front:
    """A store with users of several back ends, and proxies that ask about them."""

    def __init__(self, folder: Path) -> None:
        make_empty_store(folder)
        (folder / "front-secret").write_text("between us\n")
        self.store = open_store(folder)
        self.directory: BuiltinDirectory = self.store.directory      # type: ignore[assignment]
        hashed = hash_password(Secret(PASSWORD.encode()))
        for user, host in (("alice", "one.example.org"), ("bob", "TWO.example.org"), ("carol", ""),
                           ("dora@example.net", "six.example.org"), ("erin", "nowhere.example.org")):
            self.directory.add(user, hashed, host=host)
        self.patch: pytest.MonkeyPatch
        self.begin()

    def begin(self, login: LoginSettings = LOGIN, **changes: object) -> None:
        """Anew, with other settings."""
        self.clock = Clock()
        authenticator = Authenticator(self.store, login)
        self.store.owned.put(Authenticator, authenticator)
        authenticator.slow.clock = self.clock.seconds
        self.factory = protocol.factory(self.store, evolve(Settings(hosts=TABLE), **changes), self.clock)

    def raw(self, octets: bytes, proxy: str = "127.0.0.1") -> bytes:
        """What comes for some octets, when all waits are over; the connection has ended then."""
        wire = Wire(self.factory, self.clock, proxy)
        wire.send(octets)
        for _ in range(200):
            if wire.closed:
                break
            self.clock.advance(1)
            wire.settle()
        assert wire.closed
        return wire.received()

    def ask(self, user: str = "alice", password: str = PASSWORD, *, proxy: str = "127.0.0.1", drop: str = "",
            **more: str) -> dict[str, str]:
        """The fields of the answer to what nginx 1.22 sends of a client under TLS; "" is the status."""
        fields = {"Host": "127.0.0.1", "Auth-Method": "plain", "Auth-User": quote(user),
                  "Auth-Pass": quote(password), "Auth-Protocol": "imap", "Auth-Login-Attempt": "1",
                  "Client-IP": HERE, "Auth-Key": "between us",
                  "Client-Host": "[UNAVAILABLE]", "Auth-SSL": "on", "Auth-SSL-Verify": "NONE",
                  **{name.replace("_", "-"): value for name, value in more.items()}}
        fields.pop(drop, None)
        lines = ["GET / HTTP/1.0", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        return read(self.raw("\r\n".join(lines).encode(), proxy))


def read(answer: bytes) -> dict[str, str]:
    """An answer without a body, by RFC 9112 §2.1."""
    head, end, body = answer.partition(b"\r\n\r\n")
    assert end and not body, answer
    first, *lines = head.decode("ascii").split("\r\n")
    found = re.fullmatch(r"HTTP/1\.1 (\d{3}) [ -~]+", first)
    assert found, answer
    fields = dict(line.split(": ", 1) for line in lines)
    assert len(fields) == len(lines) and fields["Connection"] == "close"
    return {"": found[1], **fields}


def admitted(answer: dict[str, str]) -> tuple[str, str]:
    """Where nginx is sent."""
    assert answer[""] == "200" and answer["Auth-Status"] == "OK", answer
    return answer["Auth-Server"], answer["Auth-Port"]


@pytest.fixture(scope="module")
def made() -> Iterator[Front]:
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        front = Front(Path(folder) / "store")
        yield front
        front.store.close()


@pytest.fixture
def front(made: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Front]:
    made.patch = monkeypatch
    made.begin()
    caplog.set_level(logging.DEBUG)
    yield made
    made.directory.change("alice", status=Status.ACTIVE, access="")
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert PASSWORD not in said and quote(PASSWORD) not in said and "guess" not in said
    assert not [record for record in caplog.records if record.exc_info]


# Who gets in, and where to

@pytest.mark.parametrize(("user", "protocol", "where"), [
    ("alice", "imap", ("10.0.0.1", "143")), ("alice", "pop3", ("10.0.0.1", "110")),
    ("Alice@Example.ORG", "imap", ("10.0.0.1", "143")),
    ("bob", "imap", ("10.0.0.2", "1143")), ("bob", "pop3", ("10.0.0.2", "1110")),
    ("dora@example.net", "imap", ("2001:db8::6", "2143")), ("dora@example.net", "pop3", ("2001:db8::6", "110"))])
def test_the_right_password_opens_the_right_back_end(front: Front, user: str, protocol: str,
                                                     where: tuple[str, str]) -> None:
    assert admitted(front.ask(user, Auth_Protocol=protocol)) == where


def test_other_ports(front: Front) -> None:
    front.begin(imap_port=10143, pop3_port=10110)
    assert admitted(front.ask()) == ("10.0.0.1", "10143")
    assert admitted(front.ask(Auth_Protocol="pop3")) == ("10.0.0.1", "10110")


@pytest.mark.parametrize("password", ["100% sure", "a+b c", "%41", "pässwörd", "\x01\x7f", "ends in %", "x" * 1024])
def test_a_password_of_any_octets(front: Front, password: str) -> None:
    front.directory.change("carol", password_hash=hash_password(Secret(password.encode())), host="10.9.9.9")
    assert admitted(front.ask("carol", password)) == ("10.9.9.9", "143")
    assert front.ask("carol", password + "x")["Auth-Status"] == WRONG
    front.directory.change("carol", password_hash=hash_password(Secret(PASSWORD.encode())), host="")


def test_who_is_unknown_is_told_from_no_wrong_password(front: Front) -> None:
    front.begin(LoginSettings(slow_first=0))
    wrong = front.ask(password="guess")
    assert wrong["Auth-Status"] == WRONG and "Auth-Server" not in wrong
    for user in ("nobody", "nobody@elsewhere.example", "a b", "@", "", "alice\n", "x" * 2000):
        assert front.ask(user, "guess") == wrong
    assert front.ask(password="") == wrong
    assert front.ask(password="x" * 1025) == wrong
    for status in (Status.DISABLED, Status.INACTIVE, Status.DELETED, Status.HOLD):
        front.directory.change("alice", status=status)
        assert front.ask() == wrong


def test_the_words_are_those_of_each_protocol(front: Front) -> None:
    assert front.ask(password="guess", Auth_Protocol="pop3")["Auth-Status"] == WRONG.replace(
        "AUTHENTICATIONFAILED", "AUTH")
    refused = front.ask(password="guess", Auth_Protocol="smtp")
    assert refused["Auth-Status"] == WRONG.partition("] ")[2] and refused["Auth-Error-Code"] == "535 5.7.8"


def test_mail_that_is_sent(front: Front) -> None:
    assert front.ask(Auth_Protocol="smtp")["Auth-Error-Code"].startswith("454 ")
    front.begin(smtp_server="10.0.0.25:587")
    assert admitted(front.ask(Auth_Protocol="smtp")) == ("10.0.0.25", "587")
    assert "Auth-Server" not in front.ask(Auth_Protocol="smtp", Auth_Method="none")


def test_passwords_in_the_clear(front: Front) -> None:
    for ssl in ({"drop": "Auth-SSL"}, {"Auth_SSL": "off"}):
        assert front.ask(**ssl)["Auth-Status"] == "[AUTHORIZATIONFAILED] Passwords are taken only under TLS"
        assert admitted(front.ask(Client_IP="127.0.0.1", **ssl)) == ("10.0.0.1", "143")
    front.begin(plaintext_login=True)
    assert admitted(front.ask(drop="Auth-SSL")) == ("10.0.0.1", "143")


@pytest.mark.parametrize("method", ["cram-md5", "apop", "external", "none", "", "PLAINS"])
def test_what_is_no_password(front: Front, method: str) -> None:
    """External above all, which comes with a user and without a password."""
    assert "Auth-Server" not in front.ask(Auth_Method=method)
    assert "Auth-Server" not in front.ask(password="", Auth_Method=method)


def test_access_rules_are_about_the_client(front: Front) -> None:
    front.directory.change("alice", access="+imaps:192.0.2.0/24$+pop:127.0.0.1")
    assert admitted(front.ask()) == ("10.0.0.1", "143")
    for refused in ({"Client_IP": THERE}, {"Auth_Protocol": "pop3"}, {"Client_IP": "127.0.0.1", "Auth_SSL": ""}):
        answer = front.ask(**refused)
        assert "Auth-Server" not in answer and "not for you" in answer["Auth-Status"]


# Where back ends are

def test_users_without_a_back_end(front: Front) -> None:
    assert front.ask("carol")["Auth-Status"].startswith("[UNAVAILABLE] ")
    assert front.ask("carol", Auth_Protocol="pop3")["Auth-Status"].startswith("[SYS/TEMP] ")
    front.begin(default_host="two.example.org")
    assert admitted(front.ask("carol")) == ("10.0.0.2", "1143")


def test_a_back_end_that_nobody_knows(front: Front, faults: Faults) -> None:
    faults.fail(protocol, "resolve", OSError("no such name"))
    answer = front.ask("erin")
    assert answer["Auth-Status"].startswith("[UNAVAILABLE] ") and "Auth-Wait" not in answer
    assert front.ask("erin", "guess")["Auth-Status"] == WRONG


def fails(name: str) -> str:
    raise OSError(f"no {name}")


def test_names_are_asked_once_in_a_while() -> None:
    clock, asked, answers = Clock(), [], iter(["10.1.1.1", "10.1.1.2", None, "10.1.1.3"])

    async def resolve(name: str) -> str:
        asked.append(name)
        answer = next(answers)
        if answer is None:
            raise OSError("the resolver does not answer")
        return answer

    hosts = Hosts({"a": Place("10.0.0.1")}, resolve, clock.seconds, 60)
    found = []
    for _ in range(8):
        found.append(offload.now(hosts.find("B.example")).address)
        clock.advance(30)
    # The third answer does not come: the second holds on.
    assert found == [f"10.1.1.{last}" for last in (1, 1, 2, 2, 2, 2, 3, 3)]
    assert asked == ["b.example"] * 4
    assert offload.now(hosts.find("A")).address == "10.0.0.1"
    assert offload.now(hosts.find("2001:DB8::1")).address == "2001:db8::1"


def test_nobody_waits_for_a_slow_resolver_but_the_one_who_asks() -> None:
    clock, asked = Clock(), []

    async def resolve(name: str) -> str:
        asked.append(Deferred())
        return str(await asked[-1])

    hosts = Hosts({}, resolve, clock.seconds, 60)
    first = ensureDeferred(hosts.find("b"))
    asked[0].callback("10.1.1.1")
    assert first.result.address == "10.1.1.1"
    clock.advance(61)
    second = ensureDeferred(hosts.find("b"))
    assert offload.now(hosts.find("b")).address == "10.1.1.1"
    asked[1].callback("10.1.1.2")
    assert second.result.address == offload.now(hosts.find("b")).address == "10.1.1.2"
    assert len(asked) == 2


def test_that_there_is_none_is_remembered_too() -> None:
    clock, asked = Clock(), []

    async def resolve(name: str) -> str:
        asked.append(name)
        raise UnicodeError("a label is too long")

    hosts = Hosts({}, resolve, clock.seconds, 60)
    for _ in range(4):
        with pytest.raises(Unknown):
            offload.now(hosts.find("b"))
        clock.advance(40)
    assert len(asked) == 2


@pytest.mark.parametrize("word", ["one", "=10.0.0.1", "one=", "one=two.example.org", "one=10.0.0.1:0", "one=10.0.0.1:x",
                                  "one=10.0.0.1:65536", "one=10.0.0.1:1:2:3", "one=[::1", "one=[::1]143", "one=::1"])
def test_entries_of_the_table_that_are_none(word: str) -> None:
    with pytest.raises(ValueError):
        parse_hosts([word])


def test_what_is_no_server() -> None:
    for word in ("10.0.0.1", "10.0.0.1:25:26", "relay.example.org:25"):
        with pytest.raises(ValueError):
            parse_server(word)
    assert parse_server("[::1]:587") == ("::1", 587)


# Guessing is slow

def test_the_penalty_is_waited_out_at_the_proxy(front: Front) -> None:
    """As long as a login is made to wait: three failures are free, then 1 second, 2, 4; and not twice."""
    waits, seconds = [], []
    for number in range(7):
        before = front.clock.seconds()
        answer = front.ask(password=f"guess {number}", Auth_Login_Attempt="1", Client_IP=HERE)
        seconds.append(front.clock.seconds() - before)
        waits.append(int(answer["Auth-Wait"]))
        front.clock.advance(waits[-1])          # nginx does
    assert waits == [1, 1, 1, 2, 4, 8, 16]
    assert seconds == [0] * 7


def test_who_does_not_wait_at_the_proxy_waits_here(front: Front) -> None:
    for number in range(5):
        answer = front.ask(password=f"guess {number}")
        front.clock.advance(int(answer["Auth-Wait"]))
    assert answer["Auth-Wait"] == "4"
    assert "Auth-Wait" in front.ask(password="guess 5")         # that one has waited,
    before = front.clock.seconds()
    assert "Auth-Wait" in front.ask(password="guess 6")         # and this one comes at once
    assert front.clock.seconds() - before >= 8
    before = front.clock.seconds()
    assert "Auth-Server" in front.ask()                         # the right one waits, too
    assert front.clock.seconds() - before >= 16


def test_what_was_waited_counts_once(front: Front) -> None:
    """Two hundred clients of the proxy do not all come in on one wait."""
    for number in range(4):
        front.ask(password=f"guess {number}", Client_IP=f"203.0.{number}.1")
    front.clock.advance(60)
    wires = [Wire(front.factory, front.clock) for _ in range(200)]
    for number, wire in enumerate(wires):
        peer = b"203.%d.113.9" % number
        wire.send(QUESTION.replace(b"sesame", b"guess%d" % number).replace(b"192.0.2.1", peer) + b"\r\n")
    front.clock.advance(1)
    for wire in wires:
        wire.settle()
    answers = [wire.received() for wire in wires if wire.closed]
    looked = [answer for answer in answers if b"AUTHENTICATIONFAILED" in answer]
    assert len(looked) == 1 and sum(b"[LIMIT]" in answer for answer in answers) > 190
    for wire in wires:
        wire.hang_up()


def test_a_repeated_password_is_no_guess(front: Front) -> None:
    for _ in range(9):
        assert front.ask(password="guess")["Auth-Wait"] == "1"
    assert "Auth-Server" in front.ask()


def test_an_address_that_guesses(front: Front) -> None:
    for number in range(10):
        assert front.ask(f"user{number}", "guess")["Auth-Wait"] == "1"
    assert front.ask("user10", "guess", Client_IP=THERE)["Auth-Wait"] == "1"
    assert front.ask("user11", "guess")["Auth-Wait"] == "2"


def test_the_last_attempt_ends_the_connection(front: Front) -> None:
    for attempt in range(1, 5):
        assert "Auth-Wait" in front.ask("nobody", "guess", Auth_Login_Attempt=str(attempt))
    for attempt in (5, 6, 100):
        assert "Auth-Wait" not in front.ask("nobody", "guess", Auth_Login_Attempt=str(attempt))


def test_a_password_that_was_right_is_remembered(front: Front, faults: Faults) -> None:
    admitted(front.ask())
    faults.forbid(front.directory, "authenticate")
    assert admitted(front.ask()) == ("10.0.0.1", "143")


# Who may ask

def test_only_proxies_may_ask(front: Front) -> None:
    front.begin(networks=("10.0.0.0/8",))
    assert front.ask(proxy="127.0.0.1")[""] == "403"
    assert admitted(front.ask(proxy="10.1.2.3")) == ("10.0.0.1", "143")


def test_the_secret(front: Front, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("between us\nthe rest\n")
    front.begin(secret_file=file)
    assert front.ask(drop="Auth-Key")[""] == "403"
    for more in ({"Auth_Key": ""}, {"Auth_Key": "between"}, {"Auth_Key": "between u\xfc"}):
        answer = front.ask(**more)
        assert answer[""] == "403" and "Auth-Status" not in answer
    assert admitted(front.ask(Auth_Key="between us")) == ("10.0.0.1", "143")
    file.write_text("\n")
    for wrong in (file, tmp_path / "none"):
        with pytest.raises(Failure):
            front.begin(secret_file=wrong)


def test_the_first_start_makes_a_secret(front: Front) -> None:
    """It was optional: who reached the port could ask, without limit, whether a password is right."""
    file = front.store.root / "front-secret"
    try:
        file.unlink()
        front.begin()
        made = file.read_text().strip()
        assert len(made) >= 40 and stat.S_IMODE(file.stat().st_mode) == 0o600
        assert front.ask()[""] == front.ask(drop="Auth-Key")[""] == front.ask(Auth_Key="")[""] == "403"
        assert admitted(front.ask(Auth_Key=made)) == ("10.0.0.1", "143")
        front.begin()
        assert file.read_text().strip() == made
        assert not list(front.store.root.glob("front-secret.*"))
    finally:
        file.write_text("between us\n")


# What comes may be anything

@pytest.mark.parametrize("drop", ["Auth-Protocol", "Client-IP"])
def test_what_must_be_there(front: Front, drop: str) -> None:
    assert front.ask(drop=drop)[""] == "400"


@pytest.mark.parametrize("more", [{"Client_IP": "unix:"}, {"Client_IP": "10.0.0.1, 10.0.0.2"},
                                  {"Auth_Protocol": "lmtp"}, {"Auth_Login_Attempt": "-1"},
                                  {"Auth_Login_Attempt": "\xb2"}])
def test_what_must_make_sense(front: Front, more: dict[str, str]) -> None:
    assert front.ask(**more)[""] == "400"


@pytest.mark.parametrize(("octets", "status"), [
    (QUESTION + b"\r\n", "200"), (QUESTION.replace(b"\r\n", b"\n") + b"\n", "200"),
    (QUESTION.replace(b"GET / ", b"GET /auth?x=y ") + b"\r\n", "200"),
    (QUESTION.replace(b"GET", b"HEAD") + b"\r\n", "405"), (QUESTION.replace(b"GET", b"POST") + b"\r\n", "405"),
    (QUESTION + b"Auth-User: bob\r\n\r\n", "400"),          # two of them
    (QUESTION + b"auth-pass: x\r\n\r\n", "400"),
    (QUESTION + b" folded\r\n\r\n", "400"), (QUESTION + b"no colon\r\n\r\n", "400"),
    (QUESTION + b"Space : x\r\n\r\n", "400"), (QUESTION + b"X: \x00\r\n\r\n", "400"),
    (QUESTION + b"Content-Length: 5\r\n\r\nhello", "400"), (QUESTION + b"Transfer-Encoding: chunked\r\n\r\n", "400"),
    (b"GET / HTTP/2.0\r\n\r\n", "400"), (b"GET http://x/ HTTP/1.1\r\n\r\n", "400"), (b"\r\n", "400"),
    (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400"), (b"a1 LOGIN alice x\r\n\r\n", "400"),
    (QUESTION + b"X: y\r\n" * 100 + b"\r\n", "400"),
    (QUESTION + b"".join(b"X%d: y\r\n" % number for number in range(100)) + b"\r\n", "400"),
    (b"GET /" + b"x" * 20_000 + b" HTTP/1.0\r\n\r\n", "400"),
    (QUESTION + b"".join(b"X%d: %b\r\n" % (number, b"y" * 8000) for number in range(10)) + b"\r\n", "400")])
def test_other_requests(front: Front, octets: bytes, status: str) -> None:
    assert read(front.raw(octets))[""] == status


def test_a_proxy_that_says_nothing_more(front: Front) -> None:
    """It is cut off, and nothing is kept of it."""
    assert front.raw(QUESTION) == b""
    assert front.clock.seconds() < 20
    assert front.raw(b"GET / HTTP/1.0\r\nX: " + b"y" * 300_000) in (b"", front.raw(b"\r\n"))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(
    [*QUESTION.splitlines(keepends=True), b"\r\n", b"Auth-Key: x", b": ", b"\n", b"%", b"Client-IP: ::1%25\r\n"])),
    max_size=14))
def test_anything(front: Front, pieces: list[bytes]) -> None:
    """Whatever comes, nobody is let in who has not said alice's name and password."""
    octets = b"".join(pieces) + b"\r\n\r\n"
    answer = front.raw(octets)
    if answer:
        fields = read(answer)
        assert fields[""] in ("200", "400", "403", "405")
        assert "Auth-Server" not in fields or (b"Auth-User: alice" in octets and b"sesame%20open" in octets)


def test_numbers_of_connections(front: Front) -> None:
    front.begin(connections=2)
    wires = [Wire(front.factory, front.clock) for _ in range(3)]
    wires[2].settle()
    assert wires[2].closed and not wires[0].closed
    wires[0].hang_up()
    assert read(front.raw(QUESTION + b"\r\n"))[""] == "200"
    for wire in wires[1:]:
        wire.hang_up()
