"""The report of a fleet, from facts: figures to the octet, sharing between back ends, what could be freed, and nothing
that grows with the fleet in the driver (issue 25, items 2 and 4)."""

import copy
import csv
import io
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from store.quota.accounting import sharing
from store.settings import Settings
from store.snapshots import taking
from tests.support import ROOT
from tests.support.faults.planted import Faults
from tests.support.servers.webhdfs import webhdfs
from tests.support.stores.stores import make_store
from tests.support.stores.whole import random_store
from tests.tools.spark.conftest import LOCAL, compiled
from tests.tools.spark.test_report import fill
from tools.benchmarks.fleetsize import Run, projected
from tools.cli import program
from tools.spark import engines, sparksession, summaries
from tools.spark.facts.destinations import FolderDestination
from tools.spark.facts.factfolders import opened, table_of
from tools.spark.facts.factsexport import export
from tools.spark.facts.snapshottables import prepared
from tools.spark.generate.factsgenerator import Fleet, generate
from tools.spark.report import fleetjob, fleetlocal
from tools.spark.report.fleetjob import TITLES
from tools.spark.report.fleetpage import page
from tools.spark.sparkcommands import print_csv

WHERE = [LOCAL]
NASTY = "=1,\"no'thing\\\n<b>é"          # a formula, a separator, quotes, an escape, a line's end and markup
NOW = datetime.now(UTC) + timedelta(40)
TERMS = fleetjob.Terms(Settings(default_domain="example.org", default_quota=110), NOW, rows=100)


