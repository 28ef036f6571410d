"""onecopy partition give-up"""

from typing import Any

from store.rejoin import givingup
from store.rejoin.givingup import Lost
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_facts, print_json
from tools.cli.progressbar import changing_bar

SHOWN = 10          # users that are named


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("partition give-up", give_up, "give up a partition that only another machine has, in whose place "
                                                "this one was promoted, when that is lost for good: its mailboxes "
                                                "are there again, empty, beside the running server")
    made.add_argument("name", metavar="NAME")
    made.add_argument("--dry-run", action="store_true", help="only say what is lost")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--json", action="store_true")


def give_up(invocation: Invocation) -> int:
    """onecopy partition give-up"""
    arguments = invocation.arguments
    with invocation.store() as store:
        lost = givingup.look(store, arguments.name)
        if arguments.dry_run:
            _show(lost, as_json=arguments.json, done=False)
            return 0
        if not arguments.json:
            _print(lost)
        invocation.confirm(f"Give up all mail of these mailboxes, which is only on {lost.host}? If that machine can be "
                           "started once more, type `onecopy standby rejoin` there instead")
        with changing_bar() as progress:
            lost = givingup.give_up(store, arguments.name, lambda done, total: progress("mailboxes", done, total))
    _show(lost, as_json=arguments.json, done=True)
    return 0


def _show(lost: Lost, *, as_json: bool, done: bool) -> None:
    if as_json:
        print_json(_said(lost) | {"given_up": done})
    elif done:
        print(f"{len(lost.mailboxes)} mailboxes on partition {lost.partition} are empty now, under new UIDVALIDITYs; "
              f"{len(lost.deleted)} deleted ones cannot be undeleted any more")
    else:
        _print(lost)


def _said(lost: Lost) -> dict[str, Any]:
    return {"partition": lost.partition, "host": lost.host, "mailboxes": len(lost.mailboxes),
            "users": lost.users, "inboxes": lost.inboxes, "deleted": len(lost.deleted)}


def _print(lost: Lost) -> None:
    more = len(lost.users) - SHOWN
    named = ", ".join(lost.users[:SHOWN]) + (f" and {more} others" if more > 0 else "")
    print_facts({"partition": lost.partition, "only on": lost.host,
                 "mailboxes that become empty": f"{len(lost.mailboxes)}, of {len(lost.users)} users",
                 "users": named or "none", "of these with their INBOX there": len(lost.inboxes),
                 "deleted mailboxes, for good": len(lost.deleted)})
