"""The disk is full: mail is put off, what is there can be read, and nothing is wrong once there is room again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.faults.volume import Volume
from tests.support.processes import wait
from tests.support.readers import trace
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages

SENDER = "sender@example.org"
SIZE = 160 * 1024 * 1024
RESERVE = 8 * 1024 * 1024


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    with Volume(tmp_path / "volume", SIZE) as volume:
        yield volume


def test_below_the_reserve_new_mail_is_put_off(volume: Volume) -> None:
    first, second = messages.make(1, 0, 200_000), messages.make(1, 1, 200_000)
    options = {"store.disk_reserve": str(RESERVE), "store.cache": "8M"}
    with Server(volume.folder, ["alice", "bob"], options) as server:
        with Lmtp(server.lmtp) as lmtp:
            assert lmtp.deliver(SENDER, ["alice", "bob"], first)[0].code == 250
            volume.fill(leave=RESERVE // 2)
            refusals = lmtp.deliver(SENDER, ["alice", "bob"], second)
            assert [(reply.code, reply.enhanced) for reply in refusals] == [(452, "4.3.1")] * 2
            with Imap(server.imap, "alice", PASSWORD) as imap:
                assert imap.append("INBOX", second).status == "NO"
                imap.select()
                assert [trace.below(found, SENDER) for found in imap.messages().values()] == [first]
                imap.ok("STORE 1 +FLAGS (\\Seen \\Deleted)")
                imap.ok("EXPUNGE")                  # making room must be possible
            with Pop3(server.pop3, "bob", PASSWORD) as pop3:
                assert trace.below(pop3.message(1), SENDER) == first
            wait.until(lambda: server.staged == [], "messages have their places", pid=server.pid, limit=180)
            server.check()
            volume.release()
            replies = lmtp.deliver(SENDER, ["alice", "bob"], second)
            assert [reply.code for reply in replies] == [250, 250]
        server.check()


@pytest.mark.parametrize("leaves", [(0, 600_000), (100_000, 2_000_000)])
def test_full_to_the_last_octet(volume: Volume, leaves: tuple[int, int]) -> None:
    """No reserve: everything that is written may fail, first one thing and then another. The server stays, and when
    there was room again so it is the next time."""
    options = {"store.disk_reserve": "0", "store.cache": "8M", "log.file": str(volume.folder.parent / "log")}
    kept, refused = [], 0
    with Server(volume.folder, ["alice"], options) as server:
        for turn, leave in enumerate(leaves):
            volume.fill(leave)
            found = fill_up(server, turn, kept)
            assert found
            refused += found
            volume.release()
            with Lmtp(server.lmtp) as lmtp:
                message = messages.make(turn, -1, 300_000)
                assert lmtp.deliver(SENDER, ["alice"], message)[0].code == 250
                kept.append(message)
        with Imap(server.imap, "alice", PASSWORD) as imap:
            imap.select()
            there = {trace.below(octets, SENDER) for octets in imap.messages().values()}
        assert there >= set(kept), f"{len(set(kept) - there)} messages that were answered 250 are lost"
        server.check()
        assert server.stop() == 0
    server.check()
    log = (volume.folder.parent / "log").read_text() + server.log.read_text(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") - 600:][:6000]
    assert log.count("ERROR") < refused             # one line when it begins, not one for each that is refused


def fill_up(server: Server, turn: int, kept: list[bytes]) -> int:
    """How many messages were refused, of which there are more than there is room for; `kept` gets the others."""
    refused = 0
    for number in range(150):
        message = messages.make(turn, number, 300_000 if number < 10 else 2000)
        with Lmtp(server.lmtp) as lmtp:
            reply, = lmtp.deliver(SENDER, ["alice"], message)
        if reply.code == 250:
            kept.append(message)
        else:
            assert reply.code // 100 == 4, reply
            refused += 1
    return refused
