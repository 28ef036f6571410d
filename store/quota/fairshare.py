"""What sharing takes off the use of each quota root (setting `quota_charge` = fair)."""

from mboxlist.names import PUBLIC, SEPARATOR
from store.partition.transactions import WriteTxn
from store.quota.accounting import fair_shares
from store.store import Store

ROOTS_AT_A_TIME = 100                 # roots that are changed in one transaction


def reckon(store: Store, partition: str) -> int:
    """Compute the discounts of all roots on a partition; how many roots there are. For a thread.

    A user's discount is what fair shares are less than the sum of the user's messages. Where a user has more than one
    root it is divided among them by what they use.
    """
    place = store.partitions[partition]
    shares, roots = fair_shares(place), list(place.quotas.all())
    used: dict[str, int] = {}
    for root, use in roots:
        used[_owner(root)] = used.get(_owner(root), 0) + use.octets
    changed = []
    for root, use in roots:
        owner = _owner(root)
        whole = max(0, used[owner] - shares.get(owner, used[owner]))
        discount = whole * use.octets // used[owner] if used[owner] > 0 else 0
        if discount != use.discount:
            changed.append((root, discount))
    for at in range(0, len(changed), ROOTS_AT_A_TIME):
        def work(txn: WriteTxn, piece: list[tuple[str, int]] = changed[at:at + ROOTS_AT_A_TIME]) -> None:
            for root, discount in piece:
                place.quotas.set_discount(root, discount, txn.handle)
        place.transact(work)
    place.flush()
    return len(roots)


def _owner(root: str) -> str:
    return PUBLIC if root.startswith(PUBLIC) else root.partition(SEPARATOR)[0]
