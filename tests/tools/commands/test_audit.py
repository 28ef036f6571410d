"""onecopy audit, and what every command notes of itself."""

import json
import os
import pwd
import shutil

import pytest

from store.audit.auditline import CHOICES
from tests.support.processes.program import Program
from tools import commandaudit
from tools.cli import registry
from tools.cli.commandtree import tree
from tools.cli.invocation import AGAIN

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"
ME = pwd.getpwuid(os.getuid()).pw_name


def lines(onecopy: Program, *words: str) -> list[tuple[str, str, str]]:
    return [(line["kind"], line["what"], line.get("result", "")) for line in onecopy.json("audit", "show", *words)]


def test_each_command_that_changes_or_reads_is_one_line_with_its_arguments(onecopy: Program) -> None:
    began = len(lines(onecopy))
    onecopy("mailbox", "create", "alice", "Work")
    onecopy("mailbox", "acl", "alice", "Work", "bob", "lr")
    onecopy("mailbox", "acl", "alice", "Work")
    onecopy("undelete", "alice", "INBOX", "--list")
    onecopy("mailbox", "list", "alice")
    onecopy("quota", "set", "alice", "--octets", "2G")
    onecopy("user", "set", "bob", "--status", "active")
    onecopy("export", "alice", "--format", "mbox", "--to", str(onecopy.root.parent / "mbox"))
    onecopy("user", "remove", "--yes", "bob")
    assert lines(onecopy)[began:] == [
        ("mailbox", "mailbox create", ""), ("share", "mailbox acl", ""), ("quota", "quota set", ""),
        ("user", "user set", ""), ("export", "export", ""), ("delete", "user remove", "")]
    last = onecopy.json("audit", "show", "--kind", "quota")[-1]
    assert (last["actor"], last["service"]) == (ME, "command")
    assert [word for word in last["arguments"] if not word.startswith(("--root", str(onecopy.root)))] == [
        "alice", "--octets", "2G"]
    assert "quota set" in onecopy("audit", "show") and ME in onecopy("audit", "show")


def test_what_is_refused_is_noted_with_the_reason(onecopy: Program) -> None:
    onecopy.refused("mailbox", "delete", "--yes", "alice", "Nothing")
    before, after = onecopy.json("audit", "show", "--kind", "delete")
    assert "result" not in before and after["result"] == "exit status 1"


def test_what_is_shown_can_be_chosen(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "One")
    onecopy("mailbox", "create", "bob", "Two")
    assert len(lines(onecopy, "--user", "BOB@example.org", "--kind", "mailbox")) == 1
    assert len(lines(onecopy, "--kind", "share")) == 0
    assert len(lines(onecopy, "--kind", "mailbox", "--since", "1h")) == 2
    assert lines(onecopy, "--since", "2100-01-01") == []
    assert "neither" not in onecopy.refused("audit", "show", "--since", "never", status=2)


def test_the_newest_lines_and_those_before_them(onecopy: Program) -> None:
    """Page by page, the newest first: nobody reads a year of it to see today's."""
    for name in ("One", "Two", "Three", "Four"):
        onecopy("mailbox", "create", "alice", name)

    def page(*words: str) -> list[dict[str, object]]:
        found = onecopy.json("audit", "show", "--kind", "mailbox", "--most", "3", *words)
        assert isinstance(found, list)
        return found

    first = page()
    assert [each["arguments"][1] for each in first] == ["Two", "Three", "Four"]     # type: ignore[index]
    before = page("--before", str(first[0]["number"]))
    assert [each["arguments"][1] for each in before] == ["One"]                     # type: ignore[index]
    assert page("--before", str(before[0]["number"])) == []
    assert "not a number" in onecopy.refused("audit", "show", "--most", "-1", status=2)


def test_verify_and_the_head(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "One")
    kept = onecopy("audit", "head").strip()
    onecopy("mailbox", "create", "alice", "Two")
    assert "as they were written" in onecopy("audit", "verify", "--head", kept)
    path, = (onecopy.root / "audit").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"One"', b'"Off"'))
    found = json.loads(onecopy("audit", "verify", "--json", status=1))
    assert found["faults"][0]["place"].startswith(path.name) and "was changed" in found["faults"][0]["what"]
    assert "no head" in onecopy.refused("audit", "verify", "--head", "7", status=2)


def test_a_trail_that_is_removed_whole_is_told(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "One")
    shutil.rmtree(onecopy.root / "audit")
    assert "was removed" in onecopy("audit", "verify", status=1)
    assert "is gone" in onecopy.refused("audit", "head", status=1)
    onecopy("mailbox", "create", "alice", "Two")
    assert "head was missing" in onecopy("audit", "verify", status=1)


def test_old_files_are_removed_by_command_only(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "One")
    folder = onecopy.root / "audit"
    path, = folder.glob("*.jsonl")
    assert "none" in onecopy("audit", "remove", "--before", "2100-01", "--yes")
    path.rename(folder / "000001-2020-01.jsonl")        # as if it were of an earlier month
    onecopy("mailbox", "create", "alice", "Two")
    assert "000001-2020-01.jsonl" in onecopy("audit", "remove", "--before", "2021-01", "--dry-run")
    assert "use --yes" in onecopy.refused("audit", "remove", "--before", "2021-01", status=2)
    assert onecopy.json("audit", "remove", "--before", "2021-01", "--yes") == {"removed": ["000001-2020-01.jsonl"]}
    assert "were removed by command" in onecopy("audit", "verify")
    assert lines(onecopy)[-1][:2] == ("audit", "files removed")
    assert "no month" in onecopy.refused("audit", "remove", "--before", "yesterday", status=2)


