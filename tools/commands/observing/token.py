"""onecopy token create, token list, token revoke"""

import time

from store.audit.auditsettings import Settings
from store.values import duration
from tools import commandaudit
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.output import print_json, print_table, when
from tools.exits import Failure
from tools.http.apitokens import HELPDESK, ROLES, USER, Tokens


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("token create", create, "make a token for the API and print it, once: only its digest is kept")
    made.add_argument("--role", choices=ROLES, required=True, help="what it may do")
    made.add_argument("--domain", metavar="DOMAIN", default="", help="the domain of a helpdesk")
    made.add_argument("--user", metavar="USER", default="", help="the user of the role user")
    made.add_argument("--for", dest="time", metavar="TIME", type=typed(duration), help="how long it holds, such as "
                                                                                        "90d; default: for ever")
    made.add_argument("--json", action="store_true")
    made = parser("token list", show, "list the tokens, without what their owners must show")
    made.add_argument("--json", action="store_true")
    made = parser("token revoke", revoke, "have tokens hold no longer; exit status 1 if there is none of such an id")
    made.add_argument("ids", metavar="ID", nargs="+", help="its id, as token list has it")


def create(invocation: Invocation) -> int:
    """onecopy token create"""
    arguments = invocation.arguments
    if arguments.domain and arguments.role != HELPDESK or arguments.user and arguments.role != USER:
        raise Failure("--domain is for the role helpdesk, --user for the role user")
    until = None if arguments.time is None else int(time.time() + arguments.time)
    root = invocation.config.root
    made, shown = Tokens(root).create(arguments.role, arguments.domain or arguments.user, until)
    commandaudit.note(root, invocation.config.settings("audit", Settings).kinds, "configuration", "token create",
                      commandaudit.running(), [], result=f"the id is {made.id}")
    if arguments.json:
        print_json({**made.shown(), "token": shown})
    else:
        print(shown)
    return 0


def show(invocation: Invocation) -> int:
    """onecopy token list"""
    rows = [each.shown() for each in Tokens(invocation.config.root).all()]
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table([{**row, "created": when(row["created"]), "until": "-" if row["until"] is None else
                      when(row["until"])} for row in rows], ("id", "role", "scope", "created", "until"))
    return 0


def revoke(invocation: Invocation) -> int:
    """onecopy token revoke"""
    wanted = invocation.arguments.ids
    gone = Tokens(invocation.config.root).revoke(wanted)
    if missing := sorted(set(wanted) - set(gone)):
        raise Failure(f"there is no token {', '.join(missing)} (onecopy token list shows what there is)", 1)
    return 0
