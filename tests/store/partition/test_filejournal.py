"""The file journal: what it has on disk, what a start makes of it, and what happens when the disk does not do it."""

import errno
import hashlib
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mboxlist import privatefiles
from store.errors import Problem, StoreError
from store.partition import filejournal, messagefiles
from store.partition.filejournal import PAGE, FileJournal, replay
from store.partition.messagefiles import MessageFiles
from store.partition.staged import Staged
from tests.support.faults.planted import Faults

TRACE = b"Return-Path: <sender@example.org>\r\n"
OCTETS = 16 * PAGE


@pytest.fixture
def files(tmp_path: Path) -> MessageFiles:
    found = MessageFiles(tmp_path / "primary")
    (tmp_path / "primary").mkdir()
    found.make_folders()
    return found


@pytest.fixture
def journal(files: MessageFiles) -> Iterator[FileJournal]:
    made = FileJournal.make(files, 0xfff, OCTETS)
    files.journal = made
    yield made
    if files.journal is not None:
        files.close()


def received(files: MessageFiles, serial: int, octets: bytes, trace: bytes = TRACE) -> Staged:
    """A message as it is when its content is complete; its empty file had been made ready."""
    files.make_ready([serial])
    assert files.take_ready() == serial
    staged = Staged(files, serial, trace, 1 << 20, named=True)
    staged.write(octets)
    staged.digested()
    return staged


def message(number: int, octets: int = 1000) -> bytes:
    return (b"Subject: %d\r\n\r\n" % number).ljust(octets, b"%d" % (number % 10))


def content(files: MessageFiles, serial: int) -> bytes:
    return Path(files.staged_path(serial)).read_bytes()


def left_without_power(files: MessageFiles, journal: FileJournal) -> None:
    """Of the message files, which were not synced, only the names are left; the process is gone."""
    for serial in files.staged():
        os.truncate(files.staged_path(serial), 0)
    os.close(journal.handle)
    files.journal = None


def test_a_start_writes_what_the_journal_has(files: MessageFiles, journal: FileJournal) -> None:
    for number in range(3):
        assert journal.append(received(files, number, message(number)))
    left_without_power(files, journal)
    assert replay(files.staging) == 3
    assert [content(files, number) for number in range(3)] == [TRACE + message(number) for number in range(3)]
    assert not journal.path.exists() and replay(files.staging) == 0


def test_a_file_of_which_only_a_part_was_written_is_whole_again(files: MessageFiles, journal: FileJournal) -> None:
    assert journal.append(received(files, 1, message(1, 5000)))
    os.close(journal.handle)
    files.journal = None
    Path(files.staged_path(1)).write_bytes(bytes(9000))
    replay(files.staging)
    assert content(files, 1) == TRACE + message(1, 5000)


def test_both_names_of_a_file_are_mended(files: MessageFiles, journal: FileJournal) -> None:
    staged = received(files, 1, message(1))
    assert journal.append(staged)
    files.place(1, staged.digest)
    left_without_power(files, journal)
    replay(files.staging)
    assert Path(files.path(staged.digest)).read_bytes() == TRACE + message(1)


def test_what_has_no_name_in_staging_is_not_made(files: MessageFiles, journal: FileJournal) -> None:
    """It was on disk before the name went (`drop_staged_names`), or nobody wants it."""
    staged = received(files, 1, message(1))
    assert journal.append(staged)
    staged.abort()
    left_without_power(files, journal)
    assert replay(files.staging) == 0 and files.staged() == frozenset()


def test_what_a_process_has_open_is_left_alone(files: MessageFiles, journal: FileJournal) -> None:
    assert journal.append(received(files, 1, message(1)))
    os.truncate(files.staged_path(1), 0)
    assert replay(files.staging) == 0 and journal.path.exists()


