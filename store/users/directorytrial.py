"""What would happen at a login with a name, or to mail to an address, and why: step by step. Changes nothing."""

from collections.abc import Sequence

from attrs import define, field

from store import hosting
from store.accounts.accessrules import BadRule, Rules
from store.accounts.base import Account, delivery_problem
from store.accounts.ldap.ldapdirectory import LdapDirectory
from store.accounts.ldap.ldapentry import Entry, Found, Search
from store.accounts.loginsettings import Settings as LoginSettings
from store.errors import Problem, StoreError
from store.quota import roots
from store.store import Store
from store.users.origins import BUILT_IN, Known, is_outside, origins
from store.values import Secret

SERVICES = ("imap", "pop")


@define
class Report:
    """What has been found out so far."""

    steps: list[dict[str, object]] = field(factory=list)
    values: dict[str, dict[str, object]] = field(factory=dict)
    login: dict[str, str] = field(factory=dict)         # by service: why not, "" if it is let in
    delivery: str = ""                                  # why not, "" if mail is taken
    problem: Problem | None = None                      # what servers answer then
    is_wrong: bool = False                              # the password that was to be tried

    def say(self, step: str, result: str) -> None:
        """One more step."""
        self.steps.append({"step": step, "result": result})

    def refuse(self, why: str, problem: Problem) -> None:
        """Neither the one nor the other."""
        self.login = dict.fromkeys(SERVICES, why)
        self.no_mail(why, problem)

    def no_mail(self, why: str, problem: Problem) -> None:
        """Mail is not taken."""
        self.delivery, self.problem = why, problem

    @property
    def good(self) -> bool:
        """Whether both would succeed."""
        return not self.delivery and not any(self.login.values()) and not self.is_wrong


def examine(store: Store, address: str, login: LoginSettings, peer: str, password: Secret | None = None) -> Report:
    """Go through all that a login and a delivery go through; nothing is changed."""
    report, name = Report(), store.directory.user_id(address)
    report.say("name", f"{address!r} is looked up as {name}" if name != "@" else f"{address!r} can be nobody's name")
    row = store.directory.look_up(address)
    found: Found | None = None
    if is_outside(store, row.user if row is not None else name):
        found = _consult(store, address, report, password)
        if found is None:
            return report
        account = found.account
        report.say("mirror", "the store has not met this user yet" if store.directory.find(account.user) is None else
                   "the store knows this user")
    elif row is None:
        report.say("look-up", f"the {BUILT_IN} has no such user")
        report.refuse("there is no such user", Problem.NO_USER)
        return report
    else:
        account = row
        report.say("look-up", f"the {BUILT_IN} has {account.user}")
        if password is not None:
            report.is_wrong = not _fits(store, address, password)
            report.say("password", "it is wrong, or the user may not log in" if report.is_wrong else "it is right")
    _note_values(store, account, found, login, report)
    _log_in(store, name, account, found, login, peer, report)
    _deliver(store, account, report)
    return report


def _consult(store: Store, address: str, report: Report, password: Secret | None) -> Found | None:
    """Ask the outside directory, and say each question; None: that was the end of it."""
    directory = store.directory
    assert isinstance(directory, LdapDirectory)
    dns: list[str] = []

    def asked(search: Search, entries: Sequence[Entry]) -> None:
        where = f"below {search.base or 'the root'}" if search.below else f"{search.base} itself"
        names = "; ".join(entry.dn for entry in entries) or "nothing"
        report.say("search", f"{search.filter} {where}: {names}")
        dns[:] = [entry.dn for entry in entries] if search.attributes == directory.profile.attributes else dns

    directory.asked = asked
    try:
        found = directory.consult(address)
        if found is not None and password is not None:
            right = bool(dns) and directory.servers.proves(dns[0], password)
            report.is_wrong = not right
            report.say("password", f"a bind as {dns[0] if dns else '?'} {'succeeds' if right else 'is refused'}")
    except StoreError as error:
        report.say("answer", error.detail or error.public)
        report.refuse(f"for now: {error.detail or error.public}", error.problem)
        return None
    finally:
        directory.asked = lambda search, entries: None
    if found is None:
        report.say("answer", "there is no such user")
        report.refuse("there is no such user", Problem.NO_USER)
        return None
    for warning in found.warnings:
        report.say("warning", warning)
    return found


def _fits(store: Store, address: str, password: Secret) -> bool:
    try:
        store.directory.authenticate(address, password)
    except StoreError:
        return False
    return True


def _note_values(store: Store, account: Account, found: Found | None, login: LoginSettings, report: Report) -> None:
    said = origins(store, Known(account, found), login, roots.quota(store, account.user))
    values: dict[str, object] = {
        "user": account.user, "status": account.status.value, "host": account.host, "partition": account.partition,
        "aliases": list(account.aliases), "groups": list(account.groups), "access": account.access,
        "sieve": account.sieve}
    if found is not None:
        values.update(octet_limit=found.quota.octets, message_limit=found.quota.messages)
        said["sieve_script"] = found.origins["sieve_script"]
        values["sieve_script"] = ", ".join(f"{len(text.encode())} octets" for text in found.scripts)
    else:
        use = roots.quota(store, account.user)
        values.update(octet_limit=use.octet_limit, message_limit=use.message_limit)
    report.values = {name: {"value": value, "origin": said[name]} for name, value in values.items()}


def _log_in(store: Store, name: str, account: Account, found: Found | None, login: LoginSettings, peer: str,
            report: Report) -> None:
    why = ""
    if name != account.user if found is None else name not in found.logins:
        names = sorted(found.logins) if found is not None else [account.user]
        why = f"{name} is an address of {account.user}, and no login name: {', '.join(names)}"
    elif not account.status.may_log_in:
        why = f"the status is {account.status.value}"
    elif not hosting.is_here(store, account):
        why = f"the mail is on {account.host}: the client is told so, or to come again"
    own = store.directory.access_rules(account)
    for service in SERVICES:
        report.login[service] = why or _denied(service, peer, {
            "login.service_access": login.service_access,
            "the user's or the domain's rules" if own else "login.access": own or login.access})


def _denied(service: str, peer: str, rules: dict[str, str]) -> str:
    for whose, text in rules.items():
        try:
            if not Rules.parse(text).allow(service, peer, secure=True):
                return f"{whose} deny it from {peer}: {text}"
        except BadRule as error:
            return f"{whose} cannot be read: {error}"
    return ""


def _deliver(store: Store, account: Account, report: Report) -> None:
    problem = delivery_problem(account.status)
    if problem is not None:
        report.no_mail(f"the status is {account.status.value}", problem)
        return
    if not hosting.is_here(store, account):
        report.no_mail(f"this is {store.settings.host}, and the mail is on {account.host}", Problem.ELSEWHERE)
        return
    try:
        partition = store.partition(account.partition)
        partition.check_room()
    except StoreError as error:
        report.no_mail(error.detail or error.public, error.problem)
        return
    inbox = next((entry for entry in store.names(account.user) if entry.name.is_inbox()), None)
    if inbox is not None and not roots.has_room(store, inbox, 1):
        report.no_mail("there is no room within the quota", Problem.OVER_QUOTA)
        return
    report.say("mailboxes", "INBOX is there" if inbox is not None else "INBOX will be made at the first use" + (
        f", with {', '.join(store.settings.special_names.values())}" if store.settings.special_mailboxes else ""))
