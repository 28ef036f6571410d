"""Records that a move has to send: those that are new since it last looked, and expunged ones that are not purged."""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any, cast

import numpy as np

from mboxlist.entry import MailboxId
from store.delivery.batch import usable
from store.partition.partition import Partition
from store.tables.expunged import Expunged
from store.tables.index import ROW, Rows, chunk_key, chunk_of_key, decode, take

CHUNKS_AT_A_TIME = 32       # of records that are sent together: a message between back ends has room for no more
_NONE: Rows = np.empty(0, ROW)


def chunks_from(partition: Partition, mailbox: MailboxId, first: int = 0) -> Iterator[dict[int, bytes]]:
    """The chunks of a mailbox by their numbers, some at a time. No cursor is open while the caller has its turn."""
    while True:
        scan = partition.index.scan(chunk_key(mailbox, first), chunk_key(MailboxId(mailbox + 1), 0))
        with closing(cast("Any", scan)):
            found = {chunk_of_key(key)[1]: value for key, value in islice(scan, CHUNKS_AT_A_TIME)}
        if not found:
            return
        yield found
        first = max(found) + 1


def changed_chunks(partition: Partition, mailbox: MailboxId, sent: dict[int, int]) -> Iterator[dict[int, Rows]]:
    """The chunks that are not as they were sent, some at a time; one that has gone is empty.

    `sent` has a hash of each chunk by its number. What is taken from here counts as sent when the next is asked for.
    """
    there: set[int] = set()
    for found in chunks_from(partition, mailbox):
        there |= found.keys()
        new = {number: value for number, value in found.items() if sent.get(number) != hash(value)}
        if new:
            yield {number: decode(value) for number, value in new.items()}
            sent.update((number, hash(value)) for number, value in new.items())
    gone = sorted(sent.keys() - there)
    for at in range(0, len(gone), CHUNKS_AT_A_TIME):
        some = gone[at:at + CHUNKS_AT_A_TIME]
        yield dict.fromkeys(some, _NONE)
        for number in some:
            del sent[number]


def unpurged(partition: Partition, item: Expunged) -> Rows:
    """The expunged records whose messages have not been purged."""
    known = [(record := usable(partition, bytes(row["digest"]))) is not None and record.serial == row["serial"]
             for row in item.rows]
    return take(item.rows, np.array(known, np.bool_))
