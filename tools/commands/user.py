"""onecopy user add|set|scram|domain|rename|remove"""

import argparse
import getpass
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import evolve

from mboxlist import privatefiles
from mboxlist.acl import GROUP, AclProblem, parse_identifier
from store.accounts import sieverules
from store.accounts.accessrules import BadRule, Rules
from store.accounts.base import Status
from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.passwords import hash_password, is_hash
from store.accounts.sieverules import BadSieveRule
from store.addresses import canonical_domain
from store.errors import Problem, StoreError
from store.store import Store
from store.users import lifecycle, newuser, renaming, restorable
from store.users.newuser import NewUser
from store.users.origins import is_outside
from store.values import Secret
from tools.cli.invocation import Invocation, Parsers, each
from tools.cli.lookup import account
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import bar, changing_bar
from tools.exits import Failure
from tools.transfer import userfiles
from tools.transfer.sourcevalues import Unreadable

LONGEST_PASSWORD = 1024
LONGEST_HOST = 253
_HOST = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z_.-]*[0-9A-Za-z])?")


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("user add", add_users, "make users; all given here get the same password")
    made.add_argument("users", nargs="*", metavar="USER", help="name, or name@domain outside the default domain")
    made.add_argument("--users", dest="file", type=Path, metavar="FILE",
                      help="a CSV file (-: standard input) with a line for each user: name, password, partition, back "
                           "end, and aliases with spaces between them; what is missing is as without it. Who is there "
                           "already stays as is")
    made.add_argument("--hashed", action="store_true",
                      help="the passwords in FILE are hashes as onecopy keeps them: scrypt$14$8$1$SALT$KEY")
    made.add_argument("--partition", metavar="NAME", help="where their mail will be (store.default_partition)")
    made.add_argument("--alias", dest="aliases", action="append", default=[], metavar="ADDRESS",
                      help="one more address, to get mail by, not to log in; for one user; can be repeated")
    made.add_argument("--host", type=_host, metavar="NAME",
                      help="the back end that keeps their mail; default: there is only this one")
    _password_options(made)
    made = parser("user set", set_user, "change a user's password, status, groups, aliases, access, host, or what "
                                        "holds for the user's Sieve scripts")
    made.add_argument("user", metavar="USER")
    made.add_argument("--status", choices=[status.value for status in Status if status is not Status.REMOVED],
                      help="whether the user can log in, and what becomes of mail that comes")
    groups = made.add_mutually_exclusive_group()
    groups.add_argument("--group", dest="groups", action="append", metavar="NAME",
                        help="be in this group (group:NAME in access control lists) and in no other; can be repeated")
    groups.add_argument("--no-groups", dest="groups", action="store_const", const=[], help="be in no group")
    aliases = made.add_mutually_exclusive_group()
    aliases.add_argument("--alias", dest="aliases", action="append", metavar="ADDRESS",
                         help="have this further address and no other, to get mail by, not to log in; can be repeated")
    aliases.add_argument("--no-aliases", dest="aliases", action="store_const", const=[], help="have no further address")
    _access_options(made, "the user")
    _sieve_options(made)
    hosts = made.add_mutually_exclusive_group()
    hosts.add_argument("--host", type=_host, metavar="NAME",
                       help="the back end that keeps the user's mail from now on; no mail is moved")
    hosts.add_argument("--no-host", dest="host", action="store_const", const="", help="there is only this back end")
    made.add_argument("--password", action="store_true", help="ask for a new password")
    _password_options(made)
    _add_others(parser)


