"""The rows of each table, of what a task finds. `schema` says what they mean, `reading` what a task is."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

from mboxlist import acl
from mboxlist.annotations import LAST_LOGIN, LAST_READ
from mboxlist.entry import MailboxEntry
from mboxlist.names import SEPARATOR, MailboxName
from store.errors import StoreError
from store.rebuild.desired import annotations_of
from store.rebuild.userareascan import name_at
from store.tables.index import Rows, joined
from store.tables.quotatable import DEFAULT, DOMAIN, UNLIMITED, domain_of
from store.userarea import idxreading
from store.userarea.idxfile import Head
from store.userarea.idxreading import Salvaged
from store.userarea.paths import DELETED
from store.users import lastuse
from tools.spark.source import arrays, reading
from tools.spark.source.reading import Found, Task
from tools.spark.source.schema import SMALL, SYSTEM_FLAGS, TEXT, TRUTH, schema

BATCH_ROWS = 32_768             # rows of a batch, at most
_MAILBOX_ROWS = 2_048           # rows of a batch of a table that is made row by row, at most
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 253_402_300_799_999_999       # microseconds: the year 9999


# Messages

_FILE = ("digest", "folder", "octets", "modified", "staged", "path", "damage")
_File = tuple[str | None, str | None, int | None, int | None, bool, str, str]      # the columns of _FILE


def messages(task: Task) -> Iterator[pa.RecordBatch]:
    """A row for each message file."""
    waiting: list[_File] = []
    for some in chain(_message_files(task), [_staged_files(task)]):
        waiting += some
        if len(waiting) >= BATCH_ROWS // 2:
            yield _of_files(task, waiting)
            waiting = []
    if waiting:
        yield _of_files(task, waiting)


def _of_files(task: Task, files: list[_File]) -> pa.RecordBatch:
    form = schema("messages", task.wanted.columns)
    columns: dict[str, Any] = dict(zip(_FILE, zip(*files, strict=True), strict=True))
    columns |= {"store": [task.store] * len(files), "partition": [task.partition] * len(files)}
    return pa.RecordBatch.from_arrays([pa.array(columns[name], form.field(name).type) for name in form.names],
                                      schema=form)


def _message_files(task: Task) -> Iterator[list[_File]]:
    """Those of each hash folder."""
    look = not task.wanted.columns or not {"octets", "modified", "damage"}.isdisjoint(task.wanted.columns)
    begins = _begins(task)
    for folder, entries, problem in reading.message_files(task):
        where = f"messages/{folder}" if folder else "messages"
        files: list[_File] = [(None, folder or None, None, None, False, where, problem)] if problem else []
        for entry in entries:
            digest = entry.name if reading.is_digest(entry.name) else None
            if digest and begins.match(digest) or begins.match(folder.replace("/", "")):
                octets, modified, damage = _status(entry) if look else (None, None, "")
                if octets == 0 and digest:
                    octets = len(reading.in_journal(task.folder, digest) or b"")
                if damage is not None:
                    files.append((digest, folder, octets, modified, False, f"{where}/{entry.name}",
                                  damage or _misnamed(digest, folder)))
        yield files


def _staged_files(task: Task) -> Iterator[_File]:
    begins = _begins(task)
    for entry, own_digest in reading.staged_files(task):
        digest = own_digest.hex() if own_digest is not None else None
        octets, modified, damage = _status(entry)
        if octets == 0 and digest:
            octets = len(reading.in_journal(task.folder, digest) or b"")
        if damage is not None and begins.match(digest or ""):
            yield (digest, digest and f"{digest[0]}/{digest[1:3]}", octets, modified, True,
                   f"{reading.STAGING}/{entry.name}", damage or ("" if digest else "it cannot be read"))


def _begins(task: Task) -> reading.Beginnings:
    return reading.Beginnings(("",) if task.wanted.digests is None else task.wanted.digests)


def _status(entry: Any) -> tuple[int | None, int | None, str | None]:
    """Octets and time (in microseconds) of a file, and what is wrong with it; None for that when it is gone."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None, None, None
    except OSError as error:
        return None, None, f"it cannot be looked at: {error.strerror}"
    if not entry.is_file(follow_symlinks=False):
        return None, status.st_mtime_ns // 1000, "it is no file"
    return status.st_size, status.st_mtime_ns // 1000, ""


