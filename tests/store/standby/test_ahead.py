"""Both disks sync side by side: an answer may be on disk at the standby before it is at the first machine.

The first machine may lose its power in between, and come back without what it has sent; nobody has had an answer for
that. The standby goes back, and follows on; unless it is promoted first.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mboxlist.engine.transact import Unflushed
from store.check.wholecheck import check
from store.opening import open_store
from store.standby import standbyjournal, standbystate
from store.standby.following import Follower
from store.standby.source.copysource import Source
from store.standby.source.instep import InStep, Step
from store.store import Store
from store.usermove.messageformat import Ended
from tests.support.stores.standbypair import HOST, INBOX, Standby, is_equal, promoted, work
from tests.support.stores.stores import SMALL, deliver
from tests.support.stores.whole import everything

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@contextmanager
def in_step(store: Store, standby: Standby) -> Iterator[Follower]:
    """In synchronous mode, in step, and with nothing that is left to come. What the body changes waits for nobody."""
    second = store.write_freeze.second
    standby.group = InStep.of(second, [HOST], waited=[HOST])
    try:
        with second.exempt(), standby.following() as follower:
            while follower.round(0) or standby.group.members[HOST].step is not Step.IN_STEP:
                pass
            yield follower
    finally:
        standby.group.close()
        standby.group = None
        second.forget()


def loses_power(store: Store, standby: Standby, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first machine has sent the log of a delivery when it ends; its disk is that of `image`."""
    def ends(source: Source) -> None:
        raise Ended

    with in_step(store, standby) as follower:
        shutil.copytree(store.root, image, symlinks=True, ignore=shutil.ignore_patterns("run"))
        deliver(store, b"Subject: ahead\r\n\r\n", str(INBOX))
        with monkeypatch.context() as patch:
            patch.setattr(Source, "answered", ends)
            assert follower.round(0)
        assert follower.newest.ends != follower.state.ends
    state = standbystate.read(standby.root)
    assert state is not None
    assert not any(each.ahead for each in standbyjournal.beyond(standby.root, state, in_place=False))


def test_what_the_first_machine_has_lost_the_standby_gives_up(
        store: Store, standby: Standby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standby.create()
    loses_power(store, standby, tmp_path / "image", monkeypatch)
    with closing(open_store(tmp_path / "image", SMALL)) as back:
        work(back, 1)
        Standby(back, standby.root).follow()            # raises Reseed if it could not go on
        known = everything(back)
        with closing(promoted(standby)) as other:
            assert everything(other) == known != everything(store)
            is_equal(back, other)
            assert check(other) == []


def test_it_goes_on_when_nothing_was_lost(store: Store, standby: Standby, tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    standby.create()
    loses_power(store, standby, tmp_path / "image", monkeypatch)
    work(store, 1)
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


@pytest.mark.parametrize("cut", [None, 0, 40, -1])
def test_until_another_answer_is_whole_it_counts(store: Store, standby: Standby, tmp_path: Path, cut: int | None,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may have been told that it is done: the standby that is promoted has it, also when the first answer of a
    first machine that has come back is cut off (at that octet), and not any more when that is whole."""
    standby.create()
    loses_power(store, standby, tmp_path / "image", monkeypatch)
    known = everything(store)
    with closing(open_store(tmp_path / "image", SMALL)) as back:
        deliver(back, b"Subject: another\r\n\r\n", str(INBOX))
        with Standby(back, standby.root).following() as follower:
            assert follower.round(0)
        journal = standby.root / standbyjournal.NAMES[0]
        if cut is None:
            known = everything(back)
        else:
            journal.write_bytes(journal.read_bytes().rstrip(b"\0")[:cut])
    with closing(promoted(standby)) as other:
        assert everything(other) == known
        assert check(other) == []


def test_it_stays_when_the_journal_is_emptied(store: Store, standby: Standby) -> None:
    """And the tables do not have it before the first machine is known to have it."""
    standby.create()
    with in_step(store, standby) as follower:
        for number in range(4):
            deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX))
            assert follower.round(0)
            assert follower.newest.ends != follower.state.ends
            follower.finish()
            state = standbystate.read(standby.root)
            assert state is not None and state.ends == follower.state.ends
            assert not list(standbyjournal.beyond(standby.root, state))
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_nobody_has_an_answer_when_the_sync_fails(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    standby.create()
    with in_step(store, standby) as follower:
        member = standby.group.members[HOST]        # type: ignore[union-attr]
        deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
        before = member.number

        def fails(source: Source, *what: object) -> None:
            raise Unflushed(5, "the disk")

        monkeypatch.setattr(Source, "_sync", fails)
        assert follower.round(0)
        with pytest.raises(Exception, match="connection"):
            follower.round(0)
        monkeypatch.undo()
        assert member.number == before


def test_what_is_in_memory_only_is_not_sent_before_it_is_on_disk(store: Store, standby: Standby) -> None:
    """A change that another one has under way: the log ends in the middle of it, and nobody can read that yet."""
    standby.create()
    env, table = store.partitions["primary"].env, store.partitions["primary"].uidls._table
    with in_step(store, standby) as follower:
        for is_under_way in (True, False, True):
            txn, before = env.begin(), env.log.known
            try:
                if is_under_way:
                    table.put(b"\xff under way", b"x" * 50, txn)
                else:
                    deliver(store, b"Subject: whole\r\n\r\n", str(INBOX))
                assert follower.round(0)
                assert (follower.newest.ends == follower.state.ends) is is_under_way
                assert env.log.known > before or not is_under_way
            finally:
                txn.abort()
            follower.round(0)


def test_no_further_standby_gets_what_is_ahead(store: Store, standby: Standby) -> None:
    """It would have what nobody has any more when the first machine loses its power."""
    standby.create()
    shown = list[standbystate.StandbyState]()
    with in_step(store, standby) as follower:
        follower.shown = lambda state, current, small: shown.append(state)
        before = follower.state.ends
        deliver(store, b"Subject: ahead\r\n\r\n", str(INBOX))
        assert follower.round(0)
        assert follower.newest.ends != follower.state.ends == before
        follower.round(0)
        assert shown[-1].ends == before
        follower.round(0)
        assert shown[-1].ends == follower.state.ends != before
