"""onecopy mailbox metadata: annotations of a mailbox (RFC 5464)"""

from typing import Any

from mboxlist.annotations import PRIVATE, SHARED, is_legal
from mboxlist.entry import MailboxEntry
from store.mailboxes.authorization import annotate
from store.store import Store
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import account, mailbox
from tools.cli.output import print_json, print_table
from tools.commands.mailbox import OWNER_HELP
from tools.exits import Failure


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("mailbox metadata", metadata, "show the annotations of a mailbox, or change one (RFC 5464)")
    made.add_argument("user", metavar="USER", help=OWNER_HELP)
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("entry", metavar="ENTRY", nargs="?",
                      help=f"its name: {SHARED}comment, {PRIVATE}comment; default: all")
    made.add_argument("value", metavar="VALUE", nargs="?", help="what it is to be; default: only show it")
    made.add_argument("--of", metavar="USER", help=f"whose {PRIVATE} entries; default: the owner of the mailbox")
    made.add_argument("--remove", action="store_true", help="take the entry away")
    made.add_argument("--json", action="store_true")


def metadata(invocation: Invocation) -> int:
    """onecopy mailbox metadata"""
    arguments = invocation.arguments
    name = arguments.entry and arguments.entry.lower()
    if arguments.remove and (name is None or arguments.value is not None):
        raise Failure("--remove takes away one entry, which must be named, without a value")
    if name is not None and not is_legal(name, private=name.startswith(PRIVATE)):
        raise Failure(f"{name}: names of entries begin with {SHARED} or {PRIVATE}, and have no *, % or spaces")
    with invocation.store() as store:
        entry = mailbox(store, arguments.user, arguments.mailbox)
        user = account(store, arguments.of).user if arguments.of is not None else entry.name.owner
        if name is not None and (arguments.remove or arguments.value is not None):
            whose = user if name.startswith(PRIVATE) else ""
            if name.startswith(PRIVATE) and not whose:
                raise Failure(f"whose? --of says for whom {name} of a public mailbox is")
            annotate(store, entry, name, None if arguments.remove else arguments.value.encode(), whose)
        rows = _rows(store, entry, user, name)
    if name is not None and not rows and not arguments.remove:
        raise Failure(f"the mailbox has no {name}", 1)
    if arguments.json:
        print_json(rows)
    elif rows:
        print_table(rows, ("entry", "user", "value"))
    return 0


def _rows(store: Store, entry: MailboxEntry, user: str, name: str | None) -> list[dict[str, Any]]:
    """Those for all, and the user's own."""
    return [{"entry": each, "user": whose or None, "value": value.decode("utf-8", "replace")}
            for each, whose, value in store.mailboxes.annotations.of(entry.id)
            if whose in ("", user) and name in (None, each) and each.startswith((SHARED, PRIVATE))]
