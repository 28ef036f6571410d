"""One line for each event, on standard error or in a file: text, or a value of JSON with the same fields."""

import errno
import json
import logging
import logging.handlers
import math
import os
import re
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TextIO, cast

from twisted.logger import ILogObserver, STDLibLogObserver, globalLogBeginner

from store.accounts.refusallines import FieldLine, is_plain
from store.observing.loglines import LIMIT
from tools.exits import Failure
from tools.server.process.newestlines import keep
from tools.serversettings import Log, levels_of_parts

FIXED = ("refused", "session", "slow", "delivery")      # loggers whose lines have fields
KINDS = ("refused", "slow")                 # those that begin with what it is
OF_SESSIONS = ("imap.", "pop3.", "lmtp.", "store.net.", "tools.http.", "tools.front.")  # lines may begin with an id
_SESSION = re.compile(r"([0-9a-f]+-[0-9a-f]+): ")
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
_ESCAPED = re.compile(r'\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|(.))')
_SECONDS = re.compile(r"\d+\.\d{3}")
_to_json = json.JSONEncoder().encode
_parts: list[str] = []              # those that have a level of their own


class Record(logging.LogRecord):
    """A record with what our lines show, and no more. What `logging` finds out besides, about files and threads, costs
    twice as much as all else of a line."""

    exc_text = thread = threadName = processName = None
    module = funcName = ""
    relativeCreated = 0.0

    def __init__(self, name: str, level: int, pathname: str, lineno: int, msg: object, args: Any, exc_info: Any,
                 _func: str | None = None, sinfo: str | None = None, **_more: object) -> None:
        self.name, self.levelno, self.levelname = name, level, logging.getLevelName(level)
        self.msg = msg
        self.args = args[0] if args and len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
        self.exc_info, self.stack_info = exc_info, sinfo
        self.pathname, self.filename, self.lineno = pathname, "", lineno
        self.created = now = time.time()
        self.msecs, self.process = now % 1 * 1000, os.getpid()


class Line(logging.Formatter):
    """Time, process, level, module, text; line ends within the text, and those of a traceback, are written as \\n."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, free of control characters."""
        text = (f"{_second(int(record.created))} {record.process} {record.levelname} {record.name}: "
                f"{record.getMessage()}")
        if record.exc_info or record.stack_info:
            text += super().format(record).removeprefix(record.getMessage())
        if isinstance(record, FieldLine) and record.json or text.isprintable():
            return keep(record, text)
        return keep(record, "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text.replace("\n", "\\n")))


class JsonLine(logging.Formatter):
    """The fields of `Line` as a JSON object; of the lines named `refused`, `session`, `slow` and `delivery` also the
    fields within the text (docs/logging.md); of those that begin with the id of a session that id. It is ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        if isinstance(record, FieldLine) and record.json:
            return keep(record, _plain(record))
        text = record.getMessage()
        session = record.name.startswith(OF_SESSIONS) and str(record.msg).startswith("%s: ") and _SESSION.match(text)
        if not record.exc_info and record.name not in FIXED and is_plain(text):
            told = f', "session": "{session[1]}"' if session else ""
            return keep(record, f'{{"time": "{_second(int(record.created))}", "process": {record.process}, "level": '
                                f'"{record.levelname}", "module": "{record.name}", "text": "{text}"{told}}}')
        found: dict[str, object] = {
            "time": _second(int(record.created)), "process": record.process,
            "level": record.levelname, "module": record.name, "text": text}
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        if isinstance(record, FieldLine):
            found.update(record.values)
        elif record.name in FIXED:
            if record.name in KINDS:
                found["kind"] = text.partition(" ")[0]
            found.update((name, _value(value)) for name, value in _FIELD.findall(text) if name not in found)
        elif session:
            found["session"] = session[1]
        return keep(record, _to_json(found))


def _plain(record: FieldLine) -> str:
    """What the encoder would make of it, which looks at each character."""
    text = record.getMessage().replace('"', '\\"')
    return (f'{{"time": "{_second(int(record.created))}", "process": {record.process}, "level": "{record.levelname}", '
            f'"module": "{record.name}", "text": "{text}", {record.json}}}')


@lru_cache(maxsize=8)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _value(text: str) -> str | int | float:
    """A field of a line as its writer (`store/accounts/refusallines.py`) has had it."""
    if text.startswith('"'):
        return _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)) if found[1] or found[2] else found[3],
                            text[1:-1])
    return int(text) if text.isdecimal() else float(text) if _SECONDS.fullmatch(text) else text


class Output(logging.StreamHandler[TextIO]):
    """Writes lines, each at once; a dozen calls fewer than `logging` makes for each."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Write its line."""
        try:
            line, lock = f"{self.format(record)}\n", self.lock
            assert lock is not None
            with lock:
                self.reopen()
                self.stream.write(line)
                self.stream.flush()
        except Exception:
            self.handleError(record)
        return True

    def reopen(self) -> None:
        """Before each line."""


class FileOutput(Output, logging.handlers.WatchedFileHandler):
    """To a file: one that was moved away is made again."""

    def reopen(self) -> None:
        """See `Output`."""
        self.reopenIfNeeded()
        if self.stream is None:             # it could not be made last time
            self.stream = self._open()


def follow(settings: Log) -> None:
    """Log what is of the level of its part or above, in that form, from now on."""
    root = logging.getLogger()
    set_levels(settings.level, levels_of_parts(settings.levels))
    LIMIT.follow(settings.slow or math.inf, LIMIT.spans)
    for handler in root.handlers:
        handler.setFormatter(JsonLine() if settings.format == "json" else Line())


def set_levels(level: str, parts: Mapping[str, str]) -> None:
    """Log what is of that level or above, of parts that have a level of their own what is of that."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for name in _parts:
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger("twisted").setLevel(max(logging.WARNING, root.level))
    _parts[:] = parts
    for name, own in parts.items():
        logging.getLogger(name).setLevel(own.upper())


def configure(settings: Log) -> None:
    """Send all that is logged, by Twisted too, where the settings say. Raises Failure."""
    out: logging.Handler = Output(sys.stderr)
    instead = ""
    if settings.file is not None:
        try:
            out = FileOutput(settings.file)
        except OSError as error:
            instead = f"{settings.file}: {error.strerror}"
            if error.errno != errno.EROFS:      # then mail can be read still
                raise Failure(f"cannot write the log: {instead}") from None
    logging.basicConfig(handlers=[out], force=True)
    follow(settings)
    if instead:
        logging.getLogger(__name__).error("the log goes to standard error: %s", instead)
    logging.raiseExceptions = False
    logging.setLogRecordFactory(Record)
    logging.logThreads = logging.logMultiprocessing = False     # these and the next cost more than all else, and
    logging._srcfile = None                                     # our lines do not show them
    globalLogBeginner.beginLoggingTo([cast(ILogObserver, STDLibLogObserver())], redirectStandardIO=False)
