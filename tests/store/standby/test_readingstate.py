"""The state of a standby is read beside the process that follows: as it was at one moment, and nothing is changed."""

import fcntl
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.apppasswords.accessrecord import Access, Totp
from store.check import layout
from store.check.wholecheck import check, check_all
from store.errors import Problem, StoreError
from store.mailboxes import namespace
from store.opening import open_store
from store.partition import processes
from store.standby import applying, standbystate
from store.standby.reading import readingstate
from store.standby.standbystate import TABLES_LOCK
from store.store import Store
from tests.support.stores.standbypair import INBOX, Standby, work
from tests.support.stores.stores import SMALL, deliver

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


def mail(store: Store) -> list[tuple[str, bytes, list[bytes]]]:
    """Each mailbox with its records and the octets of its messages."""
    found = []
    for entry in store.mailboxes.all():
        view, octets = store.open_mailbox(entry), list[bytes]()
        for row in view.rows:
            with store.open_message(view.entry, row) as file:
                octets.append(b"".join(file.pieces()))
        found.append((str(entry.name), view.rows.tobytes(), octets))
    return found


def test_it_is_read_while_it_follows(store: Store, standby: Standby, tmp_path: Path) -> None:
    """With what has been put into the tables, and what has not; and the standby goes on from where it is."""
    standby.create()
    place = tmp_path / "reading"
    for number in (1, 2):
        work(store, number)
        standby.follow()
        if number == 1:
            state = standbystate.read(standby.root)
            assert state is not None
            applying.apply(standby.root, state)
            applying.applied(standby.root, state, state)
        expected = mail(store)
        assert readingstate.make(standby.root, place) == standbystate.read(standby.root)
        work(store, number + 10)
        standby.follow()
        with closing(open_store(place, SMALL)) as reading:
            assert mail(reading) == expected
            for change in (lambda: namespace.create_mailbox(reading, INBOX.child("New")),
                           lambda: deliver(reading, b"Subject: new\r\n\r\n", str(INBOX))):
                with pytest.raises(StoreError) as refused:
                    change()
                assert refused.value.problem is Problem.READ_ONLY
    assert check(store) == []
    standby.follow()


def test_what_the_journal_brought_is_there_too(store: Store, standby: Standby, tmp_path: Path) -> None:
    """standby.json is written every few seconds; what has come since is in the journal, and in the logs."""
    standby.create()
    place = tmp_path / "reading"
    with standby.following() as follower:
        for number in (1, 2):
            deliver(store, b"Subject: %d\r\n\r\n" % number, str(INBOX))
            follower.round(0)
            follower.round(0)           # now it is in its places
        before = standbystate.read(standby.root)
        state = readingstate.make(standby.root, place)
        assert before is not None and state.ends != before.ends
        with closing(open_store(place, SMALL)) as reading:
            assert mail(reading) == mail(store)
    standby.follow()


def test_a_folder_of_somebody_else_is_left_alone(store: Store, standby: Standby, tmp_path: Path) -> None:
    standby.create()
    place = tmp_path / "other"
    place.mkdir()
    (place / "dear").write_bytes(b"dear")
    with pytest.raises(StoreError, match="is not empty"):
        readingstate.make(standby.root, place)
    (place / "read-only").write_text("/another/store")
    with pytest.raises(StoreError, match="another store"):
        readingstate.make(standby.root, place)
    assert (place / "dear").read_bytes() == b"dear"


def test_one_that_was_cut_off_is_no_store_and_is_made_again(store: Store, standby: Standby, tmp_path: Path) -> None:
    standby.create()
    place = tmp_path / "reading"
    for cut in range(4):            # two environments: copied, then recovered
        def progress(_what: str, done: int, total: int, cut: int = cut) -> None:
            assert total == 4
            if done == cut:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            readingstate.make(standby.root, place, progress)
        with pytest.raises(StoreError):
            open_store(place, SMALL)
    readingstate.make(standby.root, place)
    with closing(open_store(place, SMALL)) as reading:
        assert mail(reading) == mail(store)


