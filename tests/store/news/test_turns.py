"""What many sessions have to do at one moment comes in several turns of the event loop, in order."""

import gc
import weakref

import pytest
from twisted.internet.task import Clock

from store.changes import News
from store.news.turns import AT_ONCE, Turns

MANY = range(3 * AT_ONCE + 1)


class Loop(Clock):
    """Twisted's loop, as far as it has timers: what is asked for in a turn comes in the next one."""

    def turn(self):
        due, self.calls = self.calls, []
        for call in due:
            call.called = 1
            call.func(*call.args, **call.kw)


@pytest.fixture
def loop():
    return Loop()


def turns(loop, done):
    """Of each turn what is done in it, until nothing is left."""
    found = []
    while loop.calls:
        before = len(done)
        loop.turn()
        found.append(done[before:])
    return found


def test_a_few_in_each_turn(loop):
    done = []
    for number in MANY:
        Turns.of(loop).add(loop, lambda number=number: done.append(number))
    assert done == []
    found = turns(loop, done)
    assert done == list(MANY)
    assert max(map(len, found)) == AT_ONCE and len(found) == 4


def test_who_asks_again_waits_for_all_others(loop):
    done = []

    def first():
        done.append("first")
        if done.count("first") == 1:
            Turns.of(loop).add(loop, first)

    Turns.of(loop).add(loop, first)
    for number in MANY:
        Turns.of(loop).add(loop, lambda number=number: done.append(number))
    turns(loop, done)
    assert done == ["first", *MANY, "first"]


def test_one_that_fails_keeps_nobody_from_being_told(loop):
    def fail():
        raise ValueError("planted")

    done = []
    for step in (fail, lambda: done.append("next")):
        Turns.of(loop).add(loop, step)
    turns(loop, done)
    assert done == ["next"]


def test_each_loop_has_its_own(loop):
    other = Loop()
    assert Turns.of(loop) is Turns.of(loop) is not Turns.of(other)
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None


def test_listeners_that_may_be_behind_are_asked_by_turns(loop):
    news, asked = News(), []
    ends = [news.subscribe(7, lambda: None, lambda number=number: asked.append(number)) for number in MANY]
    news.look([7], lambda step: Turns.of(loop).add(loop, step))
    loop.turn()
    assert asked == list(MANY[:AT_ONCE])
    ends[-1]()                                  # it is asked no more
    assert max(map(len, turns(loop, asked))) == AT_ONCE
    assert asked == list(MANY[:-1])
