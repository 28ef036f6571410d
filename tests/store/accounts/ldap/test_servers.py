"""Several LDAP servers: which one is asked, TLS, referrals, and servers that do everything wrong."""

import os
import random
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from attrs import evolve

from store.accounts import clienttls
from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapsettings import ServerUri, Settings
from store.accounts.ldap.ldapwire import SUCCESS, Broken, Connection, Refused, _Framed
from store.errors import Problem, StoreError
from store.values import Secret
from tests.store.accounts.ldap.ldap_support import QUICK, Clock, settings_for
from tests.support.servers.certificates import Authority
from tests.support.servers.false_ldap import (
    BIND,
    BOUND,
    DONE,
    EXTENDED,
    REFERENCE,
    SEARCH,
    Answers,
    FalseLdap,
    entry,
    message,
    result,
    tlv,
)
from tests.support.servers.slapd import BASE, Slapd, person

pytestmark = pytest.mark.few_folders

ALICE = f"uid=alice,ou=people,{BASE}"
PASSWORD = Secret(b"secret")
JUNK = int(os.environ.get("LDAP_JUNK", "300"))          # damaged answers
BRIEF = Settings(starttls=False, connect_time=0.5, bind_time=0.2, search_time=0.2, retry_first=1, retry_longest=8)


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    with TemporaryDirectory(prefix="onecopy-") as folder:
        yield Authority(Path(folder), "directory-ca")


@pytest.fixture(scope="module")
def slapd(authority: Authority) -> Iterator[Slapd]:
    with TemporaryDirectory(prefix="onecopy-") as folder, \
            Slapd(Path(folder) / "slapd", certificate=authority.server()) as running:
        running.add(person("alice"))
        yield running


def found(servers: Servers, filter: str = "(uid=alice)") -> list[str]:
    return [one.dn for one in servers.search(BASE, filter, ("uid",)).entries]


def refused(servers: Servers) -> str:
    with pytest.raises(StoreError) as error:
        found(servers)
    assert error.value.problem is Problem.UNAVAILABLE
    return error.value.detail


# TLS

@pytest.mark.parametrize("starttls", [True, False])
def test_under_tls(slapd: Slapd, authority: Authority, tmp_path: Path, starttls: bool) -> None:
    settings = evolve(settings_for(tmp_path, slapd), ca=authority.file, starttls=starttls,
                      uris=(slapd.uri if starttls else slapd.tls_uri,))
    servers = Servers(settings)
    assert found(servers) == [ALICE] and servers.proves(ALICE, PASSWORD)
    assert not servers.proves(ALICE, Secret(b"wrong"))
    servers.close()


@pytest.mark.parametrize("starttls", [True, False])
def test_a_certificate_of_nobody_known_is_not_taken(slapd: Slapd, tmp_path: Path, starttls: bool) -> None:
    settings = evolve(settings_for(tmp_path, slapd), starttls=starttls,
                      uris=(slapd.uri if starttls else slapd.tls_uri,))
    servers = Servers(settings)
    refused(servers)
    assert "certificate" in servers.health()[0].failure.lower()


@pytest.mark.parametrize("tls", [True, False])
def test_a_certificate_for_another_host_is_not_taken(authority: Authority, tmp_path: Path, tls: bool) -> None:
    with Slapd(tmp_path / "other", certificate=authority.client("other.example.org", "other.example.org")) as other:
        servers = Servers(evolve(settings_for(tmp_path, other), ca=authority.file, starttls=True,
                                 uris=(other.tls_uri if tls else other.uri,)))
        refused(servers)
        assert "certificate" in servers.health()[0].failure.lower()


def test_no_password_goes_to_a_server_that_refuses_starttls(tmp_path: Path, slapd: Slapd) -> None:
    with FalseLdap(lambda operation, number, _: message(number, result(0x78, 52))) as false:
        servers = Servers(evolve(settings_for(tmp_path, slapd), starttls=True, uris=(false.uri,)))
        assert "StartTLS" in refused(servers)
        assert set(false.requests) == {EXTENDED}


def test_what_came_before_the_handshake_is_no_answer(authority: Authority, tmp_path: Path, slapd: Slapd) -> None:
    """RFC 4511 §4.14.1: octets put behind the answer to StartTLS by somebody in between belong to the handshake."""
    def answers(operation: int, number: int, _: bytes) -> bytes:
        return message(number, result(0x78, 0)) + message(number + 1, result(BOUND, 0)) + message(number + 2,
                                                                                              result(BOUND, 0))

    with FalseLdap(answers) as false:
        servers = Servers(evolve(BRIEF, starttls=True, ca=authority.file, uris=(false.uri,)))
        with pytest.raises(StoreError):
            servers.proves(ALICE, PASSWORD)
        assert BIND not in false.requests


