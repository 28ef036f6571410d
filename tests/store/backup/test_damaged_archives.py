"""What is damaged in an archive is told, wherever it is; a flip loses little, and nothing that all of it needs."""

import io
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.backup.archive import Archive, Scope
from store.backup.compression import GZIP, KINDS, NONE, ZSTD
from store.backup.creation import Form, Making
from store.backup.integrity import verify
from store.backup.restore import Choice, Restored, Restoring, passing_store
from store.store import Store
from tests.support.stores import small
from tests.support.stores.stores import deliver, make_store

USERS = ["alice", "bob", "carol"]
MESSAGES = 60
EVERYTHING = Choice()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch:
        small.few_folders(patch.setattr)
        store = make_store(tmp_path_factory.mktemp("backup") / "store", USERS)
        for number in range(MESSAGES):
            body = b"Subject: %d\r\n\r\n" % number + random.Random(number).randbytes(20_000).hex().encode()
            deliver(store, body, f"user/{USERS[number % 3]}/INBOX")
        yield store
        store.close()


@pytest.fixture(scope="module")
def archives(store: Store) -> dict[str, bytes]:
    """By kind."""
    made = {}
    for kind in KINDS:
        octets = io.BytesIO()
        Making(store, Scope()).write(octets.write, Form(kind))
        made[kind] = octets.getvalue()
    return made


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, bytes]]:
    """Archives of a store without a message."""
    with pytest.MonkeyPatch.context() as patch:
        small.few_folders(patch.setattr)
        store = make_store(tmp_path_factory.mktemp("short") / "store", ["alice"])
        made = {}
        for kind in KINDS:
            octets = io.BytesIO()
            Making(store, Scope()).write(octets.write, Form(kind))
            made[kind] = octets.getvalue()
        store.close()
        yield made


def told(octets: bytes) -> list[str]:
    return verify([Archive(None, io.BytesIO(octets).read)]).findings


def flipped(octets: bytes, at: int) -> bytes:
    data = bytearray(octets)
    data[at] ^= 1
    return bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flip_or_a_cut_at_the_end_is_told(short: dict[str, bytes], kind: str) -> None:
    """Issue 23, 3: a flip 56 octets from its end and the last octet cut off were not told."""
    octets = short[kind]
    assert told(octets) == []
    for back in [*range(1, 200), *range(200, 1500, 97)]:
        assert told(octets[:-back]), back
        assert told(flipped(octets, len(octets) - back)), back
    assert told(octets + b"x")


@pytest.mark.parametrize("kind", KINDS)
def test_a_flip_anywhere_is_told(archives: dict[str, bytes], kind: str) -> None:
    octets = archives[kind]
    for at in random.Random(1).sample(range(len(octets)), 12):
        assert told(flipped(octets, at)), at


def restored(octets: bytes, folder: Path, choice: Choice = EVERYTHING) -> tuple[Restored, list[str]]:
    """What a restore to an empty store says, and the users that it has then."""
    folder.mkdir(exist_ok=True)
    path = folder / "archive"
    path.write_bytes(octets)
    with passing_store() as other:
        done = Restoring(other, [Archive(path)], choice).run()
        return done, sorted(account.user for account in other.directory.all()
                            if account.status.value == "active")


@pytest.mark.parametrize("kind", [ZSTD, GZIP])
def test_a_flip_in_the_first_frame_loses_nothing(archives: dict[str, bytes], tmp_path: Path, kind: str,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 23, 3: it lost the accounts, and 278 of 738 messages."""
    small.few_folders(monkeypatch.setattr)
    done, users = restored(flipped(archives[kind], 60), tmp_path)
    assert users == USERS and done.findings
    assert done.messages == MESSAGES


@pytest.mark.parametrize("kind", [ZSTD, GZIP])
def test_a_flip_in_the_middle_loses_a_frame_of_half_a_mebibyte(archives: dict[str, bytes], tmp_path: Path, kind: str,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    small.few_folders(monkeypatch.setattr)
    octets = archives[kind]
    done, users = restored(flipped(octets, len(octets) // 2), tmp_path)
    assert users == USERS and done.findings
    assert done.messages >= MESSAGES - 2 * (512 << 10) // 40_000


def test_a_dry_run_reads_all_contents(archives: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                      ) -> None:
    """Issue 23, 3: what it says would be restored can be."""
    small.few_folders(monkeypatch.setattr)
    octets = archives[NONE]
    assert restored(octets, tmp_path, Choice(dry_run=True))[0].findings == []
    at = octets.index(random.Random(30).randbytes(20_000).hex().encode())
    done, _ = restored(flipped(octets, at + 1000), tmp_path, Choice(dry_run=True))
    assert any("is damaged in the archive" in finding for finding in done.findings)
    assert os.path.getsize(tmp_path / "archive") == len(octets)
