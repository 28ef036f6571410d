"""The promoted machine: what it answers to the one whose place it took, and takes from it.

A message is delivered unless the mailbox has got it since the promotion, be it from a relay that tried again, or by an
earlier run that was cut off. What was expunged since then counts as there.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.engine.transact import transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import MailboxName, NameProblem
from store.delivery.commit import Delivered, NotOnDisk, Target, commit
from store.errors import Problem, StoreError
from store.mailboxes import namespace
from store.partition.marks import absent, read_epoch, write_epoch
from store.partition.messagereading import MID_OCTETS
from store.partition.staged import Staged
from store.partitions.volumes import NAME
from store.problems import problems
from store.rejoin import commonplace, partitionhome
from store.rejoin.partitionhome import Whence
from store.standby import promotion, sourcepeer, succession
from store.standby.sourcepeer import Rate, SourcePeer
from store.store import Store
from store.tables.index import ROW
from store.usermove.messageformat import BadMessage, Message, Wire
from store.usermove.peer import Peer
from store.values import Flag, Flags, InternalDate

OCTETS = 512 << 10              # of a file or message in one message of the connection
DIGESTS = 2000                  # that are asked for at a time
MAILBOXES = 100_000             # of one owner, at most
KEYWORDS = 64                   # of a message, at most
TRACE = 1 << 20                 # octets of a trace header
_U32 = (1 << 32) - 1

Answer = tuple[dict[str, Any], bytes]


@define(eq=False)
class _Arriving:
    """A message, of which octets are still to come."""

    entry: MailboxEntry
    staged: Staged
    target: Target
    received: InternalDate
    left: int


@frozen(eq=False)
class _Expunged:
    """Digests of all messages that can still be undeleted, in the order of their mailboxes: read once for all owners.
    """

    _mailboxes: NDArray[np.uint32]
    _digests: NDArray[np.void]

    @classmethod
    def of(cls, store: Store) -> "_Expunged":
        """Those of the store."""
        items = [(item.mailbox, item.rows["digest"]) for partition in store.partitions.values()
                 for item in partition.removed.all()]
        mailboxes = np.repeat(np.array([mailbox for mailbox, _ in items], np.uint32), [len(some) for _, some in items])
        order = np.argsort(mailboxes, kind="stable")
        digests = np.concatenate([some for _, some in items]) if items else np.empty(0, ROW["digest"])
        return cls(mailboxes[order], digests[order])

    def digests(self, mailbox: MailboxId) -> Iterator[bytes]:
        """Those of one mailbox."""
        first, last = np.searchsorted(self._mailboxes, [mailbox, mailbox + 1])
        return (digest.tobytes() for digest in self._digests[first:last])


@define(eq=False)
class TakingHome:
    """What one machine hears that comes back. Every answer raises BadMessage for what is no question, StoreError,
    OSError."""

    store: Store
    wire: Wire | None = None            # the connection, and the machine at its other end
    host: str = ""
    _targets: dict[int, MailboxEntry] = field(factory=dict, init=False)     # by their ids on the other machine
    _arriving: _Arriving | None = field(default=None, init=False)
    _owner: str | None = field(default=None, init=False)            # whose digests these are:
    _owned: set[bytes] = field(factory=set, init=False)
    _expunged: _Expunged | None = field(default=None, init=False)

    def actions(self) -> dict[str, Callable[[Message], Any]]:
        """By the names that the other machine uses."""
        return {"home files": self._files, "home file": self._file, "home mailbox": self._mailbox,
                "home had": self._had, "home known": self._is_known, "home passed": self._passed,
                "home there": self._there, "home partition": self._partition, "home places": self._places,
                "home message": self._message, "home octets": self._octets}

    # The common place

    def _files(self, message: Message) -> Answer:
        """The tables that were kept at the promotion, if there are any, and which promotions had been before it."""
        top, known = self.store.root / promotion.PROMOTED, succession.read(self.store.root)
        return {"files": [[str(path.relative_to(top)), path.stat().st_size] for path in sorted(top.rglob("*.db"))
                          if path.name != promotion.PROMOTED_RECORDS],
                "common": list(known.common), "identity": self.store.mailboxes.identity,
                "absent": absent(self.store.root),
                "home": partitionhome.came_home(self.store.root, self._whence(message)),
                **known.lineage.fields()}, b""

    def _whence(self, message: Message) -> Whence:
        promotion = message.text("promotion")
        if not promotion.isprintable() or " " in promotion:
            raise BadMessage("there is no such promotion")
        return Whence(self.host, promotion)

    def _passed(self, message: Message) -> Answer:
        """No UID, MODSEQ, mailbox id or UIDVALIDITY that the other machine has given out comes to mean something else
        here: ids at once, the others from the next start on, until when the distance of a promotion is enough."""
        mailboxes, epochs = self.store.mailboxes, sourcepeer.epochs_of(message)
        mailbox, validity = message.number("mailbox", 0, _U32), message.number("validity", 0, _U32)
        for name, partition in self.store.partitions.items():
            if (beyond := epochs.get(name, 0) + promotion.UNCLEAN_ENDS) > read_epoch(partition.folder):
                write_epoch(partition.folder, beyond)
        with problems():
            transact(mailboxes.env, lambda txn: mailboxes.skip_identities(MailboxId(mailbox), validity, txn))
            mailboxes.env.flush()
        return {}, b""

    def _file(self, message: Message) -> Answer:
        top = self._top()
        path = next((path for path in top.rglob("*.db") if str(path.relative_to(top)) == message.text("name")), None)
        if path is None:
            raise StoreError(Problem.GONE, "That table is there no more")
        with privatefiles.open_file(path) as file:
            file.seek(message.number("at"))
            return {}, file.read(OCTETS)

    def _top(self) -> Path:
        top = self.store.root / promotion.PROMOTED
        if not top.is_dir():
            raise StoreError(Problem.NO_STORE, "This machine has not been promoted, or what it kept of that has gone")
        return top

    # Partitions

    def _partition(self, message: Message) -> Answer:
        """A partition that is not here is to come: from here on this machine asks, and the other one answers."""
        name = message.text("name")
        if self.wire is None or not NAME.fullmatch(name):
            raise BadMessage("there is no such partition")
        with self.store.write_freeze.second.exempt():       # who sends it hears when it is on disk here
            partitionhome.take(self.store, name, SourcePeer(Peer(self.host, self.wire), Rate(message.number("rate"))),
                               self._whence(message))
        return {}, b""

    def _places(self, message: Message) -> Answer:
        """Which of these mailboxes are on another partition than that: their places among them."""
        if len(message.octets) % 4:
            raise BadMessage("a list of mailboxes is not whole")
        partition, numbers = message.text("partition"), np.frombuffer(message.octets, "<u4").tolist()
        known = [self.store.known(number) for number in numbers]
        return {"elsewhere": [at for at, found in enumerate(known) if found and found[0].partition != partition]}, b""

    # Mailboxes

    def _mailbox(self, message: Message) -> Answer:
        """The mailbox that stands for one of the other machine: the one of its id, else of its name, which is made if
        there is none. `same`: it is the one that both had."""
        number, validity = message.number("mailbox", 1, _U32), message.number("uidvalidity", 1, _U32)
        try:
            name = MailboxName.parse(message.text("name", 5000))
        except NameProblem as error:
            raise BadMessage(f"that is no name: {error}") from None
        entry = self.store.mailboxes.find_id(MailboxId(number))
        same = entry is not None and entry.uidvalidity == validity
        if entry is None or not same:
            entry = self.store.mailboxes.find(name) or namespace.create_mailbox(self.store, name)
        self._targets[number] = entry
        return {"name": str(entry.name), "same": same}, b""

    def _target(self, message: Message) -> MailboxEntry:
        entry = self._targets.get(message.number("mailbox", 1, _U32))
        if entry is None:
            raise BadMessage("nobody has asked for that mailbox")
        return entry

    def _had(self, message: Message) -> Answer:
        """Which of these digests messages of these mailboxes had at the promotion: the places of those."""
        mailboxes = [MailboxId(each) for each in message.numbers("mailboxes", MAILBOXES)]
        with problems():
            had = commonplace.digests(self._top(), mailboxes)
        return {"had": [at for at, digest in enumerate(_digests(message.octets)) if digest in had]}, b""

    def _is_known(self, message: Message) -> Answer:
        """Which of these digests messages of an owner have, or had that can still be undeleted: the places of those."""
        owner = message.text("owner")
        if self._owner != owner:
            self._owner, self._owned = owner, self._digests_of(owner)
        return {"had": [at for at, digest in enumerate(_digests(message.octets)) if digest in self._owned]}, b""

    def _digests_of(self, owner: str) -> set[bytes]:
        if self._expunged is None:
            self._expunged = _Expunged.of(self.store)
        found = set[bytes]()
        for entry in self.store.names(owner):
            found.update(digest.tobytes() for digest in self.store.open_mailbox(entry).rows["digest"])
            found.update(self._expunged.digests(entry.id))
        return found

    def _there(self, message: Message) -> Answer:
        """How many messages of each digest have come to the mailbox with a UID that is not less than `since`."""
        entry, since = self._target(message), message.number("since", 1, _U32)
        asked = _digests(message.octets)
        there = Counter[bytes]()
        rows = [self.store.open_mailbox(entry).rows]
        rows += [item.rows for item in self.store.partition_of(entry).removed.all() if item.mailbox == entry.id]
        for some in rows:
            there.update(digest.tobytes() for digest in some["digest"][some["uid"] >= since])
        return {"counts": [there[digest] for digest in asked]}, b""

    # Messages

    def _message(self, message: Message) -> Answer:
        """A message, or the first octets of one; the header fields of `trace` octets at its beginning are not part of
        its digest."""
        self._drop()
        entry, trace, size = self._target(message), message.number("trace", 0, TRACE), message.number("size")
        if not trace <= len(message.octets) <= size:
            raise BadMessage("a message does not begin as it should")
        flags = message.number("flags", 0, sum(Flag))
        target = Target(entry, Flags(Flag(flags), tuple(message.texts("keywords", KEYWORDS))), ignore_quota=True)
        received = InternalDate(message.number("received"), message.number("zone", 0, 2 * 1440) - 1440)
        staged = self.store.stage(entry, message.octets[:trace])
        self._arriving = _Arriving(entry, staged, target, received, size - trace)
        return self._take(message.octets[trace:])

    def _octets(self, message: Message) -> Answer:
        if self._arriving is None or not message.octets or len(message.octets) > self._arriving.left:
            raise BadMessage("no octets of a message were to come")
        return self._take(message.octets)

    def _take(self, octets: bytes) -> Answer:
        arriving = self._arriving
        assert arriving is not None
        try:
            if arriving.staged.write(octets):
                arriving.staged.spill()
            arriving.left -= len(octets)
            if arriving.left:
                return {"uid": 0}, b""
            uid = _deliver(self.store, arriving)
        except BaseException:
            self._drop()
            raise
        self._arriving = None
        return {"uid": uid}, b""

    def _drop(self) -> None:
        if self._arriving is not None and not self._arriving.staged.committed:
            self._arriving.staged.abort()
        self._arriving = None


def _digests(octets: bytes) -> list[bytes]:
    """Raises BadMessage."""
    if len(octets) % MID_OCTETS or len(octets) > DIGESTS * MID_OCTETS:
        raise BadMessage("a list of digests is not whole, or too long")
    return [octets[at:at + MID_OCTETS] for at in range(0, len(octets), MID_OCTETS)]


def _deliver(store: Store, arriving: _Arriving) -> int:
    """On disk, and in the mailbox; the UID. Raises StoreError."""
    staged, partition = arriving.staged, store.partition_of(arriving.entry)
    staged.finish()
    staged.sync()
    if not staged.named:
        staged.files.sync_names(staged.names_since)
    staged.close()
    try:
        outcome, = commit(partition, staged, [arriving.target], arriving.received)
    except NotOnDisk as error:
        raise StoreError(Problem.BUSY, detail=str(error)) from error
    if not isinstance(outcome, Delivered):
        raise outcome if isinstance(outcome, StoreError) else StoreError(Problem.BUSY)
    partition.flush()
    staged.place()
    return outcome.uid


