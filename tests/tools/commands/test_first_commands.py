"""The commands of `onecopy`, each on a fresh store."""

import json
import stat
from pathlib import Path

import pytest

from store.accounts.base import Status
from store.opening import open_store
from store.values import Secret
from tests.support.processes.program import Program
from tools.cli import program
from tools.commands import deliver

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"


def login(root: Path, user: str, password: bytes) -> Status:
    store = open_store(root)
    try:
        return store.directory.authenticate(user, Secret(password)).status
    finally:
        store.close()


def test_init(bare: Program) -> None:
    bare("init")
    assert bare.json("status")["troubles"] == []        # there is no list of mailboxes yet, and nothing is wrong
    assert bare("check") == "nothing wrong was found\n"
    assert stat.S_IMODE((bare.root / "tls" / "key.pem").stat().st_mode) == 0o600
    assert "already" in bare.refused("init", status=2)


def test_no_store(bare: Program) -> None:
    assert "There is no store" in bare.refused("user", "list", status=2)
    assert not bare.root.exists()


def test_no_root(bare: Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["user", "list"]) == 2
    assert capsys.readouterr().err.startswith("onecopy: which store?")


@pytest.mark.parametrize("words", [[], ["nothing"], ["user"], ["user", "ad"], ["path", "alice", "INBOX", "one"],
                                   ["serve", "--imap-prot", "1"], ["quota", "set", "alice", "--octets", "much"],
                                   ["user", "list", "--js"], ["serve", "--imap-port"]])
