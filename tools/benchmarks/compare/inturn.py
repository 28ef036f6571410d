"""Each workload on one server after the other (A B A B ...), so that what changes on the machine meets all alike."""

import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import product
from statistics import median

from attrs import define, field

from tools.benchmarks.load import procfs
from tools.benchmarks.load.measuring import Context, Options, Sample, Skip
from tools.benchmarks.load.preparing import break_in
from tools.benchmarks.load.target import Target
from tools.benchmarks.load.workloads.catalogue import WORKLOADS

SHORTEST = 0.3              # seconds in which the machine's ticks of 10 ms say something
QUIET = 0.05                # CPU seconds in half a second that others may use on a quiet machine


@define
class Outcome:
    """All that was measured, what was answered wrongly by workload and server, and how busy others were: the share of
    a core, in percent, for each span that was long enough to tell."""

    samples: list[Sample] = field(factory=list)
    errors: dict[tuple[str, str], Counter[str]] = field(factory=dict)

    def others(self) -> list[float]:
        """What other programs took meanwhile."""
        return [100 * span.other_cpu / span.wall for sample in self.samples
                if (span := sample.span) is not None and span.wall > SHORTEST]


def measured(targets: Sequence[Target], names: Sequence[str], repeats: int, options: Options, patience: float
             ) -> Outcome:
    """Run all. `patience`: how many seconds to wait, before each, until other programs leave the machine alone.
    An interrupt ends it; what has been measured is still given."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    salt, found = f"{time.time_ns():x}", Outcome()
    try:
        for name, run, target in product(names, range(repeats), targets):
            _wait_until_quiet(patience)
            context = Context(target, options, name, run, f"{salt}/{run}")
            _run(context)
            _tell(context)
            found.samples += context.samples
            if context.errors:
                found.errors.setdefault((name, target.name), Counter()).update(context.errors)
    except KeyboardInterrupt:
        found.errors["all", "all"] = Counter(["it was interrupted"])
    return found


def _run(context: Context) -> None:
    """One workload once on one server. An exception is an error of that server's, and the run goes on."""
    try:
        break_in(context, [0])
        WORKLOADS[context.workload](context)
    except Skip as reason:
        _note(f"{context.workload} on {context.target.name}: skipped, {reason}")
    except Exception as error:
        context.errors[f"{type(error).__name__}: {error}"] += 1


def _wait_until_quiet(patience: float) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        before = procfs.machine_cpu_seconds()
        time.sleep(0.5)
        if procfs.machine_cpu_seconds() - before < QUIET:
            return


def _tell(context: Context) -> None:
    """Results as soon as they are there, on standard error."""
    results = ", ".join(f"{sample.metric} {sample.value:,.6g} {sample.unit}" for sample in context.samples)
    others = median(Outcome(context.samples).others() or [0.0])
    busy = f" (others: {others:.0f} % of a core)" if others > 25 else ""
    _note(f"{context.workload} on {context.target.name}: {results or 'nothing measured'}{busy}")
    for complaint, count in context.errors.most_common(5):
        _note(f"    wrong, {count} times: {complaint}")


def _note(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)
