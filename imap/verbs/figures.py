"""What STATUS says of a mailbox, as it is or as it was: RFC 3501 §6.3.10, RFC 7889, RFC 8438, RFC 9208."""

from collections.abc import Callable, Iterable
from operator import attrgetter

import numpy as np
from attrs import frozen

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


@frozen
class Figures:
    """Those of one mailbox. `rows` and `recent` are asked only where an item needs the records, or what is \\Recent."""

    entry: MailboxEntry
    state: MailboxState
    rows: Callable[[], Rows]
    recent: Callable[[], int]
    append_limit: int

    def figure(self, item: StatusItem) -> int:
        """What the item is now. Raises StoreError."""
        match item:
            case StatusItem.RECENT:
                return self.recent()
            case StatusItem.APPENDLIMIT:
                return self.append_limit
            case StatusItem.DELETED_STORAGE:
                return self._deleted_octets()
            case _:
                return _STORED[item](self.state)

    def _deleted_octets(self) -> int:
        """What an EXPUNGE would take off the mailbox's quota (RFC 9208 §4.1.4)."""
        if not self.state.deleted:
            return 0
        rows = self.rows()
        return int(rows["size"][rows["flags"] & np.uint16(Flag.DELETED) != 0].sum())

    def response(self, session: Session, items: Iterable[StatusItem]) -> bytes:
        """The STATUS response. Raises StoreError."""
        return responses.status(self.entry.name.to_client(session.user), [(item, self.figure(item)) for item in items],
                                utf8=session.utf8)
