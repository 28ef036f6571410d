"""The fuzzers of a package, as a test runs them: all at the same time, each in a process of its own."""

import os
import subprocess
import sys

from tests.support import ROOT

LIMIT = 1800                # seconds, far more than it takes


def find_nothing(package, counts, folder):
    """Run the targets of these names so often, and want them to end well; `folder` is for what they write."""
    running = {}
    try:
        for name, count in counts.items():
            with (folder / name).open("wb") as said:
                running[name] = subprocess.Popen(
                    [sys.executable, "-m", package, name, str(count)], cwd=ROOT, stdin=subprocess.DEVNULL,
                    stdout=said, stderr=said, env={**os.environ, "TMPDIR": str(folder)})
        for name, process in running.items():
            status = process.wait(LIMIT)
            said = (folder / name).read_text(errors="replace")
            inputs = [f"{path.name}: ={path.read_bytes().hex()}" for path in folder.glob("onecopy-fuzz-*-*")]
            assert status == 0 and f"{name}: {counts[name]} inputs" in said, f"{said[-4000:]}\n{inputs}"
    finally:
        for process in running.values():
            process.kill()
            process.wait()
