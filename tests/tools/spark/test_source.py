"""The data source on two threads and on a real cluster: the rows are those that the Store API tells."""

import json
from contextlib import closing

import pytest

from store.standby.reading import readingstate
from tests.support.stores.standbypair import Standby, work
from tests.support.stores.stores import make_store
from tests.tools.spark.conftest import CLUSTER, LOCAL, in_order
from tests.tools.spark.test_reading import newest, without
from tools.spark.source.reading import Wanted
from tools.spark.source.schema import TABLES
from tools.spark.source.source import paths, wanted


def read(spark, table, stores, **options):
    return spark.read.format("onecopy").options(table=table, **options).load(stores)


def test_all_tables(spark, place):
    """The same rows, types and all, wherever they were read."""
    for table in TABLES:
        frame = read(spark, table, list(place.stores))
        found = frame.toArrow().to_pylist()
        assert without(table, newest(found) if table == "quotas" else found) == in_order(place.expected[table]), table


@pytest.mark.parametrize("spark", [CLUSTER], indirect=True)
def test_the_workers_do_it(spark):
    """With the packages that the session ships, in the executors of both."""
    def whence(number):
        import os

        import tools.spark.source.rows
        return os.path.abspath(tools.spark.source.rows.__file__), os.getppid()

    found = spark.sparkContext.parallelize(range(4), 4).map(whence).collect()
    assert all(path.startswith(str(spark.nodes.folder)) and "onecopy.zip" in path for path, _ in found)
    assert len({pid for _, pid in found}) == 2


@pytest.mark.parametrize("spark", [LOCAL], indirect=True)
def test_filters_and_options(spark, place):
    """A filter keeps what it says; an option plans fewer tasks as well."""
    first = place.stores[0]
    digest = place.expected["messages"][0]["digest"]
    every = read(spark, "messages", first)
    for condition, keep in (
            (f"digest = '{digest}'", lambda row: row["digest"] == digest),
            (f"digest LIKE '{digest[:4]}%'", lambda row: row["digest"].startswith(digest[:4])),
            (f"folder = '{digest[0]}/{digest[1:3]}'", lambda row: row["folder"] == f"{digest[0]}/{digest[1:3]}"),
            ("partition = 'archive'", lambda row: row["partition"] == "archive"),
            ("partition IN ('archive', 'none') AND octets > 0", lambda row: row["partition"] == "archive"),
            ("partition = 'none'", lambda row: False)):
        frame = every.where(condition)
        expected = [row for row in place.expected["messages"] if row["store"] == first and keep(row)]
        assert in_order(frame.toArrow().to_pylist()) == in_order(expected), condition
    assert read(spark, "messages", first, partition="archive").rdd.getNumPartitions() < every.rdd.getNumPartitions()
    references = read(spark, "references", first, columns="owner,uid").where("owner = 'bob' AND NOT uid = 3")
    expected = [row["uid"] for row in place.expected["references"] if row["owner"] == "bob" and row["uid"] != 3]
    found = references.toArrow()
    assert found.column_names == ["owner", "uid"] and sorted(found["uid"].to_pylist()) == sorted(expected)


@pytest.mark.parametrize("spark", [LOCAL], indirect=True)
def test_options_and_what_is_wrong_with_them(spark, place, tmp_path):
    frame = read(spark, "references", f"{place.stores[0]},{place.stores[1]}", owner="alice, carol@elsewhere.example",
                 partition="primary", columns="store,owner")
    expected = [row for row in place.expected["references"]
                if row["partition"] == "primary" and row["owner"] in ("alice", "carol@elsewhere.example")]
    assert frame.count() == len(expected)
    for table, path, text in (("message", place.stores[0], "there is no table message"),
                              ("messages", str(tmp_path), f"there is no store in {tmp_path}")):
        with pytest.raises(Exception, match=text):
            read(spark, table, path).count()


@pytest.mark.parametrize("spark", [LOCAL], indirect=True)
def test_damage_fails_no_job(spark, tmp_path):
    (tmp_path / "partitions").mkdir()
    (tmp_path / "partitions" / "lost").symlink_to(tmp_path / "volume")
    user = tmp_path / "partitions" / "here" / "users" / "0c" / "9e" / "x"
    user.mkdir(parents=True)
    (user / "store.idx").write_bytes(b"\x89onecopy" + b"\0" * 3000)
    found = read(spark, "mailboxes", str(tmp_path), columns="partition,name,damage").toArrow().to_pylist()
    assert in_order(found) == in_order([
        {"partition": "here", "name": "user/x/INBOX", "damage": "it has version 0, which is not known here"},
        {"partition": "lost", "name": None, "damage": "cannot be listed: No such file or directory"}])
    assert read(spark, "references", str(tmp_path)).count() == 0


@pytest.mark.parametrize("spark", [LOCAL], indirect=True)
def test_a_standby_is_read_as_the_store_is(spark, tmp_path):
    """By a copy for reading with indexes: the same messages, and each has its file."""
    copy = tmp_path / "copy"
    with closing(make_store(tmp_path / "one", ("alice", "bob", "carol@example.com"))) as store:
        work(store, 1)
        standby = Standby(store, tmp_path / "two")
        standby.create()
        readingstate.make(standby.root, copy, indexes=True)
    columns = "partition,mailbox,name,uid,modseq,digest,octets,flags,keywords,removed"
    found, expected = (in_order(read(spark, "references", str(root), columns=columns).toArrow().to_pylist())
                       for root in (copy, tmp_path / "one"))
    assert len(found) > 20
    assert found == expected
    assert read(spark, "messages", str(copy)).count() == read(spark, "messages", str(tmp_path / "one")).count()


# Without Spark

def test_what_options_say():
    assert paths({"path": "/srv/a"}) == ["/srv/a"]
    assert paths({"path": "/srv/a,/srv/b"}) == ["/srv/a", "/srv/b"]
    assert paths({"paths": json.dumps(["/srv/a", "/srv/b"])}) == ["/srv/a", "/srv/b"]
    assert wanted({"owner": "a, b", "columns": "uid,owner"}) == Wanted(owners=frozenset("ab"), columns=("uid", "owner"))
    with pytest.raises(ValueError, match="which store"):
        paths({})
