"""A start writes little: not the rest of the newest log file, which may become 16 MiB long (Berkeley DB's recovery
overwrites with zeros what follows the end of the log in it), nor, after a clean end, what a server has written of its
logs beforehand (`LogAhead`)."""

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
from mboxlist.engine.logfiles import LogAhead
from tests.support.stores.stores import SMALL, deliver, make_store
kv.LOG_FILE = 16 << 20              # tests have smaller ones
LogAhead.begin = LogAhead.make_next # in this thread
def written():
    return int(dict(line.split(": ") for line in open("/proc/self/io"))["wchar"])
root, before = Path(sys.argv[1]), written()
there = root.exists()
store = open_store(root, SMALL) if there else make_store(root)
opened = written()
if sys.argv[3] == "server":
    store.write_logs_ahead(first=True)
print(opened - before if there else 0, written() - opened if there else 0)
deliver(store, b"Subject: x\\r\\n\\r\\n" + os.urandom(8).hex().encode(), "user/alice/INBOX")
if sys.argv[2] == "killed":
    sys.stdout.flush()
    os._exit(9)
store.close()
"""


def started(root: Path, end: str, who: str = "command") -> tuple[int, int]:
    """How many octets a start has written by calls of the system: to open the store, and of the logs beforehand."""
    done = subprocess.run([sys.executable, "-c", START, root, end, who], capture_output=True, text=True, check=False,
                          cwd=ROOT, timeout=180)
    assert done.stdout, done.stderr
    opening, beforehand = map(int, done.stdout.split())
    return opening, beforehand


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_the_log_is_not_filled_up(tmp_path: Path, end: str) -> None:
    for _ in range(3):
        assert started(tmp_path / "store", end)[0] < 4 * MIB


def test_a_server_writes_nothing_of_its_logs_that_is_there(tmp_path: Path) -> None:
    """Four files of 16 MiB. A command in between, and one that is killed, change nothing but what they must."""
    root = tmp_path / "store"
    started(root, "clean", "server")
    assert max(started(root, "clean", "server")) < MIB
    assert max(started(root, "clean", "command")) < MIB         # it cuts them, as it is alone and no server
    assert started(root, "killed", "server")[1] > 16 * MIB
    opening, beforehand = started(root, "clean", "server")
    assert opening < 4 * MIB and beforehand > 16 * MIB          # recovery has cut them
    assert max(started(root, "clean", "server")) < MIB
