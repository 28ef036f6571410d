"""Every answer of a real server is compared with what is there afterwards, also after a restart: while the disk is
full, and while there are few descriptors.

Delivered, OK: it is there, once. Refused: it is not. No answer: it is there at most once.
"""

import resource
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from store.net.controlchannel import ask, names
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.faults.volume import Volume
from tests.support.servers.server import PASSWORD, Server

SIZE = 160 * 1024 * 1024
INODES = 12_000
LAST = 80, 200          # numbers of messages: some are received into files that are made before they come
FEW = 160               # descriptors of a process
FLAG = "\\Flagged"


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    with Volume(tmp_path / "volume", SIZE, INODES) as volume:
        yield volume


def message(number: int) -> bytes:
    return b"Subject: m%d\r\nReceived: from relay id %d\r\n\r\nText\r\n" % (number, number) + b"x" * 60 * (number % 40)


def delivered(server: Server, number: int) -> int | None:
    """The code of the reply; None: the session ended without one."""
    try:
        with Lmtp(server.lmtp) as lmtp:
            return lmtp.deliver("a@example.org", ["alice"], message(number) + b"\r\n")[0].code
    except (OSError, EOFError, AssertionError):
        return None


def heard(place: int | Path, *, tls: bool = False) -> bytes:
    """What a new connection to that port, or UNIX socket, hears first."""
    with ExitStack() as opened:
        client = opened.enter_context(socket.socket(socket.AF_UNIX if isinstance(place, Path) else socket.AF_INET))
        client.settimeout(180)
        client.connect(str(place) if isinstance(place, Path) else ("127.0.0.1", place))
        if tls:
            client = opened.enter_context(ssl._create_unverified_context().wrap_socket(client))
        return client.recv(200)


def refusals(server: Server, path: Path) -> list[bytes]:
    """What new connections hear, on every port."""
    ports = [(server.imap, False), (server.pop3, False), (server.lmtp, False), (path, False),
             (int(server.options["imap.tls_port"]), True), (int(server.options["pop3.tls_port"]), True)]
    return [heard(place, tls=tls).split(b" Too many", 1)[0] for place, tls in ports]


REFUSALS = [b"* BYE [UNAVAILABLE]", b"-ERR [SYS/TEMP] too many connections\r\n", b"421", b"421",
            b"* BYE [UNAVAILABLE]", b"-ERR [SYS/TEMP] too many connections\r\n"]


def subjects(imap: Imap, mailbox: str) -> "Counter[bytes]":
    imap.select(mailbox, examine=True)
    return Counter(octets.partition(b"Subject: ")[2].partition(b"\r\n")[0] for octets in imap.messages().values())


def flagged(imap: Imap) -> set[int]:
    imap.select("INBOX", examine=True)
    found = imap.ok(f"UID SEARCH {FLAG[1:].upper()}").find(rb"\* SEARCH([ 0-9]*)")
    return {int(uid) for uid in found[1].split()}


def agree(found: "Counter[bytes]", answers: dict[int, int | None]) -> None:
    """Each message as often as its answer says."""
    for number, code in answers.items():
        times = found[b"m%d" % number]
        assert times == 1 if code == 250 else times == 0 if code is not None else times <= 1, (number, code, times)


