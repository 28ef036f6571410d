"""onecopy connections, onecopy logins"""

import argparse
import ipaddress
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from store.accounts.networks import LOCAL, Networks
from store.values import duration
from tools.cli.controlclient import ask_one, ask_pages, require_server
from tools.cli.invocation import Invocation, Parsers, number, typed
from tools.cli.output import print_json, print_table, when
from tools.exits import Failure
from tools.http.console.consolesessions import Sessions
from tools.http.settings import Settings as HttpSettings

CONSOLE = "console"             # who has logged in to it: no connection, and ended likewise
PROTOCOLS = ("imap", "pop3", "lmtp", "managesieve", "front", "http", "verification", CONSOLE)
IDS_AT_A_TIME = 100             # ids that are named in one request
COLUMNS = ("id", "protocol", "user", "address", "proxy", "tls", "client", "since", "logged_in", "idle", "state",
           "mailbox", "received", "sent", "process")
FAILURES = ("kind", "name", "failures", "next_waits", "last")      # columns of `onecopy logins`
OPTIONAL = ("proxy", "client")      # columns that are left out where nobody has anything in them


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("connections", connections, "list who is connected to the running server, or end connections; exit "
                                              "status 1 if no server runs")
    made.add_argument("ids", nargs="*", metavar="ID", help="only these connections; the ids are those of the log, too")
    made.add_argument("--user", metavar="USER", help="only those of that user")
    made.add_argument("--address", type=_networks, metavar="ADDRESS",
                      help="only those from that address or network (192.0.2.0/24), or through a proxy there")
    made.add_argument("--protocol", choices=PROTOCOLS, help="only those of that protocol")
    made.add_argument("--mailbox", metavar="NAME", help="only those that have that mailbox selected, by its full name "
                                                        "(user/alice/Work)")
    made.add_argument("--idle", type=typed(duration), metavar="TIME",
                      help="only those from which nothing has come for so long (30m)")
    made.add_argument("--most", type=typed(number), metavar="N", help="only the N that have been there longest")
    made.add_argument("--end", action="store_true",
                      help="end them: the client is told so (BYE, -ERR, 421); who is in the middle of a command is cut "
                           "off after 5 s; what was answered for is kept")
    made.add_argument("--all", action="store_true", help="with --end and without any filter: all of them")
    made.add_argument("--dry-run", action="store_true", help="with --end: only show which would be ended")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("logins", logins, "list the users, addresses and networks whose failed logins make the next ones "
                                    "wait, or forget them; exit status 1 if no server runs")
    made.add_argument("--user", metavar="USER", default="", help="only those of that user")
    made.add_argument("--address", type=address_or_local, metavar="ADDRESS", default="",
                      help="only those of that address, and of the network around it")
    made.add_argument("--clear", action="store_true", help="forget them: the next login waits for nothing")
    made.add_argument("--all", action="store_true", help="with --clear and without any filter: all of them")
    made.add_argument("--json", action="store_true")


