"""The purge of one partition at once: what housekeeping does bit by bit (store/housekeeping/tasks.py)."""

from collections.abc import Callable

from attrs import define, field

from mboxlist.entry import MailboxId
from store.errors import StoreError, in_words
from store.mailboxes.deletion import due_mailboxes, purge_mailbox
from store.mailboxes.expunge import due, last_due, purge_batch, waiting
from store.partition.partition import Partition
from store.store import Store

FILES_AT_A_TIME = 16_000        # whose names leave the disk with one sync, and whose records go together


@define
class PartitionPurge:
    """What was, or would be, removed, and what waits after that. `failed`: by digest, why a file is still there;
    `problems`: what else could not be done."""

    mailboxes: int
    files: int = 0
    octets: int = 0
    waiting: int = 0
    waiting_octets: int = 0
    failed: dict[str, str] = field(factory=dict)
    problems: list[str] = field(factory=list)


def purge_partition(store: Store, partition: Partition, now: float, progress: Callable[[int], None], *, dry_run: bool
                    ) -> PartitionPurge:
    """Remove the deleted mailboxes and the message files that are due at that Unix time. What is refused half way stays
    as it is, and the rest goes on; what has been done is counted whatever comes after it."""
    mailboxes = [mailbox for mailbox in due_mailboxes(store, now) if _is_there(store, mailbox, partition)]
    done = PartitionPurge(0)
    if dry_run:
        done.mailboxes = len(mailboxes)
        sizes = [size for _, size in waiting(partition, last_due(partition, now))]
        done.files, done.octets = len(sizes), sum(sizes)
    else:
        for mailbox in mailboxes:
            _remove_mailbox(store, mailbox, done)
        try:
            _remove(partition, now, done, progress)
        except (StoreError, OSError) as error:
            done.problems.append(f"message files of {partition.name}: {_why(error)}")
    partition.flush()
    left = [size for _, size in waiting(partition)]
    done.waiting = len(left) - (done.files if dry_run else 0)
    done.waiting_octets = sum(left) - (done.octets if dry_run else 0)
    return done


def count_due(partition: Partition, now: float) -> int:
    """How many message files are due."""
    return sum(1 for _ in waiting(partition, last_due(partition, now)))


def _is_there(store: Store, mailbox: MailboxId, partition: Partition) -> bool:
    found = store.mailboxes.deleted.find(mailbox)
    return found is not None and found[1].partition == partition.name


def _remove_mailbox(store: Store, mailbox: MailboxId, done: PartitionPurge) -> None:
    found = store.mailboxes.deleted.find(mailbox)
    try:
        done.mailboxes += purge_mailbox(store, mailbox)
    except (StoreError, OSError) as error:
        done.problems.append(f"{found[1].name if found else mailbox}: {_why(error)}")


def _why(error: StoreError | OSError) -> str:
    return error.public if isinstance(error, StoreError) else in_words(error)


def _remove(partition: Partition, now: float, done: PartitionPurge, progress: Callable[[int], None]) -> None:
    seen = 0
    for batch in due(partition, now, FILES_AT_A_TIME):
        purged = purge_batch(partition, batch.files)
        done.files += purged.files
        done.octets += purged.octets
        done.failed.update((digest.hex(), error.strerror or str(error)) for digest, error in purged.failed.items())
        seen += len(batch.files)
        progress(seen)
