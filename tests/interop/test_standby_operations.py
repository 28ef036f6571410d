"""What an administrator does to the first machine while a synchronous standby follows. After each operation the standby
is in step by itself, and has every row of every table; at the end it is promoted.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import define

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import command, wait
from tests.support.servers.backends import BackEnd, body, dump
from tests.support.servers.standbymachines import OWN, USERS, StandbyMachine, in_step, is_current, two_machines

LIMIT = 180.0
#: Message files that the standby still has are of a state that is no more.
OF_COPIES = "nothing wrong was found", "store.idx: it is missing", "nothing is known of this file"
RULES = "few.messagecount: 1\n"

pytestmark = pytest.mark.long


@define(eq=False)
class Machines:
    """The one that serves, and the one that follows it."""

    one: BackEnd
    two: StandbyMachine
    folder: Path
    delivered: int = 0

    def deliver(self, count: int = 3) -> None:
        """Some more for both users."""
        with Lmtp(self.one.lmtp) as lmtp:
            for _ in range(count):
                self.delivered += 1
                replies = lmtp.deliver("relay@example.org", USERS, body(f"{self.delivered}@example.org", 800))
                assert [reply.code for reply in replies] == [250, 250], replies

    def down(self, *command: str, **options: str) -> None:
        """The server is stopped, that is done, and it is started again."""
        assert self.one.stop() == 0
        self.one.options |= {name.replace("_", ".", 1): value for name, value in options.items()}
        if command:
            self.one.command(*command)
        self.one.start()

    def are_equal(self) -> bool:
        """Whether what the standby has now is what is at the first machine, row by row."""
        place = self.folder / "copy"
        self.two.command("standby", "copy", "--to", str(place), "--json")
        here, there = rows(self.one.root), rows(place)
        said = command.run_here(("check", "--root", str(place)), self.two.environment(), b"")[1].splitlines()
        assert [line for line in said if not any(each in line for each in OF_COPIES)] == []
        return here == there


def rows(root: Path) -> dict[str, bytes]:
    """What is in each table. Whoever opens a store writes to some, so it is looked at before."""
    return {str(path.relative_to(root)): subprocess.run(
        ["db5.3_dump", "-h", path.parent, path.name], stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
        for path in [*root.glob("mboxlist/*.db"), *root.glob("partitions/*/index/*.db")]}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("operations")
    with ExitStack() as ending:
        one, two = ending.enter_context(two_machines(folder, synchronous=OWN))
        two.command("standby", "create", "--from", two.source)
        ending.enter_context(two.following())
        wait.until(lambda: in_step(two), "the standby", pid=os.getpid(), limit=LIMIT)
        yield Machines(one, two, folder)


def expunge(machines: Machines) -> None:
    """One message of alice's."""
    with Imap(machines.one.imap, "alice") as imap:
        imap.select()
        imap.ok("STORE 1 +FLAGS.SILENT (\\Deleted)")
        imap.ok("EXPUNGE")


def purge(machines: Machines) -> None:
    expunge(machines)
    machines.one.command("purge", "--older-than", "0", "--yes")


def expire(machines: Machines) -> None:
    (machines.folder / "rules").write_text(RULES)
    machines.one.command("expire", "set", "--user", "bob", str(machines.folder / "rules"))
    machines.one.command("expire", "run", "bob")


def remove(machines: Machines) -> None:
    machines.one.command("user", "move", "--to", "primary", "alice")
    machines.down("partition", "remove", "--yes", "second", store_cache="24M", store_database_locks="40000")


def add(machines: Machines) -> None:
    """Changes go on, with `refuse`: the partition comes by its log, and no database is copied."""
    before = snapshots(machines)
    machines.one.command("partition", "add", "second")
    machines.deliver()
    machines.one.command("user", "move", "--to", "second", "alice")
    machines.deliver()
    assert snapshots(machines) == before


def snapshots(machines: Machines) -> list[str]:
    """Each copy of the databases takes a new one."""
    return sorted(path.name for path in (machines.one.root / "snapshots").iterdir())


def restore(machines: Machines) -> None:
    machines.one.command("snapshot", "create")
    machines.deliver()
    expunge(machines)
    machines.down("snapshot", "restore", "--exact", "--yes")


OPERATIONS: dict[str, Callable[[Machines], object]] = {
    "purge": purge,
    "expire": expire,
    "reconstruct": lambda machines: machines.one.command("reconstruct", "--all"),
    "add a partition, and move a user there": add,
    "move the user back, and remove the partition, with another size of the cache and of regions": remove,
    "restore a snapshot": restore,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_done_to_the_first_machine(machines: Machines, name: str) -> None:
    machines.deliver()
    OPERATIONS[name](machines)
    operated = time.time()
    wait.until(lambda: is_current(machines.two, operated) and in_step(machines.two), "it is in step", pid=os.getpid(),
               limit=LIMIT)
    machines.deliver()
    done = time.time()
    wait.until(lambda: is_current(machines.two, done), "it has all", pid=os.getpid(), limit=LIMIT)
    assert json.loads(machines.two.command("standby", "status", "--json"))["trouble"] == ""
    wait.until(machines.are_equal, "both have the same", pid=os.getpid(), limit=LIMIT)


def test_it_is_promoted_then(machines: Machines) -> None:
    """All that clients found at the first machine, they find at this one."""
    before = {user: without_figures(dump(machines.one, user)) for user in USERS}
    machines.one.kill()
    machines.two.command("standby", "promote", "--yes")
    machines.two.start()
    assert {user: without_figures(dump(machines.two, user)) for user in USERS} == before
    machines.two.check()


def without_figures(found: dict[str, object]) -> str:
    """What is shown, but for UIDNEXT and HIGHESTMODSEQ, which have skipped, and with them the MODSEQs."""
    return re.sub(r"(UIDNEXT|HIGHESTMODSEQ|MODSEQ) \(?\d+", r"\1", repr(found))