def _add_others(parser: Parsers) -> None:
    """Make the parsers of what is not about one user's own row."""
    made = parser("user scram", scram, "list users with keys of SCRAM beside their passwords, or remove the keys that "
                                       "login.scram_keys does not ask for")
    made.add_argument("users", nargs="*", metavar="USER", help="default: all")
    made.add_argument("--remove", action="store_true", help="take away what is not asked for; the passwords stay as "
                                                            "they are, and no session ends")
    made.add_argument("--dry-run", action="store_true", help="with --remove: only list whose keys would go")
    made.add_argument("--json", action="store_true")
    made = parser("user domain", set_domain, "show or change what holds for a domain's users who have nothing else")
    made.add_argument("domain", metavar="DOMAIN", nargs="?", help="default: show all that have something")
    _access_options(made, "they")
    _sieve_options(made)
    made.add_argument("--json", action="store_true")
    made = parser("user rename", rename_user, "give a user another name; all that the user has comes along")
    made.add_argument("old", metavar="OLD")
    made.add_argument("new", metavar="NEW")
    made = parser("user remove", remove_users, "remove users: no login and no mail from now on, and after a delay "
                  "(store.user_delay) all their mail goes; user undelete brings them back until then, and for "
                  "store.purge_delay after it")
    made.add_argument("users", nargs="+", metavar="USER")
    made.add_argument("--now", action="store_true", help="at once; mailboxes can still be restored one by one")
    made.add_argument("--yes", action="store_true", help="do not ask")


def _access_options(parser: argparse.ArgumentParser, who: str) -> None:
    access = parser.add_mutually_exclusive_group()
    access.add_argument("--access", type=_rules, metavar="RULES",
                        help=f"which services {who} may use from where: --access='+imap,pop:10.0.0.0/8$-ALL:*'")
    access.add_argument("--no-access-rules", dest="access", action="store_const", const="", help="have no such rules")


def _sieve_options(parser: argparse.ArgumentParser) -> None:
    sieve = parser.add_mutually_exclusive_group()
    sieve.add_argument("--sieve", type=_sieve_rules, metavar="SETTINGS",
                       help="other values of settings of [sieve], with spaces between: 'own=no redirects=0 "
                            "vacation_least=7d'; enabled=no switches Sieve off")
    sieve.add_argument("--no-sieve-settings", dest="sieve", action="store_const", const="", help="have none")


def _sieve_rules(text: str) -> str:
    try:
        if not sieverules.parse(text):
            raise argparse.ArgumentTypeError("there are no settings; give --no-sieve-settings to have none")
    except BadSieveRule as error:
        raise argparse.ArgumentTypeError(f"not settings of Sieve: {error}") from None
    return " ".join(text.split())


def _rules(text: str) -> str:
    try:
        Rules.parse(text)
    except BadRule as error:
        raise argparse.ArgumentTypeError(f"not access rules: {error}") from None
    if not text.strip():
        raise argparse.ArgumentTypeError("there are no rules; give --no-access-rules to have none")
    return text.strip()


def _host(text: str) -> str:
    """The name of a back end as the directory has it."""
    if len(text) > LONGEST_HOST or not _HOST.fullmatch(text):
        raise argparse.ArgumentTypeError("not the name of a host")
    return text.lower()


