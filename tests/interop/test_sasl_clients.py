"""Every mechanism, with clients that we did not write, on a running server.

| mechanism                             | IMAP                   | POP3       | LMTP  |
|---------------------------------------|------------------------|------------|-------|
| LOGIN and USER/PASS (no SASL)         | imaplib                | mpop       |       |
| PLAIN                                 | curl, gsasl, imaplib   | curl, mpop | msmtp |
| LOGIN                                 | curl, gsasl            | curl, mpop | msmtp |
| SCRAM-SHA-1, SCRAM-SHA-256            | gsasl                  | mpop       | msmtp |
| SCRAM-SHA-1-PLUS, SCRAM-SHA-256-PLUS  | gsasl: tls-unique (TLS 1.2), tls-exporter (TLS 1.3) |  |  |
| EXTERNAL                              | curl, gsasl            | curl, mpop |       |
| OAUTHBEARER                           | curl, imaplib          | curl, mpop |       |
| XOAUTH2                               | imaplib                | mpop       |       |

curl, gsasl and msmtp act as another user, too. mutt, mbsync, fetchmail, offlineimap and imapfilter log in in the tests
of these clients, by whatever they choose of what is announced.
"""

import imaplib
import json
import os
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from urllib.parse import parse_qs

import pytest

from tests.conftest import MEMORY
from tests.support.clients import clients
from tests.support.clients.clients import HOST
from tests.support.servers.certificates import Authority
from tests.support.servers.server import PASSWORD, Server

TOKENS = {"alices-token": {"active": True, "username": "alice", "scope": "mail", "aud": "mail.example.org"},
          "another-scope": {"active": True, "username": "alice", "scope": "calendar", "aud": "mail.example.org"}}


class Introspection(BaseHTTPRequestHandler):
    """RFC 7662: knows `TOKENS`."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        said = json.dumps(TOKENS.get(form["token"][0], {"active": False})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Place:
    """A server, the authority of its certificate and of its clients', and an account on it."""

    def __init__(self, folder: Path, introspection: str) -> None:
        self.folder = folder
        self.authority = Authority(folder, "authority")
        self.certificate = self.authority.client("alice")
        options = {"tls.certificate": str(self.authority.server()), "login.administrators": "root",
                   "login.oauth_introspection": introspection, "login.oauth_scope": "mail", "lmtp.auth_users": "alice",
                   "login.oauth_audience": "mail.example.org", "login.scram_keys": "SCRAM-SHA-256, SCRAM-SHA-1",
                   "login.slow_exclude": "127.0.0.1", "login.slow_free_address": "2", "login.slow_first": "50ms",
                   "login.slow_longest": "200ms"}
        options |= {f"{name}.client_ca": str(self.authority.file) for name in ("imap", "pop3")}
        self.server = Server(folder, ["alice", "bob", "root"], options)

    def curl(self, protocol: str, user: str, *options: str, password: str = PASSWORD, status: int = 0,
             certificate: bool = False) -> str:
        """What curl writes of INBOX, and its conversation."""
        port = self.server.options[f"{protocol[:4]}.tls_port" if protocol.endswith("s") else f"{protocol}.port"]
        url = f"{protocol}://{HOST}:{port}/"
        shown = ["--cert", str(self.certificate)] if certificate else []
        words = ["--silent", "--show-error", "--verbose", "--max-time", "180", "--ssl-reqd", "--cacert",
                 str(self.authority.file), "--user", f"{user}:{password}"]
        return clients.run(["curl", *words, *shown, *options, url], self.folder, status=status)

    def gsasl(self, mechanism: str, user: str, *options: str, password: str = PASSWORD, status: int = 0) -> str:
        """What gsasl writes; it says STARTTLS."""
        return clients.run(["gsasl", "--imap", f"--connect={HOST}:{self.server.imap}", f"--mechanism={mechanism}",
                            f"--authentication-id={user}", f"--password={password}",
                            *([] if mechanism.endswith("PLUS") else ["--no-cb"]),
                            f"--x509-ca-file={self.authority.file}", "--quiet", *options], self.folder, status=status)

    def mpop(self, mechanism: str, secret: str = PASSWORD, *, status: int = 0, certificate: bool = False) -> str:
        """What mpop says; it leaves the mail on the server."""
        lines = ["account default", f"host {HOST}", f"port {self.server.pop3}", "user alice", f"password {secret}",
                 f"auth {mechanism}", "tls on", "tls_starttls on", f"tls_trust_file {self.authority.file}", "keep on",
                 f"delivery mbox {self.folder}/mbox", f"uidls_file {self.folder}/uidls"]
        if certificate:
            lines += [f"tls_cert_file {self.certificate}", f"tls_key_file {self.certificate}"]
        return self._sends("mpop", lines, ["--debug"], status)

    def msmtp(self, mechanism: str, secret: str = PASSWORD, *, status: int = 0) -> str:
        """What msmtp says, which delivers a message by LMTP."""
        lines = ["account default", f"host {HOST}", f"port {self.server.lmtp}", "protocol lmtp", "user alice",
                 f"password {secret}", f"auth {mechanism}", "tls on", "tls_starttls on",
                 f"tls_trust_file {self.authority.file}", "from root@example.org"]
        return self._sends("msmtp", lines, ["--debug", "bob@example.org"], status, b"Subject: x\r\n\r\nx\r\n")

    def _sends(self, program: str, lines: list[str], words: list[str], status: int, octets: bytes = b"") -> str:
        file = self.folder / f"{program}rc"
        file.write_text("\n".join(lines) + "\n")
        file.chmod(0o600)
        said = clients.run([program, f"--file={file}", *words], self.folder, octets, status=status)
        return said


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    web = ThreadingHTTPServer((HOST, 0), Introspection)
    thread = Thread(target=web.serve_forever, daemon=True)
    thread.start()
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        made = Place(Path(name), f"http://{HOST}:{web.server_port}/introspect")
        with made.server:
            made.server.command("deliver", "alice", octets=b"Subject: for alice\r\n\r\nHello.\r\n")
            yield made
            assert made.server.stop() == 0
            said = made.server.log.read_text()
            assert "Traceback" not in said
            assert PASSWORD not in said and "alices-token" not in said
    web.shutdown()
    web.server_close()
    thread.join()


