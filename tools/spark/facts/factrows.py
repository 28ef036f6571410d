"""Rows of facts, of a range of keys of the databases of a snapshot, in batches; and by what one sees that a range is as
it was.

Mailboxes are taken by ranges of their ids, message files by the beginnings of their digests. A mailbox's figures change
with whatever happens in it, and a row of the list with its name, rights or special use: so nothing is read of a range
of mailboxes whose figures and rows are the same.

Of a mailbox with chunks of the index that cannot be read the other records are rows; `Range.damaged` names it, and so
does the column `damage`.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mboxlist import acl
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import PUBLIC
from store.accounts.base import NO_USER_ID
from store.accounts.builtin import User
from store.message import envelopes
from store.message.cacherecord import CachedMessage
from store.partition.partition import Partition
from store.partition.serials import META_KEY
from store.rebuild.salvage import readable
from store.settings import Settings
from store.tables.expunged import ExpungedMessages
from store.tables.index import Rows, chunk_key
from store.tables.quotatable import DEFAULT, DOMAIN, QuotaTable, QuotaUse, domain_of
from store.tables.references import STORED, MessageRecord, References
from store.tables.state import MailboxState, state_key
from store.userarea.idxfile import NAME
from store.userarea.paths import DELETED
from store.users import lastuse
from store.values import Finding
from tools.spark.facts.factschema import VERSION, fact_schema
from tools.spark.facts.snapshottables import ListTables, PartitionTables, opened_list, opened_partition
from tools.spark.source import arrays
from tools.spark.source.reading import Task, owner_place
from tools.spark.source.rows import kind_of, limit_of, of_entries

MAILBOXES = 1024            # ids of mailboxes in a range
BATCH_ROWS = 16_384         # message files in memory at a time
BATCH_CHUNKS = 256          # of 64 records each
_MAILBOX_ROWS = 2048
_CHUNKS = 5                 # of one mailbox that cannot be read, of which the numbers are told
_ADDRESS = 320              # octets of a sender's address, at most
_HEX_DIGITS = 64            # of a digest
FILE_ROWS = 1 << 16         # message files in a range of digests, about
_ROW_OCTETS = 100           # of messages.db for each of them, about

_CACHED = 256               # cache records in memory at a time

Row = dict[str, object]
Cached = Callable[[list[int]], list[bytes | None]]      # the cache records of serials that ascend, as they are stored


@frozen
class Range:
    """A part of the databases: `kind` is "mailboxes" (ids from `first` up to, not including, `last`), "messages"
    (digests with a beginning), "partition" (quotas and what was expunged), "volume" (a folder on its file system) or
    "users"; `store` is the back end's name and `moment` the time of the snapshot, in microseconds. Who reads
    `references` has `damaged` filled: by id of a mailbox what of its records cannot be read."""

    kind: str
    store: str
    mailboxes: str          # folders of databases
    partition: str = ""
    folder: str = ""
    first: int = 0
    last: int = 0
    beginning: str = ""
    moment: int = 0
    volume: str = ""
    damaged: dict[int, Finding] = field(factory=dict, init=False, eq=False)

    @property
    def name(self) -> str:
        """What tells ranges of one kind apart."""
        if self.kind == "mailboxes":
            return f"{self.first:08x}"
        return self.beginning if self.kind == "messages" and self.beginning else "all"

    @property
    def tables(self) -> dict[str, Callable[["Range"], Iterator[pa.RecordBatch]]]:
        """What makes the rows of each table that the range has a part of."""
        return _TABLES[self.kind]


# What has changed

def state_of(part: Range) -> str:
    """Another text when the rows of the range are others; "" when there is no telling."""
    known = hashlib.blake2b(f"{VERSION} {part.store}\n".encode(), digest_size=16)
    seen = {"mailboxes": _seen_of_mailboxes, "messages": _seen_of_messages, "users": _seen_of_users}.get(part.kind)
    if seen is None:
        return ""
    for octets in seen(part):
        known.update(octets)
    return known.hexdigest()


def _seen_of_mailboxes(part: Range) -> Iterator[bytes]:
    for _, entry, when, state in _mailboxes(part):
        yield state.to_bytes()
        yield repr((entry, sorted(entry.acl.items()), when)).encode()


def _seen_of_messages(part: Range) -> Iterator[bytes]:
    for digests, figures in message_rows(part):
        yield b"".join(digests)
        yield figures["size"].tobytes()
        yield np.where(figures["references"] == 0, figures["released"], 0).tobytes()


def _seen_of_users(part: Range) -> Iterator[bytes]:
    names = opened_list(part.mailboxes)
    for user in _accounts(names):
        yield repr((user.account, lastuse.of_user(names.names, user.account.user))).encode()


# Mailboxes, references, rights

def _mailboxes(part: Range) -> Iterator[tuple[PartitionTables, MailboxEntry, int, MailboxState]]:
    """Each mailbox of the range on this partition: its row in the list, when it was deleted (0: it is there), and its
    figures. What is in no list is no mailbox (yet)."""
    tables, names = opened_partition(part.folder), opened_list(part.mailboxes)
    for key, data in tables.states.scan(state_key(max(part.first, 1)), state_key(part.last)):
        found = names.entry(MailboxId(int.from_bytes(key, "big")))
        if key != META_KEY and found is not None and found[1].partition == part.partition:
            when, entry = found
            yield tables, entry, when, MailboxState.from_bytes(data, tables.epoch)


def _records(part: Range, tables: PartitionTables, entry: MailboxEntry, when: int) -> Iterator[Rows]:
    """The records of a mailbox that can be read, so many at a time."""
    broken: list[int] = []
    chunks = iter(tables.index.scan(chunk_key(entry.id, 0), chunk_key(MailboxId(entry.id + 1), 0)))
    while some := list(islice(chunks, BATCH_CHUNKS)):
        records, unreadable = readable(entry.id, some)
        broken += unreadable
        yield records
    if broken:
        numbers = ", ".join(map(str, broken[:_CHUNKS])) + (", ..." if len(broken) > _CHUNKS else "")
        part.damaged[entry.id] = Finding(
            f"{'index chunk' if len(broken) == 1 else f'{len(broken)} index chunks'} cannot be read: {numbers}",
            f"{entry.name} (deleted)" if when else str(entry.name))


def references(part: Range) -> Iterator[pa.RecordBatch]:
    """A row for each record of each mailbox."""
    return of_entries(Task("references", part.store, part.partition, "", ()), (
        (entry, bool(when), state.keywords, records) for tables, entry, when, state in _mailboxes(part)
        for records in _records(part, tables, entry, when)))


def mailboxes(part: Range) -> Iterator[pa.RecordBatch]:
    """A row for each mailbox, after `references`. Subscriptions and identity are not told."""
    return _by_rows("mailboxes", part, ({
        "id": entry.id, "name": str(entry.name), "owner": entry.name.owner, "domain": domain_of(entry.name.owner),
        "uidvalidity": state.uidvalidity, "uidnext": state.uidnext, "highestmodseq": state.highestmodseq,
        "epoch": state.epoch, "created": _seconds(entry.created), "removed": _seconds(when),
        "special_use": entry.special_use, "quota_root": state.quota_root, "keywords": list(state.keywords),
        "records": state.messages, "written": _instant(part), "path": _path(entry, when),
        "damage": part.damaged[entry.id].what if entry.id in part.damaged else "",
    } for _, entry, when, state in _mailboxes(part)))


def _path(entry: MailboxEntry, when: int) -> str:
    """Where its store.idx belongs below the partition's folder."""
    if when:
        return f"users/{DELETED}/{entry.id}/{NAME}"
    top = owner_place(entry.name.owner) if entry.name.owner else PUBLIC[:-1]
    return f"users/{top}/{NAME}" if entry.name.is_inbox() else f"users/{top}/{entry.name.path}/{NAME}"


