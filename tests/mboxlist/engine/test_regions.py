"""Shared memory that the last process keeps, and the next one joins: only when nothing can be wrong with it."""

import os
import shutil

import pytest
from berkeleydb import db

from mboxlist.engine import regions
from mboxlist.engine.damagemarks import mark_clean
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact


def opened(folder, cache=1 << 20):
    folder.mkdir(exist_ok=True)
    return Env(folder, cache=cache, locks=1000, recover=True, broken=lambda: None)


def put(env, key, value):
    table = env.table("t.db")
    transact(env, lambda txn: table.put(key, value, txn))
    env.opened()


def left_clean(env):
    env.checkpoint()
    env.close(clean=True)
    mark_clean(env.folder)


def memory(folder):
    return sorted((path.name, path.stat().st_ino, path.stat().st_ctime_ns) for path in folder.glob("__db.*"))


@pytest.fixture
def left(tmp_path):
    """An environment after a clean end, with one row."""
    env = opened(tmp_path / "env")
    put(env, b"a", b"one")
    left_clean(env)
    return tmp_path / "env"


def is_made_anew(folder, **form):
    before = {path.name: path.open("rb") for path in folder.glob("__db.*")}     # or a number is given out again
    env = opened(folder, **form)
    try:
        now = {path.name: path.stat().st_ino for path in folder.glob("__db.*")}
        rows = dict(env.table("t.db").scan())
        assert rows[b"a"] == b"one"
        env.opened()
        return all(now[name] != os.fstat(file.fileno()).st_ino for name, file in before.items())
    finally:
        left_clean(env)
        for file in before.values():
            file.close()


def test_it_is_joined_after_a_clean_end_any_number_of_times(left):
    for number in range(5):
        before = memory(left)
        env = opened(left)
        assert [row[:2] for row in memory(left)] == [row[:2] for row in before]
        put(env, b"%d" % number, b"x" * 5000)
        left_clean(env)
    assert not is_made_anew(left)


def test_what_is_written_in_memory_that_was_kept_survives_a_kill(left, tmp_path):
    env = opened(left)
    put(env, b"b", b"two")
    env.flush()
    shutil.copytree(left, tmp_path / "killed")
    env.close()
    again = opened(tmp_path / "killed")
    assert dict(again.table("t.db").scan()) == {b"a": b"one", b"b": b"two"}
    again.close()


def test_it_is_made_anew_after_an_unclean_end(left):
    opened(left).close()
    assert is_made_anew(left)


def test_it_is_made_anew_when_the_system_has_started_anew(left, tmp_path, monkeypatch):
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(regions, "BOOT", tmp_path / "boot")
    assert is_made_anew(left)
    assert not is_made_anew(left)


def test_it_is_made_anew_for_who_wants_another(left):
    assert is_made_anew(left, cache=2 << 20)
    assert not is_made_anew(left, cache=2 << 20)


def test_who_joined_with_another_form_does_not_change_what_it_is(left):
    first = opened(left)
    other = Env(left, cache=4 << 20, locks=2000, recover=False, broken=lambda: None)
    first.opened()
    first.close()
    left_clean(other)
    assert is_made_anew(left, cache=4 << 20)


@pytest.mark.parametrize("harm", ["table", "note", "no note", "file", "no file"])
def test_it_is_made_anew_when_anything_is_not_as_it_was(left, harm):
    if harm == "table":
        (left / "t.db").touch()
    elif harm == "note":
        (left / "memory").write_bytes((left / "memory").read_bytes()[:-3])
    elif harm == "no note":
        (left / "memory").unlink()
    elif harm == "file":
        shutil.copy(left / "__db.002", left / "copy")
        (left / "copy").replace(left / "__db.002")
    else:
        (left / "__db.003").unlink()
    env = opened(left)
    assert dict(env.table("t.db").scan()) == {b"a": b"one"}
    assert len(list(left.glob("__db.*"))) == 3
    left_clean(env)
    assert not is_made_anew(left)


def test_what_cannot_be_joined_is_made_anew(left):
    region = left / "__db.001"
    status = region.stat()
    with region.open("r+b") as file:
        file.write(bytes(4096))
    os.utime(region, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert regions.is_kept(left, (left / "memory").read_text().partition("\n")[0])
    env = opened(left)
    assert dict(env.table("t.db").scan()) == {b"a": b"one"}
    left_clean(env)
    assert not is_made_anew(left)


def test_it_is_made_anew_when_something_in_it_is_still_held(left):
    """As a fault of ours could leave it: nobody would ever give that back."""
    env = opened(left)
    put(env, b"b", b"two")
    env._env.lock_get(env._env.lock_id(), b"page", db.DB_LOCK_WRITE)
    left_clean(env)
    assert is_made_anew(left)
    assert not is_made_anew(left)