def test_a_password_file_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no file"):
        Servers(evolve(QUICK, uris=("ldap://127.0.0.1",)))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ValueError, match="no password"):
        Servers(evolve(QUICK, uris=("ldap://127.0.0.1",), bind_password_file=tmp_path / "empty"))
    with pytest.raises(OSError, match="none"):
        Servers(evolve(QUICK, uris=("ldap://127.0.0.1",), bind_password_file=tmp_path / "none"))


# Which one is asked

def test_the_next_server_is_asked_and_the_first_again_when_it_is_back(slapd: Slapd, tmp_path: Path) -> None:
    clock = Clock()
    with Slapd(tmp_path / "first") as first:
        first.add(person("alice") + person("only-here"))
        servers = Servers(evolve(settings_for(tmp_path, first, slapd), retry_first=1.0, retry_longest=8.0), clock)
        assert found(servers, "(uid=only-here)")            # the first one is asked while it works
        first.kill()
        assert not found(servers, "(uid=only-here)")        # the kept connection is dead, a new one is refused
        assert servers.proves(ALICE, PASSWORD)
        pauses = []
        for _ in range(5):
            pauses.append(servers.health()[0].until - clock.now)
            clock.now += pauses[-1] - 0.01
            assert found(servers) and servers.health()[0].until > clock.now     # left alone
            clock.now += 0.02
            assert found(servers) == [ALICE]                # it was tried, and the second one answered
        assert pauses == [1, 2, 4, 8, 8]
        first.start()
        assert not found(servers, "(uid=only-here)")        # its time has not come
        clock.now += 8
        assert found(servers, "(uid=only-here)")
        assert servers.health()[0].failures == 0
        servers.close()


def test_a_server_that_hangs_is_given_up_in_time(slapd: Slapd, tmp_path: Path) -> None:
    with Slapd(tmp_path / "first") as first:
        first.add(person("alice"))
        servers = Servers(evolve(settings_for(tmp_path, first, slapd), search_time=0.2, bind_time=0.2,
                                 connect_time=0.5, retry_first=100, retry_longest=100))
        assert found(servers) == [ALICE]
        first.hang()
        assert found(servers) == [ALICE]                    # on the kept connection
        assert "not answer" in servers.health()[0].failure
        first.resume()
        servers.close()


def test_one_thread_tries_a_server_that_had_failed(slapd: Slapd, tmp_path: Path) -> None:
    clock, tries = Clock(), []

    def answers(operation: int, number: int, _: bytes) -> bytes | None:
        tries.append(operation)
        if len(tries) == 1:
            return None
        if len(tries) == 2:                                 # meanwhile another thread comes
            assert found(servers) == [ALICE]
        return message(number, result(BOUND, 0)) if operation == BIND else message(number, result(DONE, 0))

    with FalseLdap(answers) as false:
        servers = Servers(evolve(settings_for(tmp_path, slapd), uris=(false.uri, slapd.uri), retry_first=1.0), clock)
        assert found(servers) == [ALICE] and len(tries) == 1
        clock.now += 2
        assert found(servers) == []                         # the false one has nobody
        assert tries == [BIND, BIND, SEARCH]
        servers.close()


def test_connections_are_kept_and_not_for_ever(slapd: Slapd, tmp_path: Path) -> None:
    clock = Clock()
    with FalseLdap(lambda operation, number, _: message(
            number, result(BOUND, 0) if operation == BIND else result(DONE, 0))) as false:
        servers = Servers(evolve(settings_for(tmp_path, slapd), uris=(false.uri,), idle_time=60), clock)
        for _ in range(3):
            found(servers)
        assert false.requests == [BIND, SEARCH, SEARCH, SEARCH]
        clock.now += 61
        found(servers)
        assert false.requests == [BIND, SEARCH, SEARCH, SEARCH, BIND, SEARCH]
        servers.close()


def test_a_server_that_closes_idle_connections_has_not_failed(slapd: Slapd, tmp_path: Path) -> None:
    with Slapd(tmp_path / "own") as own:
        own.add(person("alice"))
        servers = Servers(evolve(settings_for(tmp_path, own), retry_first=100, retry_longest=100))
        assert found(servers) == [ALICE]
        own.kill()
        own.start()
        assert found(servers) == [ALICE] and servers.health()[0].failures == 0
        servers.close()


