"""An open store: it looks up mailboxes and partitions, and runs transactions on them.

`store.opening.open_store` makes it. Functions that do something to mailboxes and users take a store; they are in the
rooms above.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from attrs import define, evolve, field
from numpy.typing import NDArray

from mboxlist.engine.damagemarks import mark_clean
from mboxlist.engine.freezegate import WriteFreeze
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName
from mboxlist.table import MailboxList
from store.accounts.builtin import BuiltinDirectory
from store.changes import News
from store.deliverylog import DeliveryLog
from store.errors import NotAtOnce, Problem, StoreError
from store.events.outboxtable import OutboxTable
from store.events.recording import Recorder
from store.message.cachedbatch import CachedBatch
from store.message.cacherecord import CachedMessage
from store.message.fields import Lister
from store.operations import operationrecord
from store.partition.marks import AsOf
from store.partition.messagereading import MessageFile
from store.partition.partition import Partition
from store.partition.processes import ProcessRegistry, partitions_in_use, partitions_version
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.settings import Settings
from store.tables.counters import counters_of
from store.tables.domainlimits import Domains
from store.tables.index import Rows
from store.tables.state import Mailbox, MailboxState, all_claimed, is_here, root_if_here, state_key
from store.values import Flag

log = logging.getLogger(__name__)

T = TypeVar("T")

TRIES = 10                  # how often to look for a mailbox that moves again and again
_ELSEWHERE = (Problem.NO_MAILBOX, Problem.BUSY)      # may mean that the mailbox has moved
PATIENCE = 5.0              # seconds that a change waits for a mailbox that is on its way to another partition


class Owned:
    """Objects that belong to an open store or snapshot, at most one of each class. Rooms above make them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()          # `make` may ask for another object
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
        """Set the object of this class."""
        self._found[kind] = value