def _misnamed(digest: str | None, folder: str) -> str:
    if digest is None:
        return "its name is no digest"
    return "" if folder == f"{digest[0]}/{digest[1:3]}" else "it is not in the folder of its digest"


# Mailboxes of rows

@frozen
class MailboxOfRows:
    """What tells which mailbox rows are of: from the head of its file, or else from where that is."""

    id: int | None
    name: str | None
    owner: str | None
    removed: bool
    keywords: Sequence[str] = ()
    special_use: str | None = None

    @property
    def domain(self) -> str | None:
        """The domain of the owner."""
        return None if self.owner is None else domain_of(self.owner)


def _mailbox(task: Task, found: Found, head: Head | None) -> MailboxOfRows:
    if head is not None:
        return MailboxOfRows(head.id, head.name, head.owner, bool(head.removed), head.keywords, head.special_use)
    name: MailboxName | None = None
    if not found.problem:
        name = name_at(Path(task.folder) / "users", Path(found.path))
    removed = found.below.startswith(f"users/{DELETED}/")
    return MailboxOfRows(None, None if name is None else str(name), None if name is None else name.owner, removed)


def _is_wanted(task: Task, mailbox: MailboxOfRows) -> bool:
    return task.wanted.owners is None or mailbox.owner in task.wanted.owners


def _heads(task: Task) -> Iterator[tuple[Found, Head]]:
    """The heads of all files that have one; what is wrong with the others the mailboxes tell."""
    for found in reading.idx_files(task):
        if not found.problem:
            try:
                head = idxreading.read_head(Path(found.path))
            except StoreError:
                continue
            if _is_wanted(task, _mailbox(task, found, head)):
                yield found, head


def _time(microseconds: int) -> datetime | None:
    """A time, None for 0 and for what is later than any that can be written."""
    return _EPOCH + timedelta(microseconds=microseconds) if 0 < microseconds <= _LATEST else None


def _seconds(seconds: int) -> datetime | None:
    return _time(seconds * 1_000_000)


def _by_rows(task: Task, rows: Iterator[dict[str, object]]) -> Iterator[pa.RecordBatch]:
    """Batches of rows of a table that has few for each mailbox."""
    form, waiting = schema(task.table, task.wanted.columns), []
    for row in rows:
        waiting.append(row | {"store": task.store, "partition": task.partition})
        if len(waiting) == _MAILBOX_ROWS:
            yield pa.RecordBatch.from_pylist(waiting, form)
            waiting = []
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, form)


# Mailboxes

def mailboxes(task: Task) -> Iterator[pa.RecordBatch]:
    """A row for each store.idx. Where nobody asks what is damaged, the heads alone are read."""
    whole = not task.wanted.columns or "damage" in task.wanted.columns
    return _by_rows(task, _mailbox_rows(task, whole))


