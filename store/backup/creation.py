"""Makes backups while servers run.

Each mailbox is read in one transaction, and the message files that its records refer to come before it; so the archive
has each of them, also when the message is expunged meanwhile. A message file goes by its arrival serial, which no other
one ever has in a store. So what earlier archives have is a set of numbers, and an archive of a million messages takes
little memory.
"""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.entry import MailboxEntry
from store import VERSION
from store.backup import archive, cachemembers
from store.backup.archive import Catalogue, Listed, Manifest, Scope, Serials, Totals, message_name
from store.backup.compression import FRAME_OCTETS, ZSTD, FrameWriter
from store.backup.tarmembers import MemberWriter
from store.errors import Problem, StoreError
from store.mailboxes import subscribing
from store.partition.messagereading import MessageFile
from store.partition.partition import Partition
from store.store import Store
from store.tables.index import Rows
from store.tables.quotatable import DEFAULT
from store.tables.references import MessageRecord
from store.userarea import idxfile, writing
from store.userarea.idxfile import Contents, Head

READ_TRIES = 5              # to read a mailbox whose messages are purged at that moment
READ_OCTETS = 1 << 20       # of a message file at a time
PART = ".part"              # ends the name of a file that is not whole yet
MESSAGES_AT_A_TIME = 1000   # whose rows of messages.db, and cache records, are read together


@frozen
class SoFar:
    """How far it is: mailboxes of all, and what has been written."""

    mailboxes: int = 0
    of: int = 0
    messages: int = 0
    octets: int = 0


@frozen
class Form:
    """How an archive is written; `part` is after how many octets it ends with the mailbox that it is at, 0: never;
    `frame` how many octets are compressed together."""

    kind: str = ZSTD
    level: int = 3
    part: int = 0
    frame: int = FRAME_OCTETS


class _Gone(Exception):
    """A message file has been purged."""


