"""What was measured, a line for each figure: every server's median, and how onecopy stands to the better peer."""

from collections.abc import Sequence
from statistics import median

from attrs import frozen

from tools.benchmarks.compare.variants import VARIANTS, Comparison
from tools.benchmarks.load.measuring import Sample


@frozen
class Line:
    """One figure. `values` and `cpu` (microseconds of the server for one operation) are by the server's name; one that
    does not have it is missing in them."""

    workload: str
    name: str
    unit: str
    more_is_better: bool
    values: dict[str, float]
    cpu: dict[str, float]

    def ratio(self, comparison: Comparison) -> float | None:
        """How many times as good as the better peer onecopy is; more than 1 is better, whatever the unit. None where
        there is nothing to divide."""
        ours = self.values.get(comparison.ours)
        theirs = [self.values[peer] for peer in comparison.peers if peer in self.values]
        if not ours or not theirs:
            return None
        best = max(theirs) if self.more_is_better else min(theirs)
        if best <= 0 or ours <= 0:
            return None
        return ours / best if self.more_is_better else best / ours


def lines(samples: Sequence[Sample]) -> list[Line]:
    """In the order in which they were first measured."""
    keys = dict.fromkeys((each.workload, each.metric, each.unit, each.more_is_better) for each in samples)
    return [Line(*key, *_medians([each for each in samples if each.metric == key[1]])) for key in keys]


def _medians(samples: Sequence[Sample]) -> tuple[dict[str, float], dict[str, float]]:
    values, cpu = {}, {}
    for server in dict.fromkeys(each.target for each in samples):
        own = [each for each in samples if each.target == server]
        values[server] = median(each.value for each in own)
        if used := [one for each in own if (one := each.cpu_per_operation()) is not None]:
            cpu[server] = median(used)
    return values, cpu


def number(value: float | None) -> str:
    """In at least three digits, or a dash."""
    if value is None or value != value:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(found: Sequence[Line], comparison: Comparison) -> list[str]:
    """The lines of a comparison in Markdown: each server's figure, its CPU in brackets, and the ratio."""
    servers = (*comparison.peers, comparison.ours)
    heads = ["line", "unit", "better", *(VARIANTS[server].title for server in servers), "to the better"]
    rows = [[line.name, line.unit, "more" if line.more_is_better else "less",
             *(_cell(line, server) for server in servers), _shown(line.ratio(comparison))]
            for line in found if comparison.ours in line.values]
    return [_row(heads), _row(["---"] * 3 + ["---:"] * (len(servers) + 1)), *map(_row, rows)]


def _cell(line: Line, server: str) -> str:
    cpu = f" ({number(line.cpu[server])})" if server in line.cpu and line.unit != "us CPU" else ""
    return number(line.values.get(server)) + cpu


def _shown(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"**{ratio:.2f}**" if ratio >= 1 else f"{ratio:.2f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
