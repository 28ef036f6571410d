"""One partition: its folders, its environment, and reading and writing the mailboxes on it.

A partition is a complete shard of the store: message files, indexes, quota and log lie together on one volume.
"""

import hashlib
import struct
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.kv import Deadlock, Env, Failure, Txn, is_disk_full, sync_folder, transact
from store.cache import CachedMessage, render
from store.changes import News
from store.errors import Problem, StoreError
from store.index import CHUNK, Rows, chunk_key, chunk_number, is_whole, join, joined, take
from store.mailbox import Mailbox, MailboxState
from store.messagefiles import MessageFile, MessageFiles, Staged
from store.mime import parse
from store.quota import QuotaTable
from store.refs import References
from store.settings import Settings
from store.txn import WriteTxn, state_key

_META_KEY = b"\x00\x00\x00\x00"
_META = struct.Struct("<IQ")            # epoch; first arrival serial not given out
SERIALS = 4096                          # arrival serials that a process takes at a time
REMEMBERED = 32                         # changes of one mailbox that a process remembers, to bring pictures up to date
MAILBOXES_REMEMBERED = 5000

T = TypeVar("T")


class Partition:
    """See the module's text. `recover` is for the one process that opens the store first; `broken`: see `Env`."""

    def __init__(self, folder: Path, settings: Settings, news: News, *, recover: bool, broken: Callable[[], None]
                 ) -> None:
        self.name = folder.name
        self.folder = folder
        self.settings = settings
        self.files = MessageFiles(folder)
        self._news = news
        self._unclean = folder / "index" / "unclean"
        self.env = Env(folder / "index", cache=settings.cache, locks=settings.database_locks, recover=recover,
                       broken=broken)
        self.index = self.env.table("index.db", page=32768)
        self.states = self.env.table("state.db", page=4096)
        self.quotas = QuotaTable(self.env.table("quota.db", page=4096), settings)
        self.refs = References(self.env.table("messages.db"), self.env.table("purge.db"))
        self._cache = self.env.table("cache.db", page=16384)
        self._serials = iter(range(0))
        self._serials_lock = threading.Lock()
        self._history: OrderedDict[int, deque[tuple[int, int, frozenset[int] | None]]] = OrderedDict()
        self.dirty = False                  # something was committed that may not have been flushed
        self.epoch = self._begin(recover)

    @staticmethod
    def make(folder: Path) -> None:
        """The folders of a new partition, on disk when this returns."""
        (folder / "index").mkdir(parents=True, mode=0o700)
        (folder / "users").mkdir(mode=0o700)
        MessageFiles(folder).make_folders()
        for made in (*(folder / "messages").iterdir(), folder / "messages", folder, folder.parent):
            sync_folder(made)

    def _begin(self, recover: bool) -> int:
        """Count an unclean end, take up what it left in `staging/`; the epoch."""
        def count(txn: Txn) -> int:
            data = self.states.get_to_change(_META_KEY, txn)
            epoch, serial = _META.unpack(data) if data else (1, 1)
            if recover and self._unclean.exists():
                epoch += 1
            self.states.put(_META_KEY, _META.pack(epoch, serial), txn)
            return int(epoch)

        epoch = transact(self.env, count)
        self.env.flush()
        if recover:
            self.files.recover(self._committed_mid)
            self.files.settle()
            self._unclean.touch()
            sync_folder(self._unclean.parent)
        return epoch

    def _committed_mid(self, serial: int) -> bytes | None:
        data = self._cache.get(_serial_key(serial))
        if data is None:
            return None
        mid = CachedMessage.from_bytes(data).mid
        record = self.refs.find(mid)
        return mid if record is not None and record.serial == serial else None

    def close(self, *, clean: bool) -> None:
        """Leave the partition; `clean` says that no other process is in it and nothing is under way."""
        self.env.flush()
        self.files.settle()
        if clean:
            self.env.checkpoint()
        self.files.close()
        self.env.close()
        if clean:
            self._unclean.unlink(missing_ok=True)
            sync_folder(self._unclean.parent)

    def user_folder(self, user: str) -> Path:
        """The user's own folder; two levels of a hash of the user id keep every folder small."""
        digest = hashlib.blake2b(user.encode(), digest_size=2).hexdigest()
        return self.folder / "users" / digest[:2] / digest[2:] / user

    # Messages coming in

    def stage(self, trace: bytes = b"") -> Staged:
        """A message to be received. Raises StoreError DISK_FULL when too little is free."""
        if self.files.free() < self.settings.disk_reserve:
            raise StoreError(Problem.DISK_FULL)
        return Staged(self.files, self.next_serial(), trace, self.settings.message_limit)

    def next_serial(self) -> int:
        """An arrival serial that was never given out before, in any process."""
        with self._serials_lock:
            serial = next(self._serials, None)
            if serial is None:
                first = transact(self.env, self._take_serials)
                self.env.flush()            # or else a crash would have them given out again
                self._serials = iter(range(first + 1, first + SERIALS))
                serial = first
        return serial

    def _take_serials(self, txn: Txn) -> int:
        epoch, first = _META.unpack(self.states.get_to_change(_META_KEY, txn) or b"")
        self.states.put(_META_KEY, _META.pack(epoch, first + SERIALS), txn)
        return int(first)

    def write_cached(self, serial: int, cached: CachedMessage, txn: Txn) -> None:
        """Keep the cache record of an arrival."""
        self._cache.put(_serial_key(serial), cached.to_bytes(), txn)

    def forget_cached(self, serial: int, txn: Txn) -> None:
        """The message file has been purged."""
        self._cache.delete(_serial_key(serial), txn)

    # Writing

    def transact(self, work: Callable[[WriteTxn], T]) -> T:
        """The result of `work`, committed but not flushed. `work` may run more than once.

        Raises what `work` raises, and StoreError BUSY, DISK_FULL, UNAVAILABLE.
        """
        made: list[WriteTxn] = []

        def run(handle: Txn) -> T:
            made[:] = [WriteTxn(self, handle)]
            return work(made[0])

        try:
            result = transact(self.env, run)
        except Deadlock as error:
            raise StoreError(Problem.BUSY, detail=str(error)) from error
        except Failure as error:
            problem = Problem.DISK_FULL if is_disk_full(error) else Problem.UNAVAILABLE
            raise StoreError(problem, detail=str(error)) from error
        self.dirty = True
        self._remember(made[0])
        return result

    def _remember(self, txn: WriteTxn) -> None:
        told = []
        for mailbox, before, chunks in txn.changed():
            history = self._history.get(mailbox)
            if history is None:
                history = self._history[mailbox] = deque(maxlen=REMEMBERED)
                if len(self._history) > MAILBOXES_REMEMBERED:
                    self._history.popitem(last=False)
            history.append((before, before + 1, chunks))
            told.append(mailbox)
        if told:
            self._news.tell(told)

    # Reading

    def state(self, mailbox: MailboxId, txn: Txn = None) -> MailboxState:
        """The mailbox's figures. Raises StoreError NO_MAILBOX when it has been deleted."""
        data = self.states.get(state_key(mailbox), txn)
        if data is None:
            raise StoreError(Problem.NO_MAILBOX)
        return MailboxState.from_bytes(data, self.epoch)

    def all_states(self) -> Iterator[tuple[MailboxId, MailboxState]]:
        """Every mailbox that has figures here."""
        for key, data in self.states.scan(b"\x00\x00\x00\x01"):
            yield MailboxId(int.from_bytes(key, "big")), MailboxState.from_bytes(data, self.epoch)

    def read(self, entry: MailboxEntry) -> Mailbox:
        """A picture of the mailbox. Raises StoreError NO_MAILBOX, CORRUPT."""
        def work(txn: Txn) -> Mailbox:
            state = self.state(entry.id, txn)       # while this row is locked the chunks stand still
            return Mailbox(entry, state, join(self._chunks(entry.id, 0, txn)))
        return transact(self.env, work)

    def refresh(self, mailbox: Mailbox) -> Mailbox:
        """A picture of the mailbox as it is now; the same object when nothing changed."""
        entry, old = mailbox.entry, mailbox.state
        if self.state(entry.id).highestmodseq == old.highestmodseq:
            return mailbox

        def work(txn: Txn) -> Mailbox:
            state = self.state(entry.id, txn)
            if state.changed <= old.highestmodseq:          # only arrivals
                arrived = join(self._chunks(entry.id, chunk_number(old.uidnext), txn))
                new = take(arrived, arrived["uid"] >= old.uidnext)
                return Mailbox(entry, state, _read_only(joined(mailbox.rows, new)))
            numbers = self._changed_since(entry.id, old.highestmodseq, state.highestmodseq)
            if numbers is None:
                return Mailbox(entry, state, join(self._chunks(entry.id, 0, txn)))
            return Mailbox(entry, state, self._patched(mailbox, numbers, txn))
        return transact(self.env, work)

    def _changed_since(self, mailbox: int, since: int, until: int) -> set[int] | None:
        """The chunks that changed between two MODSEQs, if this process made all the changes and remembers them."""
        numbers: set[int] = set()
        for before, after, chunks in reversed(self._history.get(mailbox, ())):
            if after != until or chunks is None:
                return None
            numbers |= chunks
            until = before
            if until == since:
                return numbers
        return None

    def _patched(self, mailbox: Mailbox, numbers: set[int], txn: Txn) -> Rows:
        pieces, done = [], 0
        uids = np.ascontiguousarray(mailbox.rows["uid"])
        for number in sorted(numbers):
            begin, end = np.searchsorted(uids, (number * CHUNK + 1, (number + 1) * CHUNK + 1))
            pieces.append(mailbox.rows[done:begin])
            value = self.index.get(chunk_key(mailbox.entry.id, number), txn)
            if value is not None:
                pieces.append(join([_whole(value)]))
            done = max(done, int(end))
        return _read_only(joined(*pieces, mailbox.rows[done:]))

    def _chunks(self, mailbox: MailboxId, first: int, txn: Txn) -> list[bytes]:
        start, end = chunk_key(mailbox, first), chunk_key(MailboxId(mailbox + 1), 0)
        return [_whole(value) for _, value in self.index.scan(start, end, txn)]

    def open_message(self, row: np.void) -> MessageFile:
        """The message of an index record, for reading. Raises StoreError CORRUPT."""
        return self.files.open(bytes(row["mid"]), int(row["serial"]), int(row["skip"]), int(row["size"]))

    def cached(self, serials: Iterable[int]) -> list[CachedMessage | None]:
        """The cache records of arrivals, in the order asked for; None where there is none."""
        get = self._cache.get
        values = [get(serial.to_bytes(8, "big")) for serial in serials]
        return [None if value is None else CachedMessage.from_bytes(value) for value in values]

    def rebuild_cached(self, row: np.void) -> CachedMessage:
        """The cache record of a message, made from its file and kept. Raises StoreError CORRUPT."""
        mid, serial = bytes(row["mid"]), int(row["serial"])
        record = self.refs.find(mid)
        if record is None:
            raise StoreError(Problem.CORRUPT, "The message cannot be read", f"nothing is known of {mid.hex()}")
        with self.files.open(mid, serial, record.trace, record.size - record.trace) as file:
            cached = render(parse(file.read, file.size), mid, record.trace)
        self.transact(lambda txn: self.write_cached(serial, cached, txn.handle))
        return cached


def _serial_key(serial: int) -> bytes:
    return serial.to_bytes(8, "big")


def _whole(value: bytes) -> bytes:
    if not is_whole(value):
        raise StoreError(Problem.CORRUPT, detail="an index chunk does not agree with its checksum")
    return value


def _read_only(rows: Rows) -> Rows:
    rows.flags.writeable = False
    return rows
