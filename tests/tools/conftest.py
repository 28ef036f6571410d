"""`onecopy` for tests, with no store yet and with two users."""

from pathlib import Path

import pytest

from tests.support.processes.program import QUICK, Program


@pytest.fixture
def bare(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """No store yet."""
    monkeypatch.chdir(tmp_path)
    for name, value in {**QUICK, "ONECOPY_STORE_SPECIAL_MAILBOXES": ""}.items():
        monkeypatch.setenv(name, value)
    return Program(tmp_path / "store", capsys, monkeypatch)


@pytest.fixture
def onecopy(bare: Program) -> Program:
    """A store with alice and bob."""
    bare("init")
    bare("user", "add", "alice", "bob", "--password-stdin", octets=b"secret\n")
    return bare
