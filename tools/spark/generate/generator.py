"""A generated store: any number of messages, users, and references to each message, the same for the same seed.

Message files are written as they are, and the records are loaded in bulk (`store/rebuild/loader.py`), so a
million messages with twenty million records take some minutes. What is in it: message sizes are log-normal; a few
messages have hundreds of recipients and most have few; users have 5 to 40 mailboxes in folders, of very different
sizes, with gaps where UIDs were expunged, flags, keywords and dates; some are shared, and readers have flags of their
own; there are public ones, users of three domains, limits, quota roots of folders, subscriptions, annotations, special
use, copies of a message in two mailboxes of a user, and header fields that a message has in one mailbox alone. Nothing
waits for the purge.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from attrs.validators import ge
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, MailboxName
from store.accounts.base import Account
from store.accounts.builtin import NO_PASSWORD, User
from store.message.cacherecord import render
from store.message.mime import Scanner
from store.opening import PRIMARY, make_empty_store, open_store
from store.partition.messagefiles import sync_file_system
from store.partition.messagereading import MID_OCTETS
from store.partition.partition import Partition
from store.quota.roots import root_for
from store.rebuild.desired import DesiredMailbox
from store.rebuild.loader import EmptyLoader, KnownFile, load_messages, never_again, set_limits
from store.settings import Settings
from store.store import Store
from store.tables.index import CHUNK, OWN, ROW, Rows
from store.tables.quotatable import ALONE
from store.tables.references import MessageRecord, marks
from store.tables.state import MailboxState, counted
from store.userarea import writing
from store.values import Flag
from tools.spark.generate.samplefolders import Folder, folders_of
from tools.spark.generate.samplemail import message

MESSAGES_AT_A_TIME = 2000   # that a process makes
BEGIN, END = 1_577_836_800, 1_767_225_600       # Unix time of the first and the last message
ZONES = np.array([0, 60, 120, -300, -480, 330], np.int16)
_MADE = np.dtype([("digest", "S32"), ("size", "<u8"), ("trace", "<u4")])

Progress = Callable[[str, int, int], None]      # what is done, how much of it, out of how much


@frozen
class Shape:
    """What is generated: `references` a message on the average; `small` messages take a disk block each."""

    messages: int = field(validator=ge(1))
    users: int = field(validator=ge(1))
    references: int = field(default=20, validator=ge(1))
    seed: int = field(default=1, validator=ge(0))
    small: bool = False


def generate(root: Path, shape: Shape, *, processes: int = 1,
             progress: Progress = lambda what, done, total: None) -> int:
    """Make the store; how many records it has. Raises StoreError STORE_IN_USE when there is one, DISK_FULL, OSError."""
    make_empty_store(root)
    store = open_store(root, Settings(cache=256 << 20, sync="none", disk_reserve=0))
    try:
        partition = store.partitions[PRIMARY]
        made, cached = _write_files(partition, shape, processes, progress)
        owners, which = _spread(shape)
        partition.skip_to(partition.epoch, shape.messages)
        _add_users(store, shape)
        _set_limits(partition, shape)
        loading = _Mailboxes(store, partition, shape, made)
        loader = EmptyLoader(partition, store.mailboxes)
        done = loader.load(loading.all(owners, which, progress))
        never_again(store.mailboxes, loading.last, _validity(loading.last))
        progress("references", 0, shape.messages)
        load_messages(partition, loading.messages(cached))
        loader.finish()
        progress("store.idx", 0, done)
        writing.write_round(store, partition, hurry=True)
        sync_file_system(partition.folder)
        partition.flush()
        return loading.records
    finally:
        store.close()


# Message files

def _write_files(partition: Partition, shape: Shape, processes: int, progress: Progress
                 ) -> tuple[NDArray[Any], list[bytes]]:
    """Make the message files; digest, size and trace header of each, and its cache record."""
    parts = [range(at, min(at + MESSAGES_AT_A_TIME, shape.messages))
             for at in range(0, shape.messages, MESSAGES_AT_A_TIME)]
    work = partial(_write_some, str(partition.files.folder), shape)
    made, cached = [], []
    for one, records in _side_by_side(work, parts, processes):
        made.append(one)
        cached += records
        progress("messages", len(cached), shape.messages)
    return np.concatenate(made), cached


def _side_by_side(work: Callable[[range], Any], parts: list[range], processes: int) -> Iterator[Any]:
    if processes <= 1 or len(parts) == 1:
        yield from map(work, parts)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(work, parts)


def _write_some(folder: str, shape: Shape, numbers: range) -> tuple[NDArray[Any], list[bytes]]:
    """The files of these messages, written; no two messages are the same, since each has its own Message-ID."""
    made, records = np.zeros(len(numbers), _MADE), []
    for at, number in enumerate(numbers):
        mail = message(shape.seed, number, small=shape.small)
        digest = hashlib.blake2b(mail.content, digest_size=MID_OCTETS).digest()
        scanner = Scanner()
        scanner.feed(mail.content)
        records.append(render(scanner.finish(), digest, len(mail.trace)).data)
        made[at] = digest, len(mail.trace) + len(mail.content), len(mail.trace)
        name = digest.hex()
        handle = privatefiles.open_handle(f"{folder}/{name[0]}/{name[1:3]}/{name}",
                                          os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(handle, mail.trace + mail.content)
        finally:
            os.close(handle)
    return made, records


# Who has what

def _spread(shape: Shape) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The owner (a number; `users` stands for public mailboxes) and the message of each record: by owner, then by
    message. There are exactly `messages * references` of them, and every message has one at least."""
    chance = np.random.default_rng([shape.seed, 1])
    total = shape.messages * shape.references
    weights = chance.lognormal(0.0, 1.1, shape.messages)
    counts = np.maximum(1, (weights * (total / weights.sum())).astype(np.int64))
    while (more := total - int(counts.sum())) != 0:
        places = np.flatnonzero(counts > 1) if more < 0 else np.arange(shape.messages)
        places = chance.permutation(places)[:abs(more)]
        counts[places] += 1 if more > 0 else -1
    slots = _slots(shape, chance)
    starts, steps = (chance.integers(low, len(slots), shape.messages) for low in (0, 1))
    messages = np.repeat(np.arange(shape.messages, dtype=np.uint32), counts)
    turn = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    owners = slots[(np.repeat(starts, counts) + turn * np.repeat(steps, counts)) % len(slots)]
    order = np.argsort(owners, kind="stable")
    return owners[order], messages[order]


