"""Reading without Spark: the same rows as the Store API gives, from whatever is left, divided into small tasks."""

import builtins
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mboxlist.names import MailboxName
from store.opening import open_store
from store.store import Store
from store.tables.index import ROW
from store.userarea import idxfile, idxreading
from store.userarea.idxfile import Contents, Head
from store.userarea.paths import place as place_of
from tests.support.stores.messages import make
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.withoutpower import left_in_journal
from tests.tools.spark.conftest import in_order, rows
from tools.spark.rebuild import plantasks
from tools.spark.source import arrays, reading
from tools.spark.source import rows as made
from tools.spark.source.reading import Beginnings, Sizes, Wanted, partitions, roots, tasks
from tools.spark.source.schema import TABLES

NOT_TOLD = {"mailboxes": {"written", "path", "identity", "octets"}, "quotas": {"mailbox", "written"}}


def without(table, found):
    return in_order([{name: value for name, value in row.items() if name not in NOT_TOLD.get(table, ())}
                     for row in found])


def newest(found):
    """Each quota root once."""
    best = {(row["store"], row["partition"], row["root"]): row
            for row in sorted(found, key=lambda row: row["written"])}
    return list(best.values())


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_are_those_of_the_store(place, table):
    found = rows(place.stores, table)
    assert without(table, newest(found) if table == "quotas" else found) == in_order(place.expected[table])
    assert found


@pytest.mark.parametrize("most", [1, 7, 64])
def test_small_batches_have_the_same_rows(place, monkeypatch, most):
    monkeypatch.setattr(made, "BATCH_ROWS", most)
    sizes = [batch.num_rows for task in tasks(roots(place.stores), "references") for batch in made.batches(task)]
    assert max(sizes) == most and sum(sizes) == len(place.expected["references"])
    assert in_order(rows(place.stores, "references")) == in_order(place.expected["references"])


@pytest.mark.parametrize("table", TABLES)
def test_columns(place, table):
    names = tuple(column.name for column in reversed(TABLES[table]))[::2]
    found = rows(place.stores, table, Wanted(columns=names))
    assert found == [{name: row[name] for name in names} for row in rows(place.stores, table)]


# What is wanted

def test_one_partition_of_one_owner(place):
    found = rows(place.stores, "references", Wanted(partitions=frozenset({"archive"})))
    assert in_order(found) == in_order([row for row in place.expected["references"] if row["partition"] == "archive"])
    for owners in ({"alice"}, {"", "carol@elsewhere.example"}, {"bob"}, {"nobody"}):
        found = rows(place.stores, "references", Wanted(owners=frozenset(owners)))
        assert in_order(found) == in_order([row for row in place.expected["references"] if row["owner"] in owners])


def test_an_owner_saves_reading(place, faults):
    read = faults.watch(idxreading, "read_what_is_left")
    rows(place.stores[:1], "references", Wanted(owners=frozenset({"carol@elsewhere.example"})))
    assert [path.parts[-2] for path in read if "deleted" not in path.parts] == ["carol@elsewhere.example"]


def test_digests(place):
    digests = sorted(row["digest"] for row in place.expected["messages"])
    for wanted in ({digests[0]}, {digests[0][:3]}, {"3"}, {digests[3][:5], digests[3][:3], digests[3]}, {"zz"}, set()):
        found = rows(place.stores, "messages", Wanted(digests=frozenset(wanted)))
        assert sorted(row["digest"] for row in found) == [
            digest for digest in digests if digest.startswith(tuple(wanted))]
    places = [each for task in tasks(place.stores[1:], "messages", Wanted(digests=frozenset({digests[0][:4]})))
              for each in task.places]
    assert places == [digests[0][:3], "staging"]


def test_beginnings():
    some = Beginnings(["3fa", "3fa07", "b"])
    assert [some.match(digest) for digest in ("3fa9", "3f", "b0", "c")] == [True, False, True, False]
    assert [some.touches(head) for head in ("3f", "3fa", "3fb", "bcd", "c")] == [True, True, False, True, False]


# Tasks

