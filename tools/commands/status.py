"""onecopy status"""

import time
from pathlib import Path
from typing import Any

from attrs import asdict

from store.check import lastcheck
from store.operations import operationrecord
from store.operations.operationrecord import Operation
from store.partition import processes
from store.partition.marks import READ_ONLY, RESTORING, absent, is_down, is_half_made
from store.partitions import volumes
from store.readonly import readingcopy
from tools.cli.controlclient import ask_all, is_up
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, print_table, when
from tools.commands.connections import span
from tools.exits import Failure

READ = "only read: its volume takes no writes; see the log"
SHOWN = 20              # that were cut off and are ended; --json has all that are kept


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("status", show_status, "show whether the server runs, which partitions can be used, which commands "
                                         "are under way, and what became of those that were cut off; exit status 1 if "
                                         "something is not as it should be")
    made.add_argument("--json", action="store_true")


def show_status(invocation: Invocation) -> int:
    """onecopy status"""
    root = invocation.config.root
    if not root.is_dir():
        raise Failure(f"There is no store in {root}; `onecopy init` makes one")
    found = gather(root)
    if invocation.arguments.json:
        print_json(found)
    else:
        _print(found)
    return 1 if found["troubles"] else 0


def gather(root: Path) -> dict[str, Any]:
    """All that is shown. The store is not opened."""
    now, server = time.time(), processes.server(root / "run" / "server.pid") if is_up(root) else 0
    living, _ = processes.look(root / "run")
    running, cut = operationrecord.under_way(root)
    found: dict[str, Any] = {
        "server": {"runs": bool(server), "pid": server or None},
        "processes": [{"process": each.who, "pid": each.pid} for each in living],
        "partitions": [_partition(root, name) for name in _partitions(root)],
        "under_way": [_facts(each) for each in running],
        "cut_off": [_facts(each) for each in cut],
        "ended": [_facts(each) for each in operationrecord.ended(root)],
        "interrupted": _interrupted(root) if server else None,
        "last_check": lastcheck.read_with_findings(root),
        "receivers": [each for answer in ask_all(root, "outbox").values() for each in answer] if server else [],
    }
    return {**found, "troubles": troubles(root, found, now)}


def _partitions(root: Path) -> list[str]:
    folder = root / "partitions"
    there = folder.iterdir() if folder.is_dir() else ()
    return sorted(path.name for path in there if volumes.NAME.fullmatch(path.name))


def _partition(root: Path, name: str) -> dict[str, Any]:
    """Whether it can be used, and why not."""
    folder, used, copies = root / "partitions" / name, processes.partitions_in_use(root), readingcopy.some(root)
    if (host := absent(root).get(name)) is not None:
        state = f"only on {host}, until onecopy standby rejoin there has brought it"
    elif name in copies:
        state = READ if copies[name] is not None else "its volume takes no writes, and a copy has no room"
    elif not folder.is_dir():
        state = "its volume is not there"
    elif (folder / volumes.REBUILD).is_dir():
        state = "being rebuilt"
    elif not volumes.is_whole(folder):
        state = "its databases are lost"
    elif used is not None and name not in used:
        state = "not in use"
    else:
        state = "available"
    return {"partition": name, "path": str(folder.resolve()), "state": state}


def _facts(operation: Operation) -> dict[str, Any]:
    return {**asdict(operation), "operation": str(operation)}


def _interrupted(root: Path) -> int | None:
    """How many changes of single mailboxes the keeper has still to finish (`mboxlist/pending.py`)."""
    counted = [each["interrupted"] for each in ask_all(root, "stats").values() if "interrupted" in each]
    return sum(counted) if counted else None


def troubles(root: Path, found: dict[str, Any], now: float) -> list[str]:
    """What is not as it should be, a line for each."""
    said = []
    if (root / READ_ONLY).exists():
        said.append(f"nothing can be written to the store: this is {root}, a copy for reading; see the log")
    if (root / RESTORING).exists():
        said.append("a restore was cut off: the start of the server finishes it, or onecopy snapshot restore")
    if is_half_made(root):
        said.append("all databases are being rebuilt, or that was cut off: then the start of the server finishes it, "
                    "or onecopy reconstruct --all")
    elif is_down(root) and any(path.is_file() for path in (root / "partitions").rglob("*")):     # it is not new
        said.append("there is no list of mailboxes: the start of the server rebuilds it")
    said += [f"partition {each['partition']} {'is' if each['state'] == READ else 'cannot be used:'} {each['state']}"
             for each in found["partitions"] if each["state"] != "available"]
    for each in found["receivers"]:
        if each["state"] == "down":
            said.append(f"{each['receiver']} has got no {each['gets']} for {span(now - each['down_since'])}, "
                        f"{each['waiting']} wait for it: {each['said']}")
        if each["full"]:
            said.append(f"{each['receiver']} gets no new {each['gets']} until half of those have left that wait for it")
    for each in found["cut_off"]:
        why = f"cannot be finished yet: {each['problem']}" if each["problem"] else (
            "is being finished" if found["server"]["runs"] else "the start of the server finishes or undoes it")
        said.append(f"{each['operation']} was cut off {span(now - each['began'])} ago: {why}")
    return said


def _print(found: dict[str, Any]) -> None:
    server = found["server"]
    print(f"the server runs, pid {server['pid']}" if server["runs"] else "no server runs")
    if found["processes"]:
        print_table(found["processes"], ("process", "pid"))
    print()
    print_table(found["partitions"], ("partition", "state", "path"))
    for title, rows in (("under way", found["under_way"]), ("cut off", found["cut_off"])):
        if rows:
            print(f"\n{title}:")
            print_table([{"began": when(each["began"]), "by": "the server, again" if each["again"] else each["pid"],
                          "operation": each["operation"]} for each in rows], ("began", "by", "operation"))
    if found["ended"]:
        print("\ncut off, and what was done about it:")
        print_table([{"ended": when(each["ended"]), "operation": each["operation"], "outcome": each["outcome"]}
                     for each in found["ended"][:SHOWN]], ("ended", "operation", "outcome"))
    if (last := found["last_check"])["findings"]:
        print(f"\nthe last check, at {when(last['time'])}, found {last['findings']}; the first:")
        print_table(last["first"][:SHOWN], ("where", "what", "repair"))
    if found["interrupted"]:
        print(f"\n{found['interrupted']} changes of mailboxes are not finished yet")
    for line in found["troubles"]:
        print(f"\n{line}")
