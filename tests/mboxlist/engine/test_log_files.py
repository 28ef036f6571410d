"""The files of the log at their edges: a new one has its name on disk before pages have what is in it, and an end that
a loss of power has left half written is no damage; each is written before it is used."""

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from berkeleydb import db

from mboxlist import privatefiles
from mboxlist.engine import kv, logfiles
from mboxlist.engine.damagemarks import SECTOR, log_files, logs, mark_clean, missing, was_cut
from mboxlist.engine.kv import Env
from mboxlist.engine.logfiles import LogAhead, log_name
from mboxlist.engine.transact import transact
from tests.support.faults.planted import Faults
from tests.support.faults.recorder import Recorder

SIZE = 256 << 10
HEAD = bytes([0x21, 0xFC, 3, 0])        # where the last record of the file before it is


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Env]:
    monkeypatch.setattr(kv, "LOG_FILE", SIZE)
    monkeypatch.setattr(kv, "LOG_BUFFER", 32 << 10)
    env = Env(tmp_path, cache=1 << 20, locks=2000, recover=True, broken=lambda: None)
    env.table("one.db", page=4096)
    env.opened()
    yield env
    env.close()


def test_a_new_log_file_has_its_name_on_disk_before_a_checkpoint_has_pages(env: Env, tmp_path: Path) -> None:
    """Checkpoints at all distances from the end of a file, the last change not flushed."""
    table = env.table("t.db")
    with Recorder(tmp_path) as recorder:
        for number in range(120):
            for more in range(4):
                transact(env, lambda txn, key=bytes([more]), size=1500 + 7 * number: table.put(   # type: ignore[misc]
                    key, bytes(size), txn))
            env.checkpoint()
    nameless, made = "", 0
    for event in recorder.events:
        if event.kind == "create" and event.path.startswith("log."):
            nameless, made = event.path, made + 1
        elif event.kind == "sync folder":
            nameless = ""
        assert not (nameless and event.kind == "sync" and event.path.endswith(".db")), f"{event.path}, {nameless}"
    assert made >= 3


def record(at: int, before: int, size: int) -> bytes:
    """A record of the log as it lies there: where the one before it is, its length, a checksum, and what it says."""
    return before.to_bytes(4, "little") + size.to_bytes(4, "little") + b"\x5a" * (size - 8)


def log(*sizes: int) -> bytes:
    """A log file with these records."""
    found, before = b"", 0
    for size in sizes:
        found, before = found + record(len(found), before, size), len(found)
    return HEAD + found[4:]


def cut(folder: Path, then: bytes, at: int) -> bool:
    """Whether recovery that leaves the newest file so, from `at` on its own, has cut it off."""
    (folder / "log.0000000002").write_bytes(then[:at] + b"\x77" * 300)
    return was_cut(folder, ("log.0000000002", then.rstrip(b"\0")), (2, at + 300))


@pytest.mark.parametrize("sectors", [1, 2])
def test_the_first_write_of_a_file_is_torn(tmp_path: Path, sectors: int) -> None:
    """The record behind the first is not whole: recovery writes both anew."""
    assert not cut(tmp_path, log(28, 1400)[:sectors * SECTOR], 0)


def test_the_first_record_is_damaged(tmp_path: Path) -> None:
    """Whole ones are behind it."""
    assert cut(tmp_path, log(28, 100, 300, 200), 0)


@pytest.mark.parametrize("there", range(1, 8))
def test_a_record_whose_length_lies_in_a_sector_that_is_missing(tmp_path: Path, there: int) -> None:
    """Of its beginning so many octets are there, also when what comes behind the sector is."""
    whole = log(28, SECTOR - 28 - there, 0x507, 300)
    assert not cut(tmp_path, whole[:SECTOR], SECTOR - there)
    assert not cut(tmp_path, whole[:SECTOR] + bytes(SECTOR) + whole[2 * SECTOR:], SECTOR - there)


@pytest.mark.parametrize("length", [7, 1 << 24])
def test_a_length_that_cannot_be(tmp_path: Path, length: int) -> None:
    """In the middle of a sector that is there: no write was missing."""
    whole = bytearray(log(28, 100, 300, 200, 300))
    whole[128 + 4:128 + 8] = length.to_bytes(4, "little")
    assert cut(tmp_path, bytes(whole), 128)


def blocks(log: Path) -> bool:
    """Whether there is a block on the disk for each octet of that file, so that a sync has none to find."""
    return log.stat().st_blocks * 512 >= SIZE


@pytest.fixture
def in_this_thread(faults: Faults) -> None:
    """Each next file of the log is written in the thread that asks for it."""
    faults.around(LogAhead, "begin", lambda _, ahead: ahead.make_next())


