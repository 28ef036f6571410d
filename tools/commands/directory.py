"""onecopy directory flush, directory status"""

from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapprofiles import MapSettings
from store.accounts.ldap.ldapsettings import Settings
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json, print_table
from tools.cli.progressbar import counted
from tools.exits import Failure


def add(parser: Parsers) -> None:
    """Make the parsers."""
    parser("directory flush", flush, "have the server ask the directory anew about everybody, also about passwords")
    made = parser("directory status", status, "show whether the servers of the directory answer")
    made.add_argument("--json", action="store_true")


def flush(invocation: Invocation) -> int:
    """onecopy directory flush"""
    with invocation.store() as store:
        store.directory.flush()
    return 0


def status(invocation: Invocation) -> int:
    """onecopy directory status: 1 if one does not answer."""
    settings = invocation.config.settings("directory", Settings)
    if not settings.uris:
        raise Failure("the users are in the built-in directory (directory.uris is empty)")
    base = invocation.config.settings("directory", MapSettings).base
    try:
        servers = Servers(settings)
    except (OSError, ValueError) as error:
        raise Failure(f"directory: {error}") from None
    rows: list[dict[str, object]] = [
        {"server": uri, "answers": not wrong, "milliseconds": round(seconds * 1000), "problem": wrong}
        for uri, seconds, wrong in counted(servers.try_each(base), "servers")]
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table(rows, ("server", "answers", "milliseconds", *(("problem",) if any(
            row["problem"] for row in rows) else ())))
    return 0 if all(row["answers"] for row in rows) else 1
