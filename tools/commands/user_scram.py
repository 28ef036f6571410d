"""onecopy user scram"""

from collections.abc import Iterable

from store.accounts.loginsettings import Settings as LoginSettings
from store.store import Store
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.lookup import account
from tools.cli.output import print_json, print_table


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("user scram", scram, "list users with keys of SCRAM beside their passwords, or remove the keys that "
                                       "login.scram_keys does not ask for")
    made.add_argument("users", nargs="*", metavar="USER", help="default: all")
    made.add_argument("--remove", action="store_true", help="take away what is not asked for; the passwords stay as "
                                                            "they are, and no session ends")
    made.add_argument("--dry-run", action="store_true", help="with --remove: only list whose keys would go")
    made.add_argument("--json", action="store_true")


def scram(invocation: Invocation) -> int:
    """onecopy user scram"""
    arguments, wanted = invocation.arguments, invocation.config.settings("login", LoginSettings).kept_keys
    with invocation.store() as store:
        named = {account(store, user).user for user in arguments.users}
        rows = [{"user": user, "keys": list(kept), "not_asked_for": [name for name in kept if name not in wanted]}
                for user, kept in store.directory.with_keys() if not named or user in named]
        if arguments.remove:
            rows = [row for row in rows if row["not_asked_for"]]
            if not arguments.dry_run:
                return each([str(row["user"]) for row in rows], lambda user: store.directory.drop_keys(user, wanted))
    if arguments.json:
        print_json(rows)
    else:
        print_table([{**row, "keys": ", ".join(row["keys"]), "not_asked_for": ", ".join(row["not_asked_for"])}
                     for row in rows], ("user", "keys", "not_asked_for"))
    return 0


def note(store: Store, wanted: Iterable[str]) -> str:
    """What `onecopy check` says of keys that are not asked for; "" when there are none."""
    count = sum(not set(kept) <= set(wanted) for _, kept in store.directory.with_keys())
    return (f"{count} users have keys of SCRAM that login.scram_keys does not ask for, from which passwords are easier "
            "to guess: `onecopy user scram --remove` takes them away") if count else ""
