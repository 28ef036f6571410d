"""Certificates by host name, versions, cipher suites and session tickets, in memory."""

import ssl
from pathlib import Path

import pytest
from OpenSSL import SSL

from tests.support.servers.certificates import Authority, showing
from tests.tools.server.test_tls import VERSIONS, Conversation, client, handshake
from tools.exits import Failure
from tools.server.tls.contexts import CERTIFICATE, KEY, Certificates, make_certificate
from tools.server.tls.tickets import TicketKeys
from tools.serversettings import Tls


def host(folder: Path, name: str, form: str) -> Path:
    """A certificate for that host in one of the forms that a folder may hold; the file with the certificate."""
    made = folder.parent / f"made-{name}"
    make_certificate(made, name)
    certificate, key = (made / CERTIFICATE).read_bytes(), (made / KEY).read_bytes()
    if form == "one":
        (folder / f"{name}.pem").write_bytes(key + certificate)
    elif form == "two":
        (folder / f"{name}.crt").write_bytes(certificate)
        (folder / f"{name}.key").write_bytes(key)
    else:
        (folder / name).mkdir()
        (folder / name / "fullchain.pem").write_bytes(certificate)
        (folder / name / "privkey.pem").write_bytes(key)
    return made / CERTIFICATE


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    folder = tmp_path / "hosts"
    folder.mkdir()
    return folder


def shown(certificates: Certificates, name: str | None, session: ssl.SSLSession | None = None) -> bytes:
    """The certificate that a client is shown who asks for that host."""
    context = showing(None)
    return certificate_of(Conversation(certificates, context, session, name))


def certificate_of(talk: Conversation) -> bytes:
    found = talk.client.getpeercert(binary_form=True)
    assert found
    return found


def der(file: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(file.read_text())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", ["one", "two", "folder"])
def test_each_host_shows_its_certificate(tmp_path: Path, hosts: Path, form: str, version: ssl.TLSVersion) -> None:
    files = {name: host(hosts, name, form) for name in ("imap.example.org", "mail.example.com", "*.example.net")}
    certificates = Certificates.from_settings(Tls(certificates=hosts), tmp_path / "tls")
    default = der(tmp_path / "tls" / CERTIFICATE)
    for asked, expected in (
            ("imap.example.org", files["imap.example.org"]), ("IMAP.Example.ORG", files["imap.example.org"]),
            ("mail.example.com", files["mail.example.com"]), ("pop.example.net", files["*.example.net"])):
        talk = Conversation(certificates, showing(None, version), None, asked)
        assert certificate_of(talk) == der(expected), asked
    for asked in (None, "example.org", "deep.pop.example.net", "example.net", "127.0.0.1"):
        assert certificate_of(Conversation(certificates, showing(None, version), None, asked)) == default, asked
    trusting = client(files["mail.example.com"])
    assert handshake(certificates, trusting, "mail.example.com") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificates, trusting, "imap.example.org")


def test_hosts_are_read_again(tmp_path: Path, hosts: Path) -> None:
    certificates = Certificates.from_settings(Tls(certificates=hosts), tmp_path / "tls")
    default = der(tmp_path / "tls" / CERTIFICATE)
    assert shown(certificates, "imap.example.org") == default
    first = host(hosts, "imap.example.org", "two")
    certificates.reload()
    before = der(first)
    assert shown(certificates, "imap.example.org") == before
    (hosts / "imap.example.org.key").write_text("junk")
    with pytest.raises(Failure, match=r"imap\.example\.org\.key"):
        certificates.reload()
    assert shown(certificates, "imap.example.org") == before
    (hosts / "imap.example.org.crt").unlink()
    certificates.reload()
    assert shown(certificates, "imap.example.org") == default


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"^\[tls\] certificates: .*none: No such file"):
        Certificates.from_settings(Tls(certificates=tmp_path / "none"), tmp_path / "tls")


def test_clients_of_every_host_are_asked_for_certificates(tmp_path: Path, hosts: Path) -> None:
    authority, other = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    host(hosts, "imap.example.org", "one")
    certificates = Certificates.from_settings(Tls(certificates=hosts), tmp_path / "tls", authority.file, server="imap")
    for name in ("imap.example.org", "pop.example.org"):
        talk = Conversation(certificates, showing(authority.client("alice")), None, name)
        assert certificates.certificate_names(talk.server) == ("alice",)
        with pytest.raises(SSL.Error, match="certificate verify failed"):
            Conversation(certificates, showing(other.client("alice")), None, name)


