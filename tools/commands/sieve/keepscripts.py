"""onecopy sieve list, sieve get, sieve put, sieve activate, sieve rename, sieve delete"""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mboxlist import privatefiles
from store.filtering import userscripts
from store.filtering.sievesettings import Settings
from store.filtering.userscripts import Refusal, ScriptRefused
from store.filtering.usersettings import settings_of
from store.sieve.scriptproblems import ScriptProblem
from tools.cli.elsewhere.argumentnames import STREAM
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import account
from tools.cli.output import print_json, print_table
from tools.exits import Failure


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("sieve list", show, "list a user's scripts, and which one is active")
    made.add_argument("user", metavar="USER")
    made.add_argument("--json", action="store_true")
    made = parser("sieve get", get, "print a script")
    made.add_argument("user", metavar="USER")
    made.add_argument("name", metavar="NAME")
    made.add_argument("--json", action="store_true")
    made = parser("sieve put", put, "keep a script, in the place of one of that name; exit status 1 if it is none")
    made.add_argument("user", metavar="USER")
    made.add_argument("name", metavar="NAME")
    made.add_argument("file", metavar="FILE", nargs="?", default=STREAM, help="where the script is; default: -, "
                      "standard input")
    made.add_argument("--activate", action="store_true", help="and have it run for mail that comes from now on")
    made = parser("sieve activate", activate, "have a script run for mail that comes from now on, and no other one")
    made.add_argument("user", metavar="USER")
    made.add_argument("name", metavar="NAME", nargs="?", default="", help="default: none runs")
    made = parser("sieve rename", rename, "give a script another name; the active one stays active")
    made.add_argument("user", metavar="USER")
    made.add_argument("name", metavar="NAME")
    made.add_argument("new", metavar="NEW")
    made = parser("sieve delete", delete, "remove a script that is not active")
    made.add_argument("user", metavar="USER")
    made.add_argument("name", metavar="NAME")


def given(file: str = STREAM) -> bytes:
    """What is in that file, or on standard input. Raises Failure."""
    if file != STREAM:
        try:
            return privatefiles.read_named(file)
        except OSError as error:
            raise Failure(f"{file}: {error.strerror or error}", 1) from None
    if sys.stdin is None:
        raise Failure("there is no standard input")
    return sys.stdin.buffer.read()


@contextmanager
def refusals_shown(user: str) -> Iterator[None]:
    """What is refused of this user's scripts becomes the program's error. Raises Failure."""
    try:
        yield
    except (ScriptProblem, ScriptRefused) as problem:
        help = getattr(problem, "refusal", None) is Refusal.NONEXISTENT
        advice = f" (onecopy sieve list {shlex.quote(user)} shows what there is)" if help else ""
        raise Failure(f"{problem}{advice}", 1) from None


def show(invocation: Invocation) -> int:
    """onecopy sieve list"""
    with invocation.overview() as store:
        scripts = userscripts.of_user(store.mailboxes, account(store, invocation.arguments.user).user)
    rows = [{"name": one.name, "octets": len(one.text), "active": one.active} for one in scripts]
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table([{**row, "active": "yes" if row["active"] else ""} for row in rows], ("name", "octets", "active"),
                    sizes=("octets",))
    return 0


def get(invocation: Invocation) -> int:
    """onecopy sieve get"""
    arguments = invocation.arguments
    with invocation.overview() as store, refusals_shown(invocation.arguments.user):
        found = userscripts.find(store.mailboxes, account(store, arguments.user).user, arguments.name)
    text = found.text.decode("utf-8", "replace")
    if arguments.json:
        print_json({"name": found.name, "active": found.active, "script": text})
    else:
        sys.stdout.write(text)
    return 0


def put(invocation: Invocation) -> int:
    """onecopy sieve put"""
    arguments = invocation.arguments
    text = given(arguments.file)
    with invocation.store() as store, refusals_shown(invocation.arguments.user):
        owner = account(store, arguments.user)
        settings = settings_of(store, invocation.config.settings("sieve", Settings), owner.user)
        userscripts.put(store, owner, arguments.name, text, settings)
        if arguments.activate:
            userscripts.activate(store, owner.user, arguments.name)
    return 0


def activate(invocation: Invocation) -> int:
    """onecopy sieve activate"""
    arguments = invocation.arguments
    with invocation.store() as store, refusals_shown(invocation.arguments.user):
        userscripts.activate(store, account(store, arguments.user).user, arguments.name)
    return 0


def rename(invocation: Invocation) -> int:
    """onecopy sieve rename"""
    arguments = invocation.arguments
    with invocation.store() as store, refusals_shown(invocation.arguments.user):
        userscripts.rename(store, account(store, arguments.user).user, arguments.name, arguments.new)
    return 0


def delete(invocation: Invocation) -> int:
    """onecopy sieve delete"""
    arguments = invocation.arguments
    with invocation.store() as store, refusals_shown(invocation.arguments.user):
        userscripts.delete(store, account(store, arguments.user).user, arguments.name)
    return 0
