"""The store: the list of mailboxes and the partitions they lie on."""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.engine.btree import Txn
from mboxlist.engine.damagemarks import mark_clean
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.freezegate import WriteFreeze
from mboxlist.engine.kv import Failure, NeedsRecovery, transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName, NameProblem, legal_path
from mboxlist.table import MailboxList
from store import hosting
from store.accounts.base import Account, Directory
from store.accounts.builtin import BuiltinDirectory
from store.changes import News
from store.deliverylog import DeliveryLog
from store.errors import Problem, StoreError
from store.mailboxes import authorization, firstuse
from store.partition.marks import RESTORING, SCRATCH, is_half_made, read_epoch
from store.partition.messagefiles import MessageFile
from store.partition.partition import Partition
from store.partition.processes import ProcessRegistry
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.partitions import volumes
from store.problems import disk_problem, problems
from store.quota import roots
from store.recovery.reconciliation import agree
from store.settings import Settings
from store.tables.domainlimits import Domains
from store.tables.index import Rows
from store.tables.quotatable import QuotaUse
from store.tables.state import UNLISTED, Mailbox, MailboxState
from store.userarea import writing
from store.values import Flag

if TYPE_CHECKING:
    from store.message.cacherecord import CachedMessage
    from store.recovery.environments import Recovery
    from store.search.columns import Columns
    from store.snapshots.snapshotreader import SnapshotReaders

log = logging.getLogger(__name__)

PRIMARY = "primary"
T = TypeVar("T")

TRIES = 10                  # to find a mailbox that moves again and again
LIST_CACHE = 16 << 20       # octets of memory for the cache of the list of mailboxes


def is_there(root: Path) -> bool:
    """Whether there is a store in that folder, or what is left of one."""
    return (root / "mboxlist").is_dir() or any(read_epoch(place) for place in (root / "partitions").glob("*"))