@pytest.mark.parametrize("at", [0, 8, 16, 24, 55, 56, 60, 1000, 1100])
def test_a_record_that_was_not_written_to_its_end_counts_for_nothing(files: MessageFiles, journal: FileJournal, at: int
                                                                     ) -> None:
    """Each octet of it counts: the fields before it, the trace header, and the content."""
    for number in (1, 2):
        assert journal.append(received(files, number, message(number, 1200)))
    octet = os.pread(journal.handle, 1, PAGE + at)
    os.pwrite(journal.handle, bytes([octet[0] ^ 1]), PAGE + at)
    left_without_power(files, journal)
    assert replay(files.staging) == 1
    assert content(files, 1) == b"" and content(files, 2) == TRACE + message(2, 1200)


@pytest.mark.parametrize("knows", [False, True])
def test_a_stranger_cannot_write_a_record(files: MessageFiles, journal: FileJournal, knows: bool) -> None:
    """A message with a whole record of other octets in it, at the beginning of a page. Who knew the secret could."""
    victim, secret = message(7), journal._secret if knows else bytes(32)
    forged = filejournal._head(secret, 1, victim, 0, hashlib.blake2b(victim, digest_size=32).digest()) + victim
    assert journal.append(received(files, 2, b"x" * (PAGE - filejournal._HEAD) + forged, b""))
    files.make_ready([1])
    os.pwrite(journal.handle, b"\xff" * 8, PAGE)            # the record around it was written over in part
    left_without_power(files, journal)
    assert replay(files.staging) == knows
    assert content(files, 1) == (victim if knows else b"")


def test_messages_that_are_on_disk_make_room(files: MessageFiles, journal: FileJournal) -> None:
    """15 pages, two for each of these: the eighth does not fit, and its own file is to be synced."""
    last = [journal.append(received(files, number, message(number, 5000))) for number in range(8)]
    assert last == [True] * 7 + [False] and journal.half_full
    assert content(files, 6) == TRACE + message(6, 5000)
    files.drop_staged_names()
    assert not journal.holds and not journal.half_full
    for number in range(8, 14):
        assert journal.append(received(files, number, message(number, 5000)))
    left_without_power(files, journal)
    replay(files.staging)
    assert [content(files, number) for number in range(8, 14)] == [
        TRACE + message(number, 5000) for number in range(8, 14)]


def test_a_journal_that_has_grown_takes_more(files: MessageFiles, journal: FileJournal) -> None:
    for number in range(8):
        journal.append(received(files, number, message(number, 5000)))
    journal.grow()
    assert journal.path.stat().st_size == journal.octets == 2 * OCTETS and not journal.half_full
    for number in range(8, 16):
        assert journal.append(received(files, number, message(number, 5000)))
    assert journal.half_full
    left_without_power(files, journal)
    assert replay(files.staging) == 15          # all but the one that did not fit
    assert content(files, 15) == TRACE + message(15, 5000)


def test_what_comes_during_a_sync_of_all_is_kept(files: MessageFiles, journal: FileJournal, faults: Faults) -> None:
    assert journal.append(received(files, 1, message(1)))
    faults.before(filejournal, "sync_file_system", lambda _: journal.append(received(files, 2, message(2))))
    files.drop_staged_names()
    assert [kept.serial for kept in journal._kept] == [2]


