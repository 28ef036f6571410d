"""onecopy standby status"""

import time
from pathlib import Path
from typing import Any

from store.errors import Problem, StoreError
from store.standby import applying, longfollowing, standbyprocess, standbystate, succession, switching
from store.standby.cascade import cascade
from store.standby.reading import readingcopies
from store.standby.source import instep
from store.standby.source.instep import Step
from store.standby.standbystate import FOLLOWING, host_of
from tools.cli.controlclient import is_up
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_facts, print_json, size, when
from tools.cli.storeaccess import is_store

WAIT = {Step.IN_STEP.value: "wait for this standby", Step.JOINING.value: "will wait for this standby at once",
        Step.AWAY.value: "do not wait for this standby yet"}
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
    if state is None and (served := instep.seen(root)):
        return _served(root, served, as_json=invocation.arguments.json)
    if state is None and is_store(root):
        raise StoreError(Problem.NO_STORE, f"{root} is no standby (onecopy standby create makes one), and its server "
                                           "has not told of any standby yet: exchange.standbys names them")
    if state is None:
        raise StoreError(Problem.NO_STORE, f"There is no standby in {root}; onecopy standby create makes one")
    seen, process = longfollowing.seen(root), standbyprocess.process(root)
    behind = longfollowing.behind(seen)
    trouble = str(seen.get("trouble", ""))
    if state.phase != FOLLOWING:
        trouble = trouble or f"it is {state.phase}: not all of the store is here"
    elif not process:
        trouble = "no process follows: onecopy standby follow"
    reading = readingcopies.newest(root)
    serves = standbyprocess.process(root, standbyprocess.READING)
    through = host_of(state.address) if state.above else ""
    further = cascade.seen(root)
    found = {"follows": state.host, "through": through, "address": state.address, "phase": state.phase,
             "process": process, "behind": behind, "moment": state.moment, "waiting": applying.waiting(state),
             "trouble": trouble, "step": str(seen.get("step", "")),
             "reading": None if reading is None else {
                 "root": str(reading[0]), "moment": reading[1].moment, "process": serves},
             "further": further.get("standbys", {}) if process else {},
             "partitions": sorted(switching.partitions_of(state)), "unprotected": state.others,
             "logs": {name: list(end) for name, end in state.ends.items()}}
    if invocation.arguments.json:
        print_json(found)
    else:
        print_facts({"follows": f"{state.host} ({state.address})" if not through else
                     f"{state.host}, through {through} ({state.address})", "process": process or "none",
                     "behind": "nobody knows" if behind is None else f"{behind:.1f} s",
                     **({"answers there": WAIT[seen["step"]]} if process and seen.get("step") in WAIT else {}),
                     "newest change": when(state.moment) if state.moment else "not all is here yet",
                     "logs to apply": size(applying.waiting(state)),
                     **({} if reading is None else {"is read as of": f"{when(reading[1].moment)}, " + (
                         f"served by {serves}" if serves else "not served")}),
                     "protects": ", ".join(found["partitions"]) if state.others else "all partitions",
                     **({"trouble": trouble} if trouble else {})})
        for name in sorted(state.others):
            print(standbystate.unprotected(name, state.others[name]))
        for host, late in sorted(further.get("standbys", {}).items()) if process else ():
            print_facts({"standby": host, "is": Step.FOLLOWS.value, "behind": f"{late:.1f} s"})
    return int(bool(trouble) or behind is None or behind > LATE)


def _served(root: Path, found: dict[str, Any], *, as_json: bool) -> int:
    """At the one that serves: each of its standbys. 1 when one does not follow, or is not in step and should be, or
    another machine was promoted in its place or besides, or no server runs."""
    known, runs = succession.read(root), is_up(root)
    wrong = bool(known.contender or known.successor or not runs)
    if as_json:
        print_json({**found, "contender": known.contender, "successor": known.successor, "runs": runs})
    elif known.successor:
        print(succession.superseded(known.successor, known.contender))
    elif known.contender:
        print(succession.contested("this machine", known.contender))
    age = time.time() - found["time"]
    for host, each in sorted(found["standbys"].items()):
        wrong = wrong or each["step"] not in (Step.FOLLOWS.value, Step.IN_STEP.value)
        if not as_json:
            behind = f"{max(0.0, found['time'] - each['current']):.1f} s" if each["current"] else "nobody knows"
            through = f", through {each['through']}" if each.get("through") else ""
            print_facts({"standby": host, "is": f"{each['step']}{through}",
                         "behind": behind if through else f"{behind}, {size(each['behind'])} of logs",
                         "last round": f"{each['trip'] * 1000:.1f} ms",
                         "answers": _answers(each, refuse=found["refuse"])})
            for name in each.get("unprotected", ()):
                print(f"NOT PROTECTED by {host}: partition {name}")
    if not as_json and (not runs or age > LATE):
        print(f"This was noted {age:.0f} s ago" + ("" if runs else ": the server does not run"))
    return int(wrong or age > LATE)


def _answers(each: dict[str, Any], *, refuse: bool) -> str:
    if not each["waited"]:
        return "do not wait for it"
    if each["step"] == Step.IN_STEP.value:
        return "wait for it"
    if refuse:
        return "there are none: what it has is not changed until it is in step"
    return "do not wait for it: it is away"
