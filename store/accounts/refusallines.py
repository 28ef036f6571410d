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
from collections.abc import Mapping

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
    if _session.isEnabledFor(level):
        told = " ".join(f"{name}={number}" for name, number in figures.items())
        _session.log(level, "address=%s user=%s service=%s %s reason=%s session=%s%s", plain(address), quoted(user),
                     service, told, quoted(reason), session,
                     f" app_password={quoted(app_password)}" if app_password else "")


def by_app_password(name: str) -> str:
    """What a reason ends with, where an app password of that name was shown, which is right ("": none was)."""
    return f" (app password {name})" if name else ""


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
    if kept.isprintable() and '"' not in kept and "\\" not in kept:
        return f'"{kept}"'
    return '"' + "".join(map(_character, kept)) + '"'


def _character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