@pytest.fixture(scope="module")
def back_ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Three back ends whose facts were exported, and what the databases of each say. Two have the same mail."""
    folder = tmp_path_factory.mktemp("fleet")
    accounts = {}
    for name, make in (("hand", fill), ("twin", fill), ("random", lambda root: random_store(root, 11))):
        store = make(folder / name)
        try:
            accounts[name] = sharing(store)
            snapshot = taking.create(store)
        finally:
            store.close()
        with prepared(snapshot) as folders:
            export(snapshot, folders, folder / name, FolderDestination(folder / "facts" / name), name=name,
                   domain="example.org", processes=1)
    return {"facts": [str(folder / "facts" / name) for name in accounts], "accounts": accounts}


@pytest.fixture(scope="module")
def made(spark: Any, back_ends: dict[str, Any]) -> dict[str, Any]:
    with compiled(spark):
        return fleetjob.fleet(spark, opened(back_ends["facts"]), TERMS)


@pytest.mark.parametrize("rows", [1_000_000, 40])
def test_both_engines_say_the_same(made: dict[str, Any], back_ends: dict[str, Any], rows: int) -> None:
    """Equal JSON (issue 25), also when the local one reads a few messages at a time."""
    local = fleetlocal.fleet(opened(back_ends["facts"]), TERMS, range_rows=rows)
    assert json.dumps(local, sort_keys=True) == json.dumps(made, sort_keys=True)


def test_both_engines_say_the_same_of_invented_facts(spark: Any, tmp_path: Path) -> None:
    """Uneven ones, with many senders and limits, what is on both back ends, and a message that all have; and of a back
    end that has nothing at all."""
    places = [str(place) for place in generate(tmp_path / "facts", Fleet(6000, 40))]
    store = make_store(tmp_path / "empty", ())
    snapshot = taking.create(store)
    store.close()
    with prepared(snapshot) as folders:
        export(snapshot, folders, tmp_path / "empty", FolderDestination(tmp_path / "nothing"), name=NASTY,
               domain="example.org", processes=1)
    for some in ([*places, str(tmp_path / "nothing")], [str(tmp_path / "nothing")]):
        local = fleetlocal.fleet(opened(some), TERMS, range_rows=1500)
        other = fleetjob.fleet(spark, opened(some), TERMS)
        assert json.dumps(local, sort_keys=True) == json.dumps(other, sort_keys=True)
        assert fleetjob.differences(local) == []
    assert local["totals"]["messages"] == local["totals"]["users"] == 0 and local["users"] == local["ages"] == []


@pytest.mark.parametrize("name", ["hand", "twin", "random"])
def test_users_are_those_of_the_databases(made: dict[str, Any], back_ends: dict[str, Any], name: str) -> None:
    """Every figure is what `onecopy quota sharing` says, to the octet."""
    accounts = back_ends["accounts"][name]
    figures = ("messages", "logical", "unique", "fair_share", "freed")
    expected = {user: (share.messages, share.octets, share.unique, share.fair, share.freed)
                for user, share in accounts.users.items()}
    found = {row["user"]: tuple(row[figure] for figure in figures) for row in made["users"] if row["store"] == name}
    assert {user: figures for user, figures in found.items() if any(figures)} == {
        user: figures for user, figures in expected.items() if any(figures)}
    assert {row["partition"]: row["waiting"] for row in made["partitions"] if row["store"] == name} == accounts.waiting
    assert fleetjob.differences(made) == []


def test_last_login_and_last_read(made: dict[str, Any]) -> None:
    """What the store has on record (issue 25, item 4), as days: alice has read, bob was only logged in."""
    found = {row["user"]: (row["last_login"], row["last_read"]) for row in made["users"] if row["store"] == "random"}
    assert (found["alice"], found["bob"]) == (("2023-11-14", "2023-11-14"), ("2023-11-14", None))
    assert {found[user] for user in found.keys() - {"alice", "bob"}} == {(None, None)}


def test_what_is_on_several_back_ends(made: dict[str, Any]) -> None:
    """By hand: the twins have files of 131, 50, 100 and 40 octets each, all doubled; carol's domain would leave nothing
    where it is but hers alone, and bring nothing new."""
    pair, = [row for row in made["pairs"] if (row["store"], row["other_store"]) == ("hand", "twin")]
    assert (pair["contents"], pair["octets"]) == (4, 131 + 50 + 100 + 40)
    assert made["totals"]["doubled_octets"] >= 321
    moves = {(row["domain"], row["store"], row["to_store"]): row for row in made["moves"]}
    # example.org: three files, of which those of 131 and 50 nobody else has; all are at the twin already.
    move = moves["example.org", "hand", "twin"]
    assert (move["octets"], move["freed"], move["added"], move["saved"]) == (131 + 50 + 100, 181, 0, 181)
    assert ("b.org", "hand", "twin") not in moves           # others have that file, too: nothing would be freed


def test_classes_by_hand(made: dict[str, Any]) -> None:
    hand = [row for row in made["mailboxes"] if row["store"] == "hand"]
    assert {row["mailbox"]: row["logical"] for row in hand} == {
        "user/alice/INBOX": 181, "user/alice/Archive": 131, "user/alice/Trash": 100, "user/bob/INBOX": 131,
        "user/carol@b.org/INBOX": 100, "public/news": 100}
    assert sum(row["messages"] for row in made["ages"]) == made["totals"]["messages"]
    assert sum(row["messages"] for row in made["kinds"]) == made["totals"]["messages"]
    assert sum(row["file_octets"] for row in made["sizes"]) == made["totals"]["file_octets"]
    assert {row["age"] for row in made["ages"]} == {"6 months"}         # saved a moment ago, looked at 40 days later
    assert {row["days"]: row["freed"] for row in made["purge"]}[30] == made["totals"]["waiting"]
    assert made["totals"]["idle"] <= made["totals"]["reads_nothing"]
    largest = made["messages"][0]
    assert largest["size"] == max(row["size"] for row in made["messages"])
    dora, = [row for row in made["users"] if (row["store"], row["user"]) == ("hand", "dora")]
    assert (dora["messages"], dora["idle"], dora["reads_nothing"], dora["limit"]) == (0, True, True, None) or dora[
        "limit"] == 110


def test_the_notebook(spark: Any, back_ends: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example in docs runs, cell by cell, and draws its four plots of these back ends."""
    monkeypatch.setenv("FACTS", ",".join(back_ends["facts"]))
    monkeypatch.setenv("PLOTS", str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))            # there is `onecopy`, as an installation has it
    cells = json.loads((ROOT / "docs/examples/facts.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert {path.name for path in tmp_path.glob("*.svg")} == {
        "Largest users.svg", "Single copy.svg", "Sizes.svg", "Holders.svg"}
    assert "alice" in (tmp_path / "Largest users.svg").read_text()


def test_when_a_partition_is_full() -> None:
    """By hand: 10 octets a day, of which 100 are left."""
    before = {"created": "2026-01-01T00:00:00Z", "partitions": [{"store": "s", "partition": "p", "file_octets": 100}]}
    now = {"created": "2026-01-11T00:00:00Z", "partitions": [
        {"store": "s", "partition": "p", "file_octets": 200, "free": 100},
        {"store": "s", "partition": "new", "file_octets": 5, "free": 100}]}
    fleetjob.full_on(now, before)
    assert [(row["growth"], row["full_on"]) for row in now["partitions"]] == [(100, "2026-01-21"), (None, None)]


@pytest.mark.usefixtures("in_session")
@pytest.mark.parametrize("engine", ["spark", "local"])
def test_the_command(engine: str, back_ends: dict[str, Any], tmp_path: Path,
                     faults: Faults, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the first rows, Parquet all of them, and the page its charts; a few rows go through the driver. What is
    on another file system is what is in folders here."""
    counted: list[int] = []

    def watched(table: Any, *arguments: Any) -> Any:
        found = table(*arguments)
        counted.append(found.num_rows)
        return found

    faults.around(summaries, "table", watched)
    words = ["quota", "report", "--rows", "2", "--root", str(tmp_path), "--fleet"]
    with webhdfs() as remote:
        places = back_ends["facts"] if engine == "local" else [
            remote.bring(Path(folder), f"/facts/{Path(folder).name}") for folder in back_ends["facts"]]
        assert program.main([*words, *places, "--engine", engine, "--json", "--parquet", str(tmp_path / "out"),
                             "--html", str(tmp_path / "page.html")]) == 0
    made = json.loads(capsys.readouterr().out)
    assert len(made["users"]) == len(made["mailboxes"]) == 2
    assert max(counted, default=0) <= 50
    folder, = (tmp_path / "out/users").iterdir()
    assert parquet.read_table(folder).num_rows == made["totals"]["users"] > 8
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.parquet")} == {0o600}
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg class=\"chart\"") >= 6 and "Kinds of folder" in page and "@media print" in page
    (tmp_path / "before.json").write_text(json.dumps(made))
    words += [*back_ends["facts"], "--engine", "local"]     # whose figures they are, what is printed does not know
    assert program.main([*words, "--json"]) == 0
    here = json.loads(capsys.readouterr().out)
    assert {**made, "created": 0, "back_ends": 0} == {**here, "created": 0, "back_ends": 0}
    assert program.main([*words, "--since", str(tmp_path / "before.json")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Facts of 3 back ends\n")
    assert all(title in out for name, title in TITLES.items() if made[name])


def test_names_are_no_markup_and_no_formula(made: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Of users, mailboxes, senders and back ends: what a browser or a spreadsheet would take for its own."""
    nasty = copy.deepcopy(made)
    for rows in (nasty["users"], nasty["mailboxes"], nasty["senders"], nasty["domains"], nasty["moves"]):
        for row in rows:
            row |= {name: NASTY for name in row.keys() & {"user", "mailbox", "sender", "domain", "store"}}
    text = page(nasty)
    assert "<b>" not in text and "&lt;b&gt;" in text
    print_csv(nasty["mailboxes"], nasty["mailboxes"][0].keys())
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(nasty["mailboxes"]) and {row["mailbox"] for row in rows} == {"'" + NASTY}


def test_what_an_export_could_not_read(back_ends: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
                                       ) -> None:
    """The report says so, for each back end up to ten times, and its exit status is 1: the figures lack it. And a list
    that is cut off says so."""
    folder = Path(shutil.copytree(back_ends["facts"][0], tmp_path / "facts"))
    manifest = json.loads((folder / "facts.json").read_text())
    manifest["findings"] = [{"range": "mailboxes/primary/00000000", "what": "index chunk cannot be read: 3",
                             "where": "user/alice/INBOX", "repair": "reconstruct alice"}] * 12
    (folder / "facts.json").write_text(json.dumps(manifest))
    words = ["quota", "report", "--fleet", str(folder), "--engine", "local", "--rows", "2"]
    assert program.main([*words, "--json"]) == 1
    out, error = capsys.readouterr()
    made = json.loads(out)
    assert made["back_ends"][0]["findings"] == 12 and len(made["problems"]) == 11
    assert made["problems"][0].endswith("user/alice/INBOX: index chunk cannot be read: 3 (repair there: onecopy "
                                        "reconstruct alice)")
    assert "2 more could not be read" in error
    assert program.main([*words, "--csv"]) == 1
    out, error = capsys.readouterr()
    assert len(out.splitlines()) == 3 and "these are the first 2 rows" in error


def test_few_records_need_no_spark(back_ends: dict[str, Any], faults: Faults, capsys: pytest.CaptureFixture[str]
                                   ) -> None:
    """The first line says so; a URI is for Spark."""
    faults.forbid(sparksession, "session")
    assert program.main(["quota", "report", "--fleet", *back_ends["facts"]]) == 0
    assert capsys.readouterr().out.startswith("engine: this process (")
    assert engines.of_fleet(engines.FLEET_RECORDS + 1, "local[2]").engine == "spark"
    assert engines.of_fleet(3, "yarn").engine == "spark"
    assert program.main(["quota", "report", "--fleet", "s3a://facts/mail1", "--engine", "local"]) == 2
    assert "--engine local reads folders" in capsys.readouterr().err


def test_what_does_not_fit(back_ends: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quota", "report", "--fleet", *back_ends["facts"]]
    assert program.main([*words, "--fix"]) == 2
    assert "--fix is about a store, and --fleet reads facts" in capsys.readouterr().err


def test_invented_facts(tmp_path: Path) -> None:
    """They are as many as was said, the same for the same seed, and uneven: one message is everybody's, many have one
    holder, and some are on both back ends."""
    facts = opened([str(place) for place in generate(tmp_path / "a", Fleet(20_000, 60))])
    again = opened([str(place) for place in generate(tmp_path / "b", Fleet(20_000, 60))])
    digests = []
    for one, other in zip(facts, again, strict=True):
        references = table_of([one], "references")
        assert references.equals(table_of([other], "references"))
        assert 15_000 < len(references) < 25_000
        holders = references.group_by("digest").aggregate([("owner", "count_distinct")])["owner_count_distinct"]
        assert max(holders.to_pylist()) == 60 and holders.to_pylist().count(1) > 100
        assert set(references["mailbox"].to_pylist()) <= set(table_of([one], "mailboxes")["id"].to_pylist())
        digests.append(set(references["digest"].to_pylist()))
    assert 0 < len(digests[0] & digests[1]) < len(digests[0]) / 10


def test_the_engine_goes_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    """A small store needs no Spark, and the first line says so."""
    fill(tmp_path / "store").close()
    faults.forbid(sparksession, "session")
    assert program.main(["quota", "report", "--root", str(tmp_path / "store"), "--offline"]) == 0
    assert capsys.readouterr().out.startswith("engine: this process (about ")
    where = [str(tmp_path / "store")]
    monkeypatch.setattr(engines, "REPORT_RECORDS", 3)
    assert engines.of_report(where, "local[2]").why.startswith("engine: Spark (more than 3 records)")
    assert engines.of_report(where, "yarn").engine == "spark"


def test_a_projection_by_hand() -> None:
    """20,000 times the records: 10 octets each are 200 * 10^9, on 100 executors 1.9 GiB each; 2 ms of 100 cores each
    are 111 hours. 128 MiB of facts are 20,000 tasks, each of which cuts what it sends into 10,400 parts: a bit for each
    and 64 octets are 26 MiB. What grows with the square of the records is what breaks first."""
    lines = projected(Run(1_000_000, 1.0, 2000.0, 1.0, 10_000_000, 0, 1, 128 << 20))
    assert "111.1 hours" in lines[1] and " 2 GiB of shuffle for each executor, 10 octets a record" in lines[2]
    assert "26 MiB in the driver for the places of 20,000 x 10,400 shuffled pieces" in lines[3]
    assert "11 minutes" in lines[4]         # 30,400 x 10,400 pieces of 100 executors, 5,000 a second
    assert "the driver's memory, by the places of shuffled pieces, at 9 times as many records" in lines[-1]
