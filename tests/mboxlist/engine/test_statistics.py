"""What Berkeley DB counts, and the advice that follows."""

from pathlib import Path

import pytest

from mboxlist.engine.kv import Env
from mboxlist.engine.statistics import Statistics
from mboxlist.engine.transact import transact
from tools.server.metrics.figures import ENOUGH, UNIT, proposed


def test_what_is_done_is_counted(tmp_path: Path) -> None:
    env = Env(tmp_path, cache=1 << 20, locks=1000, recover=True, broken=lambda: None)
    try:
        table = env.table("x.db")
        before = env.statistics()
        for number in range(10):
            transact(env, lambda txn, number=number: table.put(b"%d" % number, b"x" * 1000, txn))   # type: ignore[misc]
        env.flush()
        with pytest.raises(ZeroDivisionError):
            transact(env, lambda txn: 1 / 0)
        after = env.statistics()
        assert after.transactions - before.transactions == 11 and after.aborts - before.aborts == 1
        assert after.log_octets - before.log_octets > 10 * 1000 and after.log_syncs > before.log_syncs
        assert after.lock_requests > before.lock_requests and after.lock_waits == 0 and after.active == 0
        assert after.hits > before.hits and after.cache >= 1 << 20 and after.hit_rate is not None
        env.checkpoint()
        assert env.statistics().checkpoint >= before.checkpoint
    finally:
        env.close()


def counted(hits: int, misses: int, evicted: int, cache: int = 64 << 20) -> Statistics:
    return Statistics(cache, hits, misses, evicted, *[0] * 11)


@pytest.mark.parametrize(("found", "tables", "size"), [
    (counted(0, 0, 0), 1 << 30, None),                                  # nothing was asked for
    (counted(ENOUGH, ENOUGH, 0), 1 << 30, None),                        # all is read for the first time
    (counted(96 * ENOUGH, 4 * ENOUGH, 500), 1 << 30, None),             # 96 %
    (counted(10, 90, 50), 1 << 30, None),                               # too few to tell
    (counted(94 * ENOUGH, 6 * ENOUGH, 500), 1 << 30, 128 << 20),        # twice as much
    (counted(94 * ENOUGH, 6 * ENOUGH, 500), 80 << 20, 112 << 20),       # no more than the tables and a quarter
    (counted(94 * ENOUGH, 6 * ENOUGH, 500), 40 << 20, None),            # they fit already
])
def test_a_larger_cache_is_proposed_where_it_helps(found: Statistics, tables: int, size: int | None) -> None:
    assert proposed(found, tables) == size
    assert size is None or size % UNIT == 0
