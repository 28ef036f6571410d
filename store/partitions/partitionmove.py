"""Mailboxes moved to another partition while mail arrives and clients read.

Message files and records are brought while everything goes on, again and again until little is new. Then the mailboxes
are held: `MailboxState.moving` at the source, and who wants to write waits. What is left is brought, with all that is
known of the mailboxes; it is on disk; the list names the other partition, on disk; and the mailboxes are let go there.
`Store.whereabouts` is how everybody finds them. Last, the source forgets them.

A crash leaves the mailboxes where the list says; what is on another partition is removed at the next start
(`reconciliation`). What has been brought by then waits there for the purge, so the next try is quick.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from attrs import define, evolve, field, frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName
from store.delivery.batch import NotCopied, SideBySide, one_by_one, write_chunks
from store.delivery.filecopy import TRIES, FileCopier, copy_rows
from store.errors import Problem, StoreError
from store.filelock import exclusive
from store.mailboxes import deletion
from store.mailboxes.expunge import forget_each
from store.partition.partition import Partition
from store.partition.transactions import WriteTxn
from store.partitions.changedrows import changed_chunks, unpurged
from store.partitions.holding import hold, moves_no_more
from store.problems import problems
from store.quota import limitturns
from store.store import Store
from store.tables.expunged import Expunged
from store.tables.index import Rows
from store.tables.state import MOVING, MailboxState, state_key
from store.userarea import writing

PASSES = 10                 # over a user's mailboxes before they are held, at most;
LITTLE = 200                # fewer records than that in one pass are few enough
OVERLAP = 60                # seconds between the time that an expunge says and its end, at most


@frozen
class Moved:
    """How much has been moved; `files` and `octets` are what had to be copied for it."""

    mailboxes: int = 0
    messages: int = 0
    files: int = 0
    octets: int = 0

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(self.mailboxes + other.mailboxes, self.messages + other.messages, self.files + other.files,
                     self.octets + other.octets)


Progress = Callable[[Moved], None]


@problems()
def move_owner(store: Store, owner: str, to: str, *, side_by_side: SideBySide = one_by_one,
               progress: Progress = lambda so_far: None) -> Moved:
    """Move all mailboxes of a user ("": the public ones) to the partition, deleted ones too.

    New ones will be made there. For a thread. Raises StoreError UNAVAILABLE, DISK_FULL, BUSY, and CORRUPT when
    something cannot be read: then what has not been moved is where it was.
    """
    target = store.partition(to)
    done = Moved()
    with alone(store):
        _complete(store, owner)
        while sources := {entry.partition for entry in _entries(store, owner)} - {to}:
            for name in sorted(sources):
                move = _Move(store, owner, store.partition(name), target,
                             FileCopier(store.partition(name), target, side_by_side), progress, done)
                done += move.run()
        if owner:
            transact(store.mailboxes.env, lambda txn: store.directory.place(owner, to, txn))
            store.mailboxes.env.flush()
    return done


def owners_on(store: Store, partition: str) -> list[str]:
    """Whose mailboxes are on the partition, or would be made there; "" for public ones."""
    everywhere = [*store.mailboxes.all(), *(entry for _, entry in store.mailboxes.deleted.all())]
    owners = {entry.name.owner for entry in everywhere if entry.partition == partition}
    owners |= {account.user for account in store.directory.all() if account.partition == partition}
    return sorted(owners)


def _entries(store: Store, owner: str) -> list[MailboxEntry]:
    deleted = [entry for _, entry in store.mailboxes.deleted.all() if entry.name.owner == owner]
    return [*store.names(owner), *deleted]


def complete(store: Store, owner: str) -> None:
    """Clear up after a move that failed: the mailboxes are where the list says. Raises StoreError BUSY when somebody
    moves mailboxes now."""
    with alone(store):
        store.mailboxes.env.flush()
        _complete(store, owner)


def _complete(store: Store, owner: str) -> None:
    """See `complete`; the caller is alone and has the list on disk."""
    entries = _entries(store, owner)
    for partition in store.partitions.values():
        there = {entry.id: data for entry in entries if (data := partition.states.get(state_key(entry.id))) is not None}
        deletion.destroy_wholly(partition, [entry.id for entry in entries
                                           if entry.id in there and entry.partition != partition.name])
        for entry in entries:
            if entry.partition == partition.name and entry.id in there and MailboxState.from_bytes(
                    there[entry.id], partition.epoch).moving == MOVING:
                partition.transact(lambda txn, entry=entry: moves_no_more(txn, entry.id))   # type: ignore[misc]


@define(eq=False)
class _Move:
    """Of one owner's mailboxes from one partition to another."""

    store: Store
    owner: str
    source: Partition
    target: Partition
    copier: FileCopier
    progress: Progress
    before: Moved
    _sent: dict[MailboxId, dict[int, int]] = field(factory=dict, init=False)    # by chunk: a hash of what it had
    _expunged: dict[bytes, int] = field(factory=dict, init=False)               # likewise of what `undelete` needs
    _held: set[MailboxId] = field(factory=set, init=False)
    _messages: int = field(default=0, init=False)
    _since: int = field(default=0, init=False)

    def run(self) -> Moved:
        """See the module's text."""
        with ExitStack() as turn:
            try:
                for _ in range(PASSES):
                    if self._bring() <= LITTLE:
                        break
                self._hold()
                self._bring()
                turn.enter_context(limitturns.in_turn(self.store, self.owner))
                self._finish()
                self.target.flush()
                entries = transact(self.store.mailboxes.env, self._switch)
            except BaseException:
                self._give_up()
                raise
            self.store.mailboxes.env.flush()
        self._let_go(entries)
        self._leave(entries)
        return self._so_far()

    def _so_far(self) -> Moved:
        return Moved(len(self._held), self._messages, self.copier.incoming.files, self.copier.incoming.octets)

    def _mailboxes(self) -> list[MailboxId]:
        return sorted(entry.id for entry in _entries(self.store, self.owner) if entry.partition == self.source.name)

    # While everything goes on, and once more when nothing does

    def _bring(self) -> int:
        """Bring what is new; how many records."""
        now, count = int(time.time()), 0
        for mailbox in self._mailboxes():
            count += self._bring_mailbox(mailbox)
        self._bring_expunged()
        self._since = now - OVERLAP
        return count

    def _bring_mailbox(self, mailbox: MailboxId) -> int:
        sent = self._sent.get(mailbox)
        if sent is None:
            transact(self.store.mailboxes.env, lambda txn: self.store.mailboxes.pending.note([mailbox], txn))
            self.store.mailboxes.env.flush()
            deletion.destroy(self.target, mailbox, int(time.time()))
            self.target.transact(lambda txn: self._announce(txn, mailbox))
            sent = self._sent[mailbox] = {}
        return sum(self._put(mailbox, chunks) for chunks in changed_chunks(self.source, mailbox, sent))

    def _announce(self, txn: WriteTxn, mailbox: MailboxId) -> None:
        """It is not charged to anybody, and nobody looks at it, until it has arrived."""
        state = self.source.any_state(mailbox)
        if state is not None:
            txn.set_state(mailbox, None, evolve(state, epoch=self.target.epoch, moving=True,
                                                removed=state.removed or int(time.time())))

    def _put(self, mailbox: MailboxId, chunks: dict[int, Rows]) -> int:
        """Make these chunks what they are at the source; how many records that are."""
        for _ in range(TRIES):
            carried = copy_rows(self.copier, list(chunks.values()))
            try:
                self.target.transact(lambda txn: write_chunks(
                    txn, mailbox, dict(zip(chunks, carried, strict=True))))      # noqa: B023
            except NotCopied:
                continue
            self._messages += sum(map(len, carried))
            self.progress(self.before + self._so_far())
            return max(1, sum(map(len, carried)))
        raise StoreError(Problem.BUSY, detail="the same messages come and go on the other partition")

    def _bring_expunged(self) -> None:
        """What was expunged and can be undeleted."""
        mailboxes = set(self._sent)
        for key in self._expunged:
            if self.source.removed.find(key) is None:
                self.target.transact(lambda txn, key=key: txn.partition.removed.forget(     # type: ignore[misc]
                    [key], txn.handle))
        found = self.source.removed.all(since=self._since)
        for item in [item for item in found if item.mailbox in mailboxes]:      # nobody's EXPUNGE waits for a copy
            if self._expunged.get(item.key) != hash(item.rows.tobytes()):
                self._put_expunged(item)
                self._expunged[item.key] = hash(item.rows.tobytes())

    def _put_expunged(self, item: Expunged) -> None:
        rows, = copy_rows(self.copier, [unpurged(self.source, item)], item.when)
        self.target.transact(lambda txn: txn.partition.removed.replace(evolve(item, held=False), rows, txn.handle))

    # While they are held

    def _hold(self) -> None:
        """Nobody writes to the mailboxes from here on, nor to those that were made meanwhile."""
        while new := [mailbox for mailbox in self._mailboxes() if mailbox not in self._held]:
            self._held.update(new)
            self.source.transact(lambda txn, new=new: hold(txn, new))       # type: ignore[misc]

    def _finish(self) -> None:
        """Copy what the mailboxes have beside their records."""
        states = {mailbox: state for mailbox in sorted(self._held)
                  if (state := self.source.any_state(mailbox)) is not None}
        inbox = self.store.mailboxes.find(MailboxName(self.owner, INBOX)) if self.owner else None
        leads = inbox is None or inbox.id in states
        roots = self._roots(states)

        def limits(txn: WriteTxn) -> None:
            for root in sorted(roots):
                if self.source.quotas.has(root) and (leads or not self.target.quotas.has(root, txn.handle)):
                    self.target.quotas.take_over(root, self.source.quotas.find(root), txn.handle)

        self.target.transact(limits)
        for mailbox, state in states.items():
            self.target.transact(lambda txn, mailbox=mailbox, state=state: self._arrive(    # type: ignore[misc]
                txn, mailbox, state))

    def _roots(self, states: dict[MailboxId, MailboxState]) -> set[str]:
        own = {self.owner} if self.owner else set()
        return own | {state.quota_root for state in states.values()} | set(self.source.quotas.roots_below(self.owner))

    def _arrive(self, txn: WriteTxn, mailbox: MailboxId, state: MailboxState) -> None:
        """The new MODSEQ is for those who have a view of it: another partition's serials are not those of this one.
        """
        for modseq, ranges in self.source.vanished.all(mailbox):
            self.target.vanished.put(mailbox, modseq, ranges, txn.handle)
        for number, reader, own in self.source.readers.all(mailbox):
            self.target.readers.put_chunk(mailbox, number, reader, own, txn.handle)
        self.target.uidls.put(mailbox, self.source.uidls.of(mailbox), txn.handle)
        if not state.removed:
            txn.charge(state, state.octets, state.messages, enforce=False)
        modseq = state.highestmodseq + 1
        txn.set_state(mailbox, None, evolve(state, epoch=self.target.epoch, moving=True, highestmodseq=modseq,
                                            changed=modseq))

    def _switch(self, txn: Txn) -> list[tuple[MailboxEntry, int]]:
        """Have the list name the other partition; the rows as they were, with the time of deletion or 0."""
        found = []
        mailboxes = self.store.mailboxes
        for mailbox in sorted(self._held):
            entry, deleted = mailboxes.find_id(mailbox, txn), mailboxes.deleted.find(mailbox, txn)
            if entry is not None:
                found.append((entry, 0))
                mailboxes.write(evolve(entry, partition=self.target.name), txn)
            elif deleted is not None:
                found.append((deleted[1], deleted[0]))
                mailboxes.deleted.add(evolve(deleted[1], partition=self.target.name), deleted[0], txn)
        if self.owner:
            self.store.directory.place(self.owner, self.target.name, txn)
        return found

    def _give_up(self) -> None:
        for mailbox in self._held:
            self.source.transact(lambda txn, mailbox=mailbox: moves_no_more(txn, mailbox))      # type: ignore[misc]
        self._forget_expunged(self.target)
        for mailbox in self._sent:
            deletion.destroy(self.target, mailbox, int(time.time()))

    # After that

    def _let_go(self, entries: list[tuple[MailboxEntry, int]]) -> None:
        named = {entry.id for entry, _ in entries}
        for entry, when in entries:
            def work(txn: WriteTxn, mailbox: MailboxId = entry.id, when: int = when) -> None:
                moves_no_more(txn, mailbox)
                if when:
                    deletion.bury(txn, mailbox, when)

            self.target.transact(work)
            writing.note(self.store, evolve(entry, partition=self.target.name))
        for mailbox in self._sent.keys() - named:           # purged meanwhile
            deletion.destroy(self.target, mailbox, int(time.time()))
        self.target.flush()
        self.store.news.tell(sorted(named))

    def _leave(self, entries: list[tuple[MailboxEntry, int]]) -> None:
        """The source forgets them. Its files wait for the purge: somebody may be reading. What was expunged goes first:
        a mailbox of which there are figures is one with which there is still something to do."""
        roots = self._roots({})
        self._forget_expunged(self.source)
        for entry, _ in entries:
            deletion.destroy(self.source, entry.id, int(time.time()))
            writing.note(self.store, entry)                # its store.idx has to go

        def work(txn: WriteTxn) -> None:
            for root in sorted(roots):
                use = self.source.quotas.find(root, txn.handle)
                if not use.octets and not use.messages:
                    self.source.quotas.forget(root, txn.handle)

        self.source.transact(work)
        self.source.flush()

    def _forget_expunged(self, partition: Partition) -> None:
        forget_each(partition, self._expunged)


def alone(store: Store) -> AbstractContextManager[None]:
    """Nobody else moves mailboxes. Raises StoreError BUSY."""
    return exclusive(store.root / "run" / "moving.lock", Problem.BUSY, "Somebody else is moving mailboxes")
