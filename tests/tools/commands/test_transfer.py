"""onecopy export and import, as an administrator types them."""

import json
import mailbox
from pathlib import Path

import pytest

from tests.support.processes.program import Program

MESSAGE = b"From a@example.org Thu Feb  1 09:30:00 2024\nSubject: one\nStatus: RO\n\ntext\n"


def test_in_and_out(onecopy: Program, tmp_path: Path) -> None:
    (tmp_path / "box").write_bytes(MESSAGE)
    before = onecopy("mailbox", "list", "alice")
    dry = onecopy.json("import", "mbox", "alice", str(tmp_path / "box"), "--dry-run")
    assert dry["mailboxes"][0]["brought"] == 1          # type: ignore[index,call-overload]
    assert onecopy("mailbox", "list", "alice") == before
    table = onecopy("import", "mbox", "alice", str(tmp_path / "box"), "--mailbox", "Old")
    assert table.splitlines()[1].split()[:4] == ["Old", "1", "1", "1"]
    found = onecopy.json("export", "alice", "Old", "--format", "mbox", "--to", str(tmp_path / "out"))
    assert found["mailboxes"][0]["written"] == 1        # type: ignore[index,call-overload]
    there = mailbox.mbox(tmp_path / "out/Old.mbox")
    assert [message["Subject"] for message in there] == ["one"] and there[0].get_flags() == "RO"
    onecopy("check")


def test_a_dry_run_says_what_the_run_does(onecopy: Program, tmp_path: Path) -> None:
    """Of a Dovecot's Maildir, for a user who has INBOX already, as everybody who has logged in."""
    folder = tmp_path / "Maildir"
    for part in ("cur", "new", "tmp"):
        (folder / part).mkdir(parents=True)
    (folder / "dovecot-uidlist").write_bytes(b"3 V1700000000 N99 Gabc\n5 :1.a\n8 :2.b\n")
    for name, octets in (("1.a:2,S", b"Subject: one\n\none\n"), ("2.b:2,", b"Subject: two\n\ntwo lines\n\n")):
        (folder / "cur" / name).write_bytes(octets)
    words = "import", "maildir", "alice", str(folder)
    dry = onecopy.json(*words, "--dry-run")
    assert dry == onecopy.json(*words)
    row, = dry["mailboxes"]                             # type: ignore[call-overload,index]
    assert (row["uids"], row["brought"], row["here"]) == ("kept", 2, 2) and row["octets"] > 30
    assert onecopy.json(*words, "--dry-run") == onecopy.json(*words)        # nothing to bring
    onecopy("check")


def test_what_is_wrong_is_one_line(onecopy: Program, tmp_path: Path) -> None:
    assert onecopy.refused("import", "mbox", "alice", "nowhere", status=2) == "nowhere: there is nothing of that name"
    assert onecopy.refused("import", "imap", "alice", status=2).startswith("which server?")
    assert onecopy.refused("import", "imap", "--host", "x", status=2) == "either USER or --users"
    assert onecopy.refused("import", "imap", "alice", "--host", "x", status=2) == (
        "alice: a password is missing: --password-file")
    (tmp_path / "box").write_bytes(b"no mbox\n")
    out = onecopy("import", "mbox", "alice", str(tmp_path / "box"), "--json", status=1)
    assert json.loads(out)["told"] == ["INBOX: not an mbox file: it does not begin with a line From"]
    assert "nobody" in onecopy("import", "mbox", "nobody", str(tmp_path / "box"), status=1) + onecopy.error
    (tmp_path / "users.csv").write_text("# here, there, password\n\n")
    assert "names no users" in onecopy.refused("import", "imap", "--users", str(tmp_path / "users.csv"), "--host", "x",
                                               status=2)


@pytest.mark.long
def test_a_program_that_speaks_no_imap(onecopy: Program) -> None:
    onecopy("import", "imap", "alice", "--tunnel", "echo * NO {user} is not here", status=1)
    assert "* NO" in onecopy.error or "NO alice is not here" in onecopy.error
