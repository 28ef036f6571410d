"""Where each value of an account comes from: an attribute of the directory, the domain, a default, the store."""

from typing import TYPE_CHECKING, cast

from attrs import frozen

from store.accounts.base import Account
from store.errors import Problem, StoreError
from store.tables.quotatable import DEFAULT, QuotaUse

if TYPE_CHECKING:           # ldap3 is loaded only where there is an outside directory
    from store.accounts.ldap.ldapdirectory import LdapDirectory
    from store.accounts.ldap.ldapentry import Found
    from store.accounts.loginsettings import Settings as LoginSettings
    from store.quota.overview import Overview

BUILT_IN = "built-in directory"


@frozen
class Known:
    """An account, what an outside directory says of it now, and what is wrong with that."""

    account: Account
    found: "Found | None" = None
    problem: str = ""


def is_outside(store: "Overview", user: str) -> bool:
    """Whether an outside directory decides about that user."""
    return store.directory.remote and user not in getattr(store.directory, "local", ())


def know(store: "Overview", address: str) -> Known:
    """The account of an address, as the store has it, or as it would have it at the first use.

    Raises StoreError NO_USER, UNAVAILABLE.
    """
    row = store.directory.look_up(address)
    if not is_outside(store, row.user if row is not None else store.directory.user_id(address)):
        if row is None:
            raise StoreError(Problem.NO_USER, f"There is no user {address}")
        return Known(row)
    directory = cast("LdapDirectory", store.directory)
    try:
        found = directory.consult(address)
    except StoreError as error:
        if row is None:
            raise
        return Known(row, None, f"this is what it said before, now: {error.detail or error.public}")
    if found is None:
        if row is None:
            raise StoreError(Problem.NO_USER, f"There is no user {address}")
        return Known(row, None, "it has no such user any more: this is what it said before")
    return Known(directory.find(found.account.user) or found.account, found, "; ".join(found.warnings))


def origins(store: "Overview", known: Known, login: "LoginSettings", use: QuotaUse) -> dict[str, str]:
    """Of the values that `onecopy user show` tells, by their names there."""
    account, found = known.account, known.found
    outside = is_outside(store, account.user)
    before = "outside directory, as it was when it was asked last" if outside else BUILT_IN
    said = {name: before for name in ("user", "status", "partition", "groups", "aliases", "access", "host", "sieve")}
    if found is not None:
        said.update({name: found.origins[name] for name in said})
        if found.account.partition != account.partition:
            said["partition"] = f"store: new mailboxes are made there; the directory: {said['partition']}"
    elif not outside:
        said.update(_built_in(store, account, login))
    for name, limit, wish in (("octet_limit", use.octet_limit, found and found.quota.octets),
                              ("message_limit", use.message_limit, found and found.quota.messages)):
        field = "quota" if name == "octet_limit" else "message_quota"
        said[name] = f"default: store.default_{field}" if limit == DEFAULT else "store: onecopy quota set"
        if found is not None and wish is not None:
            said[name] = found.origins[field] + ("" if wish == limit else ", at the next use")
        elif found is not None and found.quota.said:
            said[name] = found.origins[field]
    return said


def _built_in(store: "Overview", account: Account, login: "LoginSettings") -> dict[str, str]:
    said = {name: "default: none" for name in ("groups", "aliases") if not getattr(account, name)}
    if not account.host:
        said["host"] = "default: the only back end"
    if not account.sieve:
        said["sieve"] = "its domain, else section [sieve]: onecopy sieve show"
    if not account.access:
        rules = store.directory.access_rules(account)
        said["access"] = ("its domain: onecopy user domain" if rules else
                          "default: login.access" if login.access else "default: everything may be used")
    return said
