"""What a user has from the first login or delivery on: INBOX, and mailboxes with a special use (RFC 6154).

INBOX comes last: who has one is no new user, and gets nothing more. So what a crash cuts off is made at the next use.
"""

import logging
from collections.abc import Sequence

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxEntry
from mboxlist.names import INBOX, MailboxName
from store.accounts.base import Account
from store.errors import Problem, StoreError
from store.mailboxes import namespace
from store.offload import run
from store.problems import NOT_NOW, problems
from store.store import Store
from store.userarea import writing

log = logging.getLogger(__name__)


@problems()
def inbox(store: Store, account: Account) -> MailboxEntry:
    """The account's INBOX; it and the others are made if it is not there (setting `special_mailboxes`).

    Raises StoreError NO_USER, LIMIT, DISK_FULL, UNAVAILABLE, BUSY.
    """
    name = MailboxName(account.user, INBOX)
    entry = store.mailboxes.find(name)
    if entry is not None:
        return entry
    wanted = store.settings.special_names
    if wanted and {each.name.path for each in store.names(account.user)} <= set(wanted.values()):
        _make_special(store, account.user, wanted)
    try:
        return namespace.create_mailbox(store, name)
    except StoreError as refusal:
        if refusal.problem is not Problem.MAILBOX_EXISTS:
            raise
        return store.entry(name)


@problems()
def inboxes(store: Store, accounts: Sequence[Account]) -> None:
    """What `inbox` makes, for several users at the same time. Raises StoreError LIMIT, DISK_FULL, UNAVAILABLE, BUSY."""
    wanted = store.settings.special_names
    new = [each for each in accounts if len(wanted) < store.settings.mailbox_limit and _has_nothing(store, each.user)]
    try:
        namespace.insert_mailboxes(store, [namespace.Wanted(MailboxName(each.user, path), each.partition, use)
                                           for each in new for use, path in wanted.items()])
        _subscribe(store, [each.user for each in new], wanted)
        namespace.insert_mailboxes(store, [namespace.Wanted(MailboxName(each.user, INBOX), each.partition)
                                           for each in new])
    except StoreError as refusal:
        if refusal.problem is not Problem.MAILBOX_EXISTS:       # one of them is used for the first time just now
            raise
    for each in accounts:
        inbox(store, each)


def _has_nothing(store: Store, user: str) -> bool:
    """Whether there is no mailbox of that user, nor a file that speaks of one."""
    return not store.names(user) and not any(
        partition.user_folder(user).exists() for partition in store.partitions.values())


async def find_inbox(store: Store, account: Account) -> MailboxEntry:
    """The account's INBOX; at its first use it is made in a thread, with what else a new user gets.

    Raises StoreError NO_USER, LIMIT, DISK_FULL.
    """
    entry = store.mailboxes.find(MailboxName(account.user, INBOX))
    return entry if entry is not None else await run(store, "names", inbox, store, account)


def _make_special(store: Store, user: str, wanted: dict[str, str]) -> None:
    """Make the special mailboxes that can be made; INBOX is there without the others, too. Raises StoreError, one of
    NOT_NOW."""
    for use, path in wanted.items():
        try:
            namespace.create_mailbox(store, MailboxName(user, path), special_use=use)
        except StoreError as refusal:
            if refusal.problem in NOT_NOW:
                raise
            if refusal.problem is not Problem.MAILBOX_EXISTS:
                log.warning("%s gets no mailbox %s: %s", user, path, refusal)
                return

    _subscribe(store, [user], wanted)
    after_commit(writing.note_user, store, user)


def _subscribe(store: Store, users: Sequence[str], wanted: dict[str, str]) -> None:
    def work(txn: Txn) -> None:
        for user in users:
            for path in (INBOX, *wanted.values()):
                store.mailboxes.subscriptions.add(user, path, txn)

    if wanted:
        transact(store.mailboxes.env, work)
        store.mailboxes.env.flush()
