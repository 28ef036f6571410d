"""onecopy standby status"""

import time

from store.errors import Problem, StoreError
from store.standby import applying, longfollowing, standbystate
from store.standby.standbystate import FOLLOWING
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_facts, print_json, size, when

LATE = 60.0                 # seconds behind, after which something is not as it should be


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("standby status", status, "say how far a standby is behind; exit status 1 if it does not follow, or "
                                            "is more than a minute behind")
    made.add_argument("--json", action="store_true")


def status(invocation: Invocation) -> int:
    """onecopy standby status"""
    root = invocation.config.root
    state = standbystate.read(root)
    if state is None:
        raise StoreError(Problem.NO_STORE, f"There is no standby in {root}; onecopy standby create makes one")
    seen, process = longfollowing.seen(root), longfollowing.process(root)
    behind = max(0.0, time.time() - float(seen["current"])) if "current" in seen else None
    trouble = str(seen.get("trouble", ""))
    if state.phase != FOLLOWING:
        trouble = trouble or f"it is {state.phase}: not all of the store is here"
    elif not process:
        trouble = "no process follows: onecopy standby follow"
    found = {"follows": state.host, "address": state.address, "phase": state.phase, "process": process,
             "behind": behind, "moment": state.moment, "waiting": applying.waiting(state), "trouble": trouble,
             "logs": {name: list(end) for name, end in state.ends.items()}}
    if invocation.arguments.json:
        print_json(found)
    else:
        print_facts({"follows": f"{state.host} ({state.address})", "process": process or "none",
                     "behind": "nobody knows" if behind is None else f"{behind:.1f} s",
                     "has the store of": when(state.moment), "logs to apply": size(applying.waiting(state)),
                     **({"trouble": trouble} if trouble else {})})
    return int(bool(trouble) or behind is None or behind > LATE)