# Referrals

def referring(*uris: bytes, result_code: int = 0) -> Answers:
    """It has nobody, and says where else to ask: by references (RFC 4511 §4.5.3), or by a result of referral
    (§4.1.10)."""
    def answers(operation: int, number: int, _: bytes) -> bytes:
        if operation == BIND:
            return message(number, result(BOUND, 0))
        named = [tlv(0x04, uri) for uri in uris]
        if result_code == 10:
            return message(number, result(DONE, 10, tlv(0xA3, *named)))
        return message(number, tlv(REFERENCE, *named)) + message(number, result(DONE, 0))
    return answers


@pytest.mark.parametrize("code", [0, 10])
def test_referrals_fail_unless_told_otherwise(slapd: Slapd, tmp_path: Path, code: int) -> None:
    uri = f"ldap://127.0.0.1:{slapd.port}/{BASE}??sub".encode()
    with FalseLdap(referring(uri, result_code=code)) as false:
        settings = evolve(settings_for(tmp_path, slapd), uris=(false.uri, slapd.uri))
        assert "referral" in refused(Servers(settings))
        assert found(Servers(evolve(settings, referrals="follow"))) == [ALICE]
        if not code:                                        # the whole answer is elsewhere: that cannot be ignored
            assert found(Servers(evolve(settings, referrals="ignore"))) == []
        else:
            refused(Servers(evolve(settings, referrals="ignore")))


@pytest.mark.parametrize("uri", [b"ldap://192.0.2.1/dc=example,dc=org", b"ldap://127.0.0.1:1/", b"http://x/", b"\xff",
                                 b"ldap://[", b""])
def test_referrals_lead_to_no_other_server(slapd: Slapd, tmp_path: Path, uri: bytes) -> None:
    with FalseLdap(referring(uri)) as false:
        refused(Servers(evolve(settings_for(tmp_path, slapd), uris=(false.uri,), referrals="follow")))


def test_referrals_end(slapd: Slapd, tmp_path: Path) -> None:
    with FalseLdap(lambda *request: referring(f"{false.uri}/".encode())(*request)) as false:
        settings = evolve(settings_for(tmp_path, slapd), uris=(false.uri,), referrals="follow")
        assert "without end" in refused(Servers(settings))
        assert false.requests.count(SEARCH) < 10


# Wrong in every way

def drip(octets: bytes) -> Iterator[bytes]:
    for octet in octets:
        yield bytes([octet])


def half(number: int) -> Iterator[bytes]:
    yield message(number, result(DONE, 0))[:5]
    raise ConnectionResetError


