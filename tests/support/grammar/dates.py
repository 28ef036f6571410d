"""Dates as IMAP writes them (RFC 3501 §9 date, date-time), one at a time: the server writes whole columns."""

import calendar
import datetime
import time

from imap.wire.dates import MONTHS

# What gmtime and the four digits of a year can hold; a stored date beyond it is shown as the nearest.
_FIRST = calendar.timegm((1, 1, 2, 0, 0, 0))
_LAST = calendar.timegm((9999, 12, 30, 0, 0, 0))


def format_date(day: datetime.date) -> bytes:
    """date, without quotes."""
    return b"%d-%s-%04d" % (day.day, MONTHS[day.month - 1], day.year)


def format_date_time(seconds: int, zone: int) -> bytes:
    """date-time, in its quotes; Unix time and minutes east, as `InternalDate` has them."""
    local = time.gmtime(min(max(seconds, _FIRST), _LAST) + zone * 60)
    sign, east = (b"-", -zone) if zone < 0 else (b"+", zone)
    return b'"%2d-%s-%04d %02d:%02d:%02d %s%02d%02d"' % (
        local[2], MONTHS[local[1] - 1], local[0], local[3], local[4], local[5], sign, east // 60, east % 60)
