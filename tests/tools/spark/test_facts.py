"""Facts of a back end as files: the rows are what the Store API says, only what has changed is written again, and an
export that was cut off is never taken for a whole one (issue 25, item 1)."""

import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from mboxlist.names import MailboxName
from store.finishing.cutoperations import Finishing
from store.mailboxes import namespace
from store.mailboxes.expunge import remove
from store.opening import open_store
from store.snapshots import taking
from tests.support.faults.planted import Faults
from tests.support.faults.spark_faults import Planter
from tests.support.stores.messages import make
from tests.support.stores.stores import deliver
from tests.tools.spark.conftest import QUIET, in_order, tell
from tools.cli import program
from tools.exits import Failure
from tools.spark.facts import factsexport
from tools.spark.facts.destinations import FolderDestination
from tools.spark.facts.factfolders import opened, table_of
from tools.spark.facts.factschema import FACTS
from tools.spark.facts.factsexport import MANIFEST, export
from tools.spark.facts.snapshottables import prepared

LEFT_OUT = {"mailboxes": {"subscriptions", "path", "written", "identity", "octets"},
            "messages": {"modified", "sender", "unused", "path"}, "references": {"special_use"},
            "quotas": {"mailbox", "written", "used_octets", "used_messages"}}


@pytest.fixture
def copy(place: Any, tmp_path: Path) -> Path:
    """A store that may be changed."""
    shutil.copytree(place.stores[0], tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def exported(root: Path, to: Path, processes: int = 1) -> factsexport.Exported:
    store = open_store(root, QUIET)
    try:
        snapshot = taking.create(store)
    finally:
        store.close()
    try:
        with prepared(snapshot) as folders:
            return export(snapshot, folders, root, FolderDestination(to), name="mail1", domain="example.org",
                          processes=processes)
    finally:
        taking.remove(snapshot)


def said(root: Path) -> dict[str, list[dict[str, Any]]]:
    store = open_store(root, QUIET)
    try:
        return tell(store)
    finally:
        store.close()


def without(rows: list[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    left_out = LEFT_OUT.get(table, set()) | {"store"}
    return in_order([{name: row[name] for name in sorted(row) if name not in left_out} for row in rows])


def rows(to: Path, table: str) -> list[dict[str, Any]]:
    return table_of(opened([str(to)]), table).to_pylist()


def references(to: Path) -> list[dict[str, Any]]:
    return without(rows(to, "references"), "references")


def names(to: Path) -> set[str]:
    return {str(path.relative_to(to)) for path in to.rglob("*.parquet")}


def limits(quotas: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """What roots have that is not the default."""
    return {tuple(row[name] for name in ("root", "kind", "limit_octets", "limit_messages", "default_messages"))
            for row in quotas if not row["default_octets"] or not row["default_messages"]}


@pytest.mark.parametrize("processes", [1, 2])
def test_the_rows_are_what_the_store_says(copy: Path, tmp_path: Path, processes: int,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factsexport, "_FEW", 2)
    told = said(copy)
    done = exported(copy, tmp_path / "out", processes)
    for table, expected in told.items():
        known = [{name: row.get(name) for name in expected[0]} for row in rows(tmp_path / "out", table)]
        if table == "quotas":       # limits of domains stand on each partition
            assert limits(known) == limits(expected)
        else:
            assert without(known, table) == without(expected, table), table
    uses = {row["name"]: row["special_use"] for row in rows(tmp_path / "out", "mailboxes")}
    assert all(row["special_use"] == uses[row["name"]] for row in rows(tmp_path / "out", "references"))
    assert "\\Sent" in uses.values()
    assert {row["user"] for row in rows(tmp_path / "out", "users")} == {
        "alice", "bob", "dave", "carol@elsewhere.example"}
    assert {row["store"] for table in FACTS for row in rows(tmp_path / "out", table)} == {"mail1"}
    assert done.rows == sum(len(rows(tmp_path / "out", table)) for table in FACTS) == done.rows_written
    assert {path.rsplit("/", 1)[0] for path in names(tmp_path / "out")} >= {"users/all", "volumes/archive"}


def test_senders_uses_and_what_waits(copy: Path, tmp_path: Path) -> None:
    """What only databases know."""
    store = open_store(copy, QUIET)
    try:
        mailbox = store.entry(MailboxName.parse("user/dave/INBOX"))
        uid = deliver(store, b"From: Eve <Eve@Example.NET>\r\nSubject: x\r\n\r\nhello\r\n", "user/dave/INBOX")
        digest = bytes(store.open_mailbox(mailbox).rows[-1]["digest"]).hex()
        remove(store, mailbox, [store.open_mailbox(mailbox).rows[-1]["uid"]])
        expected = {name: use.octets for name, use in store.partitions["archive"].quotas.all()}
    finally:
        store.close()
    assert uid is not None or digest
    exported(copy, tmp_path / "out")
    sender, = [row["sender"] for row in rows(tmp_path / "out", "messages") if row["digest"] == digest]
    assert sender == "eve@example.net"
    assert [row["digest"] for row in rows(tmp_path / "out", "expunged")] == [digest]
    assert {row["root"]: row["used_octets"] for row in rows(tmp_path / "out", "quotas")
            if row["partition"] == "archive" and row["kind"] == "user"} == expected


def test_only_what_has_changed_is_written(copy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    exported(copy, out)
    before = names(out)
    again = exported(copy, out)
    assert {path.split("/")[0] for path in names(out) - before} <= {"quotas", "volumes", "expunged"}
    assert again.rows_written < again.rows / 4
    store = open_store(copy, QUIET)
    try:
        deliver(store, make(9, 1, 1500), "user/dave/INBOX")
    finally:
        store.close()
    known = names(out)
    exported(copy, out)
    fresh = {tuple(path.split("/")[:2]) for path in names(out) - known}
    assert {("references", "archive"), ("mailboxes", "archive"), ("messages", "archive")} <= fresh
    assert not {("references", "primary"), ("mailboxes", "primary"), ("messages", "primary")} & fresh
    assert references(out) == without(said(copy)["references"], "references")


def test_a_name_or_a_right_alone_is_a_change(copy: Path, tmp_path: Path) -> None:
    exported(copy, tmp_path / "out")
    store = open_store(copy, QUIET)
    try:
        namespace.rename_mailbox(store, MailboxName.parse("user/bob/Sent"), MailboxName.parse("user/bob/Posted"))
    finally:
        store.close()
    exported(copy, tmp_path / "out")
    assert "user/bob/Posted" in {row["name"] for row in rows(tmp_path / "out", "mailboxes")}
    assert references(tmp_path / "out") == without(said(copy)["references"], "references")


@pytest.mark.parametrize("calls", [1, 4])
def test_cut_off(copy: Path, tmp_path: Path, calls: int) -> None:
    """Wherever the second export ends, who reads sees the first one whole, until the second is."""
    out = tmp_path / "out"
    exported(copy, out)
    first = {table: in_order(rows(out, table)) for table in FACTS}
    store = open_store(copy, QUIET)
    try:
        deliver(store, make(9, 2, 1800), "user/dave/INBOX", "user/alice/INBOX")
    finally:
        store.close()
    left = [calls]

    def cut(write: Callable[..., factsexport.Written], *arguments: Any) -> factsexport.Written:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("cut off")
        return write(*arguments)

    with Faults() as planted:
        planted.around(factsexport, "write", cut)
        with pytest.raises(OSError, match="cut off"):
            exported(copy, out)
    assert {table: in_order(rows(out, table)) for table in FACTS} == first
    exported(copy, out)
    assert len(rows(out, "references")) == len(first["references"]) + 2
    exported(copy, out)
    assert not names(out) - {path for made in json.loads((out / MANIFEST).read_text())["ranges"].values()
                             for path, *_ in made[1]} - _of_before(out)


def _of_before(out: Path) -> set[str]:
    """Files of tables that are written each time: those of the export before stay for its readers."""
    return {path for path in names(out) if path.split("/")[0] in ("quotas", "volumes", "expunged")}


def test_the_first_one_cut_off_is_none(copy: Path, tmp_path: Path) -> None:
    with Faults() as planted:
        planted.fail(FolderDestination, "write", OSError("full"))
        with pytest.raises(OSError, match="full"):
            exported(copy, tmp_path / "out")
    assert names(tmp_path / "out")
    with pytest.raises(Failure, match="there are no whole facts"):
        opened([str(tmp_path / "out")])
    exported(copy, tmp_path / "out")
    assert opened([str(tmp_path / "out")])


def test_a_file_that_is_cut_off_is_noticed(copy: Path, tmp_path: Path) -> None:
    exported(copy, tmp_path / "out")
    path = max((tmp_path / "out/references").rglob("*.parquet"))
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(Failure, match="missing or cut off"):
        opened([str(tmp_path / "out")])


def test_what_is_missing_or_cut_off_is_written_again(copy: Path, tmp_path: Path) -> None:
    """Of ranges in which nothing has changed, too: what the manifest names is there when it is written again, and no
    other file is made anew (issue 25, item 1)."""
    out = tmp_path / "out"
    exported(copy, out)
    whole = {table: without(rows(out, table), table) for table in ("references", "messages", "mailboxes", "users")}
    lost, cut = (max((out / table).rglob("*.parquet")) for table in ("references", "messages"))
    lost.unlink()
    os.truncate(cut, cut.stat().st_size - 1)
    linked = max((out / "users").rglob("*.parquet"))
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    before = names(out)
    exported(copy, out)
    assert {table: without(rows(out, table), table) for table in whole} == whole
    fresh = {path for path in names(out) - before if path.split("/")[0] in whole}
    beside = {"mailboxes", "rights"}                    # tables of the same range
    assert {path.split("/")[0] for path in fresh} - beside == {"references", "messages", "users"}
    assert len([path for path in fresh if path.split("/")[0] in ("references", "messages", "users")]) == 3


def test_a_folder_of_something_else(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/letter.txt").write_text("keep me")
    with pytest.raises(Failure, match="something else in the folder, such as letter.txt"):
        exported(copy, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["letter.txt"]


def test_what_is_no_place_for_facts_is_named(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (letter := tmp_path / "letter.txt").write_text("keep me")
    for where, said in ((str(letter), f"{letter}: Not a directory"),
                        ("/proc/x", "facts cannot be exported to /proc/x: No such file or directory (x)")):
        assert program.main(["facts", "export", where, "--root", str(copy)]) == 1
        assert capsys.readouterr().err == f"onecopy: {said}\n"


@pytest.mark.parametrize("later", [False, True], ids=["planted before", "planted since"])
def test_a_link_in_the_folder_is_not_followed(copy: Path, tmp_path: Path, later: bool) -> None:
    """Somebody else may write to the folder: nothing is written where a link leads."""
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    if later:
        exported(copy, out)
        shutil.rmtree(out / "references")
        manifest = json.loads((out / MANIFEST).read_bytes())
        (out / MANIFEST).write_text(json.dumps({**manifest, "ranges": {}}))
    else:
        out.mkdir()
    (out / "references").symlink_to(outside)
    with pytest.raises((Failure, OSError)):
        exported(copy, out)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("path", ["/etc/x.parquet", "references/../../x.parquet", "else/x.parquet"])
def test_a_manifest_that_names_a_file_elsewhere(copy: Path, tmp_path: Path, path: str) -> None:
    """Another back end has written it."""
    exported(copy, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_bytes())
    manifest["ranges"]["references//x"] = ["", [[path, "references", 1, 1]]]
    (tmp_path / "out" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(Failure, match=f"{MANIFEST} is damaged"):
        opened([str(tmp_path / "out")])


@pytest.fixture
def quiet_options(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"CACHE": "1M", "DISK_RESERVE": "0", "SPECIAL_MAILBOXES": "",
                        "DEFAULT_DOMAIN": "example.org"}.items():
        monkeypatch.setenv(f"ONECOPY_STORE_{name}", value)
    yield


@pytest.mark.usefixtures("quiet_options")
def test_the_command(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It leaves no snapshot, and nobody else can read what it makes."""
    assert program.main(["facts", "export", str(tmp_path / "out"), "--root", str(copy), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["rows"] == done["rows_written"] > 100 and done["store"].endswith(f":{copy}")
    assert not [path for path in (copy / "snapshots").iterdir() if path.name.startswith("2")]
    for path in (tmp_path / "out", *(tmp_path / "out").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert program.main(["facts", "export", str(tmp_path / "out"), "--root", str(copy), "--name", "other"]) == 2
    assert "the facts of " in capsys.readouterr().err
    assert program.main(["facts", "export", str(tmp_path / "o"), "--root", str(copy), "--snapshot", "none"]) == 1


@pytest.mark.usefixtures("quiet_options")
def test_a_chunk_that_cannot_be_read(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, as check names it, and all else is there; when it has been mended the next export has all again."""
    out = tmp_path / "out"
    whole = without(said(copy)["references"], "references")
    store = open_store(copy, QUIET)
    planter = Planter(store, 5)
    planter.boxes[:] = [store.entry(MailboxName.parse("user/bob/INBOX")).id]
    try:
        where = planter.plant("index-chunk").where
    finally:
        store.close()
    for _ in range(2):          # a second one is not content with the files of the first
        assert program.main(["facts", "export", str(out), "--root", str(copy), "--name", "mail1"]) == 1
        assert f"{where}: index chunk cannot be read: 0 (repair: onecopy reconstruct" in capsys.readouterr().out
    finding, = json.loads((out / MANIFEST).read_text())["findings"]
    assert (finding["where"], finding["range"].split("/")[0]) == (where, "mailboxes") == ("user/bob/INBOX", "mailboxes")
    assert {row["name"]: row["damage"] for row in rows(out, "mailboxes") if row["damage"]} == {where: finding["what"]}
    assert references(out) == [row for row in whole if row["name"] != where]
    before = {path: (out / path).read_bytes() for path in names(out)}
    assert program.main(["reconstruct", "bob", "--root", str(copy)]) == 0
    assert program.main(["facts", "export", str(out), "--root", str(copy), "--name", "mail1"]) == 0
    assert references(out) == without(said(copy)["references"], "references") and len(references(out)) == len(whole)
    assert {path: octets for path, octets in before.items() if path in names(out)}.items() <= {
        path: (out / path).read_bytes() for path in names(out)}.items()


@pytest.mark.usefixtures("quiet_options")
def test_a_killed_export_leaves_no_snapshot(copy: Path, tmp_path: Path, faults: Faults) -> None:
    """Its snapshot would keep message files from the purge for as long as it is there: the next start removes it."""
    faults.before(factsexport, "_side_by_side", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    child = os.fork()
    if not child:
        program.main(["facts", "export", str(tmp_path / "out"), "--root", str(copy)])
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    snapshots = copy / "snapshots"
    assert [path for path in snapshots.iterdir() if path.name.startswith("2") and path.name.endswith("Z")]
    store = open_store(copy, QUIET)
    try:
        Finishing().at_start(store)
        taking.clear(store)
    finally:
        store.close()
    assert not [path for path in snapshots.iterdir() if path.name.startswith("2")]


def test_what_is_in_a_file(copy: Path, tmp_path: Path) -> None:
    """Any reader of Parquet knows what it reads: names and types of columns are in each file."""
    exported(copy, tmp_path / "out")
    for table, columns in FACTS.items():
        for path in (tmp_path / "out" / table).rglob("*.parquet"):
            assert parquet.read_schema(path).names == [column.name for column in columns]
