"""A real Pacemaker of two nodes has the resource: it promotes the machine that served, and the other one when that node
is lost."""

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.processes.twonetworks import ADDRESSES, TwoNetworks
from tests.support.servers.backends import body
from tests.support.servers.clusternode import LIMIT, NAMES, ClusterNode
from tests.support.servers.standbymachines import is_current, two_machines

pytestmark = pytest.mark.long


def test_a_node_is_lost(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    with (TwoNetworks() as between, two_machines(tmp_path, serve=False, addresses=ADDRESSES) as machines,
          ExitStack() as ending):
        one, two = nodes = [ClusterNode(*each, here) for each in zip(NAMES, machines, between.networks, strict=True)]
        for machine, network in zip(machines, between.networks, strict=True):
            machine.network = network.path
        with one.network.entered():
            one.machine.start()
            with two.network.entered():
                two.machine.command("standby", "create", "--from", two.machine.source)
            assert one.machine.stop() == 0
        for each in nodes:
            ending.callback(each.kill)
            each.start()
        one.says("Online: [ one two ]")
        one.configure()
        one.says("* Promoted: [ one ]")         # not the standby, which may lack its last moments
        one.says(": 100 ")                      # the standby follows it
        deliver(one, "1@example.org")
        delivered = time.time()
        wait.until(lambda: is_current(two.machine, delivered), "the standby", pid=os.getpid(), limit=LIMIT)
        one.kill()
        two.says("* Promoted: [ two ]")
        deliver(two, "2@example.org")
        with two.network.entered(), Imap(two.machine.imap, "alice") as imap:
            imap.select()
            assert len(imap.uids()) == 2


def deliver(node: ClusterNode, name: str) -> None:
    """A relay delivers a message to the machine of that node."""
    with node.network.entered(), Lmtp(node.machine.lmtp) as lmtp:
        reply, = lmtp.deliver("relay@example.org", ["alice"], body(name))
        assert reply.code == 250, reply
