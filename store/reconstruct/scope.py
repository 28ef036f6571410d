"""Which mailboxes a reconstruct is about."""

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import OTHERS, PUBLIC, MailboxName, NameProblem
from store.reconstruct.request import Refused, Request
from store.store import Store


def mailboxes_meant(store: Store, request: Request) -> list[tuple[str, MailboxId]]:
    """Partition and id of each, also of deleted ones. Raises Refused, StoreError NO_USER, NO_MAILBOX."""
    what = request.what
    if what is None:
        return [(name, mailbox) for name, partition in store.partitions.items()
                if request.partition in (None, name) for mailbox, _ in partition.all_states()]
    if not what.startswith((OTHERS, PUBLIC)):
        return [(entry.partition, entry.id) for entry in store.names(request.user_of(store, what))]
    name = _parsed(what)
    below = list(store.mailboxes.below(name.owner, name.path))
    return [(entry.partition, entry.id) for entry in ([] if below and store.mailboxes.find(name) is None
                                                      else [store.entry(name)]) + below]


def entries_meant(store: Store, request: Request) -> list[MailboxEntry]:
    """The rows of those that are in use, and whose partitions are there. Raises as above."""
    return [entry for _, mailbox in mailboxes_meant(store, request)
            if (entry := store.mailboxes.find_id(mailbox)) is not None and entry.partition in store.partitions]


def owner_meant(store: Store, request: Request) -> str | None:
    """Whose the mailboxes are; None for everybody's. Raises Refused, StoreError NO_USER."""
    what = request.what
    if what is None:
        return None
    return _parsed(what).owner if what.startswith((OTHERS, PUBLIC)) else request.user_of(store, what)


def _parsed(what: str) -> MailboxName:
    try:
        return MailboxName.parse(what)
    except NameProblem as error:
        raise Refused(f"{what}: {error}") from None


def require_partition(store: Store, request: Request) -> None:
    """Raises Refused when there is no such partition."""
    if request.partition is not None and request.partition not in store.partitions:
        raise Refused(f"there is no partition {request.partition}")
