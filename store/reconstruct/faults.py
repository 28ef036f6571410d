"""What is wrong, as the check finds it, and would be put right by a reconstruct."""

from collections.abc import Collection

from mboxlist.entry import MailboxId
from store.rebuild.outcome import Outcome
from store.reconstruct.request import Request
from store.reconstruct.scope import mailboxes_meant, require_partition
from store.store import Store
from store.userarea import writing
from store.values import Finding


def tell(request: Request) -> Outcome:
    """Change nothing. Raises Refused, StoreError."""
    with request.open_store() as store:
        require_partition(store, request)
        scope = mailboxes_meant(store, request)
        only = {mailbox for _, mailbox in scope} if request.what else None
        return Outcome(mailboxes=len(scope), left=repairable(store, request, only))


def repairable(store: Store, request: Request, only: Collection[MailboxId] | None) -> list[Finding]:
    """What of it a reconstruct puts right."""
    return [finding for finding in found(store, request, only) if finding.repair.reconstructs]


def found(store: Store, request: Request, only: Collection[MailboxId] | None) -> list[Finding]:
    """What the check finds; with `only`, what is said of these mailboxes, or with a partition, of what is on that."""
    findings = request.faults(store)
    if only is None and request.partition is None:
        return findings
    partition = request.partition if only is None else None
    if partition is not None:
        only = [mailbox for mailbox, _ in store.partitions[partition].all_states()]
    there = [found for mailbox in only or () if (found := store.known(mailbox))]
    names = {str(entry.name) for entry, _ in there}
    places = {str(writing.right_place(store.partition_of(entry), entry, removed)) for entry, removed in there}
    return [finding for finding in findings if finding.where.removesuffix(" (deleted)") in names | places
            or partition is not None and _is_on(store, partition, finding.where)]


def _is_on(store: Store, partition: str, where: str) -> bool:
    """Whether that is on the partition."""
    return f"/partitions/{partition}/" in where or where == f"partition {partition}" or where.startswith(
        "message ") and store.partitions[partition].refs.find(bytes.fromhex(where[8:])) is not None