def test_a_task_is_small_and_none_has_many_files(tmp_path):
    names = [os.urandom(32).hex() for _ in range(4000)]
    for name in names:
        folder = tmp_path / "messages" / name[0] / name[1:3]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    planned = tasks([str(tmp_path)], "messages", sizes=Sizes(files=64))
    found = [[row["digest"] for batch in made.batches(task) for row in batch.to_pylist() if row["digest"]]
             for task in planned]
    assert sorted(name for some in found for name in some) == sorted(names)
    assert max(map(len, found)) <= 64
    assert max(len(pickle.dumps(task)) for task in planned) < 40_000


def test_a_full_folder_is_divided(tmp_path, faults):
    """So many messages that one hash folder is more than a task."""
    faults.around(reading, "_count", lambda *_: 40)         # as if all were like that
    names = [f"3fa{number:061x}" for number in range(3)] + [f"3fa{number:x}{9:060x}" for number in range(16)]
    folder = tmp_path / "messages" / "3" / "fa"
    folder.mkdir(parents=True)
    for name in [*names, "stray"]:
        (folder / name).touch()
    planned = tasks([str(tmp_path)], "messages", Wanted(digests=frozenset({"3fa"})), Sizes(files=2))
    found = [[row["digest"] for batch in made.batches(task) for row in batch.to_pylist()] for task in planned]
    assert sorted(map(str, [name for some in found for name in some])) == sorted([*names, "None"])
    assert len(planned) > 16


def test_mailboxes_are_divided_by_number_and_octets(place):
    planned = tasks(place.stores, "references", sizes=Sizes(mailboxes=2))
    assert in_order([row for task in planned for batch in made.batches(task) for row in batch.to_pylist()]) \
        == in_order(place.expected["references"])
    assert len(tasks(place.stores, "references", sizes=Sizes(mailboxes=2, octets=1))) > len(planned) > 2


def test_a_large_store_is_planned_from_a_sample(place, faults):
    looked = []
    faults.around(reading, "_size", lambda _, folder, name: looked.append(name) or (300, 100))
    planned = tasks(place.stores[:1], "references", Wanted(partitions=frozenset({"primary"})),
                    Sizes(exact_folders=2, sampled_users=2))
    places = [name for task in planned for name in task.places]
    assert len(looked) < len(places) == len(set(places))
    assert max(len(task.places) for task in planned) == 1024 // 601


# Where stores are

def test_roots(place, tmp_path):
    first, second = place.stores
    assert roots(f"{first}, {second}") == [first, second]
    assert roots([second]) == [second] == roots(f"file://{second}") == roots(second + "/")
    assert roots(f"{Path(second).parent}/s*") == [second]
    assert roots(f"{second}/partitions/primary") == [f"{second}/partitions/primary"]
    assert partitions(f"{second}/partitions/primary") == [("primary", f"{second}/partitions/primary")]
    assert [name for name, _ in partitions(first)] == ["archive", "primary"]
    for wrong in (str(tmp_path), str(tmp_path / "none"), f"{first},{tmp_path}", "", f"{tmp_path}/*"):
        with pytest.raises(ValueError, match="store"):
            roots(wrong)


def test_a_partition_alone_has_its_rows(place):
    found = rows(f"{place.stores[0]}/partitions/archive", "references")
    expected = [row for row in place.expected["references"] if row["partition"] == "archive"]
    assert in_order([row | {"store": place.stores[0]} for row in found]) == in_order(expected)


def test_a_partition_whose_volume_is_missing_is_a_row(place, tmp_path):
    (tmp_path / "partitions").mkdir()
    (tmp_path / "partitions" / "lost").symlink_to(tmp_path / "volume")
    for table, path in (("messages", "messages"), ("mailboxes", "users")):
        row, = rows(str(tmp_path), table)
        assert (row["partition"], row["path"], row["damage"]) == (
            "lost", path, "cannot be listed: No such file or directory")
    assert rows(str(tmp_path), "references") == rows(str(tmp_path), "quotas") == []


# Damage

@pytest.fixture
def store(tmp_path):
    """A store with 200 messages in alice's INBOX and one in bob's, closed."""
    made = make_store(tmp_path / "store")
    for number in range(200):
        deliver(made, make(3, number, 1100), "user/alice/INBOX")
    deliver(made, make(3, 0, 1100), "user/bob/INBOX")
    made.close()
    return made


