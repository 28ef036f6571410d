"""What is left of a store in `messages/` and `users/`: which mailboxes there are, and what a message file holds.

Nothing here needs a database, and nothing is changed.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from attrs import evolve, frozen

from mboxlist.names import INBOX, PUBLIC, SEPARATOR, MailboxName, NameProblem
from store.errors import StoreError
from store.findings import RESTORE, Finding
from store.message.cacherecord import CachedMessage, render
from store.message.mime import parse
from store.partition.messagefiles import MID_OCTETS, MessageFile, MessageFiles
from store.tables.references import MessageRecord
from store.userarea import idxfile
from store.userarea.idxfile import NAME, Head, Remains

PIECE = 1 << 20                 # octets of a message that are read at a time
TRACE_LIMIT = 256 << 10         # octets at the head of a file in which its trace header may end
TRACE_FIELDS = 40               # header fields that it may have
#: What a delivery puts in front, line by line: a message may begin with lines that would continue the last of them.
_OWN = re.compile(rb"Return-Path: <[^\n]*\nReceived: from [^\n]*\n\tby [^\n]*LMTP[^\n]*\n\t[^\n]*\n")
_FIELD = re.compile(rb"[^\x00-\x20:\x7f]+[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*")


@frozen
class Source:
    """A mailbox that is to be made anew: where its file is, and what it will be called. `found` is not the head of the
    file where that is lost."""

    partition: str
    path: Path
    head: Head
    name: MailboxName
    found: bool = True


def sources(folder: Path, findings: list[Finding]) -> Iterator[Source]:
    """What each `store.idx` in the user area of a partition tells of a mailbox. What cannot be read goes to `findings`.
    """
    for parent, folders, names in os.walk(folder / "users"):
        folders.sort()
        if NAME in names:
            source, _ = read_source(folder, Path(parent) / NAME, findings)
            if source is not None:
                yield source


def read_source(folder: Path, path: Path, findings: list[Finding]) -> tuple[Source | None, Remains | None]:
    """The mailbox whose file that is, and what is left of it; None when there is no telling, or it cannot be read.

    A file whose head is lost has the id 1, and the name that its place gives it. What is wrong goes to `findings`.
    """
    where = str(path.relative_to(folder))
    try:
        left = idxfile.read_what_is_left(path)
    except StoreError as error:
        findings.append(Finding(f"cannot be read: {error}", where, RESTORE))
        return None, None
    findings += [Finding(text, where, RESTORE) for text in left.findings]
    name = _name(left.head) or name_at(folder / "users", path)
    if name is None or (left.head is None and not len(left.rows)):
        findings.append(Finding("there is no telling which mailbox it is of", where, RESTORE))
        return None, left
    if left.head is not None:
        return Source(folder.name, path, left.head, name), left
    rows = left.rows
    head = Head(id=1, name=str(name), owner=name.owner, partition=folder.name, uidvalidity=0,
                uidnext=int(rows["uid"].max()) + 1, highestmodseq=1)
    return Source(folder.name, path, head, name, found=False), left


def _name(head: Head | None) -> MailboxName | None:
    try:
        return MailboxName.parse(head.name) if head is not None else None
    except NameProblem:
        return None


def name_at(users: Path, path: Path) -> MailboxName | None:
    """The name of the mailbox whose file `path` would be, below a folder `users`; None for a deleted one's, and for
    what is no mailbox's. (Whether it is in the folder that the hash of its owner says is not looked at.)"""
    levels = path.parent.relative_to(users).parts
    owner, rest = ("", levels[1:]) if levels[:1] == (PUBLIC[:-1],) else ("".join(levels[2:3]), levels[3:])
    try:
        return MailboxName.parse(str(MailboxName(owner, SEPARATOR.join(rest) or (INBOX if owner else ""))))
    except NameProblem:
        return None


