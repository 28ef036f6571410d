"""Synchronous mode: an answer waits for the standby's disk; without the standby nothing is changed, or answers go on
alone, by setting."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mboxlist.engine import secondcopy
from mboxlist.engine.secondcopy import State
from mboxlist.engine.transact import Unflushed
from mboxlist.engine.troubles import AWAY
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.housekeeping import tasks
from store.housekeeping.tasks import Round, Task
from store.mailboxes import namespace
from store.mailboxes.expunge import expunges, forget, remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partitions import partitionmove, volumes
from store.standby import promotion, standbyjournal
from store.standby.source.instep import InStep, Member, Step, seen
from store.store import Store
from store.values import FlagAction, Flags
from tests.support.stores.standbypair import HOST, INBOX, Standby, is_equal, promoted, uids, work
from tests.support.stores.stores import SMALL, deliver
from tests.support.stores.whole import everything

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@contextmanager
def synchronous(store: Store, standby: Standby, *, refuse: bool = True, patience: float = 300.0) -> Iterator[InStep]:
    standby.group = InStep.of(store.write_freeze.second, [HOST], waited=[HOST], refuse=refuse, patience=patience)
    try:
        yield standby.group
    finally:
        standby.group.close()
        store.write_freeze.second.forget()


def test_all_that_was_done_is_there(store: Store, standby: Standby) -> None:
    """Also when the process that follows ends at once, with what came in its journal only."""
    standby.create()
    with synchronous(store, standby):
        with standby.in_step(finish=False):
            for number in range(1, 4):
                work(store, number)
            known = everything(store)
    with closing(promoted(standby)) as other:
        assert everything(other) == known
        is_equal(store, other)
        assert check(other) == []


@pytest.mark.parametrize(("refuse", "text"), [(True, "is not changed until it is back"), (False, "do not wait for it")])
def test_the_log_says_from_the_first_moment_that_it_is_away(store: Store, standby: Standby, refuse: bool, text: str,
                                                           caplog: pytest.LogCaptureFixture) -> None:
    """Who starts the server without it reads why mail is refused, or that answers go on alone."""
    with synchronous(store, standby, refuse=refuse):
        said = [(each.levelname, each.getMessage()) for each in caplog.records]
        assert [level for level, line in said
                if f"{HOST} is away (it has not connected" in line and text in line] == ["WARNING"]


def test_the_last_round_is_one_that_brought_something(store: Store, standby: Standby) -> None:
    """While nothing comes, what the first machine knows by itself is no round trip."""
    standby.create()
    with synchronous(store, standby), standby.in_step() as follower:
        member, = standby.group.members.values() if standby.group is not None else ()
        deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
        member.trip = 5.0
        member.has_all(member.sent + 1)
        assert member.trip == 5.0 and follower.step


def test_who_waits_is_woken_once(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time wakes a process that serves clients."""
    standby.create()
    woken, tell = list[int](), secondcopy.Asked.tell

    def told(asked: secondcopy.Asked) -> None:
        woken.append(1)
        tell(asked)

    with synchronous(store, standby), standby.in_step():
        monkeypatch.setattr(secondcopy.Asked, "tell", told)
        for number in range(20):
            deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX))
        monkeypatch.undo()
    assert 0 < len(woken) <= 22


def test_nothing_is_changed_while_it_is_away(store: Store, standby: Standby) -> None:
    """And all that was there can be read; a standby can be made, and then all goes on."""
    before = everything(store)
    with synchronous(store, standby) as group:
        assert store.write_freeze.second.state is State.REFUSING
        for change in changes(store):
            with pytest.raises(StoreError) as refused:
                change()
            assert refused.value.problem is Problem.UNAVAILABLE
        with store.write_freeze.second.exempt():        # whoever looks at all locks it, too
            assert everything(store) == before
        assert len(store.open_mailbox(store.entry(INBOX)).rows)
        standby.create()
        with standby.in_step():
            assert group.members[HOST].step is Step.IN_STEP
            for change in changes(store):
                change()
        with pytest.raises(StoreError):
            receive(store)


