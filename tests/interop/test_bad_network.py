"""Synchronous mode over a network that is slow, loses packets and brings them out of order; that is cut in one
direction or both; that forgets the connections which it had.

Each machine is in a network of its own, and between them is the test. It takes root and /dev/net/tun.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.processes.twonetworks import ADDRESSES, Network, TwoNetworks
from tests.support.servers.backends import MESSAGE_ID, BackEnd, body
from tests.support.servers.standbymachines import OWN, StandbyMachine, in_step, two_machines

LIMIT = 300.0
MAIL = 10               # messages over the bad network

pytestmark = pytest.mark.long


@define(eq=False)
class Machines:
    """`one` serves in the first network, `two` follows in the second one; what each has acknowledged, by Message-ID."""

    between: TwoNetworks
    one: BackEnd
    two: StandbyMachine
    taken: dict[BackEnd, list[bytes]] = field(factory=dict)
    number: int = 0

    def network(self, machine: BackEnd) -> Network:
        return self.between.networks[machine is self.two]

    def deliver(self, machine: BackEnd | None = None) -> bool:
        """Whether that one, or the first, acknowledges a message more; else it refuses it for now (451), or ends the
        connection: then nobody knows whether the standby has it."""
        machine, self.number = machine or self.one, self.number + 1
        name = f"{self.number}@example.org"
        try:
            with self.network(machine).entered(), Lmtp(machine.lmtp) as lmtp:
                reply, = lmtp.deliver("relay@example.org", ["alice"], body(name))
        except (OSError, IndexError):
            return False
        assert reply.code in (250, 451), reply
        if reply.code == 250:
            self.taken.setdefault(machine, []).append(name.encode())
        return reply.code == 250

    def delivers(self) -> None:
        """It comes to that."""
        wait.until(self.deliver, "the standby is back", pid=os.getpid(), limit=LIMIT)

    def names(self, machine: BackEnd) -> set[bytes]:
        """Those of the messages that a client reads there."""
        with self.network(machine).entered(), Imap(machine.imap, "alice") as imap:
            imap.select()
            return {found[1] for octets in imap.messages().values() if (found := MESSAGE_ID.search(octets))}


@contextlib.contextmanager
def following(machines: Machines) -> Iterator[Any]:
    """The second machine follows, and is in step."""
    (machines.two.root / "run/standby").unlink(missing_ok=True)
    with machines.two.following() as follower:
        wait.until(lambda: in_step(machines.two), "the standby", pid=os.getpid(), limit=LIMIT)
        yield follower


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """The standby has been made over a bad network, and nobody follows yet."""
    with TwoNetworks() as between, two_machines(tmp_path, serve=False, addresses=ADDRESSES, synchronous=OWN,
                                                standby_wait="2s", timeout="1h") as (one, two):
        made = Machines(between, one, two)
        two.options["exchange.timeout"] = "1h"
        for machine in (one, two):
            machine.network = made.network(machine).path
        with made.network(one).entered():
            one.start()
        try:
            between.set(slowest=0.02, lost=0.02)
            with made.network(two).entered():
                two.command("standby", "create", "--from", two.source)
            yield made
        finally:
            one.__exit__()


def test_a_bad_network(machines: Machines) -> None:
    with following(machines) as follower:
        slow_and_out_of_order(machines)
        cut_in_one_direction(machines)
        forgotten_connections(machines)
        follower.kill()
        follower.join()
        machines.between.forget()
    with following(machines):           # the first machine does not wait for the end of the old connection
        assert machines.deliver()
        machines.between.set(is_cut=True)
        with machines.network(machines.two).entered():
            machines.two.command("standby", "promote", "--yes")
            machines.two.start()
    two_that_serve(machines)


def slow_and_out_of_order(machines: Machines) -> None:
    """All is taken."""
    for _ in range(MAIL):
        machines.delivers()
    assert all(way.overtaken for way in machines.between.ways)
    machines.between.set()
    machines.delivers()


def cut_in_one_direction(machines: Machines) -> None:
    """What the standby may have, but has not said so, is not acknowledged; mail is refused, and read. When the network
    is back all goes on."""
    for way in machines.between.ways:
        assert machines.deliver()
        way.is_cut = True
        assert not machines.deliver()
        assert not machines.deliver()
        assert machines.names(machines.one) >= set(machines.taken[machines.one])
        way.is_cut = False
        machines.delivers()


def forgotten_connections(machines: Machines) -> None:
    """The first machine finds out within `exchange.standby_wait`, the standby soon, too, and connects again, although
    neither hears that the connection has ended."""
    machines.between.forget()
    assert not machines.deliver()
    machines.delivers()


def two_that_serve(machines: Machines) -> None:
    """Neither reaches the other: one acknowledges, and the other one refuses, and ends as soon as it can hear of it: it
    does not take a standby that says nothing for one that follows."""
    one, two = machines.one, machines.two
    for _ in range(2):
        assert machines.deliver(two)
        assert not machines.deliver(one)
    machines.between.forget()
    machines.between.set()
    wait.gone(one.pid, "the superseded machine", limit=LIMIT)
    one.wait()
    assert re.search(rf"{re.escape(OWN)} has been promoted and serves this store", one.said())
    assert not set(machines.taken[one]) & set(machines.taken[two])
    assert machines.names(two) >= {*machines.taken[one], *machines.taken[two]}
    with machines.network(two).entered():
        assert two.stop() == 0
    two.check()
