"""SIGKILL at random moments, with deliveries from eight connections, readers and removals beside them.

What was answered 250 is there whole after every restart; what was not answered is there whole for all its recipients or
for none; no UID ever means two messages.
"""

import os
import signal
import threading
from pathlib import Path
from random import Random

from tests.crash.ledger import Ledger
from tests.crash.load import USERS, inspect, load_until_killed
from tests.support.processes import wait
from tests.support.servers.server import Server
from tests.support.stores import messages

ROUNDS = int(os.environ.get("KILL_ROUNDS", "8"))   # kills with deliveries under way
EARLY = 4                           # kills in the middle of a start
WORKERS = 4                         # kills of one process among several


def judge_files(server: Server, ledger: Ledger) -> None:
    """Each message in one file, and no file without a message; the server has been stopped."""
    files = [messages.number_of(path.read_bytes())[1] for path in server.messages]
    assert len(files) == len(set(files)), "a message has two files"
    assert ledger.visible() <= set(files), "a visible message has no file"
    assert set(files) <= ledger.visible() | ledger.gone(), "a message that was never visible has a file"
    assert server.staged == []


def test_the_server_is_killed(disk_path: Path) -> None:
    random = Random(4711)
    ledger = Ledger(4711)
    with Server(disk_path, USERS) as server:
        for turn in range(ROUNDS):
            load_until_killed(server, ledger, random, server.kill)
            if turn % max(1, ROUNDS // EARLY) == 0:
                server.launch()
                threading.Event().wait(random.uniform(0, 1))
                server.kill()
            server.start()
            inspect(server, ledger)
            if turn % 10 == 0:
                server.check()
        inspect(server, ledger, everything=True)
        server.check()
        assert server.stop() == 0
        server.check()
        judge_files(server, ledger)


def test_one_worker_is_killed(disk_path: Path) -> None:
    """The others may hang on its locks: the supervisor starts all again, and nobody notices but the clients."""
    random = Random(4712)
    ledger = Ledger(4712)
    with Server(disk_path, USERS, {"workers.all": "3"}) as server:
        for _ in range(WORKERS):
            workers = wait.until(lambda: len(tree := wait.tree(server.pid)[1:]) >= 3 and tree, "all workers",
                                 pid=server.pid, limit=180)

            def kill(victim: int = random.choice(workers)) -> None:
                os.kill(victim, signal.SIGKILL)
                wait.gone(victim, "the killed worker", limit=180)

            load_until_killed(server, ledger, random, kill)
            for worker in workers:
                wait.gone(worker, "another worker", limit=180)
            server.answers()
            inspect(server, ledger)
            server.check()
        inspect(server, ledger, everything=True)
        assert server.stop() == 0
        server.check()
        judge_files(server, ledger)
