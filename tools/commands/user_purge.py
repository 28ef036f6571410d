"""onecopy user purge"""

import argparse
import time
from typing import TYPE_CHECKING, cast

from store.errors import StoreError
from store.quota import roots
from store.store import Store
from store.users.directoryremovals import Consult, Presence, Seen, look_at_all, note, note_back, remove, too_many
from store.users.lifecycle import due
from store.users.origins import is_outside
from store.users.restorable import forget_user
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.output import print_json, print_table, when
from tools.cli.progressbar import bar
from tools.commands.messages import clockoption
from tools.exits import Failure

if TYPE_CHECKING:           # ldap3 is loaded only where there is an outside directory
    from store.accounts.ldap.ldapdirectory import LdapDirectory

SHARE = 10          # per cent
COLUMNS = ("user", "directory", "since", "due", "mailboxes", "octets", "action")


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("user purge", purge, "remove the mail of users whom the directory has deleted, or has no longer, "
                                       "once the delay has passed (store.user_delay)")
    made.add_argument("--dry-run", action="store_true", help="only say what would be done")
    made.add_argument("--most", type=_per_cent, default=SHARE, metavar="PER_CENT",
                      help=f"do nothing if more users than that seem to be gone ({SHARE})")
    made.add_argument("--force", action="store_true", help="even then")
    clockoption.add_option(made)
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def _per_cent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError("not a number from 0 to 100")
    return value


def purge(invocation: Invocation) -> int:
    """onecopy user purge"""
    with invocation.store() as store:
        if not invocation.arguments.dry_run:
            clockoption.require(store, trusted=invocation.arguments.trust_clock)
        if not store.directory.remote:
            return _purge_built_in(invocation, store)
        return _purge_outside(invocation, store, cast("LdapDirectory", store.directory).consult)


def _purge_outside(invocation: Invocation, store: Store, consult: Consult) -> int:
    arguments, now = invocation.arguments, time.time()
    seen = _look(store, consult)
    shown = [each for each in seen if each.presence is not Presence.THERE]
    if too_many(seen, arguments.most / 100) and not arguments.force:
        gone = sum(each.presence is Presence.GONE for each in seen)
        if arguments.dry_run:
            _print(invocation, [_facts(store, each, now, "nothing") for each in shown])
        raise Failure(f"nothing was done: {gone} of {len(seen)} users seem to be gone, more than {arguments.most:g} "
                      "per cent; is directory.base right, and may directory.bind_dn see all? If so, use --force", 1)
    actions = {each.user: _action(store, each, now) for each in shown}
    rows = {each.user: _facts(store, each, now, actions[each.user]) for each in shown}
    status = 0
    if not arguments.dry_run:
        going = [each for each in shown if actions[each.user] == "remove"]
        if going:
            invocation.confirm(f"Remove {', '.join(each.user for each in going)} and all their mail?")
        for one in seen:
            if actions.get(one.user) == "note":
                note(store, one, now)
            elif one.since and not one.doomed:
                note_back(store, one.user)
        by_user = {each.user: each for each in going}
        with invocation.begun(store, "user remove", {"users": list(by_user)}, holds=list(by_user)) as operation:
            status = each(list(by_user), lambda user: remove(store, by_user[user], consult, now), operation)
        for user in by_user:
            rows[user]["action"] = "removed" if store.directory.find(user) is None else "failed"
        for row in rows.values():
            row["action"] = {"note": "noted"}.get(str(row["action"]), row["action"])
    _print(invocation, list(rows.values()))
    return status


def _look(store: Store, consult: Consult) -> list[Seen]:
    """Raises Failure when the directory cannot be asked."""
    seen = []
    with bar("asking", lambda: sum(1 for _ in store.directory.all())) as tell:
        try:
            for each in look_at_all(store, consult, lambda user: is_outside(store, user)):
                seen.append(each)
                tell(len(seen))
        except StoreError as error:
            raise Failure(f"nothing was done: {error.detail or error.public}", 1) from None
    return seen


def _action(store: Store, seen: Seen, now: float) -> str:
    if not seen.doomed:
        return "keep"
    if not seen.since:
        return "note"
    return "remove" if seen.is_due(store, now) else "wait"


def _facts(store: Store, seen: Seen, now: float, action: str) -> dict[str, object]:
    facts: dict[str, object] = {"user": seen.user, "directory": seen.presence.value}
    if seen.doomed:
        since = seen.since or now
        facts.update(since=when(since), due=when(since + store.settings.user_delay))
    return {**facts, "mailboxes": len(store.names(seen.user)), "octets": roots.quota(store, seen.user).octets,
            "action": action, **({"detail": seen.detail} if seen.detail else {})}


def _purge_built_in(invocation: Invocation, store: Store) -> int:
    """Those that `onecopy user remove` has removed: the server does it by itself, too."""
    users = list(due(store))
    rows = {user: {"user": user, "directory": "removed", "mailboxes": len(store.names(user)),
                   "octets": roots.quota(store, user).octets, "action": "remove"} for user in users}
    status = 0
    if users and not invocation.arguments.dry_run:
        invocation.confirm(f"Remove {', '.join(users)} and all their mail?")
        with invocation.begun(store, "user remove", {"users": users}, holds=users) as operation:
            status = each(users, lambda user: forget_user(store, user), operation)
        for user in users:
            rows[user]["action"] = "removed" if store.directory.find(user) is None else "failed"
    _print(invocation, list(rows.values()))
    return status


def _print(invocation: Invocation, rows: list[dict[str, object]]) -> None:
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table(rows, (*COLUMNS, *(("detail",) if any("detail" in row for row in rows) else ())))
