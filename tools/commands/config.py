"""onecopy config show|diff|reload"""

import os
import signal
import time
from typing import Any

from store.partition import processes as process_registry
from tools.cli.controlclient import ask_all, require_server
from tools.cli.invocation import Invocation, Parsers
from tools.cli.options import ROOT, SECTIONS, Config, Option, given, option, table
from tools.cli.output import print_json, print_table
from tools.exits import Failure, did_you_mean, no_server
from tools.server.process.reloadable import is_reloaded

RELOAD_TIME = 30.0      # seconds that processes have to read everything again
LOOK = 0.05


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("config show", show, "print options, their values, and where these came from", settings=True)
    made.add_argument("names", nargs="*", metavar="OPTION", help="an option, such as imap.port, or a section, such as "
                      "imap; default: all")
    made.add_argument("--json", action="store_true")
    made = parser("config diff", diff, "print the options that differ from their defaults; exit status 1 if some do",
                  settings=True)
    made.add_argument("--running", action="store_true",
                      help="those that differ from what the running server goes by, and whether a reload is enough")
    made.add_argument("--json", action="store_true")
    made = parser("config reload", reload, "have the running server take over what has changed in its files, and say "
                                           "what needs a restart; exit status 1 if something could not be read")
    made.add_argument("--dry-run", action="store_true", help="only say what would be taken over")
    made.add_argument("--json", action="store_true")


def show(invocation: Invocation) -> int:
    """onecopy config show"""
    config, names = invocation.config, invocation.arguments.names
    options = _options(config)
    for name in names:
        if name not in options and name not in SECTIONS:
            raise Failure(f"{name}: there is no such option{did_you_mean(name, (*SECTIONS, *options))}")
    rows = [{"option": name, "value": options[name].show(value), "origin": config.origins[name]}
            for name, value in config.values.items()
            if not names or name in names or options[name].section in names]
    if invocation.arguments.json:
        print_json({row["option"]: {"value": row["value"], "origin": row["origin"]} for row in rows})
    else:
        print_table(rows, ("option", "value", "origin"))
    return 0


def _options(config: Config) -> dict[str, Option]:
    """All that there are, and those of sections with a name that are given."""
    return {name: found for name in config.values if (found := option(name)) is not None}


def diff(invocation: Invocation) -> int:
    """onecopy config diff"""
    config, options = invocation.config, _options(invocation.config)
    values = {name: options[name].show(value) for name, value in config.values.items()}
    if invocation.arguments.running:
        rows = _against(values, config.origins, _running(invocation))
    else:
        rows = [{"option": name, "default": options[name].show(options[name].default), "value": value,
                 "origin": config.origins[name]} for name, value in values.items()
                if value != options[name].show(options[name].default)]
    if invocation.arguments.json:
        print_json(rows)
    elif rows:
        print_table(rows, tuple(rows[0]))
    else:
        print("nothing differs")
    return 1 if rows else 0


def _against(values: dict[str, str], origins: Any, processes: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """What differs from what any process has."""
    rows = []
    for name, value in values.items():
        running = sorted({str(each["values"].get(name, "")) for each in processes.values()})
        if running != [value]:
            rows.append({"option": name, "running": " / ".join(running), "value": value, "origin": origins[name],
                         "needs": "reload" if is_reloaded(name) else "restart"})
    return rows


def _running(invocation: Invocation) -> dict[str, dict[str, Any]]:
    """What each process of the server goes by. Raises Failure."""
    root = invocation.config.root
    require_server(root)
    found = ask_all(root, "config")
    if not found:
        raise Failure("the server does not answer: is it starting?", 1)
    return found


def reload(invocation: Invocation) -> int:
    """onecopy config reload"""
    typed = [table()[name].flag for name in given(invocation.arguments) if name != ROOT.name]
    if typed:
        raise Failure(f"{typed[0]} reaches no server: it reads its own sources again; put it into the file (onecopy "
                      "config show says which)")
    before = _running(invocation)
    if invocation.arguments.dry_run:
        options = _options(invocation.config)
        rows = _against({name: options[name].show(value) for name, value in invocation.config.values.items()},
                        invocation.config.origins, before)
        return _report(invocation, [row["option"] for row in rows if row["needs"] == "reload"],
                       [row["option"] for row in rows if row["needs"] == "restart"], [], would=True)
    _signal(invocation)
    deadline = time.monotonic() + RELOAD_TIME
    while True:
        after = _running(invocation)
        late = [name for name, each in after.items() if name in before and each["rounds"] <= before[name]["rounds"]]
        if not late:
            break
        if time.monotonic() > deadline:
            raise Failure(f"not after {RELOAD_TIME:g} s: {', '.join(late)}", 1)
        time.sleep(LOOK)
    return _report(invocation, sorted({name for each in after.values() for name in each["applied"]}),
                   sorted({name for each in after.values() for name in each["waiting"]}),
                   sorted({each["problem"] for each in after.values() if each["problem"]}))


def _signal(invocation: Invocation) -> None:
    """Raises Failure."""
    found = process_registry.open_server(invocation.config.root / "run" / "server.pid")
    if found is None:
        raise no_server(invocation.config.root)
    pid, handle = found
    try:
        signal.pidfd_send_signal(handle, signal.SIGHUP)
    except ProcessLookupError:
        raise Failure("the server has just ended", 1) from None
    except PermissionError:
        raise Failure(f"the server, pid {pid}, is not yours to reload", 1) from None
    finally:
        os.close(handle)


def _report(invocation: Invocation, applied: list[str], waiting: list[str], problems: list[str], *, would: bool = False
            ) -> int:
    if invocation.arguments.json:
        print_json({"applied": applied, "needs_restart": waiting, "problems": problems, "dry_run": would})
    else:
        for name in applied:
            print(f"{'would be taken over' if would else 'taken over'}: {name}")
        for name in waiting:
            print(f"needs a restart: {name}")
        for problem in problems:
            print(f"could not be taken over, the old one holds: {problem}")
        if not (applied or waiting or problems):
            print("no option has changed" + ("" if would else "; certificates were read again"))
    return 1 if problems else 0
