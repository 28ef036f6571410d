"""onecopy sieve show"""

from typing import Any

from store.accounts.sieverules import READERS
from store.filtering import userscripts
from store.filtering.sievesettings import Settings
from store.filtering.sitescripts import AFTER, BEFORE, INSTEAD, SiteScripts
from store.filtering.usersettings import origins, settings_of
from store.quota.overview import Overview
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import account
from tools.cli.output import print_facts, print_json, printable

DIRECTORY = "the directory's script"


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("sieve show", show, "show what holds for a user's Sieve scripts, where each value comes from, and "
                                      "which scripts run for mail that comes, in order")
    made.add_argument("user", metavar="USER")
    made.add_argument("--json", action="store_true")


def show(invocation: Invocation) -> int:
    """onecopy sieve show"""
    configured = invocation.config.settings("sieve", Settings)
    with invocation.overview() as store:
        user = account(store, invocation.arguments.user).user
        settings, said = settings_of(store, configured, user), origins(store, user)
        facts: dict[str, Any] = {name: getattr(settings, name) for name in READERS}
        facts["runs"] = running(store, settings, user)
    if invocation.arguments.json:
        print_json({**facts, "origins": said})
    else:
        print_facts({**facts, "runs": [printable(name) for name in facts["runs"]]}, said)
    return 0


def running(store: Overview, settings: Settings, user: str) -> list[str]:
    """The names of the scripts that run for the user, in order: the site's by their files."""
    if not settings.enabled:
        return []
    domain, site = store.directory.domain(user), SiteScripts(settings.folder)
    return [*site.names(BEFORE, domain), *_own(store, settings, user, site.names(INSTEAD, domain)),
            *site.names(AFTER, domain)]


def _own(store: Overview, settings: Settings, user: str, instead: list[str]) -> list[str]:
    active = next((one.name for one in userscripts.of_user(store.mailboxes, user) if one.active and settings.own), None)
    if active is not None:
        return [f"the script {active}"]
    return [DIRECTORY] if userscripts.of_directory(store.mailboxes, user) is not None else instead
