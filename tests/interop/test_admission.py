"""The doors of all three servers: TLS as `openssl s_client` sees it, limits, proxies, and a drain.

Two processes serve and take connections from the same sockets: so what clients bring along (session tickets) is good
for both, and limits hold over both.
"""

import os
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event

import pytest

from tests.support.clients.admission import IMAP, KINDS, POP3, Kind, Knock, all_serve, ends_well, folder
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.certificates import Authority, showing
from tests.support.servers.server import PROGRAM, Server
from tools.server.tls.contexts import CERTIFICATE, KEY, make_certificate

TIME = 180
HOST = "imap.example.org"
SCLIENT = {"imap": ["-starttls", "imap"], "pop3": ["-starttls", "pop3"],
           "lmtp": ["-starttls", "lmtp", "-name", "client.example.org"]}
DOORS = [(name, admission) for name in KINDS for admission in ("starttls", "tls")]
EARLY = 4096
FROM_ONE, IN_ALL, OF_USER = 20, 26, 12
PROXY = "127.0.0.2"


def host(folder: Path, name: str) -> Path:
    """A certificate in the folder of certificates."""
    made = folder / "made" / name
    made.parent.mkdir(exist_ok=True)
    make_certificate(made, name)
    (folder / "hosts" / f"{name}.crt").write_bytes((made / CERTIFICATE).read_bytes())
    (folder / "hosts" / f"{name}.key").write_bytes((made / KEY).read_bytes())
    return made / CERTIFICATE


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    with folder() as where:
        yield Authority(where, "authority")


def options(where: Path, authority: Authority) -> dict[str, str]:
    """IMAP and POP3 ask for certificates of clients; limits are low."""
    found = {"workers.all": "2", "tls.certificates": str(where / "hosts"), "lmtp.tls_port": str(free_port()),
             "pop3.sharing": "shared", "lmtp.networks": "127.0.0.0/8, 192.0.2.0/24, 2001:db8::/32"}
    for name in KINDS:
        found |= {f"{name}.connections": str(IN_ALL), f"{name}.connections_per_address": str(FROM_ONE),
                  f"{name}.proxy_networks": PROXY}
    for name in ("imap", "pop3"):
        found |= {f"{name}.connections_per_user": str(OF_USER), f"{name}.early_octets": str(EARLY),
                  f"{name}.client_ca": str(authority.file)}
    return found


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[Server]:
    with folder() as where:
        (where / "hosts").mkdir()
        host(where, HOST)
        with Server(where, ["alice", "bob"], options(where, authority)) as server:
            all_serve(server)
            yield server
            _drained_and_stopped(server)


def _drained_and_stopped(server: Server) -> None:
    """A stop ends a drain: who was left alone till then is told."""
    with Knock(server, IMAP) as imap:
        assert imap.log_in().startswith(b"l OK")
        server.command("drain", "--no-wait")
        wait.until(lambda: server.log.read_text().count("nobody new may log in") >= 3 or None, "all have heard it",
                   pid=server.pid, limit=TIME)
        assert imap.answers()
        ends_well(server)
        assert imap.rest().startswith(IMAP.stops)


def openssl(server: Server, name: str, admission: str, *options: str) -> str:
    """What s_client says, which hangs up after the handshake."""
    port = server.options[f"{name}.{'port' if admission == 'starttls' else 'tls_port'}"]
    how = SCLIENT[name] if admission == "starttls" else []
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *how, *options], input=b"Q\n",
                          capture_output=True, timeout=TIME, check=False)
    return done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")


@pytest.mark.parametrize(("name", "admission"), DOORS)
def test_versions(server: Server, name: str, admission: str) -> None:
    for version, spoken in (("-tls1_3", "TLSv1.3"), ("-tls1_2", "TLSv1.2")):
        said = openssl(server, name, admission, version)
        assert re.search(rf"New, {spoken}, Cipher is (TLS_|ECDHE-)", said), said
    for version in ("-tls1", "-tls1_1"):            # SECLEVEL=0, or it would not even ask
        said = openssl(server, name, admission, version, "-cipher", "ALL:@SECLEVEL=0")
        assert "Cipher is (NONE)" in said and "alert protocol version" in said, said


