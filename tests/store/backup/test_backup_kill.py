"""Backups and restores that are killed anywhere, and done beside others who change everything."""

import io
import os
import random
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mboxlist.engine.kv import Env
from mboxlist.names import MailboxName
from store.backup import restore
from store.backup.archive import Archive, Scope
from store.backup.creation import Form, Making
from store.backup.folder import Folder
from store.backup.integrity import verify
from store.backup.restore import Choice, Restoring
from store.check.wholecheck import check
from store.delivery.batch import one_by_one
from store.mailboxes.expunge import expunge
from store.mailboxes.flagchanges import change_flags
from store.opening import make_empty_store, open_store
from store.partition.messagefiles import MessageFiles
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.quota import roots
from store.store import Store
from store.values import Flag, FlagAction, Flags
from tests.support.faults.planted import Faults
from tests.support.stores.stores import SMALL, deliver, make_store

KILLS = int(os.environ.get("BACKUP_KILLS", "3"))
USERS = tuple(f"user{number}" for number in range(4))
EVERYTHING = Choice()
FORM = Form(frame=20_000)
STEPS = ((Partition, "transact"), (Env, "flush"), (MessageFiles, "place"), (Staged, "spill"), (Env, "checkpoint"))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    """Many steps, in this thread."""
    faults.around(restore, "Contents", lambda real, partition: real(partition, one_by_one))
    monkeypatch.setattr("store.backup.restore.MAILBOXES_TOGETHER", 2)
    monkeypatch.setattr("store.migration.messageimport.FILES_AT_A_TIME", 5)
    monkeypatch.setattr("store.rebuild.liveloader.ROWS_AT_A_TIME", 10)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = make_store(tmp_path_factory.mktemp("source") / "store", USERS)
    for number in range(40):
        deliver(store, text(number), *{f"user/user{number * step % 4}/INBOX" for step in (1, 3)})
    roots.set_quota(store, "user1", 9 << 20)
    yield store
    store.close()


def text(number: int) -> bytes:
    return b"Subject: number %d\r\n\r\n" % number + random.Random(number).randbytes(2000).hex().encode()


def messages(store: Store) -> dict[str, dict[int, bytes]]:
    found: dict[str, dict[int, bytes]] = {}
    for entry in store.mailboxes.all():
        mailbox = store.open_mailbox(entry)
        inside = found[f"{entry.name} {entry.uidvalidity}"] = {}
        for row in mailbox.rows:
            with store.open_message(entry, row) as file:
                inside[int(row["uid"])] = file.read(0, file.size)
    return found


def counted(work: Callable[[], object], at: int) -> int:
    """Do the work, and be killed at that step; how many there were if not."""
    count = 0

    def step(*_: Any, **__: Any) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    with Faults() as faults:
        for owner, name in STEPS:
            faults.before(owner, name, step)
        work()
    return count


def killed(work: Callable[[], object], at: int) -> bool:
    """Whether a process of its own that does the work was killed at that step."""
    child = os.fork()
    if not child:
        try:
            counted(work, at)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def restore_to(root: Path, archive: Path, choice: Choice = EVERYTHING) -> None:
    if not (root / "mboxlist").is_dir():
        make_empty_store(root)
    store = open_store(root, SMALL)
    done = Restoring(store, [Archive(archive)], choice).run()
    assert done.findings == []
    store.close()


