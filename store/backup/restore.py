"""What archives have is restored to a store: all of it, or what is chosen, beside servers that go on.

Message files come first, each once; mailboxes that are not there are made as they were (`rebuild.liveloader`), others
get what they lack (`messageimport.add`), if that is wanted. UIDNEXT and MODSEQs skip ahead of what may have been shown
since the backup. All of it can be cut off and done again.

What is damaged costs what is in it: of a mailbox whose newest copy cannot be read an older one is taken.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import numpy as np
from attrs import define, evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.entry import MailboxEntry
from mboxlist.names import SEPARATOR, MailboxName, NameProblem, legal_path
from store.accounts.base import Account, Status
from store.accounts.builtin import NO_PASSWORD, User
from store.backup import cachemembers, userrows
from store.backup.archive import ACCOUNTS, CACHED, COPIES, LIMITS, MANIFEST, TOTALS, Archive, in_memory, parse_name
from store.backup.chain import Chain
from store.backup.tarmembers import Cut, Lost, Member
from store.delivery.filecopy import FileCopier, copy_rows
from store.errors import Problem, StoreError
from store.filelock import temporary
from store.mailboxes import placement
from store.message.cacherecord import CachedMessage, fits
from store.migration.messageimport import Contents, add, lacking
from store.opening import make_empty_store, open_store
from store.partition.partition import Partition
from store.problems import problems
from store.quota import roots
from store.rebuild.desired import NEW, DesiredMailbox, annotations_of, entry_of, new_mailbox, own_of, written_state
from store.rebuild.liveloader import LiveLoader
from store.rebuild.userareascan import Source
from store.store import Store
from store.tables.index import MAX_UID, Rows, take
from store.tables.state import MODSEQ_SKIP, UID_SKIP
from store.userarea import idxreading
from store.userarea.idxreading import Salvaged

MAILBOXES_TOGETHER = 256    # that are made, and published, at a time,
RECORD_OCTETS = 32 << 20    # or fewer, when their records have so much
UIDS_SHOWN = 20             # of lost messages, in one line


@frozen
class Choice:
    """What is to be restored: all, or what these name. `into`: beside what is there, below that name; `over`: what is
    missing is added to mailboxes that are there."""

    users: frozenset[str] | None = None
    mailbox: str = ""
    uids: frozenset[int] = frozenset()
    into: str = ""
    over: bool = False
    dry_run: bool = False

    @property
    def everything(self) -> bool:
        return self.users is None and not self.mailbox

    def wants(self, name: MailboxName) -> bool:
        return (self.users is None or name.owner in self.users) and self.mailbox in ("", name.path)

    def target(self, name: MailboxName) -> MailboxName:
        """The name under which it is restored. Raises StoreError BAD_NAME."""
        if not self.into:
            return name
        try:
            return MailboxName(name.owner, legal_path(self.into if self.mailbox else self.into + SEPARATOR + name.path))
        except NameProblem as error:
            raise StoreError(Problem.BAD_NAME, str(error)) from error


@define
class Restored:
    """What was done. `there` are messages that were there already; `findings` what is not whole, or was left."""

    users: int = 0
    mailboxes: int = 0
    messages: int = 0
    there: int = 0
    files: int = 0
    octets: int = 0
    findings: list[str] = field(factory=list)


@contextlib.contextmanager
def passing_store() -> Iterator[Store]:
    """An empty store that goes again, to see what would be restored where there is none yet."""
    with temporary("restore") as folder:
        make_empty_store(folder / "store")
        store = open_store(folder / "store")
        try:
            yield store
        finally:
            store.close()


@define(eq=False)
class Restoring:
    """Restores archives (a full one and those that continue it, in any order) to a store."""

    store: Store
    archives: list[Archive]
    choice: Choice = Choice()
    progress: Callable[[Restored], None] = lambda so_far: None
    done: Restored = field(factory=Restored)
    chain: Chain = field(init=False)
    _contents: dict[str, Contents] = field(factory=dict, init=False)        # by partition, and
    _made: dict[str, list[DesiredMailbox]] = field(factory=dict, init=False)    # mailboxes that are not there yet
    _ready: list[tuple[str, Salvaged]] = field(factory=list, init=False)
    _octets: int = field(default=0, init=False)                     # of the records in them
    _made_octets: int = field(default=0, init=False)
    _names: set[str] = field(factory=set, init=False)               # mailboxes that have been dealt with
    _damaged: set[str] = field(factory=set, init=False)             # messages of which a copy was damaged, by digest
    _cached: Mapping[bytes, CachedMessage] = field(factory=dict, init=False)    # of the messages that come next
    _owners: set[str] = field(factory=set, init=False)
    _beside_read: set[str] = field(factory=set, init=False)         # members with accounts and limits that were taken

    @problems()
    def run(self) -> Restored:
        """Do it. Raises StoreError DISK_FULL, UNAVAILABLE, BUSY, NO_MAILBOX."""
        self.chain = Chain.of(self.archives, self.done.findings)
        self.archives = self.chain.archives
        try:
            if self.archives[-1].path is not None:
                self._accounts()
            if self.choice.everything:
                for at in range(len(self.archives)):
                    self._whole(at)
            else:
                self._chosen()
            self._older()
            self._load()
            self._missing()
        finally:
            for contents in self._contents.values():
                contents.drop()
        for owner in sorted(self._owners):
            roots.recharge(self.store, owner)
        return self._counted()

    def _counted(self) -> Restored:
        self.done.files = sum(contents.files for contents in self._contents.values())
        self.done.octets = sum(contents.octets for contents in self._contents.values())
        return self.done

    # Reading

    def _members(self, at: int) -> Iterator[Member]:
        """Those of an archive; what cannot be read is a finding."""
        archive = self.archives[at]
        for member in archive.members():
            if isinstance(member, Lost):
                self._tell(f"{archive.name}: {member.octets} octets from {member.offset} on cannot be read")
            elif member.name != TOTALS:
                yield member
        for finding in archive.wrong():
            self._tell(finding)

    def _tell(self, finding: str) -> None:
        if finding not in self.done.findings:
            self.done.findings.append(finding)

    def _whole(self, at: int) -> None:
        """Everything that is in an archive, as it comes."""
        for member in self._members(at):
            place = parse_name(member.name)
            if place is None:
                if member.name.startswith(CACHED):
                    self._cached = cachemembers.read(member)
                elif self.archives[at].path is None:
                    self._beside(member)
            elif place[1] == "messages":
                self._store(place[0], place[2], member)
            else:
                with in_memory() as file:
                    left = self._index(member, file)
                head = left.head
                if head is not None and self.chain.has_newest(at, member.name, head.name):
                    self._soon(place[0], left)
            self.progress(self._counted())
        self._now()

    def _chosen(self) -> None:
        """What is named: the mailboxes first, then the messages that they need, then both together."""
        with privatefiles.temporary_file() as kept:     # it has no name: nothing is left of it when this is killed
            found: list[tuple[str, int, int]] = []      # partition, and where the file of a mailbox is
            needed: set[bytes] = set()
            for at in range(len(self.archives)):
                for member in self._members(at):
                    place = parse_name(member.name)
                    if place is not None and place[1] == "users":
                        with in_memory() as file:
                            left = self._index(member, file)
                            if (left.head is not None and self._named(left)
                                    and self.chain.has_newest(at, member.name, left.head.name)):
                                file.seek(0)
                                found.append((place[0], kept.tell(), kept.write(file.read())))
                                needed.update(self._rows(left)["digest"].tolist())
            for at in range(len(self.archives)):
                for member in self._members(at):
                    place = parse_name(member.name)
                    if member.name.startswith(CACHED):
                        self._cached = cachemembers.read(member)
                    elif place is not None and place[1] == "messages" and place[2] in needed:
                        self._store(place[0], place[2], member)
                    self.progress(self._counted())
            for partition, where, octets in found:
                kept.seek(where)
                self._mailbox(partition, idxreading.decode(kept.read(octets)))
        if not found:
            raise StoreError(Problem.NO_MAILBOX, "Nothing that was named is in the archive")

    def _named(self, left: Salvaged) -> bool:
        name = _name(left)
        return name is not None and self.choice.wants(name)

    def _rows(self, left: Salvaged) -> Rows:
        uids = self.choice.uids
        return take(left.rows, np.isin(left.rows["uid"], list(uids))) if uids else left.rows

    def _older(self) -> None:
        """Of mailboxes that should be in an archive and could not be read, older copies."""
        if self.chain.catalogue is None or len(self.archives) < 2:
            return
        due = {name for name in self.chain.catalogue.mailboxes if self._is_due(name)}
        for at in reversed(range(len(self.archives) if due else 0)):
            for member in self._members(at):
                place = parse_name(member.name)
                if place is None or place[1] != "users":
                    continue
                with in_memory() as file:
                    left = self._index(member, file)
                if left.head is not None and left.head.name in due:
                    due.discard(left.head.name)
                    self._tell(f"{left.head.name}: it is as it was in an older archive, {self.archives[at].name}")
                    self._mailbox(place[0], left)

    def _is_due(self, name: str) -> bool:
        try:
            return name not in self._names and self.choice.wants(MailboxName.parse(name))
        except NameProblem:
            return False

    def _missing(self) -> None:
        if self.chain.catalogue is not None:
            for name in self.chain.catalogue.mailboxes:
                if self._is_due(name):
                    self._tell(f"{name}: the mailbox is damaged or missing in the archive")

    # Messages

    def _place(self, partition: str) -> Partition:
        """Where what was on that partition comes to."""
        names = self.store.partitions
        return self.store.partition(partition if partition in names else placement.for_new_mail(self.store))

    def _contents_of(self, partition: str) -> Contents:
        place = self._place(partition)
        if place.name not in self._contents:
            self._contents[place.name] = Contents(place)
        return self._contents[place.name]

    def _store(self, partition: str, digest: bytes, member: Member) -> None:
        if self.choice.dry_run:
            self._read(digest, member)
            return
        try:
            trace, record = int(member.said.get("trace", "0")), self._cached.get(digest)
            if record is not None and not fits(record, digest, trace, member.size):
                record = None
            self._contents_of(partition).store(member.data(), digest=digest, trace=trace, cached=record)
        except Cut:
            self._damaged.add(digest.hex())
        except (StoreError, ValueError) as error:
            if isinstance(error, StoreError) and error.problem is not Problem.CORRUPT:
                raise
            self._damaged.add(digest.hex())

    def _read(self, digest: bytes, member: Member) -> None:
        """Read a message, as storing it would do."""
        try:
            trace, content, at = int(member.said.get("trace", "0")), blake2b(digest_size=32), 0
            for data in member.data():
                content.update(data[max(0, trace - at):])
                at += len(data)
            if content.digest() != digest:
                raise Cut
        except (Cut, ValueError):
            self._tell(f"message {digest.hex()} is damaged in the archive")

    # Mailboxes

    def _soon(self, partition: str, left: Salvaged) -> None:
        """A mailbox that waits for others, whose message files are put on disk together."""
        self._ready.append((partition, left))
        self._octets += left.rows.nbytes
        if len(self._ready) >= MAILBOXES_TOGETHER or self._octets > RECORD_OCTETS:
            self._now()

    def _now(self) -> None:
        ready, self._ready, self._octets = self._ready, [], 0
        for partition, left in ready:
            self._mailbox(partition, left)

    def _index(self, member: Member, file: BinaryIO) -> Salvaged:
        """What is left of a mailbox's file."""
        try:
            for data in member.data():
                file.write(data)
        except Cut:
            self._tell(f"{member.name}: it is cut off")
        file.seek(0)
        left = idxreading.decode_what_is_left(file)
        for finding in left.findings:
            self._tell(f"{member.name}: {finding}")
        return left

    def _mailbox(self, partition: str, left: Salvaged) -> None:
        head, name = left.head, _name(left)
        if head is None or name is None:
            self._tell("a mailbox has a name that cannot be")
            return
        if head.removed or not self.choice.wants(name):
            return
        self._names.add(head.name)
        rows = self._rows(left)
        if self.choice.uids and len(rows) < len(self.choice.uids):
            gone = sorted(self.choice.uids.difference(rows["uid"].tolist()))
            self._tell(f"{name}: the archive has no UID {_few(gone)}")
        target = self.choice.target(name)
        entry = self.store.mailboxes.find(target)
        if self.choice.dry_run:
            self._look(rows, target, entry)
            return
        self._own_account(name.owner, partition)
        contents = self._contents_of(partition)
        if contents.waiting:
            contents.keep()
        new, had = contents.translated(rows, left.private_headers)
        if not had.all():
            lost = rows["uid"][~had].tolist()
            self._tell(f"{name}: {len(lost)} messages are damaged or missing in the archive: UID {_few(lost)}")
        desired = self._desired(target, left, new)
        if entry is not None:
            self._add(contents, entry, desired)
        else:
            self._make(contents.partition, evolve(desired, own=()) if self.choice.into else desired)

    def _look(self, rows: Rows, target: MailboxName, entry: MailboxEntry | None) -> None:
        if entry is None:
            self.done.mailboxes += 1
            self.done.messages += len(rows)
            return
        there, wanted = self.store.open_mailbox(entry).rows.copy(), rows.copy()
        there["head"] = wanted["head"] = 0              # of other tables
        missing = self._lacks(target, there, wanted)
        if self.choice.over or self.choice.into:
            self.done.there += len(rows) - missing
            self.done.messages += missing

    def _lacks(self, name: MailboxName, there: Rows, wanted: Rows) -> int:
        """How many of the archive's records a mailbox lacks that is there."""
        missing = int(np.count_nonzero(lacking(there, wanted)))
        if not (self.choice.over or self.choice.into):
            self.done.there += len(wanted) - missing
            if missing:
                self._tell(f"{name}: it is there, and lacks {missing} messages of the archive (--over adds them, "
                           "--into restores it beside)")
        return missing

    def _desired(self, name: MailboxName, left: Salvaged, rows: Rows) -> DesiredMailbox:
        """What the mailbox is to be; beside what is there it is nobody's but the owner's, and has new figures."""
        head = left.head
        assert head is not None
        own = own_of(head, left.own)
        if self.choice.into:
            return new_mailbox(name, rows, head.keywords, own=own, uidls=left.uidls)
        state = evolve(written_state(head), uidnext=min(head.uidnext + UID_SKIP, MAX_UID),
                       highestmodseq=head.highestmodseq + MODSEQ_SKIP)
        return DesiredMailbox(evolve(entry_of(Source("", Path(), head, name), 0), id=NEW), state, rows, own=own,
                              annotations=list(annotations_of(head)), uidls=left.uidls,
                              subscriptions=head.subscriptions if name.is_inbox() else ())

    def _add(self, contents: Contents, entry: MailboxEntry, desired: DesiredMailbox) -> None:
        entry, partition = self.store.whereabouts(entry)
        rows = desired.rows
        assert rows is not None
        if partition is not contents.partition:
            rows, = copy_rows(FileCopier(contents.partition, partition, contents.side_by_side), [rows])
            desired = evolve(desired, rows=rows)
        if not (self.choice.over or self.choice.into):
            self._lacks(entry.name, self.store.open_mailbox(entry).rows, rows)
            return
        added = add(partition, entry, desired)
        self.store.news.tell([entry.id])
        self.done.messages += len(added.uids)
        self.done.there += added.there

    def _make(self, partition: Partition, desired: DesiredMailbox) -> None:
        assert desired.rows is not None
        self._made.setdefault(partition.name, []).append(desired)
        self.done.mailboxes += 1
        self.done.messages += len(desired.rows)
        self._made_octets += desired.rows.nbytes
        if sum(map(len, self._made.values())) > MAILBOXES_TOGETHER or self._made_octets > RECORD_OCTETS:
            self._load()

    def _load(self) -> None:
        made, self._made, self._made_octets = self._made, {}, 0
        for partition, every in made.items():
            loader = LiveLoader(self.store.partition(partition), self.store)
            loader.load(every)
            for refused in loader.refused:
                self.done.mailboxes -= 1
                self._tell(f"{refused.entry.name}: it was made meanwhile, or the user is on another back end: "
                           "restore it again")

    # Users and limits

    def _accounts(self) -> None:
        """Those of the last archive; where that is damaged, also of earlier ones."""
        for at in reversed(range(len(self.archives))):
            whole = True
            self._beside_read.clear()
            for member in self.archives[at].members():
                if isinstance(member, Lost):
                    whole = False
                elif parse_name(member.name) is not None:
                    break
                else:
                    whole = self._beside(member) and whole
            if whole:
                break
            copies = [self._beside(member) for member in self.archives[at].copies() if member.name != COPIES + MANIFEST]
            if copies and all(copies):
                self._tell(f"{self.archives[at].name}: accounts and limits are damaged; their copies are whole")
                break
            self._tell(f"{self.archives[at].name}: some accounts or limits of quota are damaged")

    def _beside(self, member: Member) -> bool:
        """Take what a member says of users or limits; whether it could be read."""
        name = member.name.removeprefix(COPIES)
        if self.choice.dry_run or self.choice.into or not name.startswith((ACCOUNTS, LIMITS)) or (
                name in self._beside_read):
            return True
        try:
            lines = userrows.lines(member)
        except (Cut, ValueError):
            return False
        place = self._place
        self._beside_read.add(name)
        if name.startswith(ACCOUNTS):
            self.done.users += userrows.restore_users(self.store, lines, self.choice.users, place, self._tell)
        else:
            self._owners |= userrows.restore_limits(self.store, lines, self.choice.users, place)
        return True

    def _own_account(self, owner: str, partition: str) -> None:
        """See that the owner of a mailbox is a user."""
        directory = self.store.directory
        if not owner or directory.remote or directory.find(owner) is not None:
            return
        directory.insert(User(Account(owner, self._place(partition).name, Status.INACTIVE), NO_PASSWORD))
        self._tell(f"user {owner}: the account is not in the archive; it has no password, and is inactive")


def _name(left: Salvaged) -> MailboxName | None:
    try:
        return MailboxName.parse(left.head.name) if left.head is not None else None
    except NameProblem:
        return None


def _few(uids: Sequence[int]) -> str:
    more = f" and {len(uids) - UIDS_SHOWN} more" if len(uids) > UIDS_SHOWN else ""
    return ", ".join(map(str, uids[:UIDS_SHOWN])) + more
