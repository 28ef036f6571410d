"""onecopy purge"""

import argparse
import time
from collections.abc import Iterator

from mboxlist.entry import MailboxId
from store.expunge import due, purge_one
from store.partition import Partition
from store.refs import FOREVER
from store.removal import due_mailboxes, purge_mailbox
from store.store import Store
from tools import config
from tools.commands import Invocation, Parsers
from tools.errors import Failure
from tools.output import print_json, print_table
from tools.progress import bar


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("purge", purge, "remove now what waits for the purge and is due: deleted mailboxes, and message "
                  "files that are in no mailbox any more; the server does it by itself, too. What is purged cannot be "
                  "brought back")
    made.add_argument("--older-than", type=_duration, metavar="TIME",
                      help="expunged or deleted that long ago (store.purge_delay): 12h, 3d; 0: all")
    made.add_argument("--partition", metavar="NAME", help="only there")
    made.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--json", action="store_true")


def _duration(text: str) -> int:
    try:
        return int(config.duration(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def purge(invocation: Invocation) -> int:
    """onecopy purge"""
    arguments = invocation.arguments
    with invocation.store() as store:
        if arguments.partition is not None and arguments.partition not in store.partitions:
            raise Failure(f"there is no partition {arguments.partition}")
        delay = store.settings.purge_delay
        older = delay if arguments.older_than is None else arguments.older_than
        now = time.time() + delay - older               # at which the rest would be due by the setting
        if older < delay and not arguments.dry_run:
            invocation.confirm("Purge what could still be brought back?")
        rows = [_partition(store, partition, now, arguments.dry_run) for partition in store.partitions.values()
                if arguments.partition in (None, partition.name)]
    if arguments.json:
        print_json({"dry_run": arguments.dry_run, "partitions": rows})
    else:
        print_table(rows, ("partition", "mailboxes", "files", "octets", "waiting", "waiting_octets"))
    return 0


def _partition(store: Store, partition: Partition, now: float, dry_run: bool) -> dict[str, object]:
    """What was, or would be, removed there, and what waits after that."""
    mailboxes = [mailbox for mailbox in due_mailboxes(store, now) if _is_there(store, mailbox, partition)]
    if not dry_run:
        for mailbox in mailboxes:
            purge_mailbox(store, mailbox)
    files = octets = 0
    with bar(f"purge {partition.name}", lambda: sum(1 for _ in _due(partition, now))) as tell:
        for released, mid in _due(partition, now) if dry_run else due(partition, now):
            size = _size(partition, mid)
            if dry_run and size is not None or not dry_run and purge_one(partition, released, mid):
                files += 1
                octets += size or 0
            tell(files)
    partition.flush()
    left = list(partition.refs.waiting(FOREVER))        # no cursor is open while something else is looked up
    waiting = [size for _, mid in left if (size := _size(partition, mid)) is not None]
    gone = (files, octets) if dry_run else (0, 0)
    return {"partition": partition.name, "mailboxes": len(mailboxes), "files": files, "octets": octets,
            "waiting": len(waiting) - gone[0], "waiting_octets": sum(waiting) - gone[1]}


def _is_there(store: Store, mailbox: MailboxId, partition: Partition) -> bool:
    found = store.mailboxes.deleted.find(mailbox)
    return found is not None and found[1].partition == partition.name


def _due(partition: Partition, now: float) -> Iterator[tuple[int, bytes]]:
    """What `due` would name, and nothing is changed."""
    until = min(int(now) - partition.settings.purge_delay, partition.kept_since() - 1)
    yield from list(partition.refs.waiting(until))


def _size(partition: Partition, mid: bytes) -> int | None:
    """The octets of a file without references, which waits; None for one that is in use again."""
    record = partition.refs.find(mid)
    return None if record is None or record.references else record.size
