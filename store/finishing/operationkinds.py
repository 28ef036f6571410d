"""Which kinds of operations there are, and what finishes each. Their names are those of the commands."""

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen

from store.finishing import ofdatabases, ofmail, ofusers
from store.operations.operationrecord import Operation
from store.settings import Settings
from store.store import Store

Finish = Callable[[Store, Operation], str]              # what was done about it, for people to read
Prepare = Callable[[Path, Settings, Operation], str]    # "" where all that is left can only be done in the open store


@frozen
class Kind:
    """`before` is done before the store is opened, `after` in the open store: at once, or by housekeeping (`long`).
    Neither may be called for something that another process does. Both raise StoreError, OSError."""

    after: Finish
    before: Prepare | None = None
    long: bool = False


KINDS: Mapping[str, Kind] = {
    "user add": Kind(ofusers.add),
    "user rename": Kind(ofusers.rename, long=True),
    "user remove": Kind(ofusers.remove),
    "user undelete": Kind(ofusers.undelete),
    "mailbox rename": Kind(ofmail.rename),
    "mailbox delete": Kind(ofmail.delete),
    "purge": Kind(ofmail.purge, long=True),
    "quota set": Kind(ofmail.set_quota),
    "quota remove": Kind(ofmail.remove_quota),
    "partition add": Kind(ofdatabases.add_partition),
    "partition remove": Kind(ofdatabases.partition_removed, ofdatabases.remove_partition),
    "partition move": Kind(ofmail.move, long=True),
    "snapshot create": Kind(ofdatabases.made_snapshot),
    "snapshot remove": Kind(ofdatabases.remove_snapshots),
    "facts export": Kind(ofdatabases.remove_snapshots),
    "check": Kind(ofdatabases.remove_snapshots),        # by Spark: of what it reads
    "snapshot restore": Kind(ofdatabases.restored, ofdatabases.restore),
    "reconstruct": Kind(ofdatabases.rebuilt, ofdatabases.rebuild, long=True),
    "reconstruct mailboxes": Kind(ofdatabases.correct, long=True),
}
