"""What comes of a user from another back end: message files, records, and all else that belongs to the mailboxes.

Mailboxes go by the ids that they have where they come from. Nothing of it is seen by anybody until
`targetside.activate`.
"""

import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence

import numpy as np
from attrs import define, evolve, field

from mboxlist.engine.btree import Txn
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName, NameProblem
from mboxlist.usermoves import Move, Phase, Planned
from store.accounts.builtin import User
from store.delivery.batch import BatchStore, CopiedFile, NotCopied, head_of, usable, write_chunks
from store.delivery.replacement import fits
from store.errors import Problem, StoreError
from store.mailboxes import deletion
from store.partition.messagereading import MID_OCTETS
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn
from store.rebuild.desired import acl_of, annotations_of
from store.store import Store
from store.tables.counters import counters_of
from store.tables.expunged import key_of
from store.tables.index import Rows, joined
from store.tables.privateheaders import renumbered
from store.tables.quotatable import QuotaUse
from store.tables.state import MailboxState, state_key
from store.userarea.idxfile import Head
from store.usermove.messageformat import BadMessage
from store.usermove.rowformat import Answer, head_digest, is_root_of, records_digest

Wanted = tuple[bytes, bool]         # digest, and whether the message shows the trace header of its file


def drop_copy(store: Store, move: Move) -> None:
    """Remove a copy that nobody sees, or the row of a move that is over."""
    if move.phase in (Phase.COMING, Phase.READY):
        put(store, evolve(move, phase=Phase.COMING, planned=(), subscriptions=()))     # nobody can activate it
        partition = store.partition(move.partition)
        deletion.destroy_wholly(partition, [MailboxId(mailbox) for mailbox in move.mailboxes])
        partition.transact(lambda txn: partition.quotas.forget_user(move.user, txn.handle))
        partition.flush()

    def forget(txn: Txn) -> None:
        store.mailboxes.moves.forget(move.user, txn)
        for mailbox in move.mailboxes:
            store.mailboxes.annotations.forget(MailboxId(mailbox), txn)

    store.mailboxes.change(forget)


def put(store: Store, move: Move) -> None:
    """Write the row of a move. On disk."""
    store.mailboxes.change(lambda txn: store.mailboxes.moves.put(move, txn))


