"""onecopy dump: the rows of the databases, beside a running server too"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

from attrs import frozen

from mboxlist.engine.btree import FIRST_KEY, Table
from store.store import Store
from tools.cli.invocation import Invocation, Parsers, number, typed
from tools.cli.output import json_line, print_json, print_long_json, print_table
from tools.cli.progressbar import counted
from tools.commands.observing.decodedrows import ID, LAYOUTS, SECRETS, octets, shown
from tools.exits import Failure, did_you_mean, no_partition

LIST = "mboxlist"           # stands for the system area of the whole store
ROWS, READ_OCTETS = 200, 1 << 20        # that are read before a row is printed: nothing is locked meanwhile


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("dump", dump, "print the rows of a table of the databases, a line each, without changing or holding "
                  "anything; without TABLE: list the tables")
    made.add_argument("table", metavar="TABLE", nargs="?",
                      help="its name, with or without .db: mailboxes, index, state")
    made.add_argument("--partition", metavar="NAME", help=f"only there; {LIST}: the list of mailboxes")
    made.add_argument("--from", dest="first", type=typed(octets), metavar="KEY", help="from this key on: a text, or 0x "
                      "and hexadecimal digits, as they are printed")
    made.add_argument("--to", dest="end", type=typed(octets), metavar="KEY", help="up to, not including, this key")
    made.add_argument("--mailbox", type=typed(number), metavar="ID", help="only rows of the mailbox with that id (of "
                                                                          "mailbox info), where keys begin with one")
    made.add_argument("--limit", type=typed(number), default=0, metavar="N", help="only the first N rows")
    made.add_argument("--hex", action="store_true", help="keys and values as hexadecimal digits, as they are stored")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


@frozen
class _Place:
    """A table, and where it is."""

    where: str
    table: Table

    @property
    def name(self) -> str:
        """Its own."""
        return self.table.name.removesuffix(".db")


def dump(invocation: Invocation) -> int:
    """onecopy dump"""
    arguments = invocation.arguments
    with invocation.store() as store:
        places = _places(store, arguments.partition)
        if arguments.table is None:
            _list(store, places, as_json=arguments.json)
            return 0
        name = arguments.table.removesuffix(".db")
        if name not in {place.name for place in places}:
            known = sorted({place.name for place in places})
            raise Failure(f"there is no table {name}{did_you_mean(name, known)} (onecopy dump lists them)")
        if arguments.hex and name in SECRETS:
            raise Failure(f"{name} has hashes of passwords, which are not printed: leave --hex away")
        found = _rows([place for place in places if place.name == name], arguments)
        rows = counted(_limited(found, arguments.limit), name, printing=True)
        if arguments.json:
            print_long_json(rows)
        else:
            for row in rows:
                print(json_line(row))
    return 0


def _places(store: Store, partition: str | None) -> list[_Place]:
    areas = {LIST: store.mailboxes.env, **{each.name: each.env for each in store.partitions.values()}}
    if partition is not None and partition not in areas:
        raise no_partition(partition, areas)
    return [_Place(where, table) for where, env in areas.items() if partition in (None, where)
            for table in sorted(env.tables, key=lambda table: table.name)]


def _list(store: Store, places: list[_Place], *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for place in places:
        folder = (store.mailboxes.env if place.where == LIST else store.partitions[place.where].env).folder
        rows.append({"partition": place.where, "table": place.name,
                     "file_octets": (folder / place.table.name).stat().st_size, "what": LAYOUTS[place.name].what})
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ("partition", "table", "file_octets", "what"))


def _rows(places: list[_Place], arguments: Any) -> Iterator[dict[str, Any]]:
    first, end = arguments.first or b"", arguments.end
    if arguments.mailbox is not None:
        if not LAYOUTS[places[0].name].by_mailbox:
            raise Failure(f"keys of {places[0].name} do not begin with a mailbox id: use --from and --to")
        first = max(first, arguments.mailbox.to_bytes(ID, "big"))
        end = min(end or b"\xff" * 5, (arguments.mailbox + 1).to_bytes(ID, "big"))
    for place in places:
        where = {} if place.where == LIST else {"partition": place.where}
        for key, value in _apart(place.table, first, end):
            if arguments.hex:
                yield {**where, "key": key.hex(), "value": value.hex()}
            else:
                yield {**where, **shown(place.name, key, value)}


def _apart(table: Table, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """The rows, some read at a time: who reads what is printed may be slow, and no page is locked while that waits."""
    start = max(first, FIRST_KEY)
    while True:
        rows, read = list[tuple[bytes, bytes]](), 0
        with closing(cast(Any, table.scan(start, end))) as scan:
            for row in scan:
                rows.append(row)
                read += len(row[0]) + len(row[1])
                if len(rows) >= ROWS or read >= READ_OCTETS:
                    break
        if not rows:
            return
        yield from rows
        start = rows[-1][0] + b"\0"


def _limited(rows: Iterator[dict[str, Any]], most: int) -> Iterator[dict[str, Any]]:
    for done, row in enumerate(rows, 1):
        yield row
        if done == most:
            return