def _slots(shape: Shape, chance: np.random.Generator) -> NDArray[np.uint32]:
    """Owners, the busier the more often, in a table of a prime size: every step through it reaches each place once."""
    rank = chance.permutation(shape.users)
    slots = np.repeat(np.arange(shape.users), 1 + (12 / np.sqrt(1 + rank)).astype(np.int64))
    slots = np.concatenate((slots, np.full(1 + len(slots) // 200, shape.users)))
    while any(len(slots) % factor == 0 for factor in range(2, int(len(slots) ** 0.5) + 1)) or len(slots) < 3:
        slots = np.append(slots, chance.integers(0, shape.users))
    return chance.permutation(slots).astype(np.uint32)


def user_name(shape: Shape, number: int) -> str:
    """The user id of that number: of three domains, most of the default one."""
    if number == shape.users:
        return ""
    return f"user{number:05}" + ("@example.com" if number % 10 == 8 else "@example.net" if number % 10 == 9 else "")


def _add_users(store: Store, shape: Shape) -> None:
    directory = store.directory
    for number in range(shape.users):
        directory.insert(User(Account(user_name(shape, number), PRIMARY), NO_PASSWORD))


def _set_limits(partition: Partition, shape: Shape) -> None:
    """Of every third user, of some folders, of a domain, and of public mailboxes."""
    limits = [(user_name(shape, number), (50 + number * 7919 % 2000) << 20, 100_000 if number % 2 else -1)
              for number in range(0, shape.users, 3)]
    limits += [(f"{user_name(shape, number)}/Archive", 1 << 30, -1) for number in range(5, shape.users, 50)]
    limits += [("public/news", 10 << 30, -1), *([("@example.com", 1 << 40, -1)] if shape.users > 8 else [])]
    set_limits(partition, {root: [octets, most] for root, octets, most in limits}, ALONE)
    partition.domains.refresh()


def _validity(mailbox: int) -> int:
    return BEGIN + mailbox


class _Mailboxes:
    """Makes the mailboxes one after the other, and counts the references to each message as it goes."""

    def __init__(self, store: Store, partition: Partition, shape: Shape, made: NDArray[Any]) -> None:
        self._partition = partition
        self._shape = shape
        self._made = made
        self._heads = _own_fields(partition, shape)
        self._counts = np.zeros(shape.messages, np.uint32)
        self._checks = np.zeros(shape.messages, np.uint64)
        self._received = np.sort(np.random.default_rng([shape.seed, 2]).integers(BEGIN, END, shape.messages))
        self.last = 0
        self.records = 0

    def all(self, owners: NDArray[np.uint32], which: NDArray[np.uint32], progress: Progress
            ) -> Iterator[DesiredMailbox]:
        """Those of all users, and the public ones."""
        bounds = np.searchsorted(owners, np.arange(self._shape.users + 2))
        for number in range(self._shape.users + 1):
            yield from self._of_owner(number, which[bounds[number]:bounds[number + 1]])
            progress("records", self.records, len(which))

    def _of_owner(self, number: int, messages: NDArray[np.uint32]) -> Iterator[DesiredMailbox]:
        chance = np.random.default_rng([self._shape.seed, 3, number])
        owner = user_name(self._shape, number)
        others = [user_name(self._shape, int(other)) for other in chance.integers(0, self._shape.users, 3)]
        folders = folders_of(chance, number, owner, sorted({other for other in others if other != owner}))
        weights = np.array([folder.weight for folder in folders])
        places = chance.choice(len(folders), len(messages), p=weights / weights.sum())
        for place, folder in enumerate(folders):
            yield self._mailbox(chance, owner, folder, messages[places == place], [each.path for each in folders])

    def _mailbox(self, chance: np.random.Generator, owner: str, folder: Folder, messages: NDArray[np.uint32],
                 paths: list[str]) -> DesiredMailbox:
        self.last += 1
        mailbox, name = MailboxId(self.last), MailboxName(owner, folder.path)
        rows = self._rows(chance, owner, folder, messages)
        references = marks(mailbox, rows["uid"])
        np.add.at(self._counts, messages, 1)
        np.add.at(self._checks, messages, references)
        self.records += len(rows)
        highest = max(1, int(rows["modseq"].max(initial=0)))
        state = evolve(MailboxState.new(_validity(mailbox), self._partition.epoch, root_for(self._partition, name)),
                       uidnext=int(rows["uid"].max(initial=0)) + 1 + int(chance.integers(0, 3)), highestmodseq=highest,
                       changed=highest, log_since=highest, keywords=folder.keywords)
        state = counted(evolve(state, recent=state.uidnext), rows)
        entry = MailboxEntry(mailbox, name, PRIMARY, state.uidvalidity, BEGIN + mailbox, folder.special_use, folder.acl)
        notes = [("/shared/comment", "", f"comment on {name}".encode())] if mailbox % 40 == 0 else []
        return DesiredMailbox(entry, state, rows, own=_own_flags(chance, folder, rows, highest), annotations=notes,
                      subscriptions=sorted({INBOX, *paths[1::2]}) if name.is_inbox() else [])

    def _rows(self, chance: np.random.Generator, owner: str, folder: Folder, messages: NDArray[np.uint32]) -> Rows:
        count = len(messages)
        rows, made = np.zeros(count, ROW), self._made[messages]
        gaps = np.where(chance.random(count) < 0.08, chance.integers(1, 12, count), 0)
        rows["uid"] = np.cumsum(1 + gaps)
        for flag, share in ((Flag.SEEN, 0.85), (Flag.ANSWERED, 0.12), (Flag.FLAGGED, 0.04), (Flag.DELETED, 0.01),
                            (Flag.DRAFT, folder.drafts)):
            rows["flags"] |= np.where(chance.random(count) < share, np.uint16(flag), np.uint16(0))
        for bit in range(len(folder.keywords)):
            rows["keywords"] |= np.where(chance.random(count) < 0.05, np.uint64(1 << bit), np.uint64(0))
        rows["modseq"] = np.arange(2, count + 2)
        touched = np.flatnonzero((rows["flags"] & ~np.uint16(Flag.SEEN) | (rows["keywords"] > 0)) > 0)
        rows["modseq"][touched] = count + 2 + chance.permutation(len(touched))
        rows["received"] = self._received[messages]
        rows["zone"] = ZONES[chance.integers(0, len(ZONES), count)]
        rows["saved"] = rows["received"] + chance.integers(0, 3600, count)
        rows["serial"] = messages.astype(np.uint64) + 1
        rows["digest"] = made["digest"].view("V32")
        rows["header_length"] = np.where(chance.random(count) < 0.05, made["trace"], 0)
        number, octets = self._heads.get(owner, (0, b""))
        with_head = chance.random(count) < 0.1 if number else np.zeros(count, np.bool_)
        rows["head"] = np.where(with_head, number, 0)
        rows["size"] = made["size"] - rows["header_length"] + np.where(with_head, len(octets), 0).astype(np.uint64)
        return rows

    def messages(self, cached: list[bytes]) -> list[KnownFile]:
        """What the partition is to know of all message files."""
        raw = self._made["digest"].tobytes()
        figures = zip(self._counts.tolist(), self._made["size"].tolist(), self._made["trace"].tolist(),
                      self._checks.tolist(), cached, strict=True)
        return [(raw[32 * at:32 * at + 32], MessageRecord(at + 1, count, size, trace, 0, check), record)
                for at, (count, size, trace, check, record) in enumerate(figures)]


def _own_fields(partition: Partition, shape: Shape) -> dict[str, tuple[int, bytes]]:
    """The Delivered-To field that some messages have in the mailboxes of every seventh user: its number, its octets."""
    fields = {user: f"Delivered-To: {user}\r\n".encode()
              for user in (user_name(shape, number) for number in range(0, shape.users, 7))}
    numbers = partition.transact(lambda txn: partition.private_headers.numbers(fields.values(), txn.handle))
    return {user: (numbers[octets], octets) for user, octets in fields.items()}


def _own_flags(chance: np.random.Generator, folder: Folder, rows: Rows, highest: int
               ) -> list[tuple[int, str, NDArray[Any]]]:
    """What the readers of a shared mailbox have as flags of their own in its first chunks."""
    found = []
    for reader in folder.readers if len(rows) else ():
        for number in range(min(3, (int(rows["uid"][-1]) - 1) // CHUNK + 1)):
            own = np.zeros(CHUNK, OWN)
            own["flags"] = chance.integers(0, 2, CHUNK)         # \Seen
            own["modseq"] = np.where(own["flags"] > 0, highest, 0)
            found.append((number, reader, own))
    return found
