"""onecopy purge"""

import argparse
import sys
import time

from mboxlist.entry import MailboxId
from store.mailboxes.deletion import due_mailboxes, purge_mailbox
from store.mailboxes.expunge import due, last_due, purge_batch, waiting
from store.partition.partition import Partition
from store.store import Store
from tools.cli import options
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import bar
from tools.exits import Failure

MANY = 16_000               # message files whose names leave the disk with one sync, and whose records go together


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("purge", purge, "remove now what waits for the purge and is due: deleted mailboxes, and message "
                  "files that are in no mailbox any more; the server does it by itself, too. What is purged cannot be "
                  "brought back. Exit status 1 if something could not be removed")
    made.add_argument("--older-than", type=_duration, metavar="TIME",
                      help="expunged or deleted that long ago (store.purge_delay): 12h, 3d; 0: all")
    made.add_argument("--partition", metavar="NAME", help="only there")
    made.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--json", action="store_true")


def _duration(text: str) -> int:
    try:
        return int(options.duration(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def purge(invocation: Invocation) -> int:
    """onecopy purge"""
    arguments = invocation.arguments
    failed: dict[str, str] = {}
    with invocation.store() as store:
        if arguments.partition is not None and arguments.partition not in store.partitions:
            raise Failure(f"there is no partition {arguments.partition}")
        delay = store.settings.purge_delay
        older = delay if arguments.older_than is None else arguments.older_than
        now = time.time() + delay - older               # at which the rest would be due by the setting
        if older < delay and not arguments.dry_run:
            invocation.confirm("Purge what could still be brought back?")
        rows = [_partition(store, partition, now, arguments.dry_run, failed)
                for partition in store.partitions.values() if arguments.partition in (None, partition.name)]
    if arguments.json:
        print_json({"dry_run": arguments.dry_run, "partitions": rows, "failed": failed})
    else:
        print_table(rows, ("partition", "mailboxes", "files", "octets", "waiting", "waiting_octets"))
        for digest, why in failed.items():
            print(f"onecopy: message {digest} cannot be removed: {why}", file=sys.stderr)
    return int(bool(failed))


def _partition(store: Store, partition: Partition, now: float, dry_run: bool, failed: dict[str, str]
               ) -> dict[str, object]:
    """What was, or would be, removed there, and what waits after that."""
    mailboxes = [mailbox for mailbox in due_mailboxes(store, now) if _is_there(store, mailbox, partition)]
    if not dry_run:
        for mailbox in mailboxes:
            purge_mailbox(store, mailbox)
    files, octets = _removable(partition, now) if dry_run else _remove(partition, now, failed)
    partition.flush()
    left = [size for _, size in waiting(partition)]
    gone = (files, octets) if dry_run else (0, 0)
    return {"partition": partition.name, "mailboxes": len(mailboxes), "files": files, "octets": octets,
            "waiting": len(left) - gone[0], "waiting_octets": sum(left) - gone[1]}


def _is_there(store: Store, mailbox: MailboxId, partition: Partition) -> bool:
    found = store.mailboxes.deleted.find(mailbox)
    return found is not None and found[1].partition == partition.name


def _remove(partition: Partition, now: float, failed: dict[str, str]) -> tuple[int, int]:
    """Remove what is due: files, and their octets."""
    files = octets = seen = 0
    until = last_due(partition, now)
    with bar(f"purge {partition.name}", lambda: sum(1 for _ in waiting(partition, until))) as tell:
        for batch in due(partition, now, MANY):
            done = purge_batch(partition, batch.files)
            files, octets, seen = files + done.files, octets + done.octets, seen + len(batch.files)
            failed.update((digest.hex(), error.strerror or str(error)) for digest, error in done.failed.items())
            tell(seen)
    return files, octets


def _removable(partition: Partition, now: float) -> tuple[int, int]:
    """What `_remove` would remove."""
    sizes = [size for _, size in waiting(partition, last_due(partition, now))]
    return len(sizes), sum(sizes)
