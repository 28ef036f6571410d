"""Back ends verify each other's certificates: a caller that has none, or a wrong one, is refused and told nothing."""

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from mboxlist.engine.secondcopy import State
from store.errors import Problem, StoreError
from store.standby.sourcepeer import SourcePeer
from store.store import Store
from store.usermove.peer import Peer
from tests.support.faults.planted import Faults
from tests.support.servers.certificates import Authority, showing
from tests.support.stores.movepair import LIMIT, ONE, TWO, make_back_end
from tools.cli import options as config
from tools.exits import Failure
from tools.server.control import backendlink
from tools.server.control.backendlink import Listener, Place, Standbys, answering, require_known_standbys
from tools.server.process import accepting
from tools.server.process.accepting import Spares
from tools.server.tls.contexts import make_back_end_certificate, make_certificate

THREE = "three.example.org"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = make_back_end(tmp_path_factory.mktemp("there"), TWO)
    yield made
    made.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


def place(folder: Path, host: str, authorities: Path, certificate: Path | None = None, port: int = 1,
          key: Path | None = None) -> Place:
    """A back end that knows the two others, on that port of this host."""
    others = ",".join(f"{other}=127.0.0.1:{port}" for other in (ONE, TWO, THREE) if other != host)
    given = {"root": str(folder / host), "exchange.authorities": str(authorities), "exchange.peers": others}
    if certificate is not None:
        given["exchange.certificate"] = str(certificate)
        given["exchange.key"] = str(key or certificate)
    (folder / host).mkdir(exist_ok=True)
    return Place.of(config.load(given, {}, None), host)


