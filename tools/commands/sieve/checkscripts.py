"""onecopy sieve check"""

from attrs import asdict

from store.filtering import userscripts, wrongscripts
from store.filtering.sievesettings import Settings
from store.filtering.userscripts import ScriptRefused
from store.sieve.scriptproblems import ScriptProblem
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import account
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import counted
from tools.commands.sieve.keepscripts import given
from tools.exits import Failure


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("sieve check", check, "say whether standard input is a script, and where it is wrong; with USER or "
                                        "--all, which scripts that are kept, or are the directory's or the site's, are "
                                        "none: exit status 1")
    made.add_argument("users", metavar="USER", nargs="*", help="the scripts of these users, and those that the "
                                                               "directory has for them")
    made.add_argument("--all", action="store_true", help="those of all users, and of the site")
    made.add_argument("--json", action="store_true")


def check(invocation: Invocation) -> int:
    """onecopy sieve check"""
    arguments = invocation.arguments
    if arguments.all and arguments.users:
        raise Failure("either USER or --all")
    return _check_kept(invocation) if arguments.all or arguments.users else _check_given(json=arguments.json)


def _check_given(*, json: bool) -> int:
    said = ""
    try:
        userscripts.check(given())
    except (ScriptProblem, ScriptRefused) as problem:
        said = str(problem)
    if json:
        print_json({"is_script": not said, "problem": said})
    elif said:
        raise Failure(said, 1)
    return int(bool(said))


def _check_kept(invocation: Invocation) -> int:
    arguments = invocation.arguments
    with invocation.overview() as store:
        users = [each.user for each in store.directory.all()] if arguments.all else [
            account(store, name).user for name in arguments.users]
        found = list(wrongscripts.of_users(store, counted(users, "users", len(users))))
    if arguments.all:
        found += wrongscripts.of_site(invocation.config.settings("sieve", Settings).folder)
    rows = [asdict(each) for each in found]
    if arguments.json:
        print_json(rows)
    elif rows:
        print_table([{**row, "runs": "yes" if row["runs"] else ""} for row in rows], ("script", "problem", "runs"))
    return int(bool(rows))