def file_of(store: Store, name: str) -> Path:
    return place_of(store.partitions["primary"], MailboxName.parse(name))


def test_a_block_that_is_damaged(store):
    path = file_of(store, "user/alice/INBOX")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = {row["name"]: row["damage"] for row in rows(str(store.root), "mailboxes")}
    assert found == {"user/alice/INBOX": "its section rows has lost 64 of 200 items", "user/bob/INBOX": ""}
    left = [row["uid"] for row in rows(str(store.root), "references") if row["owner"] == "alice"]
    assert len(left) == 136 and set(left) < set(range(1, 201))


@pytest.mark.parametrize("cut", [0, 100, 512, 700, 5000, 19_000, -1, -600])
def test_a_file_that_was_cut_short(store, cut):
    path = file_of(store, "user/alice/INBOX")
    size = path.stat().st_size
    os.truncate(path, cut if cut >= 0 else size + cut)
    row, = (row for row in rows(str(store.root), "mailboxes") if "bob" not in row["path"])
    assert row["damage"] and row["name"] == "user/alice/INBOX" and row["owner"] == "alice"
    assert (row["id"] is None) == (cut in (0, 100, 512, 700))
    left = [row["uid"] for row in rows(str(store.root), "references") if row["owner"] == "alice"]
    assert left == list(range(1, 1 + len(left)))
    assert len(rows(str(store.root), "references", Wanted(owners=frozenset({"bob"})))) == 1


def test_no_store_idx_at_all_and_one_that_cannot_be_read(store, faults):
    alice, bob = file_of(store, "user/alice/INBOX"), file_of(store, "user/bob/INBOX")
    alice.write_bytes(b"nonsense" * 1000)
    faults.fail(builtins, "open", OSError(5, "Input/output error"), when=lambda path, *_, **__: str(path) == str(bob))
    found = {row["name"]: row["damage"] for row in rows(str(store.root), "mailboxes")}
    assert found == {"user/alice/INBOX": "it is not a store.idx",
                     "user/bob/INBOX": "cannot be read: Input/output error"}
    assert rows(str(store.root), "references") == rows(str(store.root), "rights") == []


def test_a_file_that_goes_away_is_left_out(store, faults):
    planned = tasks([str(store.root)], "mailboxes")

    def gone(walk, task):
        for found in walk(task):
            if "alice" in found.below:
                shutil.rmtree(Path(found.path).parent)
            yield found

    faults.around(reading, "idx_files", gone)
    assert [row["owner"] for task in planned for batch in made.batches(task) for row in batch.to_pylist()] == ["bob"]


def test_message_files_that_are_none(store):
    partition = store.root / "partitions" / "primary"
    files = [row for row in rows(str(store.root), "messages")]
    first, second = files[100], files[101]
    (partition / first["path"]).rename(partition / "messages" / "0" / "00" / first["digest"])
    (partition / second["path"]).unlink()
    (partition / second["path"]).mkdir()
    (partition / "messages" / "f" / "ff" / "notes.txt").write_text("x")
    shutil.rmtree(partition / "messages" / "e" / "ee")
    found = {row["path"]: row for row in rows(str(store.root), "messages") if row["damage"]}
    assert {path: row["damage"] for path, row in found.items()} == {
        f"messages/0/00/{first['digest']}": "it is not in the folder of its digest",
        second["path"]: "it is no file", "messages/f/ff/notes.txt": "its name is no digest",
        "messages/e/ee": "cannot be listed: No such file or directory"}
    assert found["messages/f/ff/notes.txt"]["digest"] is None
    assert {row["folder"] for row in rows(str(store.root), "messages", Wanted(digests=frozenset({"fff"})))} >= {"f/ff"}


def test_staged_files(store):
    """What was committed and has not got its name yet has a row; what has both has one."""
    partition = store.root / "partitions" / "primary"
    first, second, *_ = rows(str(store.root), "messages")
    (partition / first["path"]).rename(partition / "staging" / f"{900:016x}")
    os.link(partition / second["path"], partition / "staging" / f"{901:016x}")
    (partition / "staging" / f"{902:016x}").touch()         # made ready for a message to come
    found = [row for row in rows(str(store.root), "messages") if row["staged"]]
    assert found == [first | {"staged": True, "path": f"staging/{900:016x}"}]
    assert len(rows(str(store.root), "messages")) == 200


