"""One partition: its folders, its environment, and reading and writing the mailboxes on it.

A partition is a complete shard of the store: message files, indexes, quota and log lie together on one volume.
"""

import contextlib
import hashlib
import logging
import os
import struct
import threading
import time
from bisect import bisect, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.engine.btree import Txn
from mboxlist.engine.damagemarks import mark_clean
from mboxlist.engine.disk import is_disk_full, sync_folder
from mboxlist.engine.freezegate import Quiesced, WriteFreeze
from mboxlist.engine.generations import read_mark, shown
from mboxlist.engine.kv import Deadlock, Env, Failure, Unflushed, transact
from mboxlist.engine.logfiles import Unsynced, last_write
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxId
from store.changes import Change, News, partition_number
from store.errors import NotAtOnce, Problem, StoreError, disk_problem
from store.message.cacherecord import CachedMessage, are_sound, render
from store.message.mime import parse
from store.partition.filecontent import seen, trace_of
from store.partition.marks import READ_ONLY, generations_of_partition, mark_behind, read_epoch, write_epoch
from store.partition.messagefiles import MessageFile, MessageFiles
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.partition.unwritten import Unwritten
from store.partition.views import LOCK_SECONDS, MailboxViews, Patch
from store.settings import Settings
from store.tables.copiesunderway import CopiesUnderWay
from store.tables.domainlimits import Domains, NotSummed
from store.tables.duplicates import Duplicates
from store.tables.expunged import ExpungedMessages
from store.tables.index import Rows, is_whole, message_of, writable
from store.tables.privateheaders import PrivateHeaders
from store.tables.quotatable import QuotaTable
from store.tables.readerflags import ReaderFlags
from store.tables.references import UNSEEN_TRACE, MessageRecord, References
from store.tables.state import MailboxState, charged_root, is_here, state_key
from store.tables.uidls import Uidls
from store.tables.vanished import Vanished

log = logging.getLogger(__name__)

_FOREVER = 1 << 32          # a Unix time that never comes
META_KEY = b"\x00\x00\x00\x00"
META = struct.Struct("<IQI")           # epoch; first arrival serial not given out; format of what is on disk
FORMAT = 5                              # 4: no table has a generation. 3: each list of those that wait for the purge
                                        # has one digest. 2: no expunged record is counted. 1, without the field in
READABLE = (2, 3, 4, FORMAT)            # META: records of 88 octets. What is written to becomes one of FORMAT
PLENTY = 1 << 30                        # octets that nobody writes within a fifth of a second
READY = 64                              # files that are made ready at a time
PART = ".part"                          # behind the name of a snapshot that is being made
HELD = 250                              # cache records that are in memory at a time: of more, it would be fresh memory
SERIALS = 4096                          # arrival serials that a process takes at a time
BEFORE_END = 60                         # seconds before the last write of a process that was killed in which it may
                                        # have delivered without an answer
TOLD_TOGETHER = 8                       # mailboxes that a transaction changed, of which others hear what it changed
_REFUSED = (*Deadlock, Quiesced, Failure, OSError)  # what a transaction raises, and is told as StoreError

T = TypeVar("T")


