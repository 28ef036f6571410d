"""onecopy check --engine, and onecopy relink."""

import json
from pathlib import Path

import pytest

from tests.support.faults.spark_faults import plant
from tests.support.processes.program import Program
from tests.support.stores.whole import lose_databases

pytestmark = pytest.mark.long

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"


@pytest.fixture
def full(bare: Program) -> Program:
    """A generated store."""
    bare("spark", "generate", str(bare.root), "--messages", "90", "--users", "8", "--references", "4", "--small",
         "--processes", "1")
    return bare


def test_nothing_wrong(full: Program) -> None:
    said = full("check", "--engine", "local")
    assert said.startswith("90 messages, 360 records, ") and said.endswith(": nothing wrong\n")
    found = json.loads(full("check", "--engine", "local", "--json"))
    assert (found["faults"], found["classes"], found["databases"]) == (0, [], True)
    assert not list(full.root.glob(".plan*"))


def test_what_is_found_is_mended(full: Program, tmp_path: Path) -> None:
    planted = plant(full.root, 20, 3)
    said = full("check", "--engine", "local", "--plan", str(tmp_path / "plan"), status=1)
    for fault in planted:
        assert f"1 {fault.kind}: " in said and f"    {fault.where}: " in said
    assert said.endswith(f"the plan is in {tmp_path / 'plan'}\n") and "20 wrong" in said
    assert "a plan already" in full.refused("check", "--engine", "local", "--plan", str(tmp_path / "plan"), status=2)
    said = full("check", "--engine", "local", "--apply", status=1)
    assert "; 5 left\n" in said                     # five losses
    found = json.loads(full("check", "--engine", "local", "--apply", "--sweep", "--json", status=1))
    assert {item["kind"] for item in found["left_classes"]} == {
        "message-missing", "message-octets", "message-cut", "message-long", "message-other"}
    assert found["left"] == 5


def test_the_plan_is_one_that_reconstruct_knows(full: Program, tmp_path: Path) -> None:
    planted = [fault for fault in plant(full.root, 20, 3) if fault.kind[:6] in ("index-", "refere", "quota-", "cache-")]
    full("check", "--engine", "local", "--plan", str(tmp_path / "plan"), status=1)
    full("reconstruct", "--apply", str(tmp_path / "plan"))
    said = full("check", "--engine", "local", status=1)
    assert planted and not [fault for fault in planted if fault.kind in said]


def test_options_that_do_not_fit(full: Program) -> None:
    for words in (("--apply",), ("--plan", "x"), ("--engine", "local", "--sweep"), ("--engine", "check", "--sweep")):
        full.refused("check", *words, status=2)
    full.refused("check", "--engine", "spark", "--spark", "nonsense", status=2)


def test_the_databases_are_lost(full: Program) -> None:
    lose_databases(full.root)
    assert "the databases are lost" in full("check", "--engine", "local")
    assert "reconstruct" in full.refused("check", "--engine", "local", "--apply", status=2)


def test_no_store(bare: Program) -> None:
    bare.refused("check", "--engine", "local", status=2)


def test_relink(onecopy: Program) -> None:
    onecopy("partition", "add", "archive")
    onecopy("user", "add", "dave", "--partition", "archive", "--password-stdin", octets=b"secret\n")
    onecopy("deliver", "--raw", "alice", octets=MESSAGE)
    onecopy("deliver", "--raw", "dave", octets=MESSAGE)
    size = len(MESSAGE)
    assert f"1 files, {size} octets could be saved" in onecopy("relink", "--check", status=1)
    told = json.loads(onecopy("relink", "--equal", "--json"))
    assert (told["doubles"], told["octets"], told["by"]) == (
        1, size, {"partition": {"doubles": 1, "octets": size, "skipped": 0}})
    assert onecopy("relink", "--check", "--equal") == "0 files, 0 octets could be saved\n"


def test_relink_what_differs_at_its_head(onecopy: Program) -> None:
    """The table has what there was, and what there is; what messages show stays as it was."""
    body = b"From: a@example.org\r\nSubject: large\r\n\r\n" + b"0123456789abcdef" * 500 + b"\r\n"
    for way in (b"one", b"another"):
        onecopy("deliver", "--raw", "alice", octets=b"Received: from " + way + b" by b; today\r\n" + body)
    could = json.loads(onecopy("relink", "--dry-run", "--json", status=1))["partitions"][0]
    did = json.loads(onecopy("relink", "--json"))["partitions"][0]
    assert (could["files_before"], could["files_after"], could["contents"]) == (2, 1, 1)
    assert {name: did[name] for name in ("files_after", "octets_after", "saved")} == {
        "files_after": 1, "octets_after": len(body), "saved": could["octets_before"] - len(body)}
    assert {name: did[name] for name in could if name != "records"} == {
        name: could[name] for name in could if name != "records"} and did["records"] == 2
    assert onecopy("relink", "--check").endswith("0 files, 0 octets could be saved\n")
    assert onecopy("check") == "nothing wrong was found\n"
    assert onecopy("check") == "nothing wrong was found\n"
