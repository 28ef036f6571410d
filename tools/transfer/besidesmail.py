"""What a user has besides messages comes along: rights, annotations, subscriptions, Sieve scripts, limits of quota.

All of it can be done again: what is here already, and is the same, is not written. What cannot be taken is one line,
and stops nothing else. All rights, annotations or subscriptions are on disk by one sync.
"""

from collections.abc import Mapping

from mboxlist.acl import RIGHTS
from mboxlist.annotations import MAX_ENTRIES, OURS, PRIVATE, is_legal
from mboxlist.entry import MailboxEntry
from store.accounts.base import Account
from store.errors import Problem, StoreError
from store.filtering import userscripts
from store.filtering.sievesettings import Settings
from store.filtering.userscripts import Refusal, ScriptRefused
from store.filtering.usersettings import settings_of
from store.mailboxes import authorization, subscribing
from store.problems import problems
from store.quota import roots
from store.sieve.scriptproblems import ScriptProblem
from store.store import Store
from tools.transfer.sourcevalues import Limits, OldScript, Source, Unreadable, Warn

# What Cyrus and Dovecot say in annotations of how they keep a mailbox; special use comes with the mailbox itself.
_OF_THE_SERVER = ("/vendor/cmu/", "/vendor/vendor.dovecot/")
_OPTIONS = {Refusal.QUOTA_MAXSCRIPTS: " (sieve.scripts)", Refusal.QUOTA_MAXSIZE: " (sieve.script_size)"}
_ADMINISTRATORS = "administrators"      # as Courier calls its own, who have all rights on every mailbox
_SPECIAL_USE = ("/private/specialuse", "/shared/specialuse")


def share(store: Store, entry: MailboxEntry, acl: Mapping[str, str], warn: Warn) -> None:
    """Rights of others; Dovecot says user=, group= and authenticated. Whom the server itself names is nobody here."""
    for identifier, held in acl.items():
        name = {"authenticated": "anyone"}.get(identifier, identifier)
        name = name.removeprefix("user=") if name.startswith("user=") else name
        name = name.replace("group=", "group:", 1) if name.startswith(("group=", "-group=")) else name
        letters = "".join(letter for letter in RIGHTS if letter in held)
        if name in (entry.name.owner, "owner", "") or not letters or entry.acl.get(name) == letters:
            continue
        try:
            authorization.set_acl(store, entry.name, name, letters, durable=False)
        except StoreError as error:
            if (error.problem, name) != (Problem.NO_USER, _ADMINISTRATORS):
                warn(f"{entry.name.path}: {identifier} {held}: {error.public}")
    _keep(store)


def annotate(store: Store, entry: MailboxEntry, values: Mapping[str, bytes], warn: Warn) -> None:
    """Annotations of a mailbox (RFC 5464), but for those by which a server itself goes. Of a public mailbox nobody has
    any of his own."""
    taken = sum(1 for _ in store.mailboxes.annotations.of(entry.id))
    for name, value in values.items():
        private = name.startswith(PRIVATE)
        user = entry.name.owner if private else ""
        if private and not user or name in _SPECIAL_USE or name.startswith(OURS) or any(
                part in name for part in _OF_THE_SERVER) or not is_legal(name, private=private):
            continue
        known = store.mailboxes.annotations.get(entry.id, name, user)
        if known == value:
            continue
        if known is None and taken >= MAX_ENTRIES:
            warn(f"{entry.name.path}: {name}: it has as many annotations as may be: no more of them come")
            break
        try:
            authorization.annotate_all(store, entry, {(name, user): value}, durable=False)
            taken += known is None
        except StoreError as error:
            warn(f"{entry.name.path}: {name}: {error.public}")
    _keep(store)


@problems()
def _keep(store: Store) -> None:
    """Have on disk what has been changed in the list of mailboxes. Raises StoreError."""
    store.mailboxes.env.flush_new()


def subscribe(store: Store, user: str, source: Source, warn: Warn) -> None:
    """What the user is subscribed to. Raises Unreadable."""
    known = set(subscribing.subscriptions(store, user))
    for name in source.subscriptions():
        if name in known:
            continue
        try:
            subscribing.subscribe(store, user, name, durable=False)
        except StoreError as error:
            warn(f"{name}: no subscription: {error.public}")
    _keep(store)


def keep_scripts(store: Store, account: Account, source: Source, settings: Settings, warn: Warn, *,
                 dry_run: bool = False) -> None:
    """The user's Sieve scripts, each in the place of one of that name; the one that is active there is active here, if
    it is understood. It comes first: no more scripts come than the user may have, as the domain's and the user's own
    settings say, too. In a dry run they are only looked at. Raises StoreError, Unreadable."""
    settings = settings_of(store, settings, account.user)
    here = {one.name: one for one in userscripts.of_user(store.mailboxes, account.user)}
    names = set(here)
    for script in sorted(source.scripts(), key=lambda one: not one.active):
        try:
            userscripts.check_name(script.name)
            if script.problem:
                raise Unreadable(script.problem)
            if dry_run:
                userscripts.check(script.text, settings)
                if script.name not in names and len(names) >= settings.scripts:
                    raise ScriptRefused(Refusal.QUOTA_MAXSCRIPTS, settings.scripts)
            else:
                _keep_script(store, account, script, here.get(script.name), settings)
            names.add(script.name)
        except (ScriptProblem, ScriptRefused, Unreadable) as problem:
            option = _OPTIONS.get(problem.refusal, "") if isinstance(problem, ScriptRefused) else ""
            warn(f"the Sieve script {script.name}{' (the active one)' if script.active else ''}: {problem}{option}")


def _keep_script(store: Store, account: Account, script: OldScript, here: userscripts.UserScript | None,
          settings: Settings) -> None:
    if here is None or here.text != script.text:
        userscripts.put(store, account, script.name, script.text, settings)
    if script.active and not (here and here.active):
        userscripts.activate(store, account.user, script.name)


def limit(store: Store, user: str, limits: Limits) -> None:
    """The user's limits of quota; what is without a limit there stays as it is here. Raises StoreError."""
    held = roots.quota(store, user).limits(store.settings)
    wanted = (limits.octets, limits.messages)
    if any(limit not in (None, now) for limit, now in zip(wanted, held, strict=True)):
        roots.set_quota(store, user, *wanted)
