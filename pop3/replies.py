"""What the server says (RFC 1939 §3, RFC 2449 §8). Text from elsewhere cannot end a line or look like a code."""

import base64
import re
from collections.abc import Iterable

LIMIT = 512                             # RFC 1939 §3: octets of a reply's first line, with its CRLF

_NOT_TEXT = re.compile(rb"[^\x20-\x7e]+")


def ok(text: str = "") -> bytes:
    """A positive reply, or the first line of one with several."""
    return _line(b"+OK", text)


def refused(text: str, code: str | None = None) -> bytes:
    """A negative reply, with a response code (RFC 2449 §8.1.1, RFC 3206) if one says what to do about it."""
    return _line(b"-ERR" if code is None else b"-ERR [%b]" % code.encode("ascii"), text)


def several(text: str, lines: Iterable[str]) -> bytes:
    """A positive reply of several lines, which do not begin with a dot."""
    return ok(text) + b"".join(line.encode("ascii") + b"\r\n" for line in lines) + END


def limit_reached(text: str) -> bytes:
    """The last reply to a client that is past a limit: no fault of its name or password (RFC 3206 §4)."""
    return refused(text.lower(), "SYS/TEMP")


def challenge(octets: bytes) -> bytes:
    """What AUTH asks the client (RFC 5034 §4)."""
    return b"+ " + base64.b64encode(octets) + b"\r\n"


def _line(status: bytes, text: str) -> bytes:
    said = _NOT_TEXT.sub(b"?", text.encode("ascii", "replace"))
    if said.startswith(b"["):           # RFC 2449 §8: reserved for response codes
        said = b"(" + said[1:]
    return (status + b" " + said if said else status)[:LIMIT - 2] + b"\r\n"


END = b".\r\n"                          # RFC 1939 §3: after the last line of several



def greeting(more: str) -> bytes:
    """The first reply, which says something `more` about the store. It has no <...>: APOP is not offered (RFC 1939 §7).
    """
    return ok(f"onecopy POP3 server ready{more}")


ONLY_READS = refused("this app password is only for reading")
MARKED = ok("marked as deleted")
BYE = ok("goodbye")
TOO_SLOW_LOGIN = refused("login took too long")
TOO_MANY_LOGINS = refused("too many failed logins", "AUTH")
TOO_MANY_ERRORS = refused("too many bad commands")
STOPPING = refused("the server is stopping", "SYS/TEMP")
MOVED = refused("your mail is on another server now", "SYS/TEMP")
UNKNOWN_COMMAND = refused("unknown command")
LINE_TOO_LONG = refused("the line is too long")
NEEDS_TLS = refused("passwords are taken under TLS only")
IN_USE = refused("another session has the maildrop", "IN-USE")
NOT_REMOVED = refused("messages marked as deleted were not removed", "SYS/TEMP")
SOME_REMOVED = refused("some deleted messages not removed", "SYS/TEMP")         # RFC 1939 §6
NEEDS_UTF8 = refused("the message can be had after UTF8 only", "UTF8")      # RFC 6856 §5
SERVER_BUG = refused("internal error", "SYS/TEMP")
