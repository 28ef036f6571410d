"""The newest lines of a process's log, in memory: for `onecopy log show`, wherever the log itself goes (journald, a
file, standard error). Bounded in number and length; a process that ends takes them with it."""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

LINES = 1000
LETTERS = 2000              # of a line
MOST = 500                  # lines of one answer

_newest: "deque[tuple[float, int, str, str]]" = deque(maxlen=LINES)


def keep(record: logging.LogRecord, text: str) -> str:
    """Have it, and give it back."""
    _newest.append((record.created, record.levelno, record.name, text[:LETTERS]))
    return text


def tell(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The newest that are of that `level` or above and have that text, the oldest first; for the control server."""
    level, text, most = int(request["level"]), str(request["text"]).lower(), min(MOST, int(request["most"]))
    found: deque[dict[str, Any]] = deque(maxlen=most)
    for when, of, module, line in list(_newest):
        if of >= level and (not text or text in line.lower()):
            found.append({"time": when, "level": logging.getLevelName(of), "module": module, "line": line})
    return list(found)
