"""onecopy log level, log levels"""

from typing import Any

from store.values import duration
from tools.cli.controlclient import ask_all, require_server
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.output import print_json, print_table
from tools.commands.connections import span
from tools.exits import Failure
from tools.serversettings import LEVELS

CONFIGURED = "configured"       # as `tools/server/process/loglevels.py` has it
USUAL = 600.0                   # seconds


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("log level", level, "have the processes of the running server log more, or less, of a part for a "
                                      "while; a reload changes nothing of it, a restart ends it; exit status 1 if no "
                                      "server runs")
    made.add_argument("part", metavar="PART", help="by the name of a module, or of what is above it, as the lines of "
                                                   "the log have it: imap, store.delivery; all: everything that has no "
                                                   "level of its own")
    made.add_argument("level", choices=(*LEVELS, CONFIGURED), help="from which level on; configured: at once as the "
                                                                   "configuration has it again")
    made.add_argument("--for", dest="time", type=typed(duration), metavar="TIME", default=USUAL,
                      help="how long, at most a day (default: 10m)")
    made.add_argument("--json", action="store_true")
    made = parser("log levels", show, "list the parts of the log that have a level of their own in the running server, "
                                    "and how long changed ones keep it; exit status 1 if no server runs")
    made.add_argument("--json", action="store_true")


def level(invocation: Invocation) -> int:
    """onecopy log level"""
    arguments, root = invocation.arguments, invocation.config.root
    require_server(root)
    found = ask_all(root, "level", part=arguments.part, level=arguments.level, seconds=arguments.time)
    processes = sorted(name for name, has in found.items() if has)
    if found and not processes:
        raise Failure(f"no process logs anything by the name {arguments.part}")
    if arguments.json:
        print_json({"part": arguments.part, "level": arguments.level, "processes": processes})
    else:
        time = "" if arguments.level == CONFIGURED else f" for {span(arguments.time)}"
        print(f"{arguments.part}: {arguments.level}{time} in {', '.join(processes)}")
    return 0 if processes else 1


def show(invocation: Invocation) -> int:
    """onecopy log levels"""
    require_server(invocation.config.root)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for process, levels in ask_all(invocation.config.root, "levels").items():
        for each in levels:
            left = None if each["left"] is None else round(each["left"])
            row = rows.setdefault((each["part"], each["level"], left), {**each, "left": left, "processes": []})
            row["processes"].append(process)
    found = [rows[key] for key in sorted(rows, key=str)]
    if invocation.arguments.json:
        print_json(found)
    else:
        print_table([{**row, "left": None if row["left"] is None else span(row["left"]),
                      "processes": " ".join(row["processes"])} for row in found],
                    ("part", "level", "configured", "left", "processes"))
    return 0