def test_files_are_written_once_more_when_a_sync_of_all_has_failed(files: MessageFiles, journal: FileJournal,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error the pages count as written (fsync(2)): what is on the disk may be anything."""
    failures, synced = [errno.EIO, errno.EIO, errno.EIO, 0], filejournal.sync_file_system

    def fails(folder: int) -> None:
        if number := failures.pop(0):
            os.truncate(files.staged_path(1), 0)
            raise OSError(number, os.strerror(number))
        synced(folder)

    monkeypatch.setattr(filejournal, "sync_file_system", fails)
    assert journal.append(received(files, 1, message(1)))
    with pytest.raises(OSError):
        files.drop_staged_names()
    assert journal.holds
    files.drop_staged_names()
    assert content(files, 1) == TRACE + message(1) and not journal.holds and not failures


def test_names_stay_when_they_are_not_on_disk(files: MessageFiles, journal: FileJournal,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    staged = received(files, 1, message(1))
    assert journal.append(staged)
    files.place(1, staged.digest)

    def fails(folder: int) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(filejournal, "sync_file_system", fails)
        with pytest.raises(OSError):
            files.drop_staged_names()
    assert files.staged() == {1}
    assert files.drop_staged_names() == 1 and files.staged() == frozenset()


def test_two_who_drop_names_at_once_share_them(files: MessageFiles, journal: FileJournal,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Housekeeping, and who settles a journal that is half full."""
    class Shared(deque[int]):
        def popleft(self) -> int:
            if len(self) == 2:
                super().popleft()           # the other one has taken it
            return super().popleft()

    for number in range(3):
        staged = received(files, number, message(number))
        assert journal.append(staged)
        files.place(number, staged.digest)
    monkeypatch.setattr(files, "_placed", Shared(files._placed))
    assert files.drop_staged_names() == 2 and files.staged() == {1}


def test_a_journal_that_cannot_be_written_is_given_up(files: MessageFiles, journal: FileJournal,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(handle: int, octets: bytes, at: int) -> int:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails)
        staged = received(files, 1, message(1))
        assert not journal.append(staged)
    staged.sync()                                                               # for itself
    assert journal.given_up and content(files, 1) == TRACE + message(1)
    assert not journal.append(received(files, 2, message(2)))


def test_a_file_is_written_while_the_disk_has_the_journal(files: MessageFiles, journal: FileJournal) -> None:
    """Whoever settles then does not take the message for one whose file is on disk."""
    def begin() -> None:
        assert content(files, 1) == b""
        journal.settle()

    assert journal.append(received(files, 1, message(1)), begin)
    assert content(files, 1) == TRACE + message(1) and journal.holds


def test_of_a_file_that_cannot_be_written_nobody_gets_the_serial(files: MessageFiles, journal: FileJournal,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal has a message under it: a start would write that to the file."""
    def fails(path: str, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, "no")

    staged = received(files, 1, message(1))
    with monkeypatch.context() as patch, pytest.raises(StoreError):
        patch.setattr(privatefiles, "open_handle", fails)
        journal.append(staged)
    staged.abort()
    assert files.take_ready() is None and not journal.holds and not os.path.exists(files.staged_path(1))
    files.close()
    assert replay(files.staging) == 0


def test_what_was_written_in_parts_is_not_for_the_journal(files: MessageFiles, journal: FileJournal) -> None:
    files.make_ready([1])
    assert files.take_ready() == 1
    staged = Staged(files, 1, TRACE, 1 << 20, named=True)
    staged.write(message(1))
    staged.spill()
    staged.write(message(2))
    staged.digested()
    assert not journal.append(staged)


def test_a_clean_end_leaves_no_journal(files: MessageFiles, journal: FileJournal) -> None:
    assert journal.append(received(files, 1, message(1)))
    files.drop_staged_names()
    files.close()
    assert not journal.path.exists()


def test_what_is_closed_takes_nothing_and_closes_nothing_else(files: MessageFiles, journal: FileJournal) -> None:
    files.close()
    with open(files.staging / "other", "wb") as other:          # which gets its descriptor
        assert not journal.append(received(files, 1, message(1)))
        journal.close()
        os.fstat(other.fileno())
    assert (files.staging / "other").stat().st_size == 0


def test_an_end_with_messages_that_are_not_on_disk_leaves_it(files: MessageFiles, journal: FileJournal) -> None:
    assert journal.append(received(files, 1, message(1)))
    files.close()
    assert journal.path.exists() and replay(files.staging) == 1


def test_without_room_there_is_none(files: MessageFiles, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "volume", lambda: (9 * OCTETS, 0))
    with pytest.raises(StoreError) as refused:
        FileJournal.make(files, 5, OCTETS)
    assert refused.value.problem is Problem.DISK_FULL and not list(files.staging.iterdir())


def test_one_that_is_half_made_is_nothing(files: MessageFiles) -> None:
    (files.staging / "journal-0000000000000005").write_bytes(struct.pack("<QQQ", 1, 10, 0) + bytes(8000))
    files.make_ready([1])
    assert replay(files.staging) == 0 and not list(files.staging.glob("journal-*"))


def test_it_is_for_nobody_else(files: MessageFiles, journal: FileJournal) -> None:
    assert journal.path.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_read_is_kept_aside(files: MessageFiles, journal: FileJournal, faults: Faults,
                                           caplog: pytest.LogCaptureFixture) -> None:
    """A bad sector, or a cable: the rest counts, and of the message that is there nothing is thrown away."""
    for number in (1, 2):
        assert journal.append(received(files, number, message(number)))
    left_without_power(files, journal)
    faults.fail(os, "pread", OSError(errno.EIO, "bad sector"), lambda handle, octets, at: at == PAGE)
    assert replay(files.staging) == 1 and content(files, 2) == TRACE + message(2)
    faults.mend()
    aside, = (files.staging.parent / "set-aside").glob("*/staging/journal-*")
    assert not list(files.staging.glob("journal-*")) and str(aside) in caplog.text
    aside.rename(files.staging / aside.name)
    replay(files.staging)
    assert content(files, 1) == TRACE + message(1)


def test_who_grows_hears_of_no_failed_write_in_place_of_who_syncs(files: MessageFiles, journal: FileJournal,
                                                                  faults: Faults) -> None:
    """Each open file hears of a failed write once (fsync(2)). And one that is closed meanwhile is written by nobody."""
    used: list[int] = []

    def seen(real: Callable[[int], None], handle: int) -> None:
        used.append(handle)
        real(handle)

    faults.around(os, "fsync", seen)
    journal.grow()
    assert used and journal.handle not in used and journal.octets == 2 * OCTETS


def test_what_was_closed_meanwhile_settles_nothing(files: MessageFiles, journal: FileJournal) -> None:
    """Its descriptors may be another file's, of another file system: the names stay."""
    staged = received(files, 1, message(1))
    assert journal.append(staged)
    files.place(1, staged.digest)
    journal.close()
    with pytest.raises(OSError):
        files.drop_staged_names()
    assert files.staged() == {1}


def test_nobody_closes_it_while_it_settles(files: MessageFiles, journal: FileJournal, faults: Faults) -> None:
    closing = threading.Thread(target=journal.close)
    assert journal.append(received(files, 1, message(1)))
    volume = journal._volume

    def still_open(handle: int) -> None:
        closing.start()
        closing.join(0.05)
        assert handle == volume and os.path.samestat(os.fstat(handle), os.stat(files.staging))

    faults.before(filejournal, "sync_file_system", still_open)
    files.drop_staged_names()
    closing.join()
    assert not journal.path.exists()


def test_what_comes_in_place_of_a_lost_file_is_on_disk_itself(files: MessageFiles, journal: FileJournal, faults: Faults
                                                              ) -> None:
    """Its record names the lost file, so its own staged name goes, and with that the help of the journal."""
    lost, staged = received(files, 1, message(1)), received(files, 2, message(1))
    assert journal.append(staged)
    synced: list[str] = []
    faults.before(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    files.put_back(staged.digest, staged.serial, lost.serial)
    assert files.staged_path(2) in synced


def test_the_name_of_a_message_of_another_process_is_left_to_that(files: MessageFiles) -> None:
    """Its file may be in that one's journal only."""
    staged = received(files, 1, message(1))
    staged.sync()
    files.place(1, staged.digest, own=False)
    assert files.drop_staged_names() == 0 and files.staged() == {1}


@pytest.mark.parametrize("journalled", [True, False])
def test_names_are_given_once_more_when_a_sync_of_all_has_failed(files: MessageFiles, journal: FileJournal,
                                                                 faults: Faults, journalled: bool) -> None:
    """The folders of messages count as written after an error, too (fsync(2)), and the staged names go after the next
    sync: the message would be lost with the power."""
    if not journalled:
        files.journal = None
    staged = received(files, 1, message(1))
    assert journal.append(staged) if journalled else staged.sync() is None
    files.place(1, staged.digest)
    failures, given = [OSError(errno.EIO, "no")] * 2, list[str]()

    def fails(*_: object) -> None:
        if failures:
            raise failures.pop()
        given.append("sync")

    for module in (filejournal, messagefiles):
        faults.before(module, "sync_file_system", fails)
    faults.before(os, "link", lambda source, final, **_: given.append(final))
    for _ in range(1 if journalled else 2):
        with pytest.raises(OSError):
            files.drop_staged_names()
    given.clear()
    assert files.drop_staged_names() == 1 and files.staged() == frozenset()
    assert given[-1] == "sync" and files.path(staged.digest) in given
    assert Path(files.path(staged.digest)).read_bytes() == TRACE + message(1)
    given.clear()
    files.drop_staged_names()
    assert files.path(staged.digest) not in given
    files.journal = journal


def test_a_name_that_could_not_be_given_once_more_is_not_forgotten(files: MessageFiles, journal: FileJournal,
                                                                   faults: Faults) -> None:
    """It has been taken away by then: with the staged name the file would go."""
    staged = received(files, 1, message(1))
    assert journal.append(staged)
    files.place(1, staged.digest)
    failures = [OSError(errno.EIO, "no")] * 2

    def fails(*_: object, **__: object) -> None:
        if failures:
            raise failures.pop()

    faults.before(filejournal, "sync_file_system", fails)
    faults.before(os, "link", fails)
    with pytest.raises(OSError):
        files.drop_staged_names()
    assert not failures and files.drop_staged_names() == 1 and files.staged() == frozenset()
    assert Path(files.path(staged.digest)).read_bytes() == TRACE + message(1)


@pytest.mark.parametrize("journalled", [True, False])
def test_what_is_written_during_a_sync_that_fails_is_written_once_more(
        files: MessageFiles, journal: FileJournal, faults: Faults, journalled: bool) -> None:
    """What has failed may have been this file, or its name: the next sync, which goes well, does not say so (fsync(2)).
    """
    if not journalled:
        files.journal = None
    earlier, late = (received(files, number, message(number)) for number in (1, 2))
    given = list[str]()

    def write(staged: Staged) -> None:
        assert journal.append(staged) if journalled else staged.sync() is None
        files.place(staged.serial, staged.digest)

    def fails(*_: object) -> None:
        write(late)
        if journalled:
            os.truncate(files.staged_path(2), 0)
        faults.before(os, "link", lambda source, final, **_: given.append(final))
        raise OSError(errno.EIO, "no")

    write(earlier)
    faults.first(filejournal if journalled else messagefiles, "sync_file_system", fails)
    if not journalled:
        with pytest.raises(OSError):
            files.drop_staged_names()
    while files.staged():
        files.drop_staged_names()
    assert {files.path(earlier.digest), files.path(late.digest)} <= {*given}
    assert Path(files.path(late.digest)).read_bytes() == TRACE + message(2)
    files.journal = journal


def test_what_was_let_go_is_given_no_name_once_more(files: MessageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    files.make_ready([1])
    files.let_go(1)
    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(messagefiles, "sync_file_system", fails)
        files.drop_staged_names()
    assert files.drop_staged_names() == 1 and not os.path.exists(files.staged_path(1))


def test_a_name_in_staging_that_a_failed_sync_may_have_lost(files: MessageFiles, faults: Faults) -> None:
    """Whoever gave one before the failure is refused, although the next sync says that all is well."""
    since = files.failed_syncs
    files.sync_names(since)
    faults.first(os, "fsync", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
    for _ in range(2):
        with pytest.raises(StoreError) as refused:
            files.sync_names(since)
        assert refused.value.problem is Problem.UNAVAILABLE
    files.sync_names(files.failed_syncs)