@pytest.mark.parametrize(("name", "admission"), DOORS)
def test_weak_suites_compression_and_renegotiation(server: Server, name: str, admission: str) -> None:
    said = openssl(server, name, admission, "-tls1_2", "-cipher", "AES128-SHA:ECDHE-ECDSA-AES128-SHA:NULL:@SECLEVEL=0")
    assert "Cipher is (NONE)" in said and "handshake failure" in said, said
    said = openssl(server, name, admission, "-tls1_2")
    assert "Compression: NONE" in said and "Secure Renegotiation IS supported" in said


@pytest.mark.parametrize(("name", "admission"), DOORS)
def test_the_certificate_of_the_host(server: Server, name: str, admission: str) -> None:
    assert f"subject=CN = {HOST}" in openssl(server, name, admission, "-servername", HOST)
    for other in (["-servername", "other.example.org"], ["-noservername"]):
        assert "subject=CN = " in (said := openssl(server, name, admission, *other)) and HOST not in said


@pytest.mark.parametrize(("name", "admission"), DOORS)
def test_who_is_asked_for_a_certificate(server: Server, name: str, admission: str) -> None:
    said = openssl(server, name, admission, "-servername", HOST)
    assert ("Acceptable client certificate CA names" in said) is (name != "lmtp")


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize("name", KINDS)
def test_sessions_are_taken_up_by_any_process(server: Server, tmp_path: Path, name: str, version: str) -> None:
    """Four times: two processes take connections from one socket."""
    kept = tmp_path / "session"
    port = server.options[f"{name}.tls_port"]
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", version, "-ign_eof"]
    end = {"imap": b"a LOGOUT\r\n", "pop3": b"QUIT\r\n", "lmtp": b"QUIT\r\n"}[name]
    first = subprocess.run([*command, "-sess_out", kept], input=end, capture_output=True, timeout=TIME, check=True)
    assert b"\nNew, TLSv1." in first.stdout
    for _ in range(4):
        said = subprocess.run([*command, "-sess_in", kept], input=end, capture_output=True, timeout=TIME, check=True)
        assert b"\nReused, TLSv1." in said.stdout, said.stdout


@pytest.mark.parametrize("name", ["imap", "pop3"])
def test_a_certificate_of_another_authority_ends_the_handshake(server: Server, tmp_path: Path, name: str) -> None:
    other = Authority(tmp_path, "authority").client("alice")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Knock(server, KINDS[name], admission="tls", context=showing(other)).answers()


@pytest.mark.parametrize("name", ["imap", "pop3"])
def test_one_of_the_authority_is_taken(server: Server, authority: Authority, name: str) -> None:
    for admission in ("tls", "starttls"):
        with Knock(server, KINDS[name], admission=admission, context=showing(authority.client("alice"))) as client:
            assert client.log_in().startswith((b"l OK", b"+OK"))


def test_a_reload_under_load_drops_nobody(server: Server) -> None:
    """Eight clients connect, log in and talk without a pause, and twelve stay; the certificate is another one with each
    of five reloads. Whoever connects is shown the old one or the new one."""
    where = server.root.parent
    stop = Event()
    staying = [Knock(server, kind, admission=admission, name=HOST) for kind in KINDS.values() for admission in ("tls",
                                                                                                                "starttls")
               for _ in range(2)]

    def come_and_go(name: str) -> set[bytes]:
        shown = set()
        while not stop.is_set():
            with Knock(server, KINDS[name], admission="tls", name=HOST) as client:
                shown.add(client.socket.getpeercert(binary_form=True))
                assert client.greeting.startswith(KINDS[name].greeting)
                assert client.log_in().startswith((b"l OK", b"+OK", b"-ERR [IN-USE]"))
        return shown

    made = []
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(come_and_go, name) for name in ("imap", "pop3", "imap", "imap", "pop3", "imap", "imap",
                                                               "imap")]
        try:
            for _ in range(5):
                before = server.log.read_text().count("certificates read again")
                made.append(ssl.PEM_cert_to_DER_cert(host(where, HOST).read_text()))
                os.kill(server.pid, signal.SIGHUP)
                wait.until(lambda before=before: server.log.read_text().count("certificates read again") >= before + 3
                           or None, "all have read them", pid=server.pid, limit=TIME)
                with Knock(server, IMAP, admission="tls", name=HOST) as client:
                    assert client.socket.getpeercert(binary_form=True) == made[-1]
        finally:
            stop.set()
        shown = set().union(*(one.result() for one in running))
    assert len(shown) > 1 and len(shown - set(made)) <= 1       # the one before the first reload
    for client in staying:
        assert client.answers()
        client.close()
    assert "dropped" not in server.log.read_text() and "no TLS" not in server.said()


