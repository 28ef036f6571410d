"""A user's mailboxes are sent to another back end, up to the step that decides; see `sourceside`."""

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np
from attrs import asdict, define, evolve, field, frozen

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import Failure, transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.usermoves import Move, Phase
from store import hosting
from store.delivery.batch import head_of
from store.errors import Problem, StoreError
from store.partition.partition import Partition
from store.partitions.changedrows import changed_chunks, chunks_from, unpurged
from store.partitions.holding import hold, moves_no_more
from store.partitions.partitionmove import LITTLE, OVERLAP, PASSES, Moved
from store.quota import limitturns
from store.store import Store
from store.tables.expunged import Expunged
from store.tables.index import CHUNK, Rows, decode
from store.tables.quotatable import QuotaUse
from store.userarea import writing
from store.usermove.peer import Peer
from store.usermove.rowformat import ASKED, HEADER, SEND_CHUNKS, Answer, head_digest, records_digest

log = logging.getLogger(__name__)
T = TypeVar("T")
Progress = Callable[[Moved], None]

PATIENCE = 20.0             # seconds that one answer may take while the mailboxes are held
TRIES = 10                  # of records whose messages come and go at the other side,
ROUNDS = 5                  # of sending what the list says while others change it
_FIGURES = ("uidnext", "highestmodseq", "changed", "recent", "messages", "unseen", "deleted", "octets", "log_since",
            "logged", "removed", "quota_root")
_BATCH = 500                # subscriptions, unique-ids, chunks of readers' flags that go in one message
_VANISHED = 128 << 10       # octets of expunged UIDs that do, about


@frozen
class _Snapshot:
    """All that the list says of a user."""

    row: bytes
    entries: tuple[MailboxEntry, ...]
    deleted: tuple[tuple[int, MailboxEntry], ...]
    subscriptions: tuple[str, ...]
    annotations: tuple[tuple[int, int], ...]        # mailbox, and a hash of what is noted of it

    @classmethod
    def of(cls, store: Store, user: str, txn: Txn) -> "_Snapshot":
        """As it is now. Raises StoreError NO_USER."""
        mailboxes = store.mailboxes
        found = store.directory.user(user, txn)
        if found is None:
            raise StoreError(Problem.NO_USER, f"There is no user {user}")
        entries = tuple(mailboxes.below(user, txn=txn))
        deleted = tuple((when, entry) for when, entry in mailboxes.deleted.all(txn) if entry.name.owner == user)
        ids = [entry.id for entry in (*entries, *(entry for _, entry in deleted))]
        notes = tuple((mailbox, hash(tuple(mailboxes.annotations.of(mailbox, txn)))) for mailbox in ids)
        return cls(found.to_bytes(), entries, deleted, tuple(mailboxes.subscriptions.of(user, txn)), notes)

    def every(self) -> list[tuple[MailboxEntry, int]]:
        """All mailboxes, each with the Unix time at which it was deleted, or 0."""
        return [*((entry, 0) for entry in self.entries), *((entry, when) for when, entry in self.deleted)]


