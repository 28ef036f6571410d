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
import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from attrs import define

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
#: Whether JSON and a quoted field have a text as it is: printable ASCII, no double quote, no backslash.
is_plain = re.compile(r"[ !#-\[\]-~]*").fullmatch


class FieldLine(logging.LogRecord):
    """A line with its fields, which need not be looked for in its text. There are many of these: a record as `logging`
    makes it costs five times as much."""

    args = exc_info = exc_text = stack_info = None
    pathname = module = funcName = ""
    relativeCreated = 0.0

    def __init__(self, logger: logging.Logger, level: int, text: str, values: Mapping[str, str | int | float]) -> None:
        self.name, self.levelno, self.levelname = logger.name, level, logging.getLevelName(level)
        self.filename, self.lineno = "", 0
        self.msg, self.values = text, values
        self.created = now = time.time()
        self.msecs, self.process = now % 1 * 1000, os.getpid()


@define(eq=False)
class Routine:
    """Who writes the lines of which there are many. `take` is given the name of one of the level info, and the rest of
    it, which is plain: its text, or with `as_json` what follows `"text": "` in JSON. Where there is nobody (None), such
    a line goes the way of any other."""

    take: Callable[[str, str], None] | None = None
    as_json: bool = False


ROUTINE = Routine()


def befell(logger: logging.Logger, session: str, text: str) -> None:
    """What befell a session: `logger.info("%s: %s", session, text)`, in a fifth of the instructions."""
    if ROUTINE.take is None or not is_plain(text):
        logger.info("%s: %s", session, text)
    elif logger.isEnabledFor(logging.INFO):
        ROUTINE.take(logger.name, f'{session}: {text}", "session": "{session}"}}' if ROUTINE.as_json else
                     f"{session}: {text}")


def refused(kind: str, address: str, user: str, service: str, reason: str, times: int = 1, *, session: str = ""
            ) -> None:
    """Something was refused: a login, a PROXY header, an act of administration, or what is past a limit. `session`: the
    id of the connection."""
    _refused.warning("%s address=%s user=%s service=%s times=%d reason=%s%s", kind, plain(address), quoted(user),
                     service, times, quoted(reason), f" session={session}" if session else "")


def ended(address: str, user: str, service: str, seconds: int, received: int, sent: int, figures: Mapping[str, int],
          reason: str, *, session: str, level: int = logging.INFO, app_password: str = "") -> None:
    """A session is over; `figures` are those of the form above, in its order. `app_password`: the name of the one by
    which it began."""
    if not _session.isEnabledFor(level):
        return
    by, told = plain(address), f"{user}{reason}{app_password}"
    if len(told) > LONGEST:
        user, reason, app_password = bounded(user), bounded(reason), bounded(app_password)
        told = f"{user}{reason}{app_password}"
    as_text, as_json = _figures(tuple(figures), tuple(figures.values()))
    took, came, went = str(seconds), str(received), str(sent)
    if ROUTINE.take is not None and level == logging.INFO and is_plain(told):
        if ROUTINE.as_json:
            of, of_json = (f' app_password=\\"{app_password}\\"', f', "app_password": "{app_password}"'
                           ) if app_password else ("", "")
            ROUTINE.take("session", f'address={by} user=\\"{user}\\" service={service} seconds={took} received={came} '
                         f'sent={went} {as_text} reason=\\"{reason}\\" session={session}{of}", "address": "{by}", '
                         f'"user": "{user}", "service": "{service}", "seconds": {took}, "received": {came}, '
                         f'"sent": {went}, {as_json}, "reason": "{reason}", '
                        f'"session": "{session}"{of_json}}}')
        else:
            of = f' app_password="{app_password}"' if app_password else ""
            ROUTINE.take("session", f'address={by} user="{user}" service={service} seconds={took} received={came} '
                         f'sent={went} {as_text} reason="{reason}" session={session}{of}')
        return
    values: dict[str, str | int | float] = {"address": by, "user": user, "service": service, "seconds": seconds,
                                            "received": received, "sent": sent, **figures, "reason": reason,
                                            "session": session}
    of = ""
    if app_password:
        of, values["app_password"] = f" app_password={quoted(app_password)}", app_password
    _session.handle(FieldLine(
        _session, level, f"address={by} user={quoted(user)} service={service} seconds={took} received={came} "
        f"sent={went} {as_text} reason={quoted(reason)} session={session}{of}", values))


@lru_cache(maxsize=1000)
def _figures(names: tuple[str, ...], numbers: tuple[int, ...]) -> tuple[str, str]:
    """As text and JSON have them: mostly there are few."""
    pairs = list(zip(names, numbers, strict=True))
    return (" ".join([f"{name}={number}" for name, number in pairs]),
            ", ".join([f'"{name}": {number}' for name, number in pairs]))


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
