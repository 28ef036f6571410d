"""A command line tool, or one of the server's processes, is killed in the middle of a change, under load.

The locks that it leaves would hold up everybody for ever. Deliveries succeed again within seconds, and nothing that was
answered is lost.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from store.partition import processes
from tests.crash.ledger import Ledger
from tests.crash.load import USERS, inspect, load_until_killed
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.servers.server import PASSWORD, PROGRAM, Server
from tests.support.stores import messages

LIMIT = 180                  # seconds until all is well again: far more than it takes
ANSWER = 5                  # seconds for one reply
NAME = "onecopy deliver"
ROUNDS = 3
THREE = {"workers.imap": "1", "workers.pop3": "1", "workers.lmtp": "1"}


def inside(server: Server, name: str = NAME, *user: str) -> "subprocess.Popen[bytes]":
    """A tool that is in the store, and holds a lock on the INBOX of that user."""
    tool = subprocess.Popen([sys.executable, "-m", "tests.support.faults.inside", str(server.root), name, *user],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert tool.stdout is not None and tool.stdout.readline() == b"inside\n"
    return tool


def end(tool: "subprocess.Popen[bytes]") -> None:
    """SIGKILL."""
    tool.kill()
    tool.communicate()


def delivered(server: Server, ledger: Ledger) -> bool:
    """Whether a delivery to the mailbox that was locked succeeds."""
    number = ledger.begin(2048, USERS[:1])
    try:
        with Lmtp(server.lmtp, timeout=ANSWER) as lmtp:
            reply, = lmtp.deliver("sender@example.org", USERS[:1], ledger.sent[number])
    except (ConnectionError, TimeoutError):
        return False
    if reply.code == 250:
        ledger.answered(USERS[0], number)
    return reply.code == 250


def load_and_kill(server: Server, ledger: Ledger, random: Random, kill: Callable[[], object]) -> None:
    """After it all is as it must be, soon."""
    before = wait.tree(server.pid)[1:]

    def kill_and_wait() -> None:
        kill()
        for worker in before:
            wait.gone(worker, "a worker", limit=LIMIT)

    load_until_killed(server, ledger, random, kill_and_wait)
    wait.until(lambda: delivered(server, ledger), "a delivery succeeds", pid=server.pid, limit=LIMIT)
    inspect(server, ledger)
    server.check()


def all_serve(server: Server, times: int = 1) -> None:
    """Wait until the last process of several has started, again after restarts."""
    wait.until(lambda: server.log.read_text().count("serving with 4 processes") == times, "all serve", pid=server.pid,
               limit=LIMIT)


@pytest.mark.parametrize("options", [{}, THREE])
def test_a_tool_is_killed(disk_path: Path, options: dict[str, str]) -> None:
    random = Random(4713)
    ledger = Ledger(4713)
    with Server(disk_path, USERS, options) as server:
        for turn in range(1, ROUNDS + 1):
            if options:
                all_serve(server, turn)
            load_and_kill(server, ledger, random, lambda: end(inside(server, NAME, USERS[0])))
            log = server.log.read_text()
            assert log.count(f"{NAME} (") == log.count("died in the store") == turn
        inspect(server, ledger, everything=True)
        assert server.stop() == 0
        server.check()


def test_each_process_is_killed(disk_path: Path) -> None:
    """The keeper, and one process for each of the protocols."""
    random = Random(4714)
    ledger = Ledger(4714)
    with Server(disk_path, USERS, THREE) as server:
        for at, name in enumerate(("keeper", "imap-1", "pop3-1", "lmtp-1"), start=1):
            all_serve(server, at)
            victim = int(re.findall(rf"onecopy serve, {name} \((\d+)\)", inside_now(server))[0])
            load_and_kill(server, ledger, random, lambda victim=victim: os.kill(victim, signal.SIGKILL))
            assert f"{name} ({victim}) died: signal SIGKILL; all are started again" in server.log.read_text()
        inspect(server, ledger, everything=True)
        assert server.stop() == 0
        server.check()


def inside_now(server: Server) -> str:
    """Who has the store open."""
    return ", ".join(map(str, processes.look(server.root / "run")[0]))


def test_other_tools_are_ended_and_those_that_come_wait(tmp_path: Path) -> None:
    """Nobody may be in the store while it is recovered, and who is there may hang on the locks."""
    with Server(tmp_path, USERS[:2]) as server:
        before = wait.tree(server.pid)[1:]
        other, victim = inside(server, "onecopy check"), inside(server, NAME, USERS[0])
        victim.kill()
        assert other.wait(LIMIT) == -signal.SIGTERM         # whoever comes before that is one of those that are ended
        server.command("deliver", *USERS[:2], octets=messages.make(1, 0, 2048))
        for worker in before:
            wait.gone(worker, "a worker", limit=LIMIT)
        server.answers()
        for user in USERS[:2]:
            with Imap(server.imap, user, PASSWORD) as imap:
                assert imap.select()[1] == 1
        assert f"{NAME} ({victim.pid}) died in the store; all are started again" in server.said()
        assert f"onecopy check ({other.pid}) is ended with SIGTERM" in server.said()
        for tool in (other, victim):
            tool.communicate()
        assert server.stop() == 0
        server.check()


def test_a_tool_that_ends_as_it_should_is_no_reason(tmp_path: Path) -> None:
    with Server(tmp_path, USERS[:2]) as server:
        before = wait.tree(server.pid)
        for number in range(5):
            server.command("deliver", USERS[0], octets=messages.make(1, number, 2048))
        assert wait.tree(server.pid) == before
        assert "died" not in server.said()
        assert server.stop() == 0


def test_without_a_server(tmp_path: Path) -> None:
    """Nobody can come in until the living have left, and then the store is recovered."""
    server = Server(tmp_path, USERS[:2])
    other, victim = inside(server, "onecopy check"), inside(server, NAME, USERS[0])
    end(victim)
    waiting = subprocess.Popen([PROGRAM, "deliver", *USERS[:2]], env=server.environment(), stdin=subprocess.PIPE)
    other.communicate()                                     # it ends as it should
    waiting.communicate(messages.make(1, 0, 2048))
    assert waiting.returncode == 0
    server.check()