def let_in(server: Server, kind: Kind, source: str) -> Knock | None:
    """A connection that was greeted; None: it was told that there are too many, and ended."""
    client = Knock(server, kind, source=source)
    if client.greeting.startswith(kind.greeting):
        return client
    assert client.greeting.startswith(kind.full + b"Too many" if kind is not POP3 else kind.full + b"too many")
    assert client.rest() == b""
    client.close()
    return None


def free_again(server: Server, kind: Kind) -> None:
    """Nobody is counted any more: as many as there may be are let in."""
    def all_in() -> bool | None:
        with ExitStack() as stack:
            found = [let_in(server, kind, f"127.0.1.{at}") for at in range(IN_ALL)]
            for client in found:
                if client is not None:
                    stack.enter_context(client)
            return all(found) or None
    wait.until(all_in, "all have gone", pid=server.pid, limit=TIME)


def comes_in(server: Server, kind: Kind, source: str) -> Knock:
    """A connection, once those that have just gone are counted no more."""
    return wait.until(lambda: let_in(server, kind, source), "a connection is let in", pid=server.pid, limit=TIME)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_connections_from_an_address_and_in_all(server: Server, kind: Kind) -> None:
    """Both processes together: whoever of them takes the connection."""
    free_again(server, kind)
    with ExitStack() as stack:
        inside: list[Knock] = []

        def come(source: str) -> bool:
            client = let_in(server, kind, source)
            if client is not None:
                inside.append(stack.enter_context(client))
            return client is not None

        assert sum(come("127.0.0.5") for _ in range(3 * FROM_ONE)) == FROM_ONE
        assert sum(come(f"127.0.2.{at}") for at in range(3 * IN_ALL)) == IN_ALL - FROM_ONE
        assert all(client.answers() for client in inside)       # they do not notice
    free_again(server, kind)


@pytest.mark.parametrize("kind", [IMAP, POP3], ids=["imap", "pop3"])
def test_connections_of_a_user(server: Server, kind: Kind) -> None:
    free_again(server, kind)
    with ExitStack() as stack:
        clients = [stack.enter_context(comes_in(server, kind, f"127.0.3.{at}")) for at in range(2 * OF_USER)]
        said = [client.log_in() for client in clients]
        assert sum(line.startswith((b"l OK", b"+OK")) for line in said) == OF_USER
        refused = [(line, client) for line, client in zip(said, clients, strict=True)
                   if not line.startswith((b"l OK", b"+OK"))]
        for line, client in refused:
            assert line.lower().startswith(kind.full.lower() + b"too many connections of this user")
            assert client.rest() == b""
        with comes_in(server, kind, "127.0.3.99") as other:
            assert other.log_in("bob").startswith((b"l OK", b"+OK"))


