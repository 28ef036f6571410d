"""Partitions of a running server: added, filled, drained, while clients go on; and a mover that is killed.
(Twice; KILLED_MOVES=10: so often.)"""

import os
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.mailing import Mail
from tests.support.processes import wait
from tests.support.readers import trace
from tests.support.servers.server import PASSWORD, PROGRAM, Server
from tests.support.stores import messages

pytestmark = pytest.mark.every_file

SENDER = "sender@example.org"
OLD = 100
KILLS = int(os.environ.get("KILLED_MOVES", "2"))


def contents(server: Server, user: str) -> list[bytes]:
    with Imap(server.imap, user, PASSWORD) as imap:
        imap.select()
        return [trace.below(found, SENDER) for found in imap.messages().values()]


def test_users_are_moved_while_they_work(disk_path: Path) -> None:
    with Server(disk_path, ["alice", "bob"], {"workers.imap": "1", "workers.lmtp": "1"}) as server:
        old = [messages.make(6, number, 2000) for number in range(OLD)]
        with Lmtp(server.lmtp) as lmtp:
            for body in old:
                assert lmtp.deliver(SENDER, ["alice"], body)[0].code == 250
        server.command("partition", "add", "second", "--path", str(disk_path / "volume"))
        mail = Mail(server, "alice", "bob", part=7, size=3000)
        with Imap(server.imap, "alice", PASSWORD) as imap:
            validity, _ = imap.select()
            before = imap.messages("1:10")
            mail.start()
            for to in ("second", "primary", "second"):
                server.command("user", "move", "alice", "--to", to)
                assert imap.messages("1:10") == before
                imap.ok("UID STORE 5 +FLAGS (\\Flagged)")
                imap.ok("UID COPY 3 INBOX")
            mail.more(4)
            mail.end()
            imap.ok("NOOP")
            assert imap.messages("1:10") == before
            uids = imap.uids()
            assert uids == sorted(set(uids)) and len(uids) == OLD + len(mail.taken) + 3
            assert imap.ok("UID FETCH 5 FLAGS").find(rb"\\Flagged")
        assert not mail.refused and not mail.broken
        found = contents(server, "alice")
        assert sorted(found) == sorted([*old, *mail.taken, *[trace.below(before[3], SENDER)] * 3])
        assert sorted(contents(server, "bob")) == sorted(mail.taken)
        with Imap(server.imap, "alice", PASSWORD) as imap:
            assert imap.select()[0] == validity
        server.command("partition", "drain", "second", "--to", "primary")
        assert sorted(contents(server, "alice")) == sorted(found)
        refused = server.command("partition", "remove", "second", "--yes", status=2)
        assert refused == ""
        server.check()
        assert server.stop() == 0
        server.command("partition", "remove", "second", "--yes")
        server.check()


def _inside(server: Server, pid: int) -> bool:
    """Whether the process has the store open, or has died with it."""
    return any(server.root.glob(f"run/inside/{pid}.*"))


def test_the_mover_is_killed(disk_path: Path) -> None:
    """Nothing is lost, the server is up again by itself, and the move can be done again."""
    random = Random(4713)
    with Server(disk_path, ["alice", "bob"]) as server:
        server.command("partition", "add", "second")
        mail = Mail(server, "alice", "bob", part=7, size=3000)
        mail.start()
        mail.more(101)
        killed = 0
        for turn in range(KILLS):
            mover = subprocess.Popen(
                [PROGRAM, "user", "move", "alice", "bob", "--to", ("second", "primary")[turn % 2]],
                env=server.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait.until(lambda: _inside(server, mover.pid), "the mover is in the store", pid=mover.pid,     # noqa: B023
                       limit=180)
            try:
                mover.wait(random.uniform(0, 0.5) if killed else 0)
            except subprocess.TimeoutExpired:
                mover.kill()
                killed += 1
                mover.wait()
            # Mail may go on until the server sees that a process died inside, and ends all connections.
            wait.until(lambda: not _inside(server, mover.pid), "the dead process is cleared away",     # noqa: B023
                       pid=server.pid, limit=180)
            mail.more(6)
        mail.end()
        assert killed
        server.answers()
        for user in ("alice", "bob"):
            found = contents(server, user)
            assert set(mail.taken) <= set(found) and len(found) == len(set(found))
        before = sorted(contents(server, "alice"))
        server.command("user", "move", "alice", "bob", "--to", "second")
        assert sorted(contents(server, "alice")) == before
        server.check()


def test_a_partition_past_its_threshold_puts_mail_off(disk_path: Path) -> None:
    body = messages.make(8, 0, 2000)
    with Server(disk_path, ["alice"], {"store.disk_threshold": "0"}) as server:
        with Lmtp(server.lmtp) as lmtp:
            assert lmtp.deliver(SENDER, ["alice"], body)[0].code == 250
        assert server.stop() == 0
        server.options["store.disk_threshold"] = "1"            # of any disk more is in use
        server.start()
        with Lmtp(server.lmtp) as lmtp:
            reply, = lmtp.deliver(SENDER, ["alice"], body)
            assert (reply.code, reply.enhanced) == (452, "4.3.1")
        with Imap(server.imap, "alice", PASSWORD) as imap:
            imap.select()
            assert [trace.below(found, SENDER) for found in imap.messages().values()] == [body]
            imap.ok("STORE 1 +FLAGS (\\Deleted)")
            assert imap.append("INBOX", body).status == "NO"
            imap.ok("EXPUNGE")
        server.check()
