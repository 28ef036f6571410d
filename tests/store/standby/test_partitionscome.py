"""Partitions come to a standby by their logs, from the beginning, and go: no database is copied for that."""

import shutil
from contextlib import closing

import pytest

from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.opening import open_store
from store.partitions import partitionmove, volumes
from store.standby import standbystate
from store.store import Store
from tests.store.standby.test_followrounds import Cut
from tests.support.stores.standbypair import INBOX, Standby, is_equal, promoted, uids
from tests.support.stores.stores import SMALL, deliver

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


def test_a_partition_that_another_process_has_added(store: Store, standby: Standby) -> None:
    """Its mailboxes are on the list that the standby has: so it must have it, too, from the first moment on."""
    standby.create()
    with closing(open_store(store.root, SMALL)) as other, standby.following() as follower:
        follower.round(0)
        volumes.add(other, "second")
        partitionmove.move_owner(other, "alice", "second")
        follower.round(0)
        volumes.add(other, "third")
    standby.follow()
    with closing(promoted(standby)) as there:
        assert uids(there) == uids(store)
        assert check(there) == []
        assert sorted(there.partitions) == ["primary", "second", "third"]


def test_a_partition_that_was_removed_does_not_come_back(store: Store, standby: Standby) -> None:
    volumes.add(store, "second")
    standby.create()
    assert (standby.root / "partitions/second/index").is_dir()
    volumes.remove(store, "second")
    standby.follow()
    assert not (standby.root / "partitions/second").exists()
    with closing(promoted(standby)) as other:
        assert list(other.partitions) == ["primary"]
        assert check(other) == []


def test_a_partition_that_is_added_and_removed(store: Store, standby: Standby) -> None:
    """It comes by its log, and goes: no database is copied. So does one that was begun, and cut off."""
    standby.create()
    second = standby.root / "partitions/second"
    volumes.add(store, "second")
    partitionmove.move_owner(store, "alice", "second")
    for step in range(1, 60):
        standby.wrap = lambda wire, step=step: Cut(wire, step)      # type: ignore[misc]
        try:
            standby.follow()
        except StoreError as error:
            assert error.problem is Problem.UNAVAILABLE
        else:
            break
    assert step > 7
    deliver(store, b"Subject: there\r\n\r\n", str(INBOX))
    standby.follow()
    shutil.copytree(standby.root, standby.root.with_name("now"), symlinks=True)
    with closing(promoted(Standby(store, standby.root.with_name("now")))) as other:
        assert uids(other) == uids(store)
        assert check(other) == []
    partitionmove.move_owner(store, "alice", "primary")
    volumes.remove(store, "second")
    assert second.exists()
    standby.follow()
    assert not second.exists()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_a_partition_that_is_missing_is_kept(store: Store, standby: Standby) -> None:
    """Its volume is not there: it has not been removed, and the standby may be the only one that has it."""
    volumes.add(store, "second")
    partitionmove.move_owner(store, "alice", "second")
    standby.create()
    before, kept = standbystate.read(standby.root), store.partitions
    store.partitions = {name: each for name, each in kept.items() if name != "second"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "join_all", lambda store: None)
        for action in (standby.follow, standby.create):
            with pytest.raises(StoreError, match="Partition second is not there at present"):
                action()
    assert standbystate.read(standby.root) == before
    store.partitions = kept
    standby.follow()
    with closing(promoted(standby)) as other:
        assert uids(other) == uids(store)
