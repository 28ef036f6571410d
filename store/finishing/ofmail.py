"""Operations on mailboxes, their quota and their place that were cut off."""

from mboxlist.names import MailboxName
from store.delivery.batch import in_threads
from store.errors import Problem, StoreError
from store.finishing.attempts import each, undone
from store.mailboxes import crosspartition, deletion, namespace, placement
from store.mailboxes.duepurge import purge_partition
from store.operations.operationrecord import Operation
from store.partitions import partitionmove
from store.quota import roots
from store.store import Store

NOTHING = "nothing was left to do"


def rename(store: Store, operation: Operation) -> str:
    """All names of a tree are changed or none (the start undoes what was cut off); what is left is which quota roots
    they are charged to. INBOX stays, and gives the rest of its messages."""
    old, new = (MailboxName.parse(operation.arguments[name]) for name in ("old", "new"))
    if old.is_inbox():
        return _give_messages(store, old, new, operation)
    top = store.mailboxes.find(old)
    there = store.mailboxes.find(new) is not None or next(store.mailboxes.below(new.owner, new.path), None) is not None
    if there or top is None or top.created > operation.began:
        roots.recharge(store, new.owner)
        return f"finished: {old} is {new}" if there else NOTHING
    try:
        namespace.rename_mailbox(store, old, new)
    except StoreError as refusal:
        return undone(refusal)
    return f"finished: {old} is {new}"


def _give_messages(store: Store, inbox: MailboxName, new: MailboxName, operation: Operation) -> str:
    target = store.mailboxes.find(new)
    if target is None or target.created < int(operation.began):
        return "undone: it had not begun"
    source = store.entry(inbox)
    uids = [int(row["uid"]) for row in store.open_mailbox(source).rows
            if row["uid"] < operation.arguments["uidnext"]]
    if uids:
        crosspartition.copy(store, source, target, uids, remove=True)
        store.partition_of(source).flush()
    return f"finished: the messages of {inbox} are in {new}"


def delete(store: Store, operation: Operation) -> str:
    """Delete those that were meant and are still there."""
    done = []

    def one(text: str) -> None:
        name = MailboxName.parse(text)
        entry = store.mailboxes.find(name)
        if entry is not None and entry.created <= operation.began:
            deletion.delete_mailbox(store, name)
        if entry is None or entry.created <= operation.began:
            done.append(text)

    refused = each(operation.arguments["mailboxes"], one)
    return "; ".join([*([f"finished: {', '.join(done)} deleted"] if done else []), *refused]) or NOTHING


def purge(store: Store, operation: Operation) -> str:
    """What was due when it began, and no more."""
    names = operation.arguments["partitions"]
    mailboxes = files = 0
    for partition in list(store.partitions.values()):
        if partition.name in names:
            done = purge_partition(store, partition, operation.arguments["until"], lambda count: None, dry_run=False)
            mailboxes, files = mailboxes + done.mailboxes, files + done.files
    return f"finished: {mailboxes} more mailboxes and {files} more files purged"


def set_quota(store: Store, operation: Operation) -> str:
    """Set the same limits again: they are on one partition, and perhaps not on the next."""
    root, limits = operation.arguments["root"], operation.arguments["composite"]
    octets, messages = operation.arguments["octets"], operation.arguments["messages"]
    try:
        if limits is not None:
            roots.set_all(store, root, limits)
        if octets is not None or messages is not None:
            roots.change_limits(store, root, octets, messages)
    except StoreError as refusal:
        return undone(refusal)
    return f"finished: {root} has its limits"


def remove_quota(store: Store, operation: Operation) -> str:
    """Remove the root where it still is."""
    root = operation.arguments["root"]
    try:
        roots.take_root(store, root)
    except StoreError as error:
        if error.problem not in (Problem.NO_USER, Problem.BAD_NAME):
            raise
    return f"finished: {root} is removed"


def move(store: Store, operation: Operation) -> str:
    """Move those who are not on their new partition yet."""
    moved, to, without = 0, operation.arguments["to"], operation.arguments["without"]
    left = set(partitionmove.owners_on(store, without)) if without else None

    def one(owner: str) -> None:
        nonlocal moved
        if owner and store.directory.find(owner) is None:
            return
        partitionmove.complete(store, owner)
        if left is None or owner in left:
            place = to or placement.roomiest(store, without).name
            moved += partitionmove.move_owner(store, owner, place, side_by_side=in_threads).mailboxes

    refused = each(operation.arguments["owners"], one)
    return "; ".join([f"finished: {moved} more mailboxes moved", *refused])
