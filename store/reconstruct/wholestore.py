"""A store made anew from `messages/` and `users/` alone, when its databases are lost.

Each mailbox comes back as its `store.idx` has it: name, UIDVALIDITY, ACL, special use, quota root and limits, the
owner's subscriptions, and all records with UIDs, flags, keywords and dates. References, quota use and cache records are
made from these and from the message files. It counts as one more unclean end: UIDs and MODSEQs skip ahead of what may
have been shown since the files were written.

What is lost: what happened after the files were written (up to a minute), the log of expunged UIDs, expunged messages
that waited for their purge (their files stay, and are reported), and the built-in directory: passwords are nowhere in
the user area. A user that the caller does not bring (`salvage_users`) has an entry without password, and is inactive.
"""

import contextlib
import logging
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from attrs import define, evolve, field

from mboxlist.acl import AclProblem, parse_identifier, parse_rights
from mboxlist.engine.btree import Txn, salvage
from mboxlist.engine.kv import Failure, transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import PUBLIC, SEPARATOR, NameProblem, legal_owner
from mboxlist.table import MailboxList
from store.accounts.base import Account, Directory, Status
from store.accounts.builtin import BuiltinDirectory, User
from store.errors import Problem, StoreError
from store.opening import open_store
from store.partition.filecontent import content
from store.partition.marks import read_epoch
from store.partition.partition import SERIALS, Partition
from store.partition.transactions import WriteTxn
from store.problems import disk_problem
from store.quota.roots import root_for
from store.reconstruct.userareascan import Source, choose, sources
from store.recovery.emptying import drop_names, finished, nobody_else, prepare
from store.settings import Settings
from store.store import Store
from store.tables.index import CHUNK, Rows, take
from store.tables.privateheaders import UNKNOWN, renumbered
from store.tables.quotatable import DOMAIN
from store.tables.references import MessageRecord, tally
from store.tables.state import MODSEQ_SKIP, UID_SKIP, MailboxState
from store.tables.uidls import of_rows
from store.userarea import idxfile, writing
from store.userarea.idxfile import Head, Remains
from store.userarea.paths import place_of_deleted, remove_file
from store.values import RECONSTRUCT, RESTORE, Finding, Flag

log = logging.getLogger(__name__)

UNKNOWN_FILE = "nothing is known of this file"
NO_PASSWORD = "*"           # a hash that fits no password
PIECE = 500                 # message files, or references, of one transaction
CHUNKS = 32                 # chunks of records of one transaction
_UIDS = (1 << 32) - 1
_MODSEQS = 1 << 62

Progress = Callable[[str, int, int], None]      # what is done, how much of it, out of how much


def silent(what: str, done: int, total: int) -> None:
    """Nobody watches."""


@define
class Rebuilt:
    """What was made anew, and what could not be."""

    mailboxes: int = 0
    records: int = 0
    messages: int = 0
    findings: list[Finding] = field(factory=list)


def rebuild(root: Path, into: Path | None = None, settings: Settings | None = None, *, users: Iterable[User] = (),
            progress: Progress = silent) -> Rebuilt:
    """Make the databases of the store in `root` anew, or those of a new store `into` which message files are linked or
    copied. No process may have the store open. `users` are rows for the built-in directory.

    Whatever cannot be read becomes a finding. What is cut off leaves a store that cannot be opened, and is done again
    from the beginning. Raises StoreError NO_STORE when there is nothing to begin with,
    STORE_IN_USE when there are databases, DISK_FULL, UNAVAILABLE.
    """
    target, done = into or root, Rebuilt()
    try:
        names = sorted(folder.name for folder in (root / "partitions").iterdir() if (folder / "messages").is_dir())
    except FileNotFoundError:
        names = []
    if not names:
        raise StoreError(Problem.NO_STORE, f"There are no messages in {root}")
    try:
        (target / "partitions").mkdir(mode=0o700, parents=True, exist_ok=True)
        with nobody_else(target):
            adopted = prepare(root, target, names)
            found = [source for name in names for source in sources(root / "partitions" / name, done.findings)]
            store = open_store(target, settings, anew=True)
            try:
                Rebuilding(store, choose(found, done.findings), adopted, done, progress).run(list(users))
                if target == root:
                    remove_old_files(store, found)
            finally:
                store.close()
            finished(target)
    except OSError as error:
        raise disk_problem(error) from error
    return done


def salvage_users(table: Path) -> list[User]:
    """The rows of the built-in directory that can be read in its table, `users.db`, which has lost its log and all
    else; the last changes may be missing."""
    found = []
    try:
        for key, data in salvage(table):
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                found.append(User.from_bytes(key.decode(), data))
    except Failure as error:
        log.warning("%s cannot be read to its end: %s", table, error)
    return found


