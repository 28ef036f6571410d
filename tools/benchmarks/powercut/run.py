"""Power cuts on a block device whose cache is lost: what was acknowledged must be there afterwards. As root."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mboxlist import privatefiles
from store.settings import SYNC_LEVELS
from tools.benchmarks.powercut import report
from tools.benchmarks.powercut.cuts import cuts
from tools.benchmarks.powercut.machine import FORMAT, Machine
from tools.benchmarks.powercut.workloads import WORKLOADS

APART = "apart"                 # the first argument of the program in name spaces of its own
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser("tools/bench powercut", allow_abbrev=False, description=__doc__)
    parser.add_argument("--cuts", type=int, default=200, metavar="N", help="so many (200)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all that is random (1)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first cut (0)")
    parser.add_argument("--running", action="append", choices=list(WORKLOADS), metavar="WHICH",
                        help=f"what runs when the power goes; can be repeated (all): {', '.join(WORKLOADS)}")
    parser.add_argument("--file-system", action="append", choices=list(FORMAT), help="can be repeated (both)")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="begin no cut after them (60)")
    parser.add_argument("--sync", default="everything", choices=SYNC_LEVELS,
                        help="store.sync (everything); at the other levels acknowledged changes are lost, and told")
    parser.add_argument("--record", type=Path, metavar="FILE", help="add each cut to that file, a line of JSON")
    parser.add_argument("--page", action="store_true", help="put all cuts of this commit that are on record into "
                        "docs/durability.md")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(words)
    if chosen.page and (chosen.record is None or chosen.sync != SYNC_LEVELS[0]):
        parser.error("--page takes --record, and store.sync = everything")
    return chosen


def main(words: list[str]) -> int:
    """0: all was as it must be."""
    if words[:1] != [APART]:
        parse(words)
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, "-P", "-m", "tools.benchmarks.powercut.run", APART, *words])
    chosen = parse(words[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes, code = [], report.commit() if chosen.record is not None else ""
    with (privatefiles.temporary_folder("onecopy-power-") as folder,
          Machine(folder, {"store.sync": chosen.sync}) as machine):
        with suppress(KeyboardInterrupt):           # and SIGTERM: what has been done is told
            for outcome in cuts(machine, chosen.cuts, chosen.seed, chosen.running or list(WORKLOADS),
                                chosen.file_system or list(FORMAT), 60 * chosen.minutes, chosen.first):
                outcomes.append(outcome)
                report.tell(outcome)
                if chosen.record is not None:
                    report.note(outcome, chosen.seed, code, chosen.record)
    if chosen.page:
        report.put_in(report.PAGE, chosen.record, code)
    report.show(outcomes, as_json=chosen.json)
    return 0 if outcomes and all(outcome.is_good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
