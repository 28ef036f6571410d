"""The quota report of one process, without Spark: against what the databases say, and as a command."""

import json

import pytest

from store.quota.accounting import sharing
from tests.support.stores.stores import make_store
from tests.support.stores.whole import random_store
from tests.tools.spark.test_report import FIGURES, NOW, SETTINGS, body, fill, of
from tools.cli import program
from tools.spark import sparksession
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


def test_the_command_starts_no_spark(tmp_path, faults, capsys):
    """It says what is there, what is missing and what the difference is."""
    faults.forbid(sparksession, "session")
    fill(tmp_path / "store").close()
    words = ["quota", "report", "--root", str(tmp_path / "store"), "--engine", "local", "--json"]
    assert program.main([*words, "--expire", "folderpattern: *; messagesize: 130"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["live"] and made["problems"] == [] and made["what_if"]["freed"] == 131
    assert made["totals"]["file_octets"] == 131 + 50 + 100 + 40
    path, = [path for path in (tmp_path / "store/partitions/primary/messages").glob("?/??/*")
             if path.stat().st_size == len(body(2, 50))]
    path.unlink()
    assert program.main([*words, "--offline"]) == 1
    assert capsys.readouterr().err.endswith("1 message files of user/alice/INBOX are missing or cut off, such as "
                                            f"{path.name}\n")
