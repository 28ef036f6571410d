"""Every kind of fault that files and folders can have, at every place of a store: found once, mended by the command
that is named, and clean after it.

What is where, and what it is to be: docs/architecture.md, "What is on disk"; modes and owner: docs/administration.md.
"""

import os
import shutil
import socket
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from mboxlist.setaside import ASIDE
from store.check import layout
from store.check.scrub import Pace, Scrubbed, scrub_all
from store.check.wholecheck import check, look_at_layout
from store.mend import orphans
from store.userarea import idxfile, idxreading, writing
from tests.support.stores import small
from tests.support.stores.stores import deliver, make_store, reopen
from tools.cli import program
from tools.spark.rebuild.localplan import Local
from tools.spark.verify.verifyjob import verify

ONE, TWO = b"Subject: one\r\n\r\nhello\r\n", b"Subject: two\r\n\r\nhello\r\n"
OWNER = os.geteuid(), os.getegid()


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with two messages, each in its place, and every store.idx written."""
    small.few_folders(monkeypatch.setattr)
    store = make_store(tmp_path / "store")
    deliver(store, ONE, "user/alice/INBOX", "user/bob/INBOX")
    deliver(store, TWO, "user/alice/INBOX")
    store.partitions["primary"].files.drop_staged_names()
    writing.write_changed(store, hurry=True)
    (store.root / "snapshots").mkdir(mode=0o700)
    (store.root / "tls").mkdir(mode=0o700)
    assert check(store) == [] == look_at_layout(store.root)
    yield store
    store.close()


# What is planted, at a path

def a_folder(path: Path) -> None:
    path.mkdir(0o700)
    (path / "within").write_text("kept")


def a_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def a_lost_link(path: Path) -> None:
    path.symlink_to("nowhere")


def a_pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def a_socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)         # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def a_file(path: Path) -> None:
    path.write_bytes(b"kept")
    path.chmod(0o600)


KINDS = (a_folder, a_link, a_lost_link, a_pipe, a_socket)
STRANGE = {                     # names that nothing of a store has, by where they are
    "partitions/primary/messages": "extra", "partitions/primary/messages/a": "zzz",
    "partitions/primary/staging": "README", "partitions/primary/users": "Notes", "partitions/primary/users/0c": "notes",
    "partitions/primary/index": "Copy of state.db", "mboxlist": ".hidden", "snapshots": "yesterday.tar",
    "run": ".trace",
}


def message_path(store, body=ONE) -> Path:
    entry = store.entry(MailboxName("alice", "INBOX"))
    row = store.open_mailbox(entry).rows[0 if body == ONE else 1]
    return Path(store.partitions["primary"].files.path(bytes(row["digest"])))


def idx_path(store) -> Path:
    return store.partitions["primary"].user_folder("alice") / idxfile.NAME


def found(store) -> list[tuple[str, str]]:
    """What the check says: where, and the command that it names, which the program knows."""
    findings = check(store)
    for finding in findings:
        program.parse(finding.repair.split())
    return [(finding.where, finding.repair) for finding in findings]


def aside(store) -> list[Path]:
    return sorted(path for top in (store.root, store.partitions["primary"].folder)
                  for path in top.glob(f"{ASIDE}/*/**/*") if not path.is_dir() or list(path.iterdir()))


def test_something_else_in_the_place_of_a_message_file(store, tmp_path):
    """Issue 23, 3: a folder where a message file belongs ended the whole verification, without its path."""
    path, partition = message_path(store), store.partitions["primary"]
    content = path.read_bytes()
    for plant in KINDS:
        path.unlink()
        plant(path)
        assert found(store) == [(str(path), "check --repair")], plant
        scrubbed = Scrubbed()
        for _ in scrub_all([partition], Pace(), scrubbed, first=0, sweep=True, stop=lambda: False):
            pass
        told = [finding for finding in scrubbed.findings if finding.what != "the folder is missing"]    # few are made
        assert [(finding.where, finding.repair) for finding in told] == [(str(path), "check --repair")]
        assert verified(store, tmp_path / plant.__name__) == [(str(path), "check --repair")], plant
        assert not orphans.take_in(store, partition).corrections
        assert os.path.lexists(path)
        done = layout.repair(store.root, OWNER)
        assert [old for old, _ in done.aside] == [path] and not done.left and os.path.lexists(done.aside[0][1])
        assert [finding.what for finding in check(store)] == ["its file is missing"]
        deliver(store, ONE, "user/bob/INBOX")                                             # it comes again
        partition.files.drop_staged_names()
        writing.write_changed(store)
        assert path.read_bytes() == content and check(store) == []


def verified(store, folder: Path) -> list[tuple[str, str]]:
    """What a verification says that also reads every file."""
    return [(fault.where, fault.repair) for fault in verify(store.root, folder, Local(), store).own]


def test_something_else_in_the_place_of_a_message_that_comes_again(store):
    path = message_path(store)
    content = path.read_bytes()
    for plant in KINDS:
        path.unlink()
        plant(path)
        deliver(store, ONE, "user/bob/INBOX")
        assert path.read_bytes() == content and len(aside(store)) >= 1
    assert check(store) == []


def test_something_else_in_the_place_of_store_idx(store, tmp_path, caplog):
    """Issue 23, 3: it was not found, and the log repeated the error for ever."""
    path = idx_path(store)
    for number, plant in enumerate(KINDS, 1):
        path.unlink()
        plant(path)
        assert found(store) == [(str(path), "check --repair")], plant
        assert verified(store, tmp_path / plant.__name__) == [(str(path), "check --repair")], plant
        deliver(store, TWO, "user/alice/INBOX")
        assert writing.write_changed(store) == 1
        assert len(idxreading.read(path).rows) == 2 + number
        told = [record.getMessage() for record in caplog.records if str(path) in record.getMessage()]
        assert len(told) == number and told[-1].startswith(f"{path} was not a file: it was set aside, and is ")
        assert os.path.lexists(told[-1].split()[-2])
        assert check(store) == [] and not store.partitions["primary"].unwritten.failing


def write_all(store) -> None:
    for partition in store.partitions.values():
        partition.files.drop_staged_names()
        partition.unwritten.changed.update(mailbox for mailbox, _ in partition.all_states())
    writing.write_changed(store)


def test_a_repair_of_store_idx_is_followed_by_the_file(store):
    path = idx_path(store)
    for plant in KINDS:
        path.unlink()
        plant(path)
        layout.repair(store.root, OWNER)
        assert [(finding.where, finding.what) for finding in check(store)] == [(str(path), "it is missing")]
        write_all(store)
        assert check(store) == []


@pytest.mark.parametrize("plant", [*KINDS, a_file])
def test_names_that_no_store_has(store, plant):
    root, paths = store.root, []
    for where, name in STRANGE.items():
        (root / where).mkdir(0o700, exist_ok=True)
        paths.append(root / where / name)
        plant(paths[-1])
    assert sorted(found(store)) == sorted((str(path), "check --repair") for path in paths)
    store.close()
    done = layout.repair(root, OWNER)                   # databases and run/ only while nobody is in the store
    assert {old for old, _ in done.aside} == set(paths) and not done.left
    for old, kept in done.aside:
        assert os.path.lexists(kept) and not os.path.lexists(old)
        assert plant is not a_file or kept.read_bytes() == b"kept"
    assert look_at_layout(root) == []
    reopen(store)
    assert check(store) == []


def test_what_is_open_is_not_moved(store):
    paths = [store.root / where / ".hidden" for where in ("run", "partitions/primary/index", "mboxlist")]
    for path in paths:
        a_file(path)
    done = layout.repair(store.root, OWNER)
    assert {finding.where for finding in done.left} == set(map(str, paths)) and all(path.exists() for path in paths)
    for path in paths:
        path.unlink()


@pytest.mark.parametrize("name", ["0123456789abcdef", "0123456789abcdef.new", "README"])
def test_a_start_goes_past_what_is_strange_in_staging(store, name):
    """Only what has the name of a message that was being received is swept."""
    path = store.root / "partitions/primary/staging" / name
    for plant in (*KINDS, a_file):
        store.close()
        plant(path)
        reopen(store)
        if plant is a_file and name != "README":
            assert not path.exists()
        else:
            assert found(store) == [(str(path), "check --repair")], plant
            layout.repair(store.root, OWNER)
        assert check(store) == []


@pytest.mark.parametrize("below", ["messages", "messages/a", "staging", "users"])
def test_a_folder_that_is_missing_or_a_file_is_one_cause(store, below):
    """Not one finding for each message that was in it."""
    partition = store.partitions["primary"]
    path = partition.folder / below
    for plant in (None, a_file):
        shutil.rmtree(path)
        if plant is not None:
            plant(path)
        told = [finding.where for finding in look_at_layout(store.root)]
        assert told == [str(path)] or below == "messages/a" and plant is None and told == []       # tests make few
        done = layout.repair(store.root, OWNER)
        assert [old for old, _ in done.aside] == ([path] if plant is not None else []) and not done.left
        assert look_at_layout(store.root) == []
        for body in (ONE, TWO):
            deliver(store, body, "user/bob/INBOX")
        write_all(store)
        assert check(store) == []


def test_a_message_file_in_anothers_folder(store):
    path = message_path(store)
    wrong = path.parents[2] / ("b" if path.name[0] != "b" else "c") / "00" / path.name
    wrong.parent.mkdir(0o700, parents=True, exist_ok=True)
    path.rename(wrong)
    assert (str(wrong), "check --repair") in found(store)
    layout.repair(store.root, OWNER)
    assert path.exists() and not wrong.exists() and check(store) == []
    shutil.copy(path, wrong)                            # and one that has its place as well
    assert found(store) == [(str(wrong), "check --repair")]
    layout.repair(store.root, OWNER)
    assert path.exists() and not wrong.exists() and check(store) == [] and aside(store)


def test_empty_files(store):
    path, idx = message_path(store), idx_path(store)
    path.write_bytes(b"")
    idx.write_bytes(b"")
    assert sorted(where for where, _ in found(store)) == sorted([f"message {path.name}", str(idx)])


PLACES = ("partitions/primary/messages", "partitions/primary/staging", "partitions/primary/users/epoch",
          "mboxlist/users.db", "partitions/primary/index", "snapshots", "run/door.lock", "tls")


def test_wrong_modes_and_owners(store):
    for place in PLACES:
        path = store.root / place
        right = 0o700 if path.is_dir() else 0o600
        for mode in (0o770, 0o300):
            path.chmod(mode)
            assert [(finding.where, finding.repair) for finding in look_at_layout(store.root)] == [
                (str(path), "check --repair")]
            assert not layout.repair(store.root, OWNER).left and path.stat().st_mode & 0o777 == right
            assert look_at_layout(store.root) == []
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
            assert [finding.where for finding in look_at_layout(store.root)] == [str(path)]
            os.chown(path, *OWNER)
