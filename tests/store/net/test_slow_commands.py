"""A command that takes long is told with where the time went, one that does not is not."""

import logging
import math
import re
import time
from queue import Queue

import pytest
from twisted.internet.task import Clock

from imap import protocol as imap
from imap.settings import Settings as ImapSettings
from lmtp import protocol as lmtp
from lmtp.settings import Settings as LmtpSettings
from pop3 import protocol as pop3
from pop3.settings import Settings as Pop3Settings
from store.delivery.durable import durability_of
from store.net import sharedsyncs
from store.net.threads import ReactorThreads
from store.observing.loglines import LIMIT
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import deliver, make_store


@pytest.fixture
def limit(caplog):
    """Sets the limit: below 0 everything is slow. Whatever the level is that another test has left."""
    caplog.set_level(logging.DEBUG, "slow")
    yield lambda seconds: LIMIT.follow(seconds, None)
    LIMIT.follow(math.inf, None)


@pytest.fixture
def store(tmp_path):
    made = make_store(tmp_path / "store")
    yield made
    made.close()


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "slow"]


@pytest.mark.parametrize(("seconds", "told"), [(-1.0, ["LOGIN", "UID FETCH"]), (math.inf, []), (60.0, [])])
def test_a_command_of_imap(store, limit, caplog, seconds, told):
    clock = Clock()
    wire = Wire(imap.factory(store, ImapSettings(plaintext_login=True), clock), clock)
    limit(seconds)
    wire.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\nc UID FETCH 1:* FLAGS\r\nd IDLE\r\nDONE\r\n")
    assert b"d OK" in wire.received()
    found = said(caplog)
    assert [name for name in told if any(f'command="{name}" seconds=0.' in line for line in found)] == told
    assert bool(found) == bool(told) and not any("IDLE" in line or "secret" in line for line in found)
    assert all(line.startswith("command session=") and "waited_for_flush=0.000" in line for line in found)


class Elsewhere:
    """Threads whose results come when the test says so."""

    def __init__(self, store):
        self.results = Queue()
        self.threads = ReactorThreads(lambda *result: self.results.put(result))
        store.partitions["primary"].serials.make_ready()    # or its result would be among these
        sharedsyncs.attach(store, self.threads)
        syncs = durability_of(store)
        syncs._journalling(store.partitions["primary"])._next_try = math.inf    # nor is a file journal made

    def goes_on(self, clock, seconds):
        """The next thing that is waited for has taken so long."""
        clock.advance(seconds)
        function, *arguments = self.results.get(timeout=180)
        function(*arguments)


@pytest.fixture
def elsewhere(store):
    """Makes them."""
    made = []
    yield lambda: made.append(Elsewhere(store)) or made[-1]
    for each in made:
        each.threads.stop()


def slow_line(caplog):
    """The parts of the one line about a command. (Threads may be slow, too.)"""
    line, = [each for each in said(caplog) if each.startswith("command ")]
    return dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))


MESSAGE = b"From: a@example.org\r\nMessage-ID: <a\"\\@b>\r\n\r\nsecret\r\n"


def test_a_delivery_says_what_it_waited_for(store, elsewhere, limit, caplog):
    clock, threads = Clock(), elsewhere()
    wire = Wire(lmtp.factory(store, LmtpSettings(), clock), clock)
    wire.send(b"LHLO x\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<alice>\r\nDATA\r\n")
    clock.advance(30)               # which the relay takes
    limit(0.7)
    wire.send(MESSAGE + b".\r\n")
    threads.goes_on(clock, 0.25)    # the file is on disk
    threads.goes_on(clock, 0.5)     # and the log
    wire.settle()
    assert b"Delivered" in wire.received()
    found = slow_line(caplog)
    assert (found["service"], found["command"], found["seconds"]) == ("lmtp", '"DATA"', "0.750")
    assert {name: value for name, value in found.items() if name.startswith("waited") and value != "0.000"} == {
        "waited_for_disk": "0.250", "waited_for_flush": "0.500"}
    assert found["session"] == wire.protocol.id and "secret" not in caplog.text
    wire.send(b"QUIT\r\n")
    assert slow_line(caplog) == found


def test_a_quit_of_pop3_says_what_it_waited_for(store, elsewhere, limit, caplog):
    deliver(store, MESSAGE, "user/alice/INBOX")
    clock = Clock()
    wire = Wire(pop3.factory(store, Pop3Settings(plaintext_login=True), clock), clock)
    wire.send(b"USER alice\r\nPASS secret\r\nDELE 1\r\n")
    assert b"-ERR" not in wire.received()
    threads = elsewhere()
    limit(0.4)
    wire.send(b"QUIT\r\n")
    seconds = 0
    while b"+OK" not in (answer := wire.received()):
        assert b"-ERR" not in answer
        threads.goes_on(clock, 0.5)
        wire.settle()
        seconds += 0.5
    found = slow_line(caplog)
    assert (found["service"], found["command"], found["user"], float(found["seconds"])) == (
        "pop", '"QUIT"', '"alice"', seconds)
    assert float(found["waited_for_flush"]) == 0.5
    assert sum(float(value) for name, value in found.items() if name.startswith("waited")) == seconds


@pytest.mark.parametrize("fails", [False, True])
def test_work_in_a_thread_says_how_long_it_waited_for_the_thread(limit, caplog, fails):
    limit(-1.0)
    caplog.set_level(logging.WARNING)
    threads = ReactorThreads(lambda function, *arguments: function(*arguments))

    def work():
        if fails:
            raise OSError("not now")
        return time.monotonic()

    for kind in ("views", "housekeeping"):
        threads.run(kind, work, user="ali\"ce").addErrback(lambda _: None)
    threads.stop()
    line, = said(caplog)
    assert line.startswith('work user="ali\\"ce" thread=views waited_for_thread=0.')