class Partition:
    """See the module's text. `recover` is for the one process that opens the store first; `broken`: see `Env`."""

    def __init__(self, folder: Path, settings: Settings, news: News, *, recover: bool, broken: Callable[[], None],
                 write_freeze: WriteFreeze | None = None) -> None:
        self.name = folder.name
        self.folder = folder
        self.settings = settings
        self.files = MessageFiles(folder)
        self._news = news
        self._number = partition_number(self.name)
        self._unclean = folder / "index" / "unclean"
        self._read_only = (folder.parents[1] / READ_ONLY).exists()
        self._snapshots = [folder.parent.parent / "snapshots"]
        if settings.snapshot_folder is not None:
            self._snapshots.append(settings.snapshot_folder)
        self._written = last_write(folder / "index") if recover else 0     # before recovery writes
        self.env = Env(folder / "index", cache=settings.cache, locks=settings.database_locks, recover=recover,
                       broken=broken, write_freeze=write_freeze,
                       marks=lambda: [] if self._read_only else generations_of_partition(folder))
        self.index = self.env.table("index.db", page=32768)
        self.states = self.env.table("state.db", page=4096, glances=True)
        self.copies = CopiesUnderWay(self.states)
        self.quotas = QuotaTable(self.env.table("quota.db", page=4096, glances=True), settings)
        self.domains = Domains(lambda: (self.quotas,), settings)       # the store has one for all its partitions
        self.refs = References(self.env.table("messages.db", glances=True), self.env.table("purge.db"), self._seen)
        self.readers = ReaderFlags(self.env.table("seen.db"))
        self.vanished = Vanished(self.env.table("vanished.db", page=4096))
        self.removed = ExpungedMessages(self.env.table("removed.db"), self.refs)
        self.private_headers = PrivateHeaders(self.env.table("heads.db"))
        self.uidls = Uidls(self.env.table("uidls.db", page=4096))
        self.duplicates = Duplicates(self.env.table("arrivals.db"))
        self._cache = self.env.table("cache.db", page=16384)
        self._roomy_until = -1.0
        self._serials: Iterator[int] = iter(range(0))
        self._blocks: list[int] = []        # the first of each block of serials that this process took
        self._left: set[int] = set()        # of files in `staging/` that seemed to be forgotten at the last `sweep`
        self._serials_lock = threading.Lock()
        self.views = MailboxViews(self)
        news.learn(self._number, lambda change: self.views.remember(
            MailboxId(change.mailbox), change.before, change.chunks))
        self.unwritten = Unwritten()
        self.damaged: set[MailboxId] = set()        # mailboxes whose index was found damaged, to be repaired
        self.outdated: set[MailboxId] = set()       # those whose `store.idx` knows more: see `recovery.newerfiles`
        self.epoch = self._begin(recover)
        self.unclean_ends = self.duplicates.ends()      # see `delivery.repeats`

    @staticmethod
    def make(folder: Path) -> None:
        """The folders of a new partition, on disk when this returns. Some may be there."""
        privatefiles.make_folder(folder / "index", parents=True, exist_ok=True)
        privatefiles.make_folder(folder / "users", exist_ok=True)
        MessageFiles(folder).make_folders()
        for made in (*(folder / "messages").iterdir(), folder / "messages", folder, folder.parent):
            sync_folder(made)

    def _begin(self, recover: bool) -> int:
        """Count an unclean end, take up what it left in `staging/`; the epoch."""
        def count(txn: Txn) -> int:
            data = self.states.get_to_change(META_KEY, txn)
            epoch, serial, _ = META.unpack(self._of_our_format(data)) if data else (1, 1, FORMAT)
            if recover:
                epoch = max(epoch, read_epoch(self.folder))     # the table may be an older one
            if recover and not self._read_only and self._unclean.exists():
                epoch += 1
            self.states.put(META_KEY, META.pack(epoch, serial, FORMAT), txn)
            return int(epoch)

        try:
            epoch = transact(self.env, count)
        except StoreError:
            self.env.close()
            raise
        self.env.flush()
        if recover and not self._read_only:
            privatefiles.make_folder(self.folder / "users", exist_ok=True)
            self._compare_user_area()
            if self._unclean.exists():
                transact(self.env, lambda txn: self.duplicates.note_end(
                    self._written - BEFORE_END, self._written, txn))
            write_epoch(self.folder, epoch)
            self.files.make_lost_folders()
            self.files.recover(self._committed_mid)
            self.files.drop_staged_names()
            privatefiles.touch(self._unclean)
            sync_folder(self._unclean.parent)
        return epoch

    def _compare_user_area(self) -> None:
        """Have every `store.idx` compared with its mailbox where it may be older: after an unclean end, and when an
        older user area has been put back."""
        unclean, (there, newest) = self._unclean.exists(), map(read_mark, generations_of_partition(self.folder))
        if there < newest and not unclean:
            log.warning("users/ of partition %s is older (%s) than its databases (%s): each store.idx is compared "
                        "with its mailbox", self.name, shown(there), shown(newest))
        if there < newest or unclean:
            mark_behind(self.folder)

    def _of_our_format(self, meta: bytes) -> bytes:
        """What is stored under META_KEY. Raises StoreError UNAVAILABLE when another version of onecopy wrote it."""
        found = META.unpack(meta)[-1] if len(meta) == META.size else 1
        if found not in READABLE:
            raise StoreError(Problem.UNAVAILABLE, f"Partition {self.name} has the format {found} of another version of "
                                                  f"onecopy; this one knows format {FORMAT}")
        return meta

    def _committed_mid(self, serial: int) -> bytes | None:
        data = self._cache.get(_serial_key(serial))
        if data is None:
            return None
        digest = data[:32]                     # in records of every version
        record = self.refs.find(digest)
        return digest if record is not None and record.serial == serial else None

    def flush(self) -> None:
        """Return when everything committed so far is on disk. Raises Unflushed."""
        self.env.flush()

    def synced(self, log_file: Unsynced, failure: OSError | None = None) -> None:
        """A sync of what `env.unsynced` gave has ended. Raises Unflushed."""
        self.env.synced(log_file, failure)

    def close(self, *, clean: bool) -> None:
        """Leave the partition; `clean` says that no other process is in it and nothing is under way."""
        self.env.flush()
        self.files.drop_staged_names()
        if clean:
            self.env.checkpoint()
            if self.settings.log_archive is None:
                self.env.drop_logs(most=2 * self.settings.snapshot_logs)
        self.files.close()
        self.env.close(clean=clean)
        if clean:
            mark_clean(self.folder / "index")
            self._unclean.unlink(missing_ok=True)
            sync_folder(self._unclean.parent)

    def user_folder(self, user: str) -> Path:
        """The user's own folder; two levels of a hash of the user id keep every folder small."""
        digest = hashlib.blake2b(user.encode(), digest_size=2).hexdigest()
        return self.folder / "users" / digest[:2] / digest[2:] / user

    # Messages coming in

    def stage(self, trace: bytes = b"") -> Staged:
        """A message to be received. Raises StoreError DISK_FULL when too little is free."""
        self.check_room()
        ready = self.files.take_ready()
        serial = self.next_serial() if ready is None else ready
        return Staged(self.files, serial, trace, self.settings.message_limit, named=ready is not None)

    def check_room(self) -> None:
        """Raises StoreError DISK_FULL when the volume takes no more mail: too little is free, or too much is used; and
        READ_ONLY.

        Where there is plenty of room it looks every fifth of a second: under load a look takes as long as a commit.
        """
        if self._read_only:
            raise StoreError(Problem.READ_ONLY)
        now = time.monotonic()
        if now < self._roomy_until:
            return
        free, used = self.files.volume()
        if not self._has_room(free, used):
            raise StoreError(Problem.DISK_FULL, detail=f"partition {self.name} takes no more mail")
        if self._has_room(free - PLENTY, used + PLENTY):
            self._roomy_until = now + 0.2

    def is_full(self) -> bool:
        """Whether it takes no more mail."""
        try:
            self.check_room()
        except StoreError:
            return True
        return False

    def _has_room(self, free: int, used: int) -> bool:
        threshold = self.settings.disk_threshold
        return free >= self.settings.disk_reserve and not used * 100 >= (used + free) * threshold > 0

    def has(self, mailbox: MailboxId) -> bool:
        """Whether the mailbox is here, and neither on its way elsewhere nor deleted."""
        data = self.states.glance(state_key(mailbox))
        return data is not None and is_here(data)

    def quota_root(self, mailbox: MailboxId) -> str:
        """The quota root that the mailbox is charged to at this moment. Raises StoreError NO_MAILBOX."""
        data = self.states.glance(state_key(mailbox))
        if data is None:
            raise StoreError(Problem.NO_MAILBOX)
        return charged_root(data)

    def make_ready(self) -> None:
        """Make files for messages to come. For a thread. Raises StoreError."""
        self.files.make_ready(self.next_serial() for _ in range(READY))

    def next_serial(self) -> int:
        """An arrival serial that was never given out before, in any process. Raises StoreError (NotAtOnce)."""
        with self._serials_lock:
            serial = next(self._serials, None)
        if serial is None:              # a thread may wait here during a write freeze, and must hold no lock
            with _refused():
                serial = transact(self.env, self._take_serials)
            try:
                self.flush()            # or else a crash would have them given out again
            except Unflushed as error:  # nothing that anybody has asked for is done
                raise disk_problem(error) from error
            with self._serials_lock:
                self._serials = chain(range(serial + 1, serial + SERIALS), self._serials)
                insort(self._blocks, serial)
        return serial

    def first_free_serial(self, txn: Txn = None) -> int:
        """The first arrival serial that no process has taken."""
        return int(META.unpack(self.states.get(META_KEY, txn) or b"")[1])

    def _take_serials(self, txn: Txn) -> int:
        epoch, first, _ = META.unpack(self.states.get_to_change(META_KEY, txn) or b"")
        self.states.put(META_KEY, META.pack(epoch, first + SERIALS, FORMAT), txn)
        return int(first)

    def skip_serials(self, last: int) -> None:
        """Give out neither that arrival serial nor smaller ones. On disk."""
        def work(txn: WriteTxn) -> None:
            epoch, first, form = META.unpack(self.states.get_to_change(META_KEY, txn.handle) or b"")
            self.states.put(META_KEY, META.pack(epoch, max(first, last + 1), form), txn.handle)

        self.transact(work)
        self.env.flush()
        with self._serials_lock:
            self._serials = iter(range(0))

    def sweep(self, age: float) -> int:
        """Take up files in `staging/` that this process made and forgot, if older than `age` seconds; how many.

        What was committed gets its place, the rest goes. For a thread. A file must have been found by two calls: one
        that was made ready may be on its way to its message when we look.
        """
        own = {serial for serial in self.files.left(age)
               if (at := bisect(self._blocks, serial)) and serial < self._blocks[at - 1] + SERIALS}
        again, self._left = own & self._left, own
        for serial in sorted(again):
            self.take_up(serial)
        return len(again)

    def take_up(self, serial: int) -> None:
        """A file in `staging/` that nothing takes care of any more gets its place if it was committed, else it goes."""
        transact(self.env, lambda txn: self._take_up(serial, txn))

    def place_if_committed(self, serial: int) -> None:
        """Give the message of that file in `staging/` its name, if it was committed: as its process is about to."""
        digest = self._committed_mid(serial)
        if digest is not None and not os.path.exists(self.files.path(digest)):
            self.files.place(serial, digest)

    def _take_up(self, serial: int, txn: Txn) -> None:
        digest = self._committed_mid(serial)
        if digest is None:
            self.files.discard(serial)
        elif self.refs.find_to_change(digest, txn) is not None:        # the purge waits for this lock
            self.files.place(serial, digest)

    def skip_to(self, epoch: int, serial: int) -> None:
        """Go on from this epoch, and give out neither this serial nor smaller ones: the partition is rebuilt."""
        def work(txn: WriteTxn) -> None:
            self.states.put(META_KEY, META.pack(epoch, serial + 1, FORMAT), txn.handle)

        self.transact(work)
        self.env.flush()
        self.epoch = epoch
        self._serials = iter(range(0))
        write_epoch(self.folder, epoch)

    def write_cached(self, serial: int, cached: CachedMessage, txn: Txn) -> None:
        """Keep the cache record of an arrival."""
        self._cache.put(_serial_key(serial), cached.to_bytes(), txn)

    def forget_cached(self, serial: int, txn: Txn) -> None:
        """The message file has been purged."""
        self._cache.delete(_serial_key(serial), txn)

    def kept_since(self) -> int:
        """The Unix time of the oldest snapshot: the message files that had references then must stay. While the volume
        with the snapshots is missing, all must."""
        missing = not all(folder.is_dir() for folder in self._snapshots[1:]) and self.env.kept_log() is not None
        return 1 if missing else min(self.snapshots(), default=_FOREVER)

    def snapshots(self) -> list[int]:
        """The Unix times of the snapshots that there are, and of one that is being made."""
        names = [name for folder in self._snapshots if folder.is_dir() for name in os.listdir(folder)]
        times = [snapshot_time(name.removesuffix(PART)) for name in names]
        return [time for time in times if time is not None]

    # Writing

    def transact(self, work: Callable[[WriteTxn], T], *, seconds: float | None = None) -> T:
        """The result of `work`, committed but not flushed. `work` may run more than once. `seconds`: see `kv.transact`.

        Raises what `work` raises, and StoreError BUSY (also NotAtOnce), DISK_FULL, UNAVAILABLE.
        """
        made: list[WriteTxn] = []

        def run(handle: Txn) -> T:
            made[:] = [WriteTxn(self, handle)]
            return work(made[0])

        hurried = seconds is None and self.env.at_once
        while True:
            try:
                result = transact(self.env, run, seconds=LOCK_SECONDS if hurried else seconds)
                break
            except NotSummed as needed:
                domain = needed.domain
            except _REFUSED as error:
                raise _refusal(error, hurried=hurried) from error
            with _refused(hurried):
                self.domains.sum_up(domain)
        if made[0].charged:
            after_commit(self.domains.add, made[0].charged)
        after_commit(self._remember, made[0])
        return result

    def _remember(self, txn: WriteTxn) -> None:
        changes = txn.changed()
        changed: list[MailboxId] = []
        unwritten = self.unwritten.changed
        for mailbox, before, chunks in changes:
            self.views.remember(mailbox, before, chunks)
            if mailbox in txn.handed:
                self.views.hand(mailbox, *txn.handed[mailbox])
            changed.append(mailbox)
            unwritten.add(mailbox)
        if txn.patched is not None and len(changed) == 1:
            mailbox, (before, figures, uid, record) = txn.patched
            self.views.patch(mailbox, Patch(before, figures, uid, record))
        if changed:
            self._news.tell(changed, [Change(self._number, *each) for each in changes]
                            if len(changes) <= TOLD_TOGETHER else ())

    # Reading

    def state(self, mailbox: MailboxId, txn: Txn = None) -> MailboxState:
        """The mailbox's figures. Raises StoreError NO_MAILBOX when it has been deleted."""
        state = self.any_state(mailbox, txn)
        if state is None or state.removed:
            raise StoreError(Problem.NO_MAILBOX)
        return state

    def glance_state(self, mailbox: MailboxId) -> MailboxState | None:
        """The mailbox's figures as they are at this moment, committed or not, without waiting for a lock. For hints."""
        data = self.states.glance(state_key(mailbox))
        state = None if data is None else MailboxState.from_bytes(data, self.epoch)
        return None if state is None or state.removed else state

    def any_state(self, mailbox: MailboxId, txn: Txn = None) -> MailboxState | None:
        """The figures of a mailbox that may have been deleted; None when there are none."""
        if txn is None and self.env.at_once:
            return self._state_at_once(mailbox)
        data = self.states.get(state_key(mailbox), txn)
        return None if data is None else MailboxState.from_bytes(data, self.epoch)

    def _state_at_once(self, mailbox: MailboxId) -> MailboxState | None:
        try:
            return transact(self.env, partial(self.any_state, mailbox), seconds=LOCK_SECONDS, reads=True)
        except Deadlock:
            raise NotAtOnce from None

    def all_states(self, txn: Txn = None) -> Iterator[tuple[MailboxId, MailboxState]]:
        """Every mailbox that has figures here, also those that were deleted and not purged yet; within a transaction
        they stay as they are."""
        for key, data in self.states.scan(b"\x00\x00\x00\x01", txn=txn, hold=txn is not None):
            yield MailboxId(int.from_bytes(key, "big")), MailboxState.from_bytes(data, self.epoch)

    def writable(self, mailbox: MailboxId, values: list[bytes]) -> Rows:
        """The records of chunks, in an array that can be written to. Raises StoreError CORRUPT."""
        return writable(self.whole(mailbox, values))

    def whole(self, mailbox: MailboxId, values: list[bytes]) -> list[bytes]:
        """The values of chunks, if they agree with their checksums. Raises StoreError CORRUPT."""
        if not all(map(is_whole, values)):
            self.found_damage(mailbox)
            raise StoreError(Problem.CORRUPT, detail="an index chunk does not agree with its checksum")
        return values

    def found_damage(self, mailbox: MailboxId) -> None:
        """The mailbox cannot be read until it has been repaired, which housekeeping does; say so once."""
        if mailbox not in self.damaged:
            self.damaged.add(mailbox)
            log.error("the index of mailbox %d on partition %s is damaged", mailbox, self.name)

    def open_message(self, row: np.void) -> MessageFile:
        """The message of an index record, for reading. Raises StoreError CORRUPT."""
        size, serial, header_length, digest, head = message_of(row)
        return self.files.open(digest, serial, header_length, size, self.private_headers.find(head))

    def cached(self, serials: Iterable[int], txn: Txn = None) -> list[CachedMessage | None]:
        """The cache records of arrivals, in the order asked for; None where there is none of this version. Who has
        written any in a transaction, reads in it, too."""
        get = self._cache.get
        return [_cached(get(serial.to_bytes(8, "big"), txn)) for serial in serials]

    def stored_cached(self, serials: Sequence[int]) -> list[bytes | None]:
        """The cache records of arrivals, whose serials ascend, as they are stored."""
        return self._cache.pick([_serial_key(serial) for serial in serials])

    def are_cached(self, serials: NDArray[np.uint64], digests: NDArray[np.void], traces: NDArray[Any]
                   ) -> NDArray[np.bool_]:
        """Whether each of these arrivals has a cache record that can be read, and is of its own message file."""
        order = np.argsort(serials)
        sound = np.empty(len(serials), np.bool_)
        keys = serials[order].astype(">u8").view("V8").tolist()         # as `_serial_key` makes them
        values = chain.from_iterable(self._cache.pick(keys[at:at + HELD]) for at in range(0, len(keys), HELD))
        sound[order] = are_sound(values, digests.take(order), traces[order])
        return sound

    def _seen(self, digest: bytes, record: MessageRecord) -> MessageRecord:
        """The record of a message file, with what it says itself."""
        return seen(self.files, digest, record)

    def look_at_file(self, digest: bytes) -> MessageRecord | None:
        """The record of a message file, which is looked at now if nobody has done so since databases were rebuilt.

        Raises StoreError CORRUPT when it is missing or damaged; once it has been restored it is looked at again.
        """
        record = self.refs.find(digest, raw=True)
        if record is None or record.trace != UNSEEN_TRACE:
            return record
        path = self.files.locate(digest, record.serial)
        found = None if path is None else trace_of(path, digest, ())
        if found is None:
            raise StoreError(Problem.CORRUPT, "The message cannot be read", f"message file {digest.hex()} is "
                             + ("missing" if path is None else "damaged"))
        trace, size = found

        def work(txn: WriteTxn) -> MessageRecord | None:
            now = txn.refs.find_to_change(digest, txn.handle, raw=True)
            if now is not None and now.trace == UNSEEN_TRACE:
                now = evolve(now, trace=trace, size=size)
                txn.refs.write(digest, now, txn.handle)
            return now

        return self.transact(work)

    def rebuild_cached(self, row: np.void) -> CachedMessage:
        """The cache record of a message, made from its file and kept; during a write freeze it is not, since who
        reads must not wait. Raises StoreError CORRUPT."""
        digest = bytes(row["digest"])
        record = self.refs.find(digest)
        if record is None:
            raise StoreError(Problem.CORRUPT, "The message cannot be read", f"no record of message file {digest.hex()}")
        cached = self.render_cached(digest, record)
        if not self.env.quiesced:
            with contextlib.suppress(NotAtOnce):
                self.transact(lambda txn: self.write_cached(record.serial, cached, txn.handle))
        return cached

    def render_cached(self, digest: bytes, record: MessageRecord) -> CachedMessage:
        """The cache record of a message file, made from it. Raises StoreError CORRUPT."""
        with self.files.open(digest, record.serial, record.trace, record.size - record.trace) as file:
            return render(parse(file.read, file.size), digest, record.trace)


