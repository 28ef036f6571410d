"""A command that takes long is told with where the time went, one that does not is not."""

import logging
import math
import time

import pytest
from twisted.internet.task import Clock

from imap import protocol as imap
from imap.settings import Settings as ImapSettings
from store.net.threads import LIMIT, ReactorThreads
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import make_store


@pytest.fixture
def limit(monkeypatch):
    """Sets the limit: below 0 everything is slow."""
    def set_limit(seconds):
        monkeypatch.setattr(LIMIT, "seconds", seconds)
    return set_limit


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
    assert all(line.startswith("command session=") and line.endswith("waited_for_client=0.000") for line in found)


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
    assert line.startswith('work user="ali\\"ce" kind=views waited_for_thread=0.')
