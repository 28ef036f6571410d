"""A message that is delivered in the transaction of another one: a script has made it of that one (`Target.follows`).
"""

from collections.abc import Mapping, Sequence

from attrs import define, field

from mboxlist.engine.troubles import after_commit
from store import offload
from store.delivery import durable
from store.delivery.commit import Target, commit_within, header_numbers
from store.delivery.inthread import staged_here
from store.delivery.severalmessages import secure
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.store import Store
from store.values import InternalDate


@define(eq=False)
class Alongside:
    """A message, whole and on disk, and its target, on the partition of the message."""

    partition: Partition
    staged: Staged
    target: Target
    received: InternalDate
    numbers: Mapping[bytes, tuple[int, int]]
    _new: bool = field(default=False, init=False)       # whether its file is used, not one that was there

    def deliver(self, txn: WriteTxn) -> None:
        """For `Target.follows` of a target on the same partition: deliver it. Raises StoreError."""
        self._new = commit_within(txn, self.staged, self.target, self.received, self.numbers)

    def is_delivered(self) -> None:
        """Note that the transaction is committed; `placed` must follow."""
        self.staged.committed |= self._new


async def prepared(store: Store, messages: Sequence[tuple[bytes, Target]], received: InternalDate) -> list[Alongside]:
    """Put these messages on disk, each ready to be delivered on the partition of its target. Raises StoreError."""
    made: list[Alongside] = []
    try:
        for octets, target in messages:
            partition = store.partition_of(target.entry)
            staged = await offload.change(store, partition.stage)
            made.append(Alongside(partition, staged, target, received, {}))
            if staged.write(octets):
                await durable.spill(store, staged)
        for partition in {one.partition.name: one.partition for one in made}.values():
            await secure(store, partition, [one.staged for one in made if one.partition is partition])
        for one in made:
            one.numbers = await offload.change(store, lambda: header_numbers(
                one.partition, one.staged, one.target))       # noqa: B023
    except BaseException:
        discard(store, made)
        raise
    return made


def prepared_here(partition: Partition, octets: bytes, target: Target, received: InternalDate) -> Alongside:
    """As `prepared`, for one message, in this thread. Raises StoreError."""
    staged = staged_here(partition, octets)
    try:
        return Alongside(partition, staged, target, received, header_numbers(partition, staged, target))
    except BaseException:
        after_commit(staged.abort)
        raise


def placed_here(messages: Sequence[Alongside]) -> None:
    """As `placed`, in this thread; what was delivered is on disk."""
    for one in messages:
        after_commit(one.staged.place if one.staged.committed else one.staged.abort)


async def placed(store: Store, messages: Sequence[Alongside]) -> None:
    """Give the files of the delivered messages their places, and remove the others."""
    durability = durable.durability_of(store)
    for partition in {one.partition.name: one.partition for one in messages if one.staged.committed}.values():
        await durable.put_on_disk(store, durability, partition, [
            one.staged for one in messages if one.partition is partition and one.staged.committed])
    discard(store, [one for one in messages if not one.staged.committed])


def discard(store: Store, messages: Sequence[Alongside]) -> None:
    """Forget these messages: they are not delivered."""
    for one in messages:
        after_commit(durable.durability_of(store).discard, one.staged)
