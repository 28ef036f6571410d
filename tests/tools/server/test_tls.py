"""The self-signed certificate, and the context of connections."""

import shutil
import ssl
import stat
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL

from tests.support.servers.certificates import VALID, Authority, showing
from tools.exits import Failure
from tools.server.tls.contexts import CERTIFICATE, KEY, Certificates, make_certificate
from tools.serversettings import Tls


def handshake(certificates: Certificates, client: ssl.SSLContext, name: str) -> str:
    """The TLS version that both agree on, in memory. Raises ssl.SSLError, SSL.Error."""
    server = certificates.serverConnectionForTLS(None)      # type: ignore[arg-type]
    server.set_accept_state()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = client.wrap_bio(incoming, outgoing, server_hostname=name)
    for _ in range(10):
        try:
            peer.do_handshake()
            return str(peer.version())
        except ssl.SSLWantReadError:
            server.bio_write(outgoing.read())
            try:
                server.do_handshake()
            except SSL.WantReadError:
                pass
            incoming.write(server.bio_read(65536))
    raise AssertionError("no end")


def client(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def test_the_certificate_of_init(tmp_path: Path) -> None:
    certificates = Certificates.from_settings(Tls(), tmp_path / "tls")
    made = tmp_path / "tls" / CERTIFICATE
    for name in ("localhost", "127.0.0.1", "::1"):
        assert handshake(certificates, client(made), name) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificates, client(made), "mail.example.org")
    assert stat.S_IMODE((tmp_path / "tls" / KEY).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    before = made.read_bytes()
    Certificates.from_settings(Tls(), tmp_path / "tls")
    assert made.read_bytes() == before


def test_nothing_older_than_tls_1_2(tmp_path: Path) -> None:
    certificates = Certificates.from_settings(Tls(ciphers="ALL:@SECLEVEL=0"), tmp_path / "tls")  # or OpenSSL refuses
    made = tmp_path / "tls" / CERTIFICATE
    new, old = client(made), client(made)
    new.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(certificates, new, "localhost") == "TLSv1.2"
    with pytest.warns(DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, SSL.Error)):
        handshake(certificates, old, "localhost")


def test_reload_takes_the_new_one_and_keeps_the_old_one_when_that_is_bad(tmp_path: Path) -> None:
    make_certificate(tmp_path / "one", "one.example.org")
    make_certificate(tmp_path / "two", "two.example.org")
    used = tmp_path / "used"
    shutil.copytree(tmp_path / "one", used)
    certificates = Certificates.from_settings(Tls(used / CERTIFICATE, used / KEY), tmp_path)
    (used / CERTIFICATE).write_bytes((tmp_path / "two" / CERTIFICATE).read_bytes())
    with pytest.raises(Failure):            # the key is still the other one's
        certificates.reload()
    handshake(certificates, client(tmp_path / "one" / CERTIFICATE), "one.example.org")
    (used / KEY).write_bytes((tmp_path / "two" / KEY).read_bytes())
    certificates.reload()
    handshake(certificates, client(tmp_path / "two" / CERTIFICATE), "two.example.org")


def test_one_file_for_both(tmp_path: Path) -> None:
    make_certificate(tmp_path / "one", "one.example.org")
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "one" / CERTIFICATE).read_bytes() + (tmp_path / "one" / KEY).read_bytes())
    certificates = Certificates.from_settings(Tls(both), tmp_path)
    handshake(certificates, client(tmp_path / "one" / CERTIFICATE), "one.example.org")


@pytest.mark.parametrize(("settings", "said"), [
    (Tls(Path("none.pem")), "none.pem: No such file"),
    (Tls(Path("junk.pem")), "junk.pem"),
    (Tls(key=Path("junk.pem")), "without certificate"),
])
def test_what_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Tls, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.pem").write_text("junk\n")
    with pytest.raises(Failure, match=said) as failure:
        Certificates.from_settings(settings, tmp_path)
    assert "\n" not in str(failure.value)


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Conversation:
    """A client with the server's side in memory; what the server says at the end makes both sides finish."""

    def __init__(self, certificates: Certificates, client: ssl.SSLContext,
                 session: ssl.SSLSession | None = None, name: str | None = None) -> None:
        self.server = certificates.serverConnectionForTLS(None)     # type: ignore[arg-type]
        self.server.set_accept_state()
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.incoming, self.outgoing, server_hostname=name, session=session)
        shaking = {self.client.do_handshake, self.server.do_handshake}
        while shaking:
            for step in tuple(shaking):
                try:
                    step()
                    shaking.discard(step)
                except (ssl.SSLWantReadError, SSL.WantReadError):
                    pass
                self.copy_file()
        self.server.send(b"hello")
        self.copy_file()
        assert self.client.read(5) == b"hello"      # before which a client of TLS 1.3 has no session to take up

    def copy_file(self) -> None:
        """What is written so far to the other side."""
        if octets := self.outgoing.read():
            self.server.bio_write(octets)
        try:
            self.incoming.write(self.server.bio_read(65536))
        except SSL.WantReadError:
            pass


