"""onecopy undelete, mailbox undelete"""

import argparse
from datetime import datetime

from store.removal import deleted_messages, undelete_mailbox, undelete_messages
from tools.commands import Invocation, Parsers, mailbox, mailbox_name, owner
from tools.errors import Failure
from tools.output import print_json, print_table, when


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("mailbox undelete", undelete, "bring back the mailbox that was last deleted under a name")
    made.add_argument("user", metavar="USER", help="public/ for a public mailbox")
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("--as", dest="name", metavar="NAME", help="under another name")
    made = parser("undelete", undelete_expunged, "bring back messages that were expunged from a mailbox")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("--since", type=_time, default=0, metavar="TIME",
                      help="expunged since then: 2026-01-31, 2026-01-31T12:00, with or without a zone")
    made.add_argument("--uid", type=int, nargs="+", metavar="UID", help="only those that had these UIDs")
    made.add_argument("--list", action="store_true", help="only say what there is")
    made.add_argument("--json", action="store_true")


def _time(text: str) -> int:
    """Unix time; without a zone it is local time."""
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: not a time (such as 2026-01-31T12:00)") from None


def undelete(invocation: Invocation) -> int:
    """onecopy mailbox undelete"""
    arguments = invocation.arguments
    with invocation.store() as store:
        user = owner(store, arguments.user)
        name = mailbox_name(user, arguments.mailbox)
        undelete_mailbox(store, name, new_name=mailbox_name(user, arguments.name) if arguments.name else None)
    return 0


def undelete_expunged(invocation: Invocation) -> int:
    """onecopy undelete"""
    arguments = invocation.arguments
    if arguments.uid and any(not 0 < uid < 1 << 32 for uid in arguments.uid):
        raise Failure("a UID is between 1 and 4294967295")
    with invocation.store() as store:
        entry = mailbox(store, arguments.user, arguments.mailbox)
        found = [item for item in deleted_messages(store, entry, since=arguments.since)
                 if not arguments.uid or item.uid in arguments.uid]
        back = [] if arguments.list else undelete_messages(store, entry, since=arguments.since, uids=arguments.uid)
        store.news.tell([entry.id])
    if arguments.list:
        rows = [{"uid": item.uid, "expunged": when(item.when), "received": when(item.received), "size": item.size}
                for item in found]
        if arguments.json:
            print_json(rows)
        else:
            print_table(rows, ("uid", "expunged", "received", "size"))
        return 0
    if arguments.json:
        print_json({"uids": back})
    else:
        print(f"{len(back)} messages are back" + (f", with UIDs from {min(back)} to {max(back)}" if back else ""))
    return 0 if back or not arguments.uid else 1
