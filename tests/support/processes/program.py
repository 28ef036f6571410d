"""The program `onecopy` for tests."""

import io
import json
from pathlib import Path

import pytest

from tools.cli import program

# Each command makes the shared memory of the databases anew. With the usual sizes that is most of what it costs.
QUICK = {"ONECOPY_STORE_CACHE": "4M", "ONECOPY_STORE_DATABASE_LOCKS": "20000"}


class Program:
    """Runs `onecopy` in this process."""

    def __init__(self, root: Path, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._capture = capture
        self._monkeypatch = monkeypatch
        self.error = ""

    def __call__(self, *words: str, octets: bytes = b"", status: int = 0) -> str:
        """What it prints."""
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(octets)))
        found = program.main([*words, "--root", str(self.root)])
        out, self.error = self._capture.readouterr()
        assert found == status, self.error
        return out

    def json(self, *words: str) -> object:
        """The same with --json."""
        return json.loads(self(*words, "--json"))

    def refused(self, *words: str, status: int = 1, octets: bytes = b"") -> str:
        """The one line in which it complains."""
        assert self(*words, status=status, octets=octets) == ""
        line, = self.error.splitlines()
        assert line.startswith("onecopy: ")
        return line.removeprefix("onecopy: ")
