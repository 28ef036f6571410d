"""News between processes: what finds no room is sent again, and listeners look from time to time without any."""

import os
import time

import pytest
from twisted.internet.task import Clock

from store.changes import Change, News, partition_number
from store.news import changeboard, notify
from store.news.changeboard import Board
from store.news.notify import POLL, RETRY, NewsSocket


class Reactor(Clock):
    """A clock that has no sockets to look at."""

    def callFromThread(self, call, *args):
        call(*args)

    def addReader(self, reader):
        pass

    removeReader = addReader


class Process:
    """One with its socket, under a pid that is not ours."""

    def __init__(self, root, pid, reactor, board=None):
        self.news, self.heard = News(), []
        self.socket = NewsSocket(root, self.news, board)
        self.socket._name = str(pid)
        self.reactor = reactor
        if reactor is not None:
            self.socket.start(reactor)

    def tell(self, mailboxes, changes=()):
        """What was changed in one turn of the event loop."""
        self.news.tell(mailboxes, changes)
        if self.reactor is not None:
            self.reactor.advance(0)

    def subscribe(self, *mailboxes):
        for mailbox in mailboxes:
            self.news.subscribe(mailbox, lambda mailbox=mailbox: self.heard.append(mailbox))


@pytest.fixture
def root(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path


def test_the_others_hear_and_the_sender_too(root):
    clock = Reactor()
    first, second = Process(root, 1, clock), Process(root, 2, clock)
    for process in (first, second):
        process.subscribe(7, 8)
    first.tell([7])
    second.socket.doRead()
    assert first.heard == second.heard == [7]
    second.socket.stop()
    first.tell([8])
    assert first.heard == [7, 8]
    first.socket.stop()
    assert os.listdir(root / "run" / "news") == []
    assert clock.getDelayedCalls() == []


def test_what_was_changed_comes_over_as_it_was_said(root):
    clock = Reactor()
    first, second = Process(root, 1, clock), Process(root, 2, clock)
    changes = [Change(partition_number("primary"), 7, (1 << 63) + 5, frozenset((0, 9, 67108863))),
               Change(partition_number("primary"), 8, 0, frozenset()),
               Change(partition_number("second"), 8, 1, frozenset((1,)))]
    learnt = []
    second.news.learn(partition_number("primary"), learnt.append)
    second.subscribe(7, 8)
    first.tell([7, 8], [*changes, Change(partition_number("primary"), 9, 4, None)])
    second.socket.doRead()
    assert sorted(second.heard) == [7, 8]
    assert learnt == changes[:2]


@pytest.mark.parametrize("octets", [b"", b"\0", b"\0" * 4, b"\0" * 23, b"\0" * 4 + b"\xff" * 24,
                                    b"\7\0\0\0" + b"\0" * 26])
def test_a_datagram_that_is_cut_off_teaches_nothing(root, octets):
    clock = Reactor()
    first, second = Process(root, 1, clock), Process(root, 2, clock)
    second.news.learn(0xFFFFFFFF, lambda change: pytest.fail("it has learnt something"))
    second.subscribe(7)
    first.socket._socket.sendto(octets, first.socket._address("2"))
    second.socket.doRead()
    for process in (first, second):
        process.socket.stop()


def test_one_turn_of_the_loop_is_one_datagram(root, faults):
    """To wake another process costs as much as a small command."""
    clock = Reactor()
    first, second = Process(root, 1, clock), Process(root, 2, clock)
    second.subscribe(7, 8)
    learnt, sent = [], faults.watch(NewsSocket, "_send_to")
    second.news.learn(1, learnt.append)
    changes = [Change(1, 7, before, frozenset((before,))) for before in range(5)]
    for change in changes:
        first.news.tell([7], [change])
    first.news.tell([8])
    clock.advance(0)
    second.socket.doRead()
    assert len(sent) == 1 and learnt == changes and sorted(second.heard) == [7, 8]
    first.news.tell([7])
    first.socket.stop()                     # what was not sent yet is
    second.socket.doRead()
    assert sorted(second.heard) == [7, 7, 8]


def test_a_process_in_which_nobody_listens_is_not_woken(root, faults):
    clock = Reactor()
    first, second = Process(root, 1, clock), Process(root, 2, clock)
    sent = faults.watch(NewsSocket, "_send_to")
    first.tell([7])
    assert sent == [] and os.listdir(root / "run" / "news") == []
    second.subscribe(7)
    first.tell([7])
    second.socket.doRead()
    assert len(sent) == 1 and second.heard == [7]
    for process in (first, second):
        process.socket.stop()
    assert os.listdir(root / "run" / "news") == [] and clock.getDelayedCalls() == []


def test_a_process_that_starts_later_hears_at_once(root):
    clock = Reactor()
    first = Process(root, 1, clock)
    first.tell([1])                    # nobody is there
    second = Process(root, 2, clock)
    second.subscribe(2)
    first.tell([2])
    second.socket.doRead()
    assert second.heard == [2]


def test_what_finds_no_room_is_sent_again(root):
    clock = Reactor()
    first, second = Process(root, 1, clock), Process(root, 2, clock)
    wanted = list(range(1, 2001))           # more datagrams than any buffer is set to hold
    second.subscribe(*wanted)
    for mailbox in wanted:
        first.tell([mailbox])
    second.socket.doRead()
    assert 0 < len(second.heard) < len(wanted)
    for _ in range(3):
        clock.advance(RETRY)
        second.socket.doRead()
    assert sorted(second.heard) == wanted
    clock.advance(RETRY)
    assert len(clock.getDelayedCalls()) == 2            # the polls: nothing is left to send


def test_a_tool_waits_for_room(root, faults):
    clock = Reactor()
    tool, server = Process(root, 1, None), Process(root, 2, clock)
    wanted = list(range(1, 2001))
    server.subscribe(*wanted)
    faults.around(time, "sleep", lambda *_: server.socket.doRead())
    for mailbox in wanted:
        tool.tell([mailbox])
    server.socket.doRead()
    assert sorted(server.heard) == wanted


def test_a_tool_does_not_wait_for_ever(root, faults):
    tool, server = Process(root, 1, None), Process(root, 2, Reactor())
    server.subscribe(1)
    slept = []
    faults.around(time, "sleep", lambda _, seconds: slept.append(seconds))
    while not slept:
        tool.tell([1])
    assert len(slept) == notify.TRIES


def test_a_process_that_is_gone_is_forgotten(root):
    clock = Reactor()
    first, second = Process(root, 1, clock), Process(root, 2, clock)
    for process in (first, second):
        process.subscribe(1)
    second.socket._socket.close()           # as when it is killed: the name stays
    first.tell([1])
    assert sorted(os.listdir(root / "run" / "news")) == ["1"]


def test_listeners_look_without_news(root):
    clock = Reactor()
    process = Process(root, 1, clock)
    wanted = list(range(1, 500))
    process.subscribe(*wanted)
    most = 0
    for _ in range(POLL):
        before = len(process.heard)
        clock.advance(1)
        most = max(most, len(process.heard) - before)
    assert sorted(process.heard) == wanted
    assert most <= len(wanted) // POLL + 1              # not all at the same moment


def test_who_looks_without_news_wakes_only_those_who_are_behind(root):
    """Issue 24: of 20,000 sessions in IDLE 330 were woken each second to find that nothing had changed."""
    clock = Reactor()
    process = Process(root, 1, clock)
    for mailbox in range(1, 500):
        process.news.subscribe(mailbox, lambda mailbox=mailbox: process.heard.append(mailbox),
                               lambda mailbox=mailbox: mailbox in (7, 400))
    for _ in range(POLL):
        clock.advance(1)
    assert sorted(process.heard) == [7, 400]


@pytest.fixture
def boards(faults):
    """Parts of a board for processes of these numbers."""
    handle = changeboard.make(3)

    def board(number):
        faults.around(os, "getpid", lambda _: number)
        return Board(changeboard.Place(handle, number - 1, 3))

    yield board
    os.close(handle)


def test_only_who_may_listen_to_that_mailbox_is_woken(root, faults, boards):
    clock = Reactor()
    first, second, third = (Process(root, number, clock, boards(number)) for number in (1, 2, 3))
    sent = faults.watch(NewsSocket, "_send_to")
    for process, mailbox in ((first, 7), (second, 8), (third, 9)):
        process.subscribe(mailbox)
        for other in (first, second, third):
            other.socket.doRead()               # that it is there
    sent.clear()
    first.tell([7])
    assert sent == [] and first.heard == [7]
    first.tell([8])
    assert len(sent) == 1
    second.socket.doRead()
    assert second.heard == [8] and third.heard == []
    for process in (first, second, third):
        process.socket.stop()
    assert os.listdir(root / "run" / "news") == []


def test_a_process_of_another_server_hears_all(root, boards):
    """One server hands its clients on to the next: for a while there are processes of both."""
    clock = Reactor()
    first, other = Process(root, 1, clock, boards(1)), Process(root, 4, clock)
    first.subscribe(7)
    other.subscribe(8)
    first.socket.doRead()                       # it has said that it is there
    for mailbox in (7, 8):
        first.tell([mailbox])
    other.socket.doRead()
    assert other.heard == [8]
    other.tell([7])
    first.socket.doRead()
    assert first.heard == [7, 7]


def test_who_is_not_woken_finds_what_was_changed(root, boards):
    clock = Reactor()
    first, second = (Process(root, number, clock, boards(number)) for number in (1, 2))
    second.subscribe(8)
    change = Change(1, 7, 5, frozenset((3,)))
    first.tell([7], [change])
    assert second.news.shown(7) == [change] and second.heard == []
