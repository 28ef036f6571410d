"""What is left of a store in `messages/` and `users/`: which mailboxes there are, and what a message file holds.

Nothing here needs a database, and nothing is changed.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import evolve, frozen

from mboxlist.names import INBOX, PUBLIC, SEPARATOR, MailboxName, NameProblem
from store.errors import StoreError
from store.userarea import idxreading
from store.userarea.idxfile import NAME, Head
from store.userarea.idxreading import Salvaged
from store.values import RESTORE, Finding, Repair


@frozen
class Source:
    """A mailbox that is to be rebuilt: where its file is, and what it will be called. `found` is not the head of the
    file where that is lost."""

    partition: str
    path: Path
    head: Head
    name: MailboxName
    found: bool = True


def sources(folder: Path, findings: list[Finding], *, heads: bool = False) -> Iterator[Source]:
    """What each `store.idx` in the user area of a partition tells of a mailbox. What cannot be read goes to `findings`.
    With `heads` records are read only of a file whose head is lost."""
    for parent, folders, names in os.walk(folder / "users"):
        folders.sort()
        if NAME in folders:
            findings.append(Finding("a folder is where a file belongs", os.path.relpath(Path(parent, NAME), folder),
                                    Repair.OWNER.of()))
            folders.remove(NAME)
        if NAME in names:
            path = Path(parent) / NAME
            source = (_by_head(folder, path) if heads else None) or read_source(folder, path, findings)[0]
            if source is not None:
                yield source


def _by_head(folder: Path, path: Path) -> Source | None:
    with contextlib.suppress(StoreError, ValueError):
        head = idxreading.read_head(path)
        return Source(folder.name, path, head, MailboxName.parse(head.name))
    return None


def read_source(folder: Path, path: Path, findings: list[Finding]) -> tuple[Source | None, Salvaged | None]:
    """The mailbox whose file that is, and what is left of it; None when there is no telling, or it cannot be read.

    A file whose head is lost has the id 1, and the name that its place gives it. What is wrong goes to `findings`.
    """
    where = str(path.relative_to(folder))
    try:
        left = idxreading.read_what_is_left(path)
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
                name = free_name(name, source.head.id, findings)
                source = evolve(source, name=name)
            names.add(name)
        ids[source.head.id] = source
        chosen.append(source)
    return sorted(chosen, key=lambda source: source.head.id)


def free_name(name: MailboxName, mailbox: int, findings: list[Finding]) -> MailboxName:
    """A name beside one that another mailbox has, too; that is a finding."""
    levels = name.path.split(SEPARATOR)
    free = MailboxName(name.owner, SEPARATOR.join([*levels[:-1], f"{levels[-1][:50]} ({mailbox})"]))
    findings.append(Finding(f"another mailbox has this name, too: this one is {free} now", str(name),
                            Repair.RENAME.of(free.owner or PUBLIC, free.path)))
    return free
