"""The first machine's log is put on disk by the kernel while it is sent to a standby that answers wait for."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import define, field

from mboxlist import privatefiles
from mboxlist.engine.kv import Env
from mboxlist.engine.logfiles import log_name
from mboxlist.engine.transact import Unflushed, transact
from store.standby.source import begunsyncs
from store.standby.source.begunsyncs import BegunSyncs
from store.standby.source.copysource import Source
from store.store import Store
from tests.store.standby.test_ahead import in_step
from tests.support.stores.standbypair import INBOX, Standby
from tests.support.stores.stores import deliver

pytestmark = [pytest.mark.few_folders]

EIO = 5


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Env]:
    with closing(Env(tmp_path, cache=1 << 20, locks=2000, recover=True, broken=lambda: None)) as made:
        made.table("t.db")
        made.flush()
        yield made


@define(slots=False)
class Kernel:
    """In the place of caio's: it says that each sync has ended like that, or takes none."""

    result: int = 0
    refuses: bool = False
    asked: list[int] = field(factory=list)
    fileno: int = field(factory=lambda: os.eventfd(0))
    _ended: list[Callable[[int], None]] = field(factory=list)

    def Context(self, most: int) -> "Kernel":       # noqa: N802
        return self

    Operation = property(lambda self: self)

    def fdsync(self, handle: int) -> "Kernel":
        self.asked.append(handle)
        return self

    def set_callback(self, ended: Callable[[int], None]) -> None:
        self._ended.append(ended)

    def submit(self, operation: "Kernel") -> None:
        if self.refuses:
            raise SystemError
        os.eventfd_write(self.fileno, 1)

    def poll(self) -> None:
        os.eventfd_read(self.fileno)

    def process_events(self) -> None:
        while self._ended:
            self._ended.pop()(self.result)


def grown(env: Env) -> tuple[int, int]:
    """It has something that is not on disk."""
    table = env.table("t.db")
    transact(env, lambda txn: table.put(b"one", bytes(500), txn))
    assert env.log.known < env.log_end()
    return env.log_end()


def begin(syncs: BegunSyncs, env: Env, end: tuple[int, int], folder: Path) -> None:
    with privatefiles.open_file(folder / log_name(end[0])) as file:
        syncs.begin(env.log, end, file.fileno())


def test_what_has_ended_is_on_disk(env: Env, tmp_path: Path) -> None:
    """It is closed before it has: the kernel has the file open itself."""
    syncs = BegunSyncs()
    for _ in range(3):
        end = grown(env)
        begin(syncs, env, end, tmp_path)
        syncs.finish()
        assert env.log.known == end
    begin(syncs, env, env.log.known, tmp_path)          # nothing more to do
    syncs.finish()


def test_nothing_counts_before_it_has_ended(env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, known = Kernel(), list[tuple[int, int]]()
    process = kernel.process_events
    monkeypatch.setattr(begunsyncs, "linux_aio", kernel)
    monkeypatch.setattr(kernel, "process_events", lambda: (known.append(env.log.known), process()))
    syncs, end = BegunSyncs(), grown(env)
    begin(syncs, env, end, tmp_path)
    assert env.log.known < end
    syncs.finish()
    assert len(known) == 1 and known[0] < end == env.log.known


def test_where_the_kernel_does_none_it_takes_a_flush(env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = grown(env)
    for kernel in (None, Kernel(refuses=True)):
        monkeypatch.setattr(begunsyncs, "linux_aio", kernel)
        syncs = BegunSyncs()
        begin(syncs, env, end, tmp_path)
        syncs.finish()
        assert env.log.known < end
    env.flush()
    assert env.log.known == end


def test_a_file_whose_name_may_not_be_on_disk_is_not_synced_alone(
        env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begunsyncs, "linux_aio", kernel := Kernel())
    end = grown(env)
    with closing(Env(tmp_path, cache=1 << 20, locks=2000, recover=False, broken=lambda: None)) as other:
        begin(BegunSyncs(), other, end, tmp_path)       # that process has never flushed
    assert kernel.asked == []


def test_after_a_sync_that_has_failed_no_log_counts(
        env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that were under way each may be the one."""
    monkeypatch.setattr(begunsyncs, "linux_aio", Kernel(result=(1 << 64) - EIO))
    (tmp_path / "two").mkdir()
    with closing(Env(tmp_path / "two", cache=1 << 20, locks=2000, recover=True, broken=lambda: None)) as other:
        other.table("t.db")
        other.flush()
        syncs = BegunSyncs()
        for each, folder in ((env, tmp_path), (other, tmp_path / "two")):
            begin(syncs, each, grown(each), folder)
        with pytest.raises(Unflushed) as raised:
            syncs.finish()
        assert raised.value.errno == EIO
        for each in (env, other):
            with pytest.raises(Unflushed):
                each.flush()
    syncs.finish()


@pytest.mark.long
def test_nobody_hears_of_an_answer_before_it_is_on_disk_here(
        store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """The standby says at once that it has it; that is not heard before the first machine's own sync has ended. (What
    is delivered here is on disk already, and made to be as if it was not.)"""
    standby.create()
    known, hear = list[bool](), Source._hear
    env = store.partitions["primary"].env

    def hears(source: Source, member: object, number: int) -> None:
        known.append(env.log.known >= source._sent[1].get("partitions/primary/index", (0, 0)))
        hear(source, member, number)            # type: ignore[arg-type]

    with in_step(store, standby) as follower:
        ended, finish = threading.Semaphore(0), BegunSyncs.finish

        def finishes(syncs: BegunSyncs) -> None:
            has_begun = syncs._under_way
            finish(syncs)
            if has_begun:
                ended.release()

        monkeypatch.setattr(Source, "_hear", hears)
        monkeypatch.setattr(BegunSyncs, "finish", finishes)
        for number in range(5):
            before = env.log.known
            deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX))
            env.log.known = before
            assert follower.round(0) and ended.acquire(timeout=10)
        assert not follower.round(0)
    assert all(known) and len(known) >= 5