def remove_old_files(store: Store, found: Sequence[Source]) -> None:
    """Remove the files that have been read, where they are not those that the mailboxes have now."""
    for source in found:
        partition = store.partitions[source.partition]
        mailbox = store.known(source.head.id)
        now = writing.right_place(partition, *mailbox) if mailbox is not None else None
        for path in {source.path, place_of_deleted(partition, source.head.id)} - {now}:
            remove_file(partition, path, source.head.id)


# Mailboxes and messages

@define(eq=False)
class Rebuilding:
    """Fills an empty store; `livepartition` has one that fills a partition of a store in use."""

    store: Store
    found: list[Source]
    adopted: dict[str, list[list[Path]]]
    done: Rebuilt
    progress: Progress = silent
    _damaged: set[bytes] = field(factory=set)       # message files that were looked at, and are not to be used

    def run(self, users: Sequence[User]) -> None:
        """Do all of it. Raises StoreError DISK_FULL, UNAVAILABLE."""
        store = self.store
        add_users(store.directory, self.found, users, self.done.findings)
        last_id = max((source.head.id for source in self.found), default=0)
        validity = max((source.head.uidvalidity for source in self.found), default=0)
        transact(store.mailboxes.env, lambda txn: store.mailboxes.skip_identities(MailboxId(last_id), validity, txn))
        for partition in store.partitions.values():
            here = [source for source in self.found if source.partition == partition.name]
            self.fill(partition, here)
        store.mailboxes.env.flush()
        self._write_files()

    def fill(self, partition: Partition, here: Sequence[Source]) -> None:
        """Have an empty partition these mailboxes, with their messages. Flushed."""
        self._damaged.clear()
        epoch = max([read_epoch(partition.folder), *(source.head.epoch for source in here)])
        partition.skip_to(epoch + 1, max(map(_last_serial, here), default=0) + SERIALS)
        set_limits(partition, limits_of(self.found, partition.name))
        for number, source in enumerate(here, 1):
            self._mailbox(partition, source)
            self.progress("mailboxes", number, len(here))
        drop_names(partition, self.adopted.get(partition.name, []))
        self._report_unclaimed(partition)
        partition.flush()

    def _mailbox(self, partition: Partition, source: Source) -> None:
        """One mailbox with its messages; what it has not is in the findings."""
        left = idxfile.read_what_is_left(source.path)
        rows = self._usable(partition, source, _with_heads(partition, left))
        entry = self.entry_of(source)
        state = figures_of(partition, source, entry, rows)
        for at in range(0, len(rows), PIECE):
            marks = tally(entry.id, rows[at:at + PIECE])
            partition.transact(lambda txn, marks=marks: [       # type: ignore[misc]
                txn.refs.add(digest, count, check, txn.handle) for digest, count, check in marks])
        numbers, starts = np.unique((rows["uid"] - 1) // CHUNK, return_index=True)
        chunks = list(zip(numbers.tolist(), np.split(rows, starts[1:]), strict=True)) if len(rows) else []
        for at in range(0, len(chunks), CHUNKS):
            partition.transact(lambda txn, some=chunks[at:at + CHUNKS]: [       # type: ignore[misc]
                txn.put_chunk(entry.id, number, part) for number, part in some])
        partition.transact(lambda txn: self._figures(txn, source, entry, state, left))
        uidls = of_rows(left.uidls, rows)
        partition.transact(lambda txn: txn.partition.uidls.put(entry.id, uidls, txn.handle))
        self.enlist(source, entry)
        self.done.mailboxes += 1
        self.done.records += len(rows)

    def entry_of(self, source: Source) -> MailboxEntry:
        """Its row in the list."""
        head, list_of_all = source.head, self.store.mailboxes
        validity = head.uidvalidity or transact(list_of_all.env, list_of_all.next_identity)[1]
        created = head.created or int(time.time())
        return MailboxEntry(MailboxId(head.id), source.name, source.partition, validity, created, head.special_use,
                            acl_of(head))

    def _figures(self, txn: WriteTxn, source: Source, entry: MailboxEntry, state: MailboxState, left: Remains) -> None:
        txn.set_state(entry.id, None, state)
        if not state.removed:
            txn.charge(state, state.octets, state.messages, enforce=False)
        for item in left.own:
            reader = int(item["reader"])
            if reader < len(source.head.readers) and is_owner(source.head.readers[reader]):
                txn.put_own(entry.id, int(item["chunk"]), source.head.readers[reader], item["own"])

    def enlist(self, source: Source, entry: MailboxEntry) -> None:
        """Its records are there: have it in the list."""
        transact(self.store.mailboxes.env, lambda txn: enlist(self.store.mailboxes, source, entry, txn))

    def _usable(self, partition: Partition, source: Source, rows: Rows) -> Rows:
        """The records whose message files are there, whole; the files are known to the partition then."""
        kept = np.ones(len(rows), np.bool_)
        digests = [bytes(digest) for digest in rows["digest"]]
        private_headers = partition.private_headers.sizes(rows).tolist()
        for at in range(0, len(rows), PIECE):
            piece = range(at, min(at + PIECE, len(rows)))
            new = {digests[place]: (rows[place], private_headers[place]) for place in piece
                   if partition.refs.find(digests[place]) is None and digests[place] not in self._damaged}
            self._messages(partition, new)
            for place in piece:
                row, record = rows[place], partition.refs.find(digests[place])
                if record is not None and _fits(row, private_headers[place], record):
                    row["serial"] = record.serial
                    if private_headers[place] == UNKNOWN:
                        row["head"], row["size"] = 0, record.size - int(row["header_length"])
                        self.done.findings.append(Finding(
                            "header fields that it has in this mailbox alone are lost",
                            f"{source.name}, UID {row['uid']}", RESTORE))
                else:
                    kept[place] = False
                    self.done.findings.append(Finding(
                        f"its message file {digests[place].hex()} is missing, damaged, or not as long as it was",
                        f"{source.name}, UID {row['uid']}", RESTORE))
        rows["modseq"] = np.minimum(rows["modseq"], _MODSEQS)
        keywords = (1 << (len(source.head.keywords) if source.found else 0)) - 1
        rows["keywords"] &= np.uint64(keywords)
        return take(rows, np.flatnonzero(kept))

    def _messages(self, partition: Partition, new: dict[bytes, tuple["np.void", int]]) -> None:
        """Have the partition know these message files, with nothing that refers to them yet: by digest a record that
        does, and the octets of header fields of its own that it has."""
        records = []
        for digest, (row, head) in new.items():
            path = Path(partition.files.path(digest))
            try:
                found = content(path, digest, [int(row["header_length"])] if row["header_length"] else [])
            except (OSError, StoreError) as error:
                if not isinstance(error, FileNotFoundError):
                    self.done.findings.append(Finding(f"cannot be read: {error}", str(path), RESTORE))
                self._damaged.add(digest)
                continue
            if found is None:
                self.done.findings.append(Finding("it does not agree with its digest", str(path), RESTORE))
                self._damaged.add(digest)
                continue
            serial = int(row["serial"])
            record = MessageRecord(serial, 0, found[1], found[0].trace)
            if not _fits(row, head, record):
                continue                        # another mailbox may know it better
            if not 0 < serial < _MODSEQS or partition.cached([serial])[0] is not None:
                record = evolve(record, serial=partition.next_serial())
            records.append((digest, record, found[0]))

        def work(txn: WriteTxn) -> None:
            for digest, record, cached in records:
                txn.refs.write(digest, record, txn.handle)
                partition.write_cached(record.serial, cached, txn.handle)

        partition.transact(work)
        self.done.messages += len(records)

    # When all mailboxes are there

    def _report_unclaimed(self, partition: Partition) -> None:
        for path in sorted(partition.files.folder.glob("?/??/*")):
            try:
                known = partition.refs.find(bytes.fromhex(path.name)) is not None
            except ValueError:
                known = False
            if not known:
                self.done.findings.append(Finding(UNKNOWN_FILE, str(path), RECONSTRUCT))

    def _write_files(self) -> None:
        """Write every `store.idx` as it is now."""
        for partition in self.store.partitions.values():
            partition.unwritten.changed.update(mailbox for mailbox, _ in partition.all_states())
            writing.write_round(self.store, partition, hurry=True)


def enlist(mailboxes: MailboxList, source: Source, entry: MailboxEntry, txn: Txn) -> None:
    """Have a mailbox in the list with what its `store.idx` says beside its records."""
    head = source.head
    for name, values in head.annotations.items():
        for user, value in values.items():
            with contextlib.suppress(ValueError):       # what nobody could have set
                mailboxes.annotations.set(entry.id, name, b64decode(value), txn, user)
    if head.removed:
        mailboxes.deleted.add(entry, head.removed, txn)
        return
    mailboxes.write(entry, txn)
    if entry.name.is_inbox():
        for name in head.subscriptions:
            mailboxes.subscriptions.add(entry.name.owner, name, txn)


def add_users(directory: Directory, found: Iterable[Source], users: Iterable[User], findings: list[Finding]) -> None:
    """Those that the caller brings, and an inactive one for each other owner of a mailbox; who is there stays."""
    if not isinstance(directory, BuiltinDirectory):
        return
    mailboxes = sorted((source for source in found if source.name.owner and not source.head.removed),
                       key=lambda source: source.name.is_inbox())
    partitions = {source.name.owner: source.partition for source in mailboxes}      # that of INBOX, if there is one
    rows = {user.account.user: user for user in users}
    for owner, partition in partitions.items():
        if owner not in rows:
            rows[owner] = User(Account(owner, partition, Status.INACTIVE), NO_PASSWORD)
            findings.append(Finding("it is inactive, and has no password", f"user {owner}", "user set"))
    known = {account.user for account in directory.all()}
    for owner, row in sorted(rows.items()):
        try:
            if owner not in known:
                directory.insert(row)
        except StoreError as refusal:
            findings.append(Finding(f"it cannot be added: {refusal}", f"user {owner}", "user add"))


def limits_of(found: Iterable[Source], partition: str) -> dict[str, list[int]]:
    """The limits of all domains, and of the roots of those who have mailboxes on the partition: the newest ones."""
    limits: dict[str, list[int]] = {}
    found = sorted(found, key=lambda source: source.head.written)
    for source in found:
        limits |= source.head.limits
    owners = {source.name.owner or PUBLIC[:-1] for source in found if source.partition == partition}
    return {root: limit for root, limit in limits.items()
            if root.startswith(DOMAIN) or root.partition(SEPARATOR)[0] in owners}


def set_limits(partition: Partition, limits: dict[str, list[int]]) -> None:
    """Have the partition know these limits of octets and messages."""
    for root, (octets, messages) in limits.items():
        partition.transact(lambda txn, root=root, octets=octets, messages=messages:     # type: ignore[misc]
                           partition.quotas.set_limits(root, octets, messages, txn.handle))


def acl_of(head: Head) -> dict[str, str]:
    """The entries that somebody could have set."""
    found = {}
    for identifier, rights in head.acl.items():
        with contextlib.suppress(AclProblem):
            found[parse_identifier(identifier)] = parse_rights(rights)
    return found


def _last_serial(source: Source) -> int:
    serials = idxfile.read_what_is_left(source.path).rows["serial"]
    return int(serials[serials < _MODSEQS].max(initial=0))


def _with_heads(partition: Partition, left: Remains) -> Rows:
    """The records with the numbers that their own header fields get on the partition."""
    if not left.private_headers:
        return renumbered(left.rows, {})
    new = partition.transact(lambda txn: partition.private_headers.numbers(left.private_headers.values(), txn.handle))
    return renumbered(left.rows, {number: new[octets] for number, octets in left.private_headers.items()})


def _fits(row: "np.void", head: int, record: MessageRecord) -> bool:
    """Whether the record of the index, with so many octets of header fields of its own, is of this message file."""
    more = int(row["size"]) + int(row["header_length"]) - record.size
    return int(row["header_length"]) in (0, record.trace) and (more == head or head == UNKNOWN and more > 0)


def is_owner(text: str) -> bool:
    try:
        legal_owner(text)
    except NameProblem:
        return False
    return True


def figures_of(partition: Partition, source: Source, entry: MailboxEntry, rows: Rows) -> MailboxState:
    """The figures of a mailbox with these records, after one more unclean end."""
    head = source.head
    behind = partition.epoch - head.epoch
    uidnext = max(head.uidnext, int(rows["uid"].max(initial=0)) + 1) + behind * UID_SKIP
    highest = max(head.highestmodseq, int(rows["modseq"].max(initial=1))) + behind * MODSEQ_SKIP
    uidnext = min(uidnext, _UIDS)

    def count(flag: Flag) -> int:
        return int(np.count_nonzero(rows["flags"] & np.uint16(flag)))

    return MailboxState(
        uidvalidity=entry.uidvalidity, uidnext=uidnext, highestmodseq=highest, changed=highest,
        recent=min(head.recent, uidnext), messages=len(rows), unseen=len(rows) - count(Flag.SEEN),
        deleted=count(Flag.DELETED), octets=int(rows["size"].sum()), epoch=partition.epoch, log_since=highest, logged=0,
        removed=head.removed, moving=False, quota_root=root_for(partition, source.name),
        keywords=tuple(head.keywords))
