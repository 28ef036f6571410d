"""The store: the list of mailboxes and the partitions they lie on."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from attrs import evolve

from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.kv import NeedsRecovery, Txn, sync_folder, transact
from mboxlist.names import MailboxName, NameProblem
from mboxlist.table import MailboxList
from store.accounts.base import Account, Directory
from store.accounts.builtin import BuiltinDirectory
from store.cache import CachedMessage
from store.changes import News
from store.copying import copy_messages
from store.errors import Problem, StoreError
from store.expunge import remove
from store.index import Rows
from store.mailbox import Mailbox, MailboxState
from store.messagefiles import MessageFile, Staged, disk_problem
from store.partition import Partition
from store.presence import Presence
from store.quota import QuotaUse
from store.settings import Settings
from store.txn import WriteTxn, state_key

log = logging.getLogger(__name__)

PRIMARY = "primary"
LIST_CACHE = 16 << 20       # octets of memory for the cache of the list of mailboxes
PIECE = 2000                # messages that go at a time when a mailbox is deleted


class Store:
    """An open store. Any number of processes may have it open; the first one to open it runs recovery."""

    def __init__(self, root: Path, settings: Settings | None = None, *, server: bool = False,
                 broken: Callable[[], None] = lambda: None) -> None:
        """Open the store at `root`; `server` claims it for a server, of which there can be one. `broken` is called when
        a database needs recovery: then all must leave the store, and the next to open it recovers it.

        Raises StoreError NO_STORE, STORE_IN_USE (with the other server's pid), UNAVAILABLE, DISK_FULL.
        """
        self.root = root
        self.settings = settings or Settings()
        self.news = News()
        self.durability: object | None = None       # set by net.offload
        if not (root / "mboxlist").is_dir():
            raise StoreError(Problem.NO_STORE, f"There is no store in {root}; `onecopy init` makes one")
        self._presence = Presence(root / "run", server)
        try:
            recover = self._presence.alone
            self.mailboxes = MailboxList(root / "mboxlist", cache=LIST_CACHE, recover=recover, broken=broken)
            folders = sorted(folder for folder in (root / "partitions").iterdir() if folder.is_dir())
            self.partitions = {folder.name: Partition(folder, self.settings, self.news, recover=recover, broken=broken)
                               for folder in folders}
            if recover:
                self._agree()
        except NeedsRecovery as error:
            self._presence.leave()
            raise StoreError(Problem.UNAVAILABLE, "The store needs recovery: stop every process that uses it",
                             str(error)) from error
        except OSError as error:
            self._presence.leave()
            raise disk_problem(error) from error
        except BaseException:
            self._presence.leave()
            raise
        self._presence.settled()
        self.directory: Directory = BuiltinDirectory(self.mailboxes, self.settings.default_domain)

    @staticmethod
    def make(root: Path) -> None:
        """Make an empty store with one partition. Raises StoreError STORE_IN_USE when there is one already."""
        if (root / "mboxlist").exists():
            raise StoreError(Problem.STORE_IN_USE, f"There is a store in {root} already")
        root.mkdir(parents=True, exist_ok=True)
        (root / "run").mkdir(mode=0o700, exist_ok=True)
        Partition.make(root / "partitions" / PRIMARY)
        (root / "mboxlist").mkdir(mode=0o700)
        sync_folder(root)

    def close(self) -> None:
        """Leave the store; the last one out leaves it clean."""
        last = self._presence.leaving()
        for partition in self.partitions.values():
            partition.close(clean=last)
        self.mailboxes.env.flush()
        if last:
            self.mailboxes.env.checkpoint()
        self.mailboxes.close()
        self._presence.leave()

    def _agree(self) -> None:
        """After an unclean end the list and the partitions may differ by mailboxes that were being made or deleted."""
        listed = {entry.id: entry for entry in self.mailboxes.all()}
        for partition in self.partitions.values():
            there = {mailbox for mailbox, _ in partition.all_states()}
            for orphan in there - set(listed):
                log.info("mailbox %d is no longer in the list: its messages are removed", orphan)
                self._drop(partition, orphan)
            for lost in (entry for entry in listed.values() if entry.partition == partition.name
                         and entry.id not in there):
                log.warning("%s had no records: it is there again, empty", lost.name)
                self._insert(lost.name, lost.partition, lost.special_use, replace=True)

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
        """Whether the user has the right (a letter of RFC 4314 §2.1) on the mailbox: its owner has all, others none."""
        return entry.name.owner == user

    def inbox(self, account: Account) -> MailboxEntry:
        """The account's INBOX, made at its first use."""
        name = MailboxName(account.user, "INBOX")
        entry = self.mailboxes.find(name)
        if entry is not None:
            return entry
        try:
            return self.create_mailbox(name)
        except StoreError as refusal:
            if refusal.problem is not Problem.MAILBOX_EXISTS:
                raise
            return self.entry(name)

    def create_mailbox(self, name: MailboxName, *, special_use: str | None = None) -> MailboxEntry:
        """Make a mailbox. Raises StoreError MAILBOX_EXISTS, BAD_NAME, NO_USER, LIMIT."""
        if self.mailboxes.find(name) is not None:
            raise StoreError(Problem.MAILBOX_EXISTS)
        account = self.directory.find(name.owner) if name.owner else None
        if name.owner and account is None:
            raise StoreError(Problem.NO_USER)
        if len(self.names(name.owner)) >= self.settings.mailbox_limit:
            raise StoreError(Problem.LIMIT, "There are too many mailboxes")
        return self._insert(name, account.partition if account else PRIMARY, special_use)

    def _insert(self, name: MailboxName, partition: str, special_use: str | None, *, replace: bool = False
                ) -> MailboxEntry:
        """The figures come first, then the row in the list: what a crash leaves in between is seen by nobody."""
        place = self.partitions.get(partition)
        if place is None:
            raise StoreError(Problem.UNAVAILABLE, detail=f"there is no partition {partition}")
        mailbox, validity = transact(self.mailboxes.env, self.mailboxes.next_identity)
        self.mailboxes.env.flush()              # an id or UIDVALIDITY that was used must never come again
        place.transact(lambda txn: txn.set_state(mailbox, None, MailboxState.new(validity, place.epoch)))
        place.env.flush()
        created = int(time.time())
        entry = MailboxEntry(mailbox, name, partition, validity, name.owner or str(name), created, special_use)

        def insert(txn: Txn) -> None:
            if not replace and self.mailboxes.find(name, txn) is not None:
                raise StoreError(Problem.MAILBOX_EXISTS)
            self.mailboxes.write(entry, txn)

        try:
            transact(self.mailboxes.env, insert)
        except StoreError:
            self._drop(place, mailbox)
            raise
        self.mailboxes.env.flush()
        return entry

    def rename_mailbox(self, old: MailboxName, new: MailboxName) -> None:
        """Rename a mailbox and all below it. INBOX stays, and gives its messages to the new one (RFC 3501 §6.3.5).

        Raises StoreError NO_MAILBOX, MAILBOX_EXISTS, BAD_NAME, NO_PERMISSION, LIMIT.
        """
        if old.owner != new.owner:
            raise StoreError(Problem.NO_PERMISSION, "A mailbox cannot be given to another user")
        if old.is_inbox():
            inbox, target = self.entry(old), self.create_mailbox(new)
            copy_messages(self, inbox, target, self.open_mailbox(inbox).rows["uid"], remove=True)
            self.partition_of(inbox).env.flush()
            return
        if new.is_below(old) or new.is_inbox():
            raise StoreError(Problem.BAD_NAME, "A mailbox cannot be renamed to that")

        def work(txn: Txn) -> None:
            top = self.mailboxes.find(old, txn)
            tree = [*([top] if top else []), *self.mailboxes.below(old.owner, old.path, txn)]
            if not tree:
                raise StoreError(Problem.NO_MAILBOX)
            for entry in tree:
                self.mailboxes.remove(entry.name, txn)
            for entry in tree:
                name = _moved(entry.name, old, new)
                if self.mailboxes.find(name, txn) is not None:
                    raise StoreError(Problem.MAILBOX_EXISTS)
                self.mailboxes.write(_renamed(entry, name), txn)

        transact(self.mailboxes.env, work)
        self.mailboxes.env.flush()

    def delete_mailbox(self, name: MailboxName, *, even_inbox: bool = False) -> None:
        """Delete a mailbox and its messages; those below it stay (RFC 3501 §6.3.4).

        Raises StoreError NO_MAILBOX, and NO_PERMISSION for INBOX, which goes only with its user (`even_inbox`).
        """
        if name.is_inbox() and not even_inbox:
            raise StoreError(Problem.NO_PERMISSION, "INBOX cannot be deleted")
        entry = self.entry(name)
        transact(self.mailboxes.env, lambda txn: self.mailboxes.remove(name, txn))
        self.mailboxes.env.flush()
        partition = self.partition_of(entry)
        uids = partition.read(entry).rows["uid"]
        for at in range(0, len(uids), PIECE):
            remove(self, entry, uids[at:at + PIECE])
        self._drop(partition, entry.id)
        partition.env.flush()
        self.news.tell([entry.id])

    def _drop(self, partition: Partition, mailbox: MailboxId) -> None:
        """Remove a mailbox's figures, and what records it still has, whose quota root is no longer known."""
        def work(txn: WriteTxn) -> None:
            for number, rows in txn.chunks(mailbox):
                for mid in sorted(bytes(mid) for mid in rows["mid"]):
                    txn.refs.release(mid, 1, txn.handle)
                txn.put_chunk(mailbox, number, rows[:0])
            partition.states.delete(state_key(mailbox), txn.handle)
        partition.transact(work)

    def subscribe(self, user: str, name: str) -> None:
        """Subscribe the user to a name, written as that user's client writes it. Raises StoreError BAD_NAME."""
        try:
            name = MailboxName.from_client(user, name).to_client(user)
        except NameProblem as error:
            raise StoreError(Problem.BAD_NAME, str(error)) from error
        transact(self.mailboxes.env, lambda txn: self.mailboxes.subscriptions.add(user, name, txn))
        self.mailboxes.env.flush()

    def unsubscribe(self, user: str, name: str) -> bool:
        """End a subscription; whether there was one."""
        removed = transact(self.mailboxes.env, lambda txn: self.mailboxes.subscriptions.remove(user, name, txn))
        self.mailboxes.env.flush()
        return removed

    def subscriptions(self, user: str) -> list[str]:
        """The names that the user is subscribed to, in order."""
        return list(self.mailboxes.subscriptions.of(user))

    # Mailboxes and messages

    def partition_of(self, entry: MailboxEntry) -> Partition:
        """The partition on which the mailbox lies. Raises StoreError UNAVAILABLE."""
        partition = self.partitions.get(entry.partition)
        if partition is None:
            raise StoreError(Problem.UNAVAILABLE, detail=f"there is no partition {entry.partition}")
        return partition

    def status(self, entry: MailboxEntry) -> MailboxState:
        """The mailbox's figures. Raises StoreError NO_MAILBOX when it has been deleted."""
        return self.partition_of(entry).state(entry.id)

    def open_mailbox(self, entry: MailboxEntry) -> Mailbox:
        """A picture of the mailbox as it is now. Raises StoreError NO_MAILBOX, CORRUPT."""
        return self.partition_of(entry).read(entry)

    def refresh(self, mailbox: Mailbox) -> Mailbox:
        """A picture as it is now; the same object when nothing changed. Raises StoreError NO_MAILBOX, CORRUPT."""
        return self.partition_of(mailbox.entry).refresh(mailbox)

    def claim_recent(self, entry: MailboxEntry) -> tuple[int, int]:
        """The UIDs, from the first up to but not including the second, that are \\Recent to this caller and no other
        (RFC 3501 §2.3.2)."""
        partition = self.partition_of(entry)
        state = partition.state(entry.id)
        if state.recent >= state.uidnext:
            return state.uidnext, state.uidnext
        return partition.transact(lambda txn: _claim(txn, entry.id))

    def open_message(self, entry: MailboxEntry, row: np.void) -> MessageFile:
        """The message of an index record, for reading. Raises StoreError CORRUPT."""
        return self.partition_of(entry).open_message(row)

    def cached(self, entry: MailboxEntry, rows: Rows) -> list[CachedMessage]:
        """The cache records of index records, in their order; one that is lost is made anew from the message file.

        Raises StoreError CORRUPT when that is missing too.
        """
        partition = self.partition_of(entry)
        found = partition.cached(rows["serial"].tolist())
        return [cached if cached is not None else partition.rebuild_cached(rows[at])
                for at, cached in enumerate(found)]

    def stage(self, entry: MailboxEntry, trace: bytes = b"") -> Staged:
        """A message to be received into the partition of that mailbox. Raises StoreError DISK_FULL."""
        return self.partition_of(entry).stage(trace)

    def quota(self, root: str) -> QuotaUse:
        """Use and limits of a quota root, wherever its owner's mailboxes lie."""
        inbox = self.mailboxes.find(MailboxName(root, "INBOX"))
        partition = self.partition_of(inbox) if inbox else self.partitions[PRIMARY]
        return partition.quotas.find(root)

    def over_quota(self, root: str, octets: int = 0) -> bool:
        """Whether one more message, of at least that size, would not fit."""
        return not self.quota(root).has_room(octets, 1, self.settings)

    def set_quota(self, root: str, octets: int | None = None, messages: int | None = None) -> None:
        """Change the limits that are given (`quota.DEFAULT` and `quota.UNLIMITED` are allowed)."""
        inbox = self.mailboxes.find(MailboxName(root, "INBOX"))
        partition = self.partition_of(inbox) if inbox else self.partitions[PRIMARY]
        partition.transact(lambda txn: partition.quotas.set_limits(root, octets, messages, txn.handle))
        partition.env.flush()

    def remove_user(self, user: str) -> None:
        """Remove a user's mailboxes, subscriptions and quota; the directory's entry is the caller's business."""
        for entry in reversed(self.names(user)):
            self.delete_mailbox(entry.name, even_inbox=True)
        for name in self.subscriptions(user):
            self.unsubscribe(user, name)
        for partition in self.partitions.values():
            partition.transact(lambda txn, place=partition: place.quotas.forget(user, txn.handle))  # type: ignore[misc]
            partition.env.flush()


def _claim(txn: WriteTxn, mailbox: MailboxId) -> tuple[int, int]:
    state = txn.state(mailbox)
    txn.set_state(mailbox, None, evolve(state, recent=state.uidnext))
    return state.recent, state.uidnext


def _moved(name: MailboxName, old: MailboxName, new: MailboxName) -> MailboxName:
    return MailboxName.parse(str(MailboxName(new.owner, new.path + name.path[len(old.path):])))


def _renamed(entry: MailboxEntry, name: MailboxName) -> MailboxEntry:
    return MailboxEntry(entry.id, name, entry.partition, entry.uidvalidity, entry.quota_root, entry.created,
                        entry.special_use, entry.acl)
