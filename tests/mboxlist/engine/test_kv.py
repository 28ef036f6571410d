"""The boundary around Berkeley DB: what is flushed survives, what needs recovery is said."""

import errno
import gc
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
from itertools import islice

import pytest
from berkeleydb import db

from mboxlist.engine import kv, regions
from mboxlist.engine.btree import Table
from mboxlist.engine.damage import look_through
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Deadlock, Failure, transact
from tests.support import ROOT
from tests.support.faults.volume import Volume


def opened(folder, broken=lambda: None):
    folder.mkdir(exist_ok=True)
    return Env(folder, cache=1 << 20, locks=1000, recover=True, broken=broken)


def test_what_is_committed_survives_its_process_and_what_is_not_does_not(tmp_path):
    env = opened(tmp_path / "one")
    table = env.table("t.db")
    transact(env, lambda txn: table.put(b"a", b"flushed", txn))
    env.flush()
    transact(env, lambda txn: table.put(b"b", b"committed", txn))
    under_way = env.begin()
    table.put(b"c", b"in memory", under_way)
    shutil.copytree(tmp_path / "one", tmp_path / "two")         # as a killed process leaves it
    under_way.abort()
    env.close()
    env = opened(tmp_path / "two")
    assert dict(env.table("t.db").scan()) == {b"a": b"flushed", b"b": b"committed"}
    env.close()


