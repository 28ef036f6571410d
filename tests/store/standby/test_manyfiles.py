"""Many message files come to a standby together, and each is on disk before anything tells of it."""

import errno
import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from store.check.wholecheck import check
from store.partition.messagefiles import SPARE, MessageFiles
from store.standby import filecopies, following
from store.standby.source import quickanswers
from store.standby.source.instep import InStep
from store.store import Store
from tests.support.stores.standbypair import HOST, INBOX, Standby, is_equal, promoted
from tests.support.stores.stores import deliver

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@pytest.mark.parametrize(("waited", "files", "in_one"), [
    (False, 4_000, True), (False, 11, False), (True, 4_000, False)])
def test_much_comes_in_one_answer_where_nobody_waits(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch,
                                                     waited: bool, files: int, in_one: bool) -> None:
    """As many message files as its fields have room for; else, and where answers wait for the standby, what does not
    fit is asked for file by file. It is whole in either way, also when only the journal has it."""
    needed, asked = following.FileCopies.needed, list[bytes]()

    def ask(copies: following.FileCopies, digests: Iterable[bytes]) -> list[bytes]:
        asked.extend(digests)
        return needed(copies, asked)

    monkeypatch.setattr(quickanswers, "QUICK_FILES", files)
    monkeypatch.setattr(following.FileCopies, "needed", ask)
    standby.create()
    second = store.write_freeze.second
    standby.group = InStep.of(second, [HOST], waited=[HOST] if waited else [], refuse=False)
    try:
        with second.exempt(), standby.following() as follower:
            while follower.round(0):
                pass
            for number in range(12):
                deliver(store, b"Subject: %d\r\n\r\n%b\r\n" % (number, b"x" * 40_000), str(INBOX))
            assert follower.round(0)
            assert (not asked) is in_one
    finally:
        standby.group.close()
        second.forget()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_a_message_file_that_is_there_in_another_form_is_replaced(store: Store, standby: Standby) -> None:
    """What was cut off while it was written: and a copy for reading, which is a link, keeps what it has."""
    standby.create()
    with standby.following() as follower:
        while follower.round(0):
            pass
        known = {digest for digest, _ in store.partitions["primary"].refs.all()}
        deliver(store, b"Subject: cut off\r\n\r\n", str(INBOX))
        digest, = {digest for digest, _ in store.partitions["primary"].refs.all()} - known
        path, copy = Path(MessageFiles(standby.root / "partitions" / "primary").path(digest)), standby.root / "copy"
        path.write_bytes(b"Subj")
        os.link(path, copy)
        while follower.round(0):
            pass
        follower.finish()
    assert copy.read_bytes() == b"Subj"
    copy.unlink()
    with closing(promoted(standby)) as other:
        is_equal(store, other)


def test_many_message_files_are_on_disk_before_they_have_their_names(store: Store, standby: Standby,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a loss of power may leave one with its length and its time, and not its octets: it would be taken for whole.
    The names are on disk before the log that tells of them; and when the disk is full, nothing is left of it."""
    monkeypatch.setattr(quickanswers, "QUICK_OCTETS", 0)
    standby.create()
    place, seen, sync = standby.root / "partitions" / "primary" / "messages", list[tuple[int, int]](), os.fsync

    def files() -> tuple[int, int]:
        there = [path.name for path in place.rglob("*") if path.is_file()]
        return sum(name.endswith(SPARE) for name in there), sum(not name.endswith(SPARE) for name in there)

    before = files()
    for number in range(12):
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX))
    with monkeypatch.context() as patched, standby.following() as follower:
        def full(handle: int) -> None:
            seen.append(files())
            raise OSError(errno.ENOSPC, "No space left on device")

        patched.setattr(filecopies, "sync_file_system", full)
        with pytest.raises(OSError, match="No space"):
            follower.round(0)
    assert (seen, files()) == ([(12, before[1])], before)
    with monkeypatch.context() as patched, standby.following() as follower:
        patched.setattr(filecopies, "sync_file_system", lambda folder: seen.append(files()))
        patched.setattr(os, "fsync", lambda handle: (seen.append(files()), sync(handle)))
        assert follower.round(0)
    assert list(dict.fromkeys(seen[1:])) == [before, (12, before[1]), (0, before[1] + 12)]
    with closing(promoted(standby)) as other:
        is_equal(store, other)


@pytest.mark.parametrize(("files", "killed"), [(1, True), (12, False)])
def test_a_name_is_on_disk_when_it_was_given_by_one_who_was_cut_off(store: Store, standby: Standby,
                                                                    monkeypatch: pytest.MonkeyPatch, files: int,
                                                                    killed: bool) -> None:
    """After a sync of the names that failed the next one says nothing (fsync(2)), so they are given again; and who was
    killed before it leaves files that are here as they are there."""
    monkeypatch.setattr(quickanswers, "QUICK_OCTETS", 0)
    standby.create()
    place, synced, sync = standby.root / "partitions" / "primary" / "messages", set[Path](), filecopies.sync_folder
    before = {path for path in place.rglob("*") if path.is_file()}
    for number in range(files):
        deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX))

    def sync_all(folder: int | Path) -> None:
        if isinstance(folder, Path):
            synced.update(path.parent for path in place.rglob("*"))

    def one(folder: Path) -> None:
        sync(folder)
        synced.add(folder)

    def fails(folder: int | Path) -> None:
        if isinstance(folder, Path) and place in folder.parents:
            raise KeyboardInterrupt if killed else OSError(errno.EIO, "no")

    with monkeypatch.context() as patched, standby.following() as follower:
        patched.setattr(filecopies, "sync_folder", fails)
        patched.setattr(filecopies, "sync_file_system", lambda folder: isinstance(folder, int) or fails(place / "0"))
        with pytest.raises(KeyboardInterrupt if killed else OSError):
            follower.round(0)
    left = {path for path in place.rglob("*") if path.is_file()} - before
    assert len(left) == (files if killed else 0)
    with monkeypatch.context() as patched, standby.following() as follower:
        patched.setattr(filecopies, "sync_folder", one)
        patched.setattr(filecopies, "sync_file_system", sync_all)
        assert follower.round(0)
    assert {path.parent for path in place.rglob("*") if path.is_file() and path not in before} <= synced
    with closing(promoted(standby)) as other:
        is_equal(store, other)