class Store:
    """An open store. Any number of processes may have it open; the first one to open it runs recovery."""

    def __init__(self, root: Path, settings: Settings | None = None, *, who: str = "",
                 broken: Callable[[], None] = lambda: None,
                 directory: Callable[[MailboxList, str], BuiltinDirectory] = BuiltinDirectory, anew: bool = False
                 ) -> None:
        """Open the store at `root`; `who` is told to others that find this process dead in it. `broken` is called when
        a database needs recovery: then all must leave the store, and the next to open it recovers it. `directory` is
        made of the list with its users, and the default domain. `anew`: its databases are to be empty.

        Raises StoreError NO_STORE, UNAVAILABLE, DISK_FULL.
        """
        self.root = root
        self.settings = settings or Settings()
        self.news = News()
        self.durability: object | None = None       # set by net.offload
        self.authenticator: object | None = None         # set by net.authenticator
        self.delivery_log = DeliveryLog()                    # says nothing, until there is another
        self.refusals = DeliveryLog()                   # the same, of logins
        self.joining = threading.Lock()             # of a partition that another process has added
        self._broken = broken
        if (root / RESTORING).exists():
            raise StoreError(Problem.UNAVAILABLE, "A restore was cut off: onecopy snapshot restore finishes it")
        if is_half_made(root) and not anew:
            raise StoreError(Problem.UNAVAILABLE, "A rebuild was cut off: onecopy reconstruct --all finishes it")
        if not is_there(root):
            raise StoreError(Problem.NO_STORE, f"There is no store in {root}; `onecopy init` makes one")
        self._processes = ProcessRegistry(root / "run", who)
        self.write_freeze: WriteFreeze | None = None
        try:
            recover = self._processes.alone
            if recover and not anew:
                shutil.rmtree(root / SCRATCH, ignore_errors=True)       # left by one who was killed at the very end
            self.write_freeze = WriteFreeze(root / "run" / "gate")
            self.recovery = self._recovery() if recover and not anew else None
            self.mailboxes = self._opened("mboxlist", lambda: MailboxList(
                root / "mboxlist", cache=LIST_CACHE, recover=recover, broken=broken, write_freeze=self.write_freeze))
            self.mailboxes.noticed = lambda entry: writing.note(self, entry)
            if self.settings.host:
                self.mailboxes.guard = lambda owner, txn: hosting.require_here(self, owner, txn)
            self.partitions = volumes.open_all(self, recover=recover)
            self.domains = Domains(lambda: [each.quotas for each in self.partitions.values()], self.settings)
            for partition in self.partitions.values():
                partition.domains = self.domains
            users = directory(self.mailboxes, self.settings.default_domain)
            self.directory: Directory = users
            if recover:
                if agree(self, wholly=self._remade()):
                    users.settle_aliases()
                for env in (self.mailboxes.env, *(partition.env for partition in self.partitions.values())):
                    env.opened()
                if self.recovery is not None:
                    if self.recovery.is_needed():
                        log.warning("what was done is in %s", self.recovery.report())
                    self.recovery.ended()
        except NeedsRecovery as error:
            self._be_out()
            raise StoreError(Problem.UNAVAILABLE, "The store needs recovery: stop every process that uses it",
                             str(error)) from error
        except OSError as error:
            self._be_out()
            raise disk_problem(error) from error
        except BaseException:
            self._be_out()
            raise
        self._processes.settled()

    def open_partition(self, folder: Path, *, recover: bool) -> Partition:
        """Open a partition of this store; see `partitions`. Raises NeedsRecovery, OSError, StoreError."""
        return self._opened(f"partitions/{folder.name}/index", lambda: Partition(
            folder, self.settings, self.news, recover=recover, broken=self._broken, write_freeze=self.write_freeze))

    @cached_property
    def columns(self) -> "Columns":
        """What searching and sorting has read of messages."""
        from store.search.columns import Columns  # here: most commands search nothing
        return Columns()

    @cached_property
    def snapshot_readers(self) -> "SnapshotReaders":
        """Snapshots that users look into."""
        from store.snapshots.snapshotreader import SnapshotReaders  # here: most commands look into none
        return SnapshotReaders(self)

    def _recovery(self) -> "Recovery":
        from store.recovery.environments import Recovery  # here: who is not alone in the store needs none
        return Recovery(self.root, self.settings)

    def _remade(self) -> bool:
        """Make anew what the environments lack that have not come back; whether there was one."""
        if self.recovery is None or not self.recovery.events:
            return False
        from store.recovery.startrebuild import remake  # here: it is rarely needed
        return remake(self, self.recovery)

    def _opened(self, environment: str, open: Callable[[], T]) -> T:
        return open() if self.recovery is None else self.recovery.opened(environment, open)

    def follow(self, settings: Settings) -> None:
        """Have these settings from now on, where they differ in no more than what can change in an open store: see
        RELOADED of tools/server/reloadable.py."""
        self.settings = settings
        self.domains.follow(settings)
        for partition in self.partitions.values():
            partition.settings = settings
            partition.quotas.follow(settings)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else is in the store, and nobody comes in meanwhile. Raises StoreError STORE_IN_USE."""
        try:
            if not self._processes.leaving():
                raise StoreError(Problem.STORE_IN_USE, "Other processes are in the store: stop the server first")
            yield
        finally:
            self._processes.settled()

    @staticmethod
    def make(root: Path) -> None:
        """Make an empty store with one partition; or go on where that was cut off, as long as there are only folders.
        Raises StoreError STORE_IN_USE when there is one already."""
        if (root / "mboxlist").exists() or (root / RESTORING).exists():
            raise StoreError(Problem.STORE_IN_USE, f"There is a store in {root} already")
        if any(path.is_file() for path in (root / "partitions").rglob("*")):
            raise StoreError(Problem.STORE_IN_USE, f"There is mail in {root / 'partitions'}, and no list of mailboxes: "
                                                   "onecopy reconstruct --all makes one")
        root.mkdir(parents=True, exist_ok=True)
        (root / "run").mkdir(mode=0o700, exist_ok=True)
        Partition.make(root / "partitions" / PRIMARY)
        (root / "mboxlist").mkdir(mode=0o700)
        sync_folder(root)

    def close(self, *, within: float | None = None) -> None:
        """Leave the store; the last one out leaves it clean. `within`: seconds after which no more `store.idx` is begun
        with; the next to keep house writes the others."""
        if "pasts" in vars(self):
            self.snapshot_readers.close()
        if self.write_freeze is not None:
            self.write_freeze.never_waits(never=False)
        writing.write_what_is_left(self, within)
        last = self._processes.leaving()
        for partition in self.partitions.values():
            partition.close(clean=last)
        self.mailboxes.env.flush()
        if last:
            self.mailboxes.env.checkpoint()
            if self.settings.log_archive is None:
                self.mailboxes.env.drop_logs(most=2 * self.settings.snapshot_logs)
        self.mailboxes.close(clean=last)
        if last:
            mark_clean(self.root / "mboxlist")
        self._be_out()

    def _be_out(self) -> None:
        self._processes.leave()
        if self.write_freeze is not None:
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
        return list(self.mailboxes.below(owner))

    def may(self, user: str, entry: MailboxEntry, right: str) -> bool:
        """Whether the user has the right (a letter of RFC 4314 §2.1) on the mailbox."""
        return authorization.may(self, user, entry, right)

    def inbox(self, account: Account) -> MailboxEntry:
        """The account's INBOX, made at its first use; see `firstuse.inbox`."""
        return firstuse.inbox(self, account)

    def is_here(self, account: Account) -> bool:
        """Whether this back end keeps the account's mail."""
        return not account.host or not self.settings.host or account.host.lower() == self.settings.host

    @problems()
    def create_mailbox(self, name: MailboxName, *, special_use: str | None = None, acl: dict[str, str] | None = None
                       ) -> MailboxEntry:
        """Make a mailbox, shared as the one above it is unless another `acl` is given.

        Raises StoreError MAILBOX_EXISTS, BAD_NAME, NO_USER, LIMIT.
        """
        if self.mailboxes.find(name) is not None:
            raise StoreError(Problem.MAILBOX_EXISTS)
        account = self.directory.find(name.owner) if name.owner else None
        if name.owner and account is None:
            raise StoreError(Problem.NO_USER)
        if len(self.names(name.owner)) >= self.settings.mailbox_limit:
            raise StoreError(Problem.LIMIT, "There are too many mailboxes")
        place = account.partition if account else volumes.for_new_mail(self)
        return self.insert(name, place, special_use, acl=acl)

    def insert(self, name: MailboxName, partition: str, special_use: str | None, *, replace: bool = False,
               acl: dict[str, str] | None = None) -> MailboxEntry:
        """The figures come first, then the row in the list: what a crash leaves in between is seen by nobody. Nobody
        writes to the mailbox before its row is on disk, or a crash could leave mail where nobody finds it."""
        place = self.partition(partition)
        mailbox, validity = transact(self.mailboxes.env, self.mailboxes.next_identity)
        self.mailboxes.env.flush()              # an id or UIDVALIDITY that was used must never come again
        new = MailboxState.new(validity, place.epoch, roots.root_for(place, name), UNLISTED)
        created = int(time.time())

        def insert(txn: Txn) -> MailboxEntry:
            old = self.mailboxes.find(name, txn)
            if old is not None:
                if not replace:
                    raise StoreError(Problem.MAILBOX_EXISTS)
                self.mailboxes.annotations.forget(old.id, txn)
            like = old or authorization.parent(self, name, txn)        # a mailbox is shared as the one above it is
            held = acl if acl is not None else like.acl if like else {}
            entry = MailboxEntry(mailbox, name, partition, validity, created, special_use, dict(held))
            self.mailboxes.write(entry, txn)
            return entry

        try:
            place.transact(lambda txn: txn.set_state(mailbox, None, new))
            place.flush()
            entry = transact(self.mailboxes.env, insert)
        except (StoreError, OSError, Failure):
            from store.mailboxes import deletion  # here: it is rare
            with suppress(StoreError):          # then housekeeping does it
                deletion.destroy(place, mailbox, created)
            raise
        self.mailboxes.env.flush()
        place.transact(lambda txn: txn.make_writable(mailbox, self.mailboxes, new))
        if new.quota_root != roots.root_for(place, name):      # changed while the mailbox was not in the list yet
            roots.settle(self, name.owner)
        return entry

    @problems()
    def rename_mailbox(self, old: MailboxName, new: MailboxName) -> None:
        """Rename a mailbox and all below it. INBOX stays, and gives its messages to the new one (RFC 3501 §6.3.5).

        Raises StoreError NO_MAILBOX, MAILBOX_EXISTS, BAD_NAME, NO_PERMISSION, LIMIT, OVER_QUOTA.
        """
        if old.owner != new.owner:
            raise StoreError(Problem.NO_PERMISSION, "A mailbox cannot be given to another user")
        if old.is_inbox():
            from store.mailboxes import crosspartition  # here: it loads all that brings messages to another partition
            inbox = self.entry(old)
            target = self.create_mailbox(new, acl=inbox.acl)
            try:
                crosspartition.copy(self, inbox, target, self.open_mailbox(inbox).rows["uid"], remove=True)
            except StoreError:
                if not self.status(target).messages:
                    self.delete_mailbox(new)
                raise
            self.partition_of(inbox).flush()
            return
        if new.is_below(old) or new.is_inbox():
            raise StoreError(Problem.BAD_NAME, "A mailbox cannot be renamed to that")

        def work(txn: Txn) -> None:
            top = self.mailboxes.find(old, txn)
            tree = [*([top] if top else []), *self.mailboxes.below(old.owner, old.path, txn)]
            if not tree:
                raise StoreError(Problem.NO_MAILBOX)
            if self.mailboxes.find(new, txn) is not None:
                raise StoreError(Problem.MAILBOX_EXISTS)
            for entry in tree:
                self.mailboxes.remove(entry.name, txn)
            for entry in tree:
                name = _moved(entry.name, old, new)
                if self.mailboxes.find(name, txn) is not None:
                    raise StoreError(Problem.MAILBOX_EXISTS)
                self.mailboxes.write(_renamed(entry, name), txn)

        roots.check_rename(self, old, new)
        transact(self.mailboxes.env, work)
        self.mailboxes.env.flush()
        roots.settle_renamed(self, new.owner)

    def delete_mailbox(self, name: MailboxName, *, even_inbox: bool = False) -> None:
        """See `deletion.delete_mailbox`."""
        from store.mailboxes import deletion  # here: as above
        deletion.delete_mailbox(self, name, even_inbox=even_inbox)

    @problems()
    def subscribe(self, user: str, name: str) -> None:
        """Subscribe the user to a name, written as that user's client writes it. Raises StoreError BAD_NAME."""
        try:
            name = MailboxName.from_client(user, name).to_client(user)
        except NameProblem as error:
            raise StoreError(Problem.BAD_NAME, str(error)) from error
        def add(txn: Txn) -> None:
            self.mailboxes.guard(user, txn)
            self.mailboxes.subscriptions.add(user, name, txn)

        transact(self.mailboxes.env, add)
        self.mailboxes.env.flush()
        writing.note_user(self, user)

    @problems()
    def unsubscribe(self, user: str, name: str) -> bool:
        """End a subscription; whether there was one."""
        def remove(txn: Txn) -> bool:
            self.mailboxes.guard(user, txn)
            return self.mailboxes.subscriptions.remove(user, name, txn)

        removed = transact(self.mailboxes.env, remove)
        self.mailboxes.env.flush()
        writing.note_user(self, user)
        return removed

    def subscriptions(self, user: str) -> list[str]:
        """The names that the user is subscribed to, in order."""
        return list(self.mailboxes.subscriptions.of(user))

    # Mailboxes and messages

    def partition(self, name: str) -> Partition:
        """The partition of that name. Raises StoreError UNAVAILABLE."""
        return self.partitions.get(name) or volumes.join(self, name)

    def whereabouts(self, entry: MailboxEntry) -> tuple[MailboxEntry, Partition]:
        """The mailbox's row, a newer one if it has moved since this one was read, and the partition on which it lies.

        Records are those of the partition that the entry of their view names: the same message has other figures on
        another. Raises StoreError UNAVAILABLE.
        """
        partition = self.partitions.get(entry.partition)
        if partition is None or not partition.has(entry.id):
            found = writing.whereabouts(self, entry.id)
            if found is not None and found[0].partition != entry.partition:
                entry, partition = found[0], None
        return entry, partition or self.partition(entry.partition)

    def partition_of(self, entry: MailboxEntry) -> Partition:
        """The partition on which the mailbox lies now. Raises StoreError UNAVAILABLE."""
        return self.whereabouts(entry)[1]

    def at(self, entry: MailboxEntry, work: Callable[[MailboxEntry, Partition], T]) -> T:
        """The result of `work`, which gets what `whereabouts` says; done again when the mailbox has moved meanwhile."""
        for left in reversed(range(TRIES)):
            now, partition = self.whereabouts(entry)
            try:
                return work(now, partition)
            except StoreError as error:
                if error.problem is not Problem.NO_MAILBOX or self.mailboxes.find_id(entry.id) is None or not left:
                    raise
        raise AssertionError("unreachable")

    def transact(self, entry: MailboxEntry, work: Callable[[WriteTxn], T]) -> T:
        """`Partition.transact` on the mailbox's partition."""
        return self.at(entry, lambda _, partition: partition.transact(work))

    def private_bits(self, entry: MailboxEntry, reader: str) -> int:
        """The system flags (bits) that this reader has of its own in the mailbox: none in one's own mailboxes."""
        return self.settings.private_bits if reader and entry.name.owner != reader else 0

    def status(self, entry: MailboxEntry, reader: str = "") -> MailboxState:
        r"""The mailbox's figures; what is unseen is counted by the reader's own \Seen.

        Raises StoreError NO_MAILBOX when it has been deleted.
        """
        if self.private_bits(entry, reader) & Flag.SEEN:
            mailbox = self.open_mailbox(entry, reader)
            unseen = len(mailbox.rows) - int(np.count_nonzero(mailbox.rows["flags"] & np.uint16(Flag.SEEN)))
            return evolve(mailbox.state, unseen=unseen)
        return self.at(entry, lambda now, partition: partition.state(now.id))

    def open_mailbox(self, entry: MailboxEntry, reader: str = "") -> Mailbox:
        """A view of the mailbox as it is now, with the reader's own flags. Raises StoreError NO_MAILBOX, CORRUPT."""
        return cast(Mailbox, self._open(entry, reader, at_once=False))

    def open_at_once(self, entry: MailboxEntry, reader: str = "") -> Mailbox | None:
        """The same, unless so much must be read for it that it belongs into a thread."""
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
        """The unique-ids that messages of the mailbox brought along from another POP3 server, by UID."""
        return self.at(entry, lambda now, partition: partition.uidls.of(now.id))

    def refresh(self, mailbox: Mailbox) -> Mailbox:
        """A view as it is now; the same object when nothing changed. Raises StoreError NO_MAILBOX, CORRUPT."""
        return cast(Mailbox, self._refresh(mailbox, at_once=False))

    def refresh_at_once(self, mailbox: Mailbox) -> Mailbox | None:
        """The same, unless so much must be read for it that it belongs into a thread."""
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
        state = self.status(entry)
        if state.recent >= state.uidnext:
            return state.uidnext, state.uidnext
        return self.transact(entry, lambda txn: _claim(txn, entry.id))

    def open_message(self, entry: MailboxEntry, row: np.void) -> MessageFile:
        """The message of an index record, for reading; `entry` is that of the record's view.

        Raises StoreError CORRUPT.
        """
        return self.partition(entry.partition).open_message(row)

    def cached(self, entry: MailboxEntry, rows: Rows) -> "list[CachedMessage]":
        """The cache records of index records, in their order; one that is lost is made anew from the message file.

        `entry` is that of the records' view. Raises StoreError CORRUPT when the file is missing too.
        """
        partition = self.partition(entry.partition)
        found = zip(partition.cached(rows["serial"].tolist()), rows["digest"].tolist(), strict=True)
        # A record that is left of a vanished message may come from another partition, where serials mean other files.
        return [cached if cached is not None and cached.digest == digest else partition.rebuild_cached(rows[at])
                for at, (cached, digest) in enumerate(found)]

    def stage(self, entry: MailboxEntry, trace: bytes = b"") -> Staged:
        """A message to be received into the partition of that mailbox. Raises StoreError DISK_FULL."""
        return self.partition_of(entry).stage(trace)

    def quota(self, root: str) -> QuotaUse:
        """Use and limits of a quota root, or of a domain ("@example.org"), on whichever partitions it has mailboxes."""
        return roots.quota(self, root)

    def over_quota(self, entry: MailboxEntry, octets: int = 0) -> bool:
        """Whether one more message, of at least that size, would not fit."""
        return not roots.has_room(self, entry, octets)

    def quota_warning(self, entry: MailboxEntry) -> roots.Warned | None:
        """What the mailbox's owner is to be told when its quota root is nearly full (setting `quota_warn`)."""
        return roots.warning(self, entry)

    def set_quota(self, root: str, octets: int | None = None, messages: int | None = None) -> None:
        """See `roots.set_quota`."""
        roots.set_quota(self, root, octets, messages)

    def remove_quota_root(self, root: str) -> None:
        """See `roots.remove_quota_root`."""
        roots.remove_quota_root(self, root)

    @problems()
    def remove_user(self, user: str) -> None:
        """Remove a user's mailboxes, subscriptions and quota; the directory's entry is the caller's business."""
        for entry in reversed(self.names(user)):
            self.delete_mailbox(entry.name, even_inbox=True)
        for name in self.subscriptions(user):
            self.unsubscribe(user, name)
        for partition in self.partitions.values():
            partition.transact(lambda txn, place=partition: place.quotas.forget_user(   # type: ignore[misc]
                user, txn.handle))
            partition.flush()


def _claim(txn: WriteTxn, mailbox: MailboxId) -> tuple[int, int]:
    state = txn.state(mailbox)
    txn.set_state(mailbox, None, evolve(state, recent=state.uidnext))
    return state.recent, state.uidnext


def _moved(name: MailboxName, old: MailboxName, new: MailboxName) -> MailboxName:
    try:
        return MailboxName(new.owner, legal_path(new.path + name.path[len(old.path):]))
    except NameProblem as error:
        raise StoreError(Problem.BAD_NAME, str(error)) from error


def _renamed(entry: MailboxEntry, name: MailboxName) -> MailboxEntry:
    return evolve(entry, name=name)
