"""onecopy logins"""

from tools.cli.controlclient import ask_one, require_server
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, print_table
from tools.commands.connections import span
from tools.commands.explain import address_or_local
from tools.exits import Failure

COLUMNS = ("kind", "name", "failures", "next_waits", "last")


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("logins", logins, "list the users, addresses and networks whose failed logins make the next ones "
                                    "wait, or forget them; exit status 1 if no server runs")
    made.add_argument("--user", metavar="USER", default="", help="only those of that user")
    made.add_argument("--address", type=address_or_local, metavar="ADDRESS", default="",
                      help="only those of that address, and of the network around it")
    made.add_argument("--clear", action="store_true", help="forget them: the next login waits for nothing")
    made.add_argument("--all", action="store_true", help="with --clear and without any filter: all of them")
    made.add_argument("--json", action="store_true")


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
                     for row in found["rows"]], COLUMNS)
        if found["count"] > len(found["rows"]):
            print(f"and {found['count'] - len(found['rows'])} others")
    return 0
