"""tools/http/api/forkserver, operationprocess: processes of the program, forked from one that has loaded it."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.http.api.operationprocess import Forking, OperationProcess

LIMIT = 60.0


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    """One server for all: to load the program takes longest."""
    made = Forking()
    yield made
    server = made._server
    made.close()
    assert server is None or server[0].wait(LIMIT) == 0


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < deadline
        os.sched_yield()


def server_of(forking: Forking) -> int:
    assert forking._server is not None
    return forking._server[0].pid


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def waiting(forking: Forking, tmp_path: Path, seconds: float = LIMIT) -> tuple[OperationProcess, int]:
    """One that waits for its standard input, and its number."""
    before = set(children(server_of(forking)))
    process = forking.begin(["user", "scram", "alice", "--password-stdin"], {"ONECOPY_ROOT": str(tmp_path)}, seconds)
    pid, = set(children(server_of(forking))) - before
    until(lambda: Path(f"/proc/{pid}/syscall").read_text().split()[:2] == ["0", "0x0"])       # read(2) of it
    return process, pid


def test_a_command_is_carried_out(forking: Forking, tmp_path: Path) -> None:
    output, errors, status = forking.begin(["--version"], {}, LIMIT).converse(b"")
    assert output.startswith(b"onecopy ") and (errors, status) == (b"", 0)
    _, errors, status = forking.begin(["user", "list"], {"ONECOPY_ROOT": str(tmp_path)}, LIMIT).converse(b"")
    assert status == 2 and b"There is no store" in errors
    _, errors, status = forking.begin(["nothing"], {}, LIMIT).converse(b"")
    assert status == 2 and b"there is no command" in errors
