"""Messages that are the same but for the fields at their heads become one message file.

The same message that came on several ways (to each of its recipients by itself, delivered to one and stored by
another) is several files, since what relays put at its head differs. What is below those fields becomes a content of
its own; the fields go where a delivery's own header fields are (`private_headers`), and each record shows, octet for
octet, what it showed. The old files wait for the purge: whoever has an older view of a mailbox can read it until then.

A field that any record of the cache is made of (`fields.LISTED`, Content-...) ends such a head. A file is brought, then
records are made to refer to it: cut off anywhere, this can be done again, and goes on.
"""

import contextlib
import hashlib
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
from attrs import define, evolve, field, frozen

from mboxlist.entry import MailboxEntry
from store.delivery.batch import BatchStore, NotCopied, refer, usable
from store.delivery.replacement import fits
from store.errors import Problem, StoreError
from store.message.cacherecord import CachedMessage
from store.message.fields import LISTED
from store.partition.messagereading import MID_OCTETS, SPILL
from store.partition.partition import Partition
from store.partition.staged import Staged
from store.partition.transactions import WriteTxn, places
from store.search.projection import digests
from store.store import Store
from store.tables.index import Rows, take
from store.tables.privateheaders import renumbered
from store.tables.references import MessageRecord, tally

log = logging.getLogger(__name__)

SMALLEST = 4096             # octets below its head that a message has to have to be worth it
HEAD_LIMIT = 16 << 10       # octets of a head, and at most so
PART = 4                    # part of what is below it
BEGINNING = 16 << 10        # octets of what is below by which files are compared first
CONTENTS_AT_A_TIME = 5000                # contents that are brought before records are looked for
BATCH = 1000                # records that are changed in one transaction
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*")


@frozen
class Member:
    """A message file, and the octets of the head that it has."""

    digest: bytes
    record: MessageRecord
    head: int


@frozen
class Group:
    """Files that are the same below their heads: `digest` is the digest of that."""

    digest: bytes
    octets: int
    members: tuple[Member, ...]


@define
class Joined:
    """What was done on a partition: contents, and files that nothing refers to any more, with their octets; `made`
    and `written` are new files and their octets; records that refer to other files now; why files stayed, and how
    many."""

    contents: int = 0
    files: int = 0
    octets: int = 0
    made: int = 0
    written: int = 0
    records: int = 0
    left: dict[str, int] = field(factory=lambda: defaultdict(int))


def head_length(octets: bytes) -> int | None:
    """How long the head of a message with this beginning is; None where a file cannot be divided so."""
    at = 0
    while found := _FIELD.match(octets, at):
        name = found[1].lower()
        if name in LISTED or name.startswith(b"content-"):
            return at if at <= HEAD_LIMIT else None
        at = found.end()
        if at > HEAD_LIMIT:
            return None
    return None


def groups(partition: Partition, smallest: int = SMALLEST, tell: Callable[[int], None] = lambda done: None
           ) -> Iterator[Group]:
    """Files that are in use and could be one. The beginning of each file is read, and all of those that look alike."""
    alike: dict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
    held = partition.removed.counts()
    for number, (digest, record) in enumerate(list(partition.refs.all())):
        tell(number + 1)
        if record.references > held[digest] and record.size >= smallest:
            found = _first_look(partition, digest, record, smallest)
            if found is not None:
                alike[found[0]].append((digest, found[1]))
    for items in alike.values():
        if len(items) > 1:
            yield from _compared(partition, items)


def _first_look(partition: Partition, own_digest: bytes, record: MessageRecord, smallest: int) -> tuple[bytes,
                                                                                                        int] | None:
    """A short digest of how the file goes on below its head, and the length of that."""
    try:
        with partition.files.open(own_digest, record.serial, 0, record.size) as file:
            beginning = file.read(0, HEAD_LIMIT + BEGINNING)
    except StoreError:
        return None
    head = head_length(beginning)
    if head is None or record.size - head < max(smallest, PART * head):
        return None
    digest = hashlib.blake2b(beginning[head:head + BEGINNING], digest_size=12)
    digest.update(str(record.size - head).encode())
    return digest.digest(), head


def _compared(partition: Partition, items: list[tuple[bytes, int]]) -> Iterator[Group]:
    """By all that is below their heads."""
    found: dict[bytes, list[Member]] = defaultdict(list)
    for digest, head in items:
        record = partition.refs.find(digest)
        try:
            if record is not None and record.references:
                found[_below(partition, digest, record, head)].append(Member(digest, record, head))
        except StoreError:
            continue
    for digest, members in found.items():
        if len(members) > 1:
            yield Group(digest, members[0].record.size - members[0].head, tuple(members))


