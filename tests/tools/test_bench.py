"""tools/bench: up, restart after a crash, down."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.processes import wait
from tests.support.stores import messages
from tools.benchmarks import benchserver
from tools.benchmarks.bystanders.sharingtime import auc
from tools.benchmarks.standby import standbycost
from tools.benchmarks.standby.standbycost import Figures
from tools.exits import Failure

pytestmark = pytest.mark.long


def test_up_restart_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "var" / "bench.json"
    noted = ["--state", str(state)]
    try:
        assert benchserver.run([*noted, "up", "--users", "3", "--dir", str(tmp_path),
                                "--store-message-limit", "64K"]) == 0
        line, = capsys.readouterr().out.splitlines()
        target = json.loads(line)
        assert {name: target[name] for name in ("name", "version", "user", "password", "users")} == {
            "name": "onecopy", "version": "0.1.0", "user": "bench%04d", "password": "secret", "users": 3}
        assert Path(target["data"]) == Path(target["root"]) / "partitions" / "primary"
        with Lmtp(target["lmtp"][1]) as lmtp:
            assert lmtp.deliver("", ["bench0000", "bench0002"], messages.make(1, 0, 2048))[1].code == 250
            assert lmtp.deliver("", ["bench0000"], messages.make(1, 0, 70_000))[0].code == 552
        with Pop3(target["pop3"][1], "bench0002", "secret") as pop3:
            assert pop3.ok("STAT").split()[1] == "1"
        with pytest.raises(Failure, match=f"up already, pid {target['pid']}"):
            benchserver.run([*noted, "up"])
        os.kill(target["pid"], signal.SIGKILL)
        wait.gone(target["pid"], "the server", limit=30)
        assert benchserver.run([*noted, "restart"]) == 0
        again = json.loads(capsys.readouterr().out)
        assert {**again, "pid": 0} == {**target, "pid": 0} and again["pid"] != target["pid"]
        with Imap(again["imap"][1], "bench0002", "secret") as imap:
            assert imap.select()[1] == 1
    finally:
        benchserver.run([*noted, "down"])
    wait.gone(again["pid"], "the server", limit=30)
    assert not Path(target["root"]).exists()
    assert not state.exists()
    assert benchserver.run([*noted, "down"]) == 0
    with pytest.raises(Failure, match="nothing to restart"):
        benchserver.run([*noted, "restart"])


@pytest.mark.parametrize("words", [[], ["u"], ["up", "--workers", "0"], ["up", "--users", "many"],
                                   ["down", "--users", "1"]])
def test_wrong_use(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        benchserver.run(words)
    assert end.value.code == 2


def test_a_server_that_cannot_start(tmp_path: Path) -> None:
    noted = ["--state", str(tmp_path / "var" / "bench.json")]
    try:
        with pytest.raises(Failure, match="the server has ended: onecopy: --pop3-port: 'x': not a whole number"):
            benchserver.run([*noted, "up", "--users", "0", "--dir", str(tmp_path), "--pop3-port", "x"])
    finally:
        benchserver.run([*noted, "down"])
    assert list(tmp_path.glob("onecopy-bench-*")) == []


def test_the_cost_of_a_standby_is_told_by_ratios_of_bursts_that_were_next_to_each_other() -> None:
    """The machine was half as fast in the second round, for all alike."""
    found = {("w", mode): Figures(rates, cpu, there) for mode, rates, cpu, there in (
        ("without", [100, 50, 100], [10, 20, 10], [0, 0, 0]), ("asynchronous", [90, 45, 90], [11, 22, 11], [1, 2, 1]))}
    head, line, row = standbycost.table(found, ["without", "asynchronous"]).splitlines()
    assert head == ("| workload | a second, without | a second, asynchronous | CPU, without | CPU, asynchronous | CPU "
                    "there, asynchronous |")
    assert line.count("---:") == 5
    assert row == "| w | 100 | 90 (0.90) | 10 | 11 (1.10) | 1 |"


@pytest.mark.parametrize(("known", "new", "found"), [
    ([1, 2], [3, 4], 1), ([3, 4], [1, 2], 0), ([1, 1], [1, 1], 0.5), ([1, 3], [2, 4], 0.75), ([2], [2, 3], 0.75)])
def test_how_surely_one_tells(known: list[float], new: list[float], found: float) -> None:
    assert auc(known, new) == found


def test_whether_time_tells_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchserver.run(["sharing", "--tries", "8", "--dir", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["conceal_sharing"], row["way"], row["tries"]) for row in rows] == [
        ("clients", "APPEND", 8), ("clients", "MULTIAPPEND", 8), ("clients", "LMTP", 8)]
    assert list(tmp_path.iterdir()) == []
