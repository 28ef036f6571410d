"""onecopy partition add|list|drain|remove"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from store.delivery.batch import in_threads
from store.mailboxes import placement
from store.partition.marks import absent, only_elsewhere
from store.partitions import volumes
from store.partitions.partitionmove import Moved, move_owner, owners_on
from store.store import Store
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.output import print_json, print_table, printable, size
from tools.cli.progressbar import bar
from tools.exits import Failure

COLUMNS = ("partition", "path", "mailboxes", "messages", "octets", "free", "used_percent", "threshold", "full")
PUBLIC = "public mailboxes"


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("partition add", add_partition, "make a partition; a running server takes it up by itself")
    made.add_argument("name", metavar="NAME")
    made.add_argument("--path", type=Path, metavar="FOLDER", help="an empty folder on another volume")
    made = parser("partition list", list_partitions, "list the partitions, and what is on them")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("partition drain", drain, "move all mailboxes to other partitions; can be cut off and done again")
    made.add_argument("name", metavar="NAME")
    made.add_argument("--to", metavar="OTHER", help="to this one; default: whichever has the most free space")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("partition remove", remove, "remove a partition without mailboxes, while no server runs")
    made.add_argument("name", metavar="NAME")
    made.add_argument("--yes", action="store_true", help="do not ask")


def add_partition(invocation: Invocation) -> int:
    """onecopy partition add"""
    with invocation.store() as store:
        volumes.add(store, invocation.arguments.name, invocation.arguments.path)
    return 0


def list_partitions(invocation: Invocation) -> int:
    """onecopy partition list"""
    with invocation.store() as store:
        rows = []
        for name in sorted(store.partitions):
            partition = store.partitions[name]
            facts = attrs.asdict(volumes.figures(partition))
            free, used = facts["free"], facts["used"]
            rows.append({**facts, "path": str(partition.folder.resolve()), "threshold": store.settings.disk_threshold,
                         "used_percent": 100 * used // max(1, used + free)})
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table(rows, COLUMNS)
        for name, host in absent(invocation.config.root).items():
            print(only_elsewhere(name, host))
    return 0


def drain(invocation: Invocation) -> int:
    """onecopy partition drain"""
    name, to = invocation.arguments.name, invocation.arguments.to
    with invocation.store() as store:
        volumes.named(store, name)
        if name == store.settings.default_partition:
            raise Failure(f"new users come to {name}: set store.default_partition to another first")
        if name == to:
            raise Failure(f"{name} cannot be drained to itself")
        return move_owners(invocation, store, owners_on(store, name), to, without=name)


def remove(invocation: Invocation) -> int:
    """onecopy partition remove"""
    with invocation.store() as store:
        invocation.confirm(f"Remove partition {invocation.arguments.name} and all files that are on it?")
        with bar("removing files"):
            volumes.remove(store, invocation.arguments.name)
    return 0


def move_owners(invocation: Invocation, store: Store, owners: Sequence[str], to: str | None, without: str = "") -> int:
    """Move them to the partition, or each to the one with most room that is not `without`; the refusals are printed,
    and the status is 1 if there were any."""
    shown, rows = {owner or PUBLIC: owner for owner in owners}, list[dict[str, object]]()
    with progress(len(shown)) as tell, invocation.begun(store, "partition move", {
            "owners": list(owners), "to": to, "without": without}, holds=owners, stops=True, waits=True) as operation:
        def work(name: str) -> None:
            place = volumes.named(store, to or placement.roomiest(store, without).name).name
            done = move_owner(store, shown[name], place, side_by_side=in_threads,
                              progress=lambda so_far: tell(name, so_far))
            rows.append({"user": name, "to": place, **attrs.asdict(done)})
            if not invocation.arguments.json:
                print(f"{name}: {done.mailboxes} mailboxes, {done.messages} messages, {done.files} files copied "
                      f"({size(done.octets)})", flush=True)

        status = each(list(shown), work, operation)
    if invocation.arguments.json:
        print_json(rows)
    return status


@contextlib.contextmanager
def progress(users: int) -> Iterator[Callable[[str, Moved], None]]:
    """A bar while a person watches: how many users are done, and how much of the one who is being moved."""
    seen: dict[str, None] = {}
    with bar("users", lambda: users) as show:
        def tell(name: str, so_far: Moved) -> None:
            seen[name] = None
            show(len(seen) - 1, f"{printable(name)}: {so_far.messages} messages, {size(so_far.octets)} copied")

        yield tell