@define(eq=False, slots=False)
class Store:
    """An open store. Any number of processes may have it open.

    `leave` is called first when the store is closed, with the seconds that it may take, or None. `owned` has what rooms
    above keep for the store: threads, caches. `delivery_log` and `refusals` (the log of logins) write nothing until
    somebody sets others. `patience` is how many seconds a change waits for a mailbox that is on its way to another
    partition.
    """

    root: Path
    settings: Settings
    news: News
    mailboxes: MailboxList
    partitions: dict[str, Partition]
    directory: BuiltinDirectory
    write_freeze: WriteFreeze
    _processes: ProcessRegistry
    _open_partition: Callable[[Path, bool], Partition]
    _leave: Callable[["Store", float | None], None]
    owned: Owned = field(factory=Owned)
    delivery_log: DeliveryLog = field(factory=DeliveryLog)
    refusals: DeliveryLog = field(factory=DeliveryLog)
    patience: float = PATIENCE
    _joining: threading.Lock = field(factory=threading.Lock)        # held while a partition is joined
    _joined: tuple[int, ...] = ()                   # the last list of which all were joined
    _at_close: list[Callable[[], None]] = field(factory=list)
    _logs_ahead: bool = False
    domains: Domains = field(init=False)
    recorder: Recorder = field(init=False)          # of events for receivers
    filtered: bool = field(default=False, init=False)   # the site has scripts for all mail (`store.filtering`)
    event_script: str = field(default="", init=False)   # runs on events of IMAP in mailboxes that name none themselves

    as_of: str = field(init=False)                  # of a standby's copy: its age, for greetings
    outbox: OutboxTable = field(init=False)         # the one of the list of mailboxes

    @as_of.default
    def _as_of_copy(self) -> str:
        found = AsOf.of(self.root)
        return "" if found is None else time.strftime(", for reading: the mail of %Y-%m-%d %H:%M:%S UTC",
                                                      time.gmtime(found.moment))

    @outbox.default
    def _outbox_of_list(self) -> OutboxTable:
        return OutboxTable(self.mailboxes.outbox)

    @recorder.default
    def _recorder_of_events(self) -> Recorder:
        return Recorder(self.root, self.settings.host, self.mailboxes.name_of, self.mailboxes.names)

    @domains.default
    def _domains_of_partitions(self) -> Domains:
        return Domains(lambda: [each.quotas for each in self.partitions.values()], self.settings)

    @property
    def read_only(self) -> bool:
        """Whether this store is a copy for reading, in which nothing can be changed: see `store/readonly`."""
        return self.write_freeze.read_only

    @property
    def writable(self) -> dict[str, Partition]:
        """The partitions that take changes. Those whose volumes take no writes are not among them: a copy of them is
        read."""
        return {name: partition for name, partition in self.partitions.items() if not partition.read_only}

    def is_read_only(self, entry: MailboxEntry) -> bool:
        """Whether nothing can be changed in that mailbox, whoever asks."""
        partition = self.partitions.get(entry.partition)
        return self.write_freeze.read_only or (partition is not None and partition.read_only)

    def is_put_off(self, entry: MailboxEntry) -> bool:
        """Whether changes in that mailbox wait while other mailboxes can be changed: its partition is only read, or not
        here."""
        return not self.read_only and (entry.partition not in self.partitions or self.is_read_only(entry))

    def require_writable(self) -> None:
        """For a change that concerns all partitions: raises StoreError READ_ONLY when one of them takes no changes."""
        if len(self.writable) < len(self.partitions):
            raise StoreError(Problem.READ_ONLY)

    def open_partition(self, folder: Path, *, recover: bool) -> Partition:
        """Open a partition of this store; see `partitions.volumes`. Raises NeedsRecovery, OSError, StoreError."""
        partition = self._open_partition(folder, recover)
        if self._logs_ahead and not partition.read_only:
            partition.env.write_log_ahead(alone=recover)
        return partition

    def write_logs_ahead(self, *, first: bool) -> None:
        """Have this process write the files of all logs before they are used: see `LogAhead`. `first`: this is the
        first process of a server, alone in the store; it also writes the files that are in use. Raises nothing."""
        self._logs_ahead = True
        envs = [partition.env for partition in self.writable.values()]
        if not self.read_only:
            envs.append(self.mailboxes.env)
        with contextlib.suppress(StoreError), self.alone() if first else contextlib.nullcontext():
            for env in envs:
                env.write_log_ahead(alone=first)

    def follow(self, settings: Settings) -> None:
        """Use these settings from now on. They differ only in what can change in an open store: see RELOADED of
        tools/server/process/reloadable.py."""
        self.settings = settings
        self.domains.follow(settings)
        for partition in self.partitions.values():
            partition.settings = settings
            partition.quotas.follow(settings)

    def begun(self, kind: str, arguments: dict[str, Any], *, stops: bool = False, waits: bool = False,
              holds: Sequence[str] = ()) -> AbstractContextManager[operationrecord.Begun]:
        """A context in which an operation is on record: see `operationrecord.begun`. Raises StoreError."""
        return operationrecord.begun(self.root, kind, self._processes.who, arguments, stops=stops, waits=waits,
                                     holds=holds)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A context in which no other process is in the store, and none comes in. Raises StoreError STORE_IN_USE."""
        try:
            if not self._processes.leaving():
                raise StoreError(Problem.STORE_IN_USE, "Other processes are in the store: stop the server first")
            yield
        finally:
            self._processes.opened()

    def at_close(self, work: Callable[[], None]) -> None:
        """Call this before the store is closed."""
        self._at_close.append(work)

    def close(self, *, within: float | None = None) -> None:
        """Leave the store; the last process to leave makes a clean end. After `within` seconds no more `store.idx`
        files are begun; the next housekeeping writes the others."""
        for work in self._at_close:
            work()
        self.write_freeze.never_waits(never=False)
        self._leave(self, within)
        last = self._processes.leaving()
        for partition in self.partitions.values():
            partition.close(clean=last)
        with self.write_freeze.second.exempt():
            self.mailboxes.env.flush()
        if last:
            self.mailboxes.env.checkpoint()
            if self.settings.log_archive is None:
                self.mailboxes.env.drop_logs(most=2 * self.settings.snapshot_logs)
        self.mailboxes.close(clean=last)
        if last:
            mark_clean(self.root / "mboxlist")
        self._processes.leave()
        self.write_freeze.close()

    # Mailboxes by name

    def entry(self, name: MailboxName) -> MailboxEntry:
        """The mailbox of that name. Raises StoreError NO_MAILBOX."""
        entry = self.mailboxes.find(name)
        if entry is None:
            raise StoreError(Problem.NO_MAILBOX)
        return entry

    def names(self, owner: str) -> list[MailboxEntry]:
        """All mailboxes of one owner, in order of name."""
        return self.mailboxes.listed(owner)

    # Mailboxes and messages

    def partition(self, name: str) -> Partition:
        """The partition of that name. Raises StoreError UNAVAILABLE."""
        return self.partitions.get(name) or self._join(name)

    def join_all(self) -> None:
        """Join the partitions that other processes have added, for a caller that needs the whole store as it is now. A
        partition is on the list before any process writes to it. Raises StoreError UNAVAILABLE, OSError."""
        if (now := partitions_version(self.root)) != self._joined:
            for name in partitions_in_use(self.root) or ():
                self.partition(name)
            self._joined = now

    def _join(self, name: str) -> Partition:
        """A partition that another process has added since this one opened the store. Raises StoreError UNAVAILABLE."""
        with self._joining:
            known = self.partitions.get(name)
            if known is not None:
                return known
            if name not in (partitions_in_use(self.root) or ()):
                raise StoreError(Problem.UNAVAILABLE, detail=f"there is no partition {name}")
            partition = self.open_partition(self.root / "partitions" / name, recover=False)
            partition.domains = self.domains
            partition.record(self.recorder)
            self.partitions = {**self.partitions, name: partition}
            log.info("partition %s is in use", name)
            return partition

    def whereabouts(self, entry: MailboxEntry) -> tuple[MailboxEntry, Partition]:
        """The mailbox's row, read again if the mailbox has moved since, and the partition on which it is.

        Index records belong to the partition that the entry of their view names: on another partition the same message
        has other numbers. Raises StoreError UNAVAILABLE.
        """
        partition = self.partitions.get(entry.partition)
        data = None if partition is None else partition.states.glance(state_key(entry.id))
        if data is None or not is_here(data):
            found = self.known(entry.id)
            if found is not None and found[0].partition != entry.partition:
                entry, partition = found[0], None
        return entry, partition or self.partition(entry.partition)

    def known(self, mailbox: int) -> tuple[MailboxEntry, int] | None:
        """The mailbox of that id, and the Unix time at which it was deleted, or 0."""
        entry = self.mailboxes.find_id(MailboxId(mailbox))
        if entry is not None:
            return entry, 0
        deleted = self.mailboxes.deleted.find(MailboxId(mailbox))
        return (deleted[1], deleted[0]) if deleted is not None else None

    def partition_of(self, entry: MailboxEntry) -> Partition:
        """The partition on which the mailbox lies now. Raises StoreError UNAVAILABLE."""
        return self.whereabouts(entry)[1]

    def quota_of(self, entry: MailboxEntry) -> tuple[Partition, str]:
        """The partition on which the mailbox lies now, and the quota root that it is charged to. Raises StoreError
        UNAVAILABLE, NO_MAILBOX."""
        partition = self.partitions.get(entry.partition)
        if partition is not None:
            data = partition.states.glance(state_key(entry.id))
            if data is not None and (root := root_if_here(data)) is not None:
                return partition, root
        partition = self.partition_of(entry)
        return partition, partition.quota_root(entry.id)

    def at(self, entry: MailboxEntry, work: Callable[[MailboxEntry, Partition], T]) -> T:
        """Call `work` with what `whereabouts` gives, and again when the mailbox has moved meanwhile. Returns its
        result."""
        for left in reversed(range(TRIES)):
            now, partition = self.whereabouts(entry)
            try:
                return work(now, partition)
            except StoreError as error:
                if error.problem is not Problem.NO_MAILBOX or self.mailboxes.find_id(entry.id) is None:
                    raise
                if not left:
                    self.require_figures(entry)
                    raise
        raise AssertionError("unreachable")

    def require_figures(self, entry: MailboxEntry) -> None:
        """Raises StoreError CORRUPT when the list has the mailbox, but no partition has its figures. They are lost, and
        housekeeping brings them back; no client may hear that there is no such mailbox."""
        row = self.mailboxes.find_id(entry.id)
        partition = self.partitions.get(row.partition) if row is not None else None
        if partition is not None and all(each.any_state(entry.id) is None for each in self.partitions.values()):
            partition.found_damage(entry.id)
            raise StoreError(Problem.CORRUPT, detail=f"the figures of mailbox {entry.id} are lost")

    def transact(self, entry: MailboxEntry, work: Callable[[WriteTxn], T]) -> T:
        """`Partition.transact` on the partition that the entry names. If the mailbox is not there, or is on its way to
        another partition, on the partition where it is now."""
        partition = self.partitions.get(entry.partition)
        if partition is not None:
            try:
                return partition.transact(work)
            except NotAtOnce:
                raise
            except StoreError as error:
                if error.problem not in _ELSEWHERE:
                    raise
        return self.at(entry, lambda _, partition: partition.transact(work))

    def runs_script(self, entry: MailboxEntry) -> bool:
        """Whether a script may have to run after an event of IMAP in the mailbox (RFC 6785 §2.3.1)."""
        return entry.name.owner != "" and (self.event_script != "" or self.mailboxes.has_event_script(entry.id))

    def private_bits(self, entry: MailboxEntry, reader: str) -> int:
        """The system flags (bits) that this reader has for itself in the mailbox. In one's own mailboxes there are
        none."""
        return self.settings.private_bits if reader and entry.name.owner != reader else 0

    def status(self, entry: MailboxEntry, reader: str = "") -> MailboxState:
        r"""The mailbox's figures; unseen messages are counted by the reader's own \Seen.

        Raises StoreError NO_MAILBOX when it has been deleted.
        """
        if self.private_bits(entry, reader) & Flag.SEEN:
            mailbox = self.open_mailbox(entry, reader)
            return evolve(mailbox.state, unseen=counters_of(mailbox.rows).unseen)
        return self.at(entry, lambda now, partition: partition.state(now.id))

    def open_mailbox(self, entry: MailboxEntry, reader: str = "") -> Mailbox:
        """A view of the mailbox as it is now, with the reader's own flags. Raises StoreError NO_MAILBOX, CORRUPT."""
        return cast(Mailbox, self._open(entry, reader, at_once=False))

    def open_again(self, entry: MailboxEntry, reader: str = "") -> Mailbox | None:
        """As `open_mailbox`, if the mailbox has not changed since this process read it last; else None."""
        partition = self.partitions.get(entry.partition)
        if partition is None or self.private_bits(entry, reader):
            return None
        return partition.views.again(entry)

    def open_at_once(self, entry: MailboxEntry, reader: str = "") -> Mailbox | None:
        """As `open_mailbox`; None when so much must be read that a thread should do it."""
        return self._open(entry, reader, at_once=True)

    def _open(self, entry: MailboxEntry, reader: str, *, at_once: bool) -> Mailbox | None:
        own = reader if self.private_bits(entry, reader) else ""
        return self.at(entry, lambda now, partition: partition.views.read(now, own, at_once=at_once))

    def vanished(self, entry: MailboxEntry, since: int) -> NDArray[np.uint32] | None:
        """The UIDs, ascending, that were expunged after that MODSEQ; None when that is no longer known (RFC 7162
        §3.2.5.1)."""
        return self.at(entry, lambda now, partition: transact(partition.env, lambda txn: partition.vanished.since(
            now.id, partition.state(now.id, txn), since, txn), reads=True))

    def uidls(self, entry: MailboxEntry) -> dict[int, bytes]:
        """The unique-ids of messages that came from another POP3 server, by UID."""
        return self.at(entry, lambda now, partition: partition.uidls.of(now.id))

    def refresh(self, mailbox: Mailbox) -> Mailbox:
        """The view as it is now; the same object when nothing has changed. Raises StoreError NO_MAILBOX, CORRUPT."""
        return cast(Mailbox, self._refresh(mailbox, at_once=False))

    def refresh_at_once(self, mailbox: Mailbox) -> Mailbox | None:
        """As `refresh`; None when so much must be read that a thread should do it. `MailboxViews.glance` says more
        quickly that nothing has changed."""
        return self._refresh(mailbox, at_once=True)

    def _refresh(self, mailbox: Mailbox, *, at_once: bool) -> Mailbox | None:
        def work(entry: MailboxEntry, partition: Partition) -> Mailbox | None:
            if entry is mailbox.entry:
                return partition.views.refresh(mailbox, at_once=at_once)
            return partition.views.read(entry, mailbox.reader, at_once=at_once)

        return self.at(mailbox.entry, work)

    def claim_recent(self, entry: MailboxEntry) -> tuple[int, int]:
        """The UIDs, from the first up to but not including the second, that are \\Recent to this caller and no other
        (RFC 3501 §2.3.2)."""
        def work(now: MailboxEntry, partition: Partition) -> tuple[int, int]:
            data = partition.states.glance(state_key(now.id))
            uidnext = None if data is None else all_claimed(data, partition.epoch)
            if uidnext is not None:
                return uidnext, uidnext
            try:
                return partition.transact(lambda txn: txn.claim_recent(now.id))
            except StoreError:
                if not self.write_freeze.second.refuses:
                    raise
            with self.write_freeze.second.exempt():     # reading goes on while a standby is away
                return partition.transact(lambda txn: txn.claim_recent(now.id))

        return self.at(entry, work)

    def open_message(self, entry: MailboxEntry, row: np.void) -> MessageFile:
        """The message of an index record, for reading. `entry` is the one of the view that the record is from.

        Raises StoreError CORRUPT.
        """
        return self.partition(entry.partition).open_message(row)

    def cached(self, entry: MailboxEntry, rows: Rows) -> list[CachedMessage]:
        """The cache records of index records, in the same order. One that is lost is made again from the message file.

        `entry` is the one of the view that the records are from. Raises StoreError CORRUPT when the file is missing,
        too.
        """
        partition = self.partition(entry.partition)
        found = zip(partition.serials.cached(rows["serial"].tolist()), rows["digest"].tolist(), strict=True)
        # A vanished message's record may be from another partition, where the same serial means another file.
        return [cached if cached is not None and cached.digest == digest else partition.serials.rebuild_cached(rows[at])
                for at, (cached, digest) in enumerate(found)]

    def cached_batch(self, entry: MailboxEntry, rows: Rows, *, fields: bool) -> CachedBatch | None:
        """The cache records of many index records, see `cached`, with header fields if wanted; None if one is lost."""
        return self.partition(entry.partition).serials.batch(rows["serial"], rows["digest"], fields=fields)

    def listed_fields(self, entry: MailboxEntry, rows: Rows, lister: Lister) -> list[bytes] | None:
        """These header fields of the messages of many index records; None if `cached_batch` or the files must be asked
        for them."""
        return self.partition(entry.partition).serials.listed(rows["serial"], rows["digest"], lister)

    def stage(self, entry: MailboxEntry, trace: bytes = b"") -> Staged:
        """A new message, to be received into the partition of that mailbox. Raises StoreError DISK_FULL."""
        return self.partition_of(entry).stage(trace)
