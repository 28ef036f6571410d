"""When the logs do not lead on from what the standby has, it is told so, and begins with the databases again."""

import time
from contextlib import closing

import pytest

from mboxlist.engine.damagemarks import log_files
from store.check.wholecheck import check
from store.standby import standbystate
from store.standby.following import Reseed
from store.store import Store
from tests.support.stores.standbypair import Standby, exchange, is_equal, promoted, work

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


def test_a_table_that_was_made_without_the_log(store: Store, standby: Standby) -> None:
    """The standby is told to begin with the databases again, and all is there then."""
    standby.create()
    work(store, 1)
    exchange(store)
    with pytest.raises(Reseed, match=r"uidls\.db"):
        standby.follow()
    standby.create(age=0)
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_a_snapshot_of_the_future_is_not_new(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the first machine was a day ahead when the snapshot was made, and is right now. The copy must
    have what came without the log since."""
    ahead = time.time() + 86_400
    with monkeypatch.context() as clock:
        clock.setattr(time, "time", lambda: ahead)
        standby.create()
    work(store, 1)
    exchange(store)
    with pytest.raises(Reseed, match=r"uidls\.db"):
        standby.follow()
    standby.create(age=5)
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_logs_that_are_there_no_more(store: Store, standby: Standby) -> None:
    standby.create()
    env = store.partitions["primary"].env
    while env.log_end()[0] < 3:
        work(store, env.log_end()[0] * 2 + 101)
        before = env.log_end()[0]
        while env.log_end()[0] == before:
            env._env.log_printf(b"-" * 2000)
    env.checkpoint()
    env.logs.keep(None)
    assert env.drop_logs()
    with pytest.raises(Reseed, match="does not go on"):
        standby.follow()


def test_logs_of_another_life(store: Store, standby: Standby) -> None:
    """The same places in a log, with other octets before them."""
    standby.create()
    work(store, 1)
    standby.follow()
    state = standbystate.read(standby.root)
    assert state is not None
    index = standby.root / "partitions/primary/index"
    newest = log_files(index)[-1]
    with open(newest, "r+b") as file:
        file.seek(state.ends["partitions/primary/index"][1] - 100)
        file.write(b"other")
    with pytest.raises(Reseed, match="does not go on"):
        standby.follow()