def _cached(value: bytes | None) -> CachedMessage | None:
    try:
        return None if value is None else CachedMessage.from_bytes(value)
    except ValueError:          # an earlier version's: made again as a lost one is
        return None


@contextlib.contextmanager
def _refused(hurried: bool = False) -> Iterator[None]:
    """What a transaction raises, as StoreError BUSY (NotAtOnce), DISK_FULL, UNAVAILABLE; `hurried`: it was not to wait
    for locks."""
    try:
        yield
    except _REFUSED as error:
        raise _refusal(error, hurried=hurried) from error


def _refusal(error: Exception, *, hurried: bool) -> StoreError:
    if isinstance(error, Deadlock) and not hurried:
        return StoreError(Problem.BUSY, detail=str(error))
    if isinstance(error, (*Deadlock, Quiesced)):
        return NotAtOnce()
    if isinstance(error, OSError):
        return disk_problem(error)
    return StoreError(Problem.DISK_FULL if is_disk_full(error) else Problem.UNAVAILABLE, detail=str(error))


def _serial_key(serial: int) -> bytes:
    return serial.to_bytes(8, "big")


def snapshot_time(name: str) -> int | None:
    """The Unix time in the name of a snapshot's folder, 20260131T235959Z; None for anything else."""
    try:
        return int(datetime.strptime(name, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