def asking(folder: Path, authority: Authority) -> Certificates:
    return Certificates.from_settings(Tls(), folder / "tls", authority.file)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_names_of_a_client(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = Authority(tmp_path, "one")
    certificates = asking(tmp_path, authority)

    def names(file: Path | None) -> tuple[str, ...]:
        return certificates.certificate_names(Conversation(certificates, showing(file, version)).server)

    assert names(None) == ()
    assert names(authority.client("Relay.example.org")) == ("relay.example.org",)
    assert names(authority.client("", "mx1.example.org", "MX2.example.org")) == ("mx1.example.org", "mx2.example.org")
    assert names(authority.client("relay", "mx1.example.org")) == ("relay", "mx1.example.org")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_that_does_not_verify_ends_the_handshake(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority, other = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    certificates = asking(tmp_path, authority)
    for file in (other.client("relay.example.org"), authority.client("relay.example.org", expired=True),
                 authority.client("relay.example.org", usage=[ExtendedKeyUsageOID.SERVER_AUTH])):
        with pytest.raises(SSL.Error, match="certificate verify failed"):
            Conversation(certificates, showing(file, version))


def test_nobody_else_is_asked_for_a_certificate(tmp_path: Path) -> None:
    certificates = Certificates.from_settings(Tls(), tmp_path / "tls")
    talk = Conversation(certificates, showing(Authority(tmp_path, "one").client("relay.example.org")))
    assert certificates.certificate_names(talk.server) == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_that_is_taken_up_has_the_names_of_the_first_one(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = Authority(tmp_path, "one")
    certificates = asking(tmp_path, authority)
    context = showing(authority.client("relay.example.org"), version)
    first = Conversation(certificates, context)
    second = Conversation(certificates, context, first.client.session)
    assert not first.client.session_reused and second.client.session_reused
    assert certificates.certificate_names(second.server) == ("relay.example.org",)
    certificates.reload()                       # the same authorities: as before
    assert Conversation(certificates, context, second.client.session).client.session_reused
    authority.file.write_bytes(Authority(tmp_path, "two").file.read_bytes())
    certificates.reload()                       # one that is gone admits nobody any more
    with pytest.raises(SSL.Error, match="certificate verify failed"):
        Conversation(certificates, context, second.client.session)


def test_a_session_does_not_outlive_the_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + 2 * VALID

    authority = Authority(tmp_path, "one")
    certificates = asking(tmp_path, authority)
    context = showing(authority.client("relay.example.org"))
    first = Conversation(certificates, context)
    monkeypatch.setattr("tools.server.tls.contexts.datetime", Later)
    second = Conversation(certificates, context, first.client.session)
    assert second.client.session_reused and certificates.certificate_names(second.server) == ()


def test_authorities_are_read_again(tmp_path: Path) -> None:
    one, two = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    certificates = asking(tmp_path, one)
    new = showing(two.client("relay.example.org"))
    octets = one.file.read_bytes()
    one.file.write_bytes(two.file.read_bytes())
    certificates.reload()
    assert certificates.certificate_names(Conversation(certificates, new).server) == ("relay.example.org",)
    one.file.write_text("junk\n")
    with pytest.raises(Failure, match="client_ca"):
        certificates.reload()
    assert certificates.certificate_names(Conversation(certificates, new).server) == ("relay.example.org",)
    one.file.write_bytes(octets)
    certificates.reload()
    with pytest.raises(SSL.Error):
        Conversation(certificates, new)


def test_several_authorities_and_their_names_for_clients_to_choose(tmp_path: Path) -> None:
    one, two = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    two.file.write_bytes(one.file.read_bytes() + two.file.read_bytes())
    certificates = asking(tmp_path, two)
    for authority in (one, two):
        talk = Conversation(certificates, showing(authority.client("relay.example.org")))
        assert certificates.certificate_names(talk.server) == ("relay.example.org",)
    assert [name.CN for name in certificates.serverConnectionForTLS(
        None).get_client_ca_list()] == ["one", "two"]       # type: ignore[arg-type]


@pytest.mark.parametrize(("content", "said"), [
    (None, r"^\[lmtp\] client_ca: .*ca.pem: No such file"),
    ("", r"^\[lmtp\] client_ca: .*ca.pem: "),
    ("junk\n", r"^\[lmtp\] client_ca: .*ca.pem: "),
    ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", r"^\[lmtp\] client_ca: .*ca.pem: "),
])
def test_authorities_that_cannot_be_used(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    with pytest.raises(Failure, match=said) as failure:
        Certificates.from_settings(Tls(), tmp_path / "tls", tmp_path / "ca.pem")
    assert "\n" not in str(failure.value)
