"""Syncs that the kernel does: what is answered, and when; what is shared; what fails."""

import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from mboxlist.engine.secondcopy import SecondCopy, State
from mboxlist.engine.transact import Unflushed
from mboxlist.names import MailboxName
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.delivery.durable import durability_of
from store.delivery.severalmessages import deliver_all
from store.errors import Problem, StoreError
from store.mailboxes.flagchanges import change_flags
from store.net import sharedsyncs
from store.net.kernelsyncs import KernelSyncs
from store.net.threads import ReactorThreads
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.support.faults.planted import Faults
from tests.support.stores.stores import SMALL, deliver, make_store
from tools.server.process.reactor import Reactor as ServerReactor

INBOX = MailboxName("alice", "INBOX")


class Reactor:
    """Reads what it was given when it is told to."""

    def addReader(self, reader: KernelSyncs) -> None:
        self.reader = reader

    def run_until(self, done: "Deferred[None]") -> None:
        while not done.called:
            select.select([self.reader.fileno()], [], [])
            self.reader.doRead()


class InHand(KernelSyncs):
    """Syncs that end when the test says so: each with its file and its Deferred."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, Deferred[None]]] = []

    def sync(self, handle: int, ended: Callable[[OSError | None], None]) -> None:
        done: Deferred[None] = Deferred()
        done.addCallbacks(ended, lambda failure: ended(failure.value))
        self.begun.append((os.readlink(f"/proc/self/fd/{handle}"), done))


def synced(kernel: KernelSyncs, handle: int) -> "Deferred[None]":
    done: Deferred[None] = Deferred()
    kernel.sync(handle, lambda failure: done.callback(None) if failure is None else done.errback(failure))
    return done


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Store, InHand]]:
    """A store whose syncs are in our hand, and which has files ready; threads have their own way back."""
    store = make_store(tmp_path / "store", settings=evolve(SMALL, sync="everything"))
    deliver(store, b"Subject: first\r\n\r\n", str(INBOX))
    store.partitions["primary"].serials.make_ready()
    store.partitions["primary"].flush()
    threads, kernel = ReactorThreads(lambda call, *arguments: call(*arguments)), InHand()
    sharedsyncs.attach(store, threads, kernel)
    yield store, kernel
    threads.stop()
    store.close()


def test_the_kernel_syncs(tmp_path: Path) -> None:
    reactor = Reactor()
    kernel = KernelSyncs(reactor)
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x")
        file.flush()
        done = synced(kernel, file.fileno())
        reactor.run_until(done)
    assert done.result is None


def test_what_the_kernel_cannot_sync_fails() -> None:
    reader, writer = os.pipe()
    kernel = KernelSyncs(Reactor())
    done = synced(kernel, writer)                                          # fdatasync(2): EINVAL
    seen: list[OSError] = []
    done.addErrback(lambda failure: seen.append(failure.value))
    os.close(reader)
    os.close(writer)
    assert [error.errno for error in seen] == [errno.EINVAL]


def test_more_than_the_kernel_takes_wait_for_their_turn(tmp_path: Path) -> None:
    reactor = Reactor()
    kernel = KernelSyncs(reactor, most=2)
    with (tmp_path / "file").open("wb") as file:
        all_of_them = [synced(kernel, file.fileno()) for _ in range(9)]
    for done in all_of_them:                                            # also with the file closed by its owner
        reactor.run_until(done)
    assert [done.result for done in all_of_them] == [None] * 9


def test_the_loop_of_a_server_hears_once_of_each_that_has_ended(tmp_path: Path) -> None:
    """EPOLLET in epoll_ctl(2): a signal that nobody reads is told once, and the next one is told, too."""
    loop: Any = ServerReactor()
    kernel = KernelSyncs(loop, most=2)
    reads = []
    kernel.doRead = lambda: reads.append(KernelSyncs.doRead(kernel))
    with (tmp_path / "file").open("wb") as file:
        for count in (1, 9, 1):
            all_of_them = [synced(kernel, file.fileno()) for _ in range(count)]
            while not all(done.called for done in all_of_them):
                loop.doPoll(60)
            assert [done.result for done in all_of_them] == [None] * count
    told = len(reads)
    assert 3 <= told <= 11
    loop.doPoll(0)
    assert len(reads) == told
    loop._poller.close()


def test_without_descriptors_it_is_synced_at_once(tmp_path: Path, faults: Faults) -> None:
    reactor = Reactor()
    kernel = KernelSyncs(reactor, most=1)
    faults.fail(os, "dup", OSError(errno.EMFILE, "no more descriptors"))
    with (tmp_path / "file").open("wb") as file:
        first, second = synced(kernel, file.fileno()), synced(kernel, file.fileno())
        assert second.called and second.result is None
        reactor.run_until(first)
    assert first.result is None


def test_a_change_is_answered_when_the_log_is_on_disk(served: tuple[Store, InHand]) -> None:
    store, kernel = served
    entry = store.entry(INBOX)
    change_flags(store, entry, [1], FlagAction.ADD, Flags(Flag.SEEN))
    first = ensureDeferred(durable.flushed(store, entry))
    (path, done), = kernel.begun
    assert "/index/log." in path and not first.called
    change_flags(store, entry, [1], FlagAction.REMOVE, Flags(Flag.SEEN))
    others = [ensureDeferred(durable.flushed(store, entry)) for _ in range(3)]
    assert len(kernel.begun) == 1                                       # which may not hold what came since
    done.callback(None)
    assert first.called and not any(other.called for other in others) and len(kernel.begun) == 2
    kernel.begun[1][1].callback(None)
    assert all(other.called for other in others)


def test_a_delivery_syncs_its_file_then_the_log(served: tuple[Store, InHand]) -> None:
    store, kernel = served
    staged = store.stage(store.entry(INBOX))
    staged.write(b"Subject: second\r\n\r\nText\r\n")
    answer = ensureDeferred(durable.deliver(store, staged, [Target(store.entry(INBOX))]))
    (path, done), = kernel.begun
    assert "/staging/" in path and Path(path).read_bytes() == b"Subject: second\r\n\r\nText\r\n"
    assert len(store.open_mailbox(store.entry(INBOX)).rows) == 1
    done.callback(None)
    assert "/index/log." in kernel.begun[1][0] and not answer.called
    kernel.begun[1][1].callback(None)
    assert answer.called


def test_a_file_that_cannot_be_synced_is_refused(served: tuple[Store, InHand]) -> None:
    store, kernel = served
    staged = store.stage(store.entry(INBOX))
    staged.write(b"Subject: second\r\n\r\nText\r\n")
    refused: list[object] = []
    ensureDeferred(durable.deliver(store, staged, [Target(store.entry(INBOX))])).addCallback(refused.extend)
    kernel.begun[0][1].errback(OSError(errno.ENOSPC, "no room"))
    outcome, = refused
    assert isinstance(outcome, StoreError) and outcome.problem is Problem.DISK_FULL
    assert len(store.open_mailbox(store.entry(INBOX)).rows) == 1 and len(kernel.begun) == 1


def test_a_log_that_cannot_be_synced_ends_the_process(served: tuple[Store, InHand]) -> None:
    store, kernel = served
    partition = store.partitions["primary"]
    broken: list[bool] = []
    partition.env.broken = lambda: broken.append(True)
    failed: list[BaseException] = []
    durability_of(store).log(partition).addErrback(lambda failure: failed.append(failure.value))  # type: ignore[attr-defined]
    kernel.begun[0][1].errback(OSError(errno.EIO, "lost"))
    assert broken == [True] and isinstance(failed[0], Unflushed) and failed[0].errno == errno.EIO
    partition.env.log.has_failed = False             # so that the store can be closed


def test_what_cannot_be_begun_fails_and_the_next_goes_on(served: tuple[Store, InHand], faults: Faults) -> None:
    store, kernel = served
    partition = store.partitions["primary"]
    faults.fail(InHand, "sync", OSError(errno.EMFILE, "no more descriptors"))
    failed: list[BaseException] = []
    durability_of(store).log(partition).addErrback(lambda failure: failed.append(failure.value))  # type: ignore[attr-defined]
    assert isinstance(failed[0], OSError)
    faults.mend()
    done = durability_of(store).log(partition)
    kernel.begun[0][1].callback(None)
    assert done.called  # type: ignore[attr-defined]


def test_a_standby_goes_away_when_no_thread_can_be_begun(served: tuple[Store, InHand], faults: Faults) -> None:
    """What waited for it cannot be flushed here alone: it has no answer, and the next goes on."""
    class Loop(Clock):
        def addReader(self, reader: SecondCopy) -> None:
            self.reader = reader

        removeReader = addReader

    store, kernel = served
    partition, second = store.partitions["primary"], store.write_freeze.second
    second.serve(Loop())
    second.put(State.WAITING, 0)
    failed: list[BaseException] = []
    durability_of(store).log(partition).addErrback(lambda failure: failed.append(failure.value))  # type: ignore[attr-defined]
    second.put(State.ALONE, 0)
    faults.fail(ReactorThreads, "run", RuntimeError("can't start new thread"))
    second.doRead()
    assert [type(each) for each in failed] == [Unflushed]
    faults.mend()
    done = durability_of(store).log(partition)
    kernel.begun[0][1].callback(None)
    assert done.called  # type: ignore[attr-defined]


def test_files_are_made_ready_when_there_is_a_thread_again(served: tuple[Store, InHand], faults: Faults) -> None:
    store, _ = served
    partition = store.partitions["primary"]
    while partition.files.take_ready() is not None:
        pass
    faults.fail(ReactorThreads, "run", RuntimeError("can't start new thread"))
    durability_of(store).make_ready(partition)
    faults.mend()
    made = threading.Event()
    faults.after(partition.serials, "make_ready", lambda *_: made.set())
    durability_of(store).make_ready(partition)
    assert made.wait(300) and partition.files.ready


def test_a_record_of_the_flush_that_cannot_be_written_turns_no_answer(served: tuple[Store, InHand], faults: Faults
                                                                      ) -> None:
    store, kernel = served
    partition = store.partitions["primary"]
    faults.fail(os, "pwrite", OSError(errno.ENOSPC, "no room"))
    for at in range(3):
        change_flags(store, store.entry(INBOX), [1], FlagAction.ADD if at % 2 else FlagAction.REMOVE, Flags(Flag.SEEN))
        answer = ensureDeferred(durable.flushed(store, store.entry(INBOX)))
        kernel.begun[at][1].callback(None)
        assert answer.called and not isinstance(answer.result, Failure)
    partition.flush()


def test_without_a_thread_for_their_places_messages_are_answered_and_the_next_bring_them_along(
        served: tuple[Store, InHand], faults: Faults) -> None:
    store, kernel = served
    places = []
    faults.fail(ReactorThreads, "start", RuntimeError("can't start new thread"))
    for number in range(2):
        staged = store.stage(store.entry(INBOX))
        staged.write(b"Subject: %d\r\n\r\nText\r\n" % number)
        outcomes: list[object] = []
        ensureDeferred(durable.deliver(store, staged, [Target(store.entry(INBOX))])).addCallback(outcomes.extend)
        for _, done in kernel.begun[-1:]:               # its file
            done.callback(None)
        kernel.begun[-1][1].callback(None)              # the log
        assert [type(outcome) for outcome in outcomes] == [Delivered]
        places.append(staged.files.path(staged.digest))
        if number == 0:
            assert not os.path.exists(places[0])
            faults.mend()
    threads = durability_of(store)._threads             # type: ignore[attr-defined]
    threads.stop()                                      # when all have their places
    assert all(map(os.path.exists, places))


def journalled(served: tuple[Store, InHand], *bodies: bytes) -> list[list[object]]:
    """Deliver messages, of which each goes to the file journal; their outcomes, as they come."""
    store, _ = served
    found: list[list[object]] = []
    for body in bodies:
        staged = store.stage(store.entry(INBOX))
        staged.write(b"Subject: text\r\n\r\n" + body)
        found.append([])
        ensureDeferred(durable.deliver(store, staged, [Target(store.entry(INBOX))])).addCallback(found[-1].extend)
    return found


@pytest.fixture
def with_journal(served: tuple[Store, InHand]) -> tuple[Store, InHand]:
    store, _ = served
    journalling(store)._made()
    return served


def journalling(store: Store) -> "sharedsyncs._Journalling":
    syncs = durability_of(store)
    assert isinstance(syncs, sharedsyncs.SharedSyncs)
    return syncs._journalling(store.partitions["primary"])


def test_messages_that_come_together_share_a_sync_of_the_journal(with_journal: tuple[Store, InHand]) -> None:
    _, kernel = with_journal
    first, second, third = journalled(with_journal, b"1", b"2", b"3")
    (path, done), = kernel.begun
    assert "/staging/journal-" in path
    done.callback(None)                                                 # of the first: the others came after it began
    assert sorted(path.split("/")[-2] for path, _ in kernel.begun[1:]) == ["index", "staging"]
    for _, done in kernel.begun[1:]:
        done.callback(None)
    assert [type(outcome) for outcome in first] == [Delivered] and not second and len(kernel.begun) == 4
    kernel.begun[3][1].callback(None)
    assert [type(outcome) for outcome in (*second, *third)] == [Delivered] * 2
    assert len(kernel.begun) == 4                                       # four syncs, for six of their own


def test_messages_that_the_journal_has_at_the_same_time_share_a_flush_of_the_log(with_journal: tuple[Store, InHand]
                                                                                  ) -> None:
    _, kernel = with_journal
    first, second, third = journalled(with_journal, b"1", b"2", b"3")
    kernel.begun[0][1].callback(None)
    assert "/index/log." in kernel.begun[2][0]
    kernel.begun[2][1].callback(None)                               # of the first alone
    assert first and not (second or third)
    kernel.begun[1][1].callback(None)
    (path, done), = kernel.begun[3:]
    assert "/index/log." in path and not (second or third)
    done.callback(None)
    assert second and third


def test_messages_of_one_command_share_a_sync_of_the_journal(with_journal: tuple[Store, InHand]) -> None:
    store, kernel = with_journal
    entry = store.entry(INBOX)
    messages = []
    for body in (b"1", b"2", b"3"):
        staged = store.stage(entry)
        staged.write(b"Subject: %b\r\n\r\n" % body)
        messages.append((staged, Target(entry, appended=True), None))
    answer = ensureDeferred(deliver_all(store, messages))
    (path, done), = kernel.begun
    assert "/staging/journal-" in path
    done.callback(None)
    kernel.begun[1][1].callback(None)
    assert answer.called and len(kernel.begun) == 2 and len(store.open_mailbox(entry).rows) == 4


def test_a_journal_that_cannot_be_synced_refuses_and_another_comes(with_journal: tuple[Store, InHand]) -> None:
    store, kernel = with_journal
    refused, = journalled(with_journal, b"1")
    kernel.begun[0][1].errback(OSError(errno.EIO, "no"))
    outcome, = refused
    assert isinstance(outcome, StoreError) and outcome.problem is Problem.UNAVAILABLE
    journalled(with_journal, b"2")
    assert "/staging/0" in kernel.begun[1][0]                           # its own file
    kernel.begun[1][1].callback(None)
    kernel.begun[2][1].callback(None)                                   # the log
    store.partitions["primary"].files.drop_staged_names()
    ours = journalling(store)
    ours._next_try = 0.0
    journalled(with_journal, b"3")
    ours._threads.stop()                                                # when it is made
    assert ours._journal is not None and not ours._journal.given_up
    for _, done in kernel.begun[3:]:
        done.callback(None)


def test_what_was_written_to_the_journal_before_its_sync_failed_is_refused_too(with_journal: tuple[Store, InHand]
                                                                               ) -> None:
    """Of each failed write the kernel tells once (fsync(2)): the next sync would say that all is well."""
    store, kernel = with_journal
    first, second, third = journalled(with_journal, b"1", b"2", b"3")
    kernel.begun[0][1].errback(OSError(errno.EIO, "no"))
    assert [isinstance(outcome, StoreError) for outcome in (*first, *second, *third)] == [True] * 3
    assert len(kernel.begun) == 1 and len(store.open_mailbox(store.entry(INBOX)).rows) == 1


def test_a_sync_of_the_journal_that_cannot_be_begun_refuses(with_journal: tuple[Store, InHand], faults: Faults) -> None:
    faults.fail(InHand, "sync", OSError(errno.EMFILE, "no more descriptors"))
    refused, = journalled(with_journal, b"1")
    assert isinstance(refused[0], StoreError)


def test_half_full_all_message_files_are_synced(with_journal: tuple[Store, InHand]) -> None:
    store, kernel = with_journal
    ours = journalling(store)
    assert ours._journal is not None
    ours._journal.octets = 80 << 10
    journalled(with_journal, b"1" * 30_000, b"2" * 30_000)
    ours._threads.stop()                                                # when it is done
    assert not ours._journal.holds
    while kernel.begun:
        kernel.begun.pop(0)[1].callback(None)


def test_a_server_makes_itself_a_journal_at_the_first_message(served: tuple[Store, InHand]) -> None:
    store, kernel = served
    journalled(served, b"1")
    assert "/staging/0" in kernel.begun[0][0]
    journalling(store)._threads.stop()                                  # when it is made
    assert len(list(store.partitions["primary"].files.staging.glob("journal-*"))) == 1
    kernel.begun[0][1].callback(None)
    kernel.begun[1][1].callback(None)


def test_a_partition_that_comes_in_the_place_of_another_has_a_journal_of_its_own(with_journal: tuple[Store, InHand]
                                                                                ) -> None:
    store, _ = with_journal
    syncs, before = durability_of(store), journalling(store)
    assert isinstance(syncs, sharedsyncs.SharedSyncs)

    class Another:
        name = "primary"

    assert syncs._journalling(Another()) is not before                  # type: ignore[arg-type]
