"""The export: the same rows as Parquet, brought up to date by writing only what has changed."""

import json
import os
import shutil

import pyarrow.dataset as datasets
import pytest
from pyarrow import parquet

from mboxlist.names import MailboxName
from store.opening import open_store
from tests.support.stores.messages import make
from tests.support.stores.stores import SMALL, deliver
from tests.tools.spark.conftest import in_order, rows
from tools.cli.exits import Failure
from tools.spark import parquet as exporting
from tools.spark.parquet import MANIFEST, export
from tools.spark.source.schema import TABLES


def each(work, groups):
    return [work(group) for group in groups]


@pytest.fixture
def copy(place, tmp_path, monkeypatch):
    """A store that may be changed; every folder counts as settled."""
    monkeypatch.setattr(exporting, "SETTLED", 0)
    root = tmp_path / "copy"
    shutil.copytree(place.stores[0], root, symlinks=True)
    return root


def read(folder, table):
    """All rows of a table of an export."""
    found = datasets.dataset(folder / table, partitioning="hive", format="parquet").to_table()
    return in_order(found.select([column.name for column in TABLES[table]]).to_pylist())


def files(folder):
    return {str(path.relative_to(folder)): path.stat().st_ino for path in folder.rglob("*.parquet")}


def test_the_rows_are_the_same(place, tmp_path):
    done = export(place.stores, tmp_path / "out", list(TABLES), each)
    for table in TABLES:
        assert read(tmp_path / "out", table) == in_order(rows(place.stores, table)), table
    assert done.rows == sum(len(rows(place.stores, table)) for table in TABLES)
    assert (done.unchanged, done.removed) == (0, 0)
    for path in (tmp_path / "out").rglob("*.parquet"):
        assert parquet.read_metadata(path).num_rows > 0
        assert not {"store", "partition"} & set(parquet.read_schema(path).names)


def test_only_what_has_changed_is_written(copy, tmp_path):
    out, all_tables = tmp_path / "out", list(TABLES)
    export([str(copy)], out, all_tables, each)
    before, known = files(out), {row["digest"] for row in rows(str(copy), "messages")}
    again = export([str(copy)], out, all_tables, each, since=True)
    assert files(out) == before and again.rows == 0
    store = open_store(copy, SMALL)
    try:
        deliver(store, make(9, 1, 1500), "user/dave/INBOX")
    finally:
        store.close()
    done = export([str(copy)], out, all_tables, each, since=True)
    changed = {path for path, inode in files(out).items() if before.get(path) != inode}
    digest, = {row["digest"] for row in rows(str(copy), "messages")} - known
    users = {path.rsplit("/", 1)[1] for path in changed if not path.startswith("messages/")}
    assert all("partition=archive" in path for path in changed) and len(users) == 1
    assert {path.split("/")[0] for path in changed} == {"mailboxes", "references", "quotas", "messages"}
    assert [path for path in changed if path.startswith("messages/")][0].endswith(f"/{digest[:3]}.parquet")
    assert done.written >= len(changed)
    for table in TABLES:
        assert read(out, table) == in_order(rows(str(copy), table)), table


def test_what_is_gone_goes(copy, tmp_path):
    out = tmp_path / "out"
    export([str(copy)], out, ["mailboxes", "messages"], each)
    gone = [row for row in rows(str(copy), "mailboxes") if row["owner"] == "dave"]
    shutil.rmtree(copy / "partitions" / "archive" / "users" / gone[0]["path"].split("/")[1])
    first = rows(str(copy), "messages")[0]
    os.unlink(copy / "partitions" / first["partition"] / first["path"])
    done = export([str(copy)], out, ["mailboxes", "messages"], each, since=True)
    assert done.removed == 1
    for table in ("mailboxes", "messages"):
        assert read(out, table) == in_order(rows(str(copy), table))


def test_a_group_that_may_still_change_is_written_again(copy, tmp_path, monkeypatch):
    """Its folder's time may not move when one more file comes at once."""
    monkeypatch.setattr(exporting, "SETTLED", 3600)
    export([str(copy)], tmp_path / "out", ["messages"], each)
    again = export([str(copy)], tmp_path / "out", ["messages"], each, since=True)
    assert again.rows == len(rows(str(copy), "messages"))


def test_an_export_that_was_cut_off(copy, tmp_path):
    def broken(work, groups):
        for number, group in enumerate(groups):
            if number == len(groups) // 2:
                raise OSError("the disk is full")
            yield work(group)

    out = tmp_path / "out"
    with pytest.raises(OSError, match="full"):
        export([str(copy)], out, ["references"], broken)
    export([str(copy)], out, ["references"], each, since=True)
    assert read(out, "references") == in_order(rows(str(copy), "references"))


def test_another_version_of_the_tables(copy, tmp_path):
    out = tmp_path / "out"
    export([str(copy)], out, ["rights"], each)
    manifest = json.loads((out / MANIFEST).read_text())
    (out / MANIFEST).write_text(json.dumps(manifest | {"version": 0}))
    assert export([str(copy)], out, ["rights"], each, since=True).unchanged == 0


def test_a_folder_with_something_else(place, tmp_path):
    (tmp_path / "letter.txt").write_text("keep me")
    with pytest.raises(Failure, match="is not empty, and no export of onecopy"):
        export(place.stores, tmp_path, ["rights"], each)
    assert os.listdir(tmp_path) == ["letter.txt"]
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(Failure, match="is damaged"):
        export(place.stores, tmp_path, ["rights"], each)


def test_names_of_folders(place, tmp_path):
    """A store's folder is one level, whatever is in its name; no file has a mailbox's name."""
    export(place.stores[:1], tmp_path / "out", ["references"], each)
    found = [path.relative_to(tmp_path / "out").parts for path in (tmp_path / "out").rglob("*.parquet")]
    assert {len(parts) for parts in found} == {4}
    names = {parts[-1].removesuffix(".parquet") for parts in found}
    assert names >= {"public", "deleted"} and all(len(name) == 3 for name in names - {"public", "deleted"})
    assert MailboxName.parse("public/news").path not in names
