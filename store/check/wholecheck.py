"""The consistency check: every promise that the store keeps on disk, as findings where it is broken.

It runs beside the servers. What a first look finds may be a change that was half seen. What it finds of a mailbox, or
of a quota root, is looked at again by itself, locked (`confirming`). For the rest (a message file that is counted
wrong, say) the partition is looked at again, and where something is found each time, once more within one transaction,
in which nothing changes: nobody can write to that partition meanwhile. What lies in two environments, or in files, no
transaction covers: there a finding must be the same before and after all the rest was looked at.
"""

from collections.abc import Iterator
from pathlib import Path

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from store.check import accesscheck, accountcheck, filecheck, idxcheck, layout, listcheck, mailboxcheck, outboxcheck
from store.check.confirming import confirmed
from store.partition.partition import Partition
from store.progress import Tell, silent
from store.store import Store
from store.values import Finding

LOOKS = 2           # before the one during which nobody can write
_OUTSIDE = (listcheck.look, idxcheck.look, outboxcheck.look)        # of what no transaction of a partition covers


def check(store: Store, *, with_layout: bool = True, tell: Tell = silent) -> list[Finding]:
    """All findings; none in a store that is whole. Without `with_layout` it is the caller who tells which paths are not
    as they should be; what follows from these is never told. Who can reach files is for `layout` to tell alone.
    `tell` hears what is looked at, how many of them are done, and of how many."""
    tell("mailboxes, and store.idx", 0, 0)
    first = {finding for look in _OUTSIDE for finding in look(store)}
    findings = look_at_layout(store.root, access=False) if with_layout else []
    for partition in store.partitions.values():
        mailboxes = mailboxcheck.Mailboxes.of(partition, None)
        found = list(_look(store, partition, mailboxes, None, None, tell))
        wrong, suspects = confirmed(store, partition, found, mailboxes)
        findings += wrong
        for _ in range(LOOKS - 1):
            if suspects:                        # what was half seen is seen in other places the next time
                mailboxes = mailboxcheck.Mailboxes.of(partition, None)
                suspects &= {finding.where for finding in _look(store, partition, mailboxes, None, None, tell)}
        if suspects:
            findings += transact(partition.env, lambda txn, partition=partition, suspects=suspects: [  # type: ignore[misc]
                finding for finding in _look(store, partition, mailboxcheck.Mailboxes.of(partition, txn), txn, suspects,
                                             tell) if finding.where in suspects], reads=True)
    if first:
        findings += [finding for look in _OUTSIDE for finding in look(store) if finding in first]
    return list(dict.fromkeys(findings))


def look_at_layout(root: Path, *, access: bool = True) -> list[Finding]:
    """What of the paths of a store is not as it should be; without `access`, who can reach them is not looked at."""
    status = root.stat()
    return layout.look(root, (status.st_uid, status.st_gid), access=access)


def check_all(store: Store, *, with_layout: bool = True, tell: Tell = silent) -> list[Finding]:
    """All findings, and what keeps somebody out: lost accounts, and damaged app passwords. With those the store is
    whole, and yet somebody's mail waits."""
    return [*accountcheck.look(store), *accesscheck.look(store), *check(store, with_layout=with_layout, tell=tell)]


def _look(store: Store, partition: Partition, mailboxes: mailboxcheck.Mailboxes, txn: Txn, suspects: set[str] | None,
          tell: Tell) -> Iterator[Finding]:
    known = filecheck.Messages.of(partition, txn)
    yield from mailboxcheck.look(store, partition, mailboxes, known, txn, tell)
    yield from filecheck.look(store, partition, known, txn, suspects, tell)
