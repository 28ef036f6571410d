"""onecopy backup, onecopy restore"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.processes.program import Program

MESSAGE = b"From: a@example.org\r\nSubject: %d\r\n\r\nHello.\r\n"


@pytest.fixture
def filled(onecopy: Program) -> Program:
    """Six messages, each of them alice's and bob's."""
    onecopy("mailbox", "create", "alice", "Work")
    onecopy("mailbox", "acl", "alice", "Work", "bob", "lrs")
    onecopy("quota", "set", "alice", "--octets", "20M")
    for number in range(6):
        onecopy("deliver", "alice", "bob", octets=MESSAGE % number)
    return onecopy


def elsewhere(onecopy: Program, name: str = "other") -> Program:
    return Program(onecopy.root.with_name(name), onecopy._capture, onecopy._monkeypatch)


def test_there_and_back(filled: Program, tmp_path: Path) -> None:
    path = str(tmp_path / "all.tar.zst")
    made = filled.json("backup", "--to", path)
    assert isinstance(made, dict) and {**made, "seconds": 0} == {
        "archives": 1, "mailboxes": 3, "unchanged": 0, "records": 12, "messages": 6, "octets": 6 * len(MESSAGE % 0),
        "seconds": 0, "findings": []}
    found = filled.json("backup", "verify", path)
    assert isinstance(found, dict) and (found["messages"], found["records"], found["findings"]) == (6, 12, [])
    listed = filled.json("backup", "list", path)
    assert isinstance(listed, dict)
    assert [(row["mailbox"], row["messages"]) for row in listed["mailboxes"]] == [
        ("user/alice/INBOX", 6), ("user/alice/Work", 0), ("user/bob/INBOX", 6)]
    assert "full" in filled("backup", "list", path)
    other = elsewhere(filled)
    planned = other.json("restore", path, "--dry-run")
    assert isinstance(planned, dict) and (planned["mailboxes"], planned["files"]) == (3, 0)
    assert not other.root.exists()
    done = other.json("restore", path)
    assert isinstance(done, dict) and (done["users"], done["messages"], done["files"]) == (2, 12, 6)
    assert other.json("user", "list") == filled.json("user", "list")
    assert other.json("mailbox", "info", "alice", "Work") is not None
    assert other.json("quota", "show", "alice") == filled.json("quota", "show", "alice")
    assert other.json("mailbox", "acl", "alice", "Work") == filled.json("mailbox", "acl", "alice", "Work")
    assert "messages   0\nthere      12" in other("restore", path)
    other("check")


def test_parts_and_incrementals(filled: Program, tmp_path: Path) -> None:
    folder = str(tmp_path / "backups") + "/"
    filled("backup", "--to", folder)
    filled("deliver", "bob", octets=MESSAGE % 7)
    made = filled.json("backup", "--to", folder)
    assert isinstance(made, dict) and (made["messages"], made["mailboxes"], made["unchanged"]) == (1, 1, 2)
    one, two = str(tmp_path / "1.tar"), str(tmp_path / "2.tar")
    filled("backup", "--to", one, "--compress", "none", "--user", "bob")
    filled("deliver", "bob", octets=MESSAGE % 8)
    filled("backup", "--to", two, "--since", one, "--user", "bob", "--compress", "gzip")
    assert "not of the same users" in filled.refused("backup", "--to", two, "--since", one)
    other, third = elsewhere(filled), elsewhere(filled, "third")
    assert other.json("restore", folder, "--user", "bob")["messages"] == 7         # type: ignore[call-overload,index]
    assert third.json("restore", two, one)["messages"] == 8                        # type: ignore[call-overload,index]


def test_damage_is_told(filled: Program, tmp_path: Path) -> None:
    path = tmp_path / "all.tar.zst"
    filled("backup", "--to", str(path))
    octets = path.read_bytes()
    path.write_bytes(octets[:len(octets) // 2])
    assert "it is cut off" in filled("backup", "verify", str(path), status=1)
    filled("backup", "list", str(path), status=1)
    assert "its catalogue is damaged" in filled.error
    assert "it is cut off" in elsewhere(filled)("restore", str(path), status=1)


def test_wrong_use(filled: Program, tmp_path: Path) -> None:
    path = str(tmp_path / "a.tar.zst")
    filled("backup", "--to", path)
    assert "which archive" in filled.refused("backup", "verify", status=2)
    assert "there is no file" in filled.refused("restore", str(tmp_path / "none"), status=2)
    assert "whose mailbox" in filled.refused("restore", path, "--mailbox", "Work", status=2)
    assert "in a pipe" in filled.refused("restore", "-", "--user", "bob", status=2)
    assert "There is no user carol" in filled.refused("backup", "--to", path, "--user", "carol")
    assert "Nothing that was named" in filled.refused("restore", path, "--user", "bob", "--mailbox", "None")
    assert "--since is for files" in filled.refused("backup", "--to", f"{tmp_path}/", "--since", path, status=2)
    assert "no such level" in filled.refused("backup", "--to", path, "--level", "99", status=2)


def test_through_pipes(filled: Program, tmp_path: Path) -> None:
    """backup | tee archive | restore, and what tar makes of the archive."""
    program = [sys.executable, "-m", "tools.cli.program"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    archive = tmp_path / "a.tar.zst"
    with archive.open("wb") as file:
        subprocess.run([*program, "backup", "--root", filled.root], stdout=file, env=environment, check=True)
    told = subprocess.run(["tar", "--zstd", "-tvf", archive], capture_output=True, text=True, check=True)
    assert told.stderr == "" and len(told.stdout.splitlines()) == 6 + 3 + 9     # messages, mailboxes, what is beside
    with archive.open("rb") as file:
        subprocess.run([*program, "restore", "-", "--root", tmp_path / "other"], stdin=file, env=environment,
                       check=True, stdout=subprocess.DEVNULL)
    assert elsewhere(filled).json("quota", "show", "bob") == filled.json("quota", "show", "bob")
    unpacked = elsewhere(filled, "unpacked")
    unpacked.root.mkdir()
    subprocess.run(["tar", "-C", unpacked.root, "-xf", archive], check=True)
    assert "has no password" not in unpacked("reconstruct", "--all")    # each account is in its INBOX's store.idx
    assert [(row["mailbox"], row["messages"]) for row in unpacked.json("mailbox", "list")] == [  # type: ignore[attr-defined]
        ("INBOX", 6), ("Work", 0), ("INBOX", 6)]
    unpacked("check")