def test_a_restore_that_is_killed_is_finished_by_the_next(source: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with archive.open("wb") as file:
        Making(source, Scope()).write(file.write, FORM)
    steps = counted(lambda: restore_to(tmp_path / "first", archive), 0)
    assert steps > 60
    chance = random.Random(6)
    for number in range(KILLS):
        root = tmp_path / f"root{number}"
        make_empty_store(root)
        kills = 0
        while killed(lambda root=root: restore_to(root, archive), chance.randrange(10, steps)):
            kills += 1
            if kills == 3:
                break
        restore_to(root, archive)
        store = open_store(root, SMALL)
        assert messages(store) == messages(source)      # UIDs and UIDVALIDITYs, too
        partition = store.partitions["primary"]
        assert sum(1 for _ in partition.files.folder.glob("?/??/*")) == 40
        assert roots.quota(store, "user1") == roots.quota(source, "user1")
        assert check(store) == []
        store.close()


def test_a_backup_that_is_killed_is_finished_by_the_next(source: Store, tmp_path: Path) -> None:
    chance = random.Random(5)
    for number in range(KILLS):
        into, left = tmp_path / str(number), chance.randrange(1, 30)

        def put(real: Callable[[bytes], object], data: bytes) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt
            real(data)

        class Killed(Making):
            def write(self, real: Callable[[bytes], object], form: Form = Form()) -> None:      # noqa: B008
                super().write(lambda data: put(real, data), form)

        for _ in range(2):
            try:
                Folder.of(into).backup(lambda previous: Killed(source, Scope(), previous),
                                       Form(part=30_000, frame=20_000))
            except KeyboardInterrupt:
                continue
        chain = Folder.of(into).chain()
        found = verify(chain)
        assert found.findings == [] and found.messages == 40 and Folder.of(into).entries[-1].complete


def test_while_others_deliver_and_expunge(tmp_path: Path) -> None:
    """Whatever the others do, an archive is whole, and what it has of a mailbox was there at one moment."""
    store = make_store(tmp_path / "store", USERS)
    begun, beginning = os.pipe()
    stopped, stopping = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(stopping)
            _change_everything(tmp_path / "store", beginning, stopped)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.read(begun, 1) == b"1"
    archives = []
    for _ in range(5):
        octets = io.BytesIO()
        making = Making(store, Scope())
        making.write(octets.write, FORM)
        assert making.findings == []
        archives.append(octets.getvalue())
        assert os.read(begun, 1) == b"1"
    os.close(stopping)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert check(store) == []
    store.close()
    for number, archive in enumerate(archives):
        path = tmp_path / f"archive{number}"
        path.write_bytes(archive)
        assert verify([Archive(path)]).findings == []
        make_empty_store(tmp_path / f"other{number}")
        other = open_store(tmp_path / f"other{number}", SMALL)
        assert Restoring(other, [Archive(path)], Choice()).run().findings == []
        for inside in messages(other).values():
            numbers = [int(message[16:22]) for message in inside.values()]
            assert numbers == sorted(numbers) and (not numbers or numbers[-1] - numbers[0] < 4 * (len(numbers) + 3))
        assert check(other) == []
        other.close()


def _change_everything(root: Path, beginning: int, stopped: int) -> None:
    store = open_store(root, SMALL)
    os.set_blocking(stopped, False)
    number = 0
    while True:
        for _ in range(10):
            number += 1
            deliver(store, b"Subject: number %06d\r\n\r\n" % number, f"user/user{number % 4}/INBOX", "user/user0/INBOX")
        for user in USERS:
            entry = store.entry(MailboxName(user, "INBOX"))
            uids = store.open_mailbox(entry).rows["uid"][:-8].tolist()
            change_flags(store, entry, uids, FlagAction.ADD, Flags(Flag.DELETED))
            expunge(store, entry, uids)
        os.write(beginning, b"1")
        try:
            if os.read(stopped, 1) == b"":
                break
        except BlockingIOError:
            pass
    store.close()


def test_a_killed_restore_of_a_user_leaves_nothing_in_the_temporary_folder(source: Store, tmp_path: Path,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had of mailboxes, while it looked for their messages, goes with it."""
    archive, temporary, choice = tmp_path / "archive", tmp_path / "temporary", Choice(users=frozenset({"user1"}))
    with archive.open("wb") as file:
        Making(source, Scope()).write(file.write, FORM)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    steps = counted(lambda: restore_to(tmp_path / "first", archive, choice), 0)
    for number in range(KILLS):
        root = tmp_path / f"root{number}"
        make_empty_store(root)
        at = steps * (number + 1) // (KILLS + 1)
        assert killed(lambda root=root: restore_to(root, archive, choice), at)
        assert list(temporary.iterdir()) == []
        restore_to(root, archive, choice)
        store = open_store(root, SMALL)
        expected = {name: inside for name, inside in messages(source).items() if name.startswith("user/user1/")}
        assert messages(store) == expected
        store.close()
