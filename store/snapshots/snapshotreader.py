"""The store as it was when a snapshot was made, for reading: a user's own mailboxes then, and the messages in them.

The databases of a snapshot are copied and recovered beside it when somebody first asks for them (`opened`): the
list of mailboxes, and of the partitions those that are looked at. The message files are those of the store, which stay
as long as the snapshot does.

A mailbox id that comes from here is negative: no mailbox of the store has such, so none can be taken for one of these,
and nothing that changes the store can be done to one by mistake.
"""

import shutil
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np
from attrs import define, evolve, field
from numpy.typing import NDArray

from mboxlist.acl import identifiers
from mboxlist.engine.hotcopy import Still
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName
from mboxlist.snapshotlist import SnapshotList
from store.errors import Problem, StoreError
from store.message.cacherecord import CachedMessage, render
from store.message.mime import parse
from store.partition.filecontent import seen
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import MessageFile
from store.partition.serials import META_KEY, meta_of
from store.problems import problems
from store.snapshots import taking
from store.snapshots.opened import Prepared
from store.snapshots.taking import LIST, Snapshot
from store.store import Owned, Store
from store.tables.counters import counters_of
from store.tables.index import CHUNK, Rows, chunk_key, is_whole, join
from store.tables.privateheaders import PrivateHeaders
from store.tables.readerflags import ReaderFlags, overlay
from store.tables.references import References
from store.tables.state import Mailbox, MailboxState, state_key
from store.tables.vanished import Vanished
from store.values import Flag

CACHE = 4 << 20             # octets of memory for each environment
MOST = 4                    # snapshots that a process looks into at the same time
LINGER = 300                # seconds that one stays open that nobody uses any more
RENDERED_RECORDS = 1000     # lost cache records that are remembered of a partition once they are rendered,
RENDERED_OCTETS = 16 << 10  # if they have no more octets

T = TypeVar("T")


