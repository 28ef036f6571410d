"""A standby that another one follows is promoted while that one is away: its log goes back to where that one is."""

import time
from contextlib import closing

import pytest

from mboxlist.engine.damagemarks import log_files
from mboxlist.engine.hotcopy import log_number
from store.check.wholecheck import check
from store.snapshots import retention, taking
from store.snapshots.taking import all_environments
from store.standby.cascade import keptlogs
from store.store import Store
from tests.store.standby.test_cascade import THIRD, Chain, chain, ends_of, new_log_file, state_of
from tests.support.stores.standbypair import Standby, is_equal, promoted

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

__all__ = ["chain"]


def test_a_promotion_keeps_log_files_for_one_that_was_away(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the standby had kept for it, too: it follows the promoted machine without a copy. They stay until the
    second snapshot is made: the first one is soon."""
    chain.third.follow()
    for _ in range(2):
        new_log_file(chain)
    assert state_of(chain.third).ends["partitions/primary/index"][0] == 1
    with closing(promoted(chain.standby)) as serves:
        drop_old_logs(serves)
        retention.make(serves)
        drop_old_logs(serves)
        third = Standby(serves, chain.third.root, host=THIRD)
        third.follow()
        assert state_of(third).ends == ends_of(serves)
        tomorrow = time.time() + 86400
        monkeypatch.setattr(taking.time, "time", lambda: tomorrow)
        retention.make(serves)
        index = serves.partitions["primary"].env.folder
        drop_old_logs(serves)
        assert log_number(log_files(index)[0].name) > 3 and not (index / keptlogs.KEPT).exists()
        with closing(promoted(third)) as last:
            is_equal(serves, last)
            assert check(last) == []


def test_a_promotion_keeps_no_log_file_where_nobody_follows(chain: Chain) -> None:
    new_log_file(chain)
    with closing(promoted(chain.third)) as serves:
        assert [env.logs.kept() for env in all_environments(serves).values()] == [None, None]


def drop_old_logs(store: Store) -> None:
    """The log goes on, and what is not needed of it goes, as housekeeping does that."""
    for env in all_environments(store).values():
        for first in range(env.log_end()[0], env.log_end()[0] + 2):
            while env.log_end()[0] == first:
                env._env.log_printf(b"-" * 2000)
            env.checkpoint()
        env.drop_logs(most=2 * store.settings.snapshot_logs)