@contextlib.contextmanager
def listening(store: Store, there: Place) -> Iterator[tuple[Listener, int]]:
    """A listener for that back end, and its port. It has no callers any more at the end."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        listener = Listener(there, Spares(), answering(store))
        listener.start([SimpleNamespace(socket=bound)])
        try:
            yield listener, bound.getsockname()[1]
        finally:
            listener.stop()


def calls(store: Store, there: Place, here: Place) -> None:
    """Have one call the other. Raises StoreError."""
    with listening(store, there) as (_, port):
        peers = {host: evolve(address, port=port) for host, address in here.peers.items()}
        with contextlib.closing(evolve(here, peers=peers).connect(TWO)) as peer:
            peer.look("alice", "primary")


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records
            if record.name.endswith("backendlink") and record.levelname == "WARNING"]


def test_certificates_of_an_authority(store: Store, tmp_path: Path, authority: Authority) -> None:
    here, there = (place(tmp_path, host, authority.file, authority.back_end(host, "x.example.org"))
                   for host in (ONE, TWO))
    calls(store, there, here)


def test_too_few_descriptors(store: Store, tmp_path: Path, authority: Authority) -> None:
    """Who calls hears it, and is let in when there are more."""
    here, there = (place(tmp_path, host, authority.file, authority.back_end(host)) for host in (ONE, TWO))
    with Faults() as short:
        short.around(accepting, "descriptors_for_connections", lambda _: 0)
        with pytest.raises(StoreError, match="too few descriptors"):
            calls(store, there, here)
    calls(store, there, here)


def test_certificates_that_onecopy_has_made_and_the_other_one_has(store: Store, tmp_path: Path) -> None:
    authorities = tmp_path / "authorities.pem"
    authorities.touch()
    for host in (ONE, TWO):
        make_back_end_certificate(tmp_path / host / "tls" / "exchange", host)
        authorities.write_bytes(authorities.read_bytes() + b"# " + host.encode() + b"\n" + (
            tmp_path / host / "tls" / "exchange" / "certificate.pem").read_bytes())
    calls(store, place(tmp_path, TWO, authorities), place(tmp_path, ONE, authorities))


def test_the_certificate_that_init_makes_will_do(store: Store, tmp_path: Path) -> None:
    authorities = tmp_path / "authorities.pem"
    for host in (ONE, TWO):
        make_certificate(tmp_path / f"made-{host}", host)
    authorities.write_bytes(b"".join((tmp_path / f"made-{host}" / "certificate.pem").read_bytes()
                                     for host in (ONE, TWO)))
    here, there = (place(tmp_path, host, authorities, tmp_path / f"made-{host}" / "certificate.pem",
                         key=tmp_path / f"made-{host}" / "key.pem") for host in (ONE, TWO))
    calls(store, there, here)


def test_a_certificate_is_trusted_without_its_authority(store: Store, tmp_path: Path, authority: Authority) -> None:
    """What is in the file is taken as it is, and nothing else that the authority has signed."""
    one, two = authority.back_end(ONE), authority.back_end(TWO)
    pinned = tmp_path / "pinned.pem"
    pinned.write_bytes(one.read_bytes() + two.read_bytes())
    here, there = place(tmp_path, ONE, pinned, one), place(tmp_path, TWO, pinned, two)
    calls(store, there, here)
    with pytest.raises(StoreError, match="it refuses the certificate of this back end"):
        calls(store, there, place(tmp_path, ONE, pinned, authority.back_end(ONE)))


def test_the_kernel_asks_whether_the_other_machine_knows_the_connection(store: Store, tmp_path: Path,
                                                                        authority: Authority) -> None:
    """One that has lost its power, and is there again, resets it (RFC 9293 §3.10.7.1, RFC 1122 §4.2.3.6). One that is
    silent has the time that is configured."""
    here, there = (place(tmp_path, host, authority.file, authority.back_end(host)) for host in (ONE, TWO))
    with listening(store, there) as (_, port):
        peers = {host: evolve(address, port=port) for host, address in here.peers.items()}
        with contextlib.closing(evolve(here, peers=peers).connect(TWO)) as peer:
            option = peer.wire.socket.getsockopt        # type: ignore[attr-defined]
            assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, between, count = (option(socket.IPPROTO_TCP, each) for each in (
                socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT))
            assert idle <= 5
            assert idle + between * count >= here.settings.timeout


def test_a_call_whose_other_end_is_gone_makes_way_for_the_next(
        store: Store, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a lock, and wait for hours for an answer. Its kernel answers no probe; that of a slow one does."""
    here, there = (place(tmp_path, host, authority.file, authority.back_end(host)) for host in (ONE, TWO))
    with listening(store, there) as (listener, port):
        peers = {host: evolve(address, port=port) for host, address in here.peers.items()}
        slow = evolve(here, peers=peers).connect(TWO)
        slow.look("alice", "primary")
        option, = {each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for each in listener._known}
        assert option and not any(map(backendlink._is_dead, listener._known))
        with contextlib.closing(evolve(here, peers=peers).connect(TWO)) as another:
            another.look("alice", "primary")
            slow.look("alice", "primary")
        gone = set(listener._known)
        monkeypatch.setattr(backendlink, "_is_dead", lambda connection: connection in gone)
        with contextlib.closing(evolve(here, peers=peers).connect(TWO)) as next_one:
            next_one.look("alice", "primary")
            with pytest.raises(StoreError):
                slow.look("alice", "primary")
        slow.close()


