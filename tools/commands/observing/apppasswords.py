"""onecopy access list, access create, access revoke, access reset"""

import shlex
import time
from typing import Any

from store.accounts.apppasswords import apppassword
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.apppasswords.accessrecord import Access
from store.accounts.apppasswords.apppassword import SERVICES
from store.errors import Problem, StoreError
from store.users.accesschanges import change_access
from store.values import duration
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.lookup import account
from tools.cli.output import print_json, print_table, when
from tools.exits import Failure

_USER = "a user id, or an address of the user"


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("access list", show, "list app passwords, without what their owners must show, and who has a second "
                                       "factor for the console")
    made.add_argument("user", metavar="USER", nargs="?", help="default: everybody")
    made.add_argument("--json", action="store_true")
    made = parser("access create", create, "make an app password for a mail program and print it, once: only its "
                                           "digest is kept")
    made.add_argument("user", metavar="USER", help=_USER)
    made.add_argument("--name", required=True, help="what it is for, such as the device")
    made.add_argument("--service", dest="services", action="append", choices=SERVICES,
                      help="a service for which it is; can be repeated; default: all")
    made.add_argument("--read-only", action="store_true", help="who logs in by it can change nothing")
    made.add_argument("--for", dest="time", metavar="TIME", type=typed(duration), help="how long it holds, such as "
                                                                                        "90d; default: for ever")
    made.add_argument("--json", action="store_true")
    made = parser("access revoke", revoke, "have app passwords hold no longer, and end the sessions that they have "
                                           "opened; exit status 1 if there is none of such an id")
    made.add_argument("user", metavar="USER", help=_USER)
    made.add_argument("ids", metavar="ID", nargs="*", help="its id, as access list has it")
    made.add_argument("--all", action="store_true", help="all of the user's")
    made = parser("access reset", reset, "take a user's second factor away: security keys, codes and recovery codes; "
                                         "the app passwords stay, unless they are damaged, or of nobody. Exit status 1 "
                                         "if there is none")
    made.add_argument("user", metavar="USER", help=f"{_USER}; or a damaged file, as check names it")


def show(invocation: Invocation) -> int:
    """onecopy access list"""
    files = AccessFiles(invocation.config.root)
    if invocation.arguments.user is None:
        found = sorted(files.all(), key=lambda each: each.user)
    else:
        with invocation.store() as store:
            found = [files.of(account(store, invocation.arguments.user).user)]
    if invocation.arguments.json:
        print_json([_shown(each) for each in found])
        return 0
    now = time.time()
    print_table([row for each in found for row in _rows(each, now)],
                ("user", "id", "kind", "name", "for", "created", "used", "until"))
    return 0


def _shown(access: Access) -> dict[str, Any]:
    totp = access.totp
    return {"user": access.user, "app_passwords": [each.shown() for each in access.passwords],
            "totp": None if totp is None else {"created": totp.created},
            "security_keys": [{"id": each.id, "name": each.name, "created": each.created, "used": each.used}
                              for each in access.keys],
            "recovery_codes": len(access.recovery)}


def _rows(access: Access, now: float) -> list[dict[str, Any]]:
    def row(kind: str, created: int, **more: Any) -> dict[str, Any]:
        return {"user": access.user, "id": "-", "kind": kind, "name": "-", "for": "console", "created": when(created),
                "used": "-", "until": "-", **more}

    def used(at: int) -> str:
        return when(at) if at else "never"

    rows = [row("app password", each.created, id=each.id, name=each.name, used=used(each.used), until=(
        "-" if each.until is None else when(each.until) if each.holds(now) else f"ended {when(each.until)}"),
        **{"for": ",".join(each.services) + (", reading" if each.read_only else "")}) for each in access.passwords]
    if access.totp is not None:
        rows.append(row("codes", access.totp.created))
    rows += [row("security key", each.created, name=each.name, used=used(each.used)) for each in access.keys]
    return rows


def create(invocation: Invocation) -> int:
    """onecopy access create"""
    arguments = invocation.arguments
    now = time.time()
    made, shown = apppassword.make(arguments.name, arguments.services or SERVICES, read_only=arguments.read_only,
                                   now=now, until=None if arguments.time is None else now + arguments.time)
    with invocation.store() as store:
        user = account(store, arguments.user).user
        change_access(store, user, lambda before: before.with_password(made, now))
    if arguments.json:
        print_json({"user": user, **made.shown(), "password": shown})
    else:
        print(shown)
    return 0


def revoke(invocation: Invocation) -> int:
    """onecopy access revoke"""
    arguments = invocation.arguments
    if bool(arguments.ids) == arguments.all:
        raise Failure("name the ids of app passwords, or give --all")
    gone: list[str] = []

    def without(before: Access) -> Access:
        gone[:] = [each.id for each in before.passwords if arguments.all or each.id in arguments.ids]
        return before.without_passwords(gone)

    with invocation.store() as store:
        user = account(store, arguments.user).user
        change_access(store, user, without)
    if missing := sorted(set(arguments.ids) - set(gone)):
        raise Failure(f"{user} has no app password {', '.join(missing)} (onecopy access list "
                      f"{shlex.quote(user)} shows what there is)", 1)
    if not gone:
        raise Failure(f"{user} has no app password", 1)
    return 0


def reset(invocation: Invocation) -> int:
    """onecopy access reset"""
    had: list[bool] = []

    def without(before: Access) -> Access:
        had[:] = [before.has_second_factor]
        return before.without_second_factor()

    with invocation.store() as store:
        user, files = invocation.arguments.user, AccessFiles(store.root)
        try:
            user = account(store, user).user
            if files.remove_damaged(files.path(user).name):
                store.directory.noticed(user)
                return 0
        except StoreError as error:
            if error.problem is not Problem.NO_USER or not _left_by(files, user):
                raise
            return 0
        change_access(store, user, without)
    if had != [True]:
        raise Failure(f"{user} has no second factor", 1)
    return 0


def _left_by(files: AccessFiles, name: str) -> bool:
    """Whether there was something of nobody, which is gone now: of a user id, or a damaged file, which has no name but
    that of the file."""
    left = files.path(name).name in files.names()
    files.remove(name)
    return left or files.remove_damaged(name)
