"""Clients that mean harm, all on loopback: crowds that say nothing, slow drips, storms of logins from many addresses.

Nothing here is timed: what the good user must get is counted. With ATTACK=full the numbers are those of a real attack
(5,000 silent connections, 200 addresses); tools/benchmarks/bystanders/stormwait.py measures what the good user waits
meanwhile.
"""

import os
import selectors
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from tests.support.clients.admission import IMAP, KINDS, LMTP, POP3, Kind, Knock, ends_well, folder
from tests.support.processes import wait
from tests.support.processes.files import open_files
from tests.support.servers.server import Server

FULL = os.environ.get("ATTACK") == "full"
SILENT = 5000 if FULL else 500
ADDRESSES = 200 if FULL else 20
ROUNDS = 100 if FULL else 20        # of the good user
EACH = 40 * 1024                    # octets of memory for a connection that says nothing
DRIPS = 500 if FULL else 60
TIME = 300
LATE = "8"              # seconds: a good user logs in within them, and three tests wait for their end
PAUSE = 0.1             # seconds between two drips


@pytest.fixture(scope="module", autouse=True)
def _enough_files() -> Iterator[None]:
    with open_files(2 * SILENT + 1000):
        yield


@pytest.fixture(scope="module")
def attacked(_enough_files: None) -> Iterator[Server]:
    """It has to live through all this, and end well."""
    with folder() as where:
        options = {**{f"{kind}.connections_per_address": "100" for kind in KINDS}, "lmtp.networks": "127.0.0.0/8",
                   "imap.login_time": LATE, "pop3.login_time": LATE, "lmtp.command_time": LATE}
        with Server(where, ["alice", "bob"], options) as server:
            with Knock(server, IMAP) as client:         # what is loaded at first use is loaded now
                assert client.log_in().startswith(b"l OK")
            yield server
            ends_well(server)


@pytest.fixture
def server(attacked: Server) -> Iterator[Server]:
    """The same for each test, after which nothing may be open that was not open before."""
    files = opened(attacked)
    yield attacked
    wait.until(lambda: opened(attacked) <= files or None, "all is let go", pid=attacked.pid, limit=TIME)


def opened(server: Server) -> int:
    """How many sockets the server's processes have open."""
    return sum(_link(path).startswith("socket:") for pid in wait.tree(server.pid)
               for path in Path(f"/proc/{pid}/fd").iterdir())


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def memory(server: Server) -> int:
    """Octets of memory that the server's processes have now; what they share is divided among them."""
    return sum(int(Path(f"/proc/{pid}/smaps_rollup").read_text().split("\nPss:")[1].split()[0]) * 1024
               for pid in wait.tree(server.pid))


def crowd(server: Server, ports: list[int], count: int) -> list[socket.socket]:
    """Connections from many addresses that have heard the greeting, if there is one, and say nothing."""
    made = []
    for at in range(count):
        source = f"127.{1 + at // 60000}.{at // 50 % 250}.{1 + at % 50}"
        made.append(socket.create_connection(("127.0.0.1", ports[at % len(ports)]), TIME, (source, 0)))
    return made


def all_ended(clients: list[socket.socket]) -> list[bytes]:
    """What each was told at last; returns when the server has ended every one."""
    said = {client: b"" for client in clients}
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(TIME)
            assert ready, f"{len(selector.get_map())} are still open"
            for key, _ in ready:
                client: socket.socket = key.fileobj     # type: ignore[assignment]
                try:
                    more = client.recv(65536)
                except ConnectionResetError:
                    more = b""
                if more:
                    said[client] = (said[client] + more)[-200:]
                else:
                    selector.unregister(client)
                    client.close()
    return [said[client] for client in clients]


def good_work(server: Server, user: str, rounds: int) -> int:
    """How often a good user was served: connects, logs in, looks at INBOX, and goes."""
    served = 0
    for _ in range(rounds):
        with Knock(server, IMAP, source="127.0.0.10") as client:
            assert client.log_in(user).startswith(b"l OK")
            assert client.ask(b"s SELECT INBOX\r\n").startswith(b"s OK")
            assert client.ask(b"o LOGOUT\r\n").startswith((b"* BYE", b"o OK"))
        served += 1
    return served


