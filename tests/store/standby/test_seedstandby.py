"""How a standby begins: with all that is there then, and nothing elsewhere."""

from contextlib import closing
from pathlib import Path

import pytest

from mboxlist.engine.hotcopy import Copied
from store import offload
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Target
from store.errors import Problem, StoreError
from store.opening import make_empty_store
from store.partitions import volumes
from store.snapshots import taking
from store.standby import promotion, standbystate, succession
from store.standby.source import fileanswers
from store.standby.sourcepeer import SourcePeer
from store.store import Store
from tests.support.stores.standbypair import INBOX, Standby, is_equal, promoted, work
from tests.support.stores.stores import deliver

pytestmark = [pytest.mark.long, pytest.mark.few_folders]


@pytest.mark.parametrize("store", ["with all that there can be"], indirect=True)
def test_what_was_there_at_the_beginning(store: Store, standby: Standby) -> None:
    standby.create()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_seeding_goes_on_where_it_was_cut_off(store: Store, standby: Standby) -> None:
    """A message file that is here is not sent again, nor a database of the same snapshot."""
    octets = 0

    def cut(what: str, done: int, total: int) -> None:
        nonlocal octets
        octets = done
        if what == "databases":
            raise StoreError(Problem.UNAVAILABLE, "cut")

    with pytest.raises(StoreError, match="cut"):
        standby.create(cut)
    with pytest.raises(StoreError, match="not all of the store"):
        promotion.promote(standby.root)
    again = []
    standby.create(lambda what, done, total: again.append((what, done)))
    assert [done for what, done in again if what == "message files" and done] == []
    with closing(promoted(standby)) as other:
        is_equal(store, other)


def test_a_partition_has_been_added_or_removed_since_the_snapshot(store: Store, standby: Standby, tmp_path: Path
                                                                  ) -> None:
    """Another snapshot is made: else nobody could begin until that one is too old."""
    standby.create()
    for change in (volumes.add, volumes.remove):
        change(store, "archive")
        another = Standby(store, tmp_path / change.__name__)
        another.create()
        assert {path.name for path in (another.root / "partitions").iterdir()} == set(store.partitions)


def test_how_much_is_to_come_is_told(store: Store, standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the folders that were listed let one think: what is here already does not count."""
    for number in range(60):
        deliver(store, b"Subject: %d\r\n\r\n%b" % (number, b"x" * 10_000), str(INBOX))
    store.partitions["primary"].files.drop_staged_names()
    for at_once, close in ((4096, 0), (256, 400_000)):
        monkeypatch.setattr(fileanswers, "AT_ONCE", at_once)
        told = list[tuple[str, int, int]]()
        Standby(store, standby.root.with_name(str(at_once))).create(lambda *each, told=told: told.append(each))
        known = [(done, total) for what, done, total in told if what == "message files" and total]
        last, total = known[-1]
        assert total == last > 600_000
        assert all(abs(each - total) <= close for _, each in known[len(known) // 2:])


def test_a_message_that_is_being_received_at_the_beginning(store: Store, standby: Standby) -> None:
    """Its file is not whole then, and has a name that it keeps for a while once it has been committed."""
    entry = store.entry(INBOX)
    staged = store.stage(entry, b"")
    staged.write(b"Subject: slow\r\n\r\n" + b"x" * 300_000)
    committed = store.stage(entry, b"")
    committed.write(b"Subject: quick\r\n\r\n")
    place = committed.place
    committed.place = lambda: None          # the thread that does it is late
    offload.now(durable.deliver(store, committed, [Target(entry)]))
    standby.create()
    place()
    staged.write(b"y" * 300_000)
    offload.now(durable.deliver(store, staged, [Target(entry)]))
    standby.follow()
    with closing(promoted(standby)) as other:
        is_equal(store, other)
        assert check(other) == []


def test_more_small_files_than_one_answer_takes(store: Store, standby: Standby,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store.root / "access"
    folder.mkdir(exist_ok=True)
    names = [f"{number:032x}" for number in range(23)]
    for name in names:
        (folder / name).write_bytes(name.encode())
    monkeypatch.setattr(fileanswers, "SMALL_FILES", 5)
    standby.create()
    assert {path.name: path.read_text() for path in (standby.root / "access").iterdir()} == {
        name: name for name in names}
    for name in names:
        (folder / name).unlink()


@pytest.mark.parametrize(("environment", "file"), [
    ("../outside", "mailboxes.db"), ("partitions/../../outside/index", "x.db"), ("mboxlist", "../../outside/x.db"),
    ("mboxlist", "/x.db"), ("mboxlist", "kept-log"), ("", "x.db")])
def test_the_other_side_names_no_file_elsewhere(store: Store, standby: Standby, tmp_path: Path, environment: str,
                                                file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it names would be removed, or written over."""
    for place in (tmp_path / "outside", tmp_path / "outside/index"):
        place.mkdir()
        (place / "dear").write_bytes(b"dear")

    def snapshot(source: SourcePeer, age: int) -> tuple[str, taking.Manifest]:
        part = taking.Part((Copied(file, 0, ""),), 1, (1, 0))
        return "20260101T000000Z", taking.Manifest(1, 1.0, "", {environment: part})

    monkeypatch.setattr(SourcePeer, "snapshot", snapshot)
    with pytest.raises(StoreError, match="cannot be understood"):
        standby.create()
    assert sorted(path.name for path in (tmp_path / "outside").rglob("*")) == ["dear", "dear", "index"]


def test_a_standby_that_was_begun_and_cut_off_is_begun_again(standby: Standby) -> None:
    """Whatever is there then is known to be one, and no store is made of it."""
    standby.root.mkdir()
    standbystate.StandbyState("mail.example.org", "127.0.0.1:1").save(standby.root)
    with pytest.raises(StoreError, match="There is a store"):
        make_empty_store(standby.root)


def test_another_standby_goes_over_to_the_one_that_was_promoted(store: Store, standby: Standby, tmp_path: Path) -> None:
    """Of two standbys of one machine. It follows then; the message files that it has are not sent again."""
    third = Standby(store, tmp_path / "three")
    for each in (standby, third):
        each.create()
    work(store, 1)
    for each in (standby, third):
        each.follow()
    with closing(promoted(standby)) as other:
        third, sent = Standby(other, third.root), list[int]()
        third.create(lambda what, done, total: sent.append(done) if what == "message files" else None)
        assert not any(sent)
        work(other, 2)
        third.follow()
        with closing(promoted(third)) as last:
            is_equal(other, last)
            assert check(last) == []
            assert succession.read(third.root).number == succession.read(standby.root).number + 1
