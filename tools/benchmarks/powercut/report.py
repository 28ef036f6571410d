"""What came of all cuts, as a table or as JSON."""

import sys
from collections.abc import Sequence

from attrs import asdict

from tools.benchmarks.powercut.cuts import Outcome
from tools.cli.output import print_json, print_table


def tell(outcome: Outcome) -> None:
    """One cut, on standard error, as it has been judged."""
    wrong = [*outcome.lost, *outcome.found, *outcome.wrong]
    if outcome.start_failed:
        wrong.insert(0, f"the start failed: {outcome.start_failed}")
    later = ", finished in the background" if outcome.finished_later else ""
    by_hand = f", by hand: {outcome.by_hand}" if outcome.by_hand else ""
    lines = [f"{outcome.number} {outcome.workload} on {outcome.file_system}: {outcome.answers} answers, "
             f"{outcome.unflushed} sectors not flushed, on disk {outcome.left}, dropped {outcome.dropped}, "
             f"after {outcome.after} requests, {outcome.seconds:.1f} s{later}{by_hand}", *wrong]
    print("\n    ".join(lines), file=sys.stderr, flush=True)


def rows(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """By workload and file system, and their sums."""
    kinds = dict.fromkeys((outcome.workload, outcome.file_system) for outcome in outcomes)
    made = [_row(*kind, [each for each in outcomes if (each.workload, each.file_system) == kind]) for kind in kinds]
    return [*made, _row("all", "", outcomes)]


def _row(workload: str, file_system: str, outcomes: Sequence[Outcome]) -> dict[str, object]:
    return {"running": workload, "on": file_system, "cuts": len(outcomes),
            "answers": sum(each.answers for each in outcomes),
            "unflushed": sum(each.unflushed for each in outcomes), "dropped": sum(each.dropped for each in outcomes),
            "later": sum(each.finished_later for each in outcomes),
            "by_hand": sum(bool(each.by_hand) for each in outcomes),
            "lost": sum(bool(each.lost) for each in outcomes),
            "starts_failed": sum(bool(each.start_failed) for each in outcomes),
            "check": sum(bool(each.found) for each in outcomes),
            "other": sum(bool(each.wrong) for each in outcomes)}


def show(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    """The table; with JSON also each cut."""
    table = rows(outcomes)
    if as_json:
        print_json({"rows": table, "cuts": [asdict(outcome) for outcome in outcomes]})
    else:
        print_table(table, tuple(table[0]))