@pytest.fixture
def ahead(env: Env, in_this_thread: None) -> Env:
    """An environment whose log is written beforehand."""
    env.write_log_ahead(alone=True)
    return env


def write(env: Env, first: int, last: int) -> dict[bytes, bytes]:
    """Rows on disk, of 2,000 octets each; the log files that there are when each has been flushed."""
    table, rows = env.tables[0], {b"%05d" % number: os.urandom(2000) for number in range(first, last)}
    for key, row in rows.items():
        transact(env, lambda txn, key=key, row=row: table.put(key, row, txn))   # type: ignore[misc]
        env.flush()
    return rows


def killed(env: Env, folder: Path) -> dict[bytes, bytes]:
    """What a start finds in a copy of the environment as it is; it is whole, and goes on."""
    privatefiles.make_folder(folder)
    for path in env.folder.iterdir():
        if path.is_file() and not path.name.startswith("__db."):
            privatefiles.copy(path, folder / path.name)
    assert not missing(folder)
    other = Env(folder, cache=1 << 20, locks=2000, recover=True, broken=lambda: None)
    table = other.table("one.db", page=4096)
    other.opened()
    found = {bytes(key): bytes(row) for key, row in table.scan()}
    assert other.log_end()[0] in (env.log_end()[0], env.log_end()[0] + 1)
    write(other, 90_000, 90_400)
    other.close()
    return found


def test_every_log_file_has_its_blocks_before_it_is_used(ahead: Env, tmp_path: Path) -> None:
    """Else ext4 has extents to convert at a sync, and when it meets an error then, says yes and drops them."""
    for number in range(0, 400, 20):
        write(ahead, number, number + 20)
        files = log_files(tmp_path)
        assert logs(tmp_path) == files[:-1], "the next one is there, and counts for nothing"
        assert all(map(blocks, files))
    assert ahead.log_end()[0] >= 3


def test_a_next_log_file_is_no_damage(ahead: Env, tmp_path: Path) -> None:
    """After a kill, and in a copy."""
    rows = write(ahead, 0, 40)
    assert killed(ahead, tmp_path / "killed") == rows
    rows |= write(ahead, 40, 200)
    assert killed(ahead, tmp_path / "again") == rows


def clean_run(folder: Path, *, ahead: bool, first: int = 0) -> Env:
    """The environment is opened, used, and left clean; by a server (`ahead`), or by another."""
    env = Env(folder, cache=1 << 20, locks=2000, recover=True, broken=lambda: None)
    env.table("one.db", page=4096)
    env.opened()
    if ahead:
        env.write_log_ahead(alone=True)
    write(env, first, first + 2)
    env.checkpoint()
    env.close(clean=True)
    mark_clean(folder)
    return env


@pytest.mark.usefixtures("in_this_thread")
def test_a_clean_end_keeps_what_was_written_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults
                                                       ) -> None:
    """And the next start writes none of it; who is no server cuts it."""
    monkeypatch.setattr(kv, "LOG_FILE", SIZE)
    folder = tmp_path / "env"
    privatefiles.make_folder(folder)
    clean_run(folder, ahead=True)
    zeros: list[int] = []
    faults.before(os, "pwrite", lambda handle, octets, at: any(octets) or zeros.append(at))
    for number in (10, 20):
        clean_run(folder, ahead=True, first=number)
        assert [path.stat().st_size == SIZE and blocks(path) for path in log_files(folder)] == [True, True]
    assert not zeros
    clean_run(folder, ahead=False, first=30)
    assert [path.stat().st_size < 200_000 for path in log_files(folder)] == [True]


@pytest.mark.usefixtures("in_this_thread")
@pytest.mark.parametrize("lost", ["__db.*", "begun"])
def test_a_clean_end_whose_shared_memory_is_gone_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                              lost: str) -> None:
    """As after a new start of the machine: Berkeley DB would overwrite the rest of the file."""
    monkeypatch.setattr(kv, "LOG_FILE", SIZE)
    folder = tmp_path / "env"
    privatefiles.make_folder(folder)
    clean_run(folder, ahead=True)
    for path in folder.glob(lost):
        path.unlink()
    env = Env(folder, cache=1 << 20, locks=2000, recover=True, broken=lambda: None)
    table = env.table("one.db", page=4096)
    env.opened()
    env.write_log_ahead(alone=True)
    assert len(list(table.scan())) == 2
    rows = write(env, 10, 200)
    assert rows.items() <= killed(env, tmp_path / "killed").items()
    env.close()