def test_a_crowd_that_says_nothing(server: Server) -> None:
    ports = [server.imap, server.pop3, server.lmtp, int(server.options["imap.tls_port"]),
             int(server.options["pop3.tls_port"])]
    before = memory(server)
    clients = crowd(server, ports, SILENT)
    assert good_work(server, "alice", ROUNDS) == ROUNDS
    each = (memory(server) - before) / SILENT
    print(f"{each:.0f} octets for each of {SILENT} silent connections")
    assert each < EACH
    said = all_ended(clients)               # login_time and command_time have passed
    assert all(text.startswith(b"* BYE") or b"\r\n* BYE" in text for text in said[0::5])
    assert all(b"-ERR" in text for text in said[1::5])
    assert all(b"421 " in text for text in said[2::5])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_crowd_past_the_limits_is_told_and_the_others_do_not_notice(server: Server, kind: Kind) -> None:
    """From one address, which may have 100 at a time; those who were let in stay until their time to log in is up."""
    clients = [Knock(server, kind, source="127.0.0.66") for _ in range(SILENT // 2)]
    let_in = [client for client in clients if client.greeting.startswith(kind.greeting)]
    assert sum(client.greeting.startswith(kind.full) for client in clients) == len(clients) - len(let_in)
    assert 100 <= len(let_in) < len(clients)
    assert sum(_is_open(client.socket) for client in let_in) <= 100
    assert good_work(server, "bob", 3) == 3
    for client in clients:
        client.close()


def _is_open(client: socket.socket) -> bool:
    """Whether the server has said nothing more: it says why when it ends a connection."""
    try:
        client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        pass
    return False


def test_a_slow_drip(server: Server) -> None:
    """An octet now and then, never a whole line: before login that buys no time. The drips go on until all are cut."""
    clients = crowd(server, [server.imap, server.pop3], DRIPS)
    alive, octets = set(clients), 0
    while alive:
        for client in tuple(alive):
            try:
                client.send(b"a")
                octets += 1
                client.setblocking(False)
                try:
                    while client.recv(4096):
                        pass
                    alive.discard(client)
                except BlockingIOError:
                    pass
            except (BrokenPipeError, ConnectionResetError):
                alive.discard(client)
        Event().wait(PAUSE)
    assert octets > DRIPS
    assert good_work(server, "alice", 3) == 3
    for client in clients:
        client.close()


def test_a_drip_within_the_handshake(server: Server) -> None:
    """The head of a TLS record, and then nothing that would make it whole."""
    clients = crowd(server, [int(server.options["imap.tls_port"]), int(server.options["pop3.tls_port"])], DRIPS)
    for client in clients:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert good_work(server, "alice", 3) == 3
    all_ended(clients)


@pytest.mark.parametrize("kind", [IMAP, POP3], ids=["imap", "pop3"])
def test_a_storm_of_logins(server: Server, kind: Kind) -> None:
    """From many addresses, for users that are there and that are not, while a good one works. All that the attackers
    get is refusals; the good user is served every time."""
    stop, attackers = Event(), dict[int, Knock]()

    def attack(number: int) -> int:
        tried = 0
        while not stop.is_set():
            try:
                with Knock(server, kind, source=f"127.0.{100 + number // 250}.{1 + number % 250}") as client:
                    attackers[number] = client
                    while not stop.is_set():
                        user = b"bob" if tried % 2 else b"nobody%d" % number
                        if kind is IMAP:
                            said = client.ask(b"l LOGIN %b wrong%d\r\n" % (user, tried))
                        else:
                            client.ask(b"USER %b\r\n" % user)
                            said = client.ask(b"PASS wrong%d\r\n" % tried)
                        assert not said.startswith((b"l OK", b"+OK maildrop")), said
                        tried += 1
                        if not said.startswith((b"l NO", b"-ERR")):
                            break
            except (ConnectionError, TimeoutError):
                continue
        return tried                    # some wait for their answer: it comes late, which is the point

    before = memory(server)
    with ThreadPoolExecutor(ADDRESSES) as pool:
        storm = [pool.submit(attack, number) for number in range(ADDRESSES)]
        try:
            assert good_work(server, "alice", ROUNDS) == ROUNDS
            grown = memory(server) - before
        finally:
            stop.set()
            for client in tuple(attackers.values()):
                with suppress(OSError):
                    client.socket.shutdown(socket.SHUT_RDWR)
        assert sum(one.result() for one in storm) > 0
    print(f"{grown >> 20} MiB more in the storm")
    assert grown < (64 << 20) + ADDRESSES * EACH        # a hash takes 16 MiB, in each of a few threads


def test_clients_that_do_not_read(server: Server) -> None:
    """They ask and do not take the answers: what waits for each is bounded."""
    before = memory(server)
    clients = crowd(server, [server.imap], DRIPS)
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.settimeout(0.01)
        try:
            for _ in range(100):
                client.sendall(b"a CAPABILITY\r\n" * 100)
        except (TimeoutError, ConnectionError):
            pass
    assert good_work(server, "alice", 3) == 3
    grown = memory(server) - before
    print(f"{grown // DRIPS} octets for each that does not read")
    assert grown < DRIPS * (512 << 10)
    for client in clients:
        client.close()


def test_limits_of_lmtp_for_strangers(server: Server) -> None:
    """Commands that bring no message come to an end, too."""
    with Knock(server, LMTP) as client:
        client.socket.sendall(b"LHLO client.example.org\r\n" + b"NOOP\r\n" * 1100)
        *_, last = client.rest().splitlines()
        assert last.startswith(b"421 4.7.0 ")
