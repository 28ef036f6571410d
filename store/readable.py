"""What is asked of whatever mailboxes are read from: the store as it is, or as it was in a snapshot."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from store.message.cacherecord import CachedMessage
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import MessageFile
from store.store import Owned
from store.tables.index import Rows
from store.tables.privateheaders import PrivateHeaders


class Place(Protocol):
    """Where messages lie: a partition."""

    @property
    def files(self) -> MessageFiles:
        """The message files."""

    @property
    def private_headers(self) -> PrivateHeaders:
        """Header fields that some messages have in one mailbox alone."""


class Readable(Protocol):
    """See the module's text; the functions are those of `Store`."""

    @property
    def owned(self) -> Owned:
        """What is remembered of mailboxes that were searched or sorted, among others."""

    def partition(self, name: str) -> Place:
        """The partition of that name. Raises StoreError UNAVAILABLE."""

    def cached(self, entry: MailboxEntry, rows: Rows) -> list[CachedMessage]:
        """The cache records of index records, in their order. Raises StoreError CORRUPT."""

    def open_message(self, entry: MailboxEntry, row: np.void) -> MessageFile:
        """The message of an index record, for reading. Raises StoreError CORRUPT."""

    def vanished(self, entry: MailboxEntry, since: int) -> NDArray[np.uint32] | None:
        """The UIDs, ascending, that were expunged after that MODSEQ; None when that is not known."""
