"""Mailboxes of a source are imported into the store: what is missing comes, flags follow, and both sides are compared.

What is there already is looked up each time: by UID where the mailbox has its UIDVALIDITY from there, else by size,
date and Message-ID, or by content. So nothing is written down in between, and whatever is cut off can be done again.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import asdict, define, evolve, field, frozen

from mboxlist.entry import MailboxEntry
from mboxlist.names import MailboxName, NameProblem
from pop3 import uniqueids
from store.errors import Problem, StoreError
from store.filtering.sievesettings import Settings as SieveSettings
from store.mailboxes import uidllist
from store.mailboxes.flagchanges import update_flags
from store.migration import messageimport
from store.migration.uidvalidity import adopt, may_adopt, rewind
from store.partition.messagereading import MID_OCTETS
from store.partition.transactions import WriteTxn
from store.rebuild.desired import new_mailbox
from store.rebuild.liveloader import LiveLoader
from store.rebuild.loader import tidy
from store.store import Store
from store.tables import uidls
from store.tables.state import Mailbox
from store.values import FlagAction, Flags
from tools.transfer import besidesmail
from tools.transfer.alreadyhere import Here
from tools.transfer.sourcevalues import Box, Mail, OutOfTime, Source, Unreadable, UserTime, Warn, batches

SLICE_MESSAGES, SLICE_OCTETS = 500, 64 << 20    # messages that come in one go, and what they may have together


@frozen(kw_only=True)
class Choices:
    """How it is done. `uidl_format`: what POP3 clients know the messages of INBOX by there, where nothing else says it;
    `keep_flags`: of messages that are here the flags stay; `acl`: rights come along; `sieve`: so do Sieve scripts, as
    far as these settings let them; `limits`: so do the limits of quota."""

    dry_run: bool = False
    keep_flags: bool = False
    acl: bool = True
    subscriptions: bool = True
    annotations: bool = True
    sieve: SieveSettings | None = None
    limits: bool = False
    uidl_format: str | None = None


@define
class Imported:
    """What has become of a mailbox. `there` and `here`: messages on both sides at the end; `missing` ones are there and
    not here; of those that are `differing` flags, size or date differ; `removed` were here and have been expunged here;
    `only_here` came another way, or are no more there."""

    mailbox: str
    there: int = 0
    here: int = 0
    brought: int = 0
    octets: int = 0
    flags_changed: int = 0
    removed: int = 0
    only_here: int = 0
    missing: int = 0
    differing: int = 0
    uids: str = ""
    problem: str = ""

    def facts(self) -> dict[str, object]:
        """For a table or JSON."""
        return asdict(self)

    @property
    def well(self) -> bool:
        """Whether both sides are the same, as far as they can be."""
        return not (self.missing or self.differing or self.problem)


@define(eq=False)
class MailImport:
    """Brings the mailboxes of a source to an owner ("": public ones). `progress` takes the mailbox, and how many of its
    messages have been looked at, out of how many."""

    store: Store
    owner: str
    partition: str
    source: Source
    warn: Warn
    choices: Choices = Choices()
    progress: Callable[[str, int, int], None] = lambda mailbox, done, total: None
    time: UserTime = field(factory=UserTime)
    made: int = field(default=0, init=False)        # mailboxes that would have been made in a dry run

    def all(self) -> Iterator[Imported]:
        """One mailbox after the other; what is wrong with one stops no other. Raises StoreError DISK_FULL and the like,
        Unreadable when the source cannot be read at all."""
        for box in self.source.boxes():
            result = Imported(box.name)
            self.time.left()
            try:
                self._take(box, result)
            except OutOfTime as problem:
                self.warn(f"{box.name}: {problem}")
                result.problem = str(problem)
                yield result
                raise
            except Unreadable as problem:
                result.problem = str(problem)
            except StoreError as error:
                if error.problem in (Problem.DISK_FULL, Problem.READ_ONLY, Problem.UNAVAILABLE):
                    raise
                result.problem = error.public or str(error)
            if result.problem:
                self.warn(f"{box.name}: {result.problem}")
            yield result
        if self.owner and self.choices.subscriptions and not self.choices.dry_run:
            besidesmail.subscribe(self.store, self.owner, self.source, self.warn)

    def _take(self, box: Box, result: Imported) -> None:
        """Raises Unreadable, StoreError."""
        try:
            name = MailboxName.from_client(self.owner, box.name if self.owner else f"public/{box.name}")
            if name.owner != self.owner:
                raise NameProblem("It would be another user's mailbox")
        except NameProblem as problem:
            raise Unreadable(str(problem)) from problem
        box = self.source.opened(box)
        mails = self.source.mails(box, self.warn)
        result.there = len(mails)
        entry = self.store.mailboxes.find(name)
        if entry is None:
            self._require_room()
            entry = None if self.choices.dry_run else self._make(name, box)
        elif entry is not None and box.uidvalidity not in (0, entry.uidvalidity):
            if not self.choices.dry_run:
                entry = adopt(self.store, entry, box.uidvalidity)
            elif may_adopt(self.store, entry, box.uidvalidity):
                entry = None            # it would be as one that is made
        work = _MailboxImport(self, box, entry, result)
        work.add_missing(mails)
        if entry is not None and not self.choices.dry_run:
            if self.choices.acl and box.acl is not None:
                besidesmail.share(self.store, entry, box.acl, self.warn)
            if self.choices.annotations:
                besidesmail.annotate(self.store, entry, box.annotations, self.warn)
            work.compare(mails)

    def _make(self, name: MailboxName, box: Box) -> MailboxEntry:
        """An empty mailbox, with the UIDVALIDITY that it has there if that can be."""
        used = {entry.special_use for entry in self.store.names(self.owner)}
        use = box.special_use if box.special_use not in used else None
        LiveLoader(self.store.partition(self.partition), self.store).load([
            new_mailbox(name, uidvalidity=box.uidvalidity, special_use=use)])
        return self.store.entry(name)

    def _require_room(self) -> None:
        """Raises StoreError LIMIT where the owner cannot have one more."""
        if len(self.store.names(self.owner)) + self.made >= self.store.settings.mailbox_limit:
            raise StoreError(Problem.LIMIT, "There are too many mailboxes")
        self.made += self.choices.dry_run


@define(eq=False)
class _MailboxImport:
    """One mailbox on its way."""

    job: MailImport
    box: Box
    entry: MailboxEntry | None
    result: Imported
    pairs: dict[Mail, int] = field(factory=dict, init=False)    # messages there, and their UIDs here
    gone: set[Mail] = field(factory=set, init=False)            # expunged here
    done: int = field(default=0, init=False)
    store: Store = field(init=False)
    dry_run: bool = field(init=False)
    keeps: bool = field(init=False)                             # the UIDs that they have there

    def __attrs_post_init__(self) -> None:
        self.store, self.dry_run = self.job.store, self.job.choices.dry_run
        validity = self.box.uidvalidity
        self.keeps = bool(validity) and (self.entry is None or self.entry.uidvalidity == validity)
        self.result.uids = "kept" if self.keeps else "new" if validity else ""

    def add_missing(self, mails: Sequence[Mail]) -> None:
        """Have here what is missing, and flags as they are there."""
        view = self.store.open_mailbox(self.entry) if self.entry is not None else None
        here = Here(self.store, view)
        if self.keeps:
            self.pairs |= here.by_uid(mails)
            self.gone = self._expunged([mail for mail in mails if mail not in self.pairs], view)
        left = self._left(mails)
        self.pairs |= here.by_message_id(self.job.source, self.box, left)
        left = self._left(left)
        self._tell(len(mails) - len(left), len(mails))
        if self.dry_run:
            self._count(mails, left, here)
        else:
            self._import(left, here, len(mails))
        self.result.removed = len(self.gone)
        if view is not None and not self.job.choices.keep_flags:
            self._change_flags(view)
        if self.entry is not None and not self.dry_run:
            self._import_uidls()
            if self.keeps:
                self._reach(self.box.uidnext)

    def _left(self, mails: Sequence[Mail]) -> list[Mail]:
        return [mail for mail in mails if mail not in self.pairs and mail not in self.gone]

    def _expunged(self, mails: Sequence[Mail], view: Mailbox | None) -> set[Mail]:
        """Those that have been here under their UID, and were expunged."""
        if view is None or self.entry is None or not mails:
            return set()
        uids = self.store.vanished(self.entry, view.state.log_since)
        vanished = set(uids.tolist()) if uids is not None else set()
        return {mail for mail in mails if mail.uid in vanished}

    def _count(self, mails: Sequence[Mail], left: Sequence[Mail], here: Here) -> None:
        """What would come, and what would be here then."""
        sizes = {mail: mail.size for mail in left if mail.size >= 0 and not len(here)}      # and need not be read
        for mail, data in self._contents([mail for mail in left if mail not in sizes]):
            digest, size = hashlib.blake2b(digest_size=MID_OCTETS), 0
            try:
                for octets in data:
                    digest.update(octets)
                    size += len(octets)
            except OSError as error:
                self.job.warn(f"{mail.where}: {error.strerror or error}")
                continue
            uid = here.by_content(mail, digest.digest(), size)
            if uid:
                self.pairs[mail] = uid
            else:
                sizes[mail] = size
        rows = len(here) + len(self.pairs)
        for mail in self._left(mails):
            if mail in sizes and sizes[mail] <= self.store.settings.message_limit:
                self.result.brought += 1
                self.result.octets += sizes[mail]
                continue
            if mail in sizes:
                self._warn_too_big(mail)
            self.result.missing += 1
            self.job.warn(f"{mail.where}: missing here")
        self.result.here, self.result.only_here = rows + self.result.brought, len(here)

    def _warn_too_big(self, mail: Mail) -> None:
        self.job.warn(f"{mail.where}: it has more than {self.store.settings.message_limit} octets "
                      "(store.message_limit)")

    def _contents(self, mails: Sequence[Mail]) -> Iterator[tuple[Mail, Iterable[bytes]]]:
        return self.job.source.read(self.box, mails, self.job.warn)

    def _import(self, left: Sequence[Mail], here: Here, total: int) -> None:
        assert self.entry is not None
        partition = self.store.partition_of(self.entry)
        contents = messageimport.Contents(partition)
        try:
            for some in batches(left, SLICE_MESSAGES, SLICE_OCTETS):
                self.job.time.left()
                known: dict[Mail, messageimport.Known] = {}
                for mail, data in self._contents(some):
                    found = self._store(contents, mail, data)
                    if found is None:
                        continue
                    uid = here.by_content(mail, found.digest, found.size)
                    if uid:
                        self.pairs[mail] = uid
                    else:
                        known[mail] = found
                        self.result.octets += found.size
                    self._tell(1, total)
                contents.keep()
                self._add(contents, known)
                tidy(partition)
        finally:
            contents.drop()

    def _store(self, contents: messageimport.Contents, mail: Mail, data: Iterable[bytes]) -> messageimport.Known | None:
        """The message on disk, or soon; None when it cannot be taken. Raises StoreError."""
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for octets in data:
                size += len(octets)
                yield octets

        try:
            digest = contents.store(counted(), limit=self.store.settings.message_limit)
        except StoreError as error:
            if error.problem is Problem.CORRUPT:
                self.job.warn(f"{mail.where}: {error}")
            elif error.problem is Problem.TOO_BIG:
                self._warn_too_big(mail)
            else:
                raise
            return None
        except OSError as error:            # of the source: those of the store are StoreErrors
            self.job.warn(f"{mail.where}: {error.strerror or error}")
            return None
        return messageimport.Known(digest, size, mail.received, mail.flags, mail.uid if self.keeps else 0)

    def _add(self, contents: messageimport.Contents, known: dict[Mail, messageimport.Known]) -> None:
        assert self.entry is not None
        rows, keywords, had = messageimport.new_rows(contents, list(known.values()))
        if not len(rows):
            return
        if self.keeps and int(rows["uid"][0]) < self.store.status(self.entry).uidnext:
            rewind(self.store, self.entry, int(rows["uid"].min()))
        added = messageimport.add(contents.partition, self.entry, new_mailbox(self.entry.name, rows, keywords),
                                  all_of_them=True)
        mails = [mail for mail, there in zip(known, had, strict=True) if there]
        self.pairs.update((mails[at], uid) for at, uid in added.uids.items())
        self.result.brought += len(added.uids)

    def _change_flags(self, before: Mailbox) -> None:
        """Of messages that were here already."""
        wanted: dict[Flags, list[int]] = defaultdict(list)
        rows = {int(uid): (int(flags), int(bits)) for uid, flags, bits in zip(
            *(before.rows[name].tolist() for name in ("uid", "flags", "keywords")), strict=True)}
        for mail, uid in self.pairs.items():
            if uid in rows and not _same_flags(mail.flags, rows[uid][0], before.keyword_names(rows[uid][1])):
                wanted[mail.flags].append(uid)
        for flags, uids in wanted.items():
            self.result.flags_changed += len(uids)
            if self.dry_run:
                continue
            assert self.entry is not None
            try:
                update_flags(self.store, self.entry, uids, FlagAction.REPLACE, flags)
            except StoreError as error:
                self.job.warn(f"{self.box.name}: UIDs {uids[:5]}: {error.public}")
        if wanted and self.entry is not None and not self.dry_run:
            self.store.partition_of(self.entry).flush()

    def _import_uidls(self) -> None:
        """The unique-ids that POP3 clients know messages by."""
        assert self.entry is not None
        wanted = {uid: mail.uidl for mail, uid in self.pairs.items() if mail.uidl}
        form = self.job.choices.uidl_format
        if form and self.entry.name.is_inbox() and self.box.uidvalidity:
            names = uniqueids.UniqueIds(uniqueids.parse(form), self.box.uidvalidity)
            wanted = {uid: names.of(mail.uid) for mail, uid in self.pairs.items() if mail.uid} | wanted
        known = self.store.uidls(self.entry) if wanted else {}
        taken, new = set(known.values()), dict[int, bytes]()
        for uid, name in wanted.items():
            if uid not in known and name not in taken and uidls.is_legal(name):
                taken.add(name)
                new[uid] = name
        if new:
            uidllist.give(self.store, self.entry, new)
            self.store.partition_of(self.entry).flush()

    def _reach(self, uidnext: int) -> None:
        """Give out no UID that has been given out there (RFC 3501 §2.3.1.1)."""
        assert self.entry is not None
        entry = self.entry

        def work(txn: WriteTxn) -> None:
            state = txn.state(entry.id)
            if state.uidnext < uidnext:
                modseq = state.highestmodseq + 1
                txn.set_state(entry.id, state, evolve(state, uidnext=uidnext, highestmodseq=modseq, changed=modseq))

        self.store.transact(entry, work)
        self.store.partition_of(entry).flush()

    def compare(self, mails: Sequence[Mail]) -> None:
        """What both sides have now, as it is on disk."""
        assert self.entry is not None
        view = self.store.open_mailbox(self.store.entry(self.entry.name))
        names = ("uid", "size", "received", "flags", "keywords")
        rows = {uid: rest for uid, *rest in zip(*(view.rows[name].tolist() for name in names), strict=True)}
        for mail in mails:
            if mail in self.gone:
                continue
            row = rows.pop(self.pairs.get(mail, 0), None)
            if row is None:
                self.result.missing += 1
                self.job.warn(f"{mail.where}: missing here")
                continue
            size, date, flags, bits = row
            same = _same_flags(mail.flags, flags, view.keyword_names(bits)) or self.job.choices.keep_flags
            if not same or date != mail.received.seconds or mail.size not in (-1, size):
                self.result.differing += 1
                what = [name for name, wrong in (("flags", not same), ("date", date != mail.received.seconds),
                                                 ("size", mail.size not in (-1, size))) if wrong]
                self.job.warn(f"{mail.where}: other {', '.join(what)} here (UID {self.pairs[mail]})")
        self.result.here, self.result.only_here = len(view.rows), len(rows)

    def _tell(self, more: int, total: int) -> None:
        self.done += more
        self.job.progress(self.box.name, self.done, total)


def _same_flags(flags: Flags, system: int, keywords: Iterable[str]) -> bool:
    return int(flags.system) == system and {word.lower() for word in flags.keywords} == {
        word.lower() for word in keywords}