class SnapshotPartition:
    """The records of a partition as they were; the files are those of the partition now."""

    def __init__(self, folder: Path, files: MessageFiles) -> None:
        """Raises StoreError UNAVAILABLE, Failure (of `transact`)."""
        self._still = Still(folder, CACHE)
        self.files = files
        self.private_headers = PrivateHeaders(self._still.table("heads.db"))
        self._states = self._still.table("state.db")
        self._index = self._still.table("index.db")
        self._cache = self._still.table("cache.db")
        self._refs = References(self._still.table("messages.db"), self._still.table("purge.db"), partial(seen, files))
        self._vanished = Vanished(self._still.table("vanished.db"))
        self._readers = ReaderFlags(self._still.table("seen.db"))
        self._rendered: dict[bytes, CachedMessage] = {}
        try:
            self._epoch = meta_of(self._states.get(META_KEY) or b"", "That snapshot")[0]
        except BaseException:
            self.close()
            raise

    def state(self, mailbox: MailboxId) -> MailboxState:
        """The figures of a mailbox, by its own id. Raises StoreError NO_MAILBOX."""
        data = self._states.get(state_key(mailbox))
        state = None if data is None else MailboxState.from_bytes(data, self._epoch)
        if state is None or state.removed:
            raise StoreError(Problem.NO_MAILBOX)
        return state

    def rows(self, mailbox: MailboxId) -> Rows:
        """Its records. Raises StoreError CORRUPT."""
        end = chunk_key(MailboxId(mailbox + 1), 0)
        values = [value for _, value in self._index.scan(chunk_key(mailbox, 0), end)]
        if not all(map(is_whole, values)):
            raise StoreError(Problem.CORRUPT, detail="an index chunk does not agree with its checksum")
        return join(values)

    def as_seen(self, mailbox: MailboxId, rows: Rows, reader: str, private: int) -> Rows:
        """The records with the reader's own flags in the place of the owner's. Raises StoreError CORRUPT."""
        numbers: list[int] = np.unique((rows["uid"] - 1) // CHUNK).tolist()
        return overlay(rows, self._readers.of(mailbox, reader, numbers), private)

    def vanished(self, mailbox: MailboxId, since: int) -> NDArray[np.uint32] | None:
        return self._vanished.since(mailbox, self.state(mailbox), since)

    def cached(self, rows: Rows) -> list[CachedMessage]:
        """The cache records of messages, those that were lost made from the files: for a thread. Raises StoreError
        CORRUPT."""
        found = []
        get = self._cache.get
        for serial, digest in zip(rows["serial"].tolist(), rows["digest"].tolist(), strict=True):
            value = get(serial.to_bytes(8, "big"))
            try:
                cached = None if value is None else CachedMessage.from_bytes(value)
            except ValueError:                  # an earlier version's
                cached = None
            found.append(cached if cached is not None and cached.digest == digest else self._render(digest))
        return found

    def _render(self, digest: bytes) -> CachedMessage:
        known = self._rendered.get(digest)
        if known is not None:
            return known
        record = self._refs.find(digest)
        if record is None:
            raise StoreError(Problem.CORRUPT, "The message cannot be read", f"nothing is known of {digest.hex()}")
        with self.files.open(digest, record.serial, record.trace, record.size - record.trace) as file:
            made = render(parse(file.read, file.size), digest, record.trace)
        if len(made.data) <= RENDERED_OCTETS:
            if len(self._rendered) >= RENDERED_RECORDS:
                self._rendered.clear()
            self._rendered[digest] = made
        return made

    def close(self) -> None:
        self._still.close()


@define(eq=False)
class SnapshotReader:
    """One snapshot that is looked into, a `Readable`. Got from `SnapshotReaders.use`, and given back there.

    What reads the databases raises StoreError, also DISK_FULL and UNAVAILABLE. What takes an entry wants one of those
    that this gives, under whatever name.
    """

    snapshot: Snapshot
    store: Store
    users: int = 0
    unused_since: float = 0.0
    _prepared: Prepared | None = None
    _list: SnapshotList | None = None
    _partitions: dict[str, SnapshotPartition] = field(factory=dict)
    _views: WeakValueDictionary[tuple[int, str], Mailbox] = field(factory=WeakValueDictionary)
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def owned(self) -> Owned:
        """What the open store remembers: mailboxes of snapshots have other ids there."""
        return self.store.owned

    def is_there(self) -> bool:
        """Whether the snapshot has not been removed, and with it what keeps the message files."""
        return self.snapshot.path.exists()

    # Mailboxes, for a thread

    def user(self, inbox: MailboxEntry) -> str:
        """What the user was called whose INBOX this is now; "" for one who was not there.

        An INBOX keeps its id when the user is renamed, and one who has got the name of a user who is no more has
        another: what belongs to whom goes by that.
        """
        with problems():
            then = self._mailboxes().find_id(inbox.id)
            return then.name.owner if then is not None and then.name.is_inbox() else ""

    def mailboxes(self, inbox: MailboxEntry) -> list[MailboxEntry]:
        """All mailboxes then of the user whose INBOX this is now, in order of name."""
        user = self.user(inbox)
        with problems():
            return [_foreign(entry) for entry in self._mailboxes().below(user)] if user else []

    def shared(self, user: str, groups: Collection[str]) -> list[MailboxEntry]:
        """Mailboxes of others then, and public ones, that such a user may have been able to look up."""
        with problems():
            mailboxes = self._mailboxes()
            found = (mailboxes.find(name) for name in sorted(mailboxes.granted.of(identifiers(user, groups)), key=str)
                     if name.owner != user)
            return [_foreign(entry) for entry in found if entry is not None]

    def mailbox(self, inbox: MailboxEntry, path: str) -> MailboxEntry:
        """The one of that name, of the same user. Raises StoreError NO_MAILBOX."""
        user = self.user(inbox)
        if not user:
            raise StoreError(Problem.NO_MAILBOX)
        return self.named(MailboxName(user, path))

    def named(self, name: MailboxName) -> MailboxEntry:
        """The one of that name, whoever's. Raises StoreError NO_MAILBOX."""
        with problems():
            entry = self._mailboxes().find(name)
        if entry is None:
            raise StoreError(Problem.NO_MAILBOX)
        return _foreign(entry)

    def state(self, entry: MailboxEntry, reader: str = "") -> MailboxState:
        r"""The mailbox's figures; what is unseen is counted by the \Seen of the reader's own. Raises StoreError
        NO_MAILBOX, CORRUPT."""
        if reader and self.store.settings.private_bits & Flag.SEEN:
            mailbox = self.open_mailbox(entry, reader)
            return evolve(mailbox.state, unseen=counters_of(mailbox.rows).unseen)
        with problems():
            return self.partition(entry.partition).state(_own(entry))

    def open_mailbox(self, entry: MailboxEntry, reader: str = "") -> Mailbox:
        """The mailbox; one of others' with the flags that the `reader`, by the name of then, had of its own. Raises
        StoreError NO_MAILBOX, CORRUPT."""
        with problems():
            partition = self.partition(entry.partition)
            known = self._views.get((entry.id, reader))
            if known is not None and known.entry == entry:
                return known
            rows = partition.rows(_own(entry))
            if reader:
                rows = partition.as_seen(_own(entry), rows, reader, self.store.settings.private_bits)
            found = Mailbox(entry, partition.state(_own(entry)), rows, reader)
            self._views[entry.id, reader] = found
            return found

    # Messages

    def partition(self, name: str) -> SnapshotPartition:
        """The partition as it was; for a thread unless it has been asked for before. Raises StoreError UNAVAILABLE."""
        found = self._partitions.get(name)
        if found is not None:               # the event loop comes here, too: it must not wait while another is opened
            return found
        files = self.store.partition(name).files
        with self._lock, problems():
            if name not in self._partitions:
                self._partitions[name] = SnapshotPartition(self._environment(f"partitions/{name}/index"), files)
            return self._partitions[name]

    def cached(self, entry: MailboxEntry, rows: Rows) -> list[CachedMessage]:
        partition = self.partition(entry.partition)
        with problems():
            return partition.cached(rows)

    def open_message(self, entry: MailboxEntry, row: np.void) -> MessageFile:
        partition = self.partition(entry.partition)
        with problems():
            head = partition.private_headers.find(int(row["head"]))
        return partition.files.open(bytes(row["digest"]), int(row["serial"]), int(row["header_length"]),
                                    int(row["size"]), head)

    def private_headers(self, partition: str, rows: Rows) -> dict[int, bytes]:
        """The header fields of their own that these records had, by number. Raises StoreError CORRUPT."""
        private_headers = self.partition(partition).private_headers
        with problems():
            return {number: private_headers.find(number) for number in set(rows["head"].tolist()) - {0}}

    def vanished(self, entry: MailboxEntry, since: int) -> NDArray[np.uint32] | None:
        with problems():
            return self.partition(entry.partition).vanished(_own(entry), since)

    # Databases

    def _mailboxes(self) -> SnapshotList:
        with self._lock:
            if self._list is None:
                self._list = SnapshotList(self._environment(LIST), CACHE)
            return self._list

    def _environment(self, name: str) -> Path:
        """The folder of an environment that can be read. Raises StoreError, OSError, Failure."""
        if not self.is_there():
            raise StoreError(Problem.NO_MAILBOX)
        if self._prepared is None:
            self._prepared = Prepared.of(self.snapshot.path)
        return self._prepared.environment(name, lambda target: self._fill(name, target))

    def _fill(self, name: str, target: Path) -> None:
        part = self.snapshot.manifest.environments.get(name)
        needed = 0 if part is None else part.size + self.store.settings.disk_reserve
        if shutil.disk_usage(target).free < needed:
            raise StoreError(Problem.DISK_FULL, detail=f"there is no room in {target.parent} to look into the snapshot")
        taking.put_back(self.snapshot, name, target)
        for path in target.glob("log.*"):
            path.unlink()

    def close(self) -> None:
        with self._lock:
            if self._list is not None:
                self._list.close()
            for partition in self._partitions.values():
                partition.close()
            self._list = None
            self._partitions.clear()
            if self._prepared is not None:
                self._prepared.release()
                self._prepared = None


def _foreign(entry: MailboxEntry) -> MailboxEntry:
    return evolve(entry, id=MailboxId(-entry.id))


def _own(entry: MailboxEntry) -> MailboxId:
    """The id that the mailbox has in its own databases."""
    return MailboxId(-entry.id)


class SnapshotReaders:
    """The snapshots that this process looks into, a few at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, SnapshotReader] = {}
        self._tidying = False
        self._lock = threading.Lock()

    def there(self) -> list[Snapshot]:
        """The snapshots that can be looked into, the newest first. For a thread."""
        return taking.listed(taking.folder(self._store.root, self._store.settings))

    def use(self, name: str) -> SnapshotReader:
        """A snapshot, until it is given back. For a thread. Raises StoreError NO_MAILBOX, LIMIT."""
        while True:
            known = name in self._open          # `give_back` must not wait while it is looked for
            snapshot = None if known else next((each for each in self.there() if each.name == name), None)
            with self._lock:
                reader = self._open.get(name)
                if reader is None and known:      # it has just been closed
                    continue
                if reader is not None and reader.is_there():
                    reader.users += 1
                    return reader
                if snapshot is None or reader is not None:        # `tidy` finds what is left of one that was removed
                    raise StoreError(Problem.NO_MAILBOX)
                gone = self._one_too_many()
                for each in gone:
                    del self._open[each.snapshot.name]
                self._open[name] = found = SnapshotReader(snapshot, self._store, users=1)
            for each in gone:
                each.close()
            return found

    def _one_too_many(self) -> list[SnapshotReader]:
        if len(self._open) < MOST:
            return []
        unused = [snapshot for snapshot in self._open.values() if not snapshot.users]
        if not unused:
            raise StoreError(Problem.LIMIT, "Too many snapshots are being looked into, try again later")
        return [min(unused, key=lambda snapshot: snapshot.unused_since)]

    def give_back(self, snapshot: SnapshotReader) -> None:
        """It is used no more; whoever gives one back has `tidy` called LINGER later."""
        with self._lock:
            snapshot.users -= 1
            snapshot.unused_since = time.monotonic()

    @contextmanager
    def used(self, name: str) -> Iterator[SnapshotReader]:
        snapshot = self.use(name)
        try:
            yield snapshot
        finally:
            self.give_back(snapshot)

    def claim_tidying(self) -> bool:
        """Whether `tidy` is to be called LINGER from now, and nobody else has said that it will."""
        with self._lock:
            if self._tidying or all(snapshot.users for snapshot in self._open.values()):
                return False
            self._tidying = True
            return True

    def tidy(self, linger: float = LINGER) -> None:
        """Close those that nobody has used for so long, or whose snapshot has been removed. For a thread."""
        with self._lock:
            self._tidying = False
            old = time.monotonic() - linger
            gone = [snapshot for snapshot in self._open.values()
                    if not snapshot.users and (snapshot.unused_since <= old or not snapshot.is_there())]
            for snapshot in gone:
                del self._open[snapshot.snapshot.name]
        for snapshot in gone:
            snapshot.close()

    def close(self) -> None:
        for snapshot in self._open.values():
            snapshot.close()
        self._open.clear()


def readers_of(store: Store) -> SnapshotReaders:
    """The snapshots that users of an open store look into. They are closed with the store."""
    def make() -> SnapshotReaders:
        readers = SnapshotReaders(store)
        store.at_close(readers.close)
        return readers

    return store.owned.get(SnapshotReaders, make)