def test_a_session_of_one_server_is_none_of_another(tmp_path: Path) -> None:
    """Else a certificate that one server knows would come with a session to another that does not."""
    authority, other = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    tickets = TicketKeys.alone(Tls())
    made = [Certificates.from_settings(Tls(), tmp_path / "tls", ca, server=server, tickets=tickets)
            for server, ca in (("imap", authority.file), ("pop3", other.file), ("lmtp", None))]
    context = showing(authority.client("alice"))
    session = Conversation(made[0], context).client.session
    assert Conversation(made[0], context, session).client.session_reused
    with pytest.raises(SSL.Error, match="certificate verify failed"):
        Conversation(made[1], context, session)
    talk = Conversation(made[2], context, session)
    assert made[2].certificate_names(talk.server) == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_sessions_outlive_a_reload_and_end_with_their_key(tmp_path: Path, version: ssl.TLSVersion) -> None:
    now = 0.0
    tickets = TicketKeys.shared(Tls(ticket_time=3600))
    tickets.clock = lambda: tickets.begun + now
    certificates = Certificates.from_settings(Tls(), tmp_path / "tls", tickets=tickets)
    context = showing(None, version)
    first = Conversation(certificates, context).client.session
    certificates.reload()
    now = 3599
    second = Conversation(certificates, context, first).client
    assert second.session_reused
    now = 3601
    third = Conversation(certificates, context, second.session).client
    assert not third.session_reused
    assert Conversation(certificates, context, third.session).client.session_reused
    now = 3600 * 10_000                         # longer than there are keys for: this process makes its own
    fourth = Conversation(certificates, context, third.session).client
    assert not fourth.session_reused
    assert Conversation(certificates, context, fourth.session).client.session_reused


@pytest.mark.parametrize("version", VERSIONS)
def test_processes_with_the_same_keys_take_up_each_others_sessions(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """As forked ones have: the contexts with the keys are the same, all others are not."""
    tickets = TicketKeys.shared(Tls())
    one, other = (Certificates.from_settings(Tls(), tmp_path / "tls", tickets=tickets) for _ in range(2))
    alone = Certificates.from_settings(Tls(), tmp_path / "tls")
    context = showing(None, version)
    session = Conversation(one, context).client.session
    assert Conversation(other, context, session).client.session_reused
    assert not Conversation(alone, context, session).client.session_reused


def test_the_oldest_version_can_be_chosen(tmp_path: Path) -> None:
    certificates = Certificates.from_settings(Tls(minimum_version="1.3"), tmp_path / "tls")
    Conversation(certificates, showing(None, ssl.TLSVersion.TLSv1_3))
    with pytest.raises((SSL.Error, ssl.SSLError)):
        Conversation(certificates, showing(None, ssl.TLSVersion.TLSv1_2))
    with pytest.raises(ValueError, match="minimum_version"):
        Tls(minimum_version="1.1")


@pytest.mark.parametrize(("offered", "taken"), [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", True), ("ECDHE-ECDSA-CHACHA20-POLY1305", True),
    ("ECDHE-ECDSA-AES128-SHA", False), ("AES128-GCM-SHA256", False), ("ECDHE-ECDSA-AES128-SHA256", False)])
def test_cipher_suites_without_forward_secrecy_or_authenticated_encryption(tmp_path: Path, offered: str,
                                                                           taken: bool) -> None:
    certificates = Certificates.from_settings(Tls(), tmp_path / "tls")
    context = showing(None, ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(offered)
    if taken:
        assert Conversation(certificates, context).client.cipher()[0] == offered
    else:
        with pytest.raises((SSL.Error, ssl.SSLError)):
            Conversation(certificates, context)


def test_cipher_suites_can_be_chosen(tmp_path: Path) -> None:
    certificates = Certificates.from_settings(Tls(ciphers="ECDHE-ECDSA-AES128-SHA256"), tmp_path / "tls")
    context = showing(None, ssl.TLSVersion.TLSv1_2)
    assert Conversation(certificates, context).client.cipher()[0] == "ECDHE-ECDSA-AES128-SHA256"
    with pytest.raises(ValueError, match="selects no cipher suite"):
        Tls(ciphers="none-of-these")
