"""The figures of a mailbox: as they are stored, for those who sum them up and need nothing else of mailboxes; and those
that its records give."""

import struct
from typing import TYPE_CHECKING, NamedTuple

from store.values import Flag

if TYPE_CHECKING:                   # who only sums up stored figures does without numpy
    from store.tables.index import Rows

# UIDVALIDITY, UIDNEXT, HIGHESTMODSEQ, changed, recent, messages, unseen, deleted, octets, epoch, log_since, logged,
# removed, moving; behind it the quota root and the keywords, a line each: see `state.MailboxState`
FIGURES = struct.Struct("<IIQQIIIIQIQIIB")


def charge_of(data: bytes) -> tuple[bytes, int, int] | None:
    """What the mailbox with these figures is charged to its quota root: the root, octets, messages; None when it has
    been deleted. Raises struct.error."""
    _, _, _, _, _, messages, _, _, octets, _, _, _, removed, _ = FIGURES.unpack_from(data)
    return None if removed else (data[FIGURES.size:].partition(b"\n")[0], octets, messages)


class Counters(NamedTuple):
    """What records sum up to: how many there are, without \\Seen, with \\Deleted, and the octets of their messages."""

    messages: int
    unseen: int
    deleted: int
    octets: int


def counters_of(rows: "Rows") -> Counters:
    """Those of these records: all of a mailbox's, or some that come or go."""
    flags = rows["flags"]
    return Counters(len(rows), int((flags & Flag.SEEN.value == 0).sum()), int((flags & Flag.DELETED.value != 0).sum()),
                    int(rows["size"].sum()))
