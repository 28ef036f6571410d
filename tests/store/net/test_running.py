"""A session's coroutine is run on: by input, by Deferreds, by what goes wrong."""

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from store.net.stream import INPUT, Running


class Run:
    """A coroutine function that is told of where it keeps what it saw."""

    def __init__(self, work):
        self.seen = []
        self.failures = []
        self.running = Running(work(self.seen), self.failures.append)
        self.running.go_on()


def test_input_and_deferreds_in_turn():
    event = Deferred()

    async def work(seen):
        await INPUT
        seen.append("input")
        seen.append(await event)
        await INPUT
        seen.append("more")
    run = Run(work)
    assert run.seen == []
    run.running.go_on()
    assert run.seen == ["input"]
    event.callback("fired")
    assert run.seen == ["input", "fired"]
    run.running.go_on()
    assert run.seen == ["input", "fired", "more"] and run.failures == []


def test_what_has_fired_is_not_waited_for():
    async def work(seen):
        for number in range(10_000):
            seen.append(await succeed(number))
    assert Run(work).seen == list(range(10_000))


@pytest.mark.parametrize("fired", [True, False])
def test_a_deferred_that_fails_raises_where_it_is_awaited(fired):
    event = fail(OSError("disk")) if fired else Deferred()

    async def work(seen):
        try:
            await event
        except OSError as error:
            seen.append(str(error))
        await INPUT
        seen.append("goes on")
    run = Run(work)
    if not fired:
        event.errback(OSError("disk"))
    assert run.seen == ["disk"]
    run.running.go_on()
    assert run.seen == ["disk", "goes on"] and run.failures == []


def test_a_reason_in_place_of_input():
    async def work(seen):
        try:
            await INPUT
        except TimeoutError:
            seen.append("too late")
        seen.append(await Deferred())
    run = Run(work)
    run.running.fail(TimeoutError())
    assert run.seen == ["too late"] and run.failures == []


@pytest.mark.parametrize("way", ["at once", "after input", "by a Deferred", "by a reason"])
def test_what_is_not_caught_is_told_once(way):
    event = Deferred()

    async def work(seen):
        if way == "by a Deferred":
            await event
        elif way != "at once":
            await INPUT
        raise ValueError("bug")
    run = Run(work)
    if way == "after input":
        run.running.go_on()
    elif way == "by a Deferred":
        event.errback(Failure(ValueError("bug")))
    elif way == "by a reason":
        run.running.fail(ValueError("bug"))
    error, = run.failures
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("fails", [False, True])
def test_its_end_is_told_once_and_is_no_failure(fails):
    told = []

    async def work():
        await INPUT
        if fails:
            raise OSError("disk")
    running = Running(work(), lambda error: told.append(str(error)), lambda: told.append("ended"))
    running.go_on()
    assert told == []
    running.go_on()
    assert told == ["disk" if fails else "ended"]
