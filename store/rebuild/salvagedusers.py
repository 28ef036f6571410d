"""The accounts of a store that has lost its list: those that can still be read, and what stands for the others."""

import contextlib
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from mboxlist.engine.btree import Txn, salvage
from mboxlist.engine.transact import Failure, transact
from mboxlist.table import MailboxList
from store.accounts.base import Account, Status
from store.accounts.builtin import NO_PASSWORD, BuiltinDirectory, User
from store.errors import StoreError
from store.partition.partition import snapshot_time
from store.rebuild.userareascan import Source
from store.userarea.directoryfile import DirectoryRows
from store.userarea.idxreading import read_account
from store.values import Finding, Repair

log = logging.getLogger(__name__)

def salvage_users(table: Path) -> list[User]:
    """The rows of the built-in directory that can be read in its table, `users.db`, which has lost its log and all
    else; the last changes may be missing."""
    found = []
    try:
        for key, data in salvage(table):
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                found.append(User.from_bytes(key.decode(), data))
    except Failure as error:
        log.warning("%s cannot be read to its end: %s", table, error)
    return found


def account_in(path: Path, owner: str) -> User | None:
    """The account that the `store.idx` of an INBOX has; None when there is none, or what only stands for one."""
    data = read_account(path)
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        user = User.from_bytes(owner, data) if data else None
        return None if user is None or user.is_lost else user
    return None


def add_users(directory: BuiltinDirectory, found: Iterable[Source], users: Iterable[User], findings: list[Finding], *,
              replace_since: int | None = None) -> None:
    """The accounts that the user area has, at most a minute old; those that the caller brings; and an inactive one for
    each other owner of a mailbox. Who is there stays, unless files that were written since then (ns) are to replace it.
    """
    mailboxes = sorted((source for source in found if source.name.owner and not source.head.removed),
                       key=lambda source: source.name.is_inbox())
    partitions = {source.name.owner: source.partition for source in mailboxes}      # that of INBOX, if there is one
    rows = {user.account.user: user for user in users}
    kept = {source.name.owner: user for source in mailboxes if source.name.is_inbox()
            and (user := account_in(source.path, source.name.owner)) is not None}
    rows |= kept
    for owner, partition in partitions.items():
        if owner not in rows:
            rows[owner] = User(Account(owner, partition, Status.INACTIVE), NO_PASSWORD)
            findings.append(Finding("it is inactive, and has no password", f"user {owner}", Repair.SET_USER.of(owner)))
    newer = {source.name.owner for source in mailboxes if source.name.is_inbox() and replace_since is not None
             and source.head.written >= replace_since}
    known = {account.user for account in directory.all()}
    for owner, row in sorted(rows.items()):
        try:
            if owner not in known:
                directory.insert(row)
            elif owner in newer and owner in kept:
                directory.alter(owner, lambda old, row=row: row)        # type: ignore[misc]  # bound at once
        except StoreError as refusal:
            findings.append(Finding(f"it cannot be added: {refusal}", f"user {owner}", Repair.ADD_USER.of(owner)))


def take_in(mailboxes: MailboxList, directory: BuiltinDirectory, kept: DirectoryRows, found: Iterable[Source], *,
            replace: bool = False) -> None:
    """What no `store.idx` has (`userarea.directoryfile`), behind `add_users`: rules of domains, and what is kept of
    removed users. With `replace` what is there is older: accounts become what they were, and who has been removed since
    is not there again."""
    owners = {source.name.owner for source in found if not source.head.removed}
    for user, row in kept.rows.items() if replace else ():
        if user not in owners:
            with contextlib.suppress(StoreError):
                directory.alter(user, partial(_newer, User.from_bytes(user, row.encode())))
    for user in kept.gone if replace else ():
        if user not in owners and directory.user(user) is not None:
            directory.remove(user)
    there = dict(directory.domains.all())
    for domain in {*kept.domains, *kept.sieve, *(there if replace else ())}:
        if replace or domain not in there:
            directory.domains.set_access(domain, kept.domains.get(domain, ""))
            directory.domains.set_sieve(domain, kept.sieve.get(domain, ""))

    def work(txn: Txn) -> None:
        for user, row in kept.forgotten.items():
            if mailboxes.forgotten.get(user.encode(), txn) is None:
                mailboxes.forgotten.put(user.encode(), row.encode(), txn)

    transact(mailboxes.env, work)


def _newer(row: User, old: User) -> User:
    return row


def kept_accounts(root: Path) -> list[User]:
    """The accounts that are in a list that was set aside, or else in the newest snapshot that has any."""
    aside = sorted((path for why in ("damaged", "older") for path in root.glob(f"mboxlist.{why}-*/users.db")),
                   key=lambda path: path.parent.name.rpartition("-")[2], reverse=True)
    taken = [path for path in root.glob("snapshots/*/mboxlist/users.db")
             if snapshot_time(path.parent.parent.name) is not None]
    for table in [*aside, *sorted(taken, reverse=True)]:
        users = salvage_users(table)
        if users:
            return users
    return []