def test_one_that_is_served_is_not_replaced(store: Store, standby: Standby, tmp_path: Path) -> None:
    standby.create()
    place = tmp_path / "reading"
    readingstate.make(standby.root, place)
    with open(processes.claim(place / "run/server.pid")), pytest.raises(StoreError, match="is being served"):
        readingstate.make(standby.root, place)
    readingstate.make(standby.root, place)


def test_one_that_is_open_or_being_made_is_not_replaced(store: Store, standby: Standby, tmp_path: Path) -> None:
    """By any command: a backup reads for hours."""
    standby.create()
    place, refused = tmp_path / "reading", list[StoreError]()
    readingstate.make(standby.root, place)
    with closing(open_store(place, SMALL, who="onecopy backup")) as reading:
        with pytest.raises(StoreError, match="is being read by onecopy backup") as open_yet:
            readingstate.make(standby.root, place)
        assert open_yet.value.problem is Problem.STORE_IN_USE
        assert mail(reading) == mail(store)

    def at_the_same_time(_what: str, _done: int, _total: int) -> None:
        with pytest.raises(StoreError, match="makes a copy in") as busy:
            readingstate.make(standby.root, place)
        refused.append(busy.value)

    state = readingstate.make(standby.root, place, at_the_same_time)
    assert {each.problem for each in refused} == {Problem.STORE_IN_USE}
    assert state == standbystate.read(standby.root)


def test_nothing_is_wrong_with_a_copy(store: Store, standby: Standby, tmp_path: Path) -> None:
    """Its links are those of a copy; any other one is in the way, and so is one that leads elsewhere."""
    standby.create()
    owner = os.geteuid(), os.getegid()
    for indexes in (True, False):
        place = tmp_path / f"reading-{indexes}"
        readingstate.make(standby.root, place, indexes=indexes)
        with closing(open_store(place, SMALL)) as reading:
            assert check_all(reading) == []
        assert layout.look(place, owner) == []
    staging = place / "partitions/primary/staging"
    staging.unlink()
    staging.symlink_to(tmp_path)
    (place / "audit").symlink_to(tmp_path)
    (place / "mboxlist/strange").symlink_to(tmp_path)
    found = {Path(finding.where).relative_to(place) for finding in layout.look(place, owner)}
    assert found == {Path("partitions/primary/staging"), Path("mboxlist/strange"), Path("audit")}


def test_nothing_is_read_that_is_not_whole(store: Store, standby: Standby, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no standby"):
        readingstate.make(store.root, tmp_path / "reading")
    standby.create()
    state = standbystate.read(standby.root)
    assert state is not None
    for phase in (standbystate.BEGINNING, standbystate.SWITCHING, standbystate.RECOVERED):
        evolve(state, phase=phase).save(standby.root)
        with pytest.raises(StoreError, match=phase):
            readingstate.make(standby.root, tmp_path / "reading")


def test_nobody_changes_tables_while_they_are_copied(store: Store, standby: Standby, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    standby.create()
    refused, copy = list[bool](), applying.copy_environment

    def noted(*arguments: object) -> None:
        with open(standby.root / TABLES_LOCK) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(True)
        copy(*arguments)        # type: ignore[arg-type]

    monkeypatch.setattr(applying, "copy_environment", noted)
    readingstate.make(standby.root, tmp_path / "reading")
    assert len(refused) == 2        # the list, and the partition


def test_a_second_factor_that_comes_later_counts(store: Store, standby: Standby, tmp_path: Path) -> None:
    """Also where nobody had one when the copy was made: it asks for no less than the other machine."""
    shutil.rmtree(store.root / "access", ignore_errors=True)
    standby.create()
    readingstate.make(standby.root, tmp_path / "copy")
    assert AccessFiles(tmp_path / "copy").of("alice") == Access("alice")
    made = AccessFiles(store.root).change("alice", lambda before: evolve(before, totp=Totp("secret", 1)))
    standby.follow()
    assert AccessFiles(tmp_path / "copy").of("alice") == made