def _below(partition: Partition, own_digest: bytes, record: MessageRecord, at: int) -> bytes:
    digest = hashlib.blake2b(digest_size=MID_OCTETS)
    with partition.files.open(own_digest, record.serial, 0, record.size) as file:
        while data := file.read(at, SPILL):
            digest.update(data)
            at += len(data)
    return digest.digest()


def figures(partition: Partition) -> tuple[int, int]:
    """The message files that are in use, and their octets; what lies under two names counts once."""
    seen: dict[int, int] = {}
    held = partition.removed.counts()
    for digest, record in list(partition.refs.all()):
        if record.references > held[digest] and (path := partition.files.locate(digest, record.serial)) is not None:
            with contextlib.suppress(OSError):
                found = path.stat()
                seen[found.st_ino] = found.st_size
    return len(seen), sum(seen.values())


def join(store: Store, partition: Partition, *, change: bool = True, smallest: int = SMALLEST,
           tell: Callable[[int], None] = lambda done: None) -> Joined:
    """Find such files on a partition, and join them. For a thread. Raises StoreError DISK_FULL, UNAVAILABLE."""
    done = Joined()
    piece: list[Group] = []
    for group in groups(partition, smallest, tell):
        done.contents += 1
        if not change:
            there = usable(partition, group.digest)
            old = [member for member in group.members if member.digest != group.digest]
            done.files += len(old)
            done.octets += sum(member.record.size for member in old)
            done.made += there is None
            done.written += 0 if there is not None else group.octets
            continue
        piece.append(group)
        if len(piece) >= CONTENTS_AT_A_TIME:
            _join(store, partition, piece, done)
            piece = []
    if piece:
        _join(store, partition, piece, done)
    return done


@frozen(eq=False)
class _Way:
    """To what records of a file are to refer: `private_headers` are the octets at the head of that file."""

    group: Group
    serial: int
    trace: int
    before: bytes           # the trace header of the new file
    head: bytes             # of the old one


def _join(store: Store, partition: Partition, piece: list[Group], done: Joined) -> None:
    ways = _bring(partition, piece, done)
    for entry in [entry for entry in _all(store) if entry.partition == partition.name]:
        try:
            done.records += _mailbox(store, partition, entry, ways)
        except NotCopied:
            done.left["they came and went meanwhile"] += 1
        except StoreError as error:
            if error.problem is not Problem.NO_MAILBOX:
                log.warning("relink: %s: %s", entry.name, error)
                done.left[error.problem.value] += 1
    partition.flush()
    held = partition.removed.counts()
    for digest in ways:
        record = partition.refs.find(digest)
        if record is not None and record.references > held[digest]:
            done.left["deleted mailboxes or other records have them"] += 1
        elif record is not None:
            done.files += 1
            done.octets += record.size


def _all(store: Store) -> Iterator[MailboxEntry]:
    entry: MailboxEntry | None = None
    while found := store.mailboxes.some_after(entry.name if entry is not None else None, 256):
        yield from found
        entry = found[-1]


def _bring(partition: Partition, piece: list[Group], done: Joined) -> dict[bytes, _Way]:
    """Have the contents as files, which wait for the purge; where the records of each old file are to go."""
    batch_store, good = BatchStore(partition), list[Group]()
    try:
        for group in piece:
            known = usable(partition, group.digest)
            if known is None and not fits(partition, group.digest, 0):
                done.left["their content has lost its file"] += len(group.members)
                continue
            staged = _copy(partition, group) if known is None else None
            new = None if staged is None else staged.cached
            if known is not None:
                new = partition.serials.render_cached(group.digest, known)
            if new is None or not _is_alike(partition, group, new):
                done.left["they are taken apart otherwise without their heads"] += len(group.members)
                if staged is not None:
                    staged.abort()
                continue
            good.append(group)
            if staged is not None:
                batch_store.add(staged)
                batch_store.keep_if_full()
        batch_store.keep()
    finally:
        batch_store.drop()
    done.made += batch_store.files
    done.written += batch_store.octets
    ways: dict[bytes, _Way] = {}
    for group in good:
        record = usable(partition, group.digest)
        if record is None:
            continue
        before = _octets(partition, group.digest, record, record.trace)
        for member in group.members:
            if member.digest != group.digest:
                ways[member.digest] = _Way(group, record.serial, record.trace, before,
                                        _octets(partition, member.digest, member.record, member.head))
    return ways


