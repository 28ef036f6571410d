"""Synchronous mode: whatever was acknowledged is on the standby when the first machine is lost at any moment."""

import contextlib
import os
import random
from pathlib import Path

import pytest

from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.acknowledged import KINDS, Load
from tests.support.servers.backends import body
from tests.support.servers.standbymachines import OWN, SERVED, StandbyMachine, in_step

FAILOVERS = int(os.environ.get("FAILOVERS", "1"))
SEED = int(os.environ.get("FAILOVERS_SEED", "1"))
TOGETHER = 10               # with the same users

pytestmark = pytest.mark.long


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Both machines are killed under load, in one order or the other, and the standby is promoted; then it has a
    standby, and so on."""
    choose, left, acknowledged = random.Random(SEED), FAILOVERS, 0
    while left:
        load, folder = Load(), tmp_path / f"{left}"
        folder.mkdir()
        with contextlib.ExitStack() as ending:
            one = machine(folder, 0, ending)
            one.command("init")
            one.command("user", "add", "--password-stdin", "--host", SERVED, *KINDS, octets=b"secret\n")
            two = machine(folder, 1, ending)
            one.start()
            for number in range(2, 2 + min(left, TOGETHER)):
                lose(one, two, load, f"{number}", choose)
                next_one = machine(folder, number, ending)
                two.start()
                assert load.problems(two) == []
                two.check()
                one, two, left = two, next_one, left - 1
        acknowledged += load.counted
        print(f"{FAILOVERS - left} failovers, {acknowledged} changes acknowledged")


def machine(folder: Path, number: int, ending: contextlib.ExitStack) -> StandbyMachine:
    """Each has the next one as its standby, and both know each other's certificates."""
    made = StandbyMachine(folder / f"{number}", {
        "store.host": SERVED, "store.cache": "8M", "exchange.host": f"m{number}.example.org",
        "exchange.authorities": str(folder / "authorities.pem"), "exchange.address": "127.0.0.1",
        "exchange.port": str(free_port()), "exchange.standbys": f"m{number + 1}.example.org",
        "exchange.synchronous": f"m{number + 1}.example.org"})
    with (folder / "authorities.pem").open("a") as file:
        file.write(made.command("config", "certificate"))
    ending.callback(made.__exit__)
    return made


def lose(one: StandbyMachine, two: StandbyMachine, load: Load, name: str, choose: random.Random) -> None:
    """The first machine, under load. The other one is promoted, and does not serve yet."""
    there = f"{one.options['exchange.host']}=127.0.0.1:{one.options['exchange.port']}"
    two.command("standby", "create", "--from", there)
    with two.following() as follower:
        wait.until(lambda: in_step(two), "the standby", pid=os.getpid(), limit=180)

        def kill() -> None:
            first, then = (follower.kill, one.kill) if choose.random() < 0.5 else (one.kill, follower.kill)
            first()
            then()

        load.prepare(one)
        load.until(one, name, choose.randint(20, 300), kill)
    two.command("standby", "promote", "--yes")


def test_nothing_is_answered_alone_after_a_start(tmp_path: Path) -> None:
    """Not for a moment: another machine may have been promoted while this one was down, and they do not reach each
    other."""
    machine = StandbyMachine(tmp_path / "one", {
        "store.host": SERVED, "exchange.address": "127.0.0.1", "exchange.port": str(free_port()),
        "exchange.authorities": str(tmp_path / "authorities.pem"), "exchange.standbys": OWN,
        "exchange.synchronous": OWN})
    machine.command("init")
    machine.command("user", "add", "--password-stdin", "--host", SERVED, "alice", octets=b"secret\n")
    (tmp_path / "authorities.pem").write_text(machine.command("config", "certificate"))
    machine.launch()
    try:
        lmtp = wait.until(lambda: connected(machine), "LMTP greets", pid=machine.pid, limit=180)
        with lmtp:
            reply, = lmtp.deliver("relay@example.org", ["alice"], body("first@example.org"))
            assert reply.code == 451, reply
    finally:
        machine.kill()


def connected(machine: StandbyMachine) -> Lmtp | None:
    with contextlib.suppress(OSError):
        return Lmtp(machine.lmtp)
    return None
