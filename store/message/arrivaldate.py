"""When a message came, as it says itself: where no index, and no copy of one, knows."""

import time
from email.utils import mktime_tz, parsedate_tz

from store.values import InternalDate

HEAD = 32 << 10                 # octets at the head of a message in which its dates are looked for
_DAY = 86400
_EARLIEST = 315532800               # 1980: before that nobody had mail of this form (RFC 822)
_LONGEST = 14 * 60                  # minutes that a zone differs from UTC, at most


def arrived(head: bytes, written: float) -> InternalDate:
    """The date of the topmost Received field, which the last host has put in front (RFC 5321 §4.4); or that of Date
    (RFC 5322 §3.6.1); or when the file was written. `head` is the beginning of the message."""
    found: dict[bytes, bytes] = {}
    for name, value in _fields(head):
        found.setdefault(name, value)
    for text in (found.get(b"received", b"").rpartition(b";")[2], found.get(b"date", b"")):
        date = _date(text)
        if date is not None:
            return date
    return InternalDate(int(written), 0)


def _fields(head: bytes) -> list[tuple[bytes, bytes]]:
    """The header fields, unfolded (RFC 5322 §2.2.3)."""
    found: list[tuple[bytes, bytes]] = []
    for line in head.replace(b"\r\n", b"\n").split(b"\n"):
        if not line:
            break
        if line[:1] in b" \t" and found:
            found[-1] = found[-1][0], found[-1][1] + b" " + line.strip()
        else:
            name, colon, value = line.partition(b":")
            if colon:
                found.append((name.strip().lower(), value.strip()))
    return found


def _date(text: bytes) -> InternalDate | None:
    """A date that a message can have come at; None for what is none."""
    try:
        parts = parsedate_tz(text.decode("ascii"))
        seconds = mktime_tz(parts) if parts is not None else -1
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    if parts is None or not _EARLIEST <= seconds <= time.time() + _DAY:
        return None
    zone = (parts[9] or 0) // 60
    return InternalDate(int(seconds), zone if abs(zone) <= _LONGEST else 0)
