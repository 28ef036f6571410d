"""The form of what a partition has on disk, which one version of onecopy writes and another one cannot read."""

import pytest

from mboxlist.engine.transact import transact
from store.errors import StoreError
from store.partition.serials import META, META_KEY


def test_nobody_joins_an_earlier_version_that_is_still_running(store):
    """Its processes would take for damaged what a later one writes, and mend it."""
    partition = store.partitions["primary"]
    stored = partition.states.get(META_KEY)
    epoch, serial, form = META.unpack(stored)
    earlier = META.pack(epoch, serial, form - 1)
    transact(partition.env, lambda txn: partition.states.put(META_KEY, earlier, txn))
    with pytest.raises(StoreError, match="earlier version"):
        store.open_partition(partition.folder, recover=False).env.close()
    assert partition.states.get(META_KEY) == earlier
    transact(partition.env, lambda txn: partition.states.put(META_KEY, stored, txn))
    joined = store.open_partition(partition.folder, recover=False)
    assert joined.epoch == epoch
    joined.env.close()