@pytest.mark.parametrize("host", [ONE, THREE])
def test_calls_whose_other_end_is_gone_take_nobodys_place(
        store: Store, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """A machine that has lost its power holds all its places, and perhaps all that there are: it and the others are let
    in when it is back. A call that lives is ended for nobody."""
    there = place(tmp_path, TWO, authority.file, authority.back_end(TWO))
    there = evolve(there, settings=evolve(there.settings, connections=2))
    with listening(store, there) as (listener, port):
        def connected(name: str) -> Peer:
            here = place(tmp_path, name, authority.file, authority.back_end(name), port)
            peer = here.connect(TWO)
            peer.look("alice", "primary")
            return peer

        with contextlib.ExitStack() as calls_of_one:
            first, second = (calls_of_one.enter_context(contextlib.closing(connected(ONE))) for _ in range(2))
            with pytest.raises(StoreError):
                connected(host)
            second.look("alice", "primary")
            gone = set(list(listener._known)[:1])
            monkeypatch.setattr(backendlink, "_is_dead", lambda connection: connection in gone)
            with contextlib.closing(connected(host)):
                second.look("alice", "primary")
                with pytest.raises(StoreError):
                    first.look("alice", "primary")


@pytest.mark.parametrize(("data", "acknowledged", "dead"), [
    (0, 90_000, False), (90_000, 0, False), (90_000, 90_000, True), (5_000, 19_000, False)])
def test_who_sends_lives_also_where_its_acknowledgements_do_not_count(data: int, acknowledged: int, dead: bool) -> None:
    """Milliseconds since the last of each, in the order of `struct tcp_info` (linux/tcp.h). A caller that sends a large
    mailbox waits for no answer meanwhile; its place is not free."""
    fields = struct.pack("=8B24I", *[0] * 8, *[7] * 9, 90_000, 90_000, data, acknowledged, *[7] * 11)
    connection: Any = SimpleNamespace(getsockopt=lambda _, __, size: fields[:size])
    assert backendlink._is_dead(connection) is dead


def test_nothing_leaves_in_the_clear_when_a_caller_is_cut_off(
        store: Store, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its thread writes at that very moment is encrypted, or goes nowhere."""
    here, there = (place(tmp_path, host, authority.file, authority.back_end(host)) for host in (ONE, TWO))
    shutdown = socket.socket.shutdown

    def shut(end: socket.socket, how: int) -> None:
        with contextlib.suppress(OSError):
            end.send(b"secret")
        shutdown(end, how)

    with listening(store, there) as (listener, port):
        peers = {host: evolve(address, port=port) for host, address in here.peers.items()}
        with contextlib.closing(evolve(here, peers=peers).connect(TWO)) as peer:
            peer.look("alice", "primary")
            monkeypatch.setattr(socket.socket, "shutdown", shut)
            listener.stop()
            assert peer.wire.read(100) in (b"secret", b"")      # octets that are no TLS raise SSLError


def _stranger(folder: Path, _: Authority) -> Path:
    return Authority(folder, "strangers").back_end(ONE)


def _expired(_: Path, ours: Authority) -> Path:
    return ours.back_end(ONE, expired=True)


def _only_a_server(_: Path, ours: Authority) -> Path:
    return ours.client("", ONE, usage=[x509.ExtendedKeyUsageOID.SERVER_AUTH])


def _other_host(_: Path, ours: Authority) -> Path:
    return ours.back_end("www.example.org")


def _wildcard(_: Path, ours: Authority) -> Path:
    return ours.back_end("*.example.org")


def _only_a_common_name(_: Path, ours: Authority) -> Path:
    return ours.client(ONE, usage=[x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH])


REFUSED_BY_TLS = [(_stranger, "unable to get local issuer certificate", "unknown ca"),
                  (_expired, "certificate has expired", "certificate expired"),
                  (_only_a_server, "unsuitable certificate purpose", "certificate")]


@pytest.mark.parametrize(("make", "logged", "said"), REFUSED_BY_TLS)
def test_a_caller_whose_certificate_is_refused(store: Store, tmp_path: Path, authority: Authority, make, logged: str,
                                               said: str, caplog: pytest.LogCaptureFixture) -> None:
    there = place(tmp_path, TWO, authority.file, authority.back_end(TWO))
    with pytest.raises(StoreError) as refused:
        calls(store, there, place(tmp_path, ONE, authority.file, make(tmp_path, authority)))
    assert refused.value.problem is Problem.UNAVAILABLE
    assert refused.value.public.startswith(f"{TWO} cannot be reached: it refuses the certificate of this back end: ")
    assert said in refused.value.public
    line, = refusals(caplog)
    assert logged in line and "127.0.0.1" in line


@pytest.mark.parametrize("make", [_other_host, _wildcard, _only_a_common_name])
def test_a_caller_whose_certificate_has_another_name(store: Store, tmp_path: Path, authority: Authority, make,
                                                     caplog: pytest.LogCaptureFixture) -> None:
    there = place(tmp_path, TWO, authority.file, authority.back_end(TWO))
    with pytest.raises(StoreError, match="refuses this back end: the certificate does not name 'one.example.org'"):
        calls(store, there, place(tmp_path, ONE, authority.file, make(tmp_path, authority)))
    assert refusals(caplog) == ["back ends: a call from 127.0.0.1 is refused: the certificate does not name "
                                "'one.example.org'"]


def test_a_caller_who_is_no_back_end(store: Store, tmp_path: Path, authority: Authority,
                                     caplog: pytest.LogCaptureFixture) -> None:
    there = place(tmp_path, TWO, authority.file, authority.back_end(TWO))
    with pytest.raises(StoreError, match="'four.example.org' is not among exchange.peers"):
        calls(store, there, place(tmp_path, "four.example.org", authority.file, authority.back_end("four.example.org")))
    assert len(refusals(caplog)) == 1


@pytest.mark.parametrize(("make", "said"), [
    (lambda folder, ours: Authority(folder, "strangers").back_end(TWO), "unable to get local issuer certificate"),
    (lambda folder, ours: ours.back_end(TWO, expired=True), "certificate has expired"),
    (lambda folder, ours: ours.back_end(THREE), "certificate is not valid for 'two.example.org'"),
    (lambda folder, ours: ours.back_end("*.example.org"), "does not name two.example.org"),
    (lambda folder, ours: ours.client("", TWO), "unsuitable certificate purpose")])
def test_a_back_end_whose_certificate_is_refused(store: Store, tmp_path: Path, authority: Authority, make, said: str
                                                 ) -> None:
    here = place(tmp_path, ONE, authority.file, authority.back_end(ONE))
    with pytest.raises(StoreError) as refused:
        calls(store, place(tmp_path, TWO, authority.file, make(tmp_path, authority)), here)
    assert refused.value.public.startswith(f"{TWO} cannot be reached: its certificate is refused: ")
    assert said in refused.value.public


def test_a_trusted_certificate_signs_no_other(store: Store, tmp_path: Path, authority: Authority) -> None:
    """A back end that is trusted by its own certificate cannot be another one."""
    make_back_end_certificate(tmp_path / "three", THREE)
    three = x509.load_pem_x509_certificate((tmp_path / "three" / "certificate.pem").read_bytes())
    key = serialization.load_pem_private_key((tmp_path / "three" / "key.pem").read_bytes(), None)
    forged = (x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(three.subject)
              .public_key(three.public_key()).serial_number(1).not_valid_before(three.not_valid_before_utc)
              .not_valid_after(three.not_valid_after_utc)
              .add_extension(x509.SubjectAlternativeName([x509.DNSName(ONE)]), critical=True)
              .sign(key, hashes.SHA256()))
    shown = tmp_path / "forged.pem"
    shown.write_bytes((tmp_path / "three" / "key.pem").read_bytes() + forged.public_bytes(serialization.Encoding.PEM)
                      + three.public_bytes(serialization.Encoding.PEM))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes() + three.public_bytes(serialization.Encoding.PEM))
    there = place(tmp_path, TWO, trusted, authority.back_end(TWO))
    with pytest.raises(StoreError, match="it refuses the certificate of this back end"):
        calls(store, there, place(tmp_path, ONE, trusted, shown))


@pytest.mark.parametrize(("version", "logged"), [
    (ssl.TLSVersion.TLSv1_3, "peer did not return a certificate"), (ssl.TLSVersion.TLSv1_2, "unsupported protocol")])
def test_a_caller_without_a_certificate_or_tls_1_3(store: Store, tmp_path: Path, authority: Authority, version,
                                                   logged: str, caplog: pytest.LogCaptureFixture) -> None:
    shown = None if version is ssl.TLSVersion.TLSv1_3 else authority.back_end(ONE)
    with (listening(store, place(tmp_path, TWO, authority.file, authority.back_end(TWO))) as (_, port),
          socket.create_connection(("127.0.0.1", port), LIMIT) as plain, pytest.raises(ssl.SSLError)):
        with showing(shown, version).wrap_socket(plain) as wire:
            assert wire.recv(1) == b"nothing"
    line, = refusals(caplog)
    assert logged in line


@pytest.mark.parametrize("shakes_hands", [False, True])
def test_a_caller_who_says_nothing_is_not_waited_for(store: Store, tmp_path: Path, authority: Authority,
                                                     shakes_hands: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    there = evolve(place(tmp_path, TWO, authority.file, authority.back_end(TWO)), greeting_time=0.2)
    with listening(store, there) as (_, port), socket.create_connection(("127.0.0.1", port), LIMIT) as plain:
        if shakes_hands:
            with showing(authority.back_end(ONE)).wrap_socket(plain) as wire:
                while wire.recv(1000):          # the greeting, and then the end
                    pass
        else:
            assert plain.recv(1) == b""
    assert [record.getMessage() for record in caplog.records if "timed out" in record.getMessage()]


def test_a_back_end_that_says_nothing_is_not_waited_for(tmp_path: Path, authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        here = place(tmp_path, ONE, authority.file, authority.back_end(ONE), silent.getsockname()[1])
        with pytest.raises(StoreError, match=f"{TWO} cannot be reached: .*timed out"):
            evolve(here, greeting_time=0.2).connect(TWO)


def test_a_renewed_certificate_is_shown_at_once(store: Store, tmp_path: Path, authority: Authority) -> None:
    shown = tmp_path / "shown.pem"
    shown.write_bytes(authority.back_end(TWO, expired=True).read_bytes())
    there, here = (place(tmp_path, TWO, authority.file, shown),
                   place(tmp_path, ONE, authority.file, authority.back_end(ONE)))
    with listening(store, there) as (_, port):
        peers = {host: evolve(address, port=port) for host, address in here.peers.items()}
        with pytest.raises(StoreError, match="certificate has expired"):
            evolve(here, peers=peers).connect(TWO)
        shown.write_bytes(authority.back_end(TWO).read_bytes())
        evolve(here, peers=peers).connect(TWO).close()


def test_a_back_end_that_is_no_standby_any_more_is_cut_off(store: Store, tmp_path: Path, authority: Authority) -> None:
    """When the configuration is read again. One that may still call does so, and what has not changed ends nothing."""
    here, there = (place(tmp_path, host, authority.file, authority.back_end(host)) for host in (ONE, TWO))
    given = {"root": str(tmp_path / TWO), "exchange.authorities": str(authority.file),
             "exchange.certificate": str(there.tls.certificate), "exchange.key": str(there.tls.key)}
    both = config.load({**given, "exchange.standbys": f"{ONE},{THREE}"}, {}, None)
    with listening(store, Place.of(both, TWO)) as (listener, port):
        peers = {TWO: evolve(here.peers[TWO], port=port)}

        def call() -> SourcePeer:
            return SourcePeer(evolve(here, peers=peers).connect(TWO))

        with contextlib.closing(call()) as standby:
            assert standby.small("audit") == {}
            listener.follow(both)
            assert standby.small("audit") == {}
            authority.file.write_bytes(authority.file.read_bytes() + b"\n")      # another one might be gone from it
            listener.follow(both)
            with pytest.raises(StoreError, match="was lost"):
                standby.small("audit")
        with contextlib.closing(call()) as standby:
            assert standby.small("audit") == {}
            listener.follow(config.load({**given, "exchange.standbys": THREE}, {}, None))
            with pytest.raises(StoreError, match="was lost"):
                standby.small("audit")
        with pytest.raises(StoreError, match="not among"):
            call()
        listener.follow(both)
        with contextlib.closing(call()) as standby:
            assert standby.small("audit") == {}


def test_a_standby_that_a_reload_has_taken_out_is_waited_for_after_a_restart(
        store: Store, tmp_path: Path, authority: Authority) -> None:
    """The processes begin again with what was taken over: the name is not among the standbys any more, and answers wait
    for it until the server is started anew. Which does not start with such a configuration."""
    given = {"root": str(tmp_path / TWO), "exchange.authorities": str(authority.file), "exchange.port": "1",
             "exchange.certificate": str(authority.back_end(TWO)), "exchange.synchronous": f"{ONE},{THREE}"}
    second = store.write_freeze.second
    for kept, both in (("", (ONE, THREE)), (THREE, (THREE, ONE))):
        wanted = config.load({**given, "exchange.standbys": kept}, {}, None)
        standbys = Standbys.of(store, Place.of(wanted, TWO))
        try:
            members = [standbys.member(host) for host in both]
            assert all(member is not None and member.asked is not None for member in members)
            assert second.state is State.REFUSING
        finally:
            standbys.close()
            second.forget()
        with pytest.raises(Failure, match="is not among exchange.standbys"):
            require_known_standbys(wanted)
