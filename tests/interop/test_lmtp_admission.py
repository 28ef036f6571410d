"""The doors of LMTP: proxies, TLS, client certificates, guaranteed delivery, and where relays ask."""

import os
import signal
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.certificates import Authority, showing
from tests.support.servers.server import PASSWORD, PROGRAM, Server
from tests.support.stores import messages

TIME = 180
PROXY, ELSEWHERE = "127.0.0.2", "127.0.0.3"     # this host as a proxy, and as one that may not deliver
NAME = "relay.example.org"
NUMBERS = count()


def options(folder: Path) -> dict[str, str]:
    ports = {f"lmtp.{name}": str(free_port()) for name in ("tls_port", "guaranteed_port", "verify_port")}
    paths = {f"lmtp.{name}": str(folder / name) for name in ("socket", "guaranteed_socket", "verify_socket")}
    return {**ports, **paths, "lmtp.networks": "local, 127.0.0.1, 192.0.2.0/24, 2001:db8::/32",
            "lmtp.proxy_networks": PROXY}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With no authority, and LMTP in a process of its own."""
    with TemporaryDirectory(prefix="onecopy-") as name:
        folder = Path(name)
        with Server(folder, ["alice", "bob"], {**options(folder), "workers.lmtp": "1"}) as server:
            yield server
            assert server.stop() == 0
            assert not [path for path in folder.iterdir() if path.is_socket()]


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    with TemporaryDirectory(prefix="onecopy-") as folder:
        yield Authority(Path(folder), "authority")


@pytest.fixture(scope="module")
def asking(authority: Authority) -> Iterator[Server]:
    """With an authority, whose certificates admit relays of one name."""
    with TemporaryDirectory(prefix="onecopy-") as name:
        folder = Path(name)
        more = {"lmtp.client_ca": str(authority.file), "lmtp.client_names": NAME}
        with Server(folder, ["alice"], {**options(folder), **more}) as server:
            yield server
            assert server.stop() == 0


class AdmissionControl(Lmtp):
    """A connection from `source` to one of the doors; what `header` holds comes before everything else."""

    def __init__(self, server: Server, admission: str, source: str = "127.0.0.1", header: bytes = b"",
                 context: ssl.SSLContext | None = None, session: ssl.SSLSession | None = None) -> None:
        port = int(server.options["lmtp." + ("port" if admission == "starttls" else admission)])
        self.socket = socket.create_connection(("127.0.0.1", port), TIME, (source, 0))
        self.socket.sendall(header)
        self._context = context or showing(None)
        if admission == "tls_port":
            self.socket = self._context.wrap_socket(self.socket, session=session)
        self._file = self.socket.makefile("rb")
        self.greeting = self.reply()
        if self.greeting.code == 220:
            self.hello()
            if admission == "starttls":
                assert self.command("STARTTLS").code == 220
                self._file.close()
                self.socket = self._context.wrap_socket(self.socket)
                self._file = self.socket.makefile("rb")
                self.hello()

    def hello(self) -> None:
        """LHLO."""
        assert self.command("LHLO client.example.org").code == 250


def delivered(server: Server, admission: Lmtp, size: int = 2048, user: str = "alice") -> str:
    """Where, and how, Received says that a message through this door came."""
    message = messages.make(7, next(NUMBERS), size)     # a new one: the file of a known one keeps its Received
    replies = admission.deliver("", [user], message)
    assert [reply.code for reply in replies] == [250], replies
    with Imap(server.imap, user, PASSWORD) as imap:
        imap.select()
        found = imap.messages(str(max(imap.uids())))
        octets, = found.values()
    assert octets.endswith(message)
    head = octets[:-len(message)].decode()
    return head.partition("[")[2].partition("]")[0] + head.partition("]")[2].partition(" with ")[2].partition(" ")[0]


def one(source: str) -> bytes:
    """§2.1 of proxy-protocol.txt"""
    there = "198.51.100.2" if ip_address(source).version == 4 else "2001:db8::2"
    return f"PROXY TCP{ip_address(source).version} {source} {there} 56324 24\r\n".encode()


def two(source: str) -> bytes:
    """§2.2, with a TLV that means nothing to us"""
    address = ip_address(source)
    there = ip_address("198.51.100.2" if address.version == 4 else "2001:db8::2")
    block = address.packed + there.packed + struct.pack(">HH", 56324, 24) + b"\xe0\0\3abc"
    family = 0x11 if address.version == 4 else 0x21
    return b"\r\n\r\n\0\r\nQUIT\n" + bytes([0x21, family]) + struct.pack(">H", len(block)) + block


@pytest.mark.parametrize(("admission", "protocol"), [("port", "LMTP"), ("starttls", "LMTPS"), ("tls_port", "LMTPS")])
@pytest.mark.parametrize("version", [one, two])
def test_mail_through_a_proxy_comes_from_where_it_says(server: Server, version, admission: str, protocol: str) -> None:
    with AdmissionControl(server, admission, PROXY, version("192.0.2.1")) as relay:
        assert delivered(server, relay) == "192.0.2.1" + protocol
        assert delivered(server, relay, 3_000_000) == "192.0.2.1" + protocol     # more than is read ahead
        assert relay.command("QUIT").code == 221 and relay.at_end()
    with AdmissionControl(server, admission, PROXY, version("2001:db8::1")) as relay:
        assert delivered(server, relay) == "IPv6:2001:db8::1" + protocol


@pytest.mark.parametrize("admission", ["port", "tls_port", "guaranteed_port"])
@pytest.mark.parametrize("version", [one, two])
def test_who_may_not_deliver_may_not_through_a_proxy(server: Server, version, admission: str) -> None:
    for source in ("198.51.100.1", PROXY, ELSEWHERE):
        with AdmissionControl(server, admission, PROXY, version(source)) as relay:
            assert relay.greeting.code == 554 and relay.at_end()
    with AdmissionControl(server, admission, ELSEWHERE) as relay:
        assert relay.greeting.code == 554 and relay.at_end()


def test_nobody_else_can_pretend_to_be_a_proxy(server: Server) -> None:
    before = server.log.read_text().count("refused: proxy address=127.0.0.1 ")
    with Lmtp(server.lmtp, greet=False) as relay:
        relay.send(one("192.0.2.1"))
        assert relay.at_end()
    assert server.log.read_text().count("refused: proxy address=127.0.0.1 ") == before + 1


@pytest.mark.parametrize("octets", [b"LHLO client.example.org\r\n", one("192.0.2.1")[:-2] + b"\n" + b"x" * 107])
def test_a_proxy_must_say_who_comes(server: Server, octets: bytes) -> None:
    before = server.log.read_text().count(f"refused: proxy address={PROXY} ")
    with socket.create_connection(("127.0.0.1", server.lmtp), TIME, (PROXY, 0)) as proxy:
        proxy.sendall(octets)
        try:
            assert proxy.recv(1) == b""
        except ConnectionResetError:
            pass
    assert server.log.read_text().count(f"refused: proxy address={PROXY} ") == before + 1


def test_the_log_names_the_doors(server: Server) -> None:
    said = server.log.read_text()
    for text in (f"lmtp on 127.0.0.1:{server.lmtp}", f"lmtps on 127.0.0.1:{server.options['lmtp.tls_port']}",
                 f"lmtp (guaranteed) on 127.0.0.1:{server.options['lmtp.guaranteed_port']}",
                 f"lmtp (guaranteed) on {server.options['lmtp.guaranteed_socket']}",
                 f"lmtp (verification) on 127.0.0.1:{server.options['lmtp.verify_port']}",
                 f"lmtp (verification) on {server.options['lmtp.verify_socket']}"):
        assert text in said


def test_no_quota_stops_guaranteed_mail(server: Server) -> None:
    server.command("quota", "set", "bob", "--octets", "4000")
    with Lmtp(server.lmtp) as relay:
        delivered(server, relay, user="bob")
    for normal, guaranteed in ((server.lmtp, int(server.options["lmtp.guaranteed_port"])),
                               (server.options["lmtp.socket"], server.options["lmtp.guaranteed_socket"])):
        with Lmtp(normal) as relay:
            refused = relay.deliver("", ["bob"], messages.make(7, next(NUMBERS), 2048))
            assert [reply.enhanced for reply in refused] == ["4.2.2"]
        with Lmtp(guaranteed) as relay:
            delivered(server, relay, user="bob")
            delivered(server, relay, user="bob")
    with Imap(server.imap, "bob", PASSWORD) as imap:
        assert imap.select()[1] == 5


@pytest.mark.parametrize("where", ["verify_port", "verify_socket"])
def test_where_relays_ask(server: Server, where: str) -> None:
    if where == "verify_port":
        connected = socket.create_connection(("127.0.0.1", int(server.options["lmtp.verify_port"])), TIME)
    else:
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(TIME)
        connected.connect(server.options["lmtp.verify_socket"])
    with connected, connected.makefile("rb") as file:
        connected.sendall(b"request=smtpd_access_policy\nrecipient=nobody@localhost\nsender=\n\n")
        assert file.readline().startswith(b"action=550 5.1.1") and file.readline() == b"\n"


@pytest.mark.parametrize("admission", ["starttls", "tls_port"])
@pytest.mark.parametrize("header", [b"", one("198.51.100.1"), two("198.51.100.1")], ids=["direct", "one", "two"])
def test_a_certificate_admits_from_anywhere(asking: Server, authority: Authority, admission: str,
                                            header: bytes) -> None:
    source = PROXY if header else ELSEWHERE
    for file in (authority.client(NAME), authority.client("any", NAME.upper())):
        with AdmissionControl(asking, admission, source, header, showing(file)) as relay:
            delivered(asking, relay)
    with AdmissionControl(asking, "port", source, header) as relay:         # and nothing else does
        assert relay.greeting.code == 220 and relay.command("MAIL FROM:<>").code == 530


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("which", ["none", "wrong name"])
def test_one_without_a_certificate_or_with_another_name(asking: Server, authority: Authority, which: str,
                                                        version: ssl.TLSVersion) -> None:
    context = showing(authority.client("other.example.org") if which == "wrong name" else None, version)
    with AdmissionControl(asking, "tls_port", ELSEWHERE, context=context) as relay:
        assert relay.greeting.code == 554 and relay.at_end()
    with AdmissionControl(asking, "starttls", ELSEWHERE, context=context) as relay:
        assert relay.command("MAIL FROM:<>").code == 530
    with AdmissionControl(asking, "tls_port", context=context) as relay:    # from a network that may deliver anyway
        delivered(asking, relay)


@pytest.mark.parametrize("admission", ["starttls", "tls_port"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("which", ["another authority", "expired"])
def test_a_certificate_that_does_not_verify(asking: Server, authority: Authority, tmp_path: Path, which: str,
                                            version: ssl.TLSVersion, admission: str) -> None:
    signer = authority if which == "expired" else Authority(tmp_path, "authority")
    before = asking.log.read_text().count("certificate verify failed")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        AdmissionControl(asking, admission, ELSEWHERE, context=showing(signer.client(NAME, expired=which == "expired"),
                                                                       version))
    wait.until(lambda: asking.log.read_text().count("certificate verify failed") == before + 1 or None, "it is told",
               pid=asking.pid, limit=TIME)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_that_is_taken_up_is_admitted_again(asking: Server, authority: Authority,
                                                      version: ssl.TLSVersion) -> None:
    context = showing(authority.client(NAME), version)
    with AdmissionControl(asking, "tls_port", ELSEWHERE, context=context) as relay:
        session = relay.socket.session
    with AdmissionControl(asking, "tls_port", ELSEWHERE, context=context, session=session) as relay:
        assert relay.socket.session_reused
        delivered(asking, relay)


@pytest.mark.parametrize("admission", ["starttls", "tls_port"])
def test_openssl_is_admitted(asking: Server, authority: Authority, admission: str) -> None:
    file = authority.client(NAME)
    port = asking.lmtp if admission == "starttls" else int(asking.options["lmtp.tls_port"])
    starttls = ["-starttls", "lmtp", "-name", "client.example.org"] if admission == "starttls" else []
    said = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-bind", f"{ELSEWHERE}:0", "-cert", file, "-key", file,
         "-quiet", "-ign_eof", *starttls],
        input=b"LHLO client.example.org\nMAIL FROM:<>\nRCPT TO:<alice>\nQUIT\n", capture_output=True, timeout=TIME,
        check=False).stdout.decode()
    assert "250 2.1.5" in said and "221 2.0.0" in said


def test_mail_clients_are_not_asked_for_certificates(asking: Server, authority: Authority) -> None:
    for name, port in (("imap", asking.options["imap.tls_port"]), ("lmtp", asking.options["lmtp.tls_port"])):
        said = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}"], input=b"", capture_output=True,
                              timeout=TIME, check=False).stdout.decode()
        assert ("CN = authority" in said) is (name == "lmtp"), said


def test_authorities_are_read_again(asking: Server, authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    octets = authority.file.read_bytes()
    for content, signer in ((other.file.read_bytes(), other), (octets, authority)):
        before = asking.log.read_text().count("certificates read again")
        authority.file.write_bytes(content)
        os.kill(asking.pid, signal.SIGHUP)
        wait.until(lambda before=before: asking.log.read_text().count("certificates read again") > before or None,
                   "the certificates are read again", pid=asking.pid, limit=TIME)
        with AdmissionControl(asking, "tls_port", ELSEWHERE, context=showing(signer.client(NAME))) as relay:
            assert relay.greeting.code == 220


def test_authorities_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    server = Server(tmp_path, [], {"lmtp.client_ca": str(file)})
    for reason in ("No such file or directory", ""):
        refused = subprocess.run([PROGRAM, "serve"], capture_output=True, timeout=TIME, check=False,
                                 env=server.environment())
        assert refused.returncode == 2
        assert refused.stderr.decode().startswith(f"onecopy: [lmtp] client_ca: {file}: {reason}")
        file.write_text("junk\n")
