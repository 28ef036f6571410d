"""onecopy user list"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from store.accounts.base import Account, Status
from store.quota.overview import Overview
from tools.cli.invocation import Invocation, Parsers, number, typed
from tools.cli.output import print_json, print_table, when
from tools.cli.progressbar import counted


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("user list", list_users, "list the users")
    made.add_argument("--removed", action="store_true",
                      help="those who were removed and can be restored, and until when (onecopy user undelete)")
    made.add_argument("--domain", metavar="DOMAIN", help="only those of that domain")
    made.add_argument("--match", metavar="TEXT", default="", help="only those who have that in their user id or an "
                                                                  "alias, in small letters or capitals")
    made.add_argument("--most", type=typed(number), metavar="N", help="only the first N, in the order of user ids")
    made.add_argument("--after", metavar="USER", default="", help="only those behind that user id")
    made.add_argument("--json", action="store_true")


def list_users(invocation: Invocation) -> int:
    """onecopy user list"""
    arguments = invocation.arguments
    if arguments.removed:
        return _list_removed(invocation)
    with invocation.overview() as store:
        rows = [{"user": user.user, "status": user.status.value, "partition": user.partition,
                 **({"host": user.host} if user.host else {}),
                 "groups": list(user.groups), "aliases": list(user.aliases), **removal(store, user)}
                for user in islice(filter(partial(_is_wanted, store, arguments), _everyone(store)), arguments.most)]
    if invocation.arguments.json:
        print_json(rows)
    else:
        columns = [name for name in ("host", "groups", "aliases", "kept_until") if any(row.get(name) for row in rows)]
        print_table(rows, ("user", "status", "partition", *columns))
    return 0


def _list_removed(invocation: Invocation) -> int:
    """Removed ones, and those who are forgotten and of whom the mailboxes are still there."""
    from store.users import restorable  # here: the list of the others opens no store
    with invocation.store() as store:
        kept = {record.user: record for record in restorable.everyone(store)}
        rows = [{"user": user.user, "mailboxes": len(store.names(user.user)), "removed": when(user.removed),
                 **removal(store, user)} for user in _everyone(store) if user.status is Status.REMOVED]
        rows += [{"user": record.user, "mailboxes": len(record.mailboxes), "removed": when(record.removed),
                  "kept_until": when(record.when + store.settings.purge_delay)}
                 for record in kept.values() if store.directory.user(record.user) is None]
        rows = [row for row in rows if _is_of(store, str(row["user"]), invocation.arguments.domain)]
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table(rows, ("user", "mailboxes", "removed", "kept_until"))
    return 0


def _everyone(store: Overview) -> Iterator[Account]:
    return counted(store.directory.all(), "users")


def _is_wanted(store: Overview, wanted: Any, user: Account) -> bool:
    return (user.user > wanted.after and _is_of(store, user.user, wanted.domain) and (
        not wanted.match or any(wanted.match.lower() in name.lower() for name in (user.user, *user.aliases))))


def _is_of(store: Overview, user: str, domain: str | None) -> bool:
    """Whether that is a user of the domain, if there is one; a name without any is one of store.default_domain."""
    return domain is None or domain.lower() == (
        user.rpartition("@")[2] if "@" in user else store.settings.default_domain).lower()


def removal(store: Overview, user: Account) -> dict[str, object]:
    """Of a removed user also until when the mail is kept."""
    if user.status is not Status.REMOVED:
        return {}
    return {"kept_until": when(user.removed + store.settings.user_delay)}
