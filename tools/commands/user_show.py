"""onecopy user show"""

from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.passwords import kept_keys
from store.quota import roots
from store.users import lastuse
from store.users.origins import know, origins
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_facts, print_json
from tools.commands.quota import limits
from tools.commands.user_list import removal


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("user show", show_user, "show what a user has and may, and when the mail was last used")
    made.add_argument("user", metavar="USER")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


def show_user(invocation: Invocation) -> int:
    """onecopy user show"""
    with invocation.overview() as store:
        known = know(store, invocation.arguments.user)
        user = known.account
        use = roots.quota(store, user.user)
        facts: dict[str, object] = {
            "user": user.user, "status": user.status.value, **removal(store, user), "partition": user.partition,
            "groups": list(user.groups), "aliases": list(user.aliases),
            **({"access": user.access} if user.access else {}), **({"sieve": user.sieve} if user.sieve else {}),
            **({"host": user.host} if user.host else {}),
            "mailboxes": len(store.names(user.user)),
            "messages": use.messages, "octets": use.octets, **limits(use, store.settings)}
        use_of_mail = lastuse.of_user(store.mailboxes, user.user)
        facts |= {"last_login": use_of_mail.login, "last_read": use_of_mail.read}
        row = store.directory.user(user.user)
        keys = kept_keys(row.password) if row is not None else ()
        login = invocation.config.settings("login", LoginSettings)
        if keys:
            facts["scram_keys"] = [name + ("" if name in login.kept_keys else " (not asked for)") for name in keys]
        said = origins(store, known, login, use)
    facts = {**facts, **({"problem": known.problem} if known.problem else {})}
    if invocation.arguments.json:
        print_json({**facts, "origins": said})
    else:
        print_facts(facts, said)
    return 0
