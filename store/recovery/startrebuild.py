"""What a rebuilt environment is still missing, taken from the user area, the message files, and the tables
that are whole: after `recovery`, before anybody uses the store.

The sources, in this order: tables that are whole; `store.idx`, at most a minute old, where it is newer than what is
there (who was killed has not written it); the counts of references in `messages.db`, which tell mailbox and UID of
records that neither has (`salvage`).
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName
from store.accounts.builtin import User
from store.partition.marks import mark_behind
from store.rebuild.desired import annotations_of, entry_of
from store.rebuild.outcome import Event
from store.rebuild.recount import rebuild_rights
from store.rebuild.salvagedusers import add_users, salvage_users, take_in
from store.rebuild.userareascan import Source, choose, free_name, sources
from store.recovery.knownfiles import SHOWN
from store.recovery.partitionfill import PartitionFill
from store.snapshots.taking import folder as snapshots_folder
from store.snapshots.taking import listed as snapshots_listed
from store.store import Store
from store.tables.state import MailboxState
from store.userarea.directoryfile import newest
from store.values import Finding

if TYPE_CHECKING:
    from store.recovery.environments import Recovery

LIST = "mboxlist"
OLDER = "is older"          # what is said of an older list, or table


def rebuild_at_start(store: Store, recovery: "Recovery") -> bool:
    """Do it for every environment that has not come back exactly; whether there was one. Raises StoreError."""
    events = {name: event for name, event in recovery.events.items() if not event.exact}
    if not events:
        return bool(recovery.events)
    done = _StartRebuild(store, recovery, events)
    done.run()
    return True


@define(eq=False)
class _StartRebuild:
    """See the module's text."""

    store: Store
    recovery: "Recovery"
    events: dict[str, Event]
    found: list[Source] = field(factory=list)
    by_id: dict[int, Source] = field(factory=dict)
    named: dict[MailboxName, int] = field(factory=dict)     # by files that are newer than the list
    whole: bool = False                                     # no row of a mailbox is missing in the list, or older

    def run(self) -> None:
        """Do all of it."""
        store, event = self.store, self.events.get(LIST)
        findings: list[Finding] = []
        every = [source for partition in store.partitions.values()
                 for source in sources(partition.folder, findings, heads=True)]
        self.found = choose(every, findings)
        self.by_id = {source.head.id: source for source in self.found}
        if event is not None:
            self._list(event)
            for partition in store.partitions.values():
                partition.unwritten.forget()        # it has written every row; `userareacheck` looks at every file
        for name, partition in store.partitions.items():
            there = self.events.get(f"partitions/{name}/index")
            if there is not None:
                PartitionFill(store, self.recovery.adopted.get(name, []), partition, there, self.found).run()
            elif event is not None:
                mark_behind(partition.folder)
        if event is not None:
            rebuild_rights(store)
        for each in (event, *self.events.values()) if findings else ():
            if each is not None:
                each.missing += [f"{finding.where}: {finding.what}" for finding in findings[:SHOWN]]
                break
        store.mailboxes.env.flush()

    # The list

    def _list(self, event: Event) -> None:
        store, lost = self.store, set(event.lost)
        mailboxes = store.mailboxes
        if not any(True for _ in mailboxes.users.scan()) or event.logs_lost or "users.db" in lost:
            self._users(event)
        if "names.db" in lost:              # by which rows are found: those that there are come before all files
            def names_of(txn: Txn) -> None:
                for entry in list(mailboxes.all(txn)):
                    mailboxes.write(entry, txn, guarded=False)

            transact(mailboxes.env, names_of)
        rows = {entry.id for entry in mailboxes.all()}
        old = event.logs_lost or bool(lost & {"mailboxes.db", "deleted.db"}) or not rows
        self.whole = not event.logs_lost and "mailboxes.db" not in lost
        states = {mailbox: (state, name) for name, partition in store.partitions.items()
                  for mailbox, state in partition.all_states()}
        last = max([*states, *self.by_id], default=0)
        validity = max([*(state.uidvalidity for state, _ in states.values()),
                        *(source.head.uidvalidity for source in self.found)], default=0)
        transact(mailboxes.env, lambda txn: mailboxes.skip_identities(MailboxId(last), validity, txn))
        self.named = {source.name: source.head.id for source in self.found
                      if source.head.written >= event.complete and not source.head.removed}
        for batch in _batches(self.found):
            def rows_of(txn: Txn, batch: list[Source] = batch) -> None:
                for source in batch:
                    self._row(source, states, lost, old, txn)

            transact(mailboxes.env, rows_of)
        if old:
            self._nameless(states, event)

    def _row(self, source: Source, states: dict[MailboxId, tuple[MailboxState, str]], lost: set[str], old: bool,
             txn: Txn) -> None:
        mailboxes, head = self.store.mailboxes, source.head
        mailbox = MailboxId(head.id)
        entry, deleted = mailboxes.find_id(mailbox, txn), mailboxes.deleted.find(mailbox, txn)
        state = states.get(mailbox)
        place = f"partitions/{source.partition}/index"
        old = old and not self._has_newer(source, entry, deleted[1] if deleted else None, state[0] if state else None)
        if old and (state is not None and state[1] == source.partition or place in self.events):
            removed = state[0].removed if state is not None and place not in self.events else head.removed
            wanted = entry_of(source, 0)
            if state is not None:
                wanted = evolve(wanted, uidvalidity=state[0].uidvalidity or head.uidvalidity)
            if removed:
                if entry is not None:
                    mailboxes.remove(entry.name, txn, guarded=False)
                if deleted is None:
                    mailboxes.deleted.add(wanted, removed, txn)
                return
            if entry != wanted:
                if entry is not None:
                    mailboxes.remove(entry.name, txn, guarded=False)
                mailboxes.deleted.remove(mailbox, txn)
                other = mailboxes.find(wanted.name, txn)
                if other is not None and other.id != mailbox and self._is_older(source):
                    wanted, other = evolve(wanted, name=free_name(wanted.name, mailbox, [])), None
                if other is not None and other.id != mailbox:
                    mailboxes.remove(other.name, txn, guarded=False)    # an older row: its own file names it
                mailboxes.write(wanted, txn, guarded=False)
        if old or "annotations.db" in lost:
            for name, user, value in annotations_of(head):
                with contextlib.suppress(ValueError):
                    mailboxes.annotations.set(mailbox, name, value, txn, user)
        if (old or "subscriptions.db" in lost) and source.name.is_inbox() and not head.removed:
            for subscribed in head.subscriptions:
                mailboxes.subscriptions.add(source.name.owner, subscribed, txn)

    def _is_older(self, source: Source) -> bool:
        return source.head.written < self.events[LIST].complete

    def _has_newer(self, source: Source, entry: MailboxEntry | None, deleted: MailboxEntry | None,
                   state: MailboxState | None) -> bool:
        """Whether the list has the mailbox as it was after the file was written, and nothing newer says otherwise: any
        row of a table that has lost nothing."""
        if self.whole and entry is not None:
            return True
        row = entry or deleted
        if row is None or not self._is_older(source):
            return False
        if state is not None and f"partitions/{source.partition}/index" not in self.events and (
                bool(state.removed) != (entry is None) or state.uidvalidity not in (0, row.uidvalidity)):
            return False
        return entry is None or self.named.get(entry.name, entry.id) == entry.id

    def _users(self, event: Event) -> None:
        aside = Path(event.aside)
        places = [aside, *(snapshot.path / LIST for snapshot in snapshots_listed(
            snapshots_folder(self.store.root, self.store.settings)))]
        users: dict[str, User] = {}
        for place in places:
            for user in salvage_users(place / "users.db") if (place / "users.db").is_file() else ():
                users.setdefault(user.account.user, user)
        findings: list[Finding] = []
        kept, older = newest(partition.folder for partition in self.store.partitions.values()), OLDER in event.found
        add_users(self.store.directory, self.found, kept.accounts(users.values()), findings,
                  replace_since=event.complete if older else None)
        take_in(self.store.mailboxes, self.store.directory, kept, self.found,
                replace=older and kept.written >= event.complete)
        event.missing += [f"{finding.where}: {finding.what}" for finding in findings[:SHOWN]]

    def _nameless(self, states: dict[MailboxId, tuple[MailboxState, str]], event: Event) -> None:
        """Mailboxes with messages that are in no list and have no file get a name; rows without a mailbox go."""
        store = self.store
        for mailbox, (state, place) in states.items():
            if store.known(mailbox) is not None or state.removed or not state.messages:
                continue
            owner = state.quota_root.partition("/")[0]
            name = MailboxName("" if owner == "public" else owner, f"Recovered {mailbox}")
            entry = MailboxEntry(mailbox, name, place, state.uidvalidity, int(self.recovery.began))
            transact(store.mailboxes.env, lambda txn, entry=entry: store.mailboxes.write(   # type: ignore[misc]
                entry, txn, guarded=False))
            event.missing.append(f"the name of a mailbox with {state.messages} messages: it is {name} now")
        for entry in list(store.mailboxes.all()):
            if entry.id not in states and entry.id not in self.by_id and entry.partition in store.partitions and (
                    f"partitions/{entry.partition}/index" not in self.events):
                transact(store.mailboxes.env, lambda txn, entry=entry: store.mailboxes.remove(    # type: ignore[misc]
                    entry.name, txn, guarded=False))


def _batches(items: list[Any], size: int = 256) -> Iterator[list[Any]]:
    return (items[at:at + size] for at in range(0, len(items), size))
