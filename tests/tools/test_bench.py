"""tools/bench: up, restart after a crash, a standby that is promoted, down. (The standby is synchronous;
STANDBY_MODES=all: also one that is not.)"""

import contextlib
import itertools
import json
import math
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.processes import wait
from tests.support.servers.backends import MESSAGE_ID
from tests.support.stores import messages
from tools.benchmarks import benchserver, benchstandby
from tools.benchmarks.bystanders.sharingtime import auc
from tools.exits import Failure

pytestmark = pytest.mark.long

LIMIT = 300                     # seconds, far more than `promote` takes


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
        wait.gone(target["pid"], "the server", limit=180)
        assert benchserver.run([*noted, "restart"]) == 0
        again = json.loads(capsys.readouterr().out)
        assert {**again, "pid": 0} == {**target, "pid": 0} and again["pid"] != target["pid"]
        with Imap(again["imap"][1], "bench0002", "secret") as imap:
            assert imap.select()[1] == 1
    finally:
        benchserver.run([*noted, "down"])
    wait.gone(again["pid"], "the server", limit=180)
    assert not Path(target["root"]).exists()
    assert not state.exists()
    assert benchserver.run([*noted, "down"]) == 0
    with pytest.raises(Failure, match="nothing to restart"):
        benchserver.run([*noted, "restart"])


@pytest.mark.parametrize("mode", benchstandby.MODES if os.environ.get("STANDBY_MODES") == "all" else ["synchronous"])
def test_a_standby_takes_the_place_of_a_server_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                              mode: str) -> None:
    """Under load, by its pid; then the words of `promote` are typed. In synchronous mode all that was acknowledged is
    there, in asynchronous mode what the standby reported."""
    noted = ["--state", str(tmp_path / "bench.json")]
    answered: dict[bytes, float] = {}
    try:
        benchserver.run([*noted, "up", "--users", "1", "--dir", str(tmp_path), "--standby", mode])
        target = json.loads(capsys.readouterr().out)
        other = target["standby"]
        assert set(target) - {"token", "standby"} == set(other) - {"mode", "promote"} and other["mode"] == mode
        assert len({target["pid"], other["pid"], os.getpid()}) == 3
        began, last = time.time(), False
        with contextlib.suppress(ConnectionError), Lmtp(target["lmtp"][1]) as lmtp:
            for number in itertools.count():
                name = b"%d@example.org" % number
                reply, = lmtp.deliver("", ["bench0000"], b"Message-ID: <%b>\r\n\r\n" % name)
                assert reply.code == 250, reply
                answered[name] = time.time()
                if last:
                    os.kill(target["pid"], signal.SIGKILL)
                last = number > 50 and (mode == "synchronous" or current(other) > began)
        until = math.inf if mode == "synchronous" else current(other)
        done = subprocess.run(other["promote"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr
        with Imap(other["imap"][1], "bench0000", "secret") as imap:
            imap.select()
            there = {MESSAGE_ID.search(octets)[1] for octets in imap.messages().values()}       # type: ignore[index]
        assert len(answered) > 50 and {name for name, when in answered.items() if when < until} <= there
        again = json.loads(done.stdout)
        assert {again[name][1] for name in ("imap", "pop3", "lmtp")} == {
            other[name][1] for name in ("imap", "pop3", "lmtp")}
        with Lmtp(again["lmtp"][1]) as lmtp:
            assert lmtp.deliver("", ["bench0000"], b"Subject: after\r\n\r\n")[0].code == 250
    finally:
        benchserver.run([*noted, "down"])
    wait.gone(again["pid"], "the server", limit=180)
    wait.gone(other["pid"], "the process that followed", limit=180)
    assert list(tmp_path.iterdir()) == []


def current(standby: dict[str, Any]) -> float:
    """The Unix time until which all is there, as it says itself."""
    return float(json.loads((Path(standby["root"]) / "run/standby").read_text()).get("current", 0))


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
