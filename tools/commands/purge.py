"""onecopy purge"""

import sys
import time
from contextlib import nullcontext
from functools import partial

from attrs import asdict

from store import values
from store.mailboxes.duepurge import count_due, purge_partition
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import bar
from tools.commands.messages import clockoption
from tools.exits import no_partition


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("purge", purge, "remove now what waits for the purge and is due: deleted mailboxes, and message "
                  "files that are in no mailbox any more; the server does it by itself, too. What is purged cannot be "
                  "restored. Exit status 1 if something could not be removed")
    made.add_argument("--older-than", type=typed(values.duration), metavar="TIME",
                      help="expunged or deleted that long ago (store.purge_delay): 12h, 3d; 0: all")
    made.add_argument("--partition", metavar="NAME", help="only there")
    clockoption.add_option(made)
    made.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def purge(invocation: Invocation) -> int:
    """onecopy purge"""
    arguments = invocation.arguments
    rows, failed, problems = list[dict[str, object]](), dict[str, str](), list[str]()
    with invocation.store() as store:
        if arguments.partition is not None and arguments.partition not in store.partitions:
            raise no_partition(arguments.partition, store.partitions)
        if not arguments.dry_run:
            clockoption.require(store, trusted=arguments.trust_clock)
        delay = store.settings.purge_delay
        older = delay if arguments.older_than is None else int(arguments.older_than)
        now = time.time() + delay - older               # at which the rest would be due by the setting
        if older < delay and not arguments.dry_run:
            invocation.confirm("Purge what could still be restored?")
        those = [partition for partition in store.partitions.values()
                 if arguments.partition in (None, partition.name)]
        with nullcontext() if arguments.dry_run else store.begun(
                "purge", {"partitions": [partition.name for partition in those], "until": now}, stops=True, waits=True):
            for partition in those:
                with bar(f"purge {partition.name}", partial(count_due, partition, now)) as tell:
                    done = asdict(purge_partition(store, partition, now, tell, dry_run=arguments.dry_run))
                failed |= done.pop("failed")
                problems += done.pop("problems")
                rows.append({"partition": partition.name, **done})
    if arguments.json:
        print_json({"dry_run": arguments.dry_run, "partitions": rows, "failed": failed, "problems": problems})
    else:
        print_table(rows, ("partition", "mailboxes", "files", "octets", "waiting", "waiting_octets"))
        for digest, why in failed.items():
            print(f"onecopy: message {digest} cannot be removed: {why}", file=sys.stderr)
        for problem in problems:
            print(f"onecopy: {problem}", file=sys.stderr)
    return int(bool(failed or problems))
