"""Where rules come from, and which of them a mailbox has.

From the widest to the narrowest: those that are built in (settings `expire_trash`, `expire_junk`), the file that the
setting `expire_rules` names, the partition's, the domain's, the user's (which are those of its INBOX), and those of
each mailbox from the top of the hierarchy down. A rule of a mailbox is about it and all below it.

All rules that match a mailbox hold, so the strictest decides. If one of them is exclusive it holds alone: of several
the narrowest, of those of one file the last. Where a file cannot be read or has a fault nothing is expired in any
mailbox that it is for: a rule that is missing might be the one that keeps the mail.
"""

import os
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path

from attrs import define, field, frozen

from mboxlist import privatefiles
from mboxlist.annotations import MAX_VALUE, OURS
from mboxlist.engine.disk import replace_file, sync_folder
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, SEPARATOR, MailboxName, NameProblem
from store.errors import Problem, StoreError
from store.expiry.decide import DAY
from store.expiry.rules import MAX_FILE, Fault, Rule, parse
from store.mailboxes.authorization import annotate
from store.partition.partition import Partition
from store.store import Store

ANNOTATION = OURS + "expire"        # of a mailbox: its rules (RFC 5464 §3.2)
FILE = "expire.rules"                               # of a partition, in its folder
FOLDER = "expire"                                   # below the store's: DOMAIN.rules


class Scope(IntEnum):
    """For what a file of rules is; the greater, the narrower."""

    BUILT_IN = 0
    GLOBAL = 1
    PARTITION = 2
    DOMAIN = 3
    USER = 4
    MAILBOX = 5

    @property
    def word(self) -> str:
        return self.name.lower().replace("_", "-")


@frozen
class Source:
    """A file of rules: `of` is the partition, the domain, the user or the mailbox, `where` what stands before the line
    and column of a fault."""

    scope: Scope
    of: str
    where: str
    rules: tuple[Rule, ...]
    faults: tuple[Fault, ...] = ()

    def complaints(self) -> list[str]:
        return [f"{self.where}:{fault.line}:{fault.column}: {fault.text}" for fault in self.faults]


@frozen
class Applied:
    """A rule, with where it comes from."""

    rule: Rule
    source: Source

    @property
    def key(self) -> str:
        """The name of its counters."""
        words = (self.source.scope.word, *((self.source.of,) if self.source.of else ()), self.rule.name)
        return ":".join(words)


@frozen
class Choice:
    """The rules of one mailbox, those that weigh most last. `others` matched, and do not hold because of an exclusive
    one. `why_none` says why nothing is expired there whatever rules say; `exempt`: because that is wanted."""

    rules: tuple[Applied, ...] = ()
    others: tuple[Applied, ...] = ()
    why_none: str = ""
    exempt: bool = False


@define(eq=False)
class Rulebook:
    """All rules as they are now. What belongs to users and mailboxes is looked up as they come."""

    store: Store
    excluded: frozenset[str] = field(init=False, factory=frozenset)
    complaints: list[str] = field(init=False, factory=list)      # of the list of who is excluded
    _wide: list[Source] = field(init=False, factory=list)
    _partitions: dict[str, Source | None] = field(init=False, factory=dict)
    _domains: dict[str, Source | None] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        settings = self.store.settings
        self._wide.append(built_in(settings.expire_trash, settings.expire_junk))
        if settings.expire_rules is not None:
            source = read(Scope.GLOBAL, "", settings.expire_rules, missing_ok=False)
            assert source is not None
            self._wide.append(source)
        if settings.expire_exclude is not None:
            self._exclude(settings.expire_exclude)

    def _exclude(self, path: Path) -> None:
        text, fault = _text(path)
        found: set[str] = set()
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if line and not line.startswith("#"):
                user = self.store.directory.user_id(line)
                found.add(user)
                if len(line.split()) > 1 or not user:
                    self.complaints.append(f"{path}:{number}:1: not a user id")
        if fault:
            self.complaints.append(f"{path}:1:1: {fault}")
        self.excluded = frozenset(found)

    def choice(self, entry: MailboxEntry) -> Choice:
        if self.complaints:
            return Choice(why_none=self.complaints[0])
        if entry.name.owner and entry.name.owner in self.excluded:
            return Choice(why_none=f"{entry.name.owner} is on the list of {self.store.settings.expire_exclude}",
                          exempt=True)
        sources = list(self.sources(entry))
        faulty = next((source for source in sources if source.faults), None)
        if faulty is not None:
            return Choice(why_none=faulty.complaints()[0])
        return chosen(sources, str(entry.name), entry.special_use)

    def sources(self, entry: MailboxEntry) -> Iterator[Source]:
        """The files that are for a mailbox, the widest first."""
        yield from self._wide
        if entry.partition not in self._partitions:
            partition = self.store.partitions.get(entry.partition)
            self._partitions[entry.partition] = None if partition is None else read(
                Scope.PARTITION, partition.name, partition_file(partition))
        domain = self._domain(entry.name.owner)
        if domain and domain not in self._domains:
            self._domains[domain] = read(Scope.DOMAIN, domain, domain_file(self.store, domain))
        for found in (self._partitions[entry.partition], self._domains.get(domain)):
            if found is not None:
                yield found
        yield from _of_mailboxes(self.store, entry.name)

    def _domain(self, owner: str) -> str:
        return (owner.partition("@")[2] or self.store.settings.default_domain) if owner else ""

    def all(self) -> Iterator[Source]:
        """Every file of rules there is."""
        yield from self._wide
        for partition in self.store.partitions.values():
            if (source := read(Scope.PARTITION, partition.name, partition_file(partition))) is not None:
                yield source
        for path in sorted((self.store.root / FOLDER).glob("*.rules")):
            if (source := read(Scope.DOMAIN, path.stem, path)) is not None:
                yield source
        found = (self.store.mailboxes.find_id(MailboxId(each)) for each in list(
            self.store.mailboxes.annotations.mailboxes()))
        for name in sorted(entry.name for entry in found if entry is not None):
            if (source := _of_mailbox(self.store, name)) is not None:
                yield source


