"""A user's own mail as it was when a snapshot was made, for a command beside a running server: looked at, and brought
back. Whose a mailbox was goes by the id of INBOX (`snapshotreader`): who has got the name of somebody else since sees
nothing of the earlier one's."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName
from store.accounts.base import Account
from store.errors import Problem, StoreError
from store.mailboxes import firstuse, namespace
from store.progress import Progress
from store.snapshots.snapshotcopy import bring_back
from store.snapshots.snapshotreader import SnapshotReader, readers_of
from store.snapshots.taking import Snapshot
from store.store import Store
from store.tables.index import Rows
from store.tables.state import Mailbox, MailboxState


@frozen
class MailThen:
    """That of one user in one snapshot. `inbox`: the user's INBOX as it is now."""

    reader: SnapshotReader
    inbox: MailboxEntry

    @property
    def _store(self) -> Store:
        return self.reader.store

    def mailboxes(self) -> list[tuple[MailboxEntry, MailboxState]]:
        """Those of then, by the names that they had. Raises StoreError CORRUPT, UNAVAILABLE, DISK_FULL."""
        return [(entry, self.reader.state(entry)) for entry in self.reader.mailboxes(self.inbox)]

    def mailbox(self, path: str) -> Mailbox:
        """The one of that name. Raises StoreError NO_MAILBOX, CORRUPT, UNAVAILABLE, DISK_FULL."""
        return self.reader.open_mailbox(self.reader.mailbox(self.inbox, path))

    def messages(self, then: Mailbox, *, before: int | None, gone: bool, most: int
                 ) -> tuple[Rows, NDArray[np.bool_]]:
        """The newest records of the mailbox with UIDs below `before`, and which of these messages the mailbox of its
        name has now; only those that it has not, where they are to be `gone`."""
        here = self._here(then, self._now(then.entry.name.path))
        wanted = ~here if gone else np.ones(len(here), np.bool_)
        if before is not None:
            wanted &= then.rows["uid"] < before
        return then.rows[wanted][-most:], here[wanted][-most:]

    def missing(self, then: Mailbox, into: MailboxName) -> list[int]:
        """The UIDs of the messages that this mailbox has not, by what they say."""
        found: list[int] = then.rows["uid"][~self._here(then, self._store.mailboxes.find(into))].tolist()
        return found

    def bring_back(self, then: Mailbox, into: MailboxName, uids: Collection[int], progress: Progress | None = None
                   ) -> list[int]:
        """Copy these messages into a mailbox, which is made if there is none; all or none. Their new UIDs.

        Raises StoreError GONE, OVER_QUOTA, LIMIT, BUSY, DISK_FULL, CORRUPT, READ_ONLY, BAD_NAME.
        """
        target = self._store.mailboxes.find(into) or namespace.create_mailbox(self._store, into)
        new = bring_back(self.reader, then, target, uids, progress=progress)
        self._store.news.tell([target.id])
        return new

    def _now(self, path: str) -> MailboxEntry | None:
        return self._store.mailboxes.find(MailboxName(self.inbox.name.owner, path))

    def _here(self, then: Mailbox, now: MailboxEntry | None) -> NDArray[np.bool_]:
        if now is None:
            return np.zeros(len(then.rows), np.bool_)
        return np.isin(then.rows["digest"], self._store.open_mailbox(now).rows["digest"])


def snapshots_of(store: Store, account: Account) -> list[Snapshot]:
    """The snapshots in which the user can have mail, the newest first."""
    inbox = firstuse.inbox(store, account)
    return [each for each in readers_of(store).there() if each.manifest.moment >= inbox.created]


@contextmanager
def mail_then(store: Store, account: Account, snapshot: str) -> Iterator[MailThen]:
    """The user's in the snapshot of that name. Raises StoreError NO_MAILBOX, LIMIT."""
    inbox, readers = firstuse.inbox(store, account), readers_of(store)
    if snapshot not in {each.name for each in readers.there()}:
        raise StoreError(Problem.NO_MAILBOX, f"There is no snapshot {snapshot} that can be looked into")
    with readers.used(snapshot) as reader:
        yield MailThen(reader, inbox)