def test_what_is_announced(place: Place) -> None:
    """Under TLS and before it; EXTERNAL only to who shows a certificate."""
    said = place.curl("imaps", "alice", "--request", "NOOP")
    offered = "SCRAM-SHA-256-PLUS SCRAM-SHA-1-PLUS SCRAM-SHA-256 SCRAM-SHA-1 {}OAUTHBEARER XOAUTH2 PLAIN LOGIN"
    assert " ".join("AUTH=" + name for name in offered.format("").split()) in said
    said = place.curl("imaps", "alice", "--request", "NOOP", certificate=True)
    assert " ".join("AUTH=" + name for name in offered.format("EXTERNAL ").split()) in said
    assert f"SASL {offered.format('')}" in place.curl("pop3s", "alice")
    said = place.curl("imap", "alice", "--request", "NOOP")
    before, _, after = said.partition("TLS handshake")
    assert "AUTH=SCRAM-SHA-256 " in before and "PLUS" not in before and "AUTH=SCRAM-SHA-256-PLUS" in after


@pytest.mark.parametrize("protocol", ["imap", "imaps", "pop3", "pop3s"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "EXTERNAL", "OAUTHBEARER"])
def test_curl(place: Place, protocol: str, mechanism: str) -> None:
    options = ["--login-options", f"AUTH={mechanism}"]
    if mechanism == "OAUTHBEARER":
        good, bad = (["--oauth2-bearer", token] for token in ("alices-token", "another-scope"))
    elif mechanism == "EXTERNAL":
        said = place.curl(protocol, "alice", *options, password="", certificate=True)
        assert _asked(said, mechanism) and "INBOX" in said or "1 " in said
        assert not _asked(place.curl(protocol, "alice", *options, password="", status=67), mechanism)
        return
    else:
        good = bad = []
    said = place.curl(protocol, "alice", *options, *good)
    assert _asked(said, mechanism)
    said = place.curl(protocol, "alice", *options, *bad, password=PASSWORD if bad else "wrong", status=67)
    assert ("AUTHENTICATIONFAILED" if protocol.startswith("imap") else "[AUTH]") in said


def _asked(said: str, mechanism: str) -> bool:
    return re.search(rf"^> .*(AUTHENTICATE|AUTH) {mechanism}\b", said, re.MULTILINE) is not None


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_gsasl(place: Place, mechanism: str) -> None:
    assert "OK" in place.gsasl(mechanism, "alice")
    for user, password in (("alice", "wrong"), ("nobody", PASSWORD)):
        place.gsasl(mechanism, user, password=password, status=1)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1-PLUS", "SCRAM-SHA-256-PLUS"])
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_gsasl_binds_to_the_channel(place: Place, mechanism: str, version: str) -> None:
    place.gsasl(mechanism, "alice", f"--priority=NORMAL:-VERS-ALL:+VERS-TLS{version}")
    place.gsasl(mechanism, "alice", f"--priority=NORMAL:-VERS-ALL:+VERS-TLS{version}", password="wrong", status=1)


def test_gsasl_with_a_certificate(place: Place) -> None:
    shown = [f"--x509-cert-file={place.certificate}", f"--x509-key-file={place.certificate}"]
    place.gsasl("EXTERNAL", "alice", "--authorization-id=", *shown)
    place.gsasl("EXTERNAL", "alice", "--authorization-id=bob", *shown, status=1)
    place.gsasl("EXTERNAL", "alice", "--authorization-id=", status=1)


@pytest.mark.parametrize("mechanism", ["user", "plain", "login", "scram-sha-1", "scram-sha-256", "external",
                                       "oauthbearer", "xoauth2"])
