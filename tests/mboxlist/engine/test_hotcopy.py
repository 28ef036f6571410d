"""Copies of an environment beside processes that write to it; which log files follow a copy."""

import os
import shutil
import signal
import time

import pytest

from mboxlist.engine import hotcopy, kv
from mboxlist.engine.btree import salvage
from mboxlist.engine.hotcopy import Copying, add_logs, fill, log_name
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact

ROUNDS = int(os.environ.get("HOT_COPIES", "2"))


def opened(folder, recover=True):
    env = Env(folder, cache=1 << 20, locks=20_000, recover=recover, broken=lambda: None)
    return env, env.table("a.db", page=32768), env.table("b.db", page=4096)


def write_until_told(folder):
    """Both tables get the same rows, and the number of the last transaction; the log is cut short all the time."""
    env, a, b = opened(folder, recover=False)
    number = 0
    while not (folder / "stop").exists():
        number += 1
        value = os.urandom(number * 7919 % 800 + 100)
        keys = [b"%06d" % (number * prime % 2000) for prime in (104729, 1299709, 15485863)]

        def work(txn, keys=keys, value=value, number=number):
            for table in (a, b):
                for key in keys:
                    table.put(key, value, txn)
                table.put(b"last", b"%d" % number, txn)

        transact(env, work)
        if number % 300 == 0:
            env.checkpoint()
            env.drop_logs(None, 1 << 40)
    env.close()


def copy_of(env, target, moment=lambda: None):
    target.mkdir()
    copying = Copying(env, target)
    list(copying.databases())
    while True:
        time.sleep(hotcopy.PAUSE)
        if copying.copy_again():
            break
    before = moment()
    end = env.log_end()
    after = moment()
    env.flush()
    return copying.log(end), end, before, after


def last(env, table):
    """What the writer has committed last. It may hold the page, and wait for one that this has: then once more."""
    return transact(env, lambda txn: int(table.get(b"last", txn) or 0))


def test_a_copy_beside_a_writer_is_the_environment_at_one_moment(disk_path, monkeypatch):
    monkeypatch.setattr(kv, "LOG_FILE", 1 << 20)        # many log files, and many that go
    (disk_path / "env").mkdir()
    env, a, _ = opened(disk_path / "env")
    child = os.fork()
    if not child:
        try:
            signal.alarm(1200)
            write_until_told(disk_path / "env")
            os._exit(0)
        finally:
            os._exit(1)
    try:
        while last(env, a) < 1000:                      # more than one cache of pages
            os.sched_yield()
        for number in range(ROUNDS):
            env.checkpoint()
            env.logs.keep(env.logs.first_needed())
            target = disk_path / f"copy{number}"
            _, _, before, after = copy_of(env, target, lambda: last(env, a))
            hotcopy.recover(target)
            assert hotcopy.faults(target) == []
            one, two = dict(salvage(target / "a.db")), dict(salvage(target / "b.db"))
            assert one == two
            assert before <= int(one[b"last"]) <= after + 1         # one may have been committing
            shutil.rmtree(target)
    finally:
        (disk_path / "env" / "stop").touch()        # killed, it could leave a lock that the others wait for
        _, status = os.waitpid(child, 0)
    env.close()
    assert status == 0


def test_a_page_that_was_half_written_when_it_was_read_is_read_again(tmp_path):
    (tmp_path / "env").mkdir()
    env, a, _ = opened(tmp_path / "env")
    transact(env, lambda txn: a.put(b"a", b"value", txn))
    env.checkpoint()
    copying = Copying(env, tmp_path / "copy")
    (tmp_path / "copy").mkdir()
    list(copying.databases())
    whole = (tmp_path / "env" / "a.db").read_bytes()
    torn = whole[:32768] + os.urandom(16384) + whole[49152:]
    (tmp_path / "copy" / "a.db").write_bytes(torn)
    assert not copying.copy_again()                         # what is there now is looked at once more
    assert copying.copy_again()
    assert (tmp_path / "copy" / "a.db").read_bytes() == whole
    env.close()


@pytest.fixture
def places(tmp_path):
    """A copy whose log ends in file 3, with later files in two folders."""
    copy, live, archive = (tmp_path / name for name in ("copy", "live", "archive"))
    for folder in (copy, live, archive):
        folder.mkdir()
    (copy / log_name(3)).write_bytes(b"three")
    (archive / log_name(3)).write_bytes(b"three and more")
    (archive / log_name(4)).write_bytes(b"four")
    (live / log_name(5)).write_bytes(b"five")
    (live / log_name(7)).write_bytes(b"seven")
    return tmp_path


def followed(places, most=None):
    target = places / "target"
    target.mkdir()
    fill(places / "copy", [log_name(3)], target)
    found = add_logs(target, (3, 5), [places / "live", places / "archive", places / "none"], most)
    return found, {path.name: path.read_bytes() for path in target.iterdir()}


def test_the_log_goes_on_until_there_is_a_gap(places):
    found, there = followed(places)
    assert (found.last, found.later, found.passed_over) == (5, True, (str(places / "live" / log_name(7)),))
    assert there == {log_name(3): b"three and more", log_name(4): b"four", log_name(5): b"five"}


def test_the_log_of_another_life_is_not_used(places):
    (places / "archive" / log_name(3)).write_bytes(b"other")
    found, there = followed(places)
    assert (found.last, found.later) == (3, False)
    assert there == {log_name(3): b"three"}
    assert str(places / "archive" / log_name(3)) in found.passed_over


def test_no_more_log_than_wanted(places):
    assert followed(places, most=4)[0].last == 4


def test_logs_that_are_kept_stay_until_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(kv, "LOG_FILE", 1 << 20)
    (tmp_path / "env").mkdir()
    env, a, _ = opened(tmp_path / "env")
    env.logs.keep(2)
    for number in range(5000):
        transact(env, lambda txn, number=number: a.put(b"%06d" % number, bytes(900), txn))
    env.checkpoint()
    numbers = [path.name for path in env.logs.unneeded()]
    assert numbers[0] == log_name(1)
    assert len(numbers) > 3
    assert env.drop_logs(most=env.logs.kept_volume()) == 1
    assert env.logs.unneeded()[0].name == log_name(2)
    assert env.drop_logs(most=env.logs.kept_volume() - 1) == len(numbers) - 1
    env.close()
