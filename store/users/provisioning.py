"""What a directory says of a user besides who it is, written into the store: limits of the user and of the domain, and
the script that sorts the mail of a user who has none active.

Where the directory has attributes for limits it is the one that sets them: what was set by hand is set back when it is
asked next. Where a profile has no such attributes the store's own limits stay.
"""

import logging

from mboxlist.names import SEPARATOR
from store import hosting
from store.accounts.base import delivery_problem
from store.accounts.ldap.ldapentry import Found
from store.accounts.ldap.ldapquota import QuotaWish
from store.errors import StoreError
from store.filtering import userscripts
from store.filtering.userscripts import ScriptRefused
from store.mailboxes import firstuse
from store.quota import roots
from store.store import Store
from store.tables.quotatable import DEFAULT, DOMAIN, UNLIMITED

log = logging.getLogger(__name__)


def take_over_account(store: Store, found: Found) -> None:
    """Have the limits and the script of an account whose row is there be those that the directory wants; those of one
    that is on another back end are kept there. For a thread.

    What cannot be done now is tried again when the directory is asked next; a login or mail does not fail by it.
    """
    user, is_here = found.account.user, hosting.is_here(store, found.account)
    try:
        if is_here:
            _limit(store, user, found.quota.octets, found.quota.messages)
            _limit_mailboxes(store, user, found.quota)
        if found.domain:
            _limit_domain(store, DOMAIN + found.domain, found.domain_quota)
    except StoreError as error:
        log.warning("directory: the limits of %s could not be set: %s", user, error)
    try:
        if is_here:
            _set_script(store, found)
    except (StoreError, ScriptRefused) as error:
        log.warning("directory: the Sieve script of %s could not be set: %s", user, error)


def _set_script(store: Store, found: Found) -> None:
    """The first message of a new user is sorted, too: so one who is to have a script gets INBOX here."""
    if found.scripts and delivery_problem(found.account.status) is None:
        firstuse.inbox(store, found.account)
    userscripts.take_over(store, found.account.user, found.scripts)


def _limit(store: Store, root: str, octets: int | None, messages: int | None) -> None:
    use = roots.quota(store, root)
    if octets not in (None, use.octet_limit) or messages not in (None, use.message_limit):
        roots.set_quota(store, root, octets, messages)


def _limit_mailboxes(store: Store, user: str, wish: QuotaWish) -> None:
    """Have the user's quota roots be those that the directory names, if it names limits, and all can be read."""
    for path, octets, messages in wish.parts:
        root, has = user + SEPARATOR + path, _has_root(store, user + SEPARATOR + path)
        if has:
            _limit(store, root, octets, messages)
        else:
            roots.set_quota(store, root, UNLIMITED if octets is None else octets,
                            UNLIMITED if messages is None else messages)
    if wish.said and wish.octets is not None and wish.messages is not None:
        wanted = {user + SEPARATOR + path for path, _, _ in wish.parts}
        for root in _roots(store, user) - wanted:
            roots.remove_quota_root(store, root)


def _has_root(store: Store, root: str) -> bool:
    return any(partition.quotas.has(root) for partition in store.partitions.values())


def _roots(store: Store, user: str) -> set[str]:
    return {root for partition in store.partitions.values() for root in partition.quotas.roots_below(user)}


def _limit_domain(store: Store, root: str, wish: QuotaWish) -> None:
    """A domain has no default: without a limit of its own it has none."""
    octets, messages = (UNLIMITED if limit == DEFAULT else limit for limit in (wish.octets, wish.messages))
    _limit(store, root, octets, messages)
