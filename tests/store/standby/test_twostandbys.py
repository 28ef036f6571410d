"""Answers wait for two standbys. One of them is promoted while the first machine lives, and reaches only the other one:
never do two machines acknowledge."""

import math
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from mboxlist.engine.secondcopy import State
from mboxlist.engine.transact import Unflushed
from store.check.wholecheck import check
from store.errors import StoreError
from store.standby.source.instep import InStep, Member, Step, seen
from store.store import Store
from tests.store.standby.test_instep import receive
from tests.support.processes import wait
from tests.support.stores.standbypair import HOST, INBOX, LOOK, LOOKS, Standby, promoted, work

pytestmark = [pytest.mark.long, pytest.mark.few_folders]

THIRD = "third.example.org"


@contextmanager
def two(store: Store, tmp_path: Path, *, refuse: bool = True) -> Iterator[tuple[InStep, Standby]]:
    """Two standbys that answers wait for: `THIRD` is in step, the other one has been made only."""
    second = store.write_freeze.second
    group = InStep.of(second, [HOST, THIRD], waited=[HOST, THIRD], refuse=refuse, patience=300.0)
    one, other = (Standby(store, tmp_path / host, group=group, host=host) for host in (HOST, THIRD))
    for each in (one, other):
        each.create()
    with ExitStack() as undo:
        undo.callback(second.forget)
        undo.callback(group.close)
        undo.enter_context(other.in_step())
        yield group, one


def test_one_of_two_is_promoted_while_the_first_machine_lives(store: Store, tmp_path: Path) -> None:
    """With `refuse`: an answer needs both, so the first machine gives none. What it had acknowledged is on the one that
    is promoted."""
    second = store.write_freeze.second
    with two(store, tmp_path) as (group, one):
        with one.in_step(finish=False):
            assert [each.step for each in group.members.values()] == [Step.IN_STEP, Step.IN_STEP]
            assert second.state is State.WAITING
            work(store, 1)
            acknowledged = mail(store)
        alone(store)
        assert group.members[THIRD].step is Step.IN_STEP
        with closing(promoted(one)) as serves:
            assert mail(serves) >= acknowledged
            receive(serves)
            alone(store)
            assert check(serves) == []


def test_nobody_hears_an_answer_for_what_one_of_two_lacks(store: Store, tmp_path: Path) -> None:
    """It goes away while somebody waits; the other one has the change already."""
    second = store.write_freeze.second
    with two(store, tmp_path) as (group, one):
        with one.following() as follower:
            for _ in range(20):
                if group.members[HOST].step is not Step.IN_STEP:
                    follower.round(0)
            assert second.state is State.WAITING
            ticket = second.ask()
            for _ in range(LOOKS):
                if group.members[THIRD].number < ticket:
                    threading.Event().wait(LOOK)
            assert group.members[THIRD].number >= ticket > group.members[HOST].number
        assert second.state is State.REFUSING
        with pytest.raises(Unflushed):
            second.wait(ticket)


@pytest.mark.parametrize("refuse", [True, False])
def test_one_of_two_is_half_open(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse: bool) -> None:
    """It has vanished, and nobody hears that its connection has ended. With `refuse` there is no answer; else there is
    one, once the other standby has the change, which goes on to follow. `standby status` tells which one it is."""
    held, has = threading.Event(), Member.has

    def vanished(member: Member, *what: int) -> None:
        if member.host == HOST:
            member.heard = -math.inf            # longer than anybody waits
            held.wait(180)
        has(member, *what)

    with two(store, tmp_path, refuse=refuse) as (group, one), one.in_step(finish=False):
        is_told(store, Step.IN_STEP, Step.IN_STEP)
        monkeypatch.setattr(Member, "has", vanished)
        ticket = store.write_freeze.second.ask()
        if refuse:
            alone(store)
            assert store.write_freeze.second.state is State.REFUSING
        else:
            before = mail(store)
            receive(store)
            assert mail(store) > before
        is_told(store, Step.AWAY, Step.IN_STEP)
        assert group.members[THIRD].number >= ticket > group.members[HOST].number
        held.set()


def is_told(store: Store, host: Step, third: Step) -> None:
    """`onecopy standby status` at the first machine says so of both, soon."""
    def noted() -> bool:
        return {name: Step(each["step"]) for name, each in seen(store.root)["standbys"].items()} == {
            HOST: host, THIRD: third}

    wait.until(noted, "it is noted", pid=os.getpid(), limit=180)


def alone(store: Store) -> None:
    """The first machine answers nothing: it refuses, or does not know."""
    with pytest.raises((StoreError, Unflushed)):
        receive(store)


def mail(store: Store) -> set[tuple[int, int]]:
    """UIDs and sizes of alice's INBOX."""
    rows = store.open_mailbox(store.entry(INBOX)).rows
    return set(zip(rows["uid"].tolist(), rows["size"].tolist(), strict=True))
