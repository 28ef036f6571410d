"""The figures that STATUS gives of a mailbox, as it is or as it was: RFC 3501 §6.3.10, RFC 7889, RFC 8438, RFC 9208."""

from collections.abc import Callable, Iterable
from operator import attrgetter

import numpy as np

from imap.session import Session
from imap.wire import responses
from imap.wire.listing import StatusItem
from mboxlist.entry import MailboxEntry
from store.tables.index import Rows
from store.tables.state import MailboxState
from store.values import Flag

_STORED: dict[StatusItem, Callable[[MailboxState], int]] = {
    StatusItem.MESSAGES: attrgetter("messages"),
    StatusItem.UIDNEXT: attrgetter("uidnext"),
    StatusItem.UIDVALIDITY: attrgetter("uidvalidity"),
    StatusItem.UNSEEN: attrgetter("unseen"),
    StatusItem.SIZE: attrgetter("octets"),
    StatusItem.DELETED: attrgetter("deleted"),
    StatusItem.HIGHESTMODSEQ: attrgetter("highestmodseq"),
}


def response(session: Session, entry: MailboxEntry, state: MailboxState, items: Iterable[StatusItem], *,
             rows: Callable[[], Rows], recent: Callable[[], int] = lambda: 0, append_limit: int = 0) -> bytes:
    """The STATUS response. `rows` and `recent` are called only when an item needs the records, or what is \\Recent.

    Raises StoreError.
    """
    def figure(item: StatusItem) -> int:
        match item:
            case StatusItem.RECENT:
                return recent()
            case StatusItem.APPENDLIMIT:
                return append_limit
            case StatusItem.DELETED_STORAGE:
                return _deleted_octets(rows()) if state.deleted else 0
            case _:
                return _STORED[item](state)

    return responses.status(entry.name.to_client(session.user), [(item, figure(item)) for item in items],
                            utf8=session.utf8)


def _deleted_octets(rows: Rows) -> int:
    """How many octets an EXPUNGE would take off the mailbox's quota (RFC 9208 §4.1.4)."""
    return int(rows["size"][rows["flags"] & np.uint16(Flag.DELETED) != 0].sum())