def _password_options(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--password-file", type=Path, metavar="FILE", help="the password is the file's first line")
    source.add_argument("--password-stdin", action="store_true", help="the same of standard input")


def read_password(invocation: Invocation) -> Secret:
    """The password, from where the options say or from the person. Raises Failure."""
    arguments = invocation.arguments
    if arguments.password_file is not None:
        try:
            with privatefiles.open_named(arguments.password_file) as stream:
                return _password(stream.readline(LONGEST_PASSWORD + 2))
        except OSError as error:
            raise Failure(f"{arguments.password_file}: {error.strerror}") from None
    if arguments.password_stdin:
        return _password(sys.stdin.buffer.readline(LONGEST_PASSWORD + 2) if sys.stdin else b"")
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failure("no password: give it with --password-file or --password-stdin")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise Failure("the two passwords are not the same")
    return _password(first.encode())


def _password(line: bytes) -> Secret:
    password = line.rstrip(b"\r\n")
    if not password:
        raise Failure("the password is empty")
    if len(password) > LONGEST_PASSWORD or b"\0" in password:
        raise Failure(f"the password is longer than {LONGEST_PASSWORD} octets, or has a NUL in it")
    return Secret(password)


def add_users(invocation: Invocation) -> int:
    """onecopy user add"""
    arguments = invocation.arguments
    if bool(arguments.users) == (arguments.file is not None):
        raise Failure("either USER or --users")
    if arguments.file is not None:
        return _add_users_of(invocation, arguments.file)
    if arguments.aliases and len(arguments.users) > 1:
        raise Failure("an alias is an address of one user: add the users one by one")
    if arguments.hashed:
        raise Failure("--hashed is about the passwords of --users")
    password = read_password(invocation)
    with invocation.store() as store:
        for user in arguments.users:
            _require_ours(store, user)
        return each(arguments.users, lambda user: _added(store, user, _hashed(invocation, password), arguments))


def _add_users_of(invocation: Invocation, file: Path) -> int:
    """Those that a file names, some at a time: when it is cut off what is done stays, and is not done again."""
    hashed, done, there, refused = invocation.arguments.hashed, 0, 0, 0
    if invocation.arguments.aliases:
        raise Failure("an alias is an address of one user: name it in the file")
    if file == userfiles.STREAM and invocation.arguments.password_stdin:
        raise Failure("standard input has the users: the password cannot be there, too")
    users = _named_in(invocation, file)
    with invocation.store() as store, bar("users", lambda: len(users)) as tell:
        for user in users:
            _require_ours(store, user.address)
        try:
            for added in newuser.add_users(store, users, lambda secret: secret.reveal().decode() if hashed
                                           else _hashed(invocation, secret)):
                for address, refusal in added.refused.items():
                    print(f"onecopy: {address}: {refusal.public}", file=sys.stderr)
                done, there, refused = done + added.added, there + added.there, refused + len(added.refused)
                tell(done + there + refused)
        except BaseException as error:
            left = f"{done + there + refused} of {len(users)} are done: run the command again for the others"
            error.add_note(left)
            if isinstance(error, KeyboardInterrupt):
                print(f"onecopy: {left}", file=sys.stderr)
            raise
    print(f"{done} added" + (f", {there} were there already, and are as they were" if there else ""))
    return int(refused > 0)


def _named_in(invocation: Invocation, file: Path) -> list[NewUser]:
    """The users of a file, each with a password, or a hash of one. Raises Failure."""
    arguments = invocation.arguments
    try:
        found = userfiles.new_users(file, arguments.partition, arguments.host or "")
    except Unreadable as problem:
        raise Failure(str(problem)) from None
    for user in found:
        if arguments.hashed and not is_hash(user.secret.reveal().decode()):
            raise Failure(f"{user.address}: that is no hash of a password")
    if any(not user.secret.reveal() for user in found):
        shared = read_password(invocation)
        found = [user if user.secret.reveal() else evolve(user, secret=shared) for user in found]
    return [evolve(user, secret=_password(user.secret.reveal())) for user in found]


def _require_ours(store: Store, address: str) -> None:
    """Raises Failure for a user about whom an outside directory decides: it would say otherwise at the next look."""
    user = store.directory.user_id(address)
    if is_outside(store, user):
        raise Failure(f"{user} is kept in an outside directory: change it there (or name it in directory.local)")


def _added(store: Store, user: str, password_hash: str, arguments: argparse.Namespace) -> None:
    newuser.add_user(store, user, password_hash, arguments.partition, arguments.aliases, arguments.host or "")


def _hashed(invocation: Invocation, password: Secret) -> str:
    """As it is stored; with those keys of SCRAM that are asked for."""
    return hash_password(password, sorted(invocation.config.settings("login", LoginSettings).kept_keys))


def set_user(invocation: Invocation) -> int:
    """onecopy user set"""
    arguments = invocation.arguments
    password_hash = None
    if arguments.password or arguments.password_file is not None or arguments.password_stdin:
        password_hash = _hashed(invocation, read_password(invocation))
    elif all(each is None for each in (arguments.status, arguments.groups, arguments.aliases, arguments.access,
                                       arguments.host, arguments.sieve)):
        raise Failure("nothing to change: give --status, --group, --no-groups, --alias, --no-aliases, --access, "
                      "--no-access-rules, --host, --no-host, --sieve, --no-sieve-settings, --password, --password-file "
                      "or --password-stdin")
    groups = None if arguments.groups is None else _groups(arguments.groups)
    with invocation.store() as store:
        user = account(store, arguments.user)
        _require_ours(store, user.user)
        store.directory.change(user.user, password_hash=password_hash, groups=groups, aliases=arguments.aliases,
                                status=Status(arguments.status) if arguments.status else None,
                                access=arguments.access, host=arguments.host, sieve=arguments.sieve)
    return 0


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


def note_on_keys(store: Store, wanted: Iterable[str]) -> str:
    """What `onecopy check` says of keys that are not asked for; "" when there are none."""
    count = sum(not set(kept) <= set(wanted) for _, kept in store.directory.with_keys())
    return (f"{count} users have keys of SCRAM that login.scram_keys does not ask for, from which passwords are easier "
            "to guess: `onecopy user scram --remove` takes them away") if count else ""


def set_domain(invocation: Invocation) -> int:
    """onecopy user domain"""
    arguments = invocation.arguments
    changes = arguments.access is not None or arguments.sieve is not None
    if arguments.domain is None and changes:
        raise Failure("which domain?")
    with invocation.store() as store:
        rules = store.directory.domains
        try:
            if arguments.access is not None:
                rules.set_access(arguments.domain, arguments.access)
            if arguments.sieve is not None:
                rules.set_sieve(arguments.domain, arguments.sieve)
            if changes:
                return 0
            found = list(rules.all()) if arguments.domain is None else [
                (canonical_domain(arguments.domain), rules.row(arguments.domain))]
        except ValueError as error:
            raise Failure(f"{arguments.domain}: {error}") from None
    rows = [{"domain": domain, "access": row.access, "sieve": row.sieve} for domain, row in found]
    if arguments.json:
        print_json(rows)
    else:
        print_table(rows, ("domain", "access", "sieve"))
    return 0


def _groups(names: Sequence[str]) -> list[str]:
    """The groups in order, each once. Raises Failure."""
    for name in names:
        try:
            parse_identifier(GROUP + name)
        except AclProblem as problem:
            raise Failure(f"{name}: {problem}") from None
    return sorted(set(names))


def remove_users(invocation: Invocation) -> int:
    """onecopy user remove"""
    users = invocation.arguments.users
    with invocation.store() as store:
        if not invocation.arguments.now:
            for user in users:
                _require_ours(store, user)
        invocation.confirm(f"Remove {', '.join(users)} and all their mail?", final=invocation.arguments.now)
        if not invocation.arguments.now:
            invocation.finish_first(store, "user remove", [store.directory.user_id(user) for user in users])
            return each(users, lambda user: lifecycle.remove_user(store, _own_name(store, user)))
        ids = [store.directory.user_id(user) for user in users]
        with invocation.begun(store, "user remove", {"users": ids}, holds=ids) as operation:
            return each(users, lambda user: restorable.forget_user(store, _own_name(store, user)), operation)


def _own_name(store: Store, address: str) -> str:
    """The user id, of which nothing is an alias: who removes that does not mean all of a user's mail.

    Raises StoreError NO_USER.
    """
    user = account(store, address).user
    if user != store.directory.user_id(address):
        raise StoreError(Problem.NO_USER, f"{address} is an alias of {user}: give the user's own name")
    return user


def rename_user(invocation: Invocation) -> int:
    """onecopy user rename"""
    with invocation.store() as store:
        names = store.directory
        old, new = names.user_id(invocation.arguments.old), names.user_id(invocation.arguments.new)
        with invocation.begun(store, "user rename", {"old": old, "new": new}, holds=[old, new]):
            with changing_bar() as tell:
                renaming.rename_user(store, old, new, tell)
    return 0
