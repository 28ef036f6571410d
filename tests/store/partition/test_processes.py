"""Who has a store open, who died in it, and who may come in then."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from mboxlist.heldlocks import is_held
from store.check import layout
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.opening import make_empty_store, open_store
from store.partition import processes
from store.partition.processes import ProcessRegistry, claim, look
from tests.support.stores.stores import SMALL, make_store

HOLD = """
from store.opening import open_store
import sys
from pathlib import Path
from store.store import Store
from tests.support.stores.stores import SMALL
store = open_store(Path(sys.argv[1]), SMALL, who=sys.argv[2])
print("open", flush=True)
sys.stdin.read()
store.close()
"""


class Holder:
    """Another process that has the store open."""

    def __init__(self, root, who="onecopy deliver"):
        self.process = subprocess.Popen([sys.executable, "-c", HOLD, str(root), who], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, cwd=os.getcwd())
        assert self.process.stdout.readline() == b"open\n"

    @property
    def pid(self):
        return self.process.pid

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EIO])
def test_of_a_file_that_cannot_be_looked_at_it_is_seen_whether_its_process_is_there(tmp_path, monkeypatch, number):
    """It is root's, and the server is another user; no descriptor is left; the disk fails."""
    def refuse(path):
        raise OSError(number, os.strerror(number), str(path))

    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    (tmp_path / "inside").mkdir()
    for pid in (os.getpid(), gone.pid):
        (tmp_path / "inside" / f"{pid}.0.onecopy doctor").touch()
    monkeypatch.setattr(processes, "is_held", refuse)
    living, dead = look(tmp_path)
    assert ([each.pid for each in living], [each.pid for each in dead]) == ([os.getpid()], [gone.pid])


