"""Transactions: how they are run again after a deadlock, and what their end means. See `transact`.

Source for the calls: Berkeley DB 5.3 Programmer's Reference Guide, "Transactional Data Store Applications".
"""

import errno
import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from berkeleydb import db

from mboxlist.engine.btree import Txn

Deadlock = (db.DBLockDeadlockError, db.DBLockNotGrantedError)
Failure = db.DBError

TRIES = 50                  # how often a transaction is run that meets a deadlock
PAUSE = 0.002               # seconds, at most, before it is run again
FIRST_PAUSE = 0.0002        # where time is limited: most locks are held for a shorter time;
LONGEST_PAUSE = 0.05        # then twice as long each time, up to this

T = TypeVar("T")


class Environment(Protocol):
    """The environment of a transaction: see `kv.Env`."""

    def begin(self, *, wait: bool = True, reads: bool = False) -> Txn:
        """A new transaction."""

    def met(self, error: db.DBError) -> None:
        """The transaction met this error."""


class Unflushed(OSError):
    """What has been committed may not be on disk, and nobody can say whether it will be. So a client can be told
    neither that it is done nor that it is not: its session ends without an answer."""


class Commits(threading.local):
    """How many transactions that may have changed something have been committed: by this thread, and in all. After an
    unexpected error these numbers show whether something has been done."""

    total = 0
    here = 0


COMMITS = Commits()


def unless_committed(before: int, error: Exception) -> None:
    """Raises Unflushed if something has been committed since `Commits.total` was `before`. What failed then, or
    something else, has changed something: to say that nothing is done could be untrue."""
    if Commits.total != before:
        raise Unflushed(getattr(error, "errno", None) or errno.EIO, str(error)) from error


def transact(env: Environment, work: Callable[[Txn], T], *, seconds: float | None = None, reads: bool = False) -> T:
    """The result of `work` in a transaction that is committed (not flushed). `work` may run more than once.

    It waits for locks. With `seconds` it does not wait, but tries again until so much time has passed, and at least
    twice. `reads`: it changes nothing, and goes on during a write freeze. Raises one of `Deadlock` when it does not get
    its locks, Quiesced in an event loop.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    pause = PAUSE if deadline is None else FIRST_PAUSE
    for tried in itertools.count(1):
        txn = env.begin(wait=seconds is None, reads=reads)
        try:
            result = work(txn)
        except Deadlock:
            txn.abort()
            if tried == TRIES if deadline is None else tried > 1 and time.monotonic() + pause > deadline:
                raise
            time.sleep(random.uniform(0, pause))        # else the same ones meet again
            if deadline is not None:
                pause = min(2 * pause, LONGEST_PAUSE)
        except BaseException as error:
            try:
                if isinstance(error, db.DBError):
                    env.met(error)
            finally:
                try:
                    txn.abort()         # of a broken environment, too: it cannot, but the transaction has had its end
                except db.DBError:
                    if not isinstance(error, db.DBRunRecoveryError):
                        raise
            raise
        else:
            try:
                txn.commit()
            except db.DBError as error:
                env.met(error)
                raise
            if not reads:
                COMMITS.here += 1
                Commits.total += 1
            return result
    raise AssertionError("unreachable")
