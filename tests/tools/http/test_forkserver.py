"""tools/http/api/forkserver, operationprocess: processes of the program, forked from one that has loaded it."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from store.opening import make_empty_store
from tools.cli import progressbar
from tools.http.api import forkserver
from tools.http.api.forkserver import ForkServer
from tools.http.api.operationprocess import NUMBER, Forking, OperationProcess

LIMIT = 180.0
SECRET = "correct-horse"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    """One server for all, as loading the program takes long; of a process that has secrets in its environment and a
    file that others could inherit."""
    os.environ["ONECOPY_DIRECTORY_BIND_PASSWORD"] = SECRET
    handle = os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(handle, True)
    made = Forking()
    try:
        made.begin(["--version"], {}, LIMIT).converse(b"")
    finally:
        del os.environ["ONECOPY_DIRECTORY_BIND_PASSWORD"]
        os.close(handle)
    yield made
    server = made._server
    assert server is not None
    made.close()
    assert server[0].wait(LIMIT) == 0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store."""
    made = tmp_path_factory.mktemp("forked") / "store"
    make_empty_store(made)
    return made


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < deadline
        os.sched_yield()


def server_of(forking: Forking) -> int:
    assert forking._server is not None
    return forking._server[0].pid


def children(pid: int) -> set[int]:
    return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def open_files(pid: int) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):       # it was closed just now
            found.append(os.readlink(each))
    return found


def waiting(forking: Forking, root: Path, seconds: float = LIMIT) -> tuple[OperationProcess, int]:
    """One that waits for its standard input, and its number."""
    before = children(server_of(forking))
    process = forking.begin(["user", "add", "alice", "--password-stdin"], {"ONECOPY_ROOT": str(root)}, seconds)
    pid, = children(server_of(forking)) - before
    return process, pid


def test_a_command_is_carried_out(forking: Forking, root: Path, tmp_path: Path) -> None:
    """Each with the configuration that it is given."""
    output, errors, status = forking.begin(["--version"], {}, LIMIT).converse(b"")
    assert output.startswith(b"onecopy ") and (errors, status) == (b"", 0)
    _, errors, status = forking.begin(["user", "list"], {"ONECOPY_ROOT": str(tmp_path)}, LIMIT).converse(b"")
    assert status == 2 and b"no store" in errors, errors
    assert forking.begin(["user", "list", "--json"], {"ONECOPY_ROOT": str(root)}, LIMIT).converse(b"")[0] == b"[]\n"
    _, errors, status = forking.begin(["nothing"], {}, LIMIT).converse(b"x" * (1 << 20))    # which it does not read
    assert status == 2 and b"there is no command" in errors


def test_nothing_of_who_asks_is_in_the_server_or_its_processes(forking: Forking, root: Path) -> None:
    """And a process is one of its own: no signal of a terminal, or for the group, reaches another."""
    server = server_of(forking)
    process, pid = waiting(forking, root)
    until(lambda: os.getsid(pid) == pid)
    until(lambda: "anon_inode:[eventpoll]" not in open_files(pid))
    assert os.getpgid(pid) == pid and os.getsid(server) == server != os.getsid(0)
    lower = min(19, os.getpriority(os.PRIO_PROCESS, 0) + forkserver._NICE)
    until(lambda: os.getpriority(os.PRIO_PROCESS, pid) == lower)
    for each in (server, pid):
        assert "/dev/zero" not in open_files(each)
        assert SECRET.encode() not in Path(f"/proc/{each}/environ").read_bytes()
    assert not any("socket:" in each for each in open_files(pid))
    assert len(os.listdir(f"/proc/{server}/task")) == 1                      # a fork of threads may hang
    assert not [line for line in Path(f"/proc/{server}/maps").read_text().split("\n") if "__db" in line]
    process.end()
    assert process.converse(None)[2] == -signal.SIGINT


def test_its_time_is_bounded(forking: Forking, root: Path) -> None:
    process, _ = waiting(forking, root, 0.01)
    assert process.converse(None)[2] == -signal.SIGINT


def test_it_ends_with_who_has_asked(forking: Forking, root: Path) -> None:
    """The kernel closes what a killed process has open."""
    process, pid = waiting(forking, root)
    process._channel.close()
    until(lambda: pid not in children(server_of(forking)))
    for stream in (process._stdin, process._stdout, process._stderr):
        stream.close()


def test_it_ends_with_the_server_and_the_next_has_another(root: Path) -> None:
    forking = Forking()
    forking.begin(["--version"], {}, LIMIT).converse(b"")
    process, pid = waiting(forking, root)
    assert forking._server is not None
    forking._server[0].kill()
    assert process.converse(None)[2] is None
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert forking.begin(["--version"], {}, LIMIT).converse(b"")[2] == 0
    server = forking._server[0]
    forking.close()
    assert server.wait(LIMIT) == 0


@contextmanager
def serving(*shell: str) -> Iterator[socket.socket]:
    """The socket of a server whose operations all run this shell, and hear no SIGINT."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.fork()
    if server == 0:
        try:
            os.closerange(3, theirs.fileno())       # another server would wait for what is copied here
            os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            handles = ForkServer(theirs).serve()
            if handles is not None:
                os.setsid()
                for number, handle in enumerate(handles[2:]):
                    os.dup2(handle, number)
                os.execvp("sh", ["sh", "-c", *shell])
        finally:
            os._exit(0)
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        assert os.waitpid(server, 0)[1] == 0


def test_what_it_has_started_ends_with_it() -> None:
    """Or it would hold the place of an operation for as long as it has the output open."""
    with serving("(sleep 60; echo late) & exit 3") as server:
        process = Forking()._begin(server, b"{}", LIMIT)
        assert NUMBER.unpack(process._channel.recv(NUMBER.size)) == (3,)
        process.end()
        assert process.converse(b"")[0] == b""


def test_what_does_not_end_when_it_is_asked_is_killed_with_what_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forkserver, "KILL_TIME", 0.1)
    with serving("(sleep 60; echo late) & sleep 60; echo late") as server:
        assert Forking()._begin(server, b"{}", 0.1).converse(b"") == (b"", b"", -signal.SIGKILL)


def test_how_far_an_operation_is_stands_in_no_error(forking: Forking, capsys: pytest.CaptureFixture[str],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of a bar come in pieces, and are told; what is written between them stays."""
    monkeypatch.setenv(progressbar.PROGRESS, "1")
    monkeypatch.setattr(progressbar, "PACE", 0)
    with progressbar.bar("evil\x1e9 9 x\n\u202e" + "y" * 200, lambda: 7) as tell:
        tell(3)
    with progressbar.changing_bar() as say:
        say("INBOX", 5, 10)
    written = capsys.readouterr().err.encode()
    process, heard = forking.begin(["--version"], {}, LIMIT), list[tuple[int, int, str]]()
    process.hear = lambda *how: heard.append(how)
    octets = bytearray()
    for piece in (b"one\n" + written[:20], written[20:] + b"two\n", b"\x1e1"):
        octets += piece
        process._take_progress(octets)
    assert octets == b"one\ntwo\n\x1e1" and heard == [(5, 10, "INBOX")]
    assert written.startswith(b"\x1e3 7 evil\\x1e9 9 x\\n\\u202e") and len(written.splitlines()[0]) < 120
    assert process.converse(b"")[2] == 0
