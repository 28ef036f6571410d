"""A user who is new, in the built-in directory."""

from collections.abc import Iterable

from store import hosting
from store.accounts.base import Account
from store.mailboxes import firstuse, placement
from store.partitions import volumes
from store.store import Store


def add_user(store: Store, address: str, password_hash: str, partition: str | None = None,
             aliases: Iterable[str] = (), host: str = "") -> Account:
    """Make a user, with an INBOX if its mail is kept here.

    Raises StoreError USER_EXISTS, BAD_NAME, LIMIT, UNAVAILABLE, NO_PERMISSION.
    """
    partition = placement.for_new_mail(store) if partition is None else volumes.named(store, partition).name
    with store.begun("user add", {"users": [store.directory.user_id(address)]}):
        made = store.directory.add(address, password_hash, partition=partition, aliases=aliases, host=host)
        if hosting.is_here(store, made):
            firstuse.inbox(store, made)
    return made
