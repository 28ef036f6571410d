"""What is asked of whatever mailboxes are read from: the store as it is, or as it was in a snapshot."""

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry, MailboxId
from store.message.cacherecord import CachedMessage
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import MessageFile
from store.tables.index import Rows
from store.tables.privateheaders import PrivateHeaders

T = TypeVar("T")


class Owned:
    """Objects that belong to an open store or snapshot and are made by rooms above it: at most one of each class."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[type[object], object] = {}
        self._forget: list[Callable[[MailboxId], None]] = []

    def find(self, kind: type[T]) -> T | None:
        """The object of that class, if there is one."""
        found = self._found.get(kind)
        return found if isinstance(found, kind) else None

    def get(self, kind: type[T], make: Callable[[], T]) -> T:
        """The object of that class; `make` makes it at its first use."""
        found = self._found.get(kind)
        if isinstance(found, kind):
            return found
        with self._lock:
            there = self.find(kind)
            if there is None:
                self._found[kind] = there = make()
        return there

    def remembers_mailboxes(self, forget: Callable[[MailboxId], None]) -> None:
        """Call `forget` with each mailbox that this process deletes."""
        self._forget.append(forget)

    def forget_mailbox(self, mailbox: MailboxId) -> None:
        """The mailbox has been deleted."""
        for forget in self._forget:
            forget(mailbox)

    def put(self, kind: type[T], value: T) -> None:
        """Have this object from now on."""
        self._found[kind] = value


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
