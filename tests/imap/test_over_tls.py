"""The same conversations over TCP with TLS, with a real event loop and threads: one server process plays them all.

Left out are those that say how much time passes, and those from another address than this host's.
"""

import json
import re
import subprocess
import sys

import pytest

from tests.support.conversations.scripts import SCRIPTS

IN_MEMORY_ONLY = re.compile(r"^(time|slow):|^with:.* peer=", re.MULTILINE)
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.txt") if not IN_MEMORY_ONLY.search(path.read_text()))
LIMIT = 600                 # seconds for all of them, which takes some 20


@pytest.fixture(scope="module")
def outcomes(request):
    """What went wrong, by the names of the scripts that are wanted."""
    wanted = [item.callspec.params["name"] for item in request.session.items if item.module is request.module]
    done = subprocess.run([sys.executable, "-m", "tests.support.conversations.over_tls", *wanted], capture_output=True,
                          timeout=LIMIT,
                          check=False, text=True, cwd=request.config.rootpath)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_conversation_over_tls(outcomes, name):
    assert not outcomes[name], outcomes[name]