def _networks(text: str) -> Networks:
    try:
        return Networks.parse([text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def connections(invocation: Invocation) -> int:
    """onecopy connections, onecopy logins"""
    arguments, root = invocation.arguments, invocation.config.root
    filtered = any((arguments.ids, arguments.user, arguments.address, arguments.protocol, arguments.mailbox,
                    arguments.idle is not None))
    if arguments.end and not (filtered or arguments.all):
        raise Failure("which connections? Name ids or a filter, or give --all")
    if arguments.dry_run and not arguments.end:
        raise Failure("--dry-run is for --end")
    require_server(root)
    domain = str(invocation.config.values["store.default_domain"])
    rows = [row for row in (*ask_pages(root, "connections"), *_of_console(invocation)) if _matches(
        row, arguments, domain)]
    rows.sort(key=lambda row: row["since"])
    rows = rows if arguments.most is None else rows[:arguments.most]
    if not arguments.end or arguments.dry_run:
        _print(rows, json=arguments.json)
        return 0
    if rows:
        invocation.confirm(f"End {len(rows)} connections?", final=False)
    ended = _end(invocation, rows)
    if arguments.json:
        print_json({"ended": ended})
    else:
        print(f"ended: {len(ended)}" + (
            f"; had ended before: {len(rows) - len(ended)}" if len(rows) > len(ended) else ""))
    return 0


def _matches(row: dict[str, Any], wanted: Any, domain: str) -> bool:
    return all((
        not wanted.ids or row["id"] in wanted.ids,
        not wanted.user or row["user"] == wanted.user.lower().removesuffix(f"@{domain}"),
        not wanted.address or row["address"] in wanted.address or row["proxy"] in wanted.address,
        not wanted.protocol or row["protocol"] == wanted.protocol,
        not wanted.mailbox or row["mailbox"] == wanted.mailbox,
        wanted.idle is None or row["idle"] >= wanted.idle))


def _end(invocation: Invocation, rows: Sequence[dict[str, Any]]) -> list[str]:
    """The ids of those that are ended."""
    by_process: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        by_process[row["process"]].append(row["id"])
    ended: list[str] = []
    sessions = Sessions(invocation.config.root)
    ended += [id for id in by_process.pop(CONSOLE, ()) if sessions.end_shown(id)]
    for process, ids in by_process.items():
        for at in range(0, len(ids), IDS_AT_A_TIME):
            answer = ask_one(invocation.config.root, process, "end", ids=ids[at:at + IDS_AT_A_TIME])
            ended += answer["ended"] if answer else []
    return ended


def _of_console(invocation: Invocation) -> list[dict[str, Any]]:
    """Who has logged in to the console, as rows beside the connections."""
    now, idle = time.time(), invocation.config.settings("http", HttpSettings).session_idle
    return [{"id": each.shown_id, "process": CONSOLE, "protocol": CONSOLE, "user": each.user, "address": each.address,
             "proxy": "", "tls": each.secure, "client": each.browser, "state": each.state, "mailbox": "",
             "since": each.created, "logged_in": each.created, "idle": max(0.0, now - each.seen), "received": 0,
             "sent": 0} for each in Sessions(invocation.config.root).all(now, idle)]


def _print(rows: list[dict[str, Any]], *, json: bool) -> None:
    if json:
        print_json([{**row, "since": when(row["since"]), "idle": round(row["idle"], 1), "logged_in": (
            None if row["logged_in"] is None else when(row["logged_in"]))} for row in rows])
        return
    now = time.time()
    shown = [{**row, "since": span(now - row["since"]), "idle": span(row["idle"]), "logged_in": (
        None if row["logged_in"] is None else span(now - row["logged_in"])),
        **{name: row[name] or None for name in ("user", "proxy", "client", "mailbox")}} for row in rows]
    print_table(shown, [name for name in COLUMNS if name not in OPTIONAL or any(row[name] for row in rows)],
                sizes=("received", "sent"))


def logins(invocation: Invocation) -> int:
    """onecopy logins"""
    arguments, root = invocation.arguments, invocation.config.root
    if arguments.clear and not (arguments.user or arguments.address or arguments.all):
        raise Failure("which ones? Give --user or --address, or --all")
    require_server(root)
    domain = str(invocation.config.values["store.default_domain"])
    found = ask_one(root, "keeper", "logins", user=arguments.user.lower().removesuffix(f"@{domain}"),
                    peer=arguments.address, clear=arguments.clear)
    if found is None:
        return 1
    if arguments.json:
        print_json(found)
    elif arguments.clear:
        print(f"forgotten: {found['count']}")
    else:
        print_table([{**row, "next_waits": span(row["wait"]) if row["wait"] else None, "last": span(row["last"])}
                     for row in found["rows"]], FAILURES)
        if found["count"] > len(found["rows"]):
            print(f"and {found['count'] - len(found['rows'])} others")
    return 0


def address_or_local(text: str) -> str:
    """What `Stream.peer` may be, as an argument."""
    try:
        return str(ipaddress.ip_address(text)) if text not in ("", LOCAL) else text
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no address") from None


def span(seconds: float) -> str:
    """A span of time for a person: 12s, 5m, 3h 20m, 2d 4h."""
    left = max(0, int(seconds))
    parts = [(left // 86400, "d"), (left // 3600 % 24, "h"), (left // 60 % 60, "m"), (left % 60, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{amount}{unit}" for amount, unit in parts[:2] if amount) or "0s"