def _is_alike(partition: Partition, group: Group, new: CachedMessage) -> bool:
    """Whether the cache says of the new content what it says of the old ones."""
    for each in group.members:
        old = partition.serials.render_cached(each.digest, each.record)
        if (old.envelope, old.bodystructure, old.body, old.references, old.fields) != (
                new.envelope, new.bodystructure, new.body, new.references, new.fields):
            return False
    return True


def _octets(partition: Partition, digest: bytes, record: MessageRecord, count: int) -> bytes:
    with partition.files.open(digest, record.serial, 0, record.size) as file:
        return file.read(0, count)


def _copy(partition: Partition, group: Group) -> Staged | None:
    """The content as a message file; None if it is no longer what it was."""
    partition.check_room()
    member = group.members[0]
    staged = Staged(partition.files, partition.serials.next_serial(), b"", member.record.size)
    try:
        with partition.files.open(member.digest, member.record.serial, 0, member.record.size) as file:
            at = member.head
            while data := file.read(at, SPILL):
                staged.write(data)
                staged.spill()
                at += len(data)
        staged.finish()
    except BaseException:
        staged.abort()
        raise
    if staged.digest != group.digest:
        staged.abort()
        return None
    return staged


def _mailbox(store: Store, partition: Partition, entry: MailboxEntry, ways: dict[bytes, _Way]) -> int:
    """Have the records of a mailbox refer to the new files; how many."""
    rows = store.open_mailbox(entry).rows
    keys = np.array(sorted({int.from_bytes(digest[:8], "little") for digest in ways}), np.uint64)
    rows = take(rows, np.flatnonzero(np.isin(digests(rows), keys)))
    return sum(_change(partition, entry, rows[start:start + BATCH], ways) for start in range(0, len(rows), BATCH))


def _change(partition: Partition, entry: MailboxEntry, rows: Rows, ways: dict[bytes, _Way]) -> int:
    new = _translated(partition, rows, ways)
    if not len(new):
        return 0
    uids = np.ascontiguousarray(new["uid"])
    old = take(rows, places(rows, uids))

    def work(txn: WriteTxn) -> int:
        state = txn.state(entry.id)
        there = txn.load(entry.id, uids)
        at = places(there, uids)
        known = {int(row["uid"]): n for n, row in enumerate(new)}
        changed = np.zeros(len(there), np.bool_)
        for place in at.tolist():
            n = known[int(there["uid"][place])]
            if all(there[name][place] == old[name][n] for name in ("digest", "serial", "header_length", "head",
                                                                   "size")):
                changed[place] = True
        if not changed.any():
            return 0
        released, which = take(there, changed), [known[int(uid)] for uid in there["uid"][changed]]
        for name in ("digest", "serial", "header_length", "head"):
            there[name][changed] = new[name][which]
        refer(txn, entry.id, take(there, changed))
        for digest, count, check in tally(entry.id, released):
            txn.refs.release(digest, count, check, txn.handle)
        txn.rewrite(entry.id, there, changed)
        # Every view of the mailbox is read again, though nothing that a client sees has changed.
        txn.set_state(entry.id, state, evolve(state, highestmodseq=state.highestmodseq + 1,
                                              changed=state.highestmodseq + 1))
        return int(np.count_nonzero(changed))

    return partition.transact(work)


def _translated(partition: Partition, rows: Rows, ways: dict[bytes, _Way]) -> Rows:
    """These records as they are to be; those that can be no other are left out."""
    texts: list[bytes | None] = []
    found = [ways.get(bytes(digest)) for digest in rows["digest"].tolist()]
    for row, way in zip(rows, found, strict=True):
        header_length = int(row["header_length"])
        texts.append(None if way is None or header_length > len(way.head) else
                     partition.private_headers.find(int(row["head"])) + way.head[header_length:])
    kept = np.array([text is not None for text in texts], np.bool_)
    new = take(rows, kept)
    pairs = [(way, text) for way, text in zip(found, texts, strict=True) if way is not None and text is not None]
    own: dict[bytes, int] = {}                      # texts, and the numbers that stand for them in `new` until then
    for row, (way, text) in zip(new, pairs, strict=True):
        in_file = way.before.endswith(text)         # what the file has before the content may be just that
        row["digest"], row["serial"] = way.group.digest, way.serial
        row["header_length"] = way.trace - len(text) if in_file else way.trace
        row["head"] = 0 if in_file else own.setdefault(text, len(own) + 1)
    fields = {number: text for text, number in own.items()}
    return renumbered(new, partition.transact(lambda txn: txn.partition.private_headers.numbers_for(
        new, fields, txn.handle)) if fields else {})
