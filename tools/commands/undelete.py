"""onecopy undelete, mailbox undelete, user undelete"""

import argparse
import contextlib
from datetime import datetime

from attrs import asdict

from mboxlist.names import PUBLIC
from store.errors import Problem, StoreError
from store.mailboxes.deletion import deleted_messages, last_deleted, undelete_mailbox, undelete_messages
from store.users.restorable import undelete_user
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.lookup import mailbox, mailbox_name, owner
from tools.cli.output import print_json, print_table, when
from tools.exits import Failure, advised

UNDELETE = ("bring back single messages that were expunged from a mailbox, until the purge (store.purge_delay); a "
            "whole mailbox: mailbox undelete, a user: user undelete; from a backup: restore, from a snapshot: snapshot "
            "restore")


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("mailbox undelete", undelete, "bring back a whole mailbox that was deleted, the last one of "
                  "that name, until the purge (store.purge_delay); single messages: onecopy undelete")
    made.add_argument("user", metavar="USER", help="public/ for a public mailbox")
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("--as", dest="name", metavar="NAME", help="under another name")
    made.add_argument("--dry-run", action="store_true", help="only say what would be restored")
    made.add_argument("--json", action="store_true")
    made = parser("user undelete", undelete_users, "bring back users who were removed, also those who have been "
                  "forgotten (store.user_delay) as long as their mailboxes are kept: account, mailboxes, "
                  "subscriptions, limits, and rights to others' mailboxes; who there is: user list --removed")
    made.add_argument("users", nargs="+", metavar="USER")
    made.add_argument("--dry-run", action="store_true", help="only say what would be restored")
    made.add_argument("--json", action="store_true")
    made = parser("undelete", undelete_expunged, UNDELETE)
    made.add_argument("user", metavar="USER")
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("--since", type=_time, default=0, metavar="TIME",
                      help="expunged since then: 2026-01-31, 2026-01-31T12:00, with or without a zone")
    made.add_argument("--uid", type=int, nargs="+", metavar="UID", help="only those that had these UIDs")
    made.add_argument("--list", "--dry-run", action="store_true", help="only say what there is")
    made.add_argument("--bytes", action="store_true")
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
        if not arguments.dry_run:
            invocation.finish_first(store, "mailbox undelete", [str(name)])
        found = last_deleted(store, name)
        if found is None:
            raise advised(StoreError(
                Problem.NO_MAILBOX, f"There is no deleted mailbox {arguments.mailbox} of {user or PUBLIC}"),
                "onecopy mailbox list --deleted shows what there is")
        new = mailbox_name(user, arguments.name) if arguments.name else name
        if not arguments.dry_run:
            undelete_mailbox(store, name, new_name=new)
        elif store.mailboxes.find(new) is not None:
            raise StoreError(Problem.MAILBOX_EXISTS)
    facts = {"mailbox": str(new), "deleted": when(found[0]), "dry_run": arguments.dry_run}
    if arguments.json:
        print_json(facts)
    elif arguments.dry_run:
        print(f"{new}, deleted {facts['deleted']}, would come back")
    return 0


def undelete_users(invocation: Invocation) -> int:
    """onecopy user undelete"""
    arguments, rows = invocation.arguments, list[dict[str, object]]()
    with invocation.store() as store:
        def bring(text: str) -> None:
            back = undelete_user(store, store.directory.user_id(text), change=not arguments.dry_run)
            rows.append(asdict(back))

        users = [store.directory.user_id(text) for text in arguments.users]
        with contextlib.nullcontext() if arguments.dry_run else invocation.begun(
                store, "user undelete", {"users": users}, holds=users) as operation:
            status = each(arguments.users, bring, operation)
    if arguments.json:
        print_json({"dry_run": arguments.dry_run, "users": rows})
    elif rows:
        print_table(rows, ("user", "mailboxes", "subscriptions", "granted", "problems"))
    return status or int(any(row["problems"] for row in rows))


def undelete_expunged(invocation: Invocation) -> int:
    """onecopy undelete"""
    arguments = invocation.arguments
    if arguments.uid and any(not 0 < uid < 1 << 32 for uid in arguments.uid):
        raise Failure("a UID is between 1 and 4294967295")
    with invocation.store() as store:
        entry = mailbox(store, arguments.user, arguments.mailbox)
        found = [item for item in deleted_messages(store, entry, since=arguments.since)
                 if not arguments.uid or item.uid in arguments.uid]
        with contextlib.nullcontext() if arguments.list else invocation.repeatable(
                "undelete", [entry.name.owner]):
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