def choose(found: Iterable[Source], findings: list[Finding]) -> list[Source]:
    """One for each mailbox, in order of id: of files with the same id the one that was written last. Ids and names that
    another mailbox has are exchanged."""
    chosen: list[Source] = []
    ids: dict[int, Source] = {}
    names: set[MailboxName] = set()
    found = sorted(found, key=lambda source: (source.found, source.head.written), reverse=True)
    last = max((source.head.id for source in found if source.found), default=0)
    for source in found:
        head, other = source.head, ids.get(source.head.id)
        if source.found and other is not None and (
                head.store == other.head.store or head.uidvalidity == other.head.uidvalidity):
            continue                            # an older file of the same mailbox
        if other is not None or not source.found:
            last += 1
            source = evolve(source, head=evolve(head, id=last))
        if not head.removed:
            name = source.name
            if name in names:
                name = free_name(name, source.head.id)
                findings.append(Finding(f"another mailbox has this name, too: this one is {name} now", str(source.name),
                                        "mailbox rename"))
                source = evolve(source, name=name)
            names.add(name)
        ids[source.head.id] = source
        chosen.append(source)
    return sorted(chosen, key=lambda source: source.head.id)


def free_name(name: MailboxName, mailbox: int) -> MailboxName:
    """A name beside it that no other mailbox has."""
    levels = name.path.split(SEPARATOR)
    return MailboxName(name.owner, SEPARATOR.join([*levels[:-1], f"{levels[-1][:50]} ({mailbox})"]))


# Message files

def content(path: Path, digest: bytes, likely: Iterable[int]) -> tuple[CachedMessage, int] | None:
    """The cache record of a message file, in which stands the length of its trace header, and the octets of the file.

    None when no part of the file has that digest. `likely` is where the content may begin. Raises OSError.
    """
    found = trace_of(path, digest, likely)
    if found is None:
        return None
    start, size = found
    with MessageFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), start, size - start) as file:
        return render(parse(file.read, file.size), digest, start), size


def trace_of(path: Path, digest: bytes, likely: Iterable[int]) -> tuple[int, int] | None:
    """The length of the trace header of a message file, and the octets of the file.

    None when no part of the file has that digest. `likely` is where the content may begin. Raises OSError.
    """
    with MessageFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0, path.stat().st_size) as file:
        size = file.size
        head = file.read(0, min(TRACE_LIMIT, size))
        for start in _unique((*likely, *starts(head))):
            if start <= size and _digest(file.read, start, size) == digest:
                return start, size
    return None


def seen(files: MessageFiles, digest: bytes, record: MessageRecord) -> MessageRecord:
    """What is known of a message file, with what it says itself. One that cannot be read has no trace header."""
    path = files.locate(digest, record.serial)
    try:
        found = None if path is None else trace_of(path, digest, ())
    except (OSError, StoreError):
        found = None
    return evolve(record, trace=0) if found is None else evolve(record, trace=found[0], size=found[1])


def likely_digests(path: Path) -> list[bytes]:
    """The digests that a message file may have, the likeliest first. Raises OSError."""
    with MessageFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0, path.stat().st_size) as file:
        likely = list(_unique(starts(file.read(0, min(TRACE_LIMIT, file.size)))))
        return [_digest(file.read, start, file.size) for start in likely[:1 + (likely[0] != 0)]]


def _unique(numbers: Iterable[int]) -> Iterator[int]:
    return iter(dict.fromkeys(numbers))


def starts(head: bytes) -> Iterator[int]:
    """Where the content may begin that a file with this head holds, the likely places first.

    A trace header is Return-Path and one Received field (RFC 5321 §4.4); what has none has neither or only Received.
    """
    own = _OWN.match(head)
    if own is not None:
        yield own.end()
    elif head[:12].lower() != b"return-path:":
        yield 0
    ends: list[int] = []
    at = 0
    while len(ends) < TRACE_FIELDS and (field := _FIELD.match(head, at)):
        at = field.end()
        ends.append(at)
    if head[:12].lower() == b"return-path:" and len(ends) > 1:
        yield ends[1]
    yield 0
    yield from ends


def _digest(read: Callable[[int, int], bytes], start: int, size: int) -> bytes:
    digest = hashlib.blake2b(digest_size=MID_OCTETS)
    while data := read(start, min(PIECE, size - start)):
        digest.update(data)
        start += len(data)
    return digest.digest()
