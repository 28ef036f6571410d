"""Deliveries that ended without an answer: the relay tries again, since it cannot know that it was done (RFC 1047). The
message is not put into the mailbox a second time, and the relay hears that it is delivered.

Nothing is written for a delivery that is answered. There are two reasons to look whether a message is in the mailbox
already, from a delivery some time ago:

    a process that went on     a flush failed, or the relay was gone before its answer: `note` puts a row into
                               `arrivals.db` for each mailbox
    an unclean end             whoever was killed could note nothing: the start notes when the store was last written
                               to, and what was delivered in the minute before may have had no answer

Neither is proof: only a message of the same octets, which came at that time and is there, is not delivered again. One
that has been expunged or moved since comes again. Octets are those that the relay sent, with its own Received field, in
which each message has another id; so what somebody sends twice is two messages.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, cast

from mboxlist.entry import MailboxEntry, MailboxId
from store.errors import StoreError
from store.partition.partition import Partition
from store.store import Store
from store.tables import duplicates
from store.tables.duplicates import repeat_key
from store.tables.index import chunk_key

CHUNKS = 64             # newest chunks of a mailbox that are looked through: 4,096 messages
PATIENCE = 600          # seconds that a delivery may have taken before it ended without an answer


def note(store: Store, digest: bytes, entries: Iterable[MailboxEntry], seconds: int) -> None:
    """Note that a delivery to these mailboxes ends without an answer; for so many seconds it may come again."""
    by_partition: dict[str, list[MailboxId]] = {}
    for entry in entries:
        by_partition.setdefault(entry.partition, []).append(entry.id)
    for name, mailboxes in by_partition.items():
        partition = store.partition(name)
        keys = [repeat_key(digest, mailbox) for mailbox in sorted(mailboxes)]
        partition.transact(lambda txn: txn.partition.duplicates.add_all(keys, seconds, txn.handle))     # noqa: B023


def repeated(partition: Partition, digest: bytes, mailboxes: Sequence[MailboxId], seconds: int) -> set[MailboxId]:
    """The mailboxes, of these, that have the message from a delivery that ended without an answer, up to so many
    seconds ago. The partition has the content already."""
    now, steady, found = time.time(), duplicates.steady(), set()
    ends: list[tuple[float, float]] = [
        (first, last) for first, last, noted in partition.unclean_ends if steady - noted < seconds]
    for mailbox in mailboxes:
        spans = [*ends, (now - seconds - PATIENCE, now)] if partition.duplicates.is_noted(
            repeat_key(digest, mailbox)) else ends
        if spans and _is_there(partition, mailbox, digest, spans):
            found.add(mailbox)
    return found


def _is_there(partition: Partition, mailbox: MailboxId, digest: bytes, spans: Sequence[tuple[float, float]]) -> bool:
    """Whether the mailbox has a message of that content that was stored in one of these spans of time."""
    first = min(begin for begin, _ in spans)
    chunks = partition.index.scan_back(chunk_key(mailbox, 0), chunk_key(MailboxId(mailbox + 1), 0))
    with closing(cast("Any", chunks)):
        for _, (_, value) in zip(range(CHUNKS), chunks, strict=False):
            try:
                rows = partition.writable(mailbox, [value])
            except StoreError:              # damaged: it is repaired elsewhere
                continue
            for saved, one in zip(rows["saved"].tolist(), rows["digest"].tolist(), strict=True):
                if one == digest and any(begin <= saved <= end for begin, end in spans):
                    return True
            if len(rows) and int(rows["saved"].max()) < first:
                return False
    return False
