"""A delivery without an answer comes again: there is one message, and a positive answer. What is sent twice is two."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock

import lmtp.protocol
from lmtp.settings import Settings
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import Unflushed
from mboxlist.names import MailboxName
from store import offload
from store.delivery import durable
from store.delivery.commit import Delivered, Duplicate, Outcome, Target
from store.delivery.durable import Durability
from store.mailboxes.expunge import remove
from store.quota import roots
from store.store import Store
from store.tables import duplicates
from tests.conftest import UnixTime
from tests.support.conversations.wire import Wire
from tests.support.faults.planted import Faults
from tests.support.stores.stores import make_store, reopen_after_crash

ALICE, BOB = MailboxName("alice", "INBOX"), MailboxName("bob", "INBOX")
MAIL = b"Received: from relay.example id 4Xyz\r\nSubject: one\r\n\r\nText\r\n"
HOUR = 3600


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def attempt(store: Store, *names: MailboxName, octets: bytes = MAIL, repeat: int = HOUR) -> list[Outcome]:
    """What a relay does."""
    targets = [Target(store.entry(name), repeat=repeat) for name in names]
    staged = store.stage(targets[0].entry, b"Return-Path: <>\r\nReceived: by us %d\r\n" % time.monotonic_ns())
    staged.write(octets)
    return offload.now(durable.deliver(store, staged, targets))


def count(store: Store, name: MailboxName) -> int:
    return store.status(store.entry(name)).messages


def killed(store: Store) -> Store:
    return reopen_after_crash(store)


def test_after_a_kill_the_relay_tries_again_and_there_is_one(root: Path, unix_time: UnixTime) -> None:
    store = make_store(root)
    assert isinstance(attempt(store, ALICE)[0], Delivered)
    store.partitions["primary"].flush()             # on disk, and the answer did not get out
    store = killed(store)
    unix_time.now += 10
    outcome, = attempt(store, ALICE)
    assert isinstance(outcome, Duplicate) and count(store, ALICE) == 1
    first, second = attempt(store, ALICE, BOB)      # who does not have it gets it
    assert isinstance(first, Duplicate) and isinstance(second, Delivered)
    assert isinstance(attempt(store, BOB)[0], Delivered) and count(store, BOB) == 2      # which was answered
    store.close()


@pytest.mark.parametrize("days", [2, -2])
def test_the_clock_may_be_set_when_the_store_is_there_again(root: Path, unix_time: UnixTime, days: int) -> None:
    """As soon after the start of a machine whose own clock is wrong."""
    store = make_store(root)
    attempt(store, ALICE)
    store.partitions["primary"].flush()
    store = killed(store)
    unix_time.now += days * 86400
    assert isinstance(attempt(store, ALICE)[0], Duplicate) and count(store, ALICE) == 1
    store.close()


def test_what_is_sent_twice_is_two(root: Path, unix_time: UnixTime, faults: Faults) -> None:
    store = make_store(root)
    for _ in range(2):
        assert isinstance(attempt(store, ALICE)[0], Delivered)
    store.partitions["primary"].flush()
    store = killed(store)
    assert isinstance(attempt(store, ALICE, octets=b"Subject: another\r\n\r\n")[0], Delivered)
    assert isinstance(attempt(store, ALICE, repeat=0)[0], Delivered)
    faults.around(duplicates, "steady", lambda real: real() + HOUR + 1)
    assert isinstance(attempt(store, ALICE)[0], Delivered)
    store.close()


def test_what_is_not_there_any_more_comes_again(root: Path) -> None:
    store = make_store(root)
    attempt(store, ALICE)
    store.partitions["primary"].flush()
    store = killed(store)
    remove(store, store.entry(ALICE), [1])
    assert isinstance(attempt(store, ALICE)[0], Delivered) and count(store, ALICE) == 1
    store.close()


def test_long_before_the_kill_it_was_answered(root: Path, unix_time: UnixTime) -> None:
    store = make_store(root)
    unix_time.now -= HOUR
    attempt(store, ALICE)
    unix_time.now += HOUR
    attempt(store, BOB, octets=b"Subject: last\r\n\r\n")
    store.partitions["primary"].flush()
    store = killed(store)
    assert isinstance(attempt(store, ALICE)[0], Delivered) and count(store, ALICE) == 2
    store.close()


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    store = make_store(root)
    yield store
    store.close()


def test_a_flush_that_failed_is_no_answer_and_the_next_try_finds_the_message(store: Store, faults: Faults) -> None:
    attempt(store, ALICE, octets=b"Subject: before\r\n\r\n")
    roots.set_quota(store, "bob", 10)
    faults.fail(Env, "flush", Unflushed(5, os.strerror(5)))
    with pytest.raises(Unflushed):
        attempt(store, ALICE, BOB)
    faults.mend()
    roots.set_quota(store, "bob", 1_000_000)
    alice, bob = attempt(store, ALICE, BOB)
    assert isinstance(alice, Duplicate) and count(store, ALICE) == 2
    assert isinstance(bob, Delivered) and count(store, BOB) == 1       # it had been refused, which nobody heard


def test_a_relay_that_is_gone_before_its_answer_has_delivered_once(store: Store, faults: Faults) -> None:
    clock = Clock()
    factory = lmtp.protocol.factory(store, Settings(), clock)
    said = []
    for gone in (True, False):
        wire = Wire(factory, clock)
        if gone:
            faults.before(Durability, "log", lambda *_, wire=wire: wire.hang_up())
        wire.send(b"LHLO relay\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<alice>\r\nDATA\r\n")
        wire.send(MAIL + b".\r\n")
        said.append(wire.received())
        faults.mend()
    assert b"250 2.0.0" in said[1].split(b"354")[1] and count(store, ALICE) == 1
