"""Operations on users that were cut off."""

import logging
from collections.abc import Iterable

from mboxlist.names import INBOX, MailboxName
from store import hosting
from store.accounts.base import Status
from store.errors import Problem, StoreError
from store.finishing.attempts import each, undone
from store.finishing.ofmail import NOTHING
from store.mailboxes import firstuse
from store.operations import operationrecord
from store.operations.operationrecord import Operation
from store.store import Store
from store.users import renaming, restorable

log = logging.getLogger(__name__)


def add(store: Store, operation: Operation) -> str:
    """A user who is in the directory gets an INBOX; the others would need the password, which is on no record."""
    made, missing = [], []
    for user in map(store.directory.user_id, operation.arguments["users"]):
        account = store.directory.find(user)
        if account is None:
            missing.append(user)
        else:
            if hosting.is_here(store, account):
                firstuse.inbox(store, account)
            made.append(user)
    return "; ".join(filter(None, (_all(made, "there"), _all(missing, "not added: add them again"))))


def rename(store: Store, operation: Operation) -> str:
    """Go on, if the list has the new name already; else nothing has happened, and it is done from the beginning."""
    old, new = operation.arguments["old"], operation.arguments["new"]
    row = store.directory.user(new)
    if row is not None and row.renamed_from == old:
        renaming.rename_user(store, old, new)
        return f"finished: {old} is {new}"
    if row is not None:
        return f"finished: {old} is {new}" if store.directory.user(old) is None else f"undone: there is a {new}"
    if not _is_meant(store, old, operation):
        return NOTHING
    try:
        renaming.rename_user(store, old, new)
    except StoreError as refusal:
        return undone(refusal)
    return f"finished: {old} is {new}"


def go_on_renaming(store: Store) -> None:
    """What only the databases know of: a snapshot was put back, or a standby promoted, in the middle of it. What fails
    is left to the next start, or to who does it again."""
    held = {name for some in operationrecord.under_way(store.root) for each in some for name in each.holds}
    for old, new in renaming.half_renamed(store):
        if held.isdisjoint((old, new)):
            try:
                renaming.rename_user(store, old, new)
                log.warning("user %s was being renamed when the databases were as they are now: it is %s", old, new)
            except StoreError as refusal:
                log.error("user %s was being renamed, and cannot be finished: onecopy user rename %s %s (%s)", old, old,
                          new, refusal)


def remove(store: Store, operation: Operation) -> str:
    """Remove what is left of those who were to be removed at once."""
    done, other = [], []

    def one(user: str) -> None:
        row = store.directory.user(user)
        if row is None:
            done.append(user)
        elif row.account.status is Status.REMOVED or _is_meant(store, user, operation):
            restorable.forget_user(store, user)
            done.append(user)
        else:
            other.append(user)

    refused = each(operation.arguments["users"], one)
    return "; ".join(filter(None, (
        _all(done, "removed"), _all(other, "made anew since, and left as they are"), *refused)))


def undelete(store: Store, operation: Operation) -> str:
    """Bring back what is still missing of those who were to come back."""
    back, problems = [], list[str]()

    def one(user: str) -> None:
        try:
            problems.extend(restorable.undelete_user(store, user).problems)
        except StoreError as refusal:
            if refusal.problem is not Problem.USER_EXISTS:
                raise
        back.append(user)

    refused = each(operation.arguments["users"], one)
    return "; ".join(filter(None, (_all(back, "back"), *problems, *refused)))


def _is_meant(store: Store, user: str, operation: Operation) -> bool:
    """Whether it is the user that was there when the operation began: none of that name made since."""
    row, inbox = store.directory.user(user), store.mailboxes.find(MailboxName(user, INBOX))
    return row is not None and (inbox is None or inbox.created <= operation.began)


def _all(users: Iterable[str], what: str) -> str:
    names = ", ".join(users)
    return f"{names}: {what}" if names else ""
