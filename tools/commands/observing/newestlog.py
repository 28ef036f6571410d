"""onecopy log show, log errors"""

import argparse
import logging
import time
from typing import Any

from store.values import duration
from tools.cli.controlclient import ask_all, require_server
from tools.cli.invocation import Invocation, Parsers, number, typed
from tools.cli.output import print_json, printable, when

LEVELS = ("debug", "info", "warning", "error")
SHOWN = 100
_KEPT = "each process keeps 1,000, and tells 500"


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("log show", show, "show the newest lines that the processes of the running server have logged, "
                                    "wherever the log goes; exit status 1 if no server runs")
    made.add_argument("--level", choices=LEVELS, default="debug", help="only lines of that level or above")
    _add_choice(made)
    made = parser("log errors", errors, "show the newest warnings and errors that the processes of the running server "
                                        "have logged; other lines displace none; exit status 1 if no server runs")
    made.add_argument("--since", type=typed(duration), metavar="TIME", help="only those so long ago at most: 30m, 1h, "
                                                                            "2d; default: all that are kept")
    made.add_argument("--level", choices=LEVELS[2:], default="warning", help="only lines of that level or above")
    _add_choice(made)


def _add_choice(made: argparse.ArgumentParser) -> None:
    made.add_argument("--most", type=typed(number), default=SHOWN, metavar="N", help=f"the newest N ({SHOWN}); {_KEPT}")
    made.add_argument("--match", metavar="TEXT", default="", help="only lines with that text, in letters of any case")
    made.add_argument("--process", metavar="NAME", help="only those of that process: keeper, imap-1")
    made.add_argument("--json", action="store_true")


def show(invocation: Invocation) -> int:
    """onecopy log show"""
    return _show(invocation)


def errors(invocation: Invocation) -> int:
    """onecopy log errors"""
    since = invocation.arguments.since
    return _show(invocation, since=0.0 if since is None else time.time() - since)


def _show(invocation: Invocation, **kept: float) -> int:
    arguments, root = invocation.arguments, invocation.config.root
    require_server(root)
    answers = ask_all(root, "log", level=logging.getLevelNamesMapping()[arguments.level.upper()],
                      text=arguments.match, most=arguments.most, **kept)
    rows: list[dict[str, Any]] = [{"process": name, **line} for name, lines in answers.items() for line in lines
                                  if arguments.process in (None, name)]
    rows.sort(key=lambda row: float(row["time"]))
    rows = rows[len(rows) - min(len(rows), arguments.most):]
    if arguments.json:
        print_json([{**row, "time": when(row["time"])} for row in rows])
    else:
        for row in rows:
            print(f"{row['process']}: {printable(row['line'])}")
    return 0