def test_what_is_no_zero_behind_the_end_is_overwritten(ahead: Env, tmp_path: Path) -> None:
    """Octets of a log that was longer, which recovery could take for records; and a hole, which has no blocks."""
    number, end = ahead.log_end()
    with privatefiles.open_file(tmp_path / log_name(number), "r+b") as file:
        file.seek(end + 5000)
        file.write(b"x")
        file.truncate(SIZE - 100_000)
        file.truncate(SIZE)
    assert not blocks(tmp_path / log_name(number))
    ahead.write_log_ahead(alone=True)
    octets = privatefiles.read(tmp_path / log_name(number))
    assert len(octets) == SIZE and not any(octets[end:]) and blocks(tmp_path / log_name(number))


def test_the_log_is_faster_than_its_zeros(ahead: Env, tmp_path: Path, faults: Faults) -> None:
    """Berkeley DB makes its next file, and the one after it, while zeros are written for it: they are never its."""
    rows = write(ahead, 0, 100)

    def meanwhile(*_: object) -> None:
        faults.around(LogAhead, "begin", lambda *_: None)
        rows.update(write(ahead, 100, 600))

    log_files(tmp_path)[-1].unlink()
    faults.before(LogAhead, "_write", meanwhile)
    assert ahead.log.ahead is not None
    ahead.log.ahead.make_next()
    assert ahead.log_end()[0] >= 4
    assert log_files(tmp_path)[-1].name == log_name(ahead.log_end()[0] + 1)
    assert killed(ahead, tmp_path / "killed") == rows


def test_without_a_thread_the_log_goes_on(tmp_path: Path, faults: Faults) -> None:
    ahead = LogAhead(tmp_path, lambda: (1, 28), SIZE, lambda: None)
    faults.fail(threading.Thread, "start", RuntimeError("can't start new thread"))
    ahead.begin()
    faults.mend()
    ahead.end()
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("in_this_thread")
def test_without_room_the_log_goes_on(env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfiles, "LEFT", 1 << 50)
    env.write_log_ahead(alone=True)
    rows = write(env, 0, 300)
    assert logs(tmp_path) == log_files(tmp_path)
    assert killed(env, tmp_path / "killed") == rows


def are_whole(octets: bytes) -> bool:
    """Whether these are records of the log to their end, each of them as its checksum says: its octets behind the head,
    each after the sum so far times 33, and that with the other two numbers of the head by exclusive or."""
    at = 0
    while at < len(octets):
        (before, length, checksum), found = struct.unpack_from("<III", octets, at), 0
        for octet in octets[at + 12:at + length]:
            found = found * 33 + octet & 0xFFFFFFFF
        if length <= 12 or at + length > len(octets) or found ^ before ^ length != checksum:
            return False
        at += length
    return True


def test_what_has_been_written_is_known(env: Env, tmp_path: Path) -> None:
    """And that what is in memory, of a transaction that is under way, is not: in each process."""
    table = env.table("t.db")
    env.flush()
    end = env.log_end()
    assert env.log.is_written(end) and not env.log.is_written((end[0], end[1] + 1))
    with closing(Env(tmp_path, cache=1 << 20, locks=2000, recover=False, broken=lambda: None)) as other:
        assert other.log.is_written(end)
        txn = env.begin()
        table.put(b"one", bytes(3000), txn)
        later = env.log_end()
        for each in (env, other):
            assert later > end and not each.log.is_written(later) and each.log.is_written(end)
        txn.commit(db.DB_TXN_WRITE_NOSYNC)
        later = env.log_end()
        for each in (env, other):
            assert each.log.is_written(later) and each.log.grown
    assert are_whole((tmp_path / log_name(end[0])).read_bytes()[:later[1]])


def test_what_is_said_to_be_written_can_be_read_while_others_write(env: Env, tmp_path: Path) -> None:
    """In several files, of which each is known once all of it was on disk at a moment."""
    table, stop, files, checked = env.table("t.db"), threading.Event(), set[int](), 0
    pause = threading.Lock()

    def write(first: int) -> None:
        number = first
        while not stop.is_set():
            number += 2
            with pause:
                pass
            transact(env, lambda txn, key=b"%d" % (number % 50), size=number % 3000: table.put(key, bytes(size), txn))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        start = env.log_end()
        while len(files) < 3 or checked < 40:
            end = env.log_end()
            if end[0] == start[0] and env.log.is_written(end):
                with privatefiles.open_file(tmp_path / log_name(end[0])) as file:
                    file.seek(start[1])
                    assert are_whole(file.read(end[1] - start[1]))
                checked += 1
                files.add(end[0])
            elif not env.log.is_written(end):
                with pause:
                    while not env.log.is_written(env.log_end()):
                        env.flush()
            start = end
    finally:
        stop.set()
        for thread in threads:
            thread.join()