def test_a_partition_that_another_process_has_added_counts_at_once(store: Store, standby: Standby) -> None:
    """The process with the connections does not need it yet, and must look: no answer is given for what the standby
    lacks. It gets the partition by its log, so answers go on also with `refuse`, and no database is copied."""
    standby.create()
    with synchronous(store, standby) as group, closing(open_store(store.root, SMALL)) as other:
        with standby.in_step(finish=False):
            volumes.add(other, "second")
            partitionmove.move_owner(other, "alice", "second")
            receive(other)
            known = uids(other)
            assert group.members[HOST].step is Step.IN_STEP
            assert group.members[HOST].session == 1         # by the first connection
    with closing(promoted(standby)) as there:
        assert uids(there) == known
        assert there.entry(INBOX).partition == "second"
        assert check(there) == []


def test_the_journal_seldom_becomes_longer(store: Store, standby: Standby) -> None:
    """A sync that changes the length of a file takes longer, and others wait for it. What is behind the last answer is
    none."""
    standby.create()
    lengths = set[int]()
    with synchronous(store, standby), standby.in_step(finish=False):
        for _ in range(30):
            receive(store)
            lengths.add((standby.root / standbyjournal.NAMES[0]).stat().st_size)
        known = everything(store)
    assert len(lengths) == 1 and lengths.pop() > standbyjournal.GROW
    with closing(promoted(standby)) as other:
        assert everything(other) == known


def test_who_serves_a_standby_waits_for_none_until_the_end(store: Store) -> None:
    """Also after it has looked at something, which nobody waits for, either."""
    second = store.write_freeze.second
    with second.exempt():
        store.open_mailbox(store.entry(INBOX))
        with second.exempt():
            assert second.is_exempt()
        assert second.is_exempt()
    assert not second.is_exempt()


def test_housekeeping_says_once_that_it_waits(store: Store, standby: Standby, caplog: pytest.LogCaptureFixture) -> None:
    """One line when the standby is away, however many items are refused, and one when it is back."""
    remove(store, store.entry(INBOX), store.open_mailbox(store.entry(INBOX)).rows["uid"])

    def let_go(partition: str) -> int:
        forgotten = [forget(store.partition(partition), some) for some in expunges(store.partition(partition), 1 << 31)]
        return sum(forgotten)

    look, = (task for task in tasks.every_process(store) if task.name == tasks.TROUBLES_TASK)
    rounds = [Round(task, store) for task in (Task("let go", 60.0, lambda store: store.partitions, lambda store, name: (
        let_go(name))), Task("mark", 60.0, lambda store: range(3), lambda store, number: change(store, number)), look)]
    standby.create()
    with synchronous(store, standby):
        for _ in range(3):
            for each in rounds:
                each.step()
        assert [each.status().failures for each in rounds] == [3, 9, 0]
        assert [line.getMessage() for line in caplog.records if AWAY in line.getMessage()] == [
            f"{AWAY} (more of this is counted)"]
        assert not [line for line in caplog.records if line.levelname == "ERROR"]
        with standby.in_step():
            caplog.clear()
            for _ in range(2):
                for each in rounds:
                    each.step()
    assert [each.status().bad for each in rounds] == [0, 0, 0]
    assert [line.getMessage().split(";")[0] for line in caplog.records if line.name == "mboxlist.engine.troubles"] == [
        f"{AWAY}: over"]


def change(store: Store, number: int) -> int:
    """A keyword of a message of bob's."""
    bob = store.entry(INBOX.parse("user/bob/INBOX"))
    change_flags(store, bob, store.open_mailbox(bob).rows["uid"][:1].tolist(), FlagAction.ADD, Flags(
        keywords=(f"n{number}",)))
    return 1


def receive(store: Store) -> None:
    """One message, for alice. Raises StoreError, Unflushed."""
    outcome, = deliver(store, b"Subject: one\r\n\r\n", str(INBOX))
    if isinstance(outcome, StoreError):
        raise outcome


def changes(store: Store) -> list[Callable[[], object]]:
    inbox = store.entry(INBOX)
    uids = store.open_mailbox(inbox).rows["uid"].tolist()
    return [lambda: receive(store),
            lambda: change_flags(store, inbox, uids[:2], FlagAction.ADD, Flags(keywords=("away",))),
            lambda: namespace.create_mailbox(store, INBOX.parse("user/alice/Away"))]