def test_who_cannot_come_in_keeps_nobody_else_out(tmp_path, faults):
    """The process lives on; another one comes in at once."""
    faults.fail(processes, "look", OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(OSError, match="Input/output error"):
        ProcessRegistry(tmp_path)
    assert not is_held(tmp_path / processes.DOOR)


def shown(others):
    return [str(other) for other in others]


def test_one_server_and_its_pid(tmp_path):
    held = claim(tmp_path / "server.pid")
    with pytest.raises(StoreError) as refused:
        claim(tmp_path / "server.pid")
    assert refused.value.problem is Problem.STORE_IN_USE and f"pid {os.getpid()}," in refused.value.public
    os.close(held)
    os.close(claim(tmp_path / "server.pid"))


def test_the_living_and_the_dead(tmp_path):
    root = tmp_path / "store"
    make_store(root).close()
    assert look(root / "run") == ([], [])
    with Holder(root) as first, Holder(root, "onecopy user add/x\n") as second:
        living, dead = look(root / "run")
        assert set(shown(living)) == {f"onecopy deliver ({first.pid})", f"onecopy user add_x_ ({second.pid})"}
        assert dead == []
        second.kill()
        living, dead = look(root / "run")
        assert shown(living) == [f"onecopy deliver ({first.pid})"]
        assert shown(dead) == [f"onecopy user add_x_ ({second.pid})"]
    assert shown(look(root / "run")[1]) == [f"onecopy user add_x_ ({second.pid})"]      # until somebody recovers
    store = open_store(root, SMALL)
    assert look(root / "run")[1] == []
    assert check(store) == []
    store.close()


def test_who_looks_for_strangers_opens_no_file(tmp_path, faults):
    """The supervisor does so each second: its own processes cost it one name each, and no call of the system."""
    run = tmp_path / "run"
    (run / "inside").mkdir(parents=True)
    ours = ProcessRegistry(run, "onecopy serve, keeper")
    ours.opened()
    other = ProcessRegistry(run, "onecopy deliver")
    other.opened()
    faults.fail(processes.privatefiles, "open_handle", AssertionError("a file was opened"))
    assert processes.strangers(run, {os.getpid()}) is False
    assert processes.strangers(run, {1}) is True
    other.leave()
    ours.leave()
    assert processes.strangers(run, {1}) is False and processes.strangers(tmp_path, {1}) is False


def test_an_unclean_end_is_counted_once(tmp_path):
    root = tmp_path / "store"
    store = make_store(root)
    epoch = store.partitions["primary"].epoch
    store.close()
    with Holder(root) as holder:
        holder.kill()
    for _ in range(2):
        store = open_store(root, SMALL)
        assert store.partitions["primary"].epoch == epoch + 1
        store.close()


def test_the_last_one_out_does_not_call_it_clean_when_one_has_died(tmp_path):
    root = tmp_path / "store"
    store = make_store(root)
    epoch = store.partitions["primary"].epoch
    with Holder(root) as holder:
        holder.kill()
    store.close()
    store = open_store(root, SMALL)
    assert store.partitions["primary"].epoch == epoch + 1
    store.close()


def test_nobody_comes_in_beside_the_dead_until_all_have_left(tmp_path, monkeypatch, faults):
    root = tmp_path / "store"
    make_store(root).close()
    with Holder(root, "onecopy check") as living, Holder(root) as dead:
        dead.kill()
        monkeypatch.setattr(ProcessRegistry.__init__, "__defaults__", ("", 0.0))
        with pytest.raises(StoreError) as refused:
            open_store(root, SMALL)
        assert refused.value.problem is Problem.UNAVAILABLE
        assert f"onecopy deliver ({dead.pid}) died in the store" in refused.value.public
        assert refused.value.public.endswith(f"onecopy check ({living.pid})")
        assert shown(look(root / "run")[0]) == [f"onecopy check ({living.pid})"]        # it left no trace
        monkeypatch.undo()

        def leave():
            living.process.stdin.close()
            living.process.wait()

        faults.around(processes.time, "sleep", lambda _, seconds: leave())          # they leave while it waits
        store = open_store(root, SMALL)
        assert store._processes.alone
        assert check(store) == []
        store.close()


COME_AND_GO = """
import sys
from pathlib import Path
from store.partition.processes import ProcessRegistry
for _ in range(2000):
    presence = ProcessRegistry(Path(sys.argv[1]), "x")
    presence.opened()
    presence.leaving()
    presence.leave()
"""


def test_coming_and_going_is_not_taken_for_death(tmp_path):
    """However often one looks at one who comes and goes."""
    seen = 0
    with subprocess.Popen([sys.executable, "-c", COME_AND_GO, str(tmp_path)], cwd=os.getcwd()) as other:
        while other.poll() is None:
            living, dead = look(tmp_path)
            seen += len(living)
            assert dead == []
    assert other.returncode == 0 and seen


def test_those_who_look_do_not_see_each_other(tmp_path):
    """Two at a time that look at the file of a dead one: neither takes the other's lock for life."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "1.0.dead").touch()
    handle = os.open(inside / "1.0.dead", os.O_RDONLY)
    processes.fcntl.flock(handle, processes.fcntl.LOCK_SH)            # as one who looks holds it for a moment
    assert shown(look(tmp_path)[1]) == ["dead (1)"]
    os.close(handle)


def test_the_dead_are_forgotten_only_when_nobody_is_inside(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "1.0.dead").touch()
    (inside / ".2.0.killed at the door").touch()
    living = ProcessRegistry(tmp_path, "first")
    living.opened()
    assert living.alone and look(tmp_path)[1] == []
    (inside / "1.0.dead").touch()
    processes.forget_dead(tmp_path)
    assert shown(look(tmp_path)[1]) == ["dead (1)"]
    living.leave()
    processes.forget_dead(tmp_path)
    assert look(tmp_path) == ([], [])


@pytest.mark.parametrize("name", ["1", "1.0.left", "notes"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/passwd", path)])
def test_what_is_no_file_is_nobody_and_keeps_nobody_out(tmp_path, make, name):
    """A stranger's, or left over: process 1 is always there, a pipe has who opens it wait, and a folder cannot be
    cleared away as a file is."""
    root = tmp_path / "store"
    make_store(root).close()
    make(root / "run" / "inside" / name)
    assert look(root / "run") == ([], [])
    store = open_store(root, SMALL)
    assert store._processes.alone
    store.close()
    processes.forget_dead(root / "run")
    owner = os.getuid(), os.getgid()
    assert [finding.where for finding in layout.look(root, owner)] == [str(root / "run" / "inside" / name)]


def test_no_store(tmp_path):
    with pytest.raises(StoreError) as refused:
        open_store(tmp_path / "nothing", SMALL)
    assert refused.value.problem is Problem.NO_STORE


def test_a_store_is_not_made_over_another(tmp_path):
    make_store(tmp_path / "store").close()
    with pytest.raises(StoreError) as refused:
        make_empty_store(tmp_path / "store")
    assert refused.value.problem is Problem.STORE_IN_USE
