"""onecopy relink"""

from contextlib import nullcontext
from typing import Any

import attrs

from store import values
from store.mailboxes.identicalfiles import Relinked, relink
from store.mailboxes.joining import SMALLEST, Joined, figures, join
from store.store import Store
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.output import print_json, print_table, size
from tools.cli.progressbar import bar
from tools.exits import no_partition


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("relink", relink_store, "make one file of message files that are equal octet for octet, also on "
                  "several partitions of one file system, and of those that differ only in the fields at their heads; "
                  "what messages show stays as it is. Exit status 1 if --check finds some")
    made.add_argument("--check", "--dry-run", action="store_true", help="only say what there is")
    made.add_argument("--equal", action="store_true", help="only files that are equal octet for octet")
    made.add_argument("--partition", metavar="NAME", help="of the others, only those on this partition")
    made.add_argument("--smallest", type=typed(values.size), default=SMALLEST, metavar="SIZE",
                      help=f"what a message has to have below its head to be joined with others ({SMALLEST})")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def relink_store(invocation: Invocation) -> int:
    """onecopy relink"""
    arguments, found = invocation.arguments, dict[str, Relinked]()
    with invocation.store() as store:
        if arguments.partition is not None and arguments.partition not in store.partitions:
            raise no_partition(arguments.partition, store.partitions)
        before = {name: figures(partition) for name, partition in store.partitions.items()}
        with nullcontext() if arguments.check else invocation.repeatable("relink"):
            for double, done in relink(store, change=not arguments.check):
                one = found.setdefault(double.why, Relinked())
                one.doubles += done
                one.octets += double.octets if done else 0
                one.skipped += not done
            rows = [_joined(store, arguments, name, before[name]) for name in sorted(store.partitions)]
    doubles, octets = (sum(getattr(each, name) for each in found.values()) for name in ("doubles", "octets"))
    if arguments.json:
        print_json({"doubles": doubles, "octets": octets,
                    "by": {why: attrs.asdict(each) for why, each in found.items()}, "partitions": rows})
    else:
        _print_relinked(arguments, found, rows)
        print(f"{doubles} files, {size(octets)} {'could be' if arguments.check else 'were'} saved")
    return int(bool(arguments.check and (doubles or any(row["contents"] for row in rows))))


def _joined(store: Store, arguments: Any, name: str, before: tuple[int, int]) -> dict[str, Any]:
    """Join what differs at its head alone; the figures of a partition before and after."""
    partition, done = store.partitions[name], Joined()
    if not arguments.equal and arguments.partition in (None, name):
        with bar(f"relink {name}", lambda: sum(1 for _ in partition.refs.all())) as tell:
            done = join(store, partition, change=not arguments.check, smallest=arguments.smallest, tell=tell)
    after = figures(partition)
    if arguments.check:
        after = before[0] - done.files + done.made, before[1] - done.octets + done.written
    return {"partition": name, "files_before": before[0], "octets_before": before[1], "files_after": after[0],
            "octets_after": after[1], "saved": before[1] - after[1], "contents": done.contents,
            "records": done.records, "left": dict(done.left)}


def _print_relinked(arguments: Any, found: dict[str, Relinked], rows: list[dict[str, Any]]) -> None:
    texts = {"partition": "also on another partition", "trace": "also as a content with its trace header",
             "staging": "left in staging/"}
    for why, each in found.items():
        print(f"{texts[why]}: {each.doubles} files, {size(each.octets)}"
              + (f"; {each.skipped} were left" if each.skipped else ""))
    if arguments.equal:
        return
    print_table(rows, ("partition", "files_before", "octets_before", "files_after", "octets_after", "saved",
                       "contents", "records"))
    for row in rows:
        for why, count in row["left"].items():
            print(f"{row['partition']}: {count} were left: {why}")
