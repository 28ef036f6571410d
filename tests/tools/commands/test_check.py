"""onecopy check and onecopy scrub."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from store.check import scrub
from tests.support.faults.planted import Faults
from tests.support.processes.program import Program
from tools.cli import program

pytestmark = pytest.mark.long

MESSAGE = b"From: a@example.org\r\nSubject: hello\r\n\r\nHello.\r\n"


def files(onecopy: Program, partition: str = "primary") -> list[Path]:
    return sorted((onecopy.root / "partitions" / partition / "messages").glob("?/??/*"))


@pytest.fixture
def filled(onecopy: Program) -> Program:
    """A store with one message, of 47 octets."""
    onecopy("deliver", "--raw", "alice", "bob", octets=MESSAGE)
    return onecopy


def test_nothing_wrong(filled: Program) -> None:
    assert filled("check") == "nothing wrong was found\n"
    assert filled.json("check") == []
    assert filled("scrub") == "1 files, 47 octets: nothing wrong\n"
    assert filled.json("scrub") == {"files": 1, "octets": 47, "stopped": None, "findings": []}
    assert filled.error == ""               # no bar where nobody watches


def test_a_missing_file(filled: Program) -> None:
    path, = files(filled)
    path.unlink()
    where = f"message {path.name}"
    for command in ("check", "scrub"):
        assert f"{where}: its file is missing (repair: onecopy restore ARCHIVE --over)\n" in filled(command, status=1)
    found = json.loads(filled("check", "--json", status=1))
    assert found == [{"what": "its file is missing", "where": where, "repair": "restore ARCHIVE --over"}]
    assert json.loads(filled("scrub", "--json", status=1))["findings"] == found
    last = json.loads(filled("status", "--json"))["last_check"]
    assert last["findings"] == 1 and last["first"] == found and "its file is missing" in filled("status")


def test_a_changed_octet_and_a_stray(filled: Program) -> None:
    path, = files(filled)
    path.write_bytes(MESSAGE.replace(b"hello", b"hallo"))
    stray = path.with_name("stray")
    stray.touch()
    assert filled("scrub", status=1).splitlines() == [
        f"message {path.name}: its file does not agree with its digest (repair: onecopy restore ARCHIVE --over)",
        f"{stray}: nothing is known of this file (repair: onecopy scrub --sweep)", "1 files, 47 octets: 2 wrong"]
    filled("scrub", "--sweep", status=1)
    assert not stray.exists()
    assert len(json.loads(filled("scrub", "--json", status=1))["findings"]) == 1


def test_from_a_place(filled: Program) -> None:
    path, = files(filled)
    folder = int(path.name[:3], 16)
    assert filled.json("scrub", "--from", f"primary/{folder:03x}")["files"] == 1    # type: ignore[index, call-overload]
    if folder < 4095:
        assert filled.json("scrub", "--from", f"primary/{folder + 1:03x}")["files"] == 0    # type: ignore[index, call-overload]


@pytest.mark.parametrize(("words", "what"), [
    (["--partition", "other"], "there is no partition other"), (["--from", "other/000"], "there is no partition other"),
    (["--from", "primary/0"], "is not a place"), (["--from", "3fa"], "is not a place"), (["--rate", "fast"], "size")])
def test_wrong_use(filled: Program, words: list[str], what: str) -> None:
    assert what in filled.refused("scrub", *words, status=2)


def test_a_bar_while_a_person_watches(filled: Program) -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-m", "tools.cli.program", "scrub", "--root", str(filled.root)], stderr=theirs,
                   check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm", "PYTHONPATH": _source()}, timeout=180)
    os.close(theirs)
    assert b"scrub" in os.read(ours, 65536)
    os.close(ours)


def test_an_interrupt(filled: Program, faults: Faults, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGINT comes when the fifth folder is done; scrub says where it was, and dies of the signal."""
    ended = []

    def interrupted(whole, partition, pace, *, stop, **options):          # type: ignore[no-untyped-def]
        for folder in whole(partition, pace, stop=stop, **options):
            yield folder
            if folder.number == 4:
                os.kill(os.getpid(), signal.SIGINT)
                assert stop()
                raise scrub.Stopped

    faults.around(scrub, "scrub", interrupted)
    before = signal.getsignal(signal.SIGINT)
    faults.around(program.os, "kill", lambda _, pid, number: (
        ended.append(number) if signal.getsignal(number) is signal.SIG_DFL else signal.raise_signal(number)))
    assert program.main(["scrub", "--json", "--root", str(filled.root)]) == 128 + signal.SIGINT
    signal.signal(signal.SIGINT, before)
    out, error = capsys.readouterr()
    assert json.loads(out)["stopped"] == "primary/005"
    assert error == "onecopy: stopped; --from primary/005 goes on from there\n"
    assert ended == [signal.SIGINT]


def _source() -> str:
    return str(Path(program.__file__).resolve().parents[2])
