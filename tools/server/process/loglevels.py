"""Levels of the log that are changed for a while in a running process: `onecopy log level`, `onecopy log levels`."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from store.net.linestates import Clock
from tools.server.process.logs import set_levels
from tools.serversettings import LEVELS, Log, levels_of_parts

EVERYTHING = "all"          # the part that stands for log.level
CONFIGURED = "configured"   # the level that ends a change
LONGEST = 86400             # seconds of a change
MOST = 100                  # changes at a time
_PART = re.compile(r"[a-z_]+(\.[a-z_]+){0,5}")


@define(eq=False)
class Levels:
    """Those of a process, by part; `settings`: what the configuration says."""

    settings: Log
    clock: Clock
    _changed: dict[str, tuple[str, float]] = field(factory=dict, init=False)        # and until when
    _timer: Any = field(default=None, init=False)

    def change(self, request: Mapping[str, Any]) -> bool:
        """Have another level for so long, or at once the configured one again. Whether the process has that part.
        Raises ValueError."""
        part, level, seconds = str(request["part"]), str(request["level"]), float(request["seconds"])
        if level not in (*LEVELS, CONFIGURED) or not 0 < seconds <= LONGEST or len(self._changed) >= MOST:
            raise ValueError(f"not a level for at most {LONGEST} s, or too many are changed")
        if not is_part(part) or part != EVERYTHING and part not in logging.root.manager.loggerDict:
            return False
        if level == CONFIGURED:
            self._changed.pop(part, None)
        else:
            self._changed[part] = level, self.clock.seconds() + seconds
        self._apply()
        return True

    def follow(self, settings: Log) -> None:
        """The configuration is another now; what is changed stays so."""
        self.settings = settings
        self._apply()

    def tell(self, _request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Each part that has a level of its own, what the configuration says of it, and the seconds that are left of a
        change."""
        now, levels = self.clock.seconds(), self._configured()
        return [{"part": part, "level": self._changed[part][0] if part in self._changed else levels[part],
                 "configured": levels.get(part),
                 "left": max(0.0, self._changed[part][1] - now) if part in self._changed else None}
                for part in sorted({**levels, **self._changed})]

    def _configured(self) -> dict[str, str]:
        return {EVERYTHING: self.settings.level} | levels_of_parts(self.settings.levels)

    def _apply(self) -> None:
        """Also when the time of a change is over."""
        now = self.clock.seconds()
        self._changed = {part: each for part, each in self._changed.items() if each[1] > now}
        levels = self._configured() | {part: level for part, (level, _) in self._changed.items()}
        set_levels(levels.pop(EVERYTHING), levels)
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self._changed:
            first = min(until for _, until in self._changed.values())
            self._timer = self.clock.callLater(first - now, self._apply)


def is_part(part: str) -> bool:
    """Whether a part of the log can be called that."""
    return _PART.fullmatch(part) is not None