def rights(part: Range) -> Iterator[pa.RecordBatch]:
    """A row for each entry of an ACL."""
    return _by_rows("rights", part, ({
        "mailbox": entry.id, "name": str(entry.name), "owner": entry.name.owner, "rights": granted,
        "identifier": identifier.removeprefix(acl.NEGATIVE), "negative": identifier.startswith(acl.NEGATIVE),
    } for _, entry, _, _ in _mailboxes(part) for identifier, granted in entry.acl.items()))


# Message files

def beginnings(folder: str) -> list[str]:
    """Beginnings of digests, so that a range of each has FILE_ROWS at most, about; up to three digits."""
    messages = os.stat(os.path.join(folder, "messages.db")).st_size // _ROW_OCTETS
    digits = next((size for size in range(3) if messages <= FILE_ROWS << 4 * size), 3)
    return [f"{number:0{digits}x}" for number in range(1 << 4 * digits)] if digits else [""]


def message_rows(part: Range) -> Iterator[tuple[list[bytes], NDArray[Any]]]:
    """Digests of the range, and their records."""
    start = bytes.fromhex(part.beginning.ljust(_HEX_DIGITS, "0"))
    end = None
    if part.beginning.strip("f"):
        end = bytes.fromhex(f"{int(part.beginning, 16) + 1:0{len(part.beginning)}x}".ljust(_HEX_DIGITS, "0"))
    digests: list[bytes] = []
    stored: list[bytes] = []
    for digest, data in opened_partition(part.folder).messages.scan(start, end):
        digests.append(digest)
        stored.append(data)
        if len(digests) == BATCH_ROWS:
            yield digests, np.frombuffer(b"".join(stored), STORED)
            digests, stored = [], []
    if digests:
        yield digests, np.frombuffer(b"".join(stored), STORED)


