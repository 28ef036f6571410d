"""Users moved back and forth between two real back ends, while each gets mail and has a client connected. In the end
`check` finds nothing on either.

`MOVED_USERS=200 pytest tests/interop/test_user_move.py` moves 200.
"""

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap, Refused
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.faults.volume import Volume
from tests.support.processes import command, wait
from tests.support.servers.backends import HOSTS, MESSAGE_ID, Client, Relay, body, dump, two_servers
from tests.support.servers.certificates import showing
from tests.support.servers.server import PROGRAM, Server

pytestmark = pytest.mark.every_file

USERS = [f"u{number:03}" for number in range(int(os.environ.get("MOVED_USERS", "4")))]
BIG = len(USERS) > 50


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two back ends; all users are on the first, where each has some mail, the same for all and some for itself."""
    with contextlib.ExitStack() as stack:
        folder = Path(tmp_path_factory.mktemp("moved"))
        one, two = two_servers(folder, USERS)
        stack.enter_context(one)
        stack.enter_context(two)
        with Lmtp(one.lmtp) as lmtp:
            for number in range(3):
                for reply in lmtp.deliver("news@example.org", USERS, body(f"news-{number}@example.org", 5000)):
                    assert reply.code == 250, reply
        yield one, two
        for server in (one, two):
            server.check()


def move(server: Server, to: str, *users: str, status: int = 0) -> str:
    return server.command("user", "move", *users, "--to", to, status=status)


def everyone(server: Server) -> dict[str, dict]:
    return {user: dump(server, user) for user in USERS}


def messages(server: Server, user: str) -> Counter:
    with Imap(server.imap, user) as imap:
        imap.select()
        return Counter(MESSAGE_ID.search(octets)[1].decode() for octets in imap.messages().values())


def held(said: str) -> list[float]:
    return [float(seconds) for seconds in re.findall(r"held for (\d+\.\d+) s", said)]


def test_everybody_there_and_back(pair):
    one, two = pair
    user = USERS[0]
    with Imap(one.imap, user) as imap:
        imap.ok("CREATE Archive")
        imap.ok("CREATE Archive/2026")
        imap.ok("SUBSCRIBE Archive")
        imap.select()
        imap.ok("UID COPY 1:2 Archive")
        imap.ok("UID STORE 1 +FLAGS (\\Seen $Later)")
        imap.ok(f'SETACL Archive "{USERS[1]}" lrs')
    before = everyone(one)
    drop = Pop3(one.pop3, user)
    assert "0 files" not in one.command("user", "move", user, "--to", HOSTS[1], "--dry-run")
    said = move(one, HOSTS[1], *USERS)
    assert everyone(two) == before
    assert len(two.messages) == 3                   # of all users together
    with drop:
        assert drop.command("STAT").startswith("-ERR [SYS/TEMP]")
    with Lmtp(one.lmtp) as lmtp:
        reply, = lmtp.deliver("a@example.org", [user], body("late@example.org"))
        assert (reply.code, reply.enhanced) == (450, "4.4.4")
    said += move(two, HOSTS[0], *USERS)
    assert everyone(one) == before
    assert len(one.messages) == len(two.messages) == 3
    print(f"{len(USERS)} users there and back, held for {max(held(said)):.2f} s at most")


def test_while_mail_arrives_and_clients_are_connected(pair):
    one, two = pair
    servers = (one, two)
    before = {user: messages(one, user) for user in USERS}
    with contextlib.ExitStack() as stack:
        relays = [stack.enter_context(Relay(servers, USERS[at::2], f"relay{at}")) for at in range(2)]
        clients = [stack.enter_context(Client(servers, user)) for user in USERS]
        for client in clients:
            assert client.connected.wait(180), client.errors
        said = move(one, HOSTS[1], *USERS)
        said += move(two, HOSTS[0], *USERS)
        for each in (*relays, *clients):
            each.stop()
    assert [each.errors for each in (*relays, *clients) if each.errors] == []
    taken = relays[0].taken + relays[1].taken
    assert taken and set(taken.values()) == {1}
    for user in USERS:
        wanted = before[user] + Counter(name for whose, name in taken if whose == user)
        assert messages(one, user) == wanted, user
    for client in clients:
        assert len({validity for validity, _ in client.seen}) == 1
        with Imap(one.imap, client.user) as imap:
            validity, _ = imap.select()
            there = {int(uid) for uid in re.findall(rb"\d+", imap.ok("UID SEARCH FLAGGED KEYWORD $kept").find(
                rb"^\* SEARCH(.*)")[1])}
            assert {uid for given, uid in client.flagged if given == validity} <= there
    bye = Counter()
    for client in clients:
        bye += client.farewells
    assert all("UNAVAILABLE" in text for text in bye), bye
    everything = {name for user in USERS for name in messages(one, user)}
    assert len(one.messages) == len(everything)
    print(f"{len(USERS)} users there and back, {sum(taken.values())} messages meanwhile, put off "
          f"{dict(relays[0].put_off + relays[1].put_off)}, held for {max(held(said)):.2f} s at most, {dict(bye)}")


@pytest.mark.skipif(BIG, reason="it is the same with more users")
def test_what_was_killed_is_finished_or_begun_anew(pair):
    """First the command is killed, then the server that users come to; each time the same command goes on."""
    one, two = pair
    servers = (one, two)
    before = {user: messages(one, user) for user in USERS}
    with contextlib.ExitStack() as stack:
        relay = stack.enter_context(Relay(servers, USERS, "killed"))
        _cut_off(one, HOSTS[1], lambda process: process.send_signal(signal.SIGKILL))
        one.answers()
        assert f"{USERS[0]}: is on {HOSTS[1]} already" in move(one, HOSTS[1], *USERS)
        _cut_off(two, HOSTS[0], lambda process: one.kill())
        one.start()
        move(two, HOSTS[0], *USERS)
        relay.stop()
    assert relay.errors == []
    for user in USERS:
        wanted = before[user] + Counter(name for whose, name in relay.taken if whose == user)
        there = messages(one, user)
        assert set(there) == set(wanted), user
        assert all(count == 1 or name in relay.doubtful for name, count in there.items()), user


def test_a_caller_without_a_certificate_is_told_nothing(pair):
    one, _ = pair
    port = int(one.options["exchange.port"])
    with socket.create_connection(("127.0.0.1", port), 180) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert plain.recv(1) in (b"", b"\x15")              # an alert of TLS at most
    with showing(None).wrap_socket(socket.create_connection(("127.0.0.1", port), 180)) as wire:
        assert wire.version() == "TLSv1.3"
        with pytest.raises(ssl.SSLError, match="(?i)certificate.required"):
            wire.recv(1)
    wait.until(lambda: "peer did not return a certificate" in one.said(), "the log tells", pid=one.pid, limit=180)


def _cut_off(server: Server, to: str, cut) -> None:
    """Begin to move everybody, and cut that off when it has told of the first two."""
    with subprocess.Popen([PROGRAM, "user", "move", *USERS, "--to", to], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=server.environment()) as process:
        for _ in range(2):
            assert process.stdout.readline()
        cut(process)
        process.communicate(timeout=300)
    assert process.returncode != 0
    wait.until(lambda: True, "the server lives", pid=server.pid, limit=1)


LARGE, SMALL_VOLUME = 300_000, 160 * 1024 * 1024


@pytest.mark.parametrize("leave", [0, 200_000])
def test_a_full_disk_at_either_end(tmp_path, leave):
    """Issue 23: nothing is lost, the command says which disk it is and what to do, and it can be repeated."""
    def move_alice(server: Server, to: str) -> tuple[int, str]:
        status, _, error = command.run(["user", "move", "alice", "--to", to], server.environment(), b"", 300)
        return status, error

    def deliver(server: Server, name: str) -> int:
        with Lmtp(server.lmtp) as lmtp:
            reply, = lmtp.deliver("news@example.org", ["alice"], body(f"{name}@example.org", LARGE))
        return reply.code

    there = tmp_path / HOSTS[1]
    with Volume(there, SMALL_VOLUME) as volume, contextlib.ExitStack() as stack:
        one, two = two_servers(tmp_path, ["alice"], {"store.disk_reserve": "0", "store.cache": "8M"})
        for server in (one, two):
            stack.enter_context(server)
        for number in range(3):
            assert deliver(one, f"news-{number}") == 250
        volume.fill(leave)
        status, error = move_alice(one, HOSTS[1])
        assert status and f"{HOSTS[1]} says: no space is left" in error and "run the command again" in error
        assert deliver(one, "news-3") == 250            # the user is here as before
        assert messages(one, "alice") == Counter(f"news-{number}@example.org" for number in range(4))
        volume.release()
        assert move_alice(one, HOSTS[1]) == (0, "")
        assert deliver(one, "late") // 100 == 4 and deliver(two, "news-4") == 250
        wanted = Counter(f"news-{number}@example.org" for number in range(5))
        assert messages(two, "alice") == wanted
        volume.fill(leave)                              # now it is the one that a user leaves
        status, error = move_alice(two, HOSTS[0])
        volume.release()
        if status:
            assert "no space is left" in error and "again" in error
            move_alice(two, HOSTS[0])
        wait.until(lambda: messages_if_there(one, "alice") == wanted, "the user is there", pid=two.pid,
                   limit=180)
        for server in (one, two):
            server.check()


def messages_if_there(server: Server, user: str) -> Counter | None:
    with contextlib.suppress(Refused, OSError):
        return messages(server, user)
    return None