@define(eq=False)
class Making:
    """Makes one archive. `catalogue` is then what it and those before it have; `findings` what could not be read."""

    store: Store
    scope: Scope
    previous: Catalogue | None = None
    progress: Callable[[SoFar], None] = lambda so_far: None
    findings: list[str] = field(factory=list)
    manifest: Manifest = field(init=False)
    catalogue: Catalogue = field(init=False)
    totals: Totals = field(init=False)
    _caches: int = field(default=0, init=False)         # members with cache records so far

    def __attrs_post_init__(self) -> None:
        previous = self.previous
        if previous is not None:
            if previous.manifest.store != self.store.mailboxes.identity:
                raise StoreError(Problem.BAD_NAME, "The earlier backup is not one of this store: make a full one")
            if not previous.manifest.scope.is_like(self.scope):
                raise StoreError(Problem.BAD_NAME, "The earlier backup is not of the same users: make a full one")
        self.manifest = Manifest(secrets.token_hex(8), int(time.time()), self.store.mailboxes.identity,
                                 f"onecopy {VERSION}", self.scope, previous.chain if previous else ())
        self.catalogue = Catalogue(self.manifest)
        for name in self.store.partitions:
            known = previous.serials.get(name) if previous is not None else None
            self.catalogue.serials[name] = Serials(dict(known.blocks)) if known is not None else Serials()
        self.totals = Totals()

    def write(self, put: Callable[[bytes], object], form: Form = Form()) -> None:
        """Write the archive. Raises StoreError, and what `put` raises."""
        frames = FrameWriter(put, form.kind, form.level, form.frame)
        tar = MemberWriter(frames)
        tar.add_octets(archive.MANIFEST, self.manifest.to_bytes(), mtime=self.manifest.time)
        self._write_lines(tar, archive.ACCOUNTS, self._accounts())
        self._write_lines(tar, archive.LIMITS, self._limits())
        frames.begin(fresh=True)
        complete, entries = True, self.entries()
        for at, entry in enumerate(entries):
            if form.part and frames.packed >= form.part and self.totals.mailboxes:
                complete = self._carry_over(entries[at:])
                break
            self._mailbox(tar, entry)
            self.progress(SoFar(at + 1, len(entries), self.totals.messages, frames.packed))
        self.catalogue.complete = complete
        frames.begin(fresh=True)
        copies = frames.packed
        tar.add_octets(archive.COPIES + archive.MANIFEST, self.manifest.to_bytes(), mtime=self.manifest.time)
        self._write_lines(tar, archive.COPIES + archive.ACCOUNTS, self._accounts())
        self._write_lines(tar, archive.COPIES + archive.LIMITS, self._limits())
        frames.begin(fresh=True)
        where = frames.packed
        tar.add_octets(archive.CATALOGUE, b"".join(self.catalogue.lines()), mtime=self.manifest.time)
        frames.begin(fresh=True)
        self.totals = evolve(self.totals, members=tar.count, catalogue=where, copies=copies, complete=complete,
                             digest=tar.all.hexdigest())
        tar.add_octets(archive.TOTALS, self.totals.to_bytes(), mtime=self.manifest.time)
        tar.end()

    def write_file(self, path: Path, form: Form = Form()) -> int:
        """Write the archive to a file, which has its name when it is whole and on disk; its octets. Raises StoreError,
        OSError."""
        with privatefiles.replacing(path, PART) as file:
            self.write(file.write, form)
            octets = file.tell()
        sync_folder(path.parent)
        return octets

    def entries(self) -> list[MailboxEntry]:
        scope, store = self.scope, self.store
        if scope.users is not None:
            return [entry for user in scope.users for entry in store.names(user)]
        return [entry for entry in store.mailboxes.all() if scope.partition in ("", entry.partition)]

    def _carry_over(self, entries: Sequence[MailboxEntry]) -> bool:
        """The archive is full: what is left comes in the next part; whether nothing is."""
        complete = True
        for entry in entries:
            now = self._now(entry)
            old = self.previous.mailboxes.get(str(entry.name)) if self.previous is not None else None
            if now is not None and (old is None or not old.is_same(now)):
                complete = False
            if now is not None and old is not None:
                self.catalogue.mailboxes[old.name] = old
        return complete

    # What is beside the mailboxes

    def _write_lines(self, tar: MemberWriter, folder: str, lines: Iterator[object]) -> None:
        number = 0
        while some := list(islice(lines, archive.ROWS_IN_MEMBER)):
            number += 1
            data = b"".join([json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in some])
            tar.add_octets(f"{folder}{number:04}.jsonl", data, mtime=self.manifest.time)

    def _accounts(self) -> Iterator[object]:
        directory = self.store.directory
        users = self.scope.users
        if users is None:
            users = tuple(account.user for account in list(directory.all())
                          if self.scope.partition in ("", account.partition))
            if not self.scope.partition:
                for domain, rules in list(directory.domains.all()):
                    yield {"domain": domain, "access": rules.access, **({"sieve": rules.sieve} if rules.sieve else {})}
        for user in users:
            row = directory.user(user)
            if row is not None:
                yield {"user": user, "row": row.to_bytes().decode(),
                       "subscriptions": subscribing.subscriptions(self.store, user)}

    def _limits(self) -> Iterator[object]:
        users = None if self.scope.users is None else set(self.scope.users)
        for name, partition in self.store.partitions.items():
            if self.scope.partition not in ("", name):
                continue
            domains = [(f"@{domain}", use) for domain, use in list(partition.quotas.domains())]
            for root, use in [*list(partition.quotas.all()), *domains]:
                owner = root.partition("/")[0]
                wanted = users is None or ("" if owner == "public" else owner) in users
                if wanted and ((use.octet_limit, use.message_limit) != (DEFAULT, DEFAULT) or "/" in root):
                    yield {"partition": name, "root": root, "octets": use.octet_limit, "messages": use.message_limit}

    # Mailboxes

    def _now(self, entry: MailboxEntry) -> Listed | None:
        """What a catalogue would say of the mailbox as it is now; None when it is gone."""
        try:
            entry, partition = self.store.whereabouts(entry)
        except StoreError:
            return None
        state = partition.any_state(entry.id)
        if state is None or self.store.known(entry.id) is None:
            return None
        return self._listed(writing.describe(self.store, partition, entry, 0, state, records=state.messages,
                                              readers=[]))

    def _listed(self, head: Head) -> Listed:
        facts = json.dumps([head.owner, head.created, head.special_use, head.quota_root, head.limits, head.acl,
                            head.annotations, head.keywords, head.subscriptions]).encode()
        return Listed(head.name, head.id, head.partition, head.uidvalidity, head.uidnext, head.highestmodseq,
                      head.records, blake2b(facts, digest_size=16).hexdigest(), self.manifest.id)

    def _mailbox(self, tar: MemberWriter, entry: MailboxEntry) -> None:
        old = self.previous.mailboxes.get(str(entry.name)) if self.previous is not None else None
        if old is not None:
            now = self._now(entry)
            if now is not None and old.is_same(now):
                self.catalogue.mailboxes[old.name] = old
                return
        for left in reversed(range(READ_TRIES)):
            try:
                entry, partition = self.store.whereabouts(entry)
                found = writing.view(self.store, partition, entry.id)
                if found is None or found[1].head.removed:
                    return                              # deleted meanwhile
                contents = self._messages(tar, partition, found[1], last=not left)
                break
            except _Gone:
                continue
            except StoreError as error:
                self.findings.append(f"{entry.name}: {error.detail or error.public}")
                if old is not None:
                    self.catalogue.mailboxes[old.name] = old        # better than none
                return
        head = contents.head
        path = writing.right_place(partition, entry, 0).relative_to(partition.folder)
        parts = [memoryview(part).cast("B") for part in idxfile.encode(contents)]
        digest = blake2b(digest_size=32)
        for part in parts:
            digest.update(part)
        tar.add(f"{archive.PARTITIONS}{partition.name}/{path}", sum(map(len, parts)), map(bytes, parts),
                {"digest": digest.hexdigest()}, mtime=head.written // 10**9)
        self.catalogue.mailboxes[head.name] = self._listed(head)
        self.totals = evolve(self.totals, mailboxes=self.totals.mailboxes + 1,
                             records=self.totals.records + head.records)

    def _messages(self, tar: MemberWriter, partition: Partition, contents: Contents, *, last: bool) -> Contents:
        """Write the message files that no archive has; the mailbox without the records whose messages are lost."""
        serials = self.catalogue.serials.setdefault(partition.name, Serials())
        lost: set[bytes] = set()
        rows = contents.rows[np.argsort(contents.rows["serial"], kind="stable")]
        rows = rows[np.append(True, rows["serial"][1:] != rows["serial"][:-1])] if len(rows) else rows
        due = [(serial, digest) for serial, digest in zip(rows["serial"].tolist(), rows["digest"].tolist(), strict=True)
               if serial not in serials]
        messages = octets = 0
        try:
            for at in range(0, len(due), MESSAGES_AT_A_TIME):
                some = due[at:at + MESSAGES_AT_A_TIME]
                known = partition.refs.figures(np.frombuffer(b"".join([digest for _, digest in some]), "V32"))
                self._cached(tar, partition, some, known["trace"])
                for (serial, digest), size, trace, now in zip(some, known["size"].tolist(), known["trace"].tolist(),
                                                           known["serial"].tolist(), strict=True):
                    try:
                        if now != serial:
                            raise StoreError(Problem.CORRUPT, detail="nothing is known of its message file")
                        record = partition.refs.complete(digest, MessageRecord(serial, 0, size, trace))
                        self._message(tar, partition, digest, record)
                        serials.add(serial)
                        messages, octets = messages + 1, octets + size
                    except StoreError as error:
                        left = partition.refs.find(digest, raw=True)
                        if not last and (left is None or not left.references):
                            raise _Gone from None
                        lost.add(digest)
                        self.findings.append(f"{contents.head.name}: message {digest.hex()}: "
                                             f"{error.detail or error.public}")
        finally:
            self.totals = evolve(self.totals, messages=self.totals.messages + messages,
                                 octets=self.totals.octets + octets)
        return _without(contents, lost) if lost else contents

    def _cached(self, tar: MemberWriter, partition: Partition, some: Sequence[tuple[int, bytes]], traces: NDArray[Any]
                ) -> None:
        """The cache records of these message files, whose serials ascend."""
        values = partition.serials.stored_cached([serial for serial, _ in some])
        if data := cachemembers.pack(values, [digest for _, digest in some], traces):
            self._caches += 1
            tar.add_octets(f"{archive.CACHED}{partition.name}/{self._caches:04}", data, mtime=self.manifest.time)

    def _message(self, tar: MemberWriter, partition: Partition, digest: bytes, record: MessageRecord) -> None:
        size, trace = record.size, record.trace
        if size <= READ_OCTETS:
            self._small(tar, partition, digest, record)
            return
        with partition.files.open(digest, record.serial, 0, size) as file:
            modified = int(os.fstat(file.fileno).st_mtime)
            whole, content = blake2b(digest_size=32), blake2b(digest_size=32)
            for at in range(0, size, READ_OCTETS):
                data = file.read(at, READ_OCTETS)
                content.update(data[max(0, trace - at):])
                if trace:
                    whole.update(data)
            if content.digest() != digest:
                raise StoreError(Problem.CORRUPT, detail="it is not what its digest says")
            said = {"digest": whole.hexdigest() if trace else digest.hex(), "trace": str(trace)}
            reading = _Reading(file)
            tar.add(message_name(partition.name, digest), size, reading.all(), said, mtime=modified)
        if reading.failed:
            raise StoreError(Problem.CORRUPT, detail="it cannot be read any more")

    def _small(self, tar: MemberWriter, partition: Partition, digest: bytes, record: MessageRecord) -> None:
        """Write a message file that is read at once, as nearly all are."""
        with partition.files.open(digest, record.serial, 0, record.size) as file:
            modified = int(os.fstat(file.fileno).st_mtime)
            data = file.read(0, record.size)
        trace = record.trace
        if blake2b(data[trace:] if trace else data, digest_size=32).digest() != digest:
            raise StoreError(Problem.CORRUPT, detail="it is not what its digest says")
        whole = blake2b(data, digest_size=32).hexdigest() if trace else digest.hex()
        tar.add(message_name(partition.name, digest), record.size, (data,), {"digest": whole, "trace": str(trace)},
                mtime=modified)


@define(eq=False)
class _Reading:
    """A message file that was read once without an error. What cannot be read now is zeros: the member that has begun
    must have its length."""

    file: MessageFile
    failed: bool = False

    def all(self) -> Iterator[bytes]:
        for at in range(0, self.file.size, READ_OCTETS):
            try:
                yield self.file.read(at, READ_OCTETS)
            except StoreError:
                self.failed = True
                yield bytes(min(READ_OCTETS, self.file.size - at))


def _without(contents: Contents, lost: set[bytes]) -> Contents:
    kept = np.array([digest not in lost for digest in contents.rows["digest"].tolist()], np.bool_)
    rows: Rows = contents.rows[kept]
    return evolve(contents, rows=rows, head=evolve(contents.head, records=len(rows)))

