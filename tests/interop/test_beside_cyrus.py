"""Rolling replication of Cyrus under the failures that a standby is tried with: what docs/standby.md says of it is seen
here. Nothing is demanded of Cyrus but that it was run: each case prints what it did.

    BESIDE_CYRUS=all .venv/bin/pytest -s tests/interop/test_beside_cyrus.py

runs all of them; without that there is the first one alone, so that they can still be run. It takes root.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import define, field

from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.processes.twonetworks import ADDRESSES, TwoNetworks
from tests.support.servers.backends import body
from tests.support.servers.cyrusmachine import CyrusMachine, machines

ALL = os.environ.get("BESIDE_CYRUS") == "all"
USERS = [f"user{number}" for number in range(8)]
LOAD, CONNECTIONS = 6.0 if ALL else 2.0, 4        # seconds
PATIENCE = 20.0             # seconds in which what is missing may come by itself

pytestmark = pytest.mark.long


@define(eq=False)
class Load:
    """Deliveries to a machine, as fast as it takes them; when each was acknowledged, by Message-ID."""

    machine: CyrusMachine
    name: str
    taken: dict[str, float] = field(factory=dict)
    _stop: threading.Event = field(factory=threading.Event)

    def _run(self, number: int) -> None:
        with contextlib.suppress(OSError, ConnectionError, IndexError), self.machine.entered(), \
                Lmtp(self.machine.lmtp, timeout=60) as lmtp:
            at = 0
            while not self._stop.is_set():
                at += 1
                name = f"{self.name}-{number}-{at}@example.org"
                reply, = lmtp.deliver("relay@example.org", [USERS[at % len(USERS)]], body(name, 6000))
                if reply.code == 250:
                    self.taken[name] = time.monotonic()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """From entry to exit."""
        threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def missing(self, machine: CyrusMachine) -> str:
        """How many that were acknowledged are not there."""
        gone = set(self.taken) - machine.all_names()
        return f"{len(gone)} of {len(self.taken)}"

    def come(self, machine: CyrusMachine) -> str:
        """As `missing`, when all is there or the patience has an end."""
        began = time.monotonic()
        while (found := self.missing(machine)).partition(" ")[0] != "0" and time.monotonic() < began + PATIENCE:
            time.sleep(0.5)
        return f"{found} after {time.monotonic() - began:.0f} s"


def follow(*followed: CyrusMachine) -> None:
    """Every mailbox is copied, and the other machines follow when this returns: a first message has come to each."""
    for each in followed:
        for channel in each.follows:
            each.copy_all(channel)
            each.follow(channel)
    first, (one, *_) = "follows@example.org", followed
    with one.entered(), Lmtp(one.lmtp) as lmtp:
        reply, = lmtp.deliver("relay@example.org", USERS[:1], body(first))
        assert reply.code == 250, reply
    for each in followed:
        for other in each.follows.values():
            wait.until(lambda to=other: first in to.all_names(), "the replica", pid=os.getpid(), limit=120)


def said(what: str) -> None:
    """A line of the result."""
    print(f"\n    {what}", end="", flush=True)


def loaded(machine: CyrusMachine, name: str, then: Callable[[], None] = lambda: None) -> Load:
    """A load of some seconds, at whose end something happens."""
    load = Load(machine, name)
    with load.running():
        time.sleep(LOAD)
        then()
    return load


def lost(folder: Path) -> None:
    """The first machine is lost; the replica takes mail; the first one comes back, and nothing keeps it from serving.
    """
    two = CyrusMachine(folder / "two", USERS)
    one = CyrusMachine(folder / "one", USERS, {"": two})
    with machines(one, two):
        one.make_mailboxes()
        follow(one)
        load = loaded(one, "loss", one.kill)
        said(f"lost: missing on the replica: {load.missing(two)}")
        here = loaded(two, "second")
        one.start()
        both = loaded(one, "old")
        said(f"fencing: the replica took {len(here.taken)}, the first machine is back and took {len(both.taken)}; it "
             f"has {load.missing(one)} of its own and {here.missing(one)} of the replica's not")


def power(folder: Path) -> None:
    """All processes of both machines end at once, under load, three times; both start again."""
    two = CyrusMachine(folder / "two", USERS)
    one = CyrusMachine(folder / "one", USERS, {"": two})
    with machines(one, two):
        one.make_mailboxes()
        follow(one)
        for number in range(3):
            load = loaded(one, f"power{number}", lambda: (two.kill(), one.kill()))
            two.start()
            one.start()
            said(f"power: missing on the first: {load.missing(one)}, on the replica: {load.missing(two)}; "
                 f"follows by itself: {bool(one.following())}")
            one.follow()
            said(f"power: typed again: missing on the replica {load.come(two)}; different UIDs: {different(one, two)}")


def different(one: CyrusMachine, two: CyrusMachine) -> int:
    """How many UIDs mean another message on the second machine, or are not there."""
    return sum(here.get(uid) != name for user in USERS for here in [two.names(user)]
               for uid, name in one.names(user).items())


def chain(folder: Path) -> None:
    """A third machine follows the replica. The first one is lost under load; then the one in the middle."""
    three = CyrusMachine(folder / "three", USERS)
    two = CyrusMachine(folder / "two", USERS, {"": three}, chain=True)
    one = CyrusMachine(folder / "one", USERS, {"": two})
    with machines(one, two, three):
        one.make_mailboxes()
        follow(one, two)
        first = loaded(one, "quiet")
        said(f"chain: missing on the second {first.come(two)}, on the third {first.come(three)}")
        load = loaded(one, "loss", one.kill)
        said(f"chain: first lost: missing on the second {load.missing(two)}, on the third {load.missing(three)}")
        kept = two.all_names()
        more = loaded(two, "second")
        said(f"chain: the third goes on to follow the second: {more.come(three)} missing; of what the second had "
             f"{len(kept - three.all_names())}")
        last = loaded(two, "last", two.kill)
        said(f"chain: second lost: missing on the third {last.missing(three)}")


def channels(folder: Path) -> None:
    """Two replicas of one machine, each by a channel of its own. One of them is lost; the other one goes on."""
    two, three = (CyrusMachine(folder / name, USERS) for name in ("two", "three"))
    one = CyrusMachine(folder / "one", USERS, {"a": two, "b": three})
    with machines(one, two, three):
        one.make_mailboxes()
        follow(one)
        load = loaded(one, "both")
        said(f"channels: missing on the second {load.come(two)}, on the third {load.come(three)}: each has all users")
        two.kill()
        load = loaded(one, "one")
        said(f"channels: second lost: missing on the third {load.come(three)}; "
             f"sync_client left: {len(one.following())}")
        two.start()
        said(f"channels: second back: missing there {load.come(two)}")
        one.follow("a")
        said(f"channels: typed again: {load.come(two)}")


def one_way(folder: Path) -> None:
    """Packets of one direction do not arrive for ten seconds, then those of the other one."""
    with TwoNetworks() as between:
        two = CyrusMachine(folder / "two", USERS, address=ADDRESSES[1], network=between.networks[1])
        one = CyrusMachine(folder / "one", USERS, {"": two}, address=ADDRESSES[0], network=between.networks[0])
        with machines(one, two):
            one.make_mailboxes()
            follow(one)
            for way, name in zip(between.ways, ("to the replica", "from the replica"), strict=True):
                way.is_cut = True
                load = loaded(one, name.replace(" ", "-"), lambda: time.sleep(4))
                said(f"one way, {name}: acknowledged meanwhile {len(load.taken)}, missing {load.missing(two)}")
                way.is_cut = False
                said(f"one way, {name}: it is back: missing {load.come(two)}; follows: {bool(one.following())}")


CASES: list[Callable[[Path], None]] = [lost, power, chain, channels, one_way]


@pytest.mark.parametrize("case", CASES if ALL else CASES[:1], ids=lambda case: case.__name__)
def test_a_failure(tmp_path: Path, case: Callable[[Path], None]) -> None:
    case(tmp_path)
