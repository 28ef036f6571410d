"""What the tables have lost of a user, and the `store.idx` of the INBOX has: the account, limits and subscriptions; of
users without an INBOX `users/directory` has the account."""

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial

from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName
from store.accounts.builtin import BuiltinDirectory, User
from store.errors import StoreError
from store.operations.operationrecord import under_way
from store.partition.marks import behind_marker
from store.partition.partition import Partition
from store.partition.processes import look as look_inside
from store.quota import limitturns
from store.rebuild.loader import set_limits
from store.rebuild.outcome import Correction
from store.rebuild.salvagedusers import account_in
from store.store import Store
from store.userarea import directoryfile
from store.userarea.paths import head_of
from store.userarea.writing import limits_of, right_place


def kept_for(store: Store, user: str) -> User | None:
    """The account that the user area has for that user."""
    entry = store.mailboxes.find(MailboxName(user, INBOX))
    return None if entry is None else _kept(store, entry)


def lost_without_inbox(store: Store) -> list[User]:
    """The accounts that the directory has lost, and that no `store.idx` has: `users/directory` has them. None while
    something is done to a user, or was cut off: it may be a rename."""
    kept = directoryfile.newest(partition.folder for partition in store.partitions.values())
    changed = set().union(*(partition.unwritten.users for partition in store.partitions.values()))
    users = any(each.kind.startswith("user ") for some in under_way(store.root) for each in some)
    rows = {} if users else directoryfile.lost_among(store, kept)
    return [User.from_bytes(user, row.encode()) for user, row in rows.items()
            if user not in changed and store.mailboxes.find(MailboxName(user, INBOX)) is None]


def _kept(store: Store, entry: MailboxEntry) -> User | None:
    partition = store.partitions.get(entry.partition)
    return None if partition is None else account_in(right_place(partition, entry, 0), entry.name.owner)


def restore_accounts(store: Store, user: str | None = None) -> Iterator[Correction]:
    """Of all users, or one, whom the directory does not know, or for whom it has what only stands for an account. One
    that cannot be had again, since another one has its name, is left: the check tells it. Raises StoreError."""
    for entry in store.mailboxes.all() if user is None else store.names(user):
        if not entry.name.is_inbox() or not store.directory.keeps(entry.name.owner):
            continue            # what an outside one says is not kept
        there = store.directory.user(entry.name.owner)
        if (there is None or there.is_lost) and (kept := _kept(store, entry)) is not None:
            try:
                _put(store.directory, kept, anew=there is None)
            except StoreError:
                continue
            yield Correction("its account was lost", f"user {entry.name.owner}")
    for row in lost_without_inbox(store):
        if user in (None, row.account.user):
            with contextlib.suppress(StoreError):
                store.directory.insert(row)
                yield Correction("its account was lost", f"user {row.account.user}")


def is_current(store: Store, partition: Partition) -> bool:
    """Whether each file on the partition says what is so, but for those that this process is to write: another process
    may have changes that it has not written yet."""
    return len(look_inside(store.root / "run")[0]) <= 1 and not behind_marker(partition.folder).exists()


def restore_records(store: Store, partition: Partition, mailboxes: Iterable[MailboxId]) -> Iterator[Correction]:
    """Limits and subscriptions of those whose INBOXes are among these mailboxes of the partition. Raises StoreError."""
    for mailbox in mailboxes if is_current(store, partition) else ():
        entry = store.mailboxes.find_id(mailbox)
        if entry is None or entry.partition != partition.name or not entry.name.is_inbox() or (
                entry.id in partition.unwritten.changed):
            continue
        head = head_of(right_place(partition, entry, 0))
        if head is None or (head.id, head.uidvalidity) != (entry.id, entry.uidvalidity):
            continue
        owner = entry.name.owner
        with limitturns.in_turn(store, owner) as turn:
            there = limits_of(partition, entry.name, "")
            lost = {root: limit for root, limit in head.limits.items() if root not in there and turn.covers(root)}
            set_limits(partition, lost, turn)
        for root in sorted(lost):
            yield Correction("its limits were lost", f"quota root {root}")
        names = sorted(set(head.subscriptions) - set(store.mailboxes.subscriptions.of(owner)))
        for name in names:
            transact(store.mailboxes.env, partial(store.mailboxes.subscriptions.add, owner, name))
        if names:
            yield Correction(f"{len(names)} subscriptions were lost", f"user {owner}")


def _put(directory: BuiltinDirectory, kept: User, *, anew: bool) -> None:
    if anew:
        directory.insert(kept)
    else:
        directory.alter(kept.account.user, lambda there: kept if there.is_lost else there)
