"""What the log of a server has, of lines that are gathered and written together, too."""

import contextlib
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.task import Clock

from tools.server.process import logs
from tools.serversettings import Log


class Gathered(list[dict[str, object]]):
    """What a server's log has, of lines that are gathered, too; `text` is that as it is written."""

    def __init__(self, form: str, clock: Clock) -> None:
        super().__init__()
        self.clock, self._out = clock, io.StringIO()
        self.output = logs.Output(self._out)
        logging.getLogger().handlers[:] = [self.output]
        logs.follow(Log(format=form))

    @property
    def text(self) -> str:
        return self._out.getvalue()

    def __getitem__(self, place: Any) -> Any:
        return self.lines[place]

    @property
    def lines(self) -> list[dict[str, object]]:
        """Once all has been written."""
        self.clock.advance(logs.GATHER)
        return [json.loads(line) for line in self.text.splitlines()]


@contextlib.contextmanager
def gathering() -> Iterator[Callable[[str], Gathered]]:
    """What makes a log of a form: "text" or "json". The root logger is as it was afterwards."""
    root, clock = logging.getLogger(), Clock()
    before, level = root.handlers[:], root.level
    with contextlib.ExitStack() as stack:
        def make(form: str) -> Gathered:
            made = Gathered(form, clock)
            stack.enter_context(logs.gathering(clock))
            return made

        yield make
    root.handlers[:] = []
    logs.follow(Log())
    root.handlers[:] = before
    root.setLevel(level)
