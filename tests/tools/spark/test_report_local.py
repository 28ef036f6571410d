"""The quota report of one process, without Spark: against what the databases say, and as a command."""

import json

import numpy as np
import pytest
from pyarrow import parquet

from store.quota.accounting import sharing
from tests.support.stores.stores import deliver, make_store
from tests.support.stores.whole import random_store
from tests.tools.spark.test_report import FIGURES, NOW, SETTINGS, body, fill, of
from tools.cli import program
from tools.spark import sparksession
from tools.spark.report import reportjob, reportlocal
from tools.spark.report.reportlocal import read
from tools.spark.report.totals import Terms, differences, lost, oddities, report


@pytest.mark.parametrize("seed", range(5))
def test_against_accounting(tmp_path, seed):
    """Every figure of every level is what `onecopy quota sharing` says."""
    store = random_store(tmp_path / "store", seed)
    accounts = sharing(store)
    store.close()
    found = read([str(tmp_path / "store")], "example.org")
    made = report(found.held, found, Terms(SETTINGS, NOW))
    for level, key in (("users", "user"), ("mailboxes", "mailbox"), ("domains", "domain"),
                       ("partitions", "partition")):
        expected = {name: (share.messages, share.octets, share.unique, share.shared, share.fair, share.freed)
                    for name, share in getattr(accounts, level).items()}
        assert of(made[level], str(tmp_path / "store"), key) == expected, level
    assert {row["partition"]: row["waiting"] for row in made["partitions"]} == accounts.waiting
    assert differences(made) == lost(found) == oddities(found) == []


def test_a_store_without_messages(tmp_path):
    make_store(tmp_path / "store", ("alice",)).close()
    found = read([str(tmp_path / "store")], "example.org")
    made = report(found.held, found, Terms(SETTINGS, NOW))
    assert [tuple(row[name] for name in FIGURES) for row in made["users"]] == [(0,) * 6] and differences(made) == []


def test_a_partition_from_which_all_have_moved(tmp_path, capsys):
    """It has message files, which wait for the purge, and no mailbox."""
    store = make_store(tmp_path / "store", ("alice",))
    deliver(store, b"Subject: x\r\n\r\n", "user/alice/INBOX")
    store.close()
    (tmp_path / "volume").mkdir()
    for words in (("partition", "add", "second", "--path", str(tmp_path / "volume")),
                  ("user", "move", "alice", "--to", "second"),
                  ("quota", "report", "--engine", "local", "--json")):
        capsys.readouterr()
        assert program.main([*words, "--root", str(tmp_path / "store")]) == 0
    rows = {row["partition"]: row for row in json.loads(capsys.readouterr().out)["partitions"]}
    assert [(rows[name]["waiting"], rows[name]["messages"]) for name in ("primary", "second")] == [(14, 0), (0, 1)]


def test_the_command_starts_no_spark(tmp_path, faults, capsys):
    """It says what is there, what is missing and what the difference is."""
    faults.forbid(sparksession, "session")
    store = fill(tmp_path / "store")
    deliver(store, b"From: Ann <Ann@Example.ORG>\r\n\r\n".ljust(60, b"x"), "user/alice/Archive")
    store.close()
    words = ["quota", "report", "--root", str(tmp_path / "store"), "--engine", "local", "--json"]
    assert program.main([*words, "--expire", "folderpattern: *; messagesize: 130"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["live"] and made["problems"] == [] and made["what_if"]["freed"] == 131
    assert made["totals"]["file_octets"] == 131 + 50 + 100 + 40 + 60
    assert {row["sender"]: row["file_octets"] for row in made["senders"]} == {"ann@example.org": 60, "-": 281}
    assert program.main([*words[:-1], "--by", "senders"]) == 0
    assert "ann@example.org" in capsys.readouterr().out
    path, = [path for path in (tmp_path / "store/partitions/primary/messages").glob("?/??/*")
             if path.stat().st_size == len(body(2, 50))]
    path.unlink()
    assert program.main([*words, "--offline"]) == 1
    assert capsys.readouterr().err.endswith("1 message files of user/alice/INBOX are missing or cut off, such as "
                                            f"{path.name}\n")


def test_so_many_mailboxes_are_a_fleet(tmp_path, monkeypatch, capsys):
    """Of a store with more mailboxes than may be rows in one process each list has its first rows, and the files of
    --parquet have all; where that cannot be, it is said what can (issue 25, item 2)."""
    monkeypatch.setattr(reportjob, "MAILBOXES", 3)
    fill(tmp_path / "store").close()
    words = ["quota", "report", "--root", str(tmp_path / "store"), "--engine", "local", "--rows", "2", "--json"]
    assert program.main([*words, "--parquet", str(tmp_path / "out")]) == 0
    out, error = capsys.readouterr()
    made = json.loads(out)
    assert made["fleet"] and len(made["mailboxes"]) == 2 and made["totals"]["mailboxes"] == 7 and "--parquet" in error
    folder, = (tmp_path / "out/mailboxes").iterdir()
    assert parquet.read_table(folder).num_rows == 6         # those that have messages
    assert program.main([*words, "--offline"]) == 1
    assert "onecopy quota report --fleet" in capsys.readouterr().err


def test_digests_that_begin_alike():
    """Nothing but all of a digest tells files apart."""
    lines = np.zeros(4, reportlocal.LINE)
    lines["digest"] = np.frombuffer(b"".join(bytes(31) + bytes([last]) for last in (2, 1, 2, 1)), "V32")
    lines["box"] = [0, 1, 1, reportlocal.FILE]
    found, file = reportlocal.in_order(lines, np.array([1, 0, 0]))
    assert [line.tobytes()[-1] for line in found["digest"]] == [1, 1, 2, 2]
    assert file.tolist() == [0, 0, 1, 1] and found["box"].tolist() == [reportlocal.FILE, 1, 1, 0]
