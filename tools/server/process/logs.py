"""One line for each event, on standard error or in a file: text, or a value of JSON with the same fields.

Of logins, ends of sessions and deliveries there are many. In a process that serves clients they are not made by
`logging`, and are written together, GATHER seconds after the first of them, or before the next line of any other kind:
so all lines stand in their order, and what an error comes with is there at once (`gathering`).
"""

import contextlib
import errno
import json
import logging
import logging.handlers
import math
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from threading import get_ident
from typing import Any, TextIO, cast

from twisted.logger import ILogObserver, STDLibLogObserver, globalLogBeginner

from store.accounts.refusallines import ROUTINE, FieldLine, is_plain
from store.observing.loglines import LIMIT
from tools.exits import Failure
from tools.server.process import newestlines
from tools.server.process.newestlines import keep
from tools.serversettings import Log, levels_of_parts

FIXED = ("refused", "session", "slow", "delivery")      # loggers whose lines have fields
KINDS = ("refused", "slow")                 # those that begin with what it is
OF_SESSIONS = ("imap.", "pop3.", "lmtp.", "store.net.", "tools.http.", "tools.front.")  # lines may begin with an id
_SESSION = re.compile(r"([0-9a-f]+-[0-9a-f]+): ")
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
_ESCAPED = re.compile(r'\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|(.))')
GATHER = 0.1                # seconds
MOST_GATHERED = 500         # lines
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
        if text.isprintable():
            return keep(record, text)
        return keep(record, "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text.replace("\n", "\\n")))

    @staticmethod
    def beginning(second: int, name: str) -> str:
        """How a line begins that `take` is given."""
        return f"{_second(second)} {os.getpid()} INFO {name}: "


class JsonLine(logging.Formatter):
    """The fields of `Line` as a JSON object; of the lines named `refused`, `session`, `slow` and `delivery` also the
    fields within the text (docs/logging.md); of those that begin with the id of a session that id. It is ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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

    @staticmethod
    def beginning(second: int, name: str) -> str:
        """How a line begins that `take` is given."""
        return (f'{{"time": "{_second(second)}", "process": {os.getpid()}, "level": "INFO", "module": "{name}", '
                '"text": "')


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
    """Writes lines, each at once, but for those that are gathered; a dozen calls fewer than `logging` makes for
    each."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._gathered: list[str] = []
        self._beginnings: dict[str, str] = {}                   # of lines of each name,
        self._second = 0                                        # in this second
        self._later: Callable[[], object] = self.write_gathered     # has that called after a while,
        self._due = False                                       # and it has been asked

    def handle(self, record: logging.LogRecord) -> bool:
        """Write its line."""
        try:
            self._write(self.format(record))
        except Exception:
            self.handleError(record)
        return True

    def setFormatter(self, form: logging.Formatter | None) -> None:
        """From now on lines have that form."""
        super().setFormatter(form)
        self._beginnings = {}
        ROUTINE.as_json = isinstance(form, JsonLine)

    def take(self, name: str, rest: str) -> None:
        """See `Routine`."""
        now = time.time()
        if int(now) != self._second:
            self._second, self._beginnings = int(now), {}
        line = (self._beginnings.get(name) or self._beginning(name)) + rest
        newestlines.newest.append((now, logging.INFO, name, line))
        self._gathered.append(line)
        if not self._due:
            self._due = True
            self._later()
        elif len(self._gathered) >= MOST_GATHERED:
            self.write_gathered()

    def _beginning(self, name: str) -> str:
        form: Line | JsonLine = self.formatter              # type: ignore[assignment]
        found = self._beginnings[name] = form.beginning(self._second, name)
        return found

    def gather(self, later: Callable[[], object] | None) -> None:
        """From now on `take` what is written when `later` has had `write_gathered` called. None: no more."""
        if later is not None:
            self._later, self._beginnings = later, {}
        ROUTINE.take = self.take if later is not None else None
        self.write_gathered()

    def write_gathered(self) -> None:
        """Write what there is. What fails is lost, as with any line."""
        self._due = False                   # before they are taken: what comes from now on asks again
        if self._gathered:
            with contextlib.suppress(Exception):
                self._write()

    def _write(self, line: str = "") -> None:
        """That after what has been gathered, if there is one. Raises OSError."""
        assert self.lock is not None
        with self.lock:
            number = len(self._gathered)    # other threads may add to them meanwhile
            gathered = "\n".join((*self._gathered[:number], ""))
            del self._gathered[:number]
            self.reopen()
            for some in (*_together(gathered), *([f"{line}\n"] if line else ())):
                self.stream.write(some)
                self.stream.flush()

    def reopen(self) -> None:
        """Before each line."""


def _together(lines: str) -> Iterator[str]:
    """These lines of ASCII, as many at a time as a pipe takes from one process without those of another in between
    (pipe(7)). Nor is more kept than Python's buffer holds, so that no line is torn where a disk is full for a while."""
    begin = 0
    while begin < len(lines):
        end = lines.rfind("\n", begin, begin + select.PIPE_BUF) + 1 or lines.index("\n", begin) + 1
        yield lines[begin:end]
        begin = end


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


@contextlib.contextmanager
def gathering(reactor: Any) -> Iterator[None]:
    """Meanwhile the lines of which there are many are gathered; nothing is left of them afterwards. The reactor is run
    by this thread."""
    output, loop = next((each for each in logging.getLogger().handlers if isinstance(each, Output)), None), get_ident()
    if output is None:
        yield
        return
    write = output.write_gathered

    def later() -> None:
        if get_ident() == loop:
            reactor.callLater(GATHER, write)
        else:
            reactor.callFromThread(reactor.callLater, GATHER, write)

    output.gather(later)
    try:
        yield
    finally:
        output.gather(None)


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