@pytest.mark.parametrize("inodes", [False, True], ids=["octets", "inodes"])
def test_a_full_disk(volume: Volume, inodes: bool) -> None:
    """Mail, flags and copies until nothing can be written, or no file be made, any more, and on: what is answered is
    what is there."""
    options = {"store.disk_reserve": "0", "store.cache": "8M", "log.file": str(volume.folder.parent / "log")}
    answers: dict[int, int | None] = {}
    stored: dict[int, bool] = {}
    copies = 0
    with Server(volume.folder, ["alice"], options) as server:
        for number in range(20):
            answers[number] = delivered(server, number)
        with Imap(server.imap, "alice", PASSWORD) as imap:
            imap.ok("CREATE Copies")
            imap.select()
            volume.fill_inodes() if inodes else volume.fill(0)
            for at in range(1, 21):
                for _ in range(40):             # the log's file has room yet
                    stored[at] = imap.command(f"UID STORE {at} +FLAGS ({FLAG})").status == "OK"
                    if not stored[at]:
                        break
                    imap.command(f"UID STORE {at} -FLAGS ({FLAG})")
                    stored[at] = imap.command(f"UID STORE {at} +FLAGS ({FLAG})").status == "OK"
                copies += imap.command(f"UID COPY {at} Copies").status == "OK"
        for number in range(20, LAST[inodes]):
            answers[number] = delivered(server, number)
        assert not all(code == 250 for code in answers.values())
        with Imap(server.imap, "alice", PASSWORD) as imap:
            agree(subjects(imap, "INBOX"), answers)
        volume.release()
        for _ in range(2):
            with Imap(server.imap, "alice", PASSWORD) as imap:
                agree(subjects(imap, "INBOX"), answers)
                assert sum(subjects(imap, "Copies").values()) == copies
                now = flagged(imap)
                assert {uid for uid, done in stored.items() if done} <= now
            server.check()
            assert server.stop() == 0
            server.start()
    log = (volume.folder.parent / "log").read_text()
    assert "Traceback" not in log
    told = [line for line in log.splitlines() if "no space is left" in line and "over;" not in line]
    assert sum(" INFO " not in line for line in told) <= 10         # each message has a line of its own, with INFO


def used(process: int) -> set[int]:
    """The numbers of its descriptors."""
    return {int(each.name) for each in Path(f"/proc/{process}/fd").iterdir()}


def test_few_descriptors(tmp_path: Path) -> None:
    """Who comes when few are left, or none at all, hears why in the protocol's words, on every port; who is there goes
    on, and hears what is true. Then all is as before."""
    path = tmp_path / "lmtp"
    server = Server(tmp_path, ["alice"], {"imap.early_connections": "0", "lmtp.socket": str(path)})
    with server, ExitStack() as opened:
        [name] = names(server.root / "run")
        child = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text())
        few = max(FEW, 100 + max(used(child)))
        usual, most = resource.prlimit(child, resource.RLIMIT_NOFILE)
        resource.prlimit(child, resource.RLIMIT_NOFILE, (few, most))
        answers: dict[int, int | None] = {number: delivered(server, number) for number in range(3)}
        imap = opened.enter_context(Imap(server.imap, "alice", PASSWORD))
        imap.ok("CREATE Copies")
        imap.select()
        relay = opened.enter_context(Lmtp(server.lmtp))
        said = []
        for _ in range(few):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", server.imap), 180))
            said.append(client.recv(200))
        assert all(line.startswith((b"* OK ", b"* BYE [UNAVAILABLE] ")) for line in said), set(said)
        assert sum(line.startswith(b"* BYE ") for line in said) > 20
        silent = [opened.enter_context(socket.create_connection(("127.0.0.1", int(server.options["imap.tls_port"]))))
                  for _ in range(40)]                      # these never begin with TLS, and keep what they have
        for number in range(3, 20):
            answers[number] = relay.deliver("a@example.org", ["alice"], message(number) + b"\r\n")[0].code
            imap.ok("UID COPY 1:3 Copies")
        assert list(answers.values()) == [250] * 20                   # who is there goes on
        assert heard(server.lmtp).startswith(b"421 ")
        for client in silent:
            client.close()
        assert ask(server.root / "run", name, "connections")                 # administrators are served
        assert refusals(server, path) == REFUSALS
        for _ in range(20):             # what is given back meanwhile can be had
            none = min(set(range(few)) - used(child))
            resource.prlimit(child, resource.RLIMIT_NOFILE, (none, most))
            said = refusals(server, path)
            assert all(said), said
            if said == REFUSALS:
                break
        assert said == REFUSALS
        assert ask(server.root / "run", name, "connections")
        imap.ok("NOOP")
        resource.prlimit(child, resource.RLIMIT_NOFILE, (usual, most))
        assert heard(server.imap).startswith(b"* OK ")
        server.stop()
    with server, Imap(server.imap, "alice", PASSWORD) as imap:
        agree(subjects(imap, "INBOX"), answers)
        assert sum(subjects(imap, "Copies").values()) == 3 * 17
        server.check()