@define(eq=False)
class Arrival:
    """One user's, from `begin` to `ready`. Mailboxes go by the ids that they have where they come from."""

    store: Store
    user: str
    move: str
    host: str
    partition: Partition
    batch_store: BatchStore
    _ids: dict[int, MailboxId] = field(factory=dict, init=False)
    _heads: dict[tuple[str, int], bytes] = field(factory=dict, init=False)      # by partition and number there
    _numbers: dict[tuple[str, int], int] = field(factory=dict, init=False)
    _found: dict[Wanted, CopiedFile] = field(factory=dict, init=False)     # of what was asked for last
    _planned: dict[MailboxId, Planned] = field(factory=dict, init=False)
    _roots: frozenset[str] = field(default=frozenset(), init=False)
    _subscriptions: list[str] = field(factory=list, init=False)
    _row: User | None = field(default=None, init=False)
    _begun: bool = True

    @classmethod
    def looking(cls, store: Store, user: str, host: str, partition: Partition) -> "Arrival":
        """Of one who only wants to know what would have to be sent."""
        return cls(store, user, "", host, partition, BatchStore(partition), begun=False)

    def _require_begun(self) -> None:
        if not self._begun:
            raise BadMessage("the user has not begun to come")

    def expect(self, mailboxes: Sequence[int]) -> None:
        """These will come. What a crash leaves of them is removed."""
        self._require_begun()
        new = [mailbox for mailbox in mailboxes if mailbox not in self._ids]

        def allocate(txn: Txn) -> dict[int, MailboxId]:
            ids = {mailbox: self.store.mailboxes.next_identity(txn)[0] for mailbox in new}
            every = (*self._ids.values(), *ids.values())
            self.store.mailboxes.moves.put(Move(self.user, self.move, Phase.COMING, self.host, self.partition.name,
                                                every), txn)
            return ids

        ids = self.store.mailboxes.change(allocate)
        self._ids.update(ids)
        nothing = evolve(MailboxState.new(1, self.partition.epoch, self.user), moving=True, removed=deletion.DOOMED)
        for mailbox in ids.values():
            self.partition.transact(lambda txn, mailbox=mailbox: txn.set_state(     # type: ignore[misc]
                mailbox, None, nothing))

    def _id(self, mailbox: int) -> MailboxId:
        if mailbox not in self._ids:
            raise BadMessage("that mailbox has not been announced")
        return self._ids[mailbox]

    # Message files

    def ask(self, asked: "np.ndarray") -> list[Answer]:
        """What has to be sent of these messages (`ASKED`)."""
        self._found.clear()
        self.batch_store.drop()
        return [self._answer(bytes(digest), trace, bool(shows)) for digest, trace, shows in asked.tolist()]

    def _answer(self, digest: bytes, trace: int, shows: bool) -> Answer:
        known = usable(self.partition, digest)
        if known is None:       # a file that was lost, and began otherwise, cannot be what this message shows
            return Answer.SEND if not shows or not trace or fits(self.partition, digest, trace) else Answer.WHOLE
        if not (shows and trace):
            self._found[digest, shows] = CopiedFile(digest, known.serial, known.trace)
            return Answer.HAVE
        return Answer.TELL if known.trace == trace else Answer.WHOLE

    def compare(self, headers: "np.ndarray") -> list[Answer]:
        """What has to be sent of messages that come behind these trace headers (`HEADER`)."""
        found = []
        for own_digest, digest in headers.tolist():
            own_digest = bytes(own_digest)
            known = usable(self.partition, own_digest)
            same = known is not None and head_digest(head_of(self.partition, own_digest, known)) == bytes(digest)
            if same and known is not None:
                self._found[own_digest, True] = CopiedFile(own_digest, known.serial, 0)
            found.append(Answer.HAVE if same else Answer.WHOLE)
        return found

    def receive(self, own_digest: bytes, trace: int, octets: int, *, whole: bool, data: Iterator[bytes]) -> None:
        """A message file: its trace header, and then what has that digest. Raises StoreError CORRUPT, DISK_FULL."""
        self._require_begun()
        self.partition.check_room()
        head, rest = _divided(data, trace)
        digest = hashlib.blake2b(digest_size=MID_OCTETS)
        staged = Staged(self.partition.files, self.partition.serials.next_serial(), b"" if whole else head, octets)
        try:
            if whole:
                staged.write(head)
            for part in rest:
                digest.update(part)
                if staged.write(part):
                    staged.spill()
            if digest.digest() != own_digest or staged.size != octets:
                raise StoreError(Problem.CORRUPT, "A message did not come as it was sent",
                                 f"what came for {own_digest.hex()} is not what its digest says")
            staged.finish()
            if whole:
                self._take_whole(own_digest, staged)
            else:
                self._take(own_digest, staged)
        except BaseException:
            if self.batch_store.batch.get(staged.digest) is not staged and not staged.committed:
                staged.abort()
            raise
        self.batch_store.keep_if_full()

    def _take(self, digest: bytes, staged: Staged) -> None:
        waiting = self.batch_store.batch.get(digest)
        if waiting is not None:                 # sent twice
            staged.abort()
            staged = waiting
        else:
            staged.spill()
            self.batch_store.add(staged)
        self._found[digest, True] = CopiedFile(digest, staged.serial, 0)
        self._found[digest, False] = CopiedFile(digest, staged.serial, staged.trace)

    def _take_whole(self, digest: bytes, staged: Staged) -> None:
        waiting, known = self.batch_store.batch.get(staged.digest), usable(self.partition, staged.digest)
        if waiting is None and known is None:
            staged.spill()
            self.batch_store.add(staged)
            self._found[digest, True] = CopiedFile(staged.digest, staged.serial, 0)
            return
        staged.abort()
        found = waiting or known
        assert found is not None
        self._found[digest, True] = CopiedFile(staged.digest, found.serial, found.trace)

    def name_head(self, partition: str, number: int, octets: bytes) -> None:
        """Header fields that messages on that partition have for themselves."""
        self._heads[partition, number] = octets

    # Records

    def put(self, mailbox: int, partition: str, chunks: dict[int, Rows]) -> bool:
        """Make these chunks what they are there; False when the files have to be asked for again.

        Raises StoreError CORRUPT, DISK_FULL.
        """
        target = self._id(mailbox)
        try:
            self._keep_files(int(time.time()))
            here = {number: self._translated(partition, rows) for number, rows in chunks.items()}
            self.partition.transact(lambda txn: write_chunks(txn, target, here))
        except NotCopied:
            return False
        return True

    def put_expunged(self, mailbox: int, partition: str, when: int, modseq: int, keywords: Sequence[str], rows: Rows,
                     *, first: bool) -> bool:
        """Likewise of what was expunged and can be undeleted; what is not the `first` part follows others."""
        target = self._id(mailbox)
        removed = self.partition.removed
        try:
            self._keep_files(when)
            here = self._translated(partition, rows)
            if not first:
                here = joined(removed.rows(key_of(when, target, modseq)), here)
            self.partition.transact(lambda txn: removed.keep(when, target, modseq, keywords, here, txn.handle,
                                                               held=False))
        except NotCopied:
            return False
        return True

    def forget_expunged(self, mailbox: int, when: int, modseq: int) -> None:
        key = key_of(when, self._id(mailbox), modseq)
        self.partition.transact(lambda txn: self.partition.removed.forget([key], txn.handle))

    def _keep_files(self, when: int) -> None:
        self.batch_store.keep()
        found = {(file.digest, file.header_length): file for file in self._found.values()}
        self.batch_store.hold(found, dict.fromkeys(found, when))

    def _translated(self, partition: str, rows: Rows) -> Rows:
        """The records as they are here. `header_length` is where they come from the length of the trace header, or
        0."""
        new, found = rows.copy(), []
        for digest, header_length in zip(rows["digest"].tolist(), rows["header_length"].tolist(), strict=True):
            file = self._found.get((digest, header_length == 0)) or self._found.get((digest, False))
            if file is None:
                raise NotCopied
            found.append(file)
        if found:
            new["digest"] = np.frombuffer(b"".join([each.digest for each in found]), rows.dtype["digest"])
            new["serial"] = [each.serial for each in found]
            new["header_length"] = [each.header_length for each in found]
        new = renumbered(new, self._numbered(partition, new))
        self._compare_sizes(new)
        return new

    def _numbered(self, partition: str, rows: Rows) -> dict[int, int]:
        """The numbers here of the header fields that these records have, whose messages are here."""
        numbers = [number for number in np.unique(rows["head"]).tolist() if number]
        if any((partition, number) not in self._heads.keys() | self._numbers.keys() for number in numbers):
            raise BadMessage("header fields have not been sent")
        headers = self.partition.private_headers
        fields = {number: self._heads.get((partition, number)) or headers.find(self._numbers[partition, number])
                  for number in numbers}
        there = self.partition.transact(lambda txn: headers.numbers_for(rows, fields, txn.handle)) if fields else {}
        for number in there:
            self._numbers[partition, number] = there[number]
            self._heads.pop((partition, number), None)
        return there

    def _compare_sizes(self, rows: Rows) -> None:
        """Raises StoreError CORRUPT when a message is not as long as its record says."""
        sizes: dict[bytes, int] = {}
        for digest in set(rows["digest"].tolist()):
            record = usable(self.partition, digest)
            if record is None:
                raise NotCopied
            sizes[digest] = record.size
        octets = np.array([sizes[digest] for digest in rows["digest"].tolist()], np.int64)
        octets += self.partition.private_headers.sizes(rows)
        wrong = octets != (rows["size"] + rows["header_length"]).astype(np.int64)
        if wrong.any():
            raise StoreError(Problem.CORRUPT, "A message is not as long as its record says: `onecopy check` it first",
                             f"UID {int(rows['uid'][wrong][0])}")

    # All else

    def describe(self, mailbox: int, head: Head, state: MailboxState, digest: str) -> None:
        """A mailbox without its records, which must be all here. Raises StoreError CORRUPT."""
        target, name = self._id(mailbox), _name(head, self.user)
        entry = MailboxEntry(target, name, self.partition.name, head.uidvalidity, head.created, head.special_use,
                             acl_of(head))
        rows = self.partition.transact(lambda txn: txn.load(target))
        sums = counters_of(rows)
        if records_digest(rows) != digest or (sums.messages, sums.octets) != (state.messages, state.octets):
            raise StoreError(Problem.CORRUPT, "The records did not come as they were", f"{name}")
        if not is_root_of(state.quota_root, self.user):
            raise BadMessage(f"{state.quota_root} is not a quota root of {self.user}")

        def arrive(txn: WriteTxn) -> None:
            before = txn.any_state(target)
            if before is not None and not before.removed:
                txn.charge(before, -before.octets, -before.messages, enforce=False)
            for each in (self.partition.vanished, self.partition.readers, self.partition.uidls):
                each.forget(target, txn.handle)
            txn.set_state(target, None, state)
            if not state.removed:
                txn.charge(state, state.octets, state.messages, enforce=False)

        self.partition.transact(arrive)

        def annotate(txn: Txn) -> None:
            self.store.mailboxes.annotations.forget(target, txn)
            for note, user, value in annotations_of(head):
                with contextlib.suppress(ValueError):       # what nobody could have set
                    self.store.mailboxes.annotations.set(target, note, value, txn, user)

        transact(self.store.mailboxes.env, annotate)
        self._planned[target] = Planned(entry, head.removed)

    def put_vanished(self, mailbox: int, items: Sequence[tuple[int, bytes]]) -> None:
        target = self._id(mailbox)

        def work(txn: WriteTxn) -> None:
            for modseq, ranges in items:
                self.partition.vanished.put(target, modseq, ranges, txn.handle)

        self.partition.transact(work)

    def put_own(self, mailbox: int, items: Sequence[tuple[int, str, "np.ndarray"]]) -> None:
        """Flags that readers have for themselves: chunk, reader, flags."""
        target = self._id(mailbox)

        def work(txn: WriteTxn) -> None:
            for number, reader, own in items:
                self.partition.readers.put_chunk(target, number, reader, own, txn.handle)

        self.partition.transact(work)

    def put_uidls(self, mailbox: int, uidls: dict[int, bytes]) -> None:
        """Unique-ids of POP3 from an earlier server."""
        target = self._id(mailbox)
        self.partition.transact(lambda txn: self.partition.uidls.put(target, uidls, txn.handle))

    def describe_user(self, row: User, limits: dict[str, QuotaUse]) -> None:
        """The user's row in the directory, and limits of quota roots. All mailboxes are described again after this."""
        self._require_begun()
        if row.account.user != self.user or not all(is_root_of(root, self.user) for root in limits):
            raise BadMessage(f"that is not of {self.user}")
        self._row, self._subscriptions = row, []
        self._planned.clear()
        self._roots = frozenset(limits)

        def work(txn: WriteTxn) -> None:
            for root, use in limits.items():
                self.partition.quotas.take_over(root, use, txn.handle)

        self.partition.transact(work)

    def _forget_roots(self, txn: WriteTxn) -> None:
        """Those that have been removed since the user was described before."""
        quotas = self.partition.quotas
        for root in {self.user, *quotas.roots_below(self.user, txn.handle)} - self._roots:
            use = quotas.find(root, txn.handle)
            if not use.octets and not use.messages:
                quotas.forget(root, txn.handle)

    def subscribe(self, names: Sequence[str]) -> None:
        self._subscriptions += names

    def ready(self) -> None:
        """Have it all on disk, so that `activate` has only to say so. Raises StoreError USER_EXISTS, CORRUPT."""
        if self._row is None:
            raise BadMessage("nothing has been said of the user")
        row, partition = self._row, self.partition
        for target in self._planned:
            state = MailboxState.from_bytes(partition.states.get(state_key(target)) or b"", partition.epoch)
            if partition.vanished.octets(target) != state.logged:
                raise StoreError(Problem.CORRUPT, "The log of expunged UIDs did not come as it was")
        gone = [target for target in self._ids.values() if target not in self._planned]     # purged meanwhile
        deletion.destroy_wholly(partition, gone)
        partition.transact(self._forget_roots)
        partition.flush()
        planned = tuple(planned for _, planned in sorted(self._planned.items()))
        ids = tuple(planned.entry.id for planned in planned)

        def work(txn: Txn) -> None:
            account = evolve(row.account, host=self.host, partition=partition.name)
            self.store.directory.write(evolve(row, account=account), txn)
            self.store.mailboxes.moves.put(Move(self.user, self.move, Phase.READY, self.host, partition.name, ids,
                                                planned, tuple(self._subscriptions)), txn)

        self.store.mailboxes.change(work)
        self._ids = {mailbox: target for mailbox, target in self._ids.items() if target in self._planned}

    def end(self) -> None:
        """The connection ends. What is not `ready` by now goes: whoever sent it begins again."""
        self.batch_store.drop()
        there = self.store.mailboxes.moves.find(self.user) if self._begun else None
        if there is not None and there.id == self.move and there.phase is Phase.COMING:
            drop_copy(self.store, there)


def _name(head: Head, user: str) -> MailboxName:
    try:
        name = MailboxName.parse(head.name)
    except NameProblem as error:
        raise BadMessage(str(error)) from None
    if name.owner != user:
        raise BadMessage(f"{name} is not a mailbox of {user}")
    return name


def _divided(data: Iterator[bytes], count: int) -> tuple[bytes, Iterator[bytes]]:
    """The first octets, and an iterator over the rest. Raises BadMessage when there are fewer."""
    head = b""
    while len(head) < count:
        more = next(data, b"")
        if not more:
            raise BadMessage("a message file is shorter than its trace header")
        head += more

    def rest() -> Iterator[bytes]:
        if len(head) > count:
            yield head[count:]
        yield from data

    return head[:count], rest()
