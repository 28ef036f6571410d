"""Files that name users, a line for each: CSV. `-` is standard input."""

import csv
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from mboxlist import privatefiles
from store.users.newuser import NewUser
from store.values import Secret
from tools.transfer.sourcevalues import Unreadable

COLUMNS = 5
STREAM = Path("-")


def lines_of(path: Path) -> list[tuple[int, list[str]]]:
    """The lines that name somebody, with their numbers. Raises Unreadable."""
    try:
        with _opened(path) as octets, TextIOWrapper(octets, "utf-8", newline="") as file:
            reader = csv.reader(file)
            return [(reader.line_num, row) for row in reader if row and row[0].strip() and not row[0].startswith("#")]
    except (OSError, UnicodeError, csv.Error) as error:
        raise Unreadable(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _opened(path: Path) -> BinaryIO:
    """Raises OSError."""
    return privatefiles.open_named(path) if path != STREAM else sys.stdin.buffer if sys.stdin else BytesIO()


def new_users(path: Path, partition: str | None, host: str) -> list[NewUser]:
    """Users who are to be added: name, password, partition, back end, and aliases with spaces between them. The
    partition and the back end are meant where a line names none. Raises Unreadable."""
    found = dict[str, NewUser]()
    for number, row in lines_of(path):
        if len(row) > COLUMNS:
            raise Unreadable(f"{path}: line {number} has more than {COLUMNS} columns")
        name, password, place, end, aliases = [*row, *[""] * COLUMNS][:COLUMNS]
        name = name.strip()
        if name in found:
            raise Unreadable(f"{path}: line {number}: {name} is there a second time")
        found[name] = NewUser(name, Secret(password.encode()), place.strip() or partition, aliases.split(),
                              end.strip() or host)
    if not found:
        raise Unreadable(f"{path}: it names no users")
    return list(found.values())
