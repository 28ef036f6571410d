"""Tests with processes of another user, who may not be able to read the interpreter: it is in root's home, perhaps."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support import ROOT

USER = "nobody"

# Arguments: the interpreter's folder, the closed one on the way to it, a folder where it can be seen meanwhile.
_OPEN_IT = """set -e
mount --bind "$1" "$3"; mount -t tmpfs -o mode=755 none "$2"; mkdir -p "$1"; mount --bind "$3" "$1"
shift 3; exec "$@"
"""


def each(test: str, cases: Sequence[Callable[[Path], None]], folder: Path, mode: int, limit: float) -> None:
    """Each case in a folder of its own with that mode. Where USER cannot read the interpreter, this `test` begins again
    where that can be read: for so many seconds at most."""
    closed = _closed_folder()
    if closed is not None:
        _in_view(test, closed, folder / "interpreter", limit)
        return
    for case in cases:
        place = folder / case.__name__
        place.mkdir()
        os.chmod(place, mode)
        case(place)


def _closed_folder() -> Path | None:
    """The first folder on the way to the interpreter that USER may not enter."""
    for folder in reversed(Path(sys.executable).resolve().parents):
        if subprocess.run(["/usr/bin/env", "test", "-x", folder], user=USER, check=False).returncode:
            return folder
    return None


def _in_view(test: str, closed: Path, keep: Path, limit: float) -> None:
    """That test in a mount namespace of its own, in which USER can read the interpreter."""
    keep.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", _OPEN_IT, "sh", sys.base_prefix, closed,
         keep, sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
         test],
        cwd=ROOT, capture_output=True, timeout=limit, check=False)
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0 and "1 passed" in said, said
