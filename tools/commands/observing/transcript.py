"""onecopy transcript"""

from store.accounts.networks import Networks
from store.values import duration
from tools.cli.controlclient import ask_all, is_up, require_server
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.lookup import account
from tools.cli.output import print_json, print_table, when
from tools.commands.connections import span
from tools.exits import Failure
from tools.server.transcripts.transcriptfile import FOLDER, files

PROTOCOLS = ("imap", "pop3", "lmtp")
USUAL = 600.0               # seconds


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("transcript", transcript, "record what a user or an address says to the running server and hears "
                                            "from it, without passwords and mail, in files below transcripts/ in the "
                                            "store; without USER or ADDRESS: list what is recorded; exit status 1 if "
                                            "no server runs")
    made.add_argument("who", nargs="?", metavar="USER|ADDRESS", help="a user (of IMAP and POP3, from the login on), or "
                                                                     "an address or network (192.0.2.0/24)")
    made.add_argument("--for", dest="time", type=typed(duration), metavar="TIME", default=USUAL,
                      help="how long, at most a day (default: 10m)")
    made.add_argument("--protocol", choices=PROTOCOLS, help="only sessions of that protocol")
    made.add_argument("--end", action="store_true", help="record that user or address no longer")
    made.add_argument("--json", action="store_true")


def transcript(invocation: Invocation) -> int:
    """onecopy transcript"""
    arguments, root = invocation.arguments, invocation.config.root
    if arguments.who is None:
        if arguments.end:
            raise Failure("whom? Name the user or the address")
        return _list(invocation)
    require_server(root)
    who, is_address = _whom(invocation)
    found = ask_all(root, "transcript", who=who, address=is_address, protocol=arguments.protocol,
                    seconds=arguments.time, end=arguments.end)
    if arguments.end and not any(each["ended"] for each in found.values()):
        raise Failure(f"{who} is not recorded", 1)
    if arguments.json:
        print_json({"who": who, "protocol": arguments.protocol, "end": arguments.end,
                    "seconds": 0 if arguments.end else arguments.time, "folder": str(root / FOLDER),
                    "connections": sum(each.get("connections", 0) for each in found.values())})
    elif arguments.end:
        print(f"{who} is not recorded any more; the files are in {root / FOLDER}")
    else:
        print(f"{who} is recorded for {span(arguments.time)}, in {root / FOLDER}")
    return 0 if found else 1


def _whom(invocation: Invocation) -> tuple[str, bool]:
    """The user id, or the address; whether it is one. Raises Failure, StoreError."""
    who = invocation.arguments.who
    try:
        Networks.parse([who])
        return who, True
    except ValueError:
        pass
    with invocation.store() as store:
        return account(store, who).user, False


def _list(invocation: Invocation) -> int:
    """What is recorded, and the files that are there."""
    root = invocation.config.root
    orders = [{**each, "process": name} for name, told in (
        ask_all(root, "transcripts") if is_up(root) else {}).items() for each in told]
    there = [{"file": str(path), "octets": octets, "written": when(written)}
             for path, octets, written in files(root / FOLDER)]
    if invocation.arguments.json:
        print_json({"orders": orders, "files": there})
        return 0
    print_table([{**each, "left": span(each["left"]), "protocol": each["protocol"] or "all"} for each in orders],
                ("who", "protocol", "left", "connections", "process"))
    print_table(there, ("file", "octets", "written"))
    return 0