WRONG: dict[str, object] = {
    "it closes": lambda number: None,
    "silence": lambda number: b"",
    "another protocol": lambda number: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "half an answer": lambda number: message(number, result(DONE, 0))[:5],
    "half an answer, then the end": half,
    "the number of no request": lambda number: message(number + 1, result(DONE, 0)),
    "a negative number": lambda number: tlv(0x30, tlv(2, b"\xff"), result(DONE, 0)),
    "a number of nine octets": lambda number: tlv(0x30, tlv(2, b"\1" * 9), result(DONE, 0)),
    "it takes its leave": lambda number: message(0, result(0x78, 52)),
    "an answer to something else": lambda number: message(number, result(BOUND, 0)),
    "an operation that there is not": lambda number: message(number, tlv(0x7E, b"")),
    "no operation": lambda number: message(number),
    "no content": lambda number: b"\x30\x00",
    "an indefinite length": lambda number: b"\x30\x80" + message(number, result(DONE, 0))[2:] + b"\0\0",
    "a length of two gigabytes": lambda number: b"\x30\x84\x7f\xff\xff\xff" + b"x" * 100,
    "a length of nine octets": lambda number: b"\x30\x89" + b"\xff" * 9,
    "a length inside that is too long": lambda number: message(number, b"\x65\x7f\x0a\x01\x00"),
    "a result that is no number": lambda number: message(number, tlv(DONE, tlv(0x04, b"x"))),
    "an empty result": lambda number: message(number, tlv(DONE)),
    "a name that is no text": lambda number: message(number, entry(b"\xff\xfe", {})) + message(number,
                                                                                               result(DONE, 0)),
    "an entry of garbage": lambda number: message(number, tlv(0x64, b"\x04\x05abcd\x30\x84")),
    "busy": lambda number: message(number, result(DONE, 51)),
    "no such base": lambda number: message(number, result(DONE, 32)),
    "not allowed": lambda number: message(number, result(DONE, 50)),
    "its own limit": lambda number: message(number, result(DONE, 11)),
    "a result that does not exist": lambda number: message(number, result(DONE, 99)),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_search_that_goes_wrong(fault: str) -> None:
    def answers(operation: int, number: int, _: bytes) -> bytes | Iterator[bytes] | None:
        if operation == BIND:
            return message(number, result(BOUND, 0))
        said = WRONG[fault](number)         # type: ignore[operator]
        return said                         # type: ignore[no-any-return]

    with FalseLdap(answers) as false:
        refused(Servers(evolve(BRIEF, uris=(false.uri,))))


@pytest.mark.parametrize("what", ["one message", "entries without end"])
def test_an_answer_has_a_limit(what: str) -> None:
    def answers(operation: int, number: int, _: bytes) -> Iterator[bytes]:
        if what == "one message":
            yield b"\x30\x84\x7f\xff\xff\xff"
        while what != "one message":
            yield message(number, entry(b"uid=x", {b"uid": [b"x" * 50_000]}))

    with FalseLdap(answers) as false:
        servers = Servers(evolve(BRIEF, search_time=60, uris=(false.uri,)))
        refused(servers)
        assert "more than" in servers.health()[0].failure


class OneByOne:
    """A socket from which an octet comes each second; at last it is silent."""

    def __init__(self, clock: Clock, octets: bytes) -> None:
        self.clock, self.octets, self.limits = clock, octets, [0.0]

    def settimeout(self, seconds: float) -> None:
        self.limits.append(seconds)

    def recv(self, most: int) -> bytes:
        if not self.octets:
            self.clock.now += self.limits[-1]
            raise TimeoutError
        octet, self.octets = self.octets[:1], self.octets[1:]
        self.clock.now += 1
        return octet


def test_each_wait_has_what_is_left_of_the_time() -> None:
    clock = Clock()
    fake = OneByOne(clock, b"\x30\x05\x02")
    framed = _Framed(cast(socket.socket, fake), clock, clock.now + 10)
    with pytest.raises(ConnectionAbortedError):
        framed.recv(4096)
    assert fake.limits[1:] == [10, 9, 8, 7] and clock.now == 1010 and framed.failure == "it does not answer"


@pytest.mark.parametrize("slow", [True, False])
def test_an_answer_counts_from_its_beginning(slow: bool) -> None:
    """One that comes octet by octet has the time of one answer, not of one octet."""
    def answers(operation: int, number: int, _: bytes) -> bytes | Iterator[bytes]:
        whole = message(number, entry(b"uid=x", {b"uid": [b"x"]})) + message(number, result(DONE, 0))
        return drip(whole) if not slow else waiting(whole)

    def waiting(whole: bytes) -> Iterator[bytes]:
        for octet in whole:
            yield bytes([octet])
            clock.now += 0.01               # 0.2 s pass before it is all there

    clock = Clock()
    with FalseLdap(answers) as false:
        servers = Servers(evolve(BRIEF, uris=(false.uri,)), clock)
        if slow:
            refused(servers)
        else:
            assert found(servers) == ["uid=x"]


def bind_answers(body: bytes) -> Answers:
    return lambda operation, number, _: message(number, body)


@pytest.mark.parametrize("body", [
    b"", result(DONE, 0), result(0x78, 0), tlv(BOUND), tlv(BOUND, tlv(0x0A)),
    tlv(BOUND, tlv(0x0A, b"\1\0"), tlv(4), tlv(4)), tlv(BOUND, tlv(0x02, b"\0"), tlv(4), tlv(4)),
    tlv(BOUND, tlv(4), tlv(4)), result(BOUND, 10), result(BOUND, 14), result(BOUND, 1), result(BOUND, 2),
    result(BOUND, 8), result(BOUND, 51), result(BOUND, 80), b"\x61\x80\x0a\x01\x00\0\0"])
def test_no_other_answer_to_a_bind_lets_in(body: bytes) -> None:
    with FalseLdap(bind_answers(body)) as false:
        servers = Servers(evolve(BRIEF, uris=(false.uri,)))
        with pytest.raises(StoreError) as error:
            servers.proves(ALICE, PASSWORD)
        assert error.value.problem is Problem.UNAVAILABLE


def test_an_answer_to_another_bind_lets_nobody_in() -> None:
    with FalseLdap(lambda operation, number, _: message(number + 1, result(BOUND, 0))) as false:
        servers = Servers(evolve(BRIEF, bind_time=60, uris=(false.uri,)))
        with pytest.raises(StoreError):
            servers.proves(ALICE, PASSWORD)
        assert "not asked" in servers.health()[0].failure   # at once: it is no use to wait for another


@pytest.mark.parametrize("code", [49, 32, 34, 48, 53, 19])
def test_a_bind_that_proves_nothing(code: int) -> None:
    with FalseLdap(bind_answers(result(BOUND, code))) as false:
        servers = Servers(evolve(BRIEF, uris=(false.uri,)))
        assert not servers.proves(ALICE, PASSWORD)
        assert servers.health()[0].failures == 0


def test_damaged_answers_let_nobody_in() -> None:
    """Whatever octets of a refusal are changed: it never becomes a success that it does not say."""
    chance = random.Random(8)
    said = [b""]

    def answers(operation: int, number: int, _: bytes) -> bytes:
        body = bytearray(result(BOUND, 49, text=b"no"))
        for _ in range(chance.randrange(1, 4)):
            body[chance.randrange(len(body))] = chance.choice((chance.randrange(256), 0, 0x0A, 0x61))
        said[0] = bytes(body[:chance.choice((len(body), len(body), chance.randrange(len(body))))])
        return message(number, said[0])

    with FalseLdap(answers) as false:
        wins = 0
        for _ in range(JUNK):
            connection = Connection(ServerUri.parse(false.uri), None, 2)
            try:
                code = connection.bind(ALICE, PASSWORD, 2)
            except (Broken, Refused):
                continue
            finally:
                connection.close()
            if code == SUCCESS:
                wins += 1
                assert said[0][:1] == b"\x61" and said[0][2:5] == b"\x0a\x01\x00"
        assert wins < JUNK / 10


def test_damaged_answers_to_a_search_are_refused_or_read() -> None:
    """Whatever octets are changed, removed or put in: an answer, or that there is none, in time; and no other kind of
    exception."""
    chance = random.Random(9)

    def answers(operation: int, number: int, _: bytes) -> Iterator[bytes]:
        body = bytearray(message(number, entry(ALICE.encode(), {b"uid": [b"alice"], b"mail": [b"a@example.org", b"b"]}))
                         + message(number, tlv(REFERENCE, tlv(4, b"ldap://x/"))) + message(number, result(DONE, 0)))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(body))
            body[at:at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        yield bytes(body)
        raise ConnectionAbortedError        # so that nothing has to be waited for

    with FalseLdap(answers) as false:
        outcomes = set()
        for _ in range(JUNK):
            connection = Connection(ServerUri.parse(false.uri), None, 2)
            try:
                answer = connection.search(BASE, "subtree", "(uid=alice)", ("uid",), 2, 5)
                assert all(isinstance(one.dn, str) for one in answer.entries)
                outcomes.add("answer")
            except (Broken, Refused) as error:
                outcomes.add(type(error).__name__)
            finally:
                connection.close()
        assert {"answer", "Broken"} <= outcomes


def test_a_name_that_is_empty_is_never_bound_to() -> None:
    """The root of the tree has no name; to bind without one proves nothing (RFC 4513 §5.1.1)."""
    with FalseLdap(bind_answers(result(BOUND, 0))) as false:
        connection = Connection(ServerUri.parse(false.uri), None, 2)
        for dn, password in (("", b"secret"), (ALICE, b"")):
            with pytest.raises(Refused):
                connection.bind(dn, Secret(password), 2)
        connection.close()
        assert BIND not in false.requests


@pytest.mark.parametrize("text", ["http://x", "ldap://", "ldap:///", "ldap://x/dc=x", "ldap://u@x", "x", "ldap://x:99999"])
def test_what_is_no_server(text: str) -> None:
    with pytest.raises(ValueError):
        Settings(uris=(text,))


def test_what_is_one() -> None:
    assert ServerUri.parse("ldap://A.example.org") == ServerUri("a.example.org", 389, tls=False)
    assert ServerUri.parse("ldaps://[2001:db8::1]:1636/") == ServerUri("2001:db8::1", 1636, tls=True)
    assert str(ServerUri.parse("ldaps://[2001:db8::1]")) == "ldaps://[2001:db8::1]:636"


def test_old_protocols_of_tls_are_not_spoken() -> None:
    """RFC 8996, whatever this Python, or OpenSSL's configuration, would do by itself."""
    assert clienttls.context().minimum_version >= ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        clienttls.context(pem="\n")             # it would trust the system's