def test_a_password_that_an_error_repeats_is_left_out(onecopy: Program) -> None:
    commandaudit.note(onecopy.root, CHOICES, "repair", "check", ME, [], result="ldap://bob:hunter2@host: no answer")
    assert onecopy.json("audit", "show")[-1]["result"] == "ldap://***:***@host: no answer"


def test_kinds_can_be_left_out(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "One", "--audit-kinds", "share,delete")
    onecopy("mailbox", "delete", "alice", "One", "--yes", "--audit-kinds", "share,delete")
    assert lines(onecopy, "--user", "alice", "--kind", "mailbox", "--kind", "delete") == [
        ("delete", "mailbox delete", "")]
    assert "none of" in onecopy.refused("status", "--audit-kinds", "everything", status=2)


def test_who_the_server_has_do_it_again_is_the_server(onecopy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AGAIN, "1")
    onecopy("mailbox", "create", "alice", "Again")
    assert onecopy.json("audit", "show")[-1]["actor"] == "the server"


def test_a_token_is_named_besides_who_runs_the_command(onecopy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever types one into the environment does not hide behind it."""
    monkeypatch.setenv(commandaudit.ASKER, "http 0123456789ab helpdesk example.net")
    onecopy("mailbox", "create", "alice", "Asked")
    line = onecopy.json("audit", "show", "--user", "0123456789ab")[-1]
    assert (line["actor"], line["service"], line["token"]) == (ME, "http", "0123456789ab helpdesk example.net")
    assert "token=0123456789ab helpdesk" in onecopy("audit", "show")


def test_who_asks_by_the_console_is_named_besides_who_runs_the_command(onecopy: Program,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(commandaudit.ASKER, "console bob@example.net helpdesk example.net")
    onecopy("mailbox", "create", "alice", "Asked")
    line = onecopy.json("audit", "show", "--user", "bob@example.net")[-1]
    assert (line["actor"], line["service"], line["account"]) == (ME, "console", "bob@example.net helpdesk example.net")
    monkeypatch.setenv(commandaudit.ASKER, "nothing bob")
    onecopy("mailbox", "create", "alice", "Typed")
    assert onecopy.json("audit", "show")[-1]["service"] == "command"


# The registry

NOT_NOTED = {
    "init": "there is no store before", "serve": "starts and ends are in the log",
    "deliver": "each message is in the delivery log", "quota warn": "sends what users are to have",
    "config certificate": "makes what is missing", "spark generate": "makes another store",
    "audit remove": "notes by itself what it removes",
}


def test_every_command_that_changes_something_is_noted() -> None:
    """Those that can be tried with --dry-run, or that ask, change something."""
    for node in tree().walk():
        flags = {name for action in node.actions for name in action.option_strings}
        if {"--dry-run", "--yes"} & flags and node.name not in NOT_NOTED:
            assert registry.BY_NAME[node.name].audit, node.name
    assert all(command.audit in ("", *CHOICES) for command in registry.COMMANDS)


def test_what_decides_whether_a_command_is_noted_is_among_its_arguments() -> None:
    actions = {node.name: {action.dest for action in node.actions} for node in tree().walk()}
    for command in registry.COMMANDS:
        assert set(command.audit_if) <= actions[command.name], command.name


class Flag:
    nargs = 0


class Value:
    nargs = None


@pytest.mark.parametrize(("words", "shown"), [
    (["--password", "bob"], ["--password", "bob"]),                                    # a flag: user set --password bob
    (["--bind-password", "hunter2", "bob"], ["--bind-password", "***", "bob"]),
    (["--bind-password=hunter2"], ["--bind-password=***"]),
    (["--spark", "spark.hadoop.fs.s3a.secret=hunter2"], ["--spark", "spark.hadoop.fs.s3a.secret=***"]),
    (["--spark=a.token=hunter2"], ["--spark=a.token=***"]),
    (["imap://bob:hunter2@host/"], ["imap://***:***@host/"]),
    (["imap://bob:hun/ter@2:x@host/"], ["imap://***:***@host/"]),
    (["--spark", "spark.hadoop.fs.s3a.secret.key=hunter2"], ["--spark", "spark.hadoop.fs.s3a.secret.key=***"]),
    (["--spark=fs.s3a.access.key=hunter2"], ["--spark=fs.s3a.access.key=***"]),
    (["--spark=fs.azure.account.key.mail.blob=hunter2"], ["--spark=fs.azure.account.key.mail.blob=***"]),
    (["SET fs.s3a.session.token=hunter2"], ["SET fs.s3a.session.token=***"]),
    (["https://host/hook?a=1&b=2&access_token=hunter2&c=3"], ["https://host/hook?a=1&b=2&access_token=***&c=3"]),
    (["--password-file", "/etc/p"], ["--password-file", "/etc/p"]),
    (["--login-oauth-secret-file=/etc/p"], ["--login-oauth-secret-file=/etc/p"]),
])
def test_what_may_be_a_password_is_left_out(words: list[str], shown: list[str]) -> None:
    options = {"--password": Flag(), "--spark": Value(), "--password-file": Value()}
    assert list(commandaudit.hidden(words, options)) == shown
