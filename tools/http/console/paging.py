"""Lists in parts: no page shows all rows of a store."""

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from tools.http.webpages import Refused

PER_PAGE = 50
_LAST = 10_000_000          # the largest number of a page that makes sense


@frozen
class Part:
    """What one page shows: `at` is its number, from 1 on; `more`, whether others follow."""

    rows: Sequence[Any]
    at: int = 1
    more: bool = False


def page_number(text: str) -> int:
    """What the address says; the first, where it says nothing. Raises Refused."""
    if not text:
        return 1
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 9) or not 1 <= int(text) <= _LAST:
        raise Refused(400, "There is no page of that number.")
    return int(text)


def part_of(rows: Sequence[Any], text: str, per_page: int = PER_PAGE) -> Part:
    """The rows of the page whose number the address has. Raises Refused."""
    at = page_number(text)
    first = (at - 1) * per_page
    return Part(rows[first:first + per_page], at, len(rows) > first + per_page)


def first_of(rows: Sequence[Any], at: int = 1, per_page: int = PER_PAGE) -> Part:
    """Where one row more than a page has was asked for, only to know whether there is one."""
    return Part(rows[:per_page], at, len(rows) > per_page)
