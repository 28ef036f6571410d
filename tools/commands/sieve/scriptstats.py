"""onecopy sieve stats"""

from collections import Counter
from typing import Any

from tools.cli.controlclient import ask_all, require_server
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_facts, print_json


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("sieve stats", stats, "show what scripts have done since the server was started, and how long it "
                                        "took; exit status 1 if no server runs")
    made.add_argument("--json", action="store_true")


def stats(invocation: Invocation) -> int:
    """onecopy sieve stats"""
    invocation.act_as_owner()
    require_server(invocation.config.root)
    found = summed([each["scripts"] for each in ask_all(invocation.config.root, "stats").values()])
    if invocation.arguments.json:
        print_json(found)
        return 0
    shown = {**found, "mean_seconds": f"{found['mean_seconds']:.6f}", "mean_steps": f"{found['mean_steps']:.1f}"}
    for group in ("actions", "failures"):
        shown[group] = [f"{name} {number}" for name, number in found[group].items() if number]
    print_facts(shown)
    return 0


def summed(processes: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all processes together. Means are of a run, 0 without any."""
    actions, failures = Counter[str](), Counter[str]()
    for each in processes:
        actions.update(each["actions"])
        failures.update(each["failures"])
    runs = sum(sum(each["seconds"]["counts"]) for each in processes)
    seconds, steps = (sum(each[name]["sum"] for each in processes) for name in ("seconds", "steps"))
    return {"runs": runs, "mean_seconds": seconds / runs if runs else 0.0, "mean_steps": steps / runs if runs else 0.0,
            "actions": dict(actions), "failures": dict(failures)}
