"""What the check finds is put right, in rounds: find, correct, find again, until nothing is left or nothing moves.

So `onecopy check` and `onecopy reconstruct` are two modes of one engine: what one finds and names a reconstruct for,
the other puts right; and it says of what is left what the check would.
"""

from collections.abc import Callable, Collection, Sequence

from mboxlist.entry import MailboxId
from store.mend import idxfiles, leftovers, listrows, lostfigures, orphans, staging, userrecords
from store.partition.partition import Partition
from store.rebuild.emptying import make_folders
from store.rebuild.outcome import Outcome
from store.rebuild.recount import recount
from store.store import Store
from store.userarea import directoryfile, writing
from store.values import Finding

ROUNDS = 4                  # one is enough for nearly all; a fault that hid another takes two

Find = Callable[[Store], list[Finding]]


def mend(store: Store, find: Find, outcome: Outcome, partitions: Collection[str] | None = None, *, once: bool = True
         ) -> None:
    """Put right what is wrong in the store, or on these partitions; with `once` also when nothing is found at first.
    What is left is in `outcome`, as `find` says it. Raises StoreError."""
    left: list[Finding] = []
    for number in range(ROUNDS):
        before = len(outcome.corrections)
        if number or once:
            correct(store, outcome, partitions)
        left = find(store)
        if not any(finding.repair.reconstructs for finding in left) or number and before == len(outcome.corrections):
            break
    known = {finding.where for finding in outcome.left + outcome.findings}
    outcome.left += [finding for finding in left if finding.where not in known]


def correct(store: Store, outcome: Outcome, partitions: Collection[str] | None = None) -> None:
    """One round of corrections. Raises StoreError."""
    outcome.corrections += listrows.correct_list(store)
    outcome.corrections += userrecords.restore_accounts(store)
    for _, partition in _wanted(store, partitions):
        outcome.corrections += leftovers.correct_headers(partition)
    outcome.corrections += lostfigures.restore_figures(store)
    for name, partition in _wanted(store, partitions):
        correct_partition(store, partition, outcome)
        if name in store.writable:
            directoryfile.write(store, partition, everything=True)


def correct_partition(store: Store, partition: Partition, outcome: Outcome) -> None:
    """Everything that is on it. Flushed. Raises StoreError."""
    make_folders(partition.folder)
    done = outcome.corrections
    done += staging.settle(store, partition)
    done += leftovers.correct_serials(partition)
    done += leftovers.correct_orphans(store, partition)
    mailboxes = [mailbox for mailbox, _ in partition.all_states()]
    done += userrecords.restore_records(store, partition, mailboxes)
    done += idxfiles.follow_files(store, partition, mailboxes)
    done += leftovers.correct_leftovers(store, partition, mailboxes)
    done += leftovers.correct_sizes(partition)
    done += recount(store, partition)
    done += leftovers.correct_purge(partition)
    partition.flush()
    orphans.take_in_lost(store, partition, outcome)
    write_files(store, partition, [mailbox for mailbox, _ in partition.all_states()])


def write_files(store: Store, partition: Partition, mailboxes: Sequence[MailboxId]) -> None:
    """Write the `store.idx` of these mailboxes. Raises StoreError."""
    partition.unwritten.changed.update(mailboxes)
    writing.write_round(store, partition, hurry=True)


def _wanted(store: Store, partitions: Collection[str] | None) -> list[tuple[str, Partition]]:
    return [(name, partition) for name, partition in sorted(store.partitions.items())
            if partitions is None or name in partitions]