@define(eq=False)
class MailboxSender:
    """One user's, up to the row GONE. `held` is how long the mailboxes were held."""

    store: Store
    user: str
    host: str
    peer: Peer
    progress: Progress = lambda so_far: None
    moved: Moved = field(factory=Moved, init=False)
    held: float = field(default=0.0, init=False)
    _id: str = field(factory=lambda: secrets.token_hex(16), init=False)
    _sent: dict[MailboxId, dict[int, int]] = field(factory=dict, init=False)    # by chunk: a hash of what it had
    _expunged: dict[tuple[str, bytes], tuple[MailboxId, int]] = field(factory=dict, init=False)    # what has been sent
    _heads: set[tuple[str, int]] = field(factory=set, init=False)
    _held: dict[MailboxId, str] = field(factory=dict, init=False)               # with their partitions
    _since: int = field(default=0, init=False)

    def run(self) -> Move:
        """Send all of the user, and write the row GONE. Raises StoreError, after which the user is here as before."""
        store, place = self.store, self.store.directory.user(self.user)
        assert place is not None
        self.peer.begin(self.user, self._id, place.account.partition)
        try:
            for _ in range(PASSES):
                if self._send_changes() <= LITTLE:
                    break
            self.peer.wire.limit(PATIENCE)
            begun = time.monotonic()
            move = self._hold_and_switch()
        except BaseException:
            self._give_up()
            raise
        store.mailboxes.env.flush()
        self.held = time.monotonic() - begun
        store.news.tell(sorted(self._held))             # those who are connected are sent away
        log.info("%s has gone to %s, after %.2f s", self.user, self.host, self.held)
        return move

    def count(self) -> tuple[int, int, int, int]:
        """What would be moved, without doing it: mailboxes, messages, files that the other one lacks, their octets."""
        place = self.store.directory.user(self.user)
        assert place is not None
        self.peer.look(self.user, place.account.partition)
        files = octets = messages = 0
        seen: set[bytes] = set()
        entries = self._mailboxes()
        for partition, rows, listed in self._pieces(entries):
            messages += len(rows) * listed
            for digest, answer in self._asked(partition, rows):
                if answer in (Answer.SEND, Answer.WHOLE) and digest not in seen:
                    seen.add(digest)
                    record = partition.refs.find(digest)
                    files, octets = files + 1, octets + (record.size if record is not None else 0)
        return len(entries), messages, files, octets

    def _pieces(self, entries: list[tuple[Partition, MailboxId]]) -> Iterator[tuple[Partition, Rows, bool]]:
        """All records, and whether they are in mailboxes, or were expunged and can be undeleted."""
        for partition, mailbox in entries:
            for found in chunks_from(partition, mailbox):
                yield partition, np.concatenate([decode(value) for value in found.values()]), True
        ids = {mailbox for _, mailbox in entries}
        for partition in {partition.name: partition for partition, _ in entries}.values():
            for item in [item for item in partition.removed.all() if item.mailbox in ids]:
                rows = unpurged(partition, item)
                for at in range(0, len(rows), SEND_CHUNKS * CHUNK):
                    yield partition, rows[at:at + SEND_CHUNKS * CHUNK], False

    def _mailboxes(self) -> list[tuple[Partition, MailboxId]]:
        deleted = [entry for _, entry in self.store.mailboxes.deleted.all() if entry.name.owner == self.user]
        entries = sorted((*self.store.names(self.user), *deleted), key=lambda entry: entry.id)
        return [(self.store.partition(entry.partition), entry.id) for entry in entries]

    # While everything goes on, and once more when nothing does

    def _send_changes(self) -> int:
        """Send what is new; how many records."""
        now, count = int(time.time()), 0
        every = self._mailboxes()
        if new := [mailbox for _, mailbox in every if mailbox not in self._sent]:
            self.peer.expect(new)
            self._sent.update((mailbox, {}) for mailbox in new)
        for partition, mailbox in every:
            count += self._send_mailbox(partition, mailbox)
        for name in sorted({partition.name for partition, _ in every}):
            self._send_expunged(self.store.partition(name))
        self._since = now - OVERLAP
        return count

    def _send_mailbox(self, partition: Partition, mailbox: MailboxId) -> int:
        return sum(self._put(partition, mailbox, chunks)
                   for chunks in changed_chunks(partition, mailbox, self._sent[mailbox]))

    def _put(self, partition: Partition, mailbox: MailboxId, chunks: dict[int, Rows]) -> int:
        rows = np.concatenate(list(chunks.values()))
        counts = [len(each) for each in chunks.values()]
        self._with_files(partition, rows, lambda: self.peer.put(
            mailbox, partition.name, list(chunks), counts, rows.tobytes()))
        self._count(Moved(messages=len(rows)))
        return max(1, len(rows))

    def _with_files(self, partition: Partition, rows: Rows, put: Callable[[], bool]) -> None:
        """Send what these records' messages need, and then the records, until the other one has them."""
        for _ in range(TRIES):
            self._send_heads(partition, rows)
            sent: set[tuple[bytes, bool]] = set()
            for digest, answer in self._asked(partition, rows):
                whole = answer is Answer.WHOLE
                if answer in (Answer.SEND, Answer.WHOLE) and (digest, whole) not in sent:
                    sent.add((digest, whole))
                    self._send_file(partition, digest, whole=whole)
            if put():
                return
        raise StoreError(Problem.BUSY, detail="the same messages come and go on the other back end")

    def _asked(self, partition: Partition, rows: Rows) -> Iterator[tuple[bytes, Answer]]:
        """The messages of these records, and what the other one says of each."""
        wanted = sorted(set(zip(rows["digest"].tolist(), (rows["header_length"] == 0).tolist(), strict=True)))
        asked = np.zeros(len(wanted), ASKED)
        for at, (digest, plain) in enumerate(wanted):
            record = partition.refs.find(digest)
            if record is None:
                raise StoreError(Problem.CORRUPT, "A message cannot be read", f"nothing is known of {digest.hex()}")
            asked[at] = digest, record.trace, plain and record.trace > 0
        answers = self.peer.ask(asked)
        alike = [digest for (digest, _), answer in zip(wanted, answers, strict=True) if answer is Answer.TELL]
        compared = dict(zip(alike, self._compared(partition, alike), strict=True))
        for (digest, _), answer in zip(wanted, answers, strict=True):
            yield digest, compared[digest] if answer is Answer.TELL else answer

    def _compared(self, partition: Partition, digests: list[bytes]) -> list[Answer]:
        if not digests:
            return []
        table = np.zeros(len(digests), HEADER)
        for at, digest in enumerate(digests):
            record = partition.refs.find(digest)
            if record is None:
                raise StoreError(Problem.BUSY, detail="a message has gone meanwhile")
            table[at] = digest, head_digest(head_of(partition, digest, record))
        return self.peer.compare(table)

    def _send_file(self, partition: Partition, digest: bytes, *, whole: bool) -> None:
        record = partition.refs.find(digest)
        if record is None:
            raise StoreError(Problem.BUSY, detail="a message has gone meanwhile")
        with partition.files.open(digest, record.serial, 0, record.size) as file:
            self.peer.send(digest, record.trace, record.size, file.read, whole=whole)
        self._count(Moved(files=1, octets=record.size))

    def _send_heads(self, partition: Partition, rows: Rows) -> None:
        for number in np.unique(rows["head"]).tolist():
            if number and (partition.name, number) not in self._heads:
                self.peer.name_head(partition.name, number, partition.private_headers.find(number))
                self._heads.add((partition.name, number))

    def _count(self, more: Moved) -> None:
        self.moved += more
        self.progress(evolve(self.moved, mailboxes=len(self._sent)))

    def _send_expunged(self, partition: Partition) -> None:
        """What was expunged and can be undeleted."""
        for key, (mailbox, _) in list(self._expunged.items()):
            if key[0] == partition.name and partition.removed.find(key[1]) is None:
                when, modseq = _parted(key[1])
                self.peer.forget_expunged(mailbox, when, modseq)
                del self._expunged[key]
        found = partition.removed.all(since=self._since)
        for item in [item for item in found if item.mailbox in self._sent]:
            print_ = hash(item.rows.tobytes())
            if self._expunged.get((partition.name, item.key), (0, 0))[1] != print_:
                self._put_expunged(partition, item)
                self._expunged[partition.name, item.key] = item.mailbox, print_

    def _put_expunged(self, partition: Partition, item: Expunged) -> None:
        rows = unpurged(partition, item)
        when, modseq = _parted(item.key)
        for at in range(0, len(rows), SEND_CHUNKS * CHUNK):
            some = rows[at:at + SEND_CHUNKS * CHUNK]
            self._with_files(partition, some, lambda at=at, some=some: self.peer.put_expunged(  # type: ignore[misc]
                item.mailbox, partition.name, when, modseq, item.keywords, some.tobytes(), first=not at))

    # While they are held

    def _hold_and_switch(self) -> Move:
        for _ in range(ROUNDS):
            self._hold()
            self._send_changes()
            with limitturns.in_turn(self.store, self.user):
                move = self._describe_and_switch()
            if move is not None:
                self.store.directory.noticed(self.user)
                self.moved = evolve(self.moved, mailboxes=len(self._held))
                return move
        raise StoreError(Problem.BUSY, f"The mailboxes of {self.user} are being made or changed all the time")

    def _describe_and_switch(self) -> Move | None:
        """The row GONE; None when others have changed the list meanwhile."""
        snapshot = transact(self.store.mailboxes.env, lambda txn: _Snapshot.of(self.store, self.user, txn))
        if {entry.id for entry, _ in snapshot.every()} - self._held.keys():
            return None                                 # made just now
        self._describe(snapshot)
        self.peer.ready()
        return transact(self.store.mailboxes.env, lambda txn: self._switch(snapshot, txn))

    def _hold(self) -> None:
        """Nobody writes to the mailboxes from here on, nor to those that were made meanwhile."""
        while new := [(partition, mailbox) for partition, mailbox in self._mailboxes() if mailbox not in self._held]:
            for partition in {partition.name: partition for partition, _ in new}.values():
                ids = [mailbox for place, mailbox in new if place is partition]
                self._held.update((mailbox, partition.name) for mailbox in ids)
                self.store.mailboxes.change(
                    lambda txn, ids=ids: self.store.mailboxes.pending.note(ids, txn))           # type: ignore[misc]
                partition.transact(lambda txn, ids=ids: hold(txn, ids))         # type: ignore[misc]

    def _describe(self, snapshot: _Snapshot) -> None:
        self.peer.describe_user(snapshot.row, self._limits(snapshot))
        for names in _batches(snapshot.subscriptions):
            self.peer.subscribe(names)
        for entry, removed in snapshot.every():
            partition = self.store.partition(entry.partition)
            state = partition.any_state(entry.id)
            if state is None:
                raise StoreError(Problem.BUSY, detail=f"{entry.name} has gone meanwhile")
            rows = partition.transact(lambda txn, entry=entry: txn.load(entry.id))      # type: ignore[misc]
            head = writing.describe(self.store, partition, entry, removed, state, records=len(rows), readers=[])
            figures = {name: value for name, value in asdict(state).items() if name in _FIGURES}
            self.peer.describe(entry.id, evolve(head, limits={}, subscriptions=[]), figures, records_digest(rows))
            self._describe_more(partition, entry.id)

    def _describe_more(self, partition: Partition, mailbox: MailboxId) -> None:
        some: list[tuple[int, bytes]] = []
        for item in partition.vanished.all(mailbox):
            some.append(item)
            if sum(len(ranges) for _, ranges in some) >= _VANISHED or len(some) >= _BATCH:
                self.peer.put_vanished(mailbox, some)
                some = []
        if some:
            self.peer.put_vanished(mailbox, some)
        for own in _batches(list(partition.readers.all(mailbox))):
            self.peer.put_own(mailbox, own)
        for uidls in _batches(sorted(partition.uidls.of(mailbox).items())):
            self.peer.put_uidls(mailbox, dict(uidls))

    def _limits(self, snapshot: _Snapshot) -> dict[str, QuotaUse]:
        """Of the user's roots: those of the partition of INBOX come first."""
        inbox = next((entry.partition for entry in snapshot.entries if entry.name.is_inbox()), "")
        found: dict[str, QuotaUse] = {}
        for partition in sorted(self.store.partitions.values(), key=lambda each: each.name != inbox):
            for root in (self.user, *partition.quotas.roots_below(self.user)):
                if partition.quotas.has(root):
                    found.setdefault(root, partition.quotas.find(root))
        return found

    def _switch(self, snapshot: _Snapshot, txn: Txn) -> Move | None:
        """The step that decides; None when the list has changed since the snapshot."""
        if _Snapshot.of(self.store, self.user, txn) != snapshot:
            return None
        move = Move(self.user, self._id, Phase.GONE, self.host)
        hosting.set_row_host(self.store, self.user, self.host, txn)
        self.store.mailboxes.moves.put(move, txn)
        return move

    def _give_up(self) -> None:
        there = self.store.mailboxes.moves.find(self.user)
        if there is not None and there.id == self._id:          # too late: the user has gone
            return
        try:
            let_go(self.store, self._held)
        except (StoreError, Failure, OSError) as error:         # housekeeping, or the next start, does it
            log.error("%s: the mailboxes cannot be let go yet: %s", self.user, error)
        with contextlib.suppress(StoreError):           # the connection may be what was lost
            self.peer.drop(self.user, self._id)


def let_go(store: Store, held: dict[MailboxId, str]) -> None:
    """They can be written to again."""
    for mailbox, name in sorted(held.items()):
        store.partition(name).transact(lambda txn, mailbox=mailbox: moves_no_more(txn, mailbox))    # type: ignore[misc]


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, _BATCH)):
        yield some


def _parted(key: bytes) -> tuple[int, int]:
    """When it was expunged, and at which MODSEQ."""
    return int.from_bytes(key[:4], "big"), int.from_bytes(key[8:], "big")
