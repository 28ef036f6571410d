"""`onecopy sieve test --event`: what a mailbox's script would do after APPEND, COPY or a change of flags (RFC 6785)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mboxlist.annotations import EVENT_SCRIPT
from mboxlist.names import INBOX, MailboxName
from store.check.wholecheck import check
from store.filtering import userscripts
from store.mailboxes import namespace
from store.mailboxes.authorization import annotate
from store.opening import open_store
from store.settings import Settings
from store.store import Store
from tests.support.processes.program import QUICK
from tests.support.stores.stores import deliver, make_store
from tools.cli import program

BOX = MailboxName("alice", INBOX)
MAIL = b"From: ann@example.net\r\nTo: alice@example.org\r\nSubject: invoice 7\r\n\r\ntext\r\n"
#: RFC 6785 §5.1 and §5.2 in one: what is flagged is copied, what comes by COPY gets a keyword.
SCRIPT = b"""require ["imapsieve", "environment", "fileinto", "copy", "imap4flags", "mailbox", "variables"];
if allof (environment :is "imap.cause" "FLAG", environment :contains "imap.changedflags" "\\\\Flagged",
          hasflag "\\\\Flagged") {
    fileinto :copy :flags "followup" "Followup";
}
if environment :is "imap.cause" "COPY" { addflag "copied"; }
if environment :is "imap.cause" "APPEND" { fileinto :create "Made"; }
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store in which alice has one message, flagged, and a script for her INBOX; afterwards it is as it was."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "store"
    made = make_store(path, ("alice",))
    namespace.create_mailbox(made, MailboxName("alice", "Followup"))
    deliver(made, MAIL, "user/alice/INBOX")
    account = made.directory.find("alice")
    assert account is not None
    userscripts.put(made, account, "events", SCRIPT)
    userscripts.put(made, account, "unfit", b"keep;")
    annotate(made, made.entry(BOX), EVENT_SCRIPT, b"events")
    made.close()
    assert program.main(["messages", "flag", "-u", "alice", "--add", "\\Flagged", "all", "--root", str(path)]) == 0
    before = contents(path)
    yield path
    assert contents(path) == before


def contents(path: Path) -> object:
    """All records of alice, and her mailboxes."""
    store: Store = open_store(path, Settings(), who="a test")
    try:
        assert check(store) == []
        return [(str(entry.name), store.open_mailbox(entry).rows.tobytes()) for entry in store.names("alice")]
    finally:
        store.close()


def tried(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    capsys.readouterr()
    assert program.main(["sieve", "test", "alice", "--uid", "1", *words, "--json", "--root", str(root)]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_flag_that_was_set(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tried(root, capsys, "--event", "flag", "--flag", "flagged")
    assert found["filed"] == [{"mailbox": "Followup", "flags": ["followup"]}]
    assert found["flags_set"] == found["flags_removed"] == [] and found["failure"] == ""
    assert [(step["line"], step["said"]) for step in found["steps"] if step["name"] == "allof"] == [(2, True)]


def test_another_flag(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tried(root, capsys, "--event", "flag", "--flag", "seen", "--flag", "Work")["filed"] == []


def test_a_copy(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tried(root, capsys, "--event", "copy")
    assert found["flags_set"] == ["copied"] and found["filed"] == []


def test_a_mailbox_that_would_be_made(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tried(root, capsys, "--event", "append")
    assert found["would_be_made"] == ["Made"] and found["filed"] == [] and found["notes"] == []


def test_a_script_that_is_for_mail(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RFC 6785 §3.1: it has to require "imapsieve"."""
    assert program.main(["sieve", "test", "alice", "--uid", "1", "--event", "copy", "--script", "unfit",
                         "--root", str(root)]) == 1
    assert 'requires "imapsieve"' in capsys.readouterr().out


@pytest.mark.parametrize(("words", "said"), [
    (["--event", "copy"], "--event goes with --uid"),
    (["--uid", "1", "--flag", "seen"], "--flag goes with --event flag"),
    (["--uid", "9", "--event", "copy"], "there is no message 9 in INBOX"),
    (["--uid", "9", "--event", "copy", "--mailbox", "Followup"], "No script runs on events in Followup"),
])
def test_what_cannot_be_tried(root: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert program.main(["sieve", "test", "alice", *words, "--root", str(root)]) != 0
    assert said in capsys.readouterr().err
