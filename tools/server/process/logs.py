"""One line for each event, on standard error or in a file."""

import errno
import logging
import logging.handlers
import sys
import time
from typing import cast

from twisted.logger import ILogObserver, STDLibLogObserver, globalLogBeginner

from tools.exits import Failure
from tools.serversettings import Log


class Line(logging.Formatter):
    """Time, process, level, module, text; line ends within the text, and those of a traceback, are written as \\n."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def format(self, record: logging.LogRecord) -> str:
        """One line, free of control characters."""
        text = super().format(record).replace("\n", "\\n")
        return text if text.isprintable() else "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def set_level(level: str) -> None:
    """Log what is of that level or above."""
    logging.getLogger().setLevel(level.upper())
    logging.getLogger("twisted").setLevel(max(logging.WARNING, logging.getLogger().level))


def configure(settings: Log) -> None:
    """Send all that is logged, by Twisted too, where the settings say. Raises Failure."""
    out: logging.Handler = logging.StreamHandler(sys.stderr)
    instead = ""
    if settings.file is not None:
        try:
            out = logging.handlers.WatchedFileHandler(settings.file)        # one that was moved away is made again
        except OSError as error:
            instead = f"{settings.file}: {error.strerror}"
            if error.errno != errno.EROFS:      # then mail can be read still
                raise Failure(f"cannot write the log: {instead}") from None
    out.setFormatter(Line())
    logging.basicConfig(handlers=[out], force=True)
    set_level(settings.level)
    if instead:
        logging.getLogger(__name__).error("the log goes to standard error: %s", instead)
    logging.raiseExceptions = False
    logging.logThreads = logging.logMultiprocessing = False     # these and the next cost more than all else, and
    logging._srcfile = None                                     # our lines do not show them
    globalLogBeginner.beginLoggingTo([cast(ILogObserver, STDLibLogObserver())], redirectStandardIO=False)
