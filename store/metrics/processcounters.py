"""The counters of a process.

In the way of mail they are added to in place, in three lines and without a call: a call of ours would cost more than
all of it. What costs most is to look at the clock, so that is done once for a command: it began when the octets came,
or when the one before was answered.

    timed = times[name]
    timed.counts[bisect_left(SECONDS, seconds)] += 1
    timed.total += seconds
"""

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from store.metrics.histograms import SECONDS, Histogram
from store.metrics.scriptcounters import ScriptCounters

TURN_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)   # of the event loop: 20 ms is its limit
WAITING = (1, 2, 4, 8, 16, 32, 64, 128)         # who share a flush


class Times(dict[Any, Histogram]):
    """How long things of different names took; a name is there from its first use on. The names are those of a table,
    never what a client has made up."""

    def __missing__(self, name: Any) -> Histogram:
        made = self[name] = Histogram(SECONDS)
        return made


@define
class Octets:
    """What a partition keeps: of how many message files, with how many octets, and how much it would be if each
    reference had a file of its own; `when` that was counted, as a Unix time."""

    files: int
    unique: int
    references: int
    referenced: int
    when: float


@define(eq=False)
class Counters:
    """All of them. One object belongs to an open store (`store.owned`); without a server nobody looks at it."""

    commands: dict[str, Times] = field(factory=dict)        # by server and command
    flushes: Times = field(factory=Times)                   # of the log, by partition: how long they took,
    sharing: dict[str, Histogram] = field(factory=dict)     # and how many waited for each
    turns: Histogram = field(factory=lambda: Histogram(TURN_SECONDS))       # of the event loop
    octets: dict[str, Octets] = field(factory=dict)         # by partition
    scripts: ScriptCounters = field(factory=ScriptCounters)

    @classmethod
    def of(cls, store: Any) -> "Counters":
        """Those of an open store, or of a snapshot that is read."""
        found: Counters = store.owned.get(cls, cls)
        return found

    def of_server(self, server: str) -> Times:
        """How long its commands take."""
        return self.commands.setdefault(server, Times())

    def of_partition(self, name: str) -> tuple[Histogram, Histogram]:
        """How long flushes of its log take, and how many share one."""
        return self.flushes[name], self.sharing.setdefault(name, Histogram(WAITING))

    def figures(self) -> Mapping[str, Any]:
        """As it is given to those who ask the process."""
        return {
            "commands": {server: {_text(name): each.figures() for name, each in list(times.items())}
                         for server, times in self.commands.items()},
            "flushes": {name: each.figures() for name, each in list(self.flushes.items())},
            "sharing": {name: each.figures() for name, each in list(self.sharing.items())},
            "turns": self.turns.figures(), "scripts": self.scripts.figures(),
            "octets": {name: {"files": each.files, "unique": each.unique, "references": each.references,
                              "referenced": each.referenced, "when": each.when}
                       for name, each in list(self.octets.items())}}


def _text(name: Any) -> str:
    return name.decode("ascii") if isinstance(name, bytes) else str(name)
