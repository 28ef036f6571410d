"""The figures of a mailbox as they are stored, for those who sum them up and need nothing else of mailboxes."""

import struct

# UIDVALIDITY, UIDNEXT, HIGHESTMODSEQ, changed, recent, messages, unseen, deleted, octets, epoch, log_since, logged,
# removed, moving; behind it the quota root and the keywords, a line each: see `state.MailboxState`
FIGURES = struct.Struct("<IIQQIIIIQIQIIB")


def charge_of(data: bytes) -> tuple[bytes, int, int] | None:
    """What the mailbox with these figures is charged to its quota root: the root, octets, messages; None when it has
    been deleted. Raises struct.error."""
    _, _, _, _, _, messages, _, _, octets, _, _, _, removed, _ = FIGURES.unpack_from(data)
    return None if removed else (data[FIGURES.size:].partition(b"\n")[0], octets, messages)