def test_a_commit_leaves_nothing_but_a_sync_of_the_newest_file(tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db")
    assert env.log.unsynced() is None                               # the file's name may not be on disk: a whole flush
    env.flush()
    transact(env, lambda txn: table.put(b"a", b"to be found in the log", txn))
    found = env.log.unsynced()
    assert os.readlink(f"/proc/self/fd/{found[0]}") == str(tmp_path / "env" / "log.0000000001")
    assert b"to be found in the log" in (tmp_path / "env" / "log.0000000001").read_bytes()
    env.log.synced(found)
    while env.log_end()[0] == 1:                                # the next file has a name of its own
        transact(env, lambda txn: table.put(b"a", os.urandom(100_000), txn))
    assert env.log.unsynced() is None
    env.flush()
    assert os.readlink(f"/proc/self/fd/{env.log.unsynced()[0]}") == str(tmp_path / "env" / "log.0000000002")
    env.close()


def test_where_the_log_ends_is_told_without_a_descriptor(tmp_path):
    """Whoever asks whether the list has changed asks for that: it opens nothing, and harms no environment."""
    env, broken = opened(tmp_path / "env"), []
    table, env.broken = env.table("t.db"), lambda: broken.append(None)
    transact(env, lambda txn: table.put(b"a", b"1", txn))
    env.flush()
    limits, held, ends = resource.getrlimit(resource.RLIMIT_NOFILE), [], []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with pytest.raises(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(2):
            ends.append(env.log.end())
            transact(env, lambda txn: table.put(b"a", b"2", txn))
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert ends[0] < ends[1] < env.log.end() and table.get(b"a") == b"2" and broken == []
    env.close()


def test_what_is_in_memory_only_is_not_said_to_be_in_the_log(tmp_path):
    """A killed process leaves there what others had not committed, and of a write that it was at only a part: that is
    no damage, as long as nobody has said that it was on disk."""
    env = opened(tmp_path / "env")
    table = env.table("t.db")
    env.flush()
    env.flush()
    for number in range(5):
        transact(env, lambda txn, number=number: table.put(b"%d" % number, b"committed", txn))
        committed = env.log_end()[1]
        under_way = env.begin()
        table.put(b"x%d" % number, b"in memory" * 50, under_way)
        env.log.synced(env.log.unsynced())
        under_way.commit()
        killed = tmp_path / f"killed{number}"
        shutil.copytree(tmp_path / "env", killed)
        with (killed / "log.0000000001").open("r+b") as log:
            log.seek(committed + 100)
            log.write(bytes(env.log_end()[1] - committed - 100))
        again = opened(killed)                                  # raises LogCut if something is said to be missing
        assert b"%d" % number in dict(again.table("t.db").scan())
        again.close()
    env.close()


def test_a_sync_that_failed_breaks_the_environment(tmp_path):
    seen = []
    env = opened(tmp_path / "env", lambda: seen.append("broken"))
    env.flush()
    env.flush()
    found = env.log.unsynced()
    with pytest.raises(OSError, match="lost"):
        env.log.synced(found, OSError(errno.EIO, "lost"))
    assert seen == ["broken"] and env.log.unsynced() is None
    with pytest.raises(OSError, match="has failed"):
        env.flush()


def test_many_values_are_those_that_are_got_one_by_one(tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db", page=512)                         # of several pages
    drawn = random.Random(7)
    transact(env, lambda txn: [table.put(b"%05d" % (3 * number), b"%d" % number * 9, txn) for number in range(300)])
    for most in (1, 5, 60, 900):
        for _ in range(20):
            first = drawn.randrange(950)
            keys = sorted(b"%05d" % drawn.randrange(first, first + most) for _ in range(min(most, 80)))
            assert table.pick(keys) == [table.get(key) for key in keys]
    assert table.pick([]) == [] and table.pick([b""]) == [None] and table.pick([b"9", b"99"]) == [None, None]

    def work(txn):
        table.put(b"00001", b"new", txn)
        return table.pick([b"00000", b"00001", b"00001", b"00002", b"00003"], txn)

    assert transact(env, work) == [b"0" * 9, b"new", b"new", None, b"1" * 9]
    env.close()


def test_rows_are_read_one_after_the_other_from_any_key(tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db", page=512)
    transact(env, lambda txn: [table.put(b"%05d" % (3 * number), b"%d" % number * 9, txn) for number in range(300)])
    with table.reading() as rows:
        for first in (b"00000", b"00100", b"00897"):
            assert list(islice(rows(first), 40)) == list(islice(table.scan(first), 40))
        assert list(rows(b"00898")) == []
    transact(env, lambda txn: table.put(b"00897", b"new", txn))         # no row has stayed locked
    env.close()


def test_what_is_picked_to_be_changed_stays_as_it_is(tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db", page=512)
    transact(env, lambda txn: [table.put(b"%05d" % number, b"%d" % number, txn) for number in range(300)])
    keys = [b"00001", b"00100", b"00100", b"00200", b"9"]
    txn = env.begin()
    assert table.pick_to_change(keys, txn) == [b"1", b"100", b"100", b"200", None]
    other = env.begin(wait=False)
    with pytest.raises(Deadlock):                               # also to who only reads
        table.get(b"00100", other)
    other.abort()
    txn.commit()
    assert table.get(b"00100") == b"100"
    txn = env.begin()
    assert table.pick(keys, txn) == [b"1", b"100", b"100", b"200", None]
    other = env.begin(wait=False)
    table.put(b"00100", b"new", other)                          # while it keeps nothing that was only read
    other.commit()
    txn.commit()
    env.close()


@pytest.mark.parametrize("going", ["acd", "bz", "e", "", "fghij", "a0z", "z"])
def test_of_rows_that_go_nothing_else_goes(tmp_path, going):
    """Others lie between them, and some are not there any more."""
    env = opened(tmp_path / "env")
    table = env.table("t.db")
    transact(env, lambda txn: [table.put(key.encode(), key.encode() * 2000, txn) for key in "abcdefghij"])
    transact(env, lambda txn: table.delete_each([key.encode() for key in sorted(going)], txn))
    assert "".join(key.decode() for key, _ in table.scan()) == "".join(key for key in "abcdefghij" if key not in going)
    env.close()


def test_rows_are_revised(tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db", page=512)
    transact(env, lambda txn: [table.put(b"%05d" % number, b"%d" % number, txn) for number in range(300)])
    right = dict(table.scan())
    seen = []

    def new(key, value):
        seen.append((key, value))
        return None if key == b"00100" else value if key == b"00200" else (value or b"") + b" and more"

    keys = [b"00001", b"00100", b"00100", b"00150", b"00200", b"9"]
    transact(env, lambda txn: table.revise(iter(keys), new, txn))
    assert seen == [(b"00001", b"1"), (b"00100", b"100"), (b"00100", None), (b"00150", b"150"), (b"00200", b"200"),
                    (b"9", None)]
    del right[b"00100"]
    assert dict(table.scan()) == {**right, b"00001": b"1 and more", b"00150": b"150 and more"}
    txn = env.begin()
    table.revise([b"00200"], lambda key, value: value, txn)
    other = env.begin(wait=False)
    with pytest.raises(Deadlock):
        table.get(b"00200", other)
    other.abort()
    txn.abort()
    env.close()


def test_scans_are_in_order_and_end_where_told(tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db")
    transact(env, lambda txn: [table.put(key, b"", txn) for key in (b"b", b"a", b"c", b"bb")])
    assert [key for key, _ in table.scan()] == [b"a", b"b", b"bb", b"c"]
    assert [key for key, _ in table.scan(b"aa", b"c")] == [b"b", b"bb"]
    assert [key for key, _ in table.scan(b"d")] == []
    env.close()


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_pieces_are_all_rows_in_order(most, tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db")
    assert list(table.pieces(most)) == []
    rows = [(b"a", b"1"), (b"b", b"2"), (b"bb", b"3"), (b"c", b"4")]
    transact(env, lambda txn: [table.put(key, value, txn) for key, value in reversed(rows)])
    for pieces in (list(table.pieces(most)), transact(env, lambda txn: list(table.pieces(most, txn)))):
        assert [row for keys, values in pieces for row in zip(keys, values, strict=True)] == rows
        assert {len(keys) for keys, _ in pieces[:-1]} <= {most} and 0 < len(pieces[-1][0]) <= most
    env.close()


def test_the_work_of_a_transaction_runs_again_after_a_deadlock(tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db")
    runs = []

    def work(txn):
        runs.append(1)
        table.put(b"a", b"%d" % len(runs), txn)
        if len(runs) < 3:
            raise db.DBLockDeadlockError(-30993, "as Berkeley DB does")
        return "done"

    assert transact(env, work) == "done"
    assert table.get(b"a") == b"3"
    env.close()


def test_a_transaction_that_may_not_wait_gives_up_and_a_glance_sees_what_is_not_committed(tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db", glances=True)
    transact(env, lambda txn: table.put(b"a", b"old", txn))
    other, tries = env.begin(), []

    def work(txn):
        tries.append(1)
        return table.get_to_change(b"a", txn)

    table.put(b"a", b"new", other)
    with pytest.raises(Deadlock):
        transact(env, work, seconds=0)
    assert len(tries) == 2
    assert table.glance(b"a") == b"new"
    other.abort()
    assert table.glance(b"a") == b"old" and table.glance(b"b") is None
    assert transact(env, work, seconds=0) == b"old"
    env.close()


def test_a_broken_environment_is_told(tmp_path):
    told = []
    env = opened(tmp_path / "env", lambda: told.append(1))
    table = env.table("t.db")
    env._env.set_flags(db.DB_PANIC_ENVIRONMENT, 1)
    with pytest.raises(Failure):
        transact(env, lambda txn: table.put(b"a", b"", txn))
    assert told


def test_a_transaction_in_which_it_breaks_has_an_end(tmp_path, recwarn):
    """Else Berkeley DB's module says so, at a time when the garbage of some later test is collected."""
    env = opened(tmp_path / "env", lambda: None)
    table = env.table("t.db")

    def work(txn):
        env._env.set_flags(db.DB_PANIC_ENVIRONMENT, 1)
        table.put(b"a", b"", txn)

    with pytest.raises(db.DBRunRecoveryError) as met:
        transact(env, work)
    del met
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


def test_a_wait_for_a_lock_ends_with_its_time(tmp_path, monkeypatch):
    """Berkeley DB looks at the time only when it looks for deadlocks: else a wait for a lost lock has no end."""
    monkeypatch.setattr(kv, "LOCK_WAIT", 1000)
    env = opened(tmp_path / "env")
    table = env.table("t.db")
    transact(env, lambda txn: table.put(b"a", b"old", txn))
    holder = env.begin()
    table.put(b"a", b"held", holder)
    ended = []

    def wait():
        txn = env.begin()
        try:
            table.put(b"a", b"new", txn)
        except Deadlock:
            ended.append(1)
        txn.abort()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    while waiter.is_alive():
        env.detect_deadlocks()
        waiter.join(0.01)
    assert ended
    holder.abort()
    env.close()


def test_a_broken_environment_is_told_by_what_housekeeping_calls(tmp_path):
    told = []
    env = opened(tmp_path / "env", lambda: told.append(1))
    env._env.set_flags(db.DB_PANIC_ENVIRONMENT, 1)
    for call in (env.detect_deadlocks, env.checkpoint):
        told.clear()
        with pytest.raises(Failure):
            call()
        assert told


FILL = """
import os, sys
from pathlib import Path
from berkeleydb import db
from mboxlist.engine.kv import Env
folder, locks = Path(sys.argv[1]), int(sys.argv[2])
env = Env(folder, cache=1 << 20, locks=locks, recover=True, broken=lambda: None)
with (folder / "ballast").open("wb", 0) as ballast:
    try:
        while True:
            ballast.write(bytes(4096))
    except OSError:
        pass
who = env._env.lock_id()
for number in range(locks - 100):
    env._env.lock_get(who, b"page %d" % number, db.DB_LOCK_WRITE)
print(env._env.lock_stat()["nlocks"] >= locks - 100, flush=True)
os._exit(0)
"""


def test_the_table_of_locks_is_small_and_has_room_to_grow_on_a_full_disk(tmp_path):
    """Else the process is ended by SIGBUS when it touches a page of it that the disk has no block for. (The file grows,
    or has holes: Debian 13's library makes it as long as it may become.)"""
    with Volume(tmp_path / "volume", 96 << 20) as volume:
        done = subprocess.run([sys.executable, "-P", "-c", FILL, volume.folder, "100000"], capture_output=True,
                              text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_the_table_of_locks_is_not_made_for_all_that_there_may_be(tmp_path):
    (tmp_path / "env").mkdir()
    env = Env(tmp_path / "env", cache=1 << 20, locks=200_000, recover=True, broken=lambda: None)
    assert env._env.lock_stat()["tablesize"] == regions.LOCK_LISTS
    env.close()


def test_a_page_that_is_read_has_no_mutex_of_its_own_list(tmp_path):
    """Else each touches another page of shared memory, which is a fault when that has just been written out."""
    (tmp_path / "env").mkdir()
    env = Env(tmp_path / "env", cache=64 << 20, locks=200_000, recover=True, broken=lambda: None)
    cache = env._env.memp_stat()[0]
    assert cache["hash_mutexes"] == regions.CACHE_MUTEXES < cache["hash_buckets"]
    env.close()


@pytest.mark.long
@pytest.mark.parametrize("left", [b"", b"set_lk_tab", b"\0" * 22, b"set_lk_max_locks 7\n"])
def test_a_configuration_that_is_not_ours_counts_for_nothing(tmp_path, left):
    env = opened(tmp_path / "env")
    path = tmp_path / "env" / "DB_CONFIG"
    ours = path.read_bytes()
    env.close()
    path.write_bytes(left)
    assert look_through(tmp_path / "env") == {}         # nor is anything else taken for damaged
    path.write_bytes(left)
    opened(tmp_path / "env").close()
    assert path.read_bytes() == ours


def test_a_clean_end_leaves_no_more_of_the_log_than_there_is(tmp_path):
    env = opened(tmp_path / "env")
    table = env.table("t.db")
    transact(env, lambda txn: table.put(b"a", b"one", txn))
    env.checkpoint()
    log = tmp_path / "env" / "log.0000000001"
    assert log.stat().st_size > 1 << 20             # it is made as long as it may become
    env.close(clean=True)
    assert log.stat().st_size < 1 << 16
    env = opened(tmp_path / "env")
    assert log.stat().st_size < 1 << 16             # nothing was written behind it
    table = env.table("t.db")
    assert dict(table.scan()) == {b"a": b"one"}
    transact(env, lambda txn: table.put(b"b", b"two", txn))
    env.flush()
    shutil.copytree(tmp_path / "env", tmp_path / "killed")
    env.close()
    env = opened(tmp_path / "killed")
    assert dict(env.table("t.db").scan()) == {b"a": b"one", b"b": b"two"}
    env.close()


def test_a_read_outside_a_transaction_that_meets_a_deadlock_is_done_again():
    """A SELECT beside a COPY of 262,144 messages was answered with a server bug."""
    answers = [db.DBLockDeadlockError("ended"), db.DBLockDeadlockError("ended"), b"value"]

    class Handle:
        def get(self, key, default, txn):
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        put = get

    assert Table(Handle(), lambda: None, "a.db").get(b"key") == b"value"
    answers[:] = [db.DBLockDeadlockError("ended")]
    with pytest.raises(db.DBLockDeadlockError):
        Table(Handle(), lambda: None, "a.db").get(b"key", object())
