"""What Sieve scripts did: added to in place by those who run them."""

from bisect import bisect_left
from typing import Any, Protocol

from attrs import define, field

from store.metrics.histograms import SECONDS, Histogram

STEPS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)        # of a run
#: What a script can have done with a message, or beside it; "not done": what it wanted and could not have.
ACTIONS = ("keep", "fileinto", "discard", "redirect", "reject", "vacation", "notify", "not done")
#: Why one did nothing but keep the message: it said so or was wrong (script), took too much (limit), cannot be compiled
#: (invalid), or an error of this server.
SCRIPT, LIMIT, INVALID, SERVER = FAILURES = ("script", "limit", "invalid", "server")


class Wanted(Protocol):
    """What a run has decided (`store.sieve.scriptoutcome.Outcome`)."""

    files: list[Any]
    redirects: list[Any]
    notices: list[Any]
    refused: Any
    answer: Any


@define(eq=False)
class ScriptCounters:
    """`seconds` and `steps` are of runs, of which one may be for several recipients; `actions` of recipients."""

    seconds: Histogram = field(factory=lambda: Histogram(SECONDS))
    steps: Histogram = field(factory=lambda: Histogram(STEPS))
    actions: dict[str, int] = field(factory=lambda: dict.fromkeys(ACTIONS, 0))
    failures: dict[str, int] = field(factory=lambda: dict.fromkeys(FAILURES, 0))

    def ran(self, seconds: float, steps: int) -> None:
        """A run has ended."""
        self.seconds.counts[bisect_left(SECONDS, seconds)] += 1
        self.seconds.total += seconds
        self.steps.counts[bisect_left(STEPS, steps)] += 1
        self.steps.total += steps

    def kept(self) -> None:
        """A recipient keeps the message as without a script."""
        self.actions["keep"] += 1

    def decided(self, wanted: Wanted, refused_wishes: int) -> None:
        """For a recipient. `refused_wishes`: how much of it could not be had."""
        actions = self.actions
        for filed in wanted.files:
            actions["fileinto" if filed.mailbox else "keep"] += 1
        if wanted.redirects:
            actions["redirect"] += len(wanted.redirects)
        elif not wanted.files and wanted.refused is None:
            actions["discard"] += 1
        if wanted.refused is not None:
            actions["reject"] += 1
        if wanted.answer is not None:
            actions["vacation"] += 1
        actions["notify"] += len(wanted.notices)
        actions["not done"] += refused_wishes

    def figures(self) -> dict[str, Any]:
        """As it is given to those who ask the process."""
        return {"seconds": self.seconds.figures(), "steps": self.steps.figures(), "actions": dict(self.actions),
                "failures": dict(self.failures)}
