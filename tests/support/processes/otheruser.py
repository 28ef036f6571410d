"""Tests with processes of another user, who may not be able to read the interpreter: it is in root's home, perhaps."""

import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

USER = "nobody"

# Arguments: the interpreter's folder, the closed one on the way to it, a folder where it can be seen meanwhile.
_OPEN_IT = """set -e
mount --bind "$1" "$3"; mount -t tmpfs -o mode=755 none "$2"; mkdir -p "$1"; mount --bind "$3" "$1"
shift 3; exec "$@"
"""


def closed_folder() -> Path | None:
    """The first folder on the way to the interpreter that USER may not enter."""
    for folder in reversed(Path(sys.executable).resolve().parents):
        if subprocess.run(["/usr/bin/env", "test", "-x", folder], user=USER, check=False).returncode:
            return folder
    return None


def in_view(test: str, closed: Path, keep: Path, limit: float) -> None:
    """That test in a mount namespace of its own, in which USER can read the interpreter."""
    keep.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", _OPEN_IT, "sh", sys.base_prefix, closed,
         keep, sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
         test],
        cwd=ROOT, capture_output=True, timeout=limit, check=False)
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0 and "1 passed" in said, said