def test_mpop(place: Place, mechanism: str) -> None:
    token = mechanism in ("oauthbearer", "xoauth2")
    external = mechanism == "external"
    said = place.mpop(mechanism, "alices-token" if token else PASSWORD, certificate=external)
    assert "Subject: for alice" in (place.folder / "mbox").read_text() and "+OK" in said
    if external:
        assert "authentication" in place.mpop(mechanism, status=os.EX_UNAVAILABLE)
    else:
        place.mpop(mechanism, "another-scope" if token else "wrong", status=os.EX_NOPERM)


@pytest.mark.parametrize("mechanism", ["plain", "login", "scram-sha-1", "scram-sha-256"])
def test_msmtp(place: Place, mechanism: str) -> None:
    assert "235 2.7.0" in place.msmtp(mechanism)
    assert "535 5.7.8" in place.msmtp(mechanism, "wrong", status=os.EX_NOPERM)


def test_imaplib(place: Place) -> None:
    with imaplib.IMAP4(HOST, place.server.imap) as client:
        client.starttls(place.authority.trusted())
        client.authenticate("PLAIN", lambda challenge: f"\0alice\0{PASSWORD}".encode())
        assert client.select("INBOX")[0] == "OK"
    for mechanism, words in (("XOAUTH2", "user=alice\1"), ("OAUTHBEARER", "n,a=alice,\1")):
        for token, good in (("alices-token", True), ("another-scope", False), ("unknown", False)):
            with imaplib.IMAP4(HOST, place.server.imap) as client:
                client.starttls(place.authority.trusted())
                heard: list[bytes] = []

                def said(challenge: bytes, token: str = token, words: str = words, heard: list[bytes] = heard) -> bytes:
                    heard.append(challenge)
                    return b"\1" if challenge else f"{words}auth=Bearer {token}\1\1".encode()

                if good:
                    assert client.authenticate(mechanism, said)[0] == "OK"
                else:
                    with pytest.raises(imaplib.IMAP4.error, match="AUTHENTICATIONFAILED"):
                        client.authenticate(mechanism, said)
                    assert json.loads(heard[1]) == {"status": "invalid_token", "scope": "mail"}     # RFC 7628 §3.2.2
    with imaplib.IMAP4_SSL(HOST, int(place.server.options["imap.tls_port"]),
                           ssl_context=place.authority.trusted()) as client:
        client.login("alice", PASSWORD)
    with imaplib.IMAP4(HOST, place.server.imap) as client, pytest.raises(imaplib.IMAP4.error):
        client.authenticate("PLAIN", lambda challenge: None)            # says "*"


def test_an_administrator_acts_as_a_user(place: Place) -> None:
    """RFC 4616 §2, RFC 5802 §5.1; the log has both names."""
    said = place.curl("imaps", "root", "--sasl-authzid", "alice", "--login-options", "AUTH=PLAIN", "--request",
                      "STATUS INBOX (MESSAGES)")
    assert "MESSAGES 1" in said
    place.gsasl("SCRAM-SHA-256", "root", "--authorization-id=alice")
    assert len(re.findall("root acts as alice", place.server.log.read_text())) == 2
    for user, other in (("alice", "bob"), ("alice", "root"), ("root", "nobody")):
        said = place.curl("imaps", user, "--sasl-authzid", other, "--login-options", "AUTH=PLAIN", status=67)
        assert "[AUTHORIZATIONFAILED]" in said
    place.gsasl("SCRAM-SHA-256", "alice", "--authorization-id=bob", status=1)


def test_rules_of_access(place: Place) -> None:
    """Set with the command line while the server runs."""
    command = place.server.command
    command("user", "set", "bob", "--access=+imaps:127.0.0.0/8$-ALL:*")
    place.curl("imaps", "bob")
    assert "[AUTH]" in place.curl("pop3s", "bob", status=67)
    command("user", "set", "bob", "--access=-imap:* EXCEPT 127.0.0.2")
    said = place.curl("imaps", "bob", status=67)
    assert "[AUTHORIZATIONFAILED]" in said
    place.curl("imaps", "bob", "--interface", "127.0.0.2")
    command("user", "domain", "example.org", "--access=-pop:*")
    assert "[AUTH]" in place.curl("pop3s", "alice", status=67)
    command("user", "set", "alice", "--access=-lmtp:*")             # in the place of the domain's
    place.curl("pop3s", "alice")
    assert "535 5.7.8" in place.msmtp("plain", status=os.EX_NOPERM)


def test_failed_logins_make_the_next_ones_slow(place: Place) -> None:
    """By address, whatever the users and the protocols. (What has passed since the last one counts as waited for, so
    the times are tried on a clock of their own: tests/store/net/test_authentication.py.)"""
    for number in range(6):
        place.curl("imaps" if number % 2 else "pop3s", f"nobody{number}", "--interface", "127.0.0.9", status=67)
    def failures(address: str) -> float:
        rows = json.loads(place.server.command("logins", "--address", address, "--json"))["rows"]
        return sum(round(row["failures"]) for row in rows if row["name"] == address)

    assert failures("127.0.0.9") == 6
    place.curl("imaps", "alice", "--interface", "127.0.0.10")
    assert failures("127.0.0.10") == 0