@pytest.mark.parametrize("kind", [IMAP, POP3], ids=["imap", "pop3"])
@pytest.mark.parametrize("octets", [b"x" * EARLY, b"NOOP\r\n" * (EARLY // 6 + 1)], ids=["a line", "commands"])
def test_octets_before_login(server: Server, kind: Kind, octets: bytes) -> None:
    if octets.startswith(b"NOOP"):
        octets = kind.noop * (EARLY // len(kind.noop) + 1)
    with comes_in(server, kind, "127.0.0.1") as client:
        client.socket.sendall(octets)
        *_, last = client.rest().splitlines()
        assert last.lower().startswith(kind.full.lower() + b"too much was sent before login")
    with comes_in(server, kind, "127.0.0.1") as client:
        assert client.log_in().startswith((b"l OK", b"+OK"))
        assert all(client.answers() for _ in range(EARLY // len(kind.noop) + 1))


def header(version: int, source: str) -> bytes:
    """proxy-protocol.txt §2.1, §2.2"""
    if version == 1:
        return f"PROXY TCP4 {source} 198.51.100.2 56324 143\r\n".encode()
    return (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + socket.inet_aton(source) + socket.inet_aton("198.51.100.2")
            + (56324).to_bytes(2, "big") + (143).to_bytes(2, "big"))


@pytest.mark.parametrize("admission", ["port", "starttls", "tls"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", [IMAP, POP3], ids=["imap", "pop3"])
def test_behind_a_proxy(server: Server, kind: Kind, version: int, admission: str) -> None:
    """The log has the address of the client; and a password may come from there under TLS alone."""
    source = f"192.0.2.{10 * version + len(admission)}"
    with Knock(server, kind, admission=admission, source=PROXY, header=header(version, source)) as client:
        if admission == "port":
            refused = client.ask(b"l LOGIN alice secret\r\n" if kind is IMAP else b"USER alice\r\n")
            assert refused.startswith((b"l NO [PRIVACYREQUIRED]", b"-ERR"))
            return
        assert client.log_in().startswith((b"l OK", b"+OK"))
    wait.until(lambda: re.search(f"alice (has )?logged in from {re.escape(source)}", server.said()), "it is logged",
               pid=server.pid, limit=TIME)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_proxies_must_say_who_comes_and_others_cannot(server: Server, kind: Kind) -> None:
    before = server.log.read_text().count("refused: proxy address=127.0.0.3 ")
    with Knock(server, kind, source="127.0.0.3") as client:
        client.socket.sendall(header(1, "192.0.2.9") + kind.noop)
        with suppress(ConnectionResetError):
            assert client.file.read() == b""
    assert server.log.read_text().count("refused: proxy address=127.0.0.3 ") == before + 1
    with socket.create_connection(("127.0.0.1", getattr(server, kind.name)), TIME, (PROXY, 0)) as proxy:
        proxy.sendall(kind.noop)
        try:
            assert proxy.recv(100) == b""
        except ConnectionResetError:
            pass


@pytest.mark.parametrize("kind", [IMAP, POP3], ids=["imap", "pop3"])
def test_clients_behind_a_proxy_count_by_their_own_addresses(server: Server, kind: Kind) -> None:
    free_again(server, kind)
    with ExitStack() as stack:
        said = [stack.enter_context(Knock(server, kind, source=PROXY, header=header(1, f"192.0.2.{at}"))).greeting
                for at in range(FROM_ONE + 2)]
        assert all(line.startswith(kind.greeting) for line in said)
    free_again(server, kind)


def draining(server: Server) -> "subprocess.Popen[bytes]":
    """`onecopy drain`, once the supervisor and the one that serves have heard of it."""
    tool = subprocess.Popen([PROGRAM, "drain"], env=server.environment(), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait.until(lambda: server.log.read_text().count("nobody new may log in") >= 2 or None, "all have heard it",
               pid=server.pid, limit=TIME)
    return tool


def test_a_drain(tmp_path: Path) -> None:
    with Server(tmp_path, ["alice", "bob"], {"workers.all": "1"}) as server:
        all_serve(server)
        imap, pop3 = Knock(server, IMAP), Knock(server, POP3)
        assert imap.log_in().startswith(b"l OK") and pop3.log_in("bob").startswith(b"+OK")
        waiting = {kind: Knock(server, kind) for kind in KINDS.values()}
        tool = draining(server)
        for kind, client in waiting.items():            # nobody has logged in there
            assert client.rest().startswith(kind.stops)
            with Knock(server, kind) as new:
                assert new.greeting.startswith(kind.stops[:4]) and new.rest() == b""
        assert imap.answers() and pop3.answers()
        assert pop3.ask(b"QUIT\r\n").startswith(b"+OK") and imap.answers()
        assert tool.poll() is None
        assert imap.ask(b"o LOGOUT\r\n").startswith((b"* BYE", b"o OK"))
        assert server.wait() == 0
        assert tool.wait(TIME) == 0 and tool.stdout and tool.stdout.read() == b""
        for client in (imap, pop3, *waiting.values()):
            client.close()
    assert "Traceback" not in server.log.read_text()
