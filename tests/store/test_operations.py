"""The record of an operation: on disk while it lasts, gone after it, left by what is cut off or stopped half way."""

import os
import time

import pytest

from store.errors import Problem, StoreError
from store.operations import clockrecord, operationrecord
from store.operations.operationrecord import begun, cut_off, ended, under_way


def kinds(operations):
    return [one.kind for one in operations]


def test_while_it_lasts(tmp_path):
    with begun(tmp_path, "user rename", "onecopy", {"old": "alice", "new": "zoe"}):
        running, cut = under_way(tmp_path)
        assert kinds(running) == ["user rename"] and cut == [] and running[0].pid == os.getpid()
        assert str(running[0]) == "user rename old=alice new=zoe"
        with cut_off(tmp_path) as found:
            assert found == []
        path, = (tmp_path / "operations").iterdir()
        assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert under_way(tmp_path) == ([], []) and ended(tmp_path) == []


@pytest.mark.parametrize(("error", "stops", "left"), [
    (StoreError(Problem.NO_USER), False, False), (StoreError(Problem.DISK_FULL), False, True),
    (OSError(5, "Input/output error"), False, True), (KeyboardInterrupt(), False, True),
    (KeyboardInterrupt(), True, False), (StoreError(Problem.DISK_FULL), True, False), (ValueError(), False, False)])
def test_what_ends_it(tmp_path, error, stops, left):
    """A refusal has changed nothing; what has no room, or cannot be written, is half way."""
    with pytest.raises(type(error)), begun(tmp_path, "quota set", "onecopy", {}, stops=stops):
        raise error
    assert kinds(under_way(tmp_path)[1]) == ["quota set"] * left


def leave_one(root):
    with pytest.raises(OSError), begun(root, "quota set", "onecopy", {"root": "alice"}):
        raise OSError


def test_it_ends(tmp_path):
    leave_one(tmp_path)
    with cut_off(tmp_path) as found:
        found[0].so_far("first half done", "no room")
    with cut_off(tmp_path) as found:
        assert (found[0].operation.outcome, found[0].operation.problem) == ("first half done", "no room")
        with cut_off(tmp_path) as others:               # the lock is that of the file which is there now
            assert others == []
        found[0].so_far(problem="still no room")
        with cut_off(tmp_path) as others:
            assert others == []
        found[0].end("finished")
    assert under_way(tmp_path) == ([], [])
    one, = ended(tmp_path)
    assert (one.outcome, one.problem) == ("finished", "") and one.ended >= one.began


def test_who_finishes_writes_no_record(tmp_path):
    leave_one(tmp_path)
    with cut_off(tmp_path):
        with begun(tmp_path, "quota set", "the keeper", {}):
            assert len(list((tmp_path / "operations").iterdir())) == 1
    with begun(tmp_path, "quota set", "onecopy", {}):
        assert len(list((tmp_path / "operations").iterdir())) == 2


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "operations").mkdir()
    (tmp_path / "operations" / "one").write_bytes(b"{}")
    (tmp_path / "operations" / "two").write_bytes(b"\xff")
    (tmp_path / "operations" / "three.new").write_bytes(b"")
    assert kinds(under_way(tmp_path)[1]) == ["unreadable", "unreadable"]


def test_no_clock_that_is_far_ahead_forgets_what_became_of_one(tmp_path, monkeypatch):
    clockrecord.trust(tmp_path)
    now = time.time()
    for days in (0, 400):
        monkeypatch.setattr(time, "time", lambda days=days: now + days * 86400)
        leave_one(tmp_path)
        with cut_off(tmp_path) as found:
            found[0].end("finished")
    assert len(ended(tmp_path)) == 2
    clockrecord.trust(tmp_path)
    leave_one(tmp_path)
    with cut_off(tmp_path) as found:
        found[0].end("finished")
    assert ended(tmp_path) == []


def test_the_oldest_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(operationrecord, "MOST_KEPT", 2)
    for _ in range(3):
        leave_one(tmp_path)
        with cut_off(tmp_path) as found:
            found[0].end("finished")
    assert len(ended(tmp_path)) == 2
