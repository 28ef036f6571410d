"""A sync that failed is not tried again and then believed (fsync(2)): nobody gets an answer after it, all start anew.

What was met before a sync began (no descriptor is left) is another matter: then it can be tried again.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from berkeleydb import db

from mboxlist.engine import disk, kv, logfiles
from mboxlist.engine.disk import SyncFailed
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Unflushed, transact
from tests.support.faults.planted import Call, Faults

FAILED = SyncFailed(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def broken() -> list[bool]:
    return []


@pytest.fixture
def env(tmp_path: Path, broken: list[bool]) -> Iterator[Env]:
    env = Env(tmp_path, cache=1 << 20, locks=2000, recover=True, broken=lambda: broken.append(True))
    env.table("one.db", page=4096)
    env.opened()
    put(env, b"first")
    env.flush()
    broken.clear()
    yield env
    env.close()


def raising(error: OSError) -> Call:
    def work(*_: object) -> None:
        raise error

    return work


def put(env: Env, key: bytes) -> None:
    transact(env, lambda txn: env.tables[0].put(key, b"value", txn))


def is_refused(env: Env) -> bool:
    put(env, b"later")
    with pytest.raises(Unflushed):
        env.flush()
    return True


def test_a_name_of_the_log_that_may_not_be_on_disk(env: Env, broken: list[bool], faults: Faults) -> None:
    env.log._named = 0
    faults.first(logfiles, "sync_folder", raising(FAILED))
    assert is_refused(env) and broken
    assert is_refused(env) and env.log.unsynced() is None


def test_without_a_descriptor_it_is_tried_again(env: Env, broken: list[bool], faults: Faults) -> None:
    env.log._named = 0
    faults.first(logfiles, "sync_folder", raising(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
    assert is_refused(env) and not broken
    env.flush()


def test_after_a_checkpoint(env: Env, broken: list[bool], faults: Faults) -> None:
    faults.first(kv, "sync_folder", raising(FAILED))
    with pytest.raises(SyncFailed):
        env.checkpoint()
    assert broken and is_refused(env)


def test_a_table_that_is_full_of_pages_that_may_not_be_on_disk(env: Env, broken: list[bool]) -> None:
    """Berkeley DB counts the pages as written, and would sync the file alone the next time."""
    class Failing:
        def txn_checkpoint(self, *_: int) -> None:
            raise db.DBNoSpaceError(errno.ENOSPC, "No space left on device -- BDB0151 fsync: No space left on device")

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    real, env._env = env._env, Failing()
    with pytest.raises(db.DBError):
        env.checkpoint()
    env._env = real
    assert broken and is_refused(env)


def test_the_name_of_a_log_file_that_was_made_beforehand(env: Env, broken: list[bool], faults: Faults) -> None:
    faults.around(logfiles.LogAhead, "begin", lambda _, ahead: ahead.make_next())
    faults.first(logfiles, "sync", raising(FAILED))
    env.write_log_ahead(alone=True)
    assert broken and is_refused(env)


def test_an_environment_that_needs_recovery_is_left_whoever_asks(env: Env, broken: list[bool]) -> None:
    real = env.log.statistics

    def needs_recovery() -> dict[str, int]:
        raise db.DBRunRecoveryError(-30973, "BDB0087 DB_RUNRECOVERY: Fatal error, run database recovery")

    env.log.statistics = needs_recovery
    for ask in (env.log.end, env.log.unsynced):
        broken.clear()
        with pytest.raises(db.DBRunRecoveryError):
            ask()
        assert broken
    env.log.statistics = real


def test_what_comes_before_a_sync_is_no_failed_sync(tmp_path: Path, faults: Faults) -> None:
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(tmp_path / "missing")
    faults.fail(os, "fsync", OSError(errno.EIO, "no"))
    with pytest.raises(SyncFailed):
        disk.sync_folder(tmp_path)
