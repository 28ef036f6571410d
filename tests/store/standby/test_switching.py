"""A standby whose databases are copied again: what is here is one of the two states, whole."""

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mboxlist import privatefiles
from mboxlist.engine import hotcopy
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes.expunge import remove
from store.opening import open_store
from store.partitions import volumes
from store.snapshots import retention, taking
from store.standby import promotion, standbystate, switching
from store.standby.filecopies import FileCopies
from store.standby.standbystate import FOLLOWING, SWITCHING
from store.store import Store
from tests.support.stores.purging import purge
from tests.support.stores.standbypair import Standby
from tests.support.stores.stores import SMALL, deliver, let_go, make_store
from tests.support.stores.whole import everything

INBOX = MailboxName("alice", "INBOX")
MESSAGE = b"Subject: one\r\n\r\none\r\n"

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = make_store(tmp_path / "one", ("alice",))
    deliver(made, MESSAGE, str(INBOX))
    yield made
    assert check(made) == []
    made.close()


@pytest.fixture
def standby(store: Store, tmp_path: Path) -> Standby:
    made = Standby(store, tmp_path / "two")
    made.create()
    return made


class Killed(BaseException):
    """What a test raises in the place of SIGKILL."""


class Steps:
    """Counts what is done to the disk, and ends all before the one of that number."""

    def __init__(self, patched: pytest.MonkeyPatch, last: int) -> None:
        self.left = last
        for owner, name in ((Path, "rename"), (Path, "replace"), (Path, "unlink"), (os, "replace"), (shutil, "rmtree"),
                            (privatefiles, "make_folder"), (hotcopy, "recover"), (standbystate, "replace_file")):
            patched.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, step):                   # type: ignore[no-untyped-def]
        def counted(*arguments, **how):         # type: ignore[no-untyped-def]
            self.left -= threading.current_thread() is threading.main_thread()      # what follows, not what is followed
            if self.left < 0:
                raise Killed
            return step(*arguments, **how)
        return counted


def promoted(root: Path) -> dict[str, object]:
    """What there is in the store that the standby becomes, and nothing is wrong with it."""
    promotion.promote(root)
    with closing(open_store(root, SMALL)) as store:
        assert check(store) == []
        return everything(store)


def phase(standby: Standby) -> str:
    state = standbystate.read(standby.root)
    assert state is not None
    return state.phase


def left(root: Path) -> list[str]:
    """Folders of a copy, or of an older state."""
    return sorted(str(path) for path in root.rglob("*") if path.suffix in (switching.COPY, switching.OLD))


def test_a_copy_that_is_cut_off_at_every_step(store: Store, standby: Standby, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(store)
    deliver(store, b"Subject: two\r\n\r\ntwo\r\n", str(INBOX))
    after, seen, last, number = everything(store), list[str](), "", 0
    retention.make(store, verify=False)
    while "after" not in seen or phase(standby) == SWITCHING:
        with monkeypatch.context() as patched:
            Steps(patched, number)
            with contextlib.suppress(Killed):
                standby.create()
        now = f"{phase(standby)} {left(standby.root)}"
        if now != last:                         # else what is on disk differs in nothing that counts
            copy = shutil.copytree(standby.root, tmp_path / "copy")
            found = promoted(copy)
            seen.append("before" if found == before else "after" if found == after else "neither")
            shutil.rmtree(copy)
        number = 1 if now.startswith(SWITCHING) and not last.startswith(SWITCHING) else number + (
            1 if now.startswith(SWITCHING) else 3)
        last = now
    assert min(seen.count("before"), seen.count("after")) > 3
    assert seen == sorted(seen, reverse=True) and set(seen) == {"before", "after"}
    standby.create()
    assert phase(standby) == FOLLOWING
    assert not left(standby.root)
    standby.follow()
    assert promoted(standby.root) == after


def test_a_message_file_of_another_form_waits_for_its_databases(store: Store, standby: Standby,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that was purged and came again has another trace header: the older records do not fit its file."""
    row, = store.open_mailbox(store.entry(INBOX)).rows
    path = store.partitions["primary"].files.path(row["digest"].tobytes())
    here = standby.root / os.path.relpath(path, store.root)
    old = here.read_bytes()
    remove(store, store.entry(INBOX), [int(row["uid"])])
    let_go(store)
    for snapshot in taking.listed(store.root / "snapshots"):
        taking.remove(snapshot)
    assert purge(store.partitions["primary"], 1 << 31)
    deliver(store, MESSAGE, str(INBOX), trace=b"Return-Path: <another@example.org>\r\n")
    with monkeypatch.context() as patched:
        patched.setattr(switching, "decide", lambda root, state: exec("raise Killed", {"Killed": Killed}))
        with pytest.raises(Killed):
            standby.create(age=0)
    assert here.read_bytes() == old
    again = list[str]()
    monkeypatch.setattr(FileCopies, "_keep", lambda *arguments: again.append(arguments[2]))
    standby.create()
    assert not again
    assert here.read_bytes() == Path(path).read_bytes() != old
    assert promoted(standby.root) == everything(store)


def test_a_partition_that_only_the_copy_had(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older state does not know it."""
    before = everything(store)
    volumes.add(store, "second")
    with monkeypatch.context() as patched:
        def cut(*arguments: object) -> None:
            raise StoreError(Problem.UNAVAILABLE, "cut")

        patched.setattr("store.standby.seeding._databases", cut)
        with pytest.raises(StoreError, match="cut"):
            standby.create(age=0)
    assert (standby.root / "partitions/second").is_dir()
    assert promoted(standby.root) == before
    assert [path.name for path in standby.root.glob("set-aside/*/partitions/*")] == ["second"]


def test_a_full_disk_in_the_switch(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows next goes on with it."""
    with monkeypatch.context() as patched:
        def full(*arguments: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(switching, "_put_files", full)
        with pytest.raises(OSError, match="No space"):
            standby.create(age=0)
    assert phase(standby) == SWITCHING
    state = standbystate.read(standby.root)
    assert state is not None
    assert switching.finish(standby.root, state).phase == phase(standby) == FOLLOWING
    standby.follow()
