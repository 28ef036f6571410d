"""onecopy expire, purge, user undelete, mailbox undelete --dry-run."""

import json
import re

from tests.support.processes.program import Program

MESSAGE = b"From: a@example.org\r\nSubject: secret plans\r\nDate: Mon, 1 Jan 2024 00:00:00 +0000\r\n\r\nx\r\n"


def rules(tmp_path, text):
    path = tmp_path / "rules"
    path.write_text(text)
    return str(path)


def test_rules_and_runs(onecopy: Program, tmp_path):
    for _ in range(3):
        onecopy("deliver", "alice", octets=MESSAGE)
    file = rules(tmp_path, "few.messagecount: 1\nsecret.messageheader.Subject: secret\nsecret.action: report\n")
    onecopy("expire", "set", "--user", "alice", file)
    table = onecopy("expire", "rules")
    assert "built-in:Trash" in table and "user:alice:few" in table and "messagecount 1" in table
    told = json.loads(onecopy("expire", "rules", "--for", "user/alice/INBOX", "--json"))
    assert [(rule["rule"], rule["holds"]) for rule in told["rules"]] == [
        ("user:alice:few", True), ("user:alice:secret", True)]
    dry = json.loads(onecopy("expire", "alice", "--dry-run", "--json"))
    counters = {rule["rule"]: rule["messages"] for rule in dry["rules"]}
    assert counters == {"user:alice:few": 2, "user:alice:secret": 3} and dry["reported"][0]["uids"] == [1, 2, 3]
    only = json.loads(onecopy("expire", "run", "user/alice/INBOX", "--dry-run", "--json", "--rule", "secret"))
    assert {rule["rule"] for rule in only["rules"]} == {"user:alice:secret"}
    done = json.loads(onecopy("expire", "--all", "--json"))
    assert {rule["rule"]: rule["messages"] for rule in done["rules"]} == counters
    assert json.loads(onecopy("expire", "--all", "--rule", "few", "--json"))["messages"] == 0
    assert "2 messages" in onecopy("undelete", "alice", "INBOX")
    assert onecopy("check") == "nothing wrong was found\n"


def test_wrong_use(onecopy: Program, tmp_path):
    for words in (("expire",), ("expire", "--all", "alice"), ("expire", "--partition", "none"),
                  ("expire", "--all", "--at", "3"), ("expire", "--all", "--rule", "none"),
                  ("expire", "rules", "--for", "Trash"), ("expire", "set", "--user", "alice"),
                  ("expire", "set", "--user", "alice", str(tmp_path / "none")), ("purge", "--older-than", "soon"),
                  ("purge", "--partition", "none")):
        onecopy.refused(*words, status=2)
    assert "line 1, column 14" in onecopy.refused(
        "expire", "set", "--user", "alice", rules(tmp_path, "messagedays: x\n"), status=1)
    onecopy.refused("expire", "nobody", status=1)


def test_faults_are_told(onecopy: Program, tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_STORE_EXPIRE_RULES", rules(tmp_path, "a.folderpattern: user/*\na.days: 3\n"))
    where = f"{tmp_path}/rules:2:3: days is not an attribute"
    assert onecopy("expire", "rules", "--check", status=1) == "" and onecopy.error == f"{where}\n"
    assert where in onecopy("expire", "rules", "--for", "user/alice/INBOX", status=1)
    assert json.loads(onecopy("expire", "--all", "--json", status=1))["problems"] == {
        f"nothing is expired where this holds: {where}": 2}


def test_partitions_domains_and_last(onecopy: Program, tmp_path):
    file = rules(tmp_path, "old.folderpattern: user/*\nold.messagedays: 30\nold.exclusive: yes\n")
    onecopy("expire", "set", "--partition", "primary", file)
    onecopy("expire", "set", "--domain", "Example.ORG", file, "--dry-run")
    assert "domain" not in onecopy("expire", "rules")
    onecopy("expire", "set", "--domain", "Example.ORG", file)
    told = json.loads(onecopy("expire", "rules", "--for", "user/bob/INBOX", "--json"))["rules"]
    assert [(rule["rule"], rule["holds"]) for rule in told] == [
        ("domain:example.org:old", True), ("partition:primary:old", False)]
    onecopy("expire", "set", "--domain", "example.org", "--none")
    assert "domain" not in onecopy("expire", "rules")
    assert json.loads(onecopy("expire", "last", "--json"))["began"] is None
    assert onecopy("expire", "rules", "--check") == "3 rules, no faults\n"


def test_purge(onecopy: Program):
    onecopy("deliver", "alice", octets=MESSAGE)
    onecopy("mailbox", "create", "alice", "Old")
    onecopy("mailbox", "delete", "alice", "Old", "--yes")
    assert "Old" in onecopy("mailbox", "undelete", "alice", "Old", "--dry-run")
    assert "Old" in onecopy("mailbox", "list", "alice", "--deleted")
    onecopy("user", "remove", "alice", "--now", "--yes")
    told = json.loads(onecopy("purge", "--dry-run", "--json"))["partitions"][0]
    assert (told["mailboxes"], told["files"]) == (0, 0)
    told = json.loads(onecopy("purge", "--dry-run", "--older-than", "0", "--json"))["partitions"][0]
    assert told["mailboxes"] == 2
    assert "cannot be undone" in onecopy.refused("purge", "--older-than", "0", status=2)
    told = json.loads(onecopy("purge", "--older-than", "0", "--yes", "--json"))["partitions"][0]
    assert (told["mailboxes"], told["files"], told["waiting"]) == (2, 1, 0)
    assert onecopy("check") == "nothing wrong was found\n"
    assert "purged" in onecopy("user", "undelete", "alice", "--dry-run", status=1)


def test_users_come_back(onecopy: Program):
    onecopy("deliver", "alice", octets=MESSAGE)
    onecopy("user", "remove", "bob", "--yes")
    onecopy("user", "remove", "alice", "--now", "--yes")
    removed = json.loads(onecopy("user", "list", "--removed", "--json"))
    assert {row["user"]: row["mailboxes"] for row in removed} == {"alice": 1, "bob": 1}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]+Z", row["kept_until"]) for row in removed)
    onecopy("user", "undelete", "alice", "bob", "--dry-run")
    assert len(json.loads(onecopy("user", "list", "--removed", "--json"))) == 2
    onecopy("user", "undelete", "alice", "bob")
    assert json.loads(onecopy("mailbox", "info", "alice", "INBOX", "--json"))["messages"] == 1
    assert json.loads(onecopy("user", "list", "--removed", "--json")) == []
    assert "has not been removed" in onecopy.refused("user", "undelete", "alice", status=1)
    assert onecopy("check") == "nothing wrong was found\n"
