"""What commands print: a table for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

UNLIMITED_WIDTH = 100_000


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """A line for each row; to a pipe without frames, and never cut off."""
    from rich import box  # here: it takes as long to load as the rest of a small command
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    person = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD if person else None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold",
                         justify="right" if any(isinstance(row.get(column), int) for row in rows) else "left")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    Console(width=None if person else UNLIMITED_WIDTH, soft_wrap=False).print(table)


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
