"""What one pass over the tables of a partition sums up or finds missing: quota use, the purge list, cache records."""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from mboxlist.engine.btree import Txn
from mboxlist.engine.kv import transact
from store.partition.partition import Partition
from store.rebuild.outcome import Correction
from store.tables.references import FOREVER

CACHED = 1000               # messages whose cache records are looked at at a time
PURGED = 10_000             # the same, whether they should wait for the purge


def recount_quota(partition: Partition, wanted: Callable[[str], bool] = lambda root: True, *, change: bool = True
                  ) -> list[Correction]:
    """Have each quota root use what its mailboxes have, or those roots that are `wanted`; without `change` only say
    which do not."""
    if not any(wanted(root) for root, _, _ in _wrong_uses(partition, None)):
        return []

    def work(txn: Txn) -> list[Correction]:
        done = []
        for root, octets, messages in list(_wrong_uses(partition, txn)):
            if not wanted(root):
                continue
            if change:
                partition.quotas.charge(root, octets, messages, txn, enforce=False)
            done.append(Correction(f"the quota's use was wrong by {-octets} octets, {-messages} messages",
                                   f"quota root {root}"))
        return done

    return transact(partition.env, work)


def _wrong_uses(partition: Partition, txn: Txn) -> Iterator[tuple[str, int, int]]:
    """The quota roots whose use is not the sum of their mailboxes; what must be added: octets, messages."""
    uses: dict[str, list[int]] = {}
    for _, state in partition.all_states(txn):
        if not state.removed:
            use = uses.setdefault(state.quota_root, [0, 0])
            use[0] += state.octets
            use[1] += state.messages
    known = dict(partition.quotas.all(txn))
    for root in sorted(uses.keys() | known.keys()):
        octets, messages = uses.get(root, (0, 0))
        said = partition.quotas.find(root, txn)
        if (said.octets, said.messages) != (octets, messages):
            yield root, octets - said.octets, messages - said.messages


def recount_purge(partition: Partition) -> list[Correction]:
    """Have everything wait for the purge that was released."""
    waiting = set(partition.refs.waiting(FOREVER))
    missing = []
    for digests, said in partition.refs.all_figures(PURGED):
        for at in np.flatnonzero((said["released"] != 0) & (said["references"] == 0)).tolist():
            if (int(said["released"][at]), digests[at]) not in waiting:
                missing.append(digests[at])
    for digest in missing:
        transact(partition.env, lambda txn, digest=digest: partition.refs.list_for_purge(digest, txn))       # type: ignore[misc]
    return [Correction("it was released, and did not wait for the purge",
                       f"message {digest.hex()}") for digest in missing]


def lost_cached(partition: Partition) -> Iterator[list[bytes]]:
    """The messages that are in use and have no cache record of their own, of some messages at a time: often none. No
    cursor stays open between two."""
    start = b""
    while batch := list(islice(partition.refs.all(start=start, raw=True), CACHED)):
        used = [(digest, record) for digest, record in batch if record.references]
        digests = [digest for digest, _ in used]
        figures = np.array([(record.serial, record.trace) for _, record in used], np.uint64).reshape(-1, 2)
        sound = partition.are_cached(figures[:, 0], np.frombuffer(b"".join(digests), "V32"), figures[:, 1])
        yield [digests[at] for at in np.flatnonzero(~sound).tolist()]
        start = batch[-1][0] + b"\0"