def messages(part: Range) -> Iterator[pa.RecordBatch]:
    """A row for each message file."""
    cache = opened_partition(part.folder).cache
    for digests, figures in message_rows(part):
        yield _of_messages(part.store, part.partition, digests, figures, lambda serials: cache.pick(
            [serial.to_bytes(8, "big") for serial in serials]))


def messages_of(partition: Partition, store: str) -> Iterator[pa.RecordBatch]:
    """A row for each message file of a partition that is open."""
    for digests, figures in partition.refs.all_figures(BATCH_ROWS):
        yield _of_messages(store, partition.name, digests, figures, partition.serials.stored_cached)


def _of_messages(store: str, partition: str, digests: Sequence[bytes], figures: NDArray[Any], cached: Cached
                 ) -> pa.RecordBatch:
    form, count = fact_schema("messages"), len(digests)
    names = arrays.digests(np.frombuffer(b"".join(digests), "V32"))
    texts = names.to_pylist()
    folders = [f"{name[0]}/{name[1:3]}" for name in texts]
    columns = {
        "store": pa.repeat(store, count), "partition": pa.repeat(partition, count), "digest": names,
        "folder": pa.array(folders), "octets": arrays.numbers(figures["size"]),
        "modified": pa.nulls(count, form.field("modified").type), "staged": pa.repeat(False, count),
        "path": pa.array([f"messages/{folder}/{name}" for folder, name in zip(folders, texts, strict=True)]),
        "damage": pa.repeat("", count), "sender": pa.array(_senders(cached, digests, figures), pa.string()),
        "unused": arrays.times(np.where(figures["references"] == 0, figures["released"], 0), 0)}
    return pa.RecordBatch.from_arrays([columns[name] for name in form.names], schema=form)


def _senders(cached: Cached, digests: Sequence[bytes], figures: NDArray[Any]) -> list[str | None]:
    """Who wrote each of these messages, as their cache records say."""
    order = np.argsort(figures["serial"], kind="stable").tolist()
    serials = figures["serial"].tolist()
    found: list[str | None] = [None] * len(digests)
    for at in range(0, len(order), _CACHED):
        some = order[at:at + _CACHED]
        for place, value in zip(some, cached([serials[place] for place in some]), strict=True):
            found[place] = _sender(digests[place], value)
    return found


def _sender(digest: bytes, value: bytes | None) -> str | None:
    try:
        cached = None if value is None else CachedMessage.from_bytes(value)
    except ValueError:
        return None
    if cached is None or cached.digest != digest:
        return None
    people = envelopes.people(envelopes.split(cached.envelope)[envelopes.FROM])
    for _, _, local, host in people:
        if local and host:
            return (local + b"@" + host)[:_ADDRESS].decode("utf-8", "replace").lower()
    return None