def chosen(sources: Iterable[Source], name: str, special_use: str | None) -> Choice:
    """The rules of these files that the mailbox has."""
    matched = [Applied(rule, source) for source in sources for rule in source.rules if rule.matches(name, special_use)]
    alone = next((one for one in reversed(matched) if one.rule.exclusive), None)
    if alone is None:
        return Choice(tuple(matched))
    return Choice((alone,), tuple(one for one in matched if one is not alone))


def built_in(trash: int, junk: int) -> Source:
    """The rules that are there out of the box; 0 days: none."""
    text = "".join(f"{use}.specialuse: \\{use}\n{use}.savedays: {-(-seconds // DAY)}\n"
                   for use, seconds in (("Trash", trash), ("Junk", junk)) if seconds)
    return Source(Scope.BUILT_IN, "", "built-in", parse(text)[0])


def partition_file(partition: Partition) -> Path:
    return partition.folder / FILE


def domain_file(store: Store, domain: str) -> Path:
    """Where the rules of a domain are (in canonical form)."""
    return store.root / FOLDER / f"{domain}.rules"


def read(scope: Scope, of: str, path: Path, *, missing_ok: bool = True) -> Source | None:
    """The rules of a file; None when there is none. One that cannot be read has a fault."""
    if missing_ok and not os.path.lexists(path):
        return None
    text, fault = _text(path)
    rules, faults = parse(text)
    return Source(scope, of, str(path), rules, (*((Fault(1, 1, fault),) if fault else ()), *faults))


def _text(path: Path) -> tuple[str, str]:
    """What is in a file, and what is wrong with that."""
    try:
        with privatefiles.open_file(path, "rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        return "", error.strerror or str(error)
    if len(data) > MAX_FILE:
        return "", f"larger than {MAX_FILE} octets"
    try:
        return data.decode(), ""
    except UnicodeDecodeError as error:
        return "", f"not UTF-8, at octet {error.start}"


def _of_mailboxes(store: Store, name: MailboxName) -> Iterator[Source]:
    """The rules of the user, and of the mailboxes down to that one."""
    levels = name.path.split(SEPARATOR)
    paths = [SEPARATOR.join(levels[:depth + 1]) for depth in range(len(levels))]
    if name.owner and paths[0] != INBOX:
        paths.insert(0, INBOX)
    for path in paths:
        if (source := _of_mailbox(store, MailboxName(name.owner, path))) is not None:
            yield source


def _of_mailbox(store: Store, name: MailboxName) -> Source | None:
    entry = store.mailboxes.find(name)
    value = None if entry is None else store.mailboxes.annotations.get(entry.id, ANNOTATION)
    if value is None:
        return None
    rules, faults = parse(value.decode("utf-8", "replace"), True)
    if name.is_inbox():
        return Source(Scope.USER, name.owner, f"user {name.owner}", rules, faults)
    return Source(Scope.MAILBOX, str(name), f"mailbox {name}", rules, faults)


# Setting them

def set_file(path: Path, text: str | None, *, change: bool = True) -> None:
    """Have a file of rules, whole and on disk, or (None) have none; without `change` only look at them.

    Raises StoreError LIMIT, OSError.
    """
    _refuse_faulty(text, everywhere=False)
    if not change:
        return
    if text is None:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_folder(path.parent)
        return
    privatefiles.make_folder(path.parent, exist_ok=True)
    replace_file(path, text.encode())
    sync_folder(path.parent.parent)


def set_mailbox(store: Store, entry: MailboxEntry, text: str | None, *, change: bool = True) -> None:
    """Have these rules for a mailbox and all below it; of an INBOX they are for all that the user has. Durable.

    Raises StoreError LIMIT, NO_MAILBOX.
    """
    _refuse_faulty(text, everywhere=True)
    if text is not None and len(text.encode()) > MAX_VALUE:
        raise StoreError(Problem.LIMIT, f"the rules are longer than {MAX_VALUE} octets")
    if change:
        annotate(store, entry, ANNOTATION, None if text is None else text.encode())


def _refuse_faulty(text: str | None, *, everywhere: bool) -> None:
    faults = parse(text, everywhere)[1] if text is not None else ()
    if faults:
        raise StoreError(Problem.LIMIT, f"line {faults[0].line}, column {faults[0].column}: {faults[0].text}")


def target_of(entry: MailboxEntry, text: str) -> MailboxName:
    """The mailbox into which a rule files what it hits. Raises StoreError BAD_NAME, NO_PERMISSION."""
    try:
        name = MailboxName.from_client(entry.name.owner, text)
    except NameProblem as problem:
        raise StoreError(Problem.BAD_NAME, f"{text}: {problem}") from problem
    if name.owner not in ("", entry.name.owner):
        raise StoreError(Problem.NO_PERMISSION, f"{text}: another user's mailbox")
    return name
