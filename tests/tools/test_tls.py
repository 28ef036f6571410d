"""The self-signed certificate, and the context of connections."""

import shutil
import ssl
import stat
from pathlib import Path

import pytest
from OpenSSL import SSL

from tools.errors import Failure
from tools.settings import Tls
from tools.tls import CERTIFICATE, KEY, Certificates, make_certificate


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
    certificates = Certificates.from_settings(Tls(), tmp_path / "tls")
    certificates._context.set_cipher_list(b"ALL:@SECLEVEL=0")       # or else OpenSSL itself would refuse
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
