"""A real server whose password is guessed, over several processes and protocols: what they count together, what they
know after a restart, what the log says of it, and fail2ban of the log. Addresses come by PROXY headers."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.clients.admission import IMAP, KINDS, LMTP, POP3, Kind, Knock, all_serve, ends_well
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.certificates import Authority
from tests.support.servers.nginx import Nginx
from tests.support.servers.server import PASSWORD, Server

HOME, CROWD = "203.0.113.5", "198.51.%d.9"
TIME = 180
LONG = "150s"           # what a login waits that nobody waits for, while others are tried
FILTER = ROOT / "docs/deploy/fail2ban/filter.conf"
OPTIONS = {**{f"{kind}.proxy_networks": "127.0.0.1" for kind in KINDS}, "workers.imap": "2", "workers.pop3": "1",
           "workers.lmtp": "1", "imap.plaintext_login": "yes", "pop3.plaintext_login": "yes",
           "lmtp.auth_users": "alice",
           "lmtp.networks": "10.0.0.1", "login.slow_first": LONG, "login.slow_longest": LONG,
           "login.slow_half_life": "1d", "store.sync": "none"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, ["alice", "bob"], OPTIONS) as made:
        all_serve(made)
        yield made


def knock(server: Server, kind: Kind, peer: str) -> Knock:
    return Knock(server, kind, header=b"PROXY TCP4 %b 127.0.0.1 4000 1\r\n" % peer.encode(),
                 admission="starttls" if kind is LMTP else "port")


def guess(client: Knock, password: str, user: str = "alice") -> bytes:
    """The answer to a login."""
    if client.kind is IMAP:
        return client.ask(b"g LOGIN %b %b\r\n" % (user.encode(), password.encode()))
    if client.kind is POP3:
        return client.ask(b"USER %b\r\n" % user.encode(), b"PASS %b\r\n" % password.encode())
    shown = b64encode(f"\0{user}\0{password}".encode())
    return client.ask(b"LHLO c.example.org\r\n", b"AUTH PLAIN %b\r\n" % shown)


def counted(server: Server, *words: str) -> dict[str, float]:
    rows = json.loads(server.command("logins", "--json", *words))["rows"]
    return {f"{row['kind']} {row['name']}": round(row["failures"]) for row in rows}


def refused(server: Server, kind: str = "login") -> list[str]:
    return re.findall(rf" WARNING refused: ({kind} .*)", server.log.read_text())


def test_all_processes_count_together_and_know_it_after_they_died(server: Server) -> None:
    with knock(server, IMAP, HOME) as owner:
        assert owner.log_in().startswith(b"l OK")
    for number, kind in enumerate((IMAP, POP3, LMTP)):
        with knock(server, kind, CROWD % number) as client:
            assert guess(client, f"guess {number}".replace(" ", "")).startswith((b"g NO", b"-ERR [AUTH]", b"535"))
    assert counted(server, "--user", "alice") == {"user alice": 3}
    waiting = knock(server, POP3, CROWD % 7)
    waiting.socket.sendall(b"USER alice\r\nPASS guess4\r\n")
    wait.until(lambda: counted(server, "--user", "alice") == {"user alice": 4} or None, "it counts", pid=server.pid,
               limit=TIME)
    for kind in (IMAP, POP3, LMTP):                     # one waits: the next would wait too long
        with knock(server, kind, CROWD % 9) as client:
            assert guess(client, PASSWORD).startswith((b"g NO [LIMIT]", b"-ERR [SYS/TEMP]", b"4"))
    for kind in (IMAP, POP3):                           # the owner, at home and in its network, does not wait
        for peer in (HOME, HOME + "9"):
            with knock(server, kind, peer) as owner:
                assert owner.log_in().startswith((b"l OK", b"+OK"))
    waiting.close()
    wait.until(lambda: counted(server, "--user", "alice") == {"user alice": 3} or None, "it is let go", pid=server.pid,
               limit=TIME)

    worker = wait.tree(server.pid)[-1]
    os.kill(worker, signal.SIGKILL)
    wait.gone(worker, "a worker", limit=TIME)
    wait.until(lambda: server.log.read_text().count(" serving with ") == 2 or None, "all serve again", pid=server.pid,
               limit=TIME)
    assert counted(server, "--user", "alice") == {"user alice": 3}
    assert counted(server, "--address", CROWD % 1) == {f"address {CROWD % 1}": 1, "network 198.51.1.0/24": 1}
    assert server.command("logins", "--user", "alice", "--clear") == "forgotten: 1\n"
    assert counted(server, "--user", "alice") == {}
    with knock(server, IMAP, CROWD % 9) as client:
        assert guess(client, PASSWORD).startswith(b"g OK")

    forms = refused(server)
    assert [line.split(" times")[0] for line in forms] == [
        f'login address={CROWD % number} user="alice" service={service}'
        for number, service in enumerate(("imap", "pop", "lmtp"))]
    assert len(refused(server, "slowed")) == 3
    found = subprocess.run(["fail2ban-regex", "-o", "ip", str(server.log), str(FILTER)], capture_output=True, text=True,
                           check=True)
    assert found.stdout.split() == [CROWD % number for number in range(3)]


def test_a_restart_of_the_server_knows_where_users_are_at_home(server: Server) -> None:
    with knock(server, IMAP, HOME) as owner:
        assert owner.log_in().startswith(b"l OK")
    assert server.stop() == 0
    file = server.root / "run/former-logins"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and b"alice" not in file.read_bytes()
    server.start()
    all_serve(server)
    crowd = [knock(server, IMAP, CROWD % number) for number in range(4)]
    for number, client in enumerate(crowd[:3]):
        assert guess(client, f"guess{number}").startswith(b"g NO")
    crowd[3].socket.sendall(b"g LOGIN alice guess4\r\n")
    wait.until(lambda: counted(server, "--user", "alice") == {"user alice": 4} or None, "it counts", pid=server.pid,
               limit=TIME)
    with knock(server, IMAP, HOME) as owner:
        assert owner.log_in().startswith(b"l OK")
    with knock(server, IMAP, CROWD % 8) as client:
        assert guess(client, PASSWORD).startswith(b"g NO [LIMIT]")
    for client in crowd:
        client.close()
    ends_well(server)


def test_a_stranger_has_few_connections_before_login_over_all_processes(server: Server) -> None:
    """One address held 1,000 of them for two minutes."""
    crowd = [knock(server, IMAP, CROWD % 1) for _ in range(10)]
    assert all(client.greeting.startswith(b"* OK") for client in crowd)
    with knock(server, IMAP, CROWD % 1) as client:
        assert client.greeting.startswith(b"* BYE [LIMIT] Too many connections from your address that have not")
    with knock(server, IMAP, CROWD % 2) as client:
        assert client.greeting.startswith(b"* OK")
    assert guess(crowd[0], PASSWORD).startswith(b"g OK")            # now somebody is known there
    more = [knock(server, IMAP, CROWD % 1) for _ in range(20)]
    assert all(client.greeting.startswith(b"* OK") for client in more)
    for client in crowd + more:
        client.close()
    assert [line.partition(" times")[0] for line in refused(server, "limit")] == [
        f'limit address={CROWD % 1} user="" service=imap']


def test_how_sessions_ended(server: Server) -> None:
    message = b"Subject: x\r\n\r\n" + b"y" * 1000 + b"\r\n"
    for _ in range(3):
        server.command("deliver", "alice", octets=message)
    with knock(server, IMAP, HOME) as client:
        client.log_in()
        for command in ("CREATE Old", "SELECT INBOX", "FETCH 1:2 (FLAGS RFC822.HEADER)", "FETCH 1:2 BODY.PEEK[]",
                        r"STORE 1 +FLAGS.SILENT (\Deleted)", "EXPUNGE", "UNSELECT", "DELETE Old", "LOGOUT"):
            assert b" OK " in client.ask(b"c " + command.encode() + b"\r\n") or command == "LOGOUT"
        assert client.file.read().startswith(b"c OK")
    with knock(server, POP3, HOME) as client:
        assert client.log_in().startswith(b"+OK")
        client.socket.sendall(b"RETR 1\r\nDELE 1\r\nQUIT\r\n")
        client.file.read()
    with knock(server, IMAP, HOME) as client:
        client.log_in("bob")
    ended = re.compile(" INFO session: (.* service=(?:imap|pop) .*)")       # relays have such a line, too
    ends = wait.until(lambda: len(found := ended.findall(server.log.read_text())) == 3 and found,
                      "three have ended", pid=server.pid, limit=TIME)
    octets = r"seconds=\d+ received=(\d+) sent=(\d+)"
    said = "\n".join(ends)         # in any order: each process writes what it has gathered
    imap = re.search(rf'^address={HOME} user="alice" service=imap {octets} read=2 deleted=1 expunged=1 removed=1 '
                     r'reason="logout" session=[0-9a-f]+-\d+$', said, re.MULTILINE)
    pop3 = re.search(rf'^address={HOME} user="alice" service=pop {octets} read=1 deleted=1 expunged=1 removed=0 '
                     r'reason="logout" session=[0-9a-f]+-\d+$', said, re.MULTILINE)
    assert imap and 150 < int(imap[1]) < 400 and int(imap[2]) > 2000
    assert pop3 and int(pop3[2]) > 1000
    assert re.search(rf'^address={HOME} user="bob" service=imap {octets} read=0 deleted=0 expunged=0 removed=0 '
                     r'reason="connection lost" session=[0-9a-f]+-\d+$', said, re.MULTILINE)


def test_every_other_refusal_is_one_line(server: Server) -> None:
    server.command("mailbox", "acl", "bob", "INBOX", "alice", "lr")
    with socket.create_connection(("127.0.0.1", server.imap), TIME) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionResetError):
            assert raw.recv(100) == b""
    with knock(server, IMAP, HOME) as client:
        client.log_in()
        for command in (b"a SETQUOTA user/bob (STORAGE 1)", b"b SETACL user/bob/INBOX alice lr",
                        b"c CREATE user/bob/X", b"d SELECT user/bob/Other"):
            assert b" NO " in client.ask(command + b"\r\n")
    with knock(server, IMAP, HOME) as client:
        acting = b64encode(b"bob\0alice\0" + PASSWORD.encode())
        assert b" NO [AUTHORIZATIONFAILED]" in client.ask(b"e AUTHENTICATE PLAIN %b\r\n" % acting)
    lines = [line.split(" times=1 reason=") for line in refused(server, r"\w+")]
    assert [(line[0].split()[0], line[0].split()[2]) for line in lines] == [
        ("proxy", 'user=""'), ("right", 'user="alice"'), ("right", 'user="alice"'), ("right", 'user="alice"'),
        ("login", 'user="alice"')]
    assert "SETQUOTA" in lines[1][1] and "You may not act as another user" in lines[4][1]


def test_nginx_must_know_the_secret(tmp_path: Path) -> None:
    """A real nginx, as we ship it, with the secret that the first start has made; then with another one."""
    authority = Authority(tmp_path, "authority")
    options = {"front.default_host": "127.0.0.1", "login.proxies_use_tls": "yes",
               "imap.proxy_networks": "127.0.0.1", "pop3.proxy_networks": "127.0.0.1"}
    port = free_port()
    server = Server(tmp_path, ["alice"], {**options, "front.port": str(port)})
    server.options["front.imap_port"] = str(server.imap)
    with server:
        secret = server.root / "front-secret"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        ask = (b"GET / HTTP/1.0\r\nAuth-Method: plain\r\nAuth-User: alice\r\nAuth-Pass: secret\r\n"
               b"Auth-Protocol: imap\r\nAuth-SSL: on\r\nClient-IP: 192.0.2.1\r\n%b\r\n")
        for key in (b"", b"Auth-Key: \r\n", b"Auth-Key: guess\r\n"):
            assert asked(port, ask % key).startswith(b"HTTP/1.1 403 ")
        nginx = Nginx(tmp_path, port, authority.server(), secret)
        with nginx:
            assert stat.S_IMODE((nginx.folder / "onecopy-secret.conf").stat().st_mode) == 0o600
            assert logs_in(nginx, authority)
            nginx.stop()
            other = tmp_path / "other"
            other.write_text("another one\n")
            nginx._secret = other
            nginx.start()
            assert not logs_in(nginx, authority)
        reasons = {line.rpartition("reason=")[2].rpartition(" session=")[0] for line in refused(server, "address")}
        assert reasons == {'"no Auth-Key, or another one than in front.secret_file"'}


def asked(port: int, octets: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), TIME) as raw:
        raw.sendall(octets)
        return b"".join(iter(lambda: raw.recv(4096), b""))


def logs_in(nginx: Nginx, authority: Authority) -> bool:
    with socket.create_connection(("127.0.0.1", nginx.imaps), TIME) as raw:
        with authority.trusted().wrap_socket(raw, server_hostname="localhost") as client:
            client.recv(1000)
            client.sendall(b"l LOGIN alice secret\r\n")
            return client.recv(1000).startswith(b"l OK")
