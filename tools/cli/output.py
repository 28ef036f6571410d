"""What commands print: a table for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tools.cli.later import Later

_show = Later("tools.cli.richtable:show")       # rich takes as long to load as the rest of a small command


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """A line for each row; to a pipe without frames, and never cut off."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    right = [any(isinstance(row.get(column), int) for row in rows) for column in columns]
    if not sys.stdout.isatty() and all(cell.isascii() for cells_of_row in cells for cell in cells_of_row):
        _print_plain([[column.replace("_", " ") for column in columns], *cells], right)
        return
    _show([column.replace("_", " ") for column in columns], cells, right)


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
        print(f"{name.replace('_', ' '):<{width}}  {_cell(value)}{f'   ({_cell(origin)})' if origin else ''}")


def when(seconds: float) -> str:
    """A Unix time for people and programs alike: RFC 3339, in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return "".join(letter if letter.isprintable() else "?" for letter in text)
