"""Users who are new, in the built-in directory."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from attrs import frozen

from store import hosting
from store.accounts.base import Account, Status
from store.accounts.builtin import User
from store.errors import Problem, StoreError
from store.mailboxes import firstuse, placement
from store.partitions import volumes
from store.store import Store
from store.values import Secret

TOGETHER = 200              # users who are added by the same transactions


@frozen
class NewUser:
    """One who is to be added; without a `partition` where mail of new users goes."""

    address: str
    secret: Secret          # the password, or a hash of it: see `add_users`
    partition: str | None = None
    aliases: Sequence[str] = ()
    host: str = ""


@frozen
class Added:
    """What has become of some: how many have been added, how many were there already, and are as they were; by
    address, why the others were refused."""

    added: int
    there: int
    refused: dict[str, StoreError]


def add_user(store: Store, address: str, password_hash: str, partition: str | None = None,
             aliases: Iterable[str] = (), host: str = "") -> Account:
    """Make a user, with an INBOX if its mail is kept here.

    Raises StoreError USER_EXISTS, BAD_NAME, LIMIT, UNAVAILABLE, NO_PERMISSION.
    """
    partition = _place(store, partition)
    with store.begun("user add", {"users": [store.directory.user_id(address)]}):
        made = store.directory.add(address, password_hash, partition=partition, aliases=aliases, host=host)
        if hosting.is_here(store, made):
            firstuse.inbox(store, made)
    return made


def add_users(store: Store, users: Sequence[NewUser], hashed: Callable[[Secret], str]) -> Iterator[Added]:
    """Make users, each with what `add_user` gives them, TOGETHER in each transaction; what has become of these, when
    they are on disk. `hashed` makes what is stored of a secret, in threads, for those alone who are new: so who was cut
    off begins again with all of them. Raises StoreError, of what keeps any from being added.
    """
    threads = ThreadPoolExecutor(os.cpu_count())
    try:
        for begin in range(0, len(users), TOGETHER):
            yield _add_some(store, users[begin:begin + TOGETHER], partial(threads.map, hashed))
    finally:
        threads.shutdown(cancel_futures=True)


def _add_some(store: Store, users: Sequence[NewUser], hashed: Callable[[Iterable[Secret]], Iterable[str]]) -> Added:
    refused, new, there = dict[str, StoreError](), dict[str, tuple[NewUser, Account]](), list[Account]()
    for each in users:
        known = store.directory.find(store.directory.user_id(each.address))
        try:
            if known is None:
                account = store.directory.account(each.address, _place(store, each.partition), each.aliases, each.host)
                new[account.user] = each, account
            elif known.status is Status.REMOVED:
                refused[each.address] = StoreError(Problem.USER_EXISTS)
            else:
                there.append(known)
        except StoreError as refusal:
            refused[each.address] = refusal
    hashes = hashed(each.secret for each, _ in new.values())
    rows = [User(account, stored) for (_, account), stored in zip(new.values(), hashes, strict=True)]
    with store.begun("user add", {"users": list(new)}):
        not_added = store.directory.insert_all(rows)
        made = [row.account for row in rows if row.account.user not in not_added]
        firstuse.inboxes(store, [each for each in (*made, *there) if hosting.is_here(store, each)])
    refused.update((new[user][0].address, refusal) for user, refusal in not_added.items())
    return Added(len(made), len(there), refused)


def _place(store: Store, partition: str | None) -> str:
    return placement.for_new_mail(store) if partition is None else volumes.named(store, partition).name