def test_what_only_a_file_journal_has(tmp_path):
    """A copy of a store that crashed: files are full of zeros, or empty, and one has no place yet."""
    mail = [make(9, number, 1024 + number) for number in range(3)]
    store = make_store(tmp_path / "store")
    left_in_journal(store, MailboxName("alice", "INBOX"), mail, tmp_path / "copy", b"Return-Path: <a@example.org>\r\n")
    store.close()
    whole, left = (rows(str(tmp_path / place), "messages") for place in ("store", "copy"))
    same = [[row[name] for name in ("digest", "folder", "octets", "damage")] for row in in_order(whole)]
    assert len(whole) == 3 and sorted(same) == sorted(
        [row[name] for name in ("digest", "folder", "octets", "damage")] for row in left)
    assert sorted(row["staged"] for row in left) == [False, False, True]
    found = {place: [(row["digest"], row["octets"], row["trace"], row["cached"], row["findings"])
                     for task in tasks(roots(str(tmp_path / place)), "messages")
                     for batch in plantasks.messages(task) for row in batch.to_pylist()] for place in ("store", "copy")}
    assert sorted(found["copy"]) == sorted(found["store"])
    assert len(list((tmp_path / "copy/partitions/primary/staging").glob("journal-*"))) == 1


def test_keywords_without_a_name_are_told(tmp_path):
    path = tmp_path / "users" / "0c" / "9e" / "x" / "store.idx"
    path.parent.mkdir(parents=True)
    records = np.zeros(3, ROW)
    records["uid"], records["keywords"] = [1, 2, 3], [0, 1 | 1 << 63, 2]
    head = Head(id=5, name="user/x/INBOX", owner="x", partition="p", uidvalidity=1, uidnext=4, highestmodseq=1,
                keywords=["a", "b"], records=3)
    idxfile.write(path, Contents(head, records))
    assert [row["keywords"] for row in rows(str(tmp_path), "references")] == [[], ["a"], ["b"]]
    assert rows(str(tmp_path), "mailboxes")[0]["damage"] == "its records have keywords that it does not name"


# Arrays

def test_every_bit_and_every_name():
    names = [[f"w{bit}" for bit in range(64)], [], ["only"]]
    bits = np.array([(1 << 64) - 1, 1 << 63, 0, 5, 3], "<u8")
    assert arrays.named_bits(bits, names, np.array([3, 1, 1])).to_pylist() == [names[0], ["w63"], [], [], ["only"]]


def test_times_that_no_year_has_are_null():
    seconds = np.array([0, 1, -62_135_596_800, -62_135_596_801, 253_402_300_799, 253_402_300_800, 2**63 - 1], "<i8")
    found = arrays.times(seconds, 0).to_pylist()
    assert [None if when is None else when.year for when in found] == [None, 1970, 1, None, 9999, None, None]


def test_digests_have_their_digits():
    digests = np.array([bytes(range(32)), bytes(range(224, 256))], "V32")
    assert arrays.digests(digests).to_pylist() == [bytes(range(32)).hex(), bytes(range(224, 256)).hex()]


def test_nothing_of_spark_is_needed():
    """Nor is any of it imported by the program before a command asks for it."""
    code = """if True:
        import sys
        sys.modules["pyspark"] = sys.modules["py4j"] = None
        from tools.spark.source import reading, rows
        assert "twisted" not in sys.modules
        sys.modules["pyarrow"] = None
        from tools.cli import program
        """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)
    code = "import sys; from tools.cli import program; assert not {'pyspark', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)


def test_an_open_store_can_be_read(place, tmp_path):
    """The files are plain: nothing is locked, and the databases are not looked at."""
    copy = tmp_path / "copy"
    shutil.copytree(place.stores[1], copy)
    store = open_store(copy, SMALL)
    try:
        assert len(rows(str(copy), "references")) == 1
    finally:
        store.close()
    for folder in (copy / "mboxlist", copy / "partitions" / "primary" / "index"):
        shutil.rmtree(folder)
    assert len(rows(str(copy), "references")) == 1
