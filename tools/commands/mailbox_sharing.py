"""onecopy mailbox acl|subscribe|unsubscribe: who may do what with a mailbox, and whose mail programs show it"""

from collections.abc import Sequence

from mboxlist.acl import RIGHTS, is_user
from mboxlist.entry import MailboxEntry
from store.errors import Problem, StoreError
from store.mailboxes import subscribing
from store.mailboxes.authorization import may, set_acl
from store.store import Store
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.lookup import account, mailbox, mailbox_name
from tools.cli.output import print_json, print_table
from tools.commands.mailbox import OWNER_HELP
from tools.exits import Failure

NAME_HELP = "as that user's client names it: Work, user/alice/Projects, public/news"


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("mailbox acl", acl, "show who may do what with a mailbox, or change it (RFC 4314)")
    made.add_argument("user", metavar="USER", help=OWNER_HELP)
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("entries", metavar="IDENTIFIER RIGHTS", nargs="*",
                      help="a user, group:NAME or anyone (with a - before it, what is taken away again), and rights "
                           "such as lrs; +p adds to what there is, -w takes away; as many pairs as are wanted. Options "
                           "stand before words with a - before them, and then a -- of its own: mailbox acl alice "
                           "Work -- bob -w")
    made.add_argument("--remove", metavar="IDENTIFIER", help="take its entry out (--remove=-bob for a negative one)")
    made.add_argument("--subscribe", action="store_true", help="subscribe those who may look it up by these entries, "
                      "or without any by the whole list: most mail programs show others' mailboxes only then")
    made.add_argument("--json", action="store_true")
    made = parser("mailbox subscribe", subscribe, "subscribe a user to mailboxes, or list what the user is subscribed "
                  "to: most mail programs show only these of others' mailboxes and of public ones")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailboxes", nargs="*", metavar="MAILBOX", help=f"{NAME_HELP}; default: none, only list")
    made.add_argument("--json", action="store_true")
    made = parser("mailbox unsubscribe", unsubscribe, "end a user's subscriptions; the mailboxes stay as they are")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailboxes", nargs="+", metavar="MAILBOX", help=NAME_HELP)
    made.add_argument("--json", action="store_true")


def acl(invocation: Invocation) -> int:
    """onecopy mailbox acl|subscribe|unsubscribe: who may do what with a mailbox, and whose mail programs show it"""
    arguments = invocation.arguments
    identifiers, rights = arguments.entries[::2], arguments.entries[1::2]
    if len(identifiers) > len(rights):
        raise Failure(f"which rights for {identifiers[-1]}? (--remove takes its entry out)")
    if identifiers and arguments.remove is not None:
        raise Failure("either set rights or --remove")
    if arguments.subscribe and arguments.remove is not None:
        raise Failure("--subscribe is for who gets rights; mailbox unsubscribe ends a subscription")
    with invocation.store() as store:
        entry = mailbox(store, arguments.user, arguments.mailbox)
        if arguments.remove is not None:
            before, entry = entry, set_acl(store, entry.name, arguments.remove, "")
            if entry.acl == before.acl:
                raise Failure(f"nothing is said of {arguments.remove}", 1)
        for identifier, modification in zip(identifiers, rights, strict=True):
            entry = set_acl(store, entry.name, identifier, modification)
        users = subscribing.subscribe_granted(store, entry, _known(store, identifiers)) if arguments.subscribe else []
    rows = [{"identifier": identifier, "rights": held} for identifier, held in _shown(entry).items()]
    if arguments.json:
        print_json(rows)
    else:
        print_table(rows, ("identifier", "rights"))
        if arguments.subscribe:
            print(f"subscribed: {', '.join(users) or 'nobody'}")
    return 0


def _known(store: Store, identifiers: Sequence[str]) -> list[str]:
    """The identifiers, users by their ids."""
    return [account(store, name).user if is_user(name) else name for name in identifiers]


def _shown(entry: MailboxEntry) -> dict[str, str]:
    """The list, with the owner, who may do everything where it says nothing else."""
    return ({entry.name.owner: RIGHTS} if entry.name.owner else {}) | entry.acl


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
