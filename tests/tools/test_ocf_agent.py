"""The resource agent for Pacemaker: its actions are called as the OCF Resource Agent API 1.1 says, with two machines on
loopback, and answer with its exit codes."""

import getpass
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.clients.lmtp import Lmtp
from tests.support.servers.backends import BackEnd, body
from tests.support.servers.overlaid import Overlaid
from tests.support.servers.standbymachines import two_machines

AGENT = Path(__file__).parents[2] / "tools/packages/ocf/onecopy"
SUCCESS, GENERIC, ARGUMENTS, UNIMPLEMENTED, INSTALLED, NOT_RUNNING, PROMOTED = 0, 1, 2, 3, 5, 7, 8

pytestmark = pytest.mark.long


class Resource:
    """What Pacemaker has of one machine."""

    def __init__(self, machine: BackEnd, folder: Path) -> None:
        self.machine, self.log = machine, folder / "cluster.log"
        program = folder / "onecopy"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tools.onecopy "$@"\n')
        program.chmod(0o755)
        (folder / "onecopy.toml").touch()
        self.scores = folder / "scores"
        taking = folder / "programs/crm_attribute"      # Pacemaker's, which keeps the promotion score
        taking.parent.mkdir()
        taking.write_text(f'#!/bin/sh\necho "$*" >>{self.scores}\n')
        taking.chmod(0o755)
        self.environment = {
            **machine.environment(), "PATH": f"{taking.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(AGENT.parents[3]),
            "OCF_RESKEY_program": str(program), "OCF_RESKEY_config": str(folder / "onecopy.toml"),
            "OCF_RESKEY_root": str(machine.root), "OCF_RESKEY_user": getpass.getuser(),
            "OCF_RESKEY_log": str(self.log), "OCF_RESOURCE_INSTANCE": "mail"}

    def __call__(self, action: str, **changed: str) -> int:
        done = subprocess.run([AGENT, *([action] if action else [])], env=self.environment | changed, timeout=120,
                              capture_output=True, text=True, check=False)
        self.said = done.stderr
        return done.returncode

    def score(self) -> int:
        """What Pacemaker has been told last."""
        return int(self.scores.read_text().splitlines()[-1].rpartition("--update=")[2])

    @contextmanager
    def stopped_at_the_end(self) -> Iterator["Resource"]:
        try:
            yield self
        finally:
            self("stop")


def test_a_machine_is_lost_and_the_other_one_promoted(tmp_path: Path) -> None:
    with (two_machines(tmp_path, serve=False) as (one, two),
          Resource(one, one.root.parent).stopped_at_the_end() as first,
          Resource(two, two.root.parent).stopped_at_the_end() as second):
        assert [first(action) for action in ("monitor", "stop", "demote", "start", "monitor", "start")] == [
            NOT_RUNNING, SUCCESS, NOT_RUNNING, SUCCESS, SUCCESS, SUCCESS]
        served = first.score()
        assert [first(action) for action in ("promote", "monitor", "promote")] == [
            SUCCESS, PROMOTED, SUCCESS], first.log.read_text()
        with Lmtp(one.lmtp) as lmtp:
            assert lmtp.deliver("relay@example.org", ["alice"], body("1@example.org"))[0].code == 250
        two.command("standby", "create", "--from", two.source)
        assert [second(action) for action in ("start", "monitor")] == [SUCCESS, SUCCESS], second.said
        assert second.score() < served < first.score()      # where all start together, the one that served goes on
        assert second("promote") == GENERIC         # the other machine takes connections
        os.kill(int((one.root / "run/server.pid").read_text()), signal.SIGKILL)
        assert first("monitor") == NOT_RUNNING
        assert [second(action) for action in ("promote", "monitor")] == [SUCCESS, PROMOTED], second.log.read_text()
        assert first("start") == SUCCESS
        old = first.score()                         # nobody has told it
        assert first("promote") == GENERIC
        assert "second.example.org has been promoted" in first.log.read_text()
        assert first("start") == SUCCESS
        told = first.score()
        assert [second(action) for action in ("demote", "monitor")] == [SUCCESS, SUCCESS]
        assert told < 10 < old < second.score()     # of two stores, the one that was promoted last is the newer one
        assert [second(action) for action in ("stop", "monitor")] == [SUCCESS, NOT_RUNNING]


def test_the_tester_of_the_cluster_finds_nothing(tmp_path: Path) -> None:
    """ocf-tester of the package resource-agents: all actions in many orders, and the metadata by its DTD. There is no
    cluster, so nobody takes a promotion score: each action says what it has done all the same."""
    tester, place = Overlaid("pacemaker", tmp_path / "own"), "usr/lib/ocf/resource.d/onecopy/onecopy"
    tester.write(place, AGENT.read_text()).chmod(0o755)
    with two_machines(tmp_path, serve=False) as (one, _), Resource(one, one.root.parent).stopped_at_the_end() as first:
        given = [word for name, value in first.environment.items() if name.startswith("OCF_RESKEY_")
                 for word in ("-o", f"{name.removeprefix('OCF_RESKEY_')}={value}")]
        done = subprocess.run(tester.words("/usr/sbin/ocf-tester", "-n", "mail", *given, f"/{place}"),
                              env=first.environment | {"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "passed all tests" in done.stdout, done.stdout + done.stderr


def test_what_it_says_of_itself() -> None:
    """OCF Resource Agent API 1.1, §"Resource agent metadata": every action that an agent must have."""
    said = subprocess.run([AGENT, "meta-data"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True,
                          check=True).stdout
    agent = ElementTree.fromstring(said)
    assert (agent.tag, agent.get("name"), agent.findtext("version")) == ("resource-agent", "onecopy", "1.1")
    actions = {each.get("name") for each in agent.iter("action")}
    assert actions == {"start", "stop", "monitor", "promote", "demote", "meta-data", "validate-all"}
    assert {each.get("role") for each in agent.iter("action") if each.get("name") == "monitor"} == {
        "Promoted", "Unpromoted"}
    assert len({each.get("interval") for each in agent.iter("action") if each.get("name") == "monitor"}) == 2
    assert all(each.get("timeout") for each in agent.iter("action"))
    text = AGENT.read_text()
    for parameter in agent.iter("parameter"):
        content = parameter.find("content")
        assert content is not None and parameter.findtext("longdesc") and parameter.findtext("shortdesc")
        assert f"${{OCF_RESKEY_{parameter.get('name')}:-{content.get('default')}}}" in text


@pytest.mark.parametrize(("action", "changed", "status"), [
    ("", {}, ARGUMENTS), ("migrate_to", {}, UNIMPLEMENTED), ("validate-all", {}, SUCCESS),
    ("validate-all", {"OCF_RESKEY_program": "/none"}, INSTALLED),
    ("start", {"OCF_RESKEY_user": "nobody-at-all"}, INSTALLED),
    ("promote", {"OCF_RESKEY_config": "/none"}, INSTALLED)])
def test_what_it_cannot_do(tmp_path: Path, action: str, changed: dict[str, str], status: int) -> None:
    class Machine:
        root = tmp_path

        def environment(self) -> dict[str, str]:
            return {}

    assert Resource(Machine(), tmp_path)(action, **changed) == status       # type: ignore[arg-type]
