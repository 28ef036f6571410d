"""One partition: its folders, its environment, and reading and writing the mailboxes on it.

A partition is a complete shard of the store: message files, indexes, quota and log lie together on one volume.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from attrs import evolve

from mboxlist import privatefiles
from mboxlist.engine import generations
from mboxlist.engine.btree import Txn
from mboxlist.engine.damagemarks import mark_clean
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.freezegate import WriteFreeze
from mboxlist.engine.kv import Env
from mboxlist.engine.logfiles import last_write
from mboxlist.engine.secondcopy import STATE_AT
from mboxlist.engine.transact import Deadlock, transact
from mboxlist.engine.troubles import after_commit
from mboxlist.entry import MailboxId
from store.changes import Change, News, partition_number
from store.errors import NotAtOnce, Problem, StoreError
from store.events.outboxtable import OutboxTable
from store.events.quotarecording import QuotaRecording
from store.events.recording import Recorder
from store.events.scriptevents import ScriptEvents
from store.operations import clockrecord
from store.partition.filecontent import look, seen
from store.partition.filejournal import LeftMessages, replay
from store.partition.marks import (
    READ_ONLY,
    WITHOUT_FILES,
    generations_of_partition,
    mark_behind,
    mark_older,
    read_epoch,
    write_epoch,
)
from store.partition.messagefiles import MessageFiles
from store.partition.messagereading import MessageFile
from store.partition.serials import FORMAT, META, META_KEY, WITH_ACCOUNTS, Serials, meta_of
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.partition.unwritten import Unwritten
from store.partition.views import LOCK_SECONDS, MailboxViews
from store.problems import REFUSED, refusal, refused
from store.settings import Settings
from store.tables.copiesunderway import CopiesUnderWay
from store.tables.domainlimits import Domains, NotSummed
from store.tables.duplicates import Duplicates
from store.tables.expunged import ExpungedMessages
from store.tables.index import Rows, is_whole, message_of, writable
from store.tables.privateheaders import PrivateHeaders
from store.tables.quotatable import QuotaTable
from store.tables.readerflags import ReaderFlags
from store.tables.references import UNSEEN_TRACE, MessageRecord, References, serial_of
from store.tables.state import MailboxState, charged_root, is_here, state_key
from store.tables.uidls import Uidls
from store.tables.vanished import Vanished

log = logging.getLogger(__name__)

_FOREVER = 1 << 32          # a Unix time that never comes
PLENTY = 1 << 30                        # octets that nobody writes within a fifth of a second
PART = ".part"                          # behind the name of a snapshot that is being made
TOLD_TOGETHER = 8                       # mailboxes of a transaction, at most, of which others hear what changed in each

T = TypeVar("T")


class Partition:
    """See the module's text. `recover` is for the process that opens the store first; `broken`: see `Env`. `databases`:
    a copy of them, which is only read, instead of those on the volume (`store/readonly`)."""

    def __init__(self, folder: Path, settings: Settings, news: News, *, recover: bool, broken: Callable[[], None],
                 write_freeze: WriteFreeze | None = None, databases: Path | None = None) -> None:
        self.name = folder.name
        self.folder = folder
        self.settings = settings
        self.files = MessageFiles(folder, self._is_committed)
        self._news = news
        self.number = partition_number(self.name)       # under which its changes are told
        self.databases = databases or folder / "index"
        self._unclean = self.databases / "unclean"
        self.read_only = databases is not None or (folder.parents[1] / READ_ONLY).exists()
        if self.read_only:
            self.files.journalled = LeftMessages.of(self.files.staging)
        elif recover:
            replay(self.files.staging)      # before anything looks at message files, or takes their names away
        self._snapshots = [folder.parent.parent / "snapshots"]
        if settings.snapshot_folder is not None:
            self._snapshots.append(settings.snapshot_folder)
        self._written = last_write(self.databases) if recover else 0     # before recovery writes
        self.env = Env(self.databases, cache=settings.cache, locks=settings.database_locks, recover=recover,
                       broken=broken, write_freeze=write_freeze,
                       marks=lambda: [] if self.read_only else generations_of_partition(folder))
        if folder.name in settings.asynchronous_partitions:
            self.env.second = None              # a change here is answered when it is on this machine's disk
        self.index = self.env.table("index.db", page=32768)
        self.states = self.env.table("state.db", page=4096, glances=True)
        self.copies = CopiesUnderWay(self.states)
        self.quotas = QuotaTable(self.env.table("quota.db", page=4096, glances=True), settings,
                                 holds_back=partial(clockrecord.holds_back, folder.parents[1]))
        self.domains = Domains(lambda: (self.quotas,), settings)       # the store has one for all its partitions
        self.refs = References(self.env.table("messages.db", glances=True), self.env.table("purge.db"), self._seen)
        self.readers = ReaderFlags(self.env.table("seen.db"))
        self.vanished = Vanished(self.env.table("vanished.db", page=4096))
        self.removed = ExpungedMessages(self.env.table("removed.db"), self.refs)
        self.private_headers = PrivateHeaders(self.env.table("heads.db"))
        self.uidls = Uidls(self.env.table("uidls.db", page=4096))
        self.duplicates = Duplicates(self.env.table("arrivals.db"))
        self.outbox = OutboxTable(self.env.table("outbox.db"))
        self.script_events = ScriptEvents(self.outbox)
        self.recorder: Recorder | None = None           # the store's
        self.serials = Serials(self, self.env.table("cache.db", page=16384))
        self._roomy_until = -1.0
        self._left: set[int] = set()        # of files in `staging/` that seemed forgotten at the last `sweep`
        self.views = MailboxViews(self)
        news.learn(self.number, lambda change: self.views.remember(
            change.mailbox, change.before, change.chunks))
        self.unwritten = Unwritten()
        self.damaged: set[MailboxId] = set()        # mailboxes whose index was found damaged, to be repaired
        self.outdated: set[MailboxId] = set()       # those whose `store.idx` knows more: see `recovery.newerfiles`
        self.taken_in = list[tuple[int, int, int]]()    # numbers that the log does not have yet
        self.merged = dict[MailboxId, int]()        # of these the one that was written then has been taken in
        self.epoch = self._begin(recover)
        self._gaps = generations.gaps(self.states)
        self.unclean_ends = self.duplicates.ends()      # see `delivery.repeats`

    @staticmethod
    def make(folder: Path) -> None:
        """Make the folders of a new partition, on disk when this returns. Some may be there."""
        privatefiles.make_folder(folder / "index", parents=True, exist_ok=True)
        privatefiles.make_folder(folder / "users", exist_ok=True)
        MessageFiles(folder).make_folders()
        for made in (*(folder / "messages").iterdir(), folder / "messages", folder, folder.parent):
            sync_folder(made)

    def _begin(self, recover: bool) -> int:
        """Count an unclean end, and take up what it left in `staging/`. Returns the epoch."""
        def count(txn: Txn) -> int:
            data = self.states.get_to_change(META_KEY, txn)
            epoch, serial, written = meta_of(data, f"Partition {self.name}") if data else (1, 1, FORMAT)
            if written < WITH_ACCOUNTS and not self.read_only:
                mark_behind(self.folder)
            if recover:
                epoch = max(epoch, read_epoch(self.folder))     # the table may be an older one
            if recover and not self.read_only and self._unclean.exists():
                epoch += 1
            self.states.put(META_KEY, META.pack(epoch, serial, FORMAT), txn)
            if recover:
                self.outbox.set_clock(txn)
                generations.note_start(self.states, txn)
            return int(epoch)

        if not recover:
            self.outbox.read_clock()
        try:
            if not recover and (known := self._known_epoch()):
                return known
            epoch = transact(self.env, count)
        except StoreError:
            self.env.close()
            raise
        self.env.flush()
        if recover and not self.read_only:
            privatefiles.make_folder(self.folder / "users", exist_ok=True)
            mark_older(self.folder, unclean=self._unclean.exists())
            if self._unclean.exists():
                transact(self.env, lambda txn: self.duplicates.note_end(self._written, txn))
            write_epoch(self.folder, epoch)
            if not (self.folder.parents[1] / WITHOUT_FILES).exists():
                self.files.make_lost_folders()
            self.files.recover(self.serials.committed_digest)
            self.files.drop_staged_names()
            privatefiles.touch(self._unclean)
            sync_folder(self._unclean.parent)
        return epoch

    def _known_epoch(self) -> int:
        """The epoch that the first process of the store has on disk; 0: something must be written. So a process that
        joins changes nothing, and waits for no disk and no standby. Raises StoreError UNAVAILABLE when that process is
        of an earlier version, which runs on: it could not read what this version writes."""
        stored = transact(self.env, lambda txn: self.states.get(META_KEY, txn), reads=True)
        epoch, _, written = meta_of(stored, f"Partition {self.name}") if stored else (0, 0, FORMAT)
        if written != FORMAT and not self.read_only:
            raise StoreError(Problem.UNAVAILABLE, f"Partition {self.name} is open in an earlier version of onecopy "
                                                  f"(format {written}; this one writes {FORMAT}): stop that first")
        return epoch

    def flush(self) -> None:
        """Return when everything committed so far is on disk. Raises Unflushed."""
        self.env.flush()

    def flush_here(self) -> None:
        """As `flush`, for changes that nobody is told of: it waits for no standby."""
        second = self.env.second
        if second is None or not second.shared[STATE_AT]:
            self.env.flush()
        else:
            with second.exempt():
                self.env.flush()

    def close(self, *, clean: bool) -> None:
        """Leave the partition; `clean` says that no other process is in it and nothing is under way."""
        self.flush_here()
        self.files.drop_staged_names()
        if clean and not self.read_only:
            self.env.checkpoint()
            if self.settings.log_archive is None:
                self.env.drop_logs(most=2 * self.settings.snapshot_logs)
        self.files.close()
        self.env.close(clean=clean)
        if clean:
            mark_clean(self.databases)
            self._unclean.unlink(missing_ok=True)
            sync_folder(self._unclean.parent)

    def went_through(self, generation: int) -> bool:
        """Whether these databases have gone through that generation. If not, they are an older copy that has gone on by
        itself."""
        return not any(last < generation < start for last, start in self._gaps)

    def user_folder(self, user: str) -> Path:
        """The user's own folder; two levels of a hash of the user id keep every folder small."""
        digest = hashlib.blake2b(user.encode(), digest_size=2).hexdigest()
        return self.folder.joinpath("users", digest[:2], digest[2:], user)

    # Messages coming in

    def stage(self, trace: bytes = b"") -> Staged:
        """A message to be received. Raises StoreError DISK_FULL when too little is free."""
        if self.read_only or time.monotonic() >= self._roomy_until:
            self.check_room()
        ready = self.files.take_ready()
        serial = self.serials.next_serial() if ready is None else ready
        return Staged(self.files, serial, trace, self.settings.message_limit, named=ready is not None)

    def check_room(self) -> None:
        """Raises StoreError DISK_FULL when the volume takes no more mail: too little is free, or too much is used; and
        READ_ONLY.

        Where there is plenty of room it looks every fifth of a second: under load a look takes as long as a commit.
        """
        if self.read_only:
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
        """Whether the partition takes no more mail."""
        try:
            self.check_room()
        except StoreError:
            return True
        return False

    def _has_room(self, free: int, used: int) -> bool:
        threshold = self.settings.disk_threshold
        return free >= self.settings.disk_reserve and not used * 100 >= (used + free) * threshold > 0

    def has(self, mailbox: MailboxId) -> bool:
        """Whether the mailbox is here, and is neither on its way elsewhere nor deleted."""
        data = self.states.glance(state_key(mailbox))
        return data is not None and is_here(data)

    def quota_root(self, mailbox: MailboxId) -> str:
        """The quota root that the mailbox is charged to at this moment. Raises StoreError NO_MAILBOX."""
        data = self.states.glance(state_key(mailbox))
        if data is None:
            raise StoreError(Problem.NO_MAILBOX)
        return charged_root(data)

    def sweep(self, age: float) -> int:
        """Take up the files in `staging/` that this process made and forgot, if older than `age` seconds; how many.

        A committed file gets its place, any other one is removed. For a thread. A file must have been found by two
        calls: one that was made ready may be on its way to its message at this moment.
        """
        own = set(filter(self.serials.took, self.files.left(age)))
        again, self._left = own & self._left, own
        for serial in sorted(again):
            self.take_up(serial)
        return len(again)

    def take_up(self, serial: int) -> None:
        """Give a file in `staging/` that nothing uses any more its place if it was committed; else remove it."""
        transact(self.env, lambda txn: self._take_up(serial, txn))

    def _is_committed(self, digest: bytes, serial: int) -> bool:
        stored = self.refs.messages.glance(digest)
        return stored is not None and serial_of(stored) == serial

    def place_if_committed(self, serial: int) -> None:
        """Give that file in `staging/` its second name if it was committed: its process was about to do so."""
        digest = self.serials.committed_digest(serial)
        if digest is not None and not os.path.exists(self.files.path(digest)):
            self.files.place(serial, digest, own=self.serials.took(serial))

    def _take_up(self, serial: int, txn: Txn) -> None:
        digest = self.serials.committed_digest(serial)
        if digest is None:
            self.files.discard(serial)
        elif self.refs.find_to_change(digest, txn, raw=True) is not None:        # the purge waits for this lock
            self.files.place(serial, digest)

    def skip_to(self, epoch: int, serial: int) -> None:
        """Go on from this epoch, and give out only serials above this one: the partition is rebuilt."""
        def work(txn: WriteTxn) -> None:
            self.states.put(META_KEY, META.pack(epoch, serial + 1, FORMAT), txn.handle)

        self.transact(work)
        self.env.flush()
        self.epoch = epoch
        self.serials.forget_taken()
        write_epoch(self.folder, epoch)

    def kept_since(self) -> int:
        """The Unix time of the oldest snapshot: message files that had references then must stay. While the volume with
        the snapshots is missing, all must stay."""
        missing = not all(folder.is_dir() for folder in self._snapshots[1:]) and self.env.logs.kept() is not None
        return 1 if missing else min(self.snapshots(), default=_FOREVER)

    def snapshots(self) -> list[int]:
        """The Unix times of the snapshots, and of one that is being made."""
        names = [name for folder in self._snapshots if folder.is_dir() for name in os.listdir(folder)]
        times = [snapshot_time(name.removesuffix(PART)) for name in names]
        return [time for time in times if time is not None]

    # Writing

    def record(self, recorder: Recorder) -> None:
        """Record events from now on for the receivers that want them."""
        self.recorder = recorder
        self.quotas.noticed = QuotaRecording(recorder, self.outbox, self.quotas).noticed

    def transact(self, work: Callable[[WriteTxn], T], *, seconds: float | None = None) -> T:
        """The result of `work`, committed but not flushed; it may run more than once. `seconds`: see `engine.transact`.

        Raises what `work` raises, and StoreError BUSY (also NotAtOnce), DISK_FULL, UNAVAILABLE.
        """
        made: list[WriteTxn] = []

        def run(handle: Txn) -> T:
            made[:] = [WriteTxn(self, handle)]
            result = work(made[0])
            if made[0].hears is not None:
                made[0].tell()
            return result

        hurried = seconds is None and self.env.at_once
        while True:
            try:
                result = transact(self.env, run, seconds=LOCK_SECONDS if hurried else seconds)
                break
            except NotSummed as needed:
                domain = needed.domain
            except REFUSED as error:
                raise refusal(error, hurried=hurried) from error
            with refused(hurried=hurried):
                self.domains.sum_up(domain)
        if made[0].charged:
            after_commit(self.domains.add, made[0].charged)
        after_commit(self._remember, made[0])
        return result

    def _remember(self, txn: WriteTxn) -> None:
        changes = txn.changes()
        changed: list[MailboxId] = []
        unwritten = self.unwritten.changed
        for change in changes:
            mailbox = change.mailbox
            if mailbox in self.views.history:
                self.views.remember(mailbox, change.before, change.chunks)
            if mailbox in txn.handed:
                self.views.hand(mailbox, *txn.handed[mailbox])
            changed.append(mailbox)
            unwritten.add(mailbox)
        for mailbox, step in txn.steps:
            self.views.step(mailbox, step)
        if changed:
            self._news.tell(changed, changes if len(changes) <= TOLD_TOGETHER else ())

    # Reading

    def state(self, mailbox: MailboxId, txn: Txn = None) -> MailboxState:
        """The mailbox's figures. Raises StoreError NO_MAILBOX when it has been deleted."""
        state = self.any_state(mailbox, txn)
        if state is None or state.removed:
            raise StoreError(Problem.NO_MAILBOX)
        return state

    def changed_elsewhere(self, mailbox: MailboxId) -> list[Change]:
        """What other processes have changed in a mailbox lately, as far as they show it, in no order."""
        return [change for change in self._news.shown(mailbox) if change.partition == self.number]

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
        """Every mailbox that has figures here, also those that were deleted and not purged yet. Within a transaction
        they do not change."""
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
        """Note that the mailbox cannot be read until housekeeping has repaired it; log this once."""
        if mailbox not in self.damaged:
            self.damaged.add(mailbox)
            log.error("the index of mailbox %d on partition %s is damaged", mailbox, self.name)

    def open_message(self, row: np.void) -> MessageFile:
        """The message of an index record, for reading. Raises StoreError CORRUPT."""
        size, serial, header_length, digest, head = message_of(row)
        return self.files.open(digest, serial, header_length, size, self.private_headers.find(head))

    def _seen(self, digest: bytes, record: MessageRecord) -> MessageRecord:
        """The record of a message file, completed by what the file itself says."""
        return seen(self.files, digest, record)

    def look_at_file(self, digest: bytes) -> MessageRecord | None:
        """The record of a message file. If nobody has looked at the file since databases were rebuilt, it is looked at
        now.

        Raises StoreError CORRUPT when the file is missing or damaged; once it has been restored it is looked at again.
        Raises UNAVAILABLE when the disk gives no answer.
        """
        record = self.refs.find(digest, raw=True)
        if record is None or record.trace != UNSEEN_TRACE:
            return record
        there, found = look(self.files, digest, record.serial)
        if found is None:
            raise StoreError(Problem.CORRUPT, "The message cannot be read", f"message file {digest.hex()} is "
                             + ("damaged" if there else "missing"))
        trace, size = found
        if self.read_only:
            return evolve(record, trace=trace, size=size)

        def work(txn: WriteTxn) -> MessageRecord | None:
            now = txn.refs.find_to_change(digest, txn.handle, raw=True)
            if now is not None and now.trace == UNSEEN_TRACE:
                now = evolve(now, trace=trace, size=size)
                txn.refs.write(digest, now, txn.handle)
            return now

        return self.transact(work)

def snapshot_time(name: str) -> int | None:
    """The Unix time in the name of a snapshot's folder, 20260131T235959Z; None for anything else."""
    try:
        return int(datetime.strptime(name, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