def test_answers_go_on_alone_where_that_is_set(store: Store, standby: Standby) -> None:
    standby.create()
    with synchronous(store, standby, refuse=False):
        second = store.write_freeze.second
        assert second.state is State.ALONE
        work(store, 1)
        with standby.in_step():
            assert second.state is State.WAITING
            work(store, 2)
        assert second.state is State.ALONE
        work(store, 3)
        with standby.in_step(finish=False):
            work(store, 4)
    with closing(promoted(standby)) as other:
        is_equal(store, other)


@pytest.mark.parametrize("refuse", [True, False])
def test_a_standby_that_says_nothing(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, refuse: bool
                                     ) -> None:
    """Who waits has no answer, or goes on alone, when it counts as away."""
    standby.create()
    with synchronous(store, standby, refuse=refuse, patience=0.3) as group, standby.in_step():
        held, has = threading.Event(), Member.has
        monkeypatch.setattr(Member, "has", lambda *what: (held.wait(180), has(*what)))
        if refuse:
            with pytest.raises((Unflushed, StoreError)):
                receive(store)
        else:
            receive(store)
        assert group.members[HOST].step is Step.AWAY
        held.set()


@pytest.mark.parametrize("refuse", [True, False])
def test_a_standby_that_ended_behind_an_answer_that_nobody_waited_for(
        store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch, refuse: bool) -> None:
    """The thread of its connection waits for the next question, and hears nobody who begins to wait."""
    monkeypatch.setattr(secondcopy, "LONGEST", 5.0)
    standby.create()
    with synchronous(store, standby, refuse=refuse, patience=0.3) as group, standby.following() as follower:
        for _ in range(20):
            if group.members[HOST].step is not Step.IN_STEP:
                follower.round(0)
        assert group.members[HOST].step is Step.IN_STEP
        if refuse:
            with pytest.raises((Unflushed, StoreError)):
                receive(store)
        else:
            receive(store)
        assert group.members[HOST].step is Step.AWAY


def test_what_was_committed_before_it_went_away_has_no_answer(store: Store, standby: Standby) -> None:
    """It may be there or not; to say that it is done would be a promise that nobody keeps."""
    with synchronous(store, standby):
        second = store.write_freeze.second
        second.put(State.REFUSING, 0)
        with pytest.raises(Unflushed):
            store.partitions["primary"].flush()
        store.partitions["primary"].env.flush(here=True)


def test_a_journal_that_is_cut_off_anywhere(store: Store, standby: Standby, tmp_path: Path) -> None:
    """What is whole of it counts, and no more: the standby is as the store was at some moment."""
    standby.create()
    known = [everything(store)]
    with standby.following() as follower:
        for number in range(1, 4):
            work(store, number)
            assert follower.round(0)
            known.append(everything(store))
    journal = standby.root / standbyjournal.NAMES[0]
    octets, seen = journal.read_bytes(), []
    end = len(octets.rstrip(b"\0"))
    for cut in (0, 3, end // 5, end // 2, end - 1, len(octets)):
        other = Standby(store, tmp_path / f"cut{cut}")
        shutil.copytree(standby.root, other.root, symlinks=True)
        (other.root / journal.name).write_bytes(octets[:cut])
        promotion.promote(other.root)
        with closing(open_store(other.root, SMALL)) as opened:
            seen.append(known.index(everything(opened)))
            assert check(opened) == []
        shutil.rmtree(other.root)
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 3


def test_a_journal_is_written_over_and_gives_back_nothing_old(store: Store, standby: Standby) -> None:
    """The files of the journal stay, and behind the newest answers are those of an earlier time. Also when what says
    that a file begins anew was lost, and all its answers are old ones."""
    standby.create()
    paths = [standby.root / name for name in standbyjournal.NAMES]
    with standby.following() as follower:
        for number in range(1, 5):
            work(store, number)
            assert follower.round(0)
            full = [path.read_bytes() for path in paths if path.exists()]
            follower.finish()
        sizes = [path.stat().st_size for path in paths]
        receive(store)
        assert follower.round(0)
    assert [path.stat().st_size for path in paths] == sizes         # a small answer stands before old ones
    known = everything(store)
    paths[1].write_bytes(full[1])
    with closing(promoted(standby)) as other:
        assert everything(other) == known
        assert check(other) == []


def test_standbys_are_noted_from_the_first_moment_on(store: Store, standby: Standby) -> None:
    with synchronous(store, standby):
        assert seen(store.root)["standbys"][HOST]["step"] == Step.AWAY.value