def _mailbox_rows(task: Task, whole: bool) -> Iterator[dict[str, object]]:
    for found in reading.idx_files(task):
        head, damage = _read(found) if whole else (_head_alone(found), [])
        if damage is None:
            continue                    # it went away
        mailbox = _mailbox(task, found, head)
        if not _is_wanted(task, mailbox):
            continue
        row: dict[str, object] = {
            "id": mailbox.id, "name": mailbox.name, "owner": mailbox.owner, "domain": mailbox.domain,
            "path": found.below, "damage": "; ".join(damage), "octets": _octets(found)}
        yield row if head is None else row | {
            "uidvalidity": head.uidvalidity, "uidnext": head.uidnext, "highestmodseq": head.highestmodseq,
            "epoch": head.epoch, "created": _seconds(head.created), "removed": _seconds(head.removed),
            "special_use": head.special_use, "quota_root": head.quota_root, "keywords": head.keywords,
            "subscriptions": head.subscriptions, "records": head.records, "written": _time(head.written // 1000),
            "identity": head.store, "last_login": _day(head, LAST_LOGIN), "last_read": _day(head, LAST_READ)}


def _day(head: Head, note: str) -> datetime | None:
    return lastuse.midnight(lastuse.day_of(next((value for name, _, value in annotations_of(head) if name == note),
                                                None)))


def _read(found: Found) -> tuple[Head | None, list[str] | None]:
    """The head, and what is lost; None for that when there is no such file any more."""
    left = reading.salvaged(found)
    if left is None:
        return None, None
    return left.head, left.findings + _unnamed(left)


def _unnamed(left: Salvaged) -> list[str]:
    if left.head is None or not len(left.rows):
        return []
    used = int(np.bitwise_or.reduce(left.rows["keywords"])) >> len(left.head.keywords)
    return ["its records have keywords that it does not name"] if used else []


def _head_alone(found: Found) -> Head | None:
    try:
        return None if found.problem else idxreading.read_head(Path(found.path))
    except StoreError:
        return None


def _octets(found: Found) -> int | None:
    try:
        return Path(found.path).stat().st_size if not found.problem else None
    except OSError:
        return None


# References

@define(eq=False)
class _Records:
    """Records of some mailboxes that wait to be a batch."""

    task: Task
    mailboxes: list[MailboxOfRows] = field(factory=list)
    rows: list[Rows] = field(factory=list)
    count: int = 0

    def add(self, mailbox: MailboxOfRows, rows: Rows) -> None:
        """Records of one mailbox."""
        self.mailboxes.append(mailbox)
        self.rows.append(rows)
        self.count += len(rows)

    def batch(self) -> pa.RecordBatch:
        """All that wait."""
        form = schema("references", self.task.wanted.columns)
        rows = self.rows[0] if len(self.rows) == 1 else joined(*self.rows)
        given = _Given(self.task, self.mailboxes, rows, np.array([len(some) for some in self.rows]))
        made = pa.RecordBatch.from_arrays([_COLUMNS[name](given) for name in form.names], schema=form)
        self.mailboxes, self.rows, self.count = [], [], 0
        return made


@frozen(eq=False)
class _Given:
    """What the columns of a batch are made of: `counts` of the rows are the first mailbox's, and so on."""

    task: Task
    mailboxes: list[MailboxOfRows]
    rows: Rows
    counts: arrays.Array

    def of_mailbox(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        """A column that is the same for all records of a mailbox."""
        return arrays.repeated(values, self.counts, kind)

    def flag(self, place: int) -> pa.Array:
        """A column that says whether a system flag is set."""
        return pa.array((self.rows["flags"] >> place & 1).astype(np.bool_))


_COLUMNS: dict[str, Callable[[_Given], pa.Array]] = {
    "store": lambda given: pa.repeat(pa.scalar(given.task.store, TEXT), len(given.rows)),
    "partition": lambda given: pa.repeat(pa.scalar(given.task.partition, TEXT), len(given.rows)),
    "mailbox": lambda given: given.of_mailbox([each.id for each in given.mailboxes], pa.int64()),
    "name": lambda given: given.of_mailbox([each.name for each in given.mailboxes], TEXT),
    "owner": lambda given: given.of_mailbox([each.owner for each in given.mailboxes], TEXT),
    "domain": lambda given: given.of_mailbox([each.domain for each in given.mailboxes], TEXT),
    "removed": lambda given: given.of_mailbox([each.removed for each in given.mailboxes], TRUTH),
    "special_use": lambda given: given.of_mailbox([each.special_use for each in given.mailboxes], TEXT),
    "digest": lambda given: arrays.digests(given.rows["digest"]),
    "internal_date": lambda given: arrays.times(given.rows["received"]),
    "saved": lambda given: arrays.times(given.rows["saved"], 0),
    "zone": lambda given: pa.array(given.rows["zone"].astype(np.int32), SMALL),
    "flags": lambda given: arrays.named_bits(given.rows["flags"], [SYSTEM_FLAGS], np.array([len(given.rows)])),
    "keywords": lambda given: arrays.named_bits(
        given.rows["keywords"], [each.keywords for each in given.mailboxes], given.counts),
    "octets": lambda given: arrays.numbers(given.rows["size"]),
    "seen": lambda given: given.flag(0),
    "answered": lambda given: given.flag(1),
    "flagged": lambda given: given.flag(2),
    "deleted": lambda given: given.flag(3),
    "draft": lambda given: given.flag(4),
    **{name: lambda given, name=name: arrays.numbers(given.rows[name])      # type: ignore[misc]
       for name in ("uid", "modseq", "head", "serial")},
    "skip": lambda given: arrays.numbers(given.rows["header_length"]),
}


def references(task: Task, left_of: Callable[[str | None, str | None, Rows], Rows] | None = None
               ) -> Iterator[pa.RecordBatch]:
    """A row for each record of each mailbox; of a damaged file those that are left. `left_of`: only of those that it
    leaves of a mailbox, of which it gets the name, the special use, and all records."""
    yield from _of_records(task, records(task, left_of))


def records(task: Task, left_of: Callable[[str | None, str | None, Rows], Rows] | None = None
            ) -> Iterator[tuple[MailboxOfRows, Rows]]:
    """The records of each mailbox that has some, as they are in its file; of `left_of` see `references`."""
    for found in reading.idx_files(task):
        left = reading.salvaged(found)
        if left is None or not len(left.rows):
            continue
        mailbox = _mailbox(task, found, left.head)
        if not _is_wanted(task, mailbox):
            continue
        yield mailbox, left.rows if left_of is None or mailbox.removed else left_of(
            mailbox.name, None if left.head is None else left.head.special_use, left.rows)


def of_entries(task: Task, given: Iterable[tuple[MailboxEntry, bool, Sequence[str], Rows]]
               ) -> Iterator[pa.RecordBatch]:
    """A row for each of these records of mailboxes; with the mailbox come whether it was deleted, and its keywords."""
    return _of_records(task, ((MailboxOfRows(entry.id, str(entry.name), entry.name.owner, removed, keywords,
                                        entry.special_use), records)
                              for entry, removed, keywords, records in given))


def _of_records(task: Task, given: Iterable[tuple[MailboxOfRows, Rows]]) -> Iterator[pa.RecordBatch]:
    waiting = _Records(task)
    for mailbox, records in given:
        at = 0
        while at < len(records):
            some = records[at:at + BATCH_ROWS - waiting.count]
            waiting.add(mailbox, some)
            at += len(some)
            if waiting.count == BATCH_ROWS:
                yield waiting.batch()
    if waiting.count:
        yield waiting.batch()


# Quotas and rights

def quotas(task: Task) -> Iterator[pa.RecordBatch]:
    """A row for each quota root that a file tells of."""
    return _by_rows(task, _quota_rows(task))


def _quota_rows(task: Task) -> Iterator[dict[str, object]]:
    for _, head in _heads(task):
        limits = dict(head.limits)
        if head.owner and not head.removed and head.name == f"user/{head.owner}/INBOX":
            limits.setdefault(head.owner, [DEFAULT, DEFAULT])
        for root, (octets, messages) in sorted(limits.items()):
            yield {"root": root, "kind": kind_of(root), "limit_octets": limit_of(octets),
                   "limit_messages": limit_of(messages), "default_octets": octets == DEFAULT,
                   "default_messages": messages == DEFAULT, "mailbox": head.id, "written": _time(head.written // 1000)}


def kind_of(root: str) -> str:
    """The kind of a quota root."""
    if root.startswith(DOMAIN):
        return "domain"
    return "mailbox" if SEPARATOR in root else "user"


def limit_of(number: int) -> int | None:
    """A limit as tables have it: null for none, and for the default."""
    return None if number in (DEFAULT, UNLIMITED) else number


def rights(task: Task) -> Iterator[pa.RecordBatch]:
    """A row for each entry of an ACL."""
    return _by_rows(task, (
        {"mailbox": head.id, "name": head.name, "owner": head.owner, "rights": granted,
         "identifier": identifier.removeprefix(acl.NEGATIVE), "negative": identifier.startswith(acl.NEGATIVE)}
        for _, head in _heads(task) for identifier, granted in head.acl.items()))


READERS: dict[str, Callable[[Task], Iterator[pa.RecordBatch]]] = {
    "messages": messages, "mailboxes": mailboxes, "references": references, "quotas": quotas, "rights": rights,
}


def batches(task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in batches of `BATCH_ROWS` at most, with the columns that are wanted."""
    return READERS[task.table](task)
