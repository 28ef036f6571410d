"""What came of all cuts, as a table or as JSON; on record too, and in docs/durability.md."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import asdict

from mboxlist import privatefiles
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


# The page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "durability.md"
BEGIN, END = "<!-- begin power cuts -->", "<!-- end power cuts -->"
HEADS = {"running": "running", "on": "on", "cuts": "cuts", "answers": "answers", "unflushed": "sectors not flushed",
         "dropped": "of these dropped", "later": "finished in the background", "by_hand": "repeated by hand",
         "lost": "lost", "starts_failed": "starts that failed", "check": "findings of check", "other": "else wrong"}


def commit() -> str:
    """The commit of this program, with a + where files differ from it. Raises OSError, CalledProcessError."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=PAGE.parent, capture_output=True, text=True,
                              check=True).stdout.strip()

    return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", "--", "*.py") else "")


def note(outcome: Outcome, seed: int, code: str, record: Path) -> None:
    """Add a cut to the record, a line each, as soon as it has been judged. Raises OSError."""
    with privatefiles.open_file(record, "ab") as file:
        file.write(json.dumps({"commit": code, "seed": seed, **asdict(outcome)}).encode() + b"\n")


def put_in(page: Path, record: Path, code: str) -> None:
    """Write the table of all cuts that are on record of that commit, each once, in its place in the page, between
    the two comments. Raises OSError."""
    of_it = {(cut["seed"], cut["number"]): cut for cut in map(json.loads, privatefiles.read(record).splitlines())
             if cut.pop("commit") == code}
    seeds = sorted({cut.pop("seed") for cut in of_it.values()})
    outcomes = [Outcome(**cut) for cut in of_it.values()]
    outcomes.sort(key=lambda each: (each.workload, each.file_system))
    lines = [f"{len(outcomes)} cuts of commit {code}, seeds {', '.join(map(str, seeds))}:", "",
             "| " + " | ".join(HEADS.values()) + " |", "|" + "---|" * len(HEADS)]
    lines += ["| " + " | ".join(f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in HEADS)
              + " |" for row in rows(outcomes)]
    text = privatefiles.read_text(page)
    head, tail = text.partition(BEGIN)[0], text.rpartition(END)[2]
    privatefiles.write(page, "\n".join([head + BEGIN, "", *lines, "", END + tail]))
