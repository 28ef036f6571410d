"""The outbox: rows that cannot be read, and rows for receivers that are not there any more, which nobody will send."""

from collections.abc import Iterator

from store.store import Store
from store.values import Finding, Repair


def look(store: Store) -> Iterator[Finding]:
    """All findings of the outboxes of all environments; one of a kind for each receiver."""
    outboxes = [store.outbox, *(partition.outbox for partition in store.partitions.values())]
    there = {receiver.name for receiver in store.recorder.receivers.all}
    waiting = {name for outbox in outboxes for name in outbox.receivers()}
    for name in sorted(waiting):
        if name not in there:
            yield Finding("something waits for a receiver that is not configured", f"outbox {name}",
                          Repair.NO_RECEIVER.of(name))
        if any(not parcel.readable for outbox in outboxes for parcel in outbox.every(name)):
            yield Finding("rows of the outbox cannot be read", f"outbox {name}", Repair.OUTBOX_ROWS.of(name))
