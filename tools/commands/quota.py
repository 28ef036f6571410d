"""onecopy quota show|set|remove|check"""

import argparse
from collections.abc import Callable
from heapq import nlargest
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mboxlist.names import PUBLIC, SEPARATOR
from store import values
from store.quota import roots as quotaroots
from store.quota.everypartition import held_by
from store.settings import Settings
from store.tables.quotatable import DEFAULT, DOMAIN, UNLIMITED, QuotaUse
from tools.cli.invocation import Invocation, Parsers, number, typed
from tools.cli.lookup import account, mailbox_name
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import counted
from tools.exits import Failure

if TYPE_CHECKING:           # who only asks opens no store
    from store.quota.overview import Overview

WORDS = {"default": DEFAULT, "none": UNLIMITED}
ROOT = "USER, USER/MAILBOX, public/MAILBOX or @DOMAIN"
COLUMNS = ("root", "per_cent", "octets", "octet_limit", "messages", "message_limit", "refused_since")


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("quota show", show_quota, "show use and limits, of one or of all")
    made.add_argument("root", metavar="ROOT", nargs="?", help=f"{ROOT}; a USER's MAILBOXes with limits are shown too")
    made.add_argument("--most", type=typed(number), metavar="N", help="only the N that are fullest, these first")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("quota set", set_quota, "set limits of a user, of a mailbox and those below it, or of a domain")
    made.add_argument("root", metavar="ROOT", help=ROOT)
    made.add_argument("--octets", type=_limit(values.size), metavar="SIZE", help="such as 2G; none; default")
    made.add_argument("--messages", type=_limit(_count), metavar="NUMBER", help="a number; none; default")
    made.add_argument("--composite", type=_composite, metavar="LIMITS",
                      help="a user's limit and those of mailboxes: 50M;Archive%%200M")
    made.add_argument("--json", action="store_true")
    made = parser("quota remove", remove_quota, "have a mailbox count for its user again, or end a domain's limits")
    made.add_argument("root", metavar="ROOT", help="USER/MAILBOX, public/MAILBOX or @DOMAIN")
    made.add_argument("--json", action="store_true")
    made = parser("quota check", check_quota, "list those who have reached the warning threshold; status 1 if any has")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def _limit(read: Callable[[str], int]) -> Callable[[str], int]:
    return typed(lambda text: WORDS[text] if text in WORDS else read(text))


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError("not a number, none or default")
    return int(text)


def _composite(text: str) -> list[tuple[str, int]]:
    """Mailbox ("" for the user) and octets, in Sun's syntax for mailQuota: {limit}[;{name}%{limit}]..."""
    found = []
    for at, part in enumerate(text.split(";")):
        name, percent, size = part.strip().rpartition("%")
        if bool(percent) != bool(at) or bool(name) != bool(at):
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form LIMIT;MAILBOX%LIMIT;...")
        if name.startswith("#"):
            raise argparse.ArgumentTypeError(f"{name}: there are no limits for types of messages")
        limit = UNLIMITED if size == "-1" else DEFAULT if size == "-2" else _limit(values.size)(size)
        found.append((unquote(name), limit))
    return found


def root_named(store: "Overview", text: str) -> str:
    """The quota root as the store names it. Raises StoreError NO_USER, Failure."""
    if text.startswith((DOMAIN, PUBLIC)):
        return text
    user, separator, path = text.partition(SEPARATOR)
    found = account(store, user)
    return f"{found.user}/{mailbox_name(found.user, path).path}" if separator else found.user


def limits(use: QuotaUse, settings: Settings) -> dict[str, object]:
    """The limits that hold; None where there is none."""
    octets, messages = use.limits(settings)
    return {"octet_limit": octets, "message_limit": messages}


def facts(root: str, use: QuotaUse, settings: Settings) -> dict[str, object]:
    """What is printed of a quota root; times are Unix times, None for never."""
    found = {"root": root, "per_cent": use.per_cent(settings), "octets": use.octets, "messages": use.messages,
             **limits(use, settings), "refused_since": use.refused or None, "warned": use.warned or None}
    return {**found, "discount": use.discount} if settings.quota_charge == "fair" else found


def show_quota(invocation: Invocation) -> int:
    """onecopy quota show"""
    with invocation.overview() as store:
        named = invocation.arguments.root
        roots = (quotaroots.every_root(store) if named is None else
                 quotaroots.with_below(store, root_named(store, named)))
        rows = (facts(root, quotaroots.quota(store, root), store.settings) for root in counted(roots, "quota roots"))
        most = invocation.arguments.most
        found = list(rows) if most is None else nlargest(most, rows, key=_fullness)
    _print(invocation, found)
    return 0


def _fullness(row: dict[str, object]) -> tuple[int, int]:
    return int(str(row["per_cent"] or 0)), int(str(row["octets"]))


def _print(invocation: Invocation, rows: list[dict[str, object]]) -> None:
    if invocation.arguments.json:
        print_json(rows)
    else:
        fair = any("discount" in row for row in rows)
        print_table(rows, (*COLUMNS, "discount") if fair else COLUMNS)


def set_quota(invocation: Invocation) -> int:
    """onecopy quota set"""
    arguments = invocation.arguments
    if arguments.octets is None and arguments.messages is None and arguments.composite is None:
        raise Failure("nothing to change: give --octets, --messages or --composite")
    with invocation.store() as store:
        root = root_named(store, arguments.root)
        limits_by_root: dict[str, int] | None = None
        if arguments.composite is not None:
            if arguments.octets is not None or SEPARATOR in root or root.startswith(DOMAIN):
                raise Failure("--composite is for a user, and in the place of --octets")
            limits_by_root = {f"{root}/{mailbox_name(root, path).path}" if path else root: limit
                              for path, limit in arguments.composite}
        changed = [root] if limits_by_root is None else list(limits_by_root)
        with invocation.begun(store, "quota set", {
                "root": root, "composite": limits_by_root, "octets": arguments.octets,
                "messages": arguments.messages}, holds=held_by(root)):
            if limits_by_root is not None:
                quotaroots.set_all(store, root, limits_by_root)
            if arguments.octets is not None or arguments.messages is not None:
                quotaroots.change_limits(store, root, arguments.octets, arguments.messages)
        rows = [facts(name, quotaroots.quota(store, name), store.settings) for name in changed]
    if arguments.json:
        print_json(rows)
    return 0


def remove_quota(invocation: Invocation) -> int:
    """onecopy quota remove"""
    with invocation.store() as store:
        root = root_named(store, invocation.arguments.root)
        with invocation.begun(store, "quota remove", {"root": root}, holds=held_by(root)):
            quotaroots.take_root(store, root)
    if invocation.arguments.json:
        print_json([{"root": root}])
    return 0


def check_quota(invocation: Invocation) -> int:
    """onecopy quota check"""
    with invocation.overview() as store:
        rows = [facts(root, use, store.settings) for root in counted(quotaroots.all_roots(store), "quota roots")
                if (use := quotaroots.quota(store, root)).deserves_warning(store.settings)]
    if rows or invocation.arguments.json:
        _print(invocation, rows)
    return 1 if rows else 0