# Quotas, expunged messages, users

def quotas(part: Range) -> Iterator[pa.RecordBatch]:
    """A row for each quota root, with its limits and use on this partition."""
    table = QuotaTable(opened_partition(part.folder).quotas, Settings())
    return _by_rows("quotas", part, (_quota(root, use, part) for rows in (table.all(), (
        (DOMAIN + domain, use) for domain, use in table.domains())) for root, use in rows))


def _quota(root: str, use: QuotaUse, part: Range) -> Row:
    return {"root": root, "kind": kind_of(root), "limit_octets": limit_of(use.octet_limit),
            "limit_messages": limit_of(use.message_limit), "default_octets": use.octet_limit == DEFAULT,
            "default_messages": use.message_limit == DEFAULT, "written": _instant(part),
            "used_octets": use.octets, "used_messages": use.messages}


def expunged(part: Range) -> Iterator[pa.RecordBatch]:
    """A row for each expunged message that can still be brought back."""
    tables = opened_partition(part.folder)
    form = fact_schema("expunged")
    for item in expunged_messages(tables).all():
        count = len(item.rows)
        yield pa.RecordBatch.from_arrays([
            pa.repeat(part.store, count), pa.repeat(part.partition, count),
            pa.repeat(pa.scalar(int(item.mailbox)), count), arrays.times(np.full(count, item.when)),
            arrays.digests(item.rows["digest"]),
            arrays.numbers(item.rows["size"])], schema=form)


def expunged_messages(tables: PartitionTables) -> ExpungedMessages:
    """What can still be brought back."""
    return ExpungedMessages(tables.removed, References(tables.messages, tables.messages, _as_it_is))


def _as_it_is(_: bytes, record: MessageRecord) -> MessageRecord:
    return record


def _accounts(names: ListTables) -> Iterator[User]:
    for key, data in names.users.scan():
        user = key.decode()
        if not user.startswith(NO_USER_ID):
            yield User.from_bytes(user, data)


def users(part: Range) -> Iterator[pa.RecordBatch]:
    """A row for each account of the built-in directory; no password."""
    names = opened_list(part.mailboxes)
    return _by_rows("users", part, ({
        "user": account.user, "domain": domain_of(account.user), "partition": account.partition,
        "status": account.status.value, "host": account.host, "groups": list(account.groups),
        "aliases": len(account.aliases), "removed": _seconds(account.removed), **_last_use(names, account.user),
    } for account in (user.account for user in _accounts(names))))


def _last_use(names: ListTables, user: str) -> Row:
    known = lastuse.of_user(names.names, user)
    return {"last_login": lastuse.midnight(known.login), "last_read": lastuse.midnight(known.read)}


def volumes(part: Range) -> Iterator[pa.RecordBatch]:
    """A row for the file system of the partition, as it is now."""
    status = os.statvfs(part.volume)
    return _by_rows("volumes", part, iter([{
        "octets": status.f_blocks * status.f_frsize, "free": status.f_bavail * status.f_frsize,
        "seen": datetime.now(UTC)}]))


_TABLES: dict[str, dict[str, Callable[[Range], Iterator[pa.RecordBatch]]]] = {
    "mailboxes": {"references": references, "mailboxes": mailboxes, "rights": rights},
    "messages": {"messages": messages},
    "partition": {"quotas": quotas, "expunged": expunged},
    "volume": {"volumes": volumes},
    "users": {"users": users},
}


def _by_rows(table: str, part: Range, given: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    """Batches of rows of a table that is made row by row."""
    form, waiting = fact_schema(table), []
    for row in given:
        waiting.append({"store": part.store, "partition": part.partition} | row)
        if len(waiting) == _MAILBOX_ROWS:
            yield pa.RecordBatch.from_pylist(waiting, form)
            waiting = []
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, form)


def _seconds(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _instant(part: Range) -> datetime:
    return datetime.fromtimestamp(part.moment / 1_000_000, UTC)
