"""The log lines by which other programs know who was refused, and how sessions ended. Their form is fixed: a test holds
it, docs/logging.md says it, and the filter for fail2ban in docs/deploy reads it.

    refused: KIND address=A user="U" service=S times=N reason="R" session=ID
    session: address=A user="U" service=S seconds=N received=N sent=N FIGURES reason="R" session=ID app_password="N"

What is refused before there is a session has no `session`; `app_password` has the name of the one by which the user has
logged in, and is missing for any other password. FIGURES are those of the service: read, deleted, expunged
and removed of a user's mail; messages of a relay; requests of HTTP.

The address comes first, and is written by us. What a client has said stands in double quotes: there a backslash stands
before a double quote and a backslash, and what cannot be printed is written as \\uXXXX, so no name can end the
quotes, the line, or look like another one.
"""

import ipaddress
import logging
import os
import time
from collections.abc import Mapping
from functools import lru_cache

# Kinds of what is refused.
LOGIN = "login"             # what was shown is wrong, or does not do for what is wanted
INVALID = "invalid"         # nothing to be looked at: no such mechanism, no message of it, a password in the clear
CANCELLED = "cancelled"     # the client has given it up
REPEATED = "repeated"       # the same wrong password of the same user, again: no guess
SLOWED = "slowed"           # too many logins have failed before: nobody has looked at this one
UNAVAILABLE = "unavailable" # it is not the client's fault
PROXY = "proxy"             # a PROXY header
RIGHT = "right"             # an act of administration, to who may not do it
ADDRESS = "address"         # a connection from where none may come
LIMIT = "limit"             # a connection past a limit
LONGEST = 200               # characters of a value

_refused = logging.getLogger("refused")
_session = logging.getLogger("session")


class FieldLine(logging.LogRecord):
    """A line with its fields. There are many of these: a record as `logging` makes it costs five times as much, and to
    find the fields in the text costs more than all else. `json`: the fields as JSON has them, where the text is
    printable ASCII and no field has a double quote or a backslash (`is_plain`); else they are `values`."""

    args = exc_info = exc_text = stack_info = None
    pathname = module = funcName = ""
    relativeCreated = 0.0

    def __init__(self, logger: logging.Logger, level: int, text: str, json: str,
                 values: Mapping[str, str | int | float]) -> None:
        self.name, self.levelno, self.levelname = logger.name, level, logging.getLevelName(level)
        self.filename, self.lineno = "", 0
        self.msg, self.json, self.values = text, json, values
        self.created = now = time.time()
        self.msecs, self.process = now % 1 * 1000, os.getpid()


def is_plain(text: str) -> bool:
    """Whether JSON and a quoted field have it as it is."""
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


def refused(kind: str, address: str, user: str, service: str, reason: str, times: int = 1, *, session: str = ""
            ) -> None:
    """Something was refused: a login, a PROXY header, an act of administration, or what is past a limit. `session`: the
    id of the connection."""
    _refused.warning("%s address=%s user=%s service=%s times=%d reason=%s%s", kind, plain(address), quoted(user),
                     service, times, quoted(reason), f" session={session}" if session else "")


def ended(address: str, user: str, service: str, figures: Mapping[str, int], reason: str, *, session: str,
          level: int = logging.INFO, app_password: str = "") -> None:
    """A session is over; `figures` are those of the form above, in its order. `app_password`: the name of the one by
    which it began."""
    if not _session.isEnabledFor(level):
        return
    by = plain(address)
    if max(len(user), len(reason), len(app_password)) > LONGEST:
        user, reason, app_password = bounded(user), bounded(reason), bounded(app_password)
    as_text, as_json = _forms(tuple(figures))
    numbers = tuple(figures.values())
    if is_plain(f"{user}{reason}{app_password}"):
        of, of_json = (f' app_password="{app_password}"', f', "app_password": "{app_password}"') if app_password else (
            "", "")
        text = (f'address={by} user="{user}" service={service} {as_text % numbers} reason="{reason}" '
                f"session={session}{of}")
        json = (f'"address": "{by}", "user": "{user}", "service": "{service}", {as_json % numbers}, '
                f'"reason": "{reason}", "session": "{session}"{of_json}')
        _session.handle(FieldLine(_session, level, text, json, {}))
        return
    values: dict[str, str | int | float] = {"address": by, "user": user, "service": service, **figures,
                                            "reason": reason, "session": session}
    of = ""
    if app_password:
        of, values["app_password"] = f" app_password={quoted(app_password)}", app_password
    _session.handle(FieldLine(
        _session, level, f"address={by} user={quoted(user)} service={service} {as_text % numbers} "
        f"reason={quoted(reason)} session={session}{of}", "", values))


@lru_cache(maxsize=100)
def _forms(names: tuple[str, ...]) -> tuple[str, str]:
    """Numbers of these names, as text and JSON have them."""
    return " ".join([f"{name}=%d" for name in names]), ", ".join([f'"{name}": %d' for name in names])


def by_app_password(name: str) -> str:
    """What a reason ends with, where an app password of that name was shown, which is right ("": none was)."""
    return f" (app password {name})" if name else ""


@lru_cache(maxsize=1000)
def plain(address: str) -> str:
    """An address as other programs write it: without a zone, and of IPv4 if it is one; "local" for a UNIX socket."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "local"
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def bounded(text: str) -> str:
    """As much of a text as a field has."""
    return text if len(text) <= LONGEST else text[:LONGEST - 1] + "…"


def quoted(text: str) -> str:
    """Any text as one word between double quotes."""
    kept = bounded(text)
    if kept.isprintable() and '"' not in kept and "\\" not in kept:       # other letters than ASCII's stay
        return f'"{kept}"'
    return '"' + "".join(map(_character, kept)) + '"'


def _character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
