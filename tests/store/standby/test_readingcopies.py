"""The copies for reading that a standby keeps: the newest is used, an older one stays while somebody reads it."""

import errno
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from store.errors import StoreError
from store.opening import open_store
from store.partition.marks import STANDBY, AsOf
from store.readonly import place
from store.standby import longfollowing, standbystate
from store.standby.reading import readingcopies
from store.store import Store
from store.userarea import idxreading
from store.userarea.paths import place as place_of
from tests.support.stores.standbypair import INBOX, Standby, work
from tests.support.stores.stores import SMALL, deliver

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


def test_the_newest_is_read_and_older_ones_go(store: Store, standby: Standby) -> None:
    standby.create()
    assert readingcopies.newest(standby.root) is None
    assert readingcopies.is_behind(standby.root)
    first = readingcopies.make_next(standby.root, indexes=False)
    assert place.newest_of_standby(standby.root) == first
    assert not readingcopies.is_behind(standby.root)
    deliver(store, b"Subject: new\r\n\r\n", str(INBOX))
    standby.follow()
    assert readingcopies.is_behind(standby.root)
    with closing(open_store(first, SMALL)) as reading:
        before = len(reading.open_mailbox(reading.entry(INBOX)).rows)
        second = readingcopies.make_next(standby.root, indexes=False)
        readingcopies.remove_older(standby.root)
        readingcopies.remove_older(standby.root, grace=0)       # somebody reads it
        assert len(reading.open_mailbox(reading.entry(INBOX)).rows) == before
    with closing(open_store(second, SMALL)) as reading:
        assert len(reading.open_mailbox(reading.entry(INBOX)).rows) == before + 1
        assert "the mail of " in reading.as_of
    readingcopies.remove_older(standby.root)        # somebody may be about to
    assert first.exists()
    readingcopies.remove_older(standby.root, grace=0)
    assert not first.exists()
    assert second.exists()
    (standby.root / STANDBY).rename(standby.root / "promoted")      # while one was made: commands read the store itself
    assert place.newest_of_standby(standby.root) is None
    (standby.root / "promoted").rename(standby.root / STANDBY)
    readingcopies.end(standby.root)
    assert not second.exists()


def test_one_that_is_not_whole_is_not_read(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    standby.create()
    first = readingcopies.make_next(standby.root, indexes=False)

    def cut(place: Path, progress: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("store.standby.reading.readingindexes.write", cut)
    with pytest.raises(KeyboardInterrupt):
        readingcopies.make_next(standby.root, indexes=True)
    assert place.newest_of_standby(standby.root) == first
    monkeypatch.undo()
    assert readingcopies.make_next(standby.root, indexes=True) == first.with_name("3")


def test_one_that_cannot_be_made_takes_no_room(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the disk's last, which the process that follows needs. What was killed goes before the next is made."""
    standby.create()
    first = readingcopies.make_next(standby.root, indexes=False)
    (first.with_name("2") / "mboxlist").mkdir(parents=True)         # of a process that was killed
    (first.with_name("2") / place.UNFINISHED).write_text(str(standby.root))

    def full(folder: Path, **_how: object) -> None:
        assert folder.is_relative_to(first.with_name("3"))
        assert sorted(place.numbered(standby.root)) == [1, 3]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("store.standby.reading.readingstate.hotcopy.recover", full)
    with pytest.raises(OSError, match="No space"):
        readingcopies.make_next(standby.root, indexes=False)
    assert place.numbered(standby.root) == {1: first}


def test_a_copy_is_as_new_as_the_standby_while_nothing_comes(store: Store, standby: Standby) -> None:
    """Its age is not that of the last change; and what is in the journal alone counts as new."""
    standby.create()
    made = readingcopies.make_next(standby.root, indexes=False)
    before = AsOf.of(made)
    assert before is not None
    (standby.root / longfollowing.SEEN).write_text(f'{{"moment": {before.moment + 60}}}')
    assert not readingcopies.is_behind(standby.root)
    assert AsOf.of(made) == evolve(before, moment=before.moment + 60)
    with standby.following() as follower:
        deliver(store, b"Subject: new\r\n\r\n", str(INBOX))
        follower.round(0)
        known = standbystate.read(standby.root)
        assert known is not None
        assert known.ends == before.ends
        assert readingcopies.is_behind(standby.root)


def test_with_indexes_spark_finds_every_mailbox(store: Store, standby: Standby) -> None:
    standby.create()
    work(store, 1)
    standby.follow()
    made = readingcopies.make_next(standby.root, indexes=True)
    with closing(open_store(made, SMALL)) as reading:
        entries = list(reading.mailboxes.all())
        assert len(entries) > 3
        for entry in entries:
            partition = reading.partitions[entry.partition]
            contents = idxreading.read(place_of(partition, entry.name))
            assert contents.head.id == entry.id
            assert contents.rows.tobytes() == reading.open_mailbox(entry).rows.tobytes()


def test_nothing_is_read_of_what_is_no_standby(store: Store) -> None:
    with pytest.raises(StoreError, match="no standby"):
        readingcopies.make_next(store.root, indexes=False)
