"""What both machines had when one of them was promoted: its list of mailboxes, the figures of each, and at the promoted
one its records, as copies of the tables, in a folder that nobody else uses. A mailbox counts on the partition that the
list says: while its user is moved there is a copy on another one, which the promotion has swept."""

import contextlib
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

from attrs import define

from mboxlist.engine.btree import Table
from mboxlist.engine.hotcopy import Still
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.snapshotlist import SnapshotList
from store.partition.serials import META, META_KEY
from store.snapshots.taking import LIST
from store.standby.promotion import PROMOTED_RECORDS, PROMOTED_STATES
from store.tables.index import chunk_key, join
from store.tables.state import MailboxState, state_key

CACHE = 16 << 20        # octets of memory for each


@define(eq=False)
class CommonPlace:
    """See the module's text."""

    mailboxes: SnapshotList
    _states: dict[str, tuple[Table, int]]       # of each partition, and its epoch

    def entries(self) -> Iterator[MailboxEntry]:
        """All mailboxes of then."""
        return self.mailboxes.all()

    def state(self, mailbox: MailboxId) -> MailboxState | None:
        """The figures that it had; None for one that was not there."""
        entry = self.mailboxes.find_id(mailbox)
        if entry is None or entry.partition not in self._states:
            return None
        table, epoch = self._states[entry.partition]
        data = table.get(state_key(mailbox))
        found = None if data is None else MailboxState.from_bytes(data, epoch)
        return None if found is None or found.removed else found


def digests(folder: Path, mailboxes: Iterable[MailboxId]) -> set[bytes]:
    """Those of all messages that were in these mailboxes, by the records in that folder. Raises Failure."""
    found, by_partition = set[bytes](), dict[str, list[MailboxId]]()
    with contextlib.closing(SnapshotList(folder / LIST, CACHE)) as listed:
        for mailbox in mailboxes:
            if (entry := listed.find_id(mailbox)) is not None:
                by_partition.setdefault(entry.partition, []).append(mailbox)
    for path in sorted((folder / "partitions").glob(f"*/index/{PROMOTED_RECORDS}")):
        with contextlib.closing(Still(path.parent, CACHE)) as still:
            table = still.table(PROMOTED_RECORDS)
            for mailbox in by_partition.get(path.parent.parent.name, ()):
                rows = join(map(itemgetter(1), table.scan(chunk_key(mailbox, 0), chunk_key(mailbox + 1, 0))))
                found.update(digest.tobytes() for digest in rows["digest"])
    return found


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[CommonPlace]:
    """In that folder, for reading. Raises Failure (of `transact`)."""
    with contextlib.ExitStack() as stack:
        mailboxes = SnapshotList(folder / LIST, CACHE)
        stack.callback(mailboxes.close)
        states = dict[str, tuple[Table, int]]()
        for path in sorted((folder / "partitions").glob(f"*/index/{PROMOTED_STATES}")):
            still = Still(path.parent, CACHE)
            stack.callback(still.close)
            table = still.table(PROMOTED_STATES)
            states[path.parent.parent.name] = table, META.unpack(table.get(META_KEY) or b"")[0]
        yield CommonPlace(mailboxes, states)
