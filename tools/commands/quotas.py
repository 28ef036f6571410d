"""onecopy quota show|set"""

import argparse
from collections.abc import Callable

from store.quota import DEFAULT, UNLIMITED, QuotaUse
from store.settings import Settings
from tools import config
from tools.commands import Invocation, Parsers, account, directory
from tools.errors import Failure
from tools.output import print_json, print_table

WORDS = {"default": DEFAULT, "none": UNLIMITED}


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("quota show", show_quota, "show use and limits, of one user or of all")
    made.add_argument("user", metavar="USER", nargs="?")
    made.add_argument("--json", action="store_true")
    made = parser("quota set", set_quota, "set a user's limits")
    made.add_argument("user", metavar="USER")
    made.add_argument("--octets", type=_limit(config.size), metavar="SIZE", help="such as 2G; none; default")
    made.add_argument("--messages", type=_limit(_count), metavar="NUMBER", help="a number; none; default")


def _limit(read: Callable[[str], int]) -> Callable[[str], int]:
    def limit(text: str) -> int:
        if text in WORDS:
            return WORDS[text]
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return limit


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError("not a number, none or default")
    return int(text)


def limits(use: QuotaUse, settings: Settings) -> dict[str, object]:
    """The limits that hold; None where there is none."""
    octets, messages = use.limits(settings)
    return {"octet_limit": octets, "message_limit": messages}


def show_quota(invocation: Invocation) -> int:
    """onecopy quota show"""
    with invocation.store() as store:
        if invocation.arguments.user is not None:
            users = [account(store, invocation.arguments.user).user]
        else:
            users = [user.user for user in directory(store).all()]
        rows: list[dict[str, object]] = []
        for user in users:
            use = store.quota(user)
            rows.append({"user": user, "octets": use.octets, "messages": use.messages, **limits(use, store.settings)})
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table(rows, ("user", "octets", "octet_limit", "messages", "message_limit"))
    return 0


def set_quota(invocation: Invocation) -> int:
    """onecopy quota set"""
    arguments = invocation.arguments
    if arguments.octets is None and arguments.messages is None:
        raise Failure("nothing to change: give --octets, --messages")
    with invocation.store() as store:
        store.set_quota(account(store, arguments.user).user, arguments.octets, arguments.messages)
    return 0
