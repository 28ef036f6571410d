"""Who must leave a store in which a process died, and who is left alone."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.partition import processes as process_registry
from store.partition.processes import ProcessRegistry
from tests.support.faults.planted import Faults
from tools.server.process import clearing
from tools.server.process.workerconfig import NAME

SLEEP = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
COME_IN = """
import sys
from pathlib import Path
from store.partition.processes import ProcessRegistry
presence = ProcessRegistry(Path(sys.argv[1]), sys.argv[2])
presence.opened()
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(clearing, "TIMES", tuple((number, 0.0) for number, _ in clearing.TIMES))
    return tmp_path


@pytest.fixture
def started() -> "Iterator[list[subprocess.Popen[bytes]]]":
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.communicate()


def start(started: "list[subprocess.Popen[bytes]]", *words: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", *words] if words else SLEEP, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, cwd=os.getcwd())
    started.append(process)
    assert process.stdout is not None and process.stdout.readline() == b"\n"
    return process


def test_nobody_is_ended_without_need(run: Path, started: "list[subprocess.Popen[bytes]]") -> None:
    tool = start(started, COME_IN, str(run), "onecopy deliver")
    clearing.clear(run)
    assert tool.poll() is None
    assert [other.pid for other in process_registry.look(run)[0]] == [tool.pid]


def test_what_is_left_of_an_earlier_server_is_ended(run: Path, started: "list[subprocess.Popen[bytes]]",
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    worker = start(started, COME_IN, str(run), f"{NAME}, imap-1")
    clearing.clear(run)
    assert worker.wait(180) < 0
    assert process_registry.look(run) == ([], [])


def test_a_number_that_means_another_process_by_now(run: Path, started: "list[subprocess.Popen[bytes]]") -> None:
    """As in another container: the name says this pid, and the lock is somebody else's."""
    stranger = start(started)
    ProcessRegistry(run, "held by this process").opened()
    path, = (run / "inside").iterdir()
    path.rename(path.with_name(f"{stranger.pid}.0.a tool"))
    (run / "inside" / "1.0.dead").touch()
    clearing.clear(run)
    assert stranger.poll() is None
    assert len(process_registry.look(run)[1]) == 1              # and the dead one is not forgotten


def test_who_comes_in_meanwhile(run: Path, started: "list[subprocess.Popen[bytes]]", faults: Faults
                                ) -> None:
    """The last who was beside the dead one has left already, and the next one recovers the store."""
    (run / "inside").mkdir()
    (run / "inside" / "1.0.dead").touch()
    came = list["subprocess.Popen[bytes]"]()
    faults.after(process_registry, "look",
                 lambda _: came or came.append(start(started, COME_IN, str(run), "onecopy import")))
    clearing.clear(run)
    assert came[0].communicate() and came[0].returncode == 0


@pytest.mark.parametrize("name", ["x", "0.0.x", "-1.0.x", "99999999999999999999.0.x", "4194305.0.x"])
def test_names_that_are_no_numbers_of_processes(run: Path, name: str) -> None:
    (run / "inside").mkdir()
    with (run / "inside" / name).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (run / "inside" / "1.0.dead").touch()
        clearing.clear(run)
        assert [other.path.name for other in process_registry.look(run)[0]] == [name]
