"""The files of the log at their edges: a new one has its name on disk before pages have what is in it, and an end that
a loss of power has left half written is no damage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mboxlist.engine import kv
from mboxlist.engine.damagemarks import SECTOR, was_cut
from mboxlist.engine.kv import Env
from mboxlist.engine.transact import transact
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
