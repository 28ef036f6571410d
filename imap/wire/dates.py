"""Dates in commands: date and date-time of RFC 3501 §9. `imap.lines` writes them, whole columns at a time."""

import calendar
import datetime
import re

from imap.wire.grammar import SyntaxProblem
from imap.wire.scanner import Scanner
from store.values import InternalDate

MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_MONTH_NUMBERS = {name.upper(): number for number, name in enumerate(MONTHS, 1)}

_DATE = re.compile(rb'("?+)([0-9]{1,2}+)-([A-Za-z]{3})-([0-9]{4})("?+)')
# The day may lack its leading space, as in clients that took the two-digit form for free-form.
_DATE_TIME = re.compile(
    rb'"( ?[0-9]|[0-9]{2})-([A-Za-z]{3})-([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) ([+-])([0-9]{2})([0-9]{2})"')



def date(scan: Scanner) -> datetime.date:
    """date: with or without quotes. Raises SyntaxProblem."""
    found = scan.match(_DATE)
    if found is None or found[1] != found[5]:
        raise SyntaxProblem("A date such as 1-Feb-2026 is expected here")
    return _day(found[2], found[3], found[4])


def date_time(scan: Scanner) -> InternalDate:
    """date-time. Raises SyntaxProblem."""
    found = scan.match(_DATE_TIME)
    if found is None:
        raise SyntaxProblem('A time such as " 1-Feb-2026 09:30:00 +0100" is expected here')
    day = _day(found[1], found[2], found[3])
    hour, minute, second = int(found[4]), int(found[5]), int(found[6])
    zone_hours, zone_minutes = int(found[8]), int(found[9])
    if hour > 23 or minute > 59 or second > 60 or zone_minutes > 59:
        raise SyntaxProblem("There is no such time")
    zone = zone_hours * 60 + zone_minutes
    zone = -zone if found[7] == b"-" else zone
    local = calendar.timegm((day.year, day.month, day.day, hour, minute, second))
    return InternalDate(local - zone * 60, zone)


def _day(day: bytes, month: bytes, year: bytes) -> datetime.date:
    try:
        return datetime.date(int(year), _MONTH_NUMBERS[month.upper()], int(day))
    except (KeyError, ValueError):
        raise SyntaxProblem("There is no such day") from None
