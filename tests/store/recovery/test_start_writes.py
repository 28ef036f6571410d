"""A start writes little: not the rest of the newest log file, which may become 16 MiB long (Berkeley DB's recovery
overwrites with zeros what follows the end of the log in it)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

MIB = 1 << 20
START = """
import os, sys
from pathlib import Path
from store.opening import open_store
from mboxlist.engine import kv
from tests.support.stores.stores import SMALL, deliver, make_store
kv.LOG_FILE = 16 << 20              # tests have smaller ones
def written():
    return int(dict(line.split(": ") for line in open("/proc/self/io"))["wchar"])
root, before = Path(sys.argv[1]), written()
there = root.exists()
store = open_store(root, SMALL) if there else make_store(root)
print(written() - before if there else 0)
deliver(store, b"Subject: x\\r\\n\\r\\n" + os.urandom(8).hex().encode(), "user/alice/INBOX")
if sys.argv[2] == "killed":
    sys.stdout.flush()
    os._exit(9)
store.close()
"""


def started(root: Path, end: str) -> int:
    """How many octets a start has written by calls of the system."""
    done = subprocess.run([sys.executable, "-c", START, root, end], capture_output=True, text=True, check=False,
                          cwd=ROOT, timeout=60)
    assert done.stdout, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_the_log_is_not_filled_up(tmp_path: Path, end: str) -> None:
    for _ in range(3):
        assert started(tmp_path / "store", end) < 4 * MIB
