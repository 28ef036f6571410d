"""onecopy standby promote, where the other machine, or the process that follows it, does not answer as it should."""

import fcntl
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mboxlist import heldlocks, privatefiles
from store.errors import StoreError
from store.partition import processes
from store.standby import standbyprocess
from store.standby.standbystate import StandbyState
from tools.commands.standby import promotestandby
from tools.server.control.backendlink import Address


def test_a_machine_that_refuses_us_answers() -> None:
    """A certificate that has ended, or a name that is not among exchange.standbys, is no sign that it is lost."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        state = StandbyState("mail.example.org", f"mail.example.org=127.0.0.1:{there.getsockname()[1]}")
        with pytest.raises(StoreError, match="answers at"):
            promotestandby._require_silence(state, {})
    promotestandby._require_silence(state, {})


@pytest.mark.parametrize("knows", [True, False])
def test_the_machine_that_serves_answers_and_the_standby_between_does_not(knows: bool) -> None:
    """Where it is, this machine knows itself, or has heard."""
    closed = "second.example.org=127.0.0.1:1"
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        own = {"mail.example.org": Address("mail.example.org", "127.0.0.1", port)} if knows else {}
        state = StandbyState("mail.example.org", closed, above=(f"mail.example.org=127.0.0.1:{1 if knows else port}",))
        with pytest.raises(StoreError, match="mail.example.org answers at .* stop it first; nothing"):
            promotestandby._require_silence(state, own)
        state = StandbyState("mail.example.org", f"second.example.org=127.0.0.1:{port}", above=(closed,))
        with pytest.raises(StoreError, match="second.example.org answers at .* or promote that one"):
            promotestandby._require_silence(state, {})


@pytest.mark.parametrize("known", [True, False], ids=["known", "not known"])
def test_a_process_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """It waits for an answer of a machine that is lost: it is killed. Or it has been killed itself, and the process
    that it made still puts logs into tables: that one is waited for."""
    pid = forked(lambda begun: hold(tmp_path, begun, known=known))
    try:
        monkeypatch.setattr(promotestandby, "GENTLE", 0.2)
        monkeypatch.setattr(promotestandby, "PATIENCE", 10.0 if known else 0.5)
        if known:
            assert standbyprocess.process(tmp_path) == pid
            promotestandby._end_follower(tmp_path)
            assert not standbyprocess.process(tmp_path)
        else:
            assert standbyprocess.process(tmp_path) == standbyprocess.UNKNOWN
            with pytest.raises(StoreError, match="does not end"):
                promotestandby._end_follower(tmp_path)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_process_that_is_dead_and_has_left_one_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = forked(os.close)
    os.waitpid(dead, 0)
    pid = forked(lambda begun: hold(tmp_path, begun, known=True))
    try:
        privatefiles.write(standbyprocess.number_of(tmp_path, standbyprocess.FOLLOWING), f"{dead}\n")
        monkeypatch.setattr(promotestandby, "PATIENCE", 0.5)
        with pytest.raises(StoreError, match="does not end"):
            promotestandby._end_follower(tmp_path)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_another_process_that_has_got_the_number(tmp_path: Path) -> None:
    """The one that followed was killed: whoever has its number now hears nothing, SIGKILL included."""
    innocent = forked(lambda begun: (os.close(begun), signal.pause()))
    pid = forked(lambda begun: hold(tmp_path, begun, known=True))
    while standbyprocess._began(pid) == standbyprocess._began(innocent):      # within one tick of the kernel's clock
        os.kill(innocent, signal.SIGKILL)
        os.waitpid(innocent, 0)
        innocent = forked(lambda begun: (os.close(begun), signal.pause()))
    try:
        place = standbyprocess.number_of(tmp_path, standbyprocess.FOLLOWING)
        own = privatefiles.read(place).decode()
        privatefiles.write(place, own.replace(str(pid), str(innocent), 1))
        assert not standbyprocess.send(tmp_path, signal.SIGKILL)
        assert os.waitpid(innocent, os.WNOHANG) == (0, 0)
        privatefiles.write(place, own)
        assert standbyprocess.send(tmp_path, signal.SIGKILL) == pid
    finally:
        for each in (innocent, pid):
            os.kill(each, signal.SIGKILL)
            os.waitpid(each, 0)


def test_who_only_looks_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`standby status`, `doctor` and the agent of a cluster look whether a process follows, or serves: one that begins
    at that moment begins."""
    looks = list[int]()
    (tmp_path / "run").mkdir()

    def look(path: Path) -> None:
        path.touch()
        looks.append(os.open(path, os.O_RDONLY))
        fcntl.flock(looks[-1], fcntl.LOCK_SH)

    monkeypatch.setattr(heldlocks.time, "sleep", lambda seconds: os.close(looks.pop()))
    look(tmp_path / "run/server.pid")
    os.close(processes.claim(tmp_path / "run/server.pid"))
    look(standbyprocess.lock_of(tmp_path, standbyprocess.FOLLOWING))
    with standbyprocess.alone(tmp_path):
        assert standbyprocess.process(tmp_path) == os.getpid()
        with pytest.raises(StoreError, match="Another process"), standbyprocess.alone(tmp_path):
            pass


def forked(work: Callable[[int], None]) -> int:
    """A process that does that, once it has closed the descriptor that it gets."""
    waited, begun = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            work(begun)
        finally:
            os._exit(0)
    os.close(begun)
    os.read(waited, 1)
    os.close(waited)
    return pid


def hold(root: Path, begun: int, *, known: bool) -> None:
    with standbyprocess.alone(root):
        if not known:
            standbyprocess.number_of(root, standbyprocess.FOLLOWING).unlink()
        os.close(begun)
        signal.pause()
