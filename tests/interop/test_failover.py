"""Synchronous mode: whatever was acknowledged is on the standby when the first machine is lost at any moment. At each
second loss a third machine follows the standby. It goes on to follow when that one serves, and takes its place at the
next loss."""

import contextlib
import os
import random
import time
from collections.abc import Iterator
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
    choose, left, acknowledged, thirds = random.Random(SEED), FAILOVERS, 0, 0
    while left:
        load, folder = Load(), tmp_path / f"{left}"
        folder.mkdir()
        with contextlib.ExitStack() as ending:
            one = machine(folder, 0, ending)
            one.command("init")
            one.command("user", "add", "--password-stdin", "--host", SERVED, *KINDS, octets=b"secret\n")
            two = machine(folder, 1, ending)
            next_one = machine(folder, 2, ending)
            one.start()
            for number in range(3, 3 + min(left, TOGETHER)):
                with contextlib.ExitStack() as following:
                    if number % 2 == 0:
                        following.enter_context(third(one, two, next_one))
                        thirds += 1
                    lose(one, two, load, f"{number}", choose)
                    two.start()
                    assert load.problems(two) == []
                    two.check()
                one, two, left, next_one = two, next_one, left - 1, machine(folder, number, ending)
        acknowledged += load.counted
        print(f"{FAILOVERS - left} failovers, {thirds} with a third machine, {acknowledged} changes acknowledged")


def machine(folder: Path, number: int, ending: contextlib.ExitStack) -> StandbyMachine:
    """Each has the next one as its standby, and both know each other's certificates."""
    made = StandbyMachine(folder / f"{number}", {
        "store.host": SERVED, "store.cache": "8M", "exchange.host": f"m{number}.example.org",
        "exchange.authorities": str(folder / "authorities.pem"), "exchange.address": "127.0.0.1",
        "exchange.port": str(free_port()), "exchange.standbys": f"m{number + 1}.example.org,m{number + 2}.example.org",
        "exchange.synchronous": f"m{number + 1}.example.org"})
    with (folder / "authorities.pem").open("a") as file:
        file.write(made.command("config", "certificate"))
    ending.callback(made.__exit__)
    return made


def lose(one: StandbyMachine, two: StandbyMachine, load: Load, name: str, choose: random.Random) -> None:
    """The first machine, under load. The other one is promoted, and does not serve yet."""
    if not is_standby(two):
        two.command("standby", "create", "--from", address(one))
    (two.root / "run" / "standby").unlink(missing_ok=True)      # what an earlier process has noted
    with two.following() as follower:
        wait.until(lambda: in_step(two), "the standby", pid=os.getpid(), limit=180)

        def kill() -> None:
            first, then = (follower.kill, one.kill) if choose.random() < 0.5 else (one.kill, follower.kill)
            first()
            then()

        load.prepare(one)
        load.until(one, name, choose.randint(20, 300), kill)
    two.command("standby", "promote", "--yes")


@contextlib.contextmanager
def third(one: StandbyMachine, two: StandbyMachine, three: StandbyMachine) -> Iterator[None]:
    """That machine follows the standby, and goes on when it has been promoted."""
    if not is_standby(two):
        two.command("standby", "create", "--from", address(one))
    with two.following():
        wait.until(lambda: in_step(two), "the standby", pid=os.getpid(), limit=180)
        three.command("standby", "create", "--from", address(two))
    with three.following():
        yield
        now = time.time()
        wait.until(lambda: three.is_current(now), "the third machine", pid=os.getpid(), limit=180)
        if "copied again" in (three.root.parent / "follow.err").read_text():
            print("the third machine has copied the databases again")


def is_standby(machine: StandbyMachine) -> bool:
    """Whether it has been made one."""
    return (machine.root / "standby.json").exists()


def address(machine: StandbyMachine) -> str:
    """Where others reach it."""
    return f"{machine.options['exchange.host']}=127.0.0.1:{machine.options['exchange.port']}"


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
