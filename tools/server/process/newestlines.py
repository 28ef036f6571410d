"""The newest lines of a process's log, in memory: for `onecopy log show`, wherever the log itself goes (journald, a
file, standard error); and for `onecopy log errors` its newest warnings and errors, which no other lines displace.
Bounded in number and length; a process that ends takes them with it."""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

LINES = 1000
LETTERS = 2000              # of a line
MOST = 500                  # lines of one answer

#: When, of which level, from where, the line. What is of the level info and bounded may be appended without `keep`.
newest: "deque[tuple[float, int, str, str]]" = deque(maxlen=LINES)
_troubles: "deque[tuple[float, int, str, str]]" = deque(maxlen=LINES)


def keep(record: logging.LogRecord, text: str) -> str:
    """Have it, and give it back."""
    line = (record.created, record.levelno, record.name, text[:LETTERS])
    newest.append(line)
    if record.levelno >= logging.WARNING:
        _troubles.append(line)
    return text


def tell(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The newest that are of that `level` or above and have that text, the oldest first; for the control server. With
    `since`: of all warnings and errors that are kept those from that time on."""
    since = request.get("since")
    level, text, most = int(request["level"]), str(request["text"]).lower(), min(MOST, int(request["most"]))
    found: deque[dict[str, Any]] = deque(maxlen=most)
    for when, of, module, line in list(newest if since is None else _troubles):
        if of >= level and when >= (since or 0.0) and (not text or text in line.lower()):
            found.append({"time": when, "level": logging.getLevelName(of), "module": module, "line": line})
    return list(found)