def test_wrong_use(bare: Program, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(words) == 2
    out, error = capsys.readouterr()
    assert out == ""
    line, = error.splitlines()
    assert line.startswith("onecopy: ")


def test_users(onecopy: Program) -> None:
    assert onecopy.json("user", "list") == [
        {"user": user, "status": "active", "partition": "primary", "groups": [], "aliases": []}
        for user in ("alice", "bob")]
    assert [line.split() for line in onecopy("user", "list").splitlines()] == [
        ["user", "status", "partition"], ["alice", "active", "primary"], ["bob", "active", "primary"]]
    assert onecopy.json("user", "show", "Alice@example.org") == {
        "user": "alice", "status": "active", "partition": "primary", "groups": [], "aliases": [], "mailboxes": 1,
        "messages": 0, "octets": 0, "octet_limit": None, "message_limit": None, "last_login": None,
        "last_read": None, "origins": {
            **dict.fromkeys(("user", "status", "partition"), "built-in directory"),
            **dict.fromkeys(("groups", "aliases"), "default: none"), "host": "default: the only back end",
            "sieve": "its domain, else section [sieve]: onecopy sieve show",
            "access": "default: everything may be used", "octet_limit": "default: store.default_quota",
            "message_limit": "default: store.default_message_quota"}}
    assert "mailboxes" in onecopy("user", "show", "alice")


def test_users_that_are_there_already_or_have_bad_names(onecopy: Program) -> None:
    onecopy("user", "add", "alice", "a/b", "carol@example.com", "--password-stdin", octets=b"x\n", status=1)
    assert [line.split(":")[:2] for line in onecopy.error.splitlines()] == [["onecopy", " alice"], ["onecopy", " a/b"]]
    assert "carol@example.com" in onecopy("user", "list")


def test_passwords(onecopy: Program, tmp_path: Path) -> None:
    assert login(onecopy.root, "alice", b"secret") is Status.ACTIVE
    (tmp_path / "password").write_bytes("pässword\r\nsecond line\n".encode())
    onecopy("user", "set", "alice", "--password-file", str(tmp_path / "password"))
    assert login(onecopy.root, "alice", "pässword".encode()) is Status.ACTIVE


@pytest.mark.parametrize(("octets", "said"), [
    (b"", "the password is empty"), (b"\n", "the password is empty"), (b"x" * 1025, "longer than 1024"),
    (b"a\0b\n", "NUL")])
def test_passwords_that_are_none(onecopy: Program, octets: bytes, said: str) -> None:
    assert said in onecopy.refused("user", "add", "carol", "--password-stdin", status=2, octets=octets)
    assert "carol" not in onecopy("user", "list")


def test_a_password_must_come_from_somewhere(onecopy: Program) -> None:
    assert "--password-file" in onecopy.refused("user", "add", "carol", status=2)
    assert "none: No such file" in onecopy.refused("user", "add", "carol", "--password-file", "none", status=2)
    assert "nothing to change" in onecopy.refused("user", "set", "alice", status=2)


def test_status(onecopy: Program) -> None:
    onecopy("user", "set", "alice", "--status", "disabled")
    assert onecopy.json("user", "show", "alice")["status"] == "disabled"
    assert "disabled" in onecopy.refused("deliver", "alice", octets=MESSAGE)
    onecopy("user", "set", "alice", "--status", "active")
    onecopy("deliver", "alice", octets=MESSAGE)


def test_a_user_goes_with_all_mail(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Archive/2026")
    onecopy("deliver", "alice", "bob", octets=MESSAGE)
    onecopy("user", "remove", "alice", "--now", "--yes")
    assert [row["user"] for row in onecopy.json("user", "list")] == ["bob"]
    assert [row["user"] for row in onecopy.json("mailbox", "list")] == ["bob"]
    assert onecopy.json("mailbox", "info", "bob", "INBOX")["messages"] == 1
    assert "There is no user alice" in onecopy.refused("user", "remove", "alice", "--now", "--yes")
    onecopy("check")


def test_mailboxes(onecopy: Program) -> None:
    onecopy("mailbox", "create", "alice", "Sent", "--special-use", "sent")
    onecopy("mailbox", "create", "alice", "Archive/2026", "Größe")
    rows = onecopy.json("mailbox", "list", "alice")
    assert [row["mailbox"] for row in rows] == ["Archive/2026", "Größe", "INBOX", "Sent"]
    assert onecopy.json("mailbox", "info", "alice", "Sent")["special_use"] == "\\Sent"
    onecopy("mailbox", "rename", "alice", "Archive/2026", "Archive/2027")
    onecopy("mailbox", "delete", "alice", "Größe", "Sent", "--yes")
    rows = onecopy.json("mailbox", "list")
    assert [(row["user"], row["mailbox"]) for row in rows] == [
        ("alice", "Archive/2027"), ("alice", "INBOX"), ("bob", "INBOX")]
    assert len({row["id"] for row in rows}) == 3


def test_mailboxes_page_by_page(onecopy: Program) -> None:
    """In the order of the list, where what is below a mailbox follows it: "A/b" stands before "A b"."""
    onecopy("mailbox", "create", "alice", "A", "A b", "A/b", "Z")

    def page(*words: str) -> list[str]:
        found = onecopy.json("mailbox", "list", "alice", "--most", "2", *words)
        assert isinstance(found, list)
        return [each["mailbox"] for each in found]

    assert page() == ["A", "A/b"]
    assert page("--after", "A/b") == ["A b", "INBOX"]
    assert page("--after", "INBOX") == ["Z"] and page("--after", "Z") == []
    assert page("--after", "A b/gone") == ["INBOX", "Z"]        # one that was there when the page before was read
    assert "whose" in onecopy.refused("mailbox", "list", "--after", "A", status=2)


def test_mailboxes_that_cannot_be(onecopy: Program) -> None:
    assert "exists" in onecopy.refused("mailbox", "create", "alice", "inbox")
    assert "There is no user carol" in onecopy.refused("mailbox", "create", "carol", "x")
    assert "a//b" in onecopy.refused("mailbox", "create", "alice", "a//b", status=2)
    assert "one mailbox" in onecopy.refused("mailbox", "create", "alice", "a", "b", "--special-use", "sent", status=2)
    assert "There is no mailbox Sent" in onecopy.refused("mailbox", "info", "alice", "Sent")
    assert "INBOX" in onecopy.refused("mailbox", "delete", "alice", "INBOX", "--yes")
    assert "undone" not in onecopy.refused("mailbox", "delete", "alice", "Archive", status=2)   # it can be: undelete
    assert "no mailbox Sent of alice" in onecopy.refused("mailbox", "rename", "alice", "Sent", "Sent2")


def test_one_copy_for_all(onecopy: Program) -> None:
    assert onecopy("deliver", "alice", "bob", "ALICE@example.org", octets=MESSAGE) == "alice INBOX 1\nbob INBOX 1\n"
    path = Path(onecopy("path", "alice", "INBOX", "1").rstrip("\n"))
    assert path.read_bytes() == MESSAGE
    assert onecopy.json("path", "bob", "inbox", "1") == {
        "path": str(path), "mid": path.name, "skip": 0, "size": len(MESSAGE)}
    assert [file for file in onecopy.root.glob("partitions/*/messages/*/*/*") if file.is_file()] == [path]


def test_deliver_to_some(onecopy: Program) -> None:
    onecopy("mailbox", "create", "bob", "Lists")
    out = onecopy("deliver", "--mailbox", "Lists", "alice", "bob", "carol", octets=MESSAGE, status=1)
    assert out == "bob Lists 1\n"
    assert [line.split(":")[1].strip() for line in onecopy.error.splitlines()] == ["alice", "carol"]
    onecopy("quota", "set", "bob", "--messages", "1")
    assert onecopy.refused("deliver", "bob", octets=MESSAGE) == "bob: over quota"
    assert "too big" in onecopy.refused("deliver", "alice", "--store-message-limit", "40", octets=MESSAGE)
    assert onecopy.json("mailbox", "info", "alice", "INBOX")["messages"] == 0
    assert onecopy("check") == "nothing wrong was found\n"


def test_line_ends(onecopy: Program) -> None:
    onecopy("deliver", "alice", octets=b"Subject: x\n\nline\nline")
    onecopy("deliver", "alice", "--raw", octets=b"Subject: x\n\nline\nline")
    onecopy("deliver", "alice", octets=b"Subject: x\r\n\r\na bare\nLF\r\n")
    found = [Path(onecopy("path", "alice", "INBOX", uid).rstrip("\n")).read_bytes() for uid in ("1", "2", "3")]
    assert found == [b"Subject: x\r\n\r\nline\r\nline", b"Subject: x\n\nline\nline",
                     b"Subject: x\r\n\r\na bare\nLF\r\n"]


@pytest.mark.parametrize("text", [b"", b"\n", b"a\n\nb\r\nc\rd\n", b"a\r\nb\nc\r\n", b"\r\n\n", b"abc",
                                  b"\n\n\n\r\r\n\n"])
def test_line_ends_wherever_it_is_cut(text: bytes) -> None:
    first = text.find(b"\n")
    whole = text if first < 0 or text[:first].endswith(b"\r") else text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    for one in range(len(text) + 1):
        for two in range(one, len(text) + 1):
            pieces = [piece for piece in (text[:one], text[one:two], text[two:]) if piece]
            assert b"".join(deliver.with_crlf(iter(pieces))) == whole, pieces


def test_the_path_of_no_message(onecopy: Program) -> None:
    for uid in ("1", "0", "4294967297"):
        assert "There is no message" in onecopy.refused("path", "alice", "INBOX", uid)


def test_hashdir(onecopy: Program) -> None:
    path = Path(onecopy("hashdir", "alice").rstrip("\n"))
    assert path.name == "alice"
    assert path.parents[3] == onecopy.root / "partitions" / "primary"
    assert [len(part) for part in path.relative_to(path.parents[2]).parts[:2]] == [2, 2]


def test_config_show(onecopy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONECOPY_POP3_PORT", "1110")
    found = onecopy.json("config", "show", "--imap-port", "1143")
    assert found["imap.port"] == {"value": "1143", "origin": "--imap-port"}
    assert found["pop3.port"] == {"value": "1110", "origin": "ONECOPY_POP3_PORT"}
    assert found["root"] == {"value": str(onecopy.root), "origin": "--root"}
    assert ["imap.port", "143", "default"] in [line.split() for line in onecopy("config", "show").splitlines()]
    assert onecopy.refused("config", "show", "--imap-port", "x", status=2) == "--imap-port: 'x': not a whole number"


def test_check_finds_a_missing_file(onecopy: Program) -> None:
    onecopy("deliver", "alice", octets=MESSAGE)
    Path(onecopy("path", "alice", "INBOX", "1").rstrip("\n")).unlink()
    for staged in onecopy.root.glob("partitions/*/staging/*"):
        staged.unlink()
    assert onecopy("check", status=1) != ""
    assert json.loads(onecopy("check", "--json", status=1))[0].keys() == {"what", "where", "repair"}
    assert "missing" in onecopy.refused("path", "alice", "INBOX", "1")


def test_beside_a_server(onecopy: Program) -> None:
    owner = open_store(onecopy.root)
    try:
        onecopy("deliver", "alice", octets=MESSAGE)
        assert onecopy("check") == "nothing wrong was found\n"
    finally:
        owner.close()


def test_help_needs_no_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["serve", "--help-all"]) == 0
    assert "--imap-tls-port" in capsys.readouterr().out
    assert program.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("onecopy ")
