"""tools/bench report: how long `onecopy quota report` takes, from the typed command to its end.

    tools/bench report --work DIR [--sizes 8:300,500:100000]

Each size is users and messages; stores are made by `onecopy spark generate --small` (20 records a message) unless they
are in DIR already. Printed: seconds by the clock, seconds of processor time, and the memory of the process.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

AIMS = {8: 3.0, 500: 15.0}              # seconds, by users (issue 25)
_PROGRAM = (sys.executable, "-P", "-m", "tools.cli.program")


def main(words: Sequence[str] | None = None) -> int:
    """Run, and print a line for each size."""
    parser = argparse.ArgumentParser(prog="tools/bench report", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="a folder for the stores")
    parser.add_argument("--sizes", default="8:300,500:100000", help="USERS:MESSAGES, with commas between them")
    arguments = parser.parse_args(words)
    for size in arguments.sizes.split(","):
        users, messages = map(int, size.split(":"))
        store = arguments.work / f"store-{users}-{messages}"
        if not store.exists():
            subprocess.run([*_PROGRAM, "spark", "generate", store, "--small", "--users", str(users), "--messages",
                            str(messages)], stdout=subprocess.DEVNULL, check=True)
        print(measured(store, users, messages), flush=True)
    return 0


def measured(store: Path, users: int, messages: int) -> str:
    """The report of a store, whole, as JSON."""
    begun = time.monotonic()
    running = subprocess.Popen([*_PROGRAM, "quota", "report", "--json", "--root", str(store)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begun
    aim = f", aim {AIMS[users]:g}" if users in AIMS else ""
    return (f"{users:,} users, {messages:,} messages: {seconds:.1f} s{aim}; {used.ru_utime + used.ru_stime:.1f} s of "
            f"processor time, {used.ru_maxrss >> 10} MiB, exit status {running.returncode}")


if __name__ == "__main__":
    sys.exit(main())
