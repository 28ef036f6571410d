"""Operations that hold the same are done one after the other, whoever does them: somebody who types a command, or the
server, which finishes one that was cut off. Both orders, and nobody waits for who was killed."""

import os
import signal
import threading

import pytest

from store.errors import Problem, StoreError
from store.operations import operationrecord
from store.operations.operationrecord import EVERYTHING, Operation, begun, cut_off, under_way


def operation(kind, *holds):
    return Operation("id", kind, {}, 0.0, "who", 1, holds=list(holds))


@pytest.mark.parametrize(("one", "other", "rivals"), [
    (("import mbox", "carol"), ("import maildir", "carol"), True),
    (("import mbox", "carol", "alice"), ("import mbox", "bob", "alice"), True),
    (("import mbox", "carol"), ("import mbox", "alice"), False),
    (("import mbox", "carol"), ("restore", "carol"), False),
    (("restore", EVERYTHING), ("restore", "carol"), True),
    (("restore", EVERYTHING), ("restore", EVERYTHING), True),
    (("quota set",), ("quota set",), False),
    (("snapshot create",), ("snapshot restore", EVERYTHING), False)])
def test_rivals(one, other, rivals):
    assert operation(*one).is_rival_of(operation(*other)) is operation(*other).is_rival_of(operation(*one)) is rivals


class Another:
    """A process that has an operation under way until it is told to end."""

    def __init__(self, root, kind, *holds):
        self._begun, begun_there = os.pipe()
        end_there, self._end = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(self._end)
                with begun(root, kind, "another", {}, holds=holds):
                    os.write(begun_there, b".")
                    os.read(end_there, 1)
            finally:
                os._exit(0)
        os.close(begun_there)
        os.close(end_there)

    def has_begun(self):
        assert os.read(self._begun, 1) == b"."
        return self

    def end(self):
        os.close(self._end)
        os.waitpid(self.pid, 0)
        os.close(self._begun)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.end()


@pytest.fixture
def said(faults):
    """Whose end is waited for; each is let go on when that has been said."""
    found, more = [], threading.Condition()

    def say(_, rival):
        with more:
            found.append(rival)
            more.notify_all()

    def wait():
        with more:
            assert more.wait_for(lambda: found, 180)
        return found

    faults.around(operationrecord, "_say_whose_end", say)
    return wait


class Here:
    """An operation in a thread of this process."""

    def __init__(self, root, kind, *holds):
        self.begun = False
        self._thread = threading.Thread(target=self._do, args=(root, kind, holds))
        self._thread.start()

    def _do(self, root, kind, holds):
        with begun(root, kind, "onecopy", {}, holds=holds):
            self.begun = True

    def join(self):
        self._thread.join(180)
        return self.begun


@pytest.mark.parametrize("how", ["end", "kill"])
def test_who_types_waits_for_the_end(tmp_path, said, how):
    """Of the other, in whatever way it ends."""
    other = Another(tmp_path, "import maildir", "carol").has_begun()
    here = Here(tmp_path, "import mbox", "alice", "carol")
    assert [(one.kind, one.pid) for one in said()] == [("import maildir", other.pid)] and not here.begun
    assert [one.pid for one in under_way(tmp_path)[0]] == [other.pid]
    getattr(other, how)()
    assert here.join()
    assert [one.kind for one in under_way(tmp_path)[1]] == ["import maildir"] * (how == "kill")


def test_others_wait_for_nobody(tmp_path):
    other = Another(tmp_path, "import mbox", "carol").has_begun()
    assert Here(tmp_path, "import mbox", "bob").join() and Here(tmp_path, "restore", "carol").join()
    other.end()


def leave_one(root, kind, *holds):
    with pytest.raises(OSError), begun(root, kind, "onecopy", {}, holds=holds):
        raise OSError


def test_the_server_finishes_none_whose_rival_is_under_way(tmp_path):
    """And it is as free as before for who types it then."""
    leave_one(tmp_path, "import mbox", "carol")
    leave_one(tmp_path, "import mbox", "bob")
    other = Another(tmp_path, "import maildir", "carol").has_begun()
    with cut_off(tmp_path) as found:
        assert [one.operation.holds for one in found] == [["bob"]]
    other.end()
    with cut_off(tmp_path) as found:
        assert [one.operation.holds for one in found] == [["carol"], ["bob"]]


def test_who_types_waits_for_the_server(tmp_path, said):
    """While it finishes something itself, and while a process does that which it has begun for that."""
    leave_one(tmp_path, "import mbox", "carol")
    with cut_off(tmp_path) as found:
        here = Here(tmp_path, "import maildir", "carol")
        assert [one.again for one in said()] == [False] and not here.begun
        end_there, end = os.pipe()
        locks = found[0].done_again()
        child = os.fork()
        if not child:
            os.close(end)
            os.read(end_there, 1)
            os._exit(0)
    assert locks and not here.begun
    assert [(one.kind, one.again) for one in under_way(tmp_path)[0]] == [("import mbox", True)]
    with cut_off(tmp_path) as found:
        assert found == []
    os.close(end_there)
    os.close(end)
    os.waitpid(child, 0)
    assert here.join()
    with cut_off(tmp_path) as found:
        assert [one.operation.kind for one in found] == ["import mbox"]
        found[0].end("finished: done again, with status 0")
    assert under_way(tmp_path) == ([], [])


def test_one_that_is_written_anew_meanwhile_counts(tmp_path, said, faults):
    """The server says something about it just when somebody looks for a rival."""
    leave_one(tmp_path, "import mbox", "carol")
    with cut_off(tmp_path) as found:
        faults.first(operationrecord, "_try_to_lock", lambda *_: found[0].done_again())
        here = Here(tmp_path, "import maildir", "carol")
        assert [one.kind for one in said()] == ["import mbox"] and not here.begun
    assert here.join()


def test_who_was_refused_in_part(tmp_path):
    """One that goes on after a part was refused for now is left, too: the server does that part."""
    for refusal, stops, waits, left, said in [
            (StoreError(Problem.DISK_FULL), False, False, ["user remove"], "the server does what is left"),
            (StoreError(Problem.DISK_FULL), True, True, ["user remove"], "the server does what is left"),
            (StoreError(Problem.DISK_FULL), True, False, [], "run the command again"),
            (StoreError(Problem.UNAVAILABLE), True, True, [], "run the command again"),
            (StoreError(Problem.NO_USER), False, False, [], "")]:
        with begun(tmp_path, "user remove", "onecopy", {"users": ["alice", "bob"]}, stops=stops, waits=waits) as this:
            told = this.refused(refusal)
        assert said in told and bool(said) == bool(told)
        with cut_off(tmp_path) as found:
            assert [one.operation.kind for one in found] == left
            for one in found:
                one.end("finished")
