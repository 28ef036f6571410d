"""What a process that serves HTTP loads for operations: nothing, so that it holds up nobody whom it serves besides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json
import sys
from pathlib import Path
from typing import cast
from twisted.internet.defer import ensureDeferred
from store.opening import make_empty_store, open_store
from tools.cli.options import load
from tools.http.api.permissions import Asker
from tools.http.webpages import Asked, Pages
from tools.server import doorpages
from tools.server.process.listeners import Server

root = Path(sys.argv[1])
make_empty_store(root)
store = open_store(root)
calls = doorpages._OperationCalls(store, lambda: load({}, {"ONECOPY_ROOT": str(root)}, None))
pages = Pages()
doorpages._Api(store, calls).add_pages(pages)
doorpages._console(pages, store, calls, None, None, None)
before = set(sys.modules)
got = []
ensureDeferred(pages.answer(Asked("GET", "/api/openapi.json", {}))).addBoth(got.append)
ensureDeferred(calls.carry_out_as(Asker("http", "id", "administrator"), "user list", {})).addBoth(got.append)
calls.runs.stop()
store.close()
print(json.dumps({"described": len(json.loads(got[0].body)["paths"]), "exit": got[1].exit,
                  "commands": [name for name in sys.modules if name.startswith("tools.commands.")],
                  "more": sorted(set(sys.modules) - before)}))
"""
MORE = 4            # modules


@pytest.mark.long
def test_a_process_that_serves_http_loads_no_command(tmp_path: Path) -> None:
    """The first operation loaded 60 of them, and some 300 modules of what they need, in a thread beside mail: an IMAP
    NOOP waited 107 ms."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "store")], capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["exit"] == 0 and found["described"] > 100
    assert found["commands"] == []
    assert len(found["more"]) <= MORE, found["more"]
