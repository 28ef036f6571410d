"""onecopy mailbox subscribe, unsubscribe: what a user's mail programs show."""

from store.errors import Problem, StoreError
from store.mailboxes import subscribing
from store.mailboxes.authorization import may
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.lookup import account, mailbox_name
from tools.cli.output import print_json

NAME_HELP = "as that user's client names it: Work, user/alice/Projects, public/news"


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("mailbox subscribe", subscribe, "subscribe a user to mailboxes, or list what the user is subscribed "
                  "to: most mail programs show only these of others' mailboxes and of public ones")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailboxes", nargs="*", metavar="MAILBOX", help=f"{NAME_HELP}; default: none, only list")
    made.add_argument("--json", action="store_true")
    made = parser("mailbox unsubscribe", unsubscribe, "end a user's subscriptions; the mailboxes stay as they are")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailboxes", nargs="+", metavar="MAILBOX", help=NAME_HELP)
    made.add_argument("--json", action="store_true")


def subscribe(invocation: Invocation) -> int:
    """onecopy mailbox subscribe"""
    arguments = invocation.arguments
    with invocation.store() as store:
        user = account(store, arguments.user).user

        def add_one(text: str) -> None:
            entry = store.entry(mailbox_name(user, text))
            if not may(store, user, entry, "l"):
                raise StoreError(Problem.NO_PERMISSION, f"{user} may not look it up (onecopy mailbox acl grants that)")
            subscribing.subscribe(store, user, text)

        status = each(arguments.mailboxes, add_one)
        there = subscribing.subscriptions(store, user)
    _print(invocation, there, listed=not arguments.mailboxes)
    return status


def unsubscribe(invocation: Invocation) -> int:
    """onecopy mailbox unsubscribe"""
    arguments = invocation.arguments
    with invocation.store() as store:
        user = account(store, arguments.user).user

        def end(text: str) -> None:
            if not subscribing.unsubscribe(store, user, mailbox_name(user, text).to_client(user)):
                raise StoreError(Problem.NO_MAILBOX, f"{user} is not subscribed to it")

        status = each(arguments.mailboxes, end)
        there = subscribing.subscriptions(store, user)
    _print(invocation, there, listed=False)
    return status


def _print(invocation: Invocation, names: list[str], *, listed: bool) -> None:
    if invocation.arguments.json:
        print_json(names)
    elif listed:
        for name in names:
            print(name)
