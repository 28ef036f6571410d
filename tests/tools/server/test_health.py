"""tools/server: what /health says, and what systemd's watchdog is told."""

import errno
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.server import Server
from tools.server.health import DEGRADED, FAILING, OK, Part, _housekeeping, as_json, overall
from tools.server.watchdog import BEATS, Watchdog


def get(port: int, path: str) -> tuple[int, dict[str, object]]:
    """By a real curl."""
    done = subprocess.run(["curl", "-sS", "-w", "\n%{http_code}", "--max-time", "180", f"http://127.0.0.1:{port}{path}"],
                          capture_output=True, text=True, timeout=300, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_health_and_the_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process of several hangs: mail, health and systemd hear of it; when it goes on all is well again."""
    port = free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(180)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        with Server(tmp_path, ["alice"], {"http.port": str(port), "workers.imap": "1"}) as server:
            assert systemd.recv(100) == b"WATCHDOG=1"
            status, found = get(port, "/health")
            assert status == 200 and found["state"] == "ok", found
            assert {each["part"] for each in found["parts"]} == {                           # type: ignore[attr-defined]
                "databases", "partition primary", "process keeper", "process imap-1", "process pop3+lmtp-1",
                "process http-1", "housekeeping"}
            assert get(port, "/health/ready") == (200, {"state": "ok", "why": []})
            processes = json.loads(server.command("status", "--json"))["processes"]
            hangs = next(each["pid"] for each in processes if each["process"].endswith("imap-1"))
            os.kill(hangs, signal.SIGSTOP)
            try:
                status, found = wait.until(lambda: seen if (seen := get(port, "/health/ready"))[0] == 503 else None,
                                           "health hears of it", pid=server.pid, limit=180)
                assert found["state"] == "failing" and "imap-1" in str(found["why"])
                assert get(port, "/health/live")[0] == 200
            finally:
                os.kill(hangs, signal.SIGCONT)
            wait.until(lambda: get(port, "/health/ready")[0] == 200, "it is well again", pid=server.pid, limit=180)
            assert server.stop() == 0
            server.check()


def test_the_watchdog_hears_only_of_what_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": str(BEATS * 1_000_000),
                       "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
        watchdog, now = Watchdog.of(environment), [100.0]
        assert environment == {"HOME": "/"}                 # no process of ours speaks for the supervisor
        watchdog._clock = lambda: now[0]
        for well, passed, said in ((True, 0, True), (True, 0.5, False), (False, 1, False), (False, 1, False),
                                   (True, 1, True)):
            now[0] += passed
            watchdog.beat(lambda well=well: well)
            try:
                assert systemd.recv(100) == b"WATCHDOG=1" and said
            except BlockingIOError:
                assert not said
        with monkeypatch.context() as patch:                # no descriptor is left: it is told later
            patch.setattr(socket, "socket", no_socket)
            now[0] += 1
            watchdog.beat(lambda: True)


def no_socket(*_: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("environment", [
    {}, {"NOTIFY_SOCKET": "/x"}, {"WATCHDOG_USEC": "1000000"}, {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"},
    {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}])
def test_without_systemd_nobody_is_asked(environment: dict[str, str]) -> None:
    def never() -> bool:
        raise AssertionError

    Watchdog.of(environment).beat(never)


def test_states() -> None:
    assert overall([]) == OK
    parts = [Part("a"), Part("b", DEGRADED, "why")]
    assert as_json(parts) == {"state": "degraded", "parts": [{"part": "a", "state": "ok", "reason": ""},
                                                             {"part": "b", "state": "degraded", "reason": "why"}]}
    assert overall([*parts, Part("c", FAILING)]) == FAILING


def test_housekeeping_that_hangs_or_fails() -> None:
    def task(**changes: object) -> dict[str, object]:
        return {"name": "purge", "running": True, "began": 1000.0, "bad": 0, **changes}

    def of(*tasks: dict[str, object]) -> Part:
        return _housekeeping({"keeper": {"tasks": tasks}}, 2000.0)

    assert of(task(began=1990.0), task(running=False)).state == OK
    assert "purge has been at work for 1000 s" in of(task()).reason
    assert "3 items fail" in of(task(bad=3, running=False)).reason
