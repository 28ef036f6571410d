"""Tables that are made outside of every environment: what is given is what is there, or nothing is."""

import errno
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from berkeleydb import db

from mboxlist.engine import btree, bulk, damagemarks, kv
from mboxlist.engine.bulk import Load
from mboxlist.engine.kv import Env
from mboxlist.engine.pages import bad_pages
from mboxlist.engine.transact import transact
from tests.support.faults.volume import Volume

pytestmark = pytest.mark.long

ROWS = {b"%06d" % number: b"%d" % number * (number % 400) for number in range(4000)}


def rows_of(stream):
    """Rows that are written as lines."""
    for line in stream:
        key, _, value = line.rstrip(b"\n").partition(b" ")
        yield key, value


def give(load, rows=ROWS):
    for key, value in rows.items():
        load.write(key, b" ", memoryview(value), b"\n")


def opened(folder):
    env = Env(folder, cache=1 << 20, locks=2000, recover=True, broken=lambda: None)
    return env, env.table("a.db", page=4096, glances=True), env.table("b.db")


def as_after_a_kill(env, copy):
    shutil.copytree(env.folder, copy)
    for region in copy.glob("__db.*"):
        region.unlink()
    return copy


def test_a_table_that_is_taken_in_is_like_any_other(tmp_path, monkeypatch):
    """It survives a kill at once, and so does what is done to it then; recovery brings back nothing from before."""
    monkeypatch.setattr(kv, "LOG_FILE", 256 << 10)
    monkeypatch.setattr(kv, "LOG_BUFFER", 32 << 10)
    (tmp_path / "env").mkdir()
    env, a, b = opened(tmp_path / "env")
    transact(env, lambda txn: a.put(b"before", b"x", txn))
    with Load.begin(env.folder / "a.db", rows_of) as load:
        give(load)
        assert load.end() == len(ROWS)
        env.exchange(a, load.file)
    assert dict(a.scan()) == ROWS and a.glance(b"003999") == ROWS[b"003999"]
    assert int.from_bytes((env.folder / "a.db").read_bytes()[20:24], "little") == 4096
    env.flush()
    first = as_after_a_kill(env, tmp_path / "first")
    transact(env, lambda txn: (a.put(b"000007", b"new", txn), a.delete(b"000008", txn), b.put(b"1", b"2", txn)))
    env.flush()
    second = as_after_a_kill(env, tmp_path / "second")
    env.close()
    assert bad_pages(tmp_path / "env/a.db") == ""
    changed = {**ROWS, b"000007": b"new"}
    del changed[b"000008"]
    for folder, wanted in ((first, ROWS), (second, changed), (tmp_path / "env", changed)):
        env, a, b = opened(folder)
        assert dict(a.scan()) == wanted and dict(b.scan()) == ({} if wanted is ROWS else {b"1": b"2"})
        env.close()


def test_the_log_alone_does_not_count_as_all_there_was(tmp_path):
    """Where the names of the tables are lost as well, nothing else would tell."""
    from mboxlist.engine.damage import mend
    (tmp_path / "env").mkdir()
    env, a, _ = opened(tmp_path / "env")
    with Load.begin(env.folder / "a.db", rows_of) as load:
        give(load)
        load.end()
        env.exchange(a, load.file)
    env.opened()
    env.close()
    aside = tmp_path / "aside"
    (tmp_path / "env").rename(aside)
    (tmp_path / "env").mkdir()
    (aside / damagemarks.TABLES).unlink()
    (tmp_path / "env/b.db.loading").touch()
    assert "from the beginning" not in mend(tmp_path / "env", aside).source
    assert dict(btree.salvage(tmp_path / "env/a.db")) == ROWS
    assert not (tmp_path / "env/b.db.loading").exists()         # which an earlier start had left


def test_what_is_not_ended_leaves_nothing(tmp_path):
    (tmp_path / "env").mkdir()
    env, a, _ = opened(tmp_path / "env")
    with pytest.raises(KeyError), Load.begin(env.folder / "a.db", rows_of) as load:
        give(load)
        process = load._pid
        raise KeyError
    assert not load.file.exists() and not Path(f"/proc/{process}").exists() and dict(a.scan()) == {}
    env.close()


def test_who_makes_it_dies(tmp_path):
    (tmp_path / "env").mkdir()
    env, _, _ = opened(tmp_path / "env")
    with Load.begin(env.folder / "a.db", rows_of) as load:
        os.kill(load._pid, signal.SIGKILL)
        with pytest.raises(OSError) as found:       # noqa: PT012  # where it is noticed depends on the pipe
            for _ in range(100):
                give(load)
            load.end()
    assert found.value.errno in (errno.EPIPE, errno.EIO) and not load.file.exists()
    env.close()


def test_no_room(tmp_path):
    with Volume(tmp_path / "volume", 64 << 20) as volume:
        (volume.folder / "env").mkdir()
        env, a, _ = opened(volume.folder / "env")
        volume.fill(256 << 10)
        with Load.begin(env.folder / "a.db", rows_of) as load, pytest.raises(OSError) as found:     # noqa: PT012
            give(load)
            load.end()
        assert found.value.errno == errno.ENOSPC and not load.file.exists()
        volume.release()
        with Load.begin(env.folder / "a.db", rows_of) as load:
            give(load)
            load.end()
            env.exchange(a, load.file)
        assert dict(a.scan()) == ROWS
        env.close()


@pytest.mark.parametrize(("free", "code"), [(bulk.LEAST - 1, errno.ENOSPC), (bulk.LEAST, errno.EIO)])
def test_what_fails_where_there_is_hardly_any_room_fails_for_want_of_it(tmp_path, faults, free, code):
    """Berkeley DB that cannot write a page to have another in memory says that it is memory what it lacks."""
    (tmp_path / "env").mkdir()
    env, _, _ = opened(tmp_path / "env")

    def rows(stream):
        raise db.DBNoMemoryError(errno.ENOMEM, "unable to allocate space from the buffer cache")
        yield

    faults.around(os, "statvfs", lambda *_: SimpleNamespace(f_bavail=free, f_frsize=1))
    with Load.begin(env.folder / "a.db", rows) as load, pytest.raises(OSError, match="buffer cache") as found:
        load.end()
    assert found.value.errno == code and not load.file.exists()
    env.close()


def test_it_ends_with_the_process_that_began_it(tmp_path):
    """Or it would write beside the next start, which begins anew."""
    (tmp_path / "env").mkdir()
    env, _, _ = opened(tmp_path / "env")
    env.close()
    program = ("import signal, sys; from pathlib import Path; from mboxlist.engine.bulk import Load\n"
               "load = Load.begin(Path(sys.argv[1]), lambda stream: iter(signal.pause, None))\n"
               "print(load._pid, flush=True); sys.stdin.read()")
    root = Path(kv.__file__).parents[2]
    with subprocess.Popen([sys.executable, "-P", "-c", program, tmp_path / "env/a.db"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}) as parent:
        assert parent.stdout is not None
        process = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    try:
        assert select.select([process], [], [], 180)[0]
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        os.close(process)
