"""Every answer of a real server is compared with what is there afterwards, also after a restart: while the disk is
full, and while there are few descriptors.

Delivered, OK: it is there, once. Refused: it is not. No answer: it is there at most once.
"""

import resource
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.faults.volume import Volume
from tests.support.servers.server import PASSWORD, Server

SIZE = 160 * 1024 * 1024
FEW = 160               # descriptors of a process
FLAG = "\\Flagged"


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    with Volume(tmp_path / "volume", SIZE) as volume:
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


def heard(port: int) -> bytes:
    """What a new connection hears. In a moment without even one descriptor the system can only close it."""
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            if line := client.recv(200):
                return line
    return b""


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


def test_a_full_disk(volume: Volume) -> None:
    """Mail, flags and copies until nothing can be written any more, and on: what is answered is what is there."""
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
            volume.fill(0)
            for at in range(1, 21):
                for _ in range(40):             # the log's file has room yet
                    stored[at] = imap.command(f"UID STORE {at} +FLAGS ({FLAG})").status == "OK"
                    if not stored[at]:
                        break
                    imap.command(f"UID STORE {at} -FLAGS ({FLAG})")
                    stored[at] = imap.command(f"UID STORE {at} +FLAGS ({FLAG})").status == "OK"
                copies += imap.command(f"UID COPY {at} Copies").status == "OK"
        for number in range(20, 80):
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
    assert sum("no space is left" in line and "over;" not in line for line in log.splitlines()) <= 10


def test_few_descriptors(tmp_path: Path) -> None:
    """Who comes when none is left hears why, in the protocol's words; who is there goes on, and hears what is true."""
    server = Server(tmp_path, ["alice"], {"imap.early_connections": "0"})
    with server, ExitStack() as opened:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        few = max(FEW, 100 + max(int(each.name) for pid in children for each in Path(f"/proc/{pid}/fd").iterdir()))
        for pid in children:
            resource.prlimit(int(pid), resource.RLIMIT_NOFILE, (few, few))
        answers: dict[int, int | None] = {number: delivered(server, number) for number in range(3)}
        imap = opened.enter_context(Imap(server.imap, "alice", PASSWORD))
        imap.ok("CREATE Copies")
        imap.select()
        relay = opened.enter_context(Lmtp(server.lmtp))
        said = []
        for _ in range(few):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", server.imap), 20))
            said.append(client.recv(200))
        assert all(line.startswith((b"* OK ", b"* BYE ")) for line in said if line), set(said)
        assert sum(line.startswith(b"* BYE ") for line in said) > 20
        for server_port, refusal in ((server.lmtp, b"421 "), (server.pop3, b"-ERR ")):
            assert heard(server_port).startswith(refusal)
        copied = 0
        for number in range(3, 20):
            answers[number] = relay.deliver("a@example.org", ["alice"], message(number) + b"\r\n")[0].code
            copied += imap.command("UID COPY 1:3 Copies").status == "OK"
        assert list(answers.values()).count(250) > 15 and copied > 12       # who is there goes on
        server.stop()
    with server, Imap(server.imap, "alice", PASSWORD) as imap:
        agree(subjects(imap, "INBOX"), answers)
        assert sum(subjects(imap, "Copies").values()) == 3 * copied
        server.check()
