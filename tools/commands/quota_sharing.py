"""onecopy quota sharing"""

from heapq import nlargest

import attrs

from mboxlist.names import OTHERS
from store.quota.accounting import Share, Sharing, sharing
from tools.cli.invocation import Invocation, Parsers, number, typed
from tools.cli.lookup import account
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import bar
from tools.exits import Failure

LEVELS = {"user": "users", "mailbox": "mailboxes", "domain": "domains", "partition": "partitions"}
FIGURES = tuple(field.name for field in attrs.fields(Share))


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("quota sharing", show_sharing, "show who holds how much, and what of it others hold as well")
    made.add_argument("user", metavar="USER", nargs="?", help="this user, or this user's mailboxes, alone")
    made.add_argument("--by", choices=tuple(LEVELS), default="user", help="a line for each of these (user)")
    made.add_argument("--most", type=typed(number), metavar="N", help="only the N that hold most octets, these first")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def show_sharing(invocation: Invocation) -> int:
    """onecopy quota sharing"""
    level, address = invocation.arguments.by, invocation.arguments.user
    if address is not None and level not in ("user", "mailbox"):
        raise Failure(f"one user is not a {level}: leave out USER, or give --by user or --by mailbox")
    with invocation.store() as store, bar("records") as tell:
        user = account(store, address).user if address is not None else None
        accounts = sharing(store, tell)
    rows = _rows(accounts, level, user)
    if invocation.arguments.most is not None:
        rows = nlargest(invocation.arguments.most, rows, key=lambda row: int(str(row["octets"])))
    if invocation.arguments.json:
        print_json(rows)
    else:
        waiting = ("waiting",) if level == "partition" else ()
        print_table(rows, (level, *FIGURES, *waiting), sizes=waiting)
    return 0


def _rows(accounts: Sharing, level: str, user: str | None) -> list[dict[str, object]]:
    figures: dict[str, Share] = getattr(accounts, LEVELS[level])
    if user is not None and level == "user":
        figures = {user: figures.get(user, Share())}
    elif user is not None:
        figures = {name: share for name, share in figures.items() if name.startswith(f"{OTHERS}{user}/")}
    rows = [{level: name, **attrs.asdict(share)} for name, share in figures.items()]
    if level == "partition":
        for row in rows:
            row["waiting"] = accounts.waiting[str(row["partition"])]
    return rows
