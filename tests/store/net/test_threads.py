"""Threads: results and failures come back through the given call; work of one kind does not wait for another."""

import threading
from queue import SimpleQueue

import pytest

from store.net.threads import POOLS, ReactorThreads
from store.offload import Threads, now


class Loop:
    """Stands for the reactor: runs what the threads hand over, in this thread."""

    def __init__(self):
        self.calls = SimpleQueue()
        self.threads = ReactorThreads(lambda function, *arguments: self.calls.put((function, arguments)))

    def outcome(self, deferred):
        found = []
        deferred.addBoth(found.append)
        while not found:
            function, arguments = self.calls.get(timeout=180)
            function(*arguments)
        return found[0]


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    loop.threads.stop()


def test_a_result_comes_back(loop):
    assert loop.outcome(loop.threads.run("files", lambda: threading.current_thread().name)).startswith("files-")


def test_a_failure_comes_back(loop):
    assert loop.outcome(loop.threads.run("files", lambda: 1 // 0)).check(ZeroDivisionError)
    assert loop.outcome(loop.threads.run("files", lambda: "the thread goes on")) == "the thread goes on"


def test_no_more_threads_than_the_pool_has_and_no_kind_waits_for_another(loop):
    write_freeze = threading.Event()
    held = [loop.threads.run("search", write_freeze.wait) for _ in range(5 * POOLS["search"])]
    assert loop.outcome(loop.threads.run("files", lambda: "done")) == "done"
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("search-")]
    assert len(names) <= POOLS["search"]
    write_freeze.set()
    assert all(loop.outcome(one) for one in held)


def test_users_take_turns_and_none_has_all_threads(loop):
    """Two heavy searches of one user kept everybody's waiting until they had ended."""
    wait, order = threading.Event(), []
    first = [loop.threads.run("search", lambda: wait.wait(180), user="alice") for _ in range(POOLS["search"])]
    assert loop.outcome(loop.threads.run("search", lambda: "bob's", user="bob")) == "bob's"
    more = [loop.threads.run("search", lambda name=name, at=at: order.append(f"{name}{at}"), user=name)
            for name in ("alice", "carol") for at in range(3)]
    assert [loop.outcome(one) for one in more[3:]] == [None] * 3
    assert order == ["carol0", "carol1", "carol2"]
    wait.set()
    assert [loop.outcome(one) for one in first + more[:3]] == [True] * len(first) + [None] * 3
    assert order[3:] == ["alice0", "alice1", "alice2"]


def test_a_stop_does_what_waited_for_its_users_turn(loop):
    wait, done = threading.Event(), []
    for at in range(5):
        loop.threads.run("search", lambda at=at: (wait.wait(180), done.append(at)), user="alice")
    stopping = threading.Thread(target=loop.threads.stop)
    stopping.start()
    wait.set()
    stopping.join(180)
    assert sorted(done) == list(range(5)) and not stopping.is_alive()


def test_side_by_side_runs_all_and_raises_what_one_raised(loop):
    together = threading.Barrier(4)
    done = loop.threads.run("sync", lambda: loop.threads.side_by_side([lambda: together.wait(180)] * 4))
    assert loop.outcome(done) is None
    ran = []
    failed = loop.threads.run("sync", lambda: loop.threads.side_by_side(
        [lambda: ran.append(1), lambda: 1 // 0, lambda: ran.append(2)]))
    assert loop.outcome(failed).check(ZeroDivisionError)
    assert sorted(ran) == [1, 2]


def test_without_threads_it_is_done_at_once():
    found = []
    found.append(now(Threads().run("files", lambda: 5)))
    with pytest.raises(ZeroDivisionError):
        now(Threads().run("files", lambda: 1 // 0))
    assert found == [5]


def test_a_stop_finishes_what_must_be_done_and_forgets_what_nobody_waits_for(faults):
    loop = Loop()
    done, begun, go = [], threading.Barrier(3), threading.Event()

    def first(kind):
        begun.wait(180)
        go.wait(180)
        done.append(kind)

    for kind in ("names", "doubtful"):              # one thread each
        loop.threads.run(kind, lambda kind=kind: first(kind))
        for number in range(3):
            loop.threads.run(kind, lambda kind=kind, number=number: done.append((kind, number)))
    begun.wait(180)
    first_pool = loop.threads._pools["sync"]
    faults.around(first_pool, "stop", lambda _: go.set())         # which comes when all have been told to forget
    loop.threads.stop()
    assert sorted(done, key=str) == [("names", 0), ("names", 1), ("names", 2), "doubtful", "names"]


def test_what_no_thread_can_be_begun_for_is_never_done(loop, faults):
    done = []
    faults.fail(threading.Thread, "start", RuntimeError("can't start new thread"))
    with pytest.raises(RuntimeError):
        loop.threads.run("names", lambda: done.append("refused"))
    loop.threads.side_by_side([lambda number=number: done.append(number) for number in range(3)])
    faults.mend()
    assert loop.outcome(loop.threads.run("names", lambda: done.append("after"))) is None
    assert done == [0, 1, 2, "after"]


def test_where_no_other_thread_can_be_begun_those_that_there_are_do_it(loop, faults):
    go_on = threading.Event()
    first = loop.threads.run("files", lambda: go_on.wait(180))
    faults.fail(threading.Thread, "start", RuntimeError("can't start new thread"))
    second = loop.threads.run("files", lambda: "second")
    go_on.set()
    assert loop.outcome(first) is True and loop.outcome(second) == "second"
