"""Tests of dates: RFC 5260."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime, parsedate_to_datetime

from store.sieve.commandforms import MATCH, Form, Kind, Tag, constant, constants, matching
from store.sieve.conditions.fieldtests import INDEX, check_index, check_names, fields_for
from store.sieve.scriptrun import Node, Run

_MODIFIED_JULIAN = 678576               # 1858-11-16 as `datetime.toordinal` counts: day 0 is the day after it
PARTS: dict[str, Callable[[datetime], str]] = {
    "year": lambda when: f"{when.year:04}", "month": lambda when: f"{when.month:02}",
    "day": lambda when: f"{when.day:02}", "date": lambda when: f"{when:%Y-%m-%d}",
    "julian": lambda when: str(when.toordinal() - _MODIFIED_JULIAN), "hour": lambda when: f"{when.hour:02}",
    "minute": lambda when: f"{when.minute:02}", "second": lambda when: f"{when.second:02}",
    "time": lambda when: f"{when:%H:%M:%S}", "iso8601": lambda when: when.isoformat(timespec="seconds"),
    "std11": format_datetime, "zone": lambda when: f"{when:%z}"[:5], "weekday": lambda when: str(when.isoweekday() % 7)}
ZONES = {"zone": Tag(value=Kind.STRING, group="zone")}


def _zone(text: str) -> timezone:
    """The zone of +hhmm. Raises ValueError."""
    if len(text) != 5 or text[0] not in "+-" or not text[1:].isdecimal() or not text.isascii() or int(text[3:]) > 59:
        raise ValueError(f'"{text}" is no zone such as "+0100"')
    minutes = int(text[1:3]) * 60 + int(text[3:])
    if minutes >= 24 * 60:
        raise ValueError(f'"{text}" is no zone')
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def date_of(value: str) -> datetime | None:
    """The date that a field has: all of it, or what stands behind its last semicolon (RFC 5260 §4)."""
    try:
        when = parsedate_to_datetime(value.rpartition(";")[2].strip())
        return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _value(run: Run, node: Node, when: datetime, part: str) -> list[str]:
    """The part of a date, in the zone that the test asks for, else in the server's."""
    try:
        if "zone" in node.tags:
            when = when.astimezone(_zone(run.text(node.tags["zone"])))
        elif "originalzone" not in node.tags:
            when = when.astimezone(run.surroundings.now.tzinfo)
        made = PARTS.get(part.lower())
        return [] if made is None else [made(when)]
    except (ValueError, OverflowError):         # a zone out of a variable; a year before the first
        return []


def date(run: Run, node: Node) -> bool:
    """RFC 5260 §4."""
    name, part = run.text(node.values[0]), run.text(node.values[1])
    values = []
    for one in fields_for(run, node, name):
        when = date_of(one.text)
        if when is not None:
            values += _value(run, node, when, part)
    return bool(node.ready.any(run, node, values, run.list(node.values[2])))


def current_date(run: Run, node: Node) -> bool:
    """RFC 5260 §5."""
    values = _value(run, node, run.surroundings.now, run.text(node.values[0]))
    return bool(node.ready.any(run, node, values, run.list(node.values[1])))


def _prepare(node: Node) -> object:
    if "zone" in node.tags and isinstance(node.tags["zone"], str):
        _zone(constant(node.tags["zone"]))
    for part in constants(node.values[-2]):
        if part.lower() not in PARTS:
            raise ValueError(f'a date has no part "{part}"')
    if len(node.values) == 3:
        check_names(constants(node.values[0]))
    check_index(node)
    return matching(node)


TESTS = {
    "date": Form(date, ("date",), {**MATCH, **INDEX, **ZONES, "originalzone": Tag(group="zone")},
                 values=(Kind.STRING, Kind.STRING, Kind.STRINGS), prepare=_prepare),
    "currentdate": Form(current_date, ("date",), {**MATCH, **ZONES}, values=(Kind.STRING, Kind.STRINGS),
                        prepare=_prepare),
}
