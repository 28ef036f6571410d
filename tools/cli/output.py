"""What commands print: a table for people, JSON for programs.

A size is "1.4 GiB" for people, or the number of octets with --bytes, and always that number in JSON. Columns and facts
of the names in SIZES are sizes; `sizes` of a table names those which are sizes there alone.
"""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TextIO

from attrs import frozen

from mboxlist.names import DECEIVING
from store.values import readable
from tools.cli.later import Later

SIZES = frozenset({"octets", "octet_limit", "size", "free", "memory", "charged", "discount", "unique", "shared", "fair",
                   "fair_share", "freed", "saved", "cost", "logical", "waiting_octets", "file_octets", "drift_octets",
                   "octets_before", "octets_after", "octets too many"})
TOGETHER = 5_000            # rows of one table
_plain_sizes = ContextVar("plain sizes", default=False)

_show = Later("tools.cli.richtable:show")       # rich takes as long to load as the rest of a small command


@frozen(eq=False)
class Printable:
    """A stream for text of others: what cannot be seen, or has a reader see something else, comes as \\u202e.
    Line ends and tabs go through."""

    stream: TextIO

    def write(self, text: str) -> int:
        """Write it so."""
        return self.stream.write(printable(text, keep="\n\t"))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write them so."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def only_printable() -> Iterator[None]:
    """All that the program prints in the block goes through `Printable`."""
    kept = sys.stdout, sys.stderr
    out, error = (stream and Printable(stream) for stream in kept)
    sys.stdout, sys.stderr = out, error
    try:
        yield
    finally:
        sys.stdout, sys.stderr = kept


def printable(text: str, keep: str = "") -> str:
    """The text with an escape for each letter that deceives, but for those in `keep`."""
    if text.isascii() and text.isprintable():       # nearly all of them
        return text
    return DECEIVING.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def _escaped(letter: str) -> str:
    return json.dumps(letter)[1:-1] if letter != "\x7f" else "\\u007f"


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def json_line(value: object) -> str:
    """A value of JSON in one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def print_long_json(rows: Iterable[object]) -> None:
    """One JSON document, a list with a line for each value, however many there are: none is kept."""
    before = "["
    for row in rows:
        print(before, json_line(row), sep="\n", end="")
        before = ","
    print("[]" if before == "[" else "\n]")


def use_plain_sizes(plain: bool) -> None:
    """Whether sizes are printed as numbers of octets from now on (--bytes)."""
    _plain_sizes.set(plain)


def size(octets: int) -> str:
    """A number of octets as it is printed in this command: "1.4 GiB", or the number."""
    return str(octets) if _plain_sizes.get() else readable(octets)


def print_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str], sizes: Collection[str] = ()) -> None:
    """A line for each row; to a pipe without frames, and never cut off."""
    known = SIZES.union(sizes)
    cells = [[_cell(row.get(column), column in known) for column in columns] for row in rows]
    right = [any(isinstance(row.get(column), int) for row in rows) for column in columns]
    if not sys.stdout.isatty() and all(cell.isascii() for cells_of_row in cells for cell in cells_of_row):
        _print_plain([[column.replace("_", " ") for column in columns], *cells], right)
        return
    _show([column.replace("_", " ") for column in columns], cells, right)


def print_long_table(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
    """`print_table`, of so many rows at a time as a table has whose columns are as wide as they must be."""
    following = iter(rows)
    while piece := list(islice(following, TOGETHER)):
        print_table(piece, columns)


def _print_plain(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    """A table without rich, for text whose letters are all as wide as each other."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rstrip().rjust(width) if is_right else cell.rstrip().ljust(width)
                        for cell, width, is_right in zip(line, widths, right, strict=True)))


def print_facts(facts: Mapping[str, object], origins: Mapping[str, str] | None = None) -> None:
    """A line for each fact, with where it comes from."""
    width = max(map(len, facts))
    for name, value in facts.items():
        origin = (origins or {}).get(name)
        behind = f"   ({_cell(origin)})" if origin else ""
        print(f"{name.replace('_', ' '):<{width}}  {_cell(value, name in SIZES)}{behind}")


def when(seconds: float) -> str:
    """A Unix time for people and programs alike: RFC 3339, in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def _cell(value: object, is_size: bool = False) -> str:
    if value is None:
        return "-"
    if is_size and isinstance(value, int):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return printable(text)
