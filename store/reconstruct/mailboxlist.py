"""The list of mailboxes rebuilt, where it alone is lost: the partitions have their databases.

Which mailboxes there are, with their ids, UIDVALIDITYs and messages, the partitions say; their names, ACLs, special
uses and annotations, and the owners' subscriptions, `store.idx`. A mailbox that has none (it was made in the last
minute) gets a name that says so, with the owner that its quota root tells. Accounts come from whoever has kept them:
see `rebuild`.

The list is made beside its place, and one rename makes it the store's: an interrupted rebuild starts again.
"""

import shutil
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from attrs import define, evolve, field

from mboxlist import privatefiles
from mboxlist.engine.disk import sync_folder
from mboxlist.engine.kv import NeedsRecovery
from mboxlist.engine.transact import Failure, transact
from mboxlist.entry import MailboxEntry, MailboxId
from mboxlist.names import INBOX, PUBLIC, SEPARATOR, MailboxName
from mboxlist.table import MailboxList
from store.accounts.builtin import BuiltinDirectory, User
from store.changes import News
from store.errors import Problem, StoreError, disk_problem
from store.mailboxes.deletion import DOOMED
from store.opening import LIST_CACHE
from store.partition.marks import absent, mark_behind, only_elsewhere
from store.partition.partition import Partition
from store.partition.processes import ProcessRegistry, server
from store.partitions import volumes
from store.rebuild.desired import acl_of, enlist, listed
from store.rebuild.emptying import aside_name, refuse_databases
from store.rebuild.outcome import Outcome
from store.rebuild.salvagedusers import add_users, kept_accounts, take_in
from store.rebuild.userareascan import Source, free_name, sources
from store.reconstruct.request import Refused, Request
from store.reconstruct.wholestore import accounts
from store.settings import Settings
from store.tables.state import MailboxState
from store.userarea.directoryfile import newest
from store.userarea.idxfile import Head
from store.values import RECONSTRUCT, Finding, Repair

LIST = "mboxlist"               # the folder of the list's environment
SCRATCH = "mboxlist.new"


def only_list_is_lost(root: Path) -> bool:
    """Whether there is no list, and every partition has its databases."""
    folders = volumes.with_messages(root)
    return not any((root / LIST).glob("*.db")) and bool(folders) and all(
        any((folder / "index").glob("*.db")) and volumes.is_whole(folder) for folder in folders)


def reconstruct_list(request: Request) -> Outcome:
    """While nobody is in the store. Raises Refused, StoreError."""
    root, users, found = request.root, accounts(request), False
    aside = root / LIST
    if any(aside.glob("*.db")):
        if not request.force:
            raise Refused("there is a list of mailboxes; with --force it is set aside, and rebuilt")
        for name, host in absent(root).items():         # nothing else knows its mailboxes here
            raise Refused(only_elsewhere(name, host))
        if request.check:
            return Outcome(left=[Finding("it would be rebuilt", str(aside), RECONSTRUCT)])
        if server(root / "run" / "server.pid"):
            raise StoreError(Problem.STORE_IN_USE, "Stop the server first: nobody can do without the list")
        found = True
    elif not only_list_is_lost(root):
        raise Refused("partitions have no databases, either: rebuild everything (--all)")
    if request.check:
        return Outcome(left=[Finding("it is lost", str(aside), RECONSTRUCT)])
    with request.making():
        if found:
            aside.rename(aside_name(aside, time.time()))
            users = users or kept_accounts(root)
        if not only_list_is_lost(root):
            raise Refused("partitions have no databases, either: rebuild everything (--all)")
        outcome = rebuild_list(root, request.settings(), users=users)
        with request.open_store():          # which reconciles what differs
            return outcome


def rebuild_list(root: Path, settings: Settings, *, users: Iterable[User] = ()) -> Outcome:
    """Rebuild the list. Raises StoreError STORE_IN_USE, DISK_FULL, UNAVAILABLE."""
    refuse_databases([root / "mboxlist"])
    done = Outcome()
    privatefiles.make_folder(root / "run", exist_ok=True)
    try:
        process_registry = ProcessRegistry(root / "run", "onecopy reconstruct")
        try:
            if not process_registry.alone:
                raise StoreError(Problem.STORE_IN_USE, "Other processes are in the store: stop them first")
            shutil.rmtree(root / SCRATCH, ignore_errors=True)
            privatefiles.make_folder(root / SCRATCH)
            _ListRebuild(root, settings, done).run(list(users))
            for region in (*(root / "mboxlist").glob("__db.*"), *(root / SCRATCH).glob("__db.*")):
                region.unlink()
            (root / SCRATCH).rename(root / "mboxlist")          # there may be an empty folder
            sync_folder(root)
        finally:
            process_registry.leave()
    except (NeedsRecovery, Failure) as error:
        raise StoreError(Problem.UNAVAILABLE, f"A partition cannot be opened: {error}", str(error)) from error
    except OSError as error:
        raise disk_problem(error) from error
    return done


def _broken() -> None:
    """The rebuild starts again."""


@define(eq=False)
class _ListRebuild:
    """Fills an empty list."""

    root: Path
    settings: Settings
    done: Outcome
    _names: set[MailboxName] = field(factory=set)

    def run(self, users: list[User]) -> None:
        """Do all of it. Raises NeedsRecovery, Failure, OSError."""
        wanted: list[tuple[Source, MailboxEntry]] = []
        for folder in volumes.with_messages(self.root):
            wanted += self._partition(folder)
        wanted.sort(key=lambda each: each[1].id)
        mailboxes = MailboxList(self.root / SCRATCH, cache=LIST_CACHE, recover=True, broken=_broken)
        try:
            last = max((entry.id for _, entry in wanted), default=MailboxId(0))
            validity = max((entry.uidvalidity for _, entry in wanted), default=0)
            transact(mailboxes.env, lambda txn: mailboxes.skip_identities(last, validity, txn))
            directory = BuiltinDirectory(mailboxes, self.settings.default_domain)
            kept, found = newest(volumes.with_messages(self.root)), [source for source, _ in wanted]
            add_users(directory, found, kept.accounts(users), self.done.findings)
            take_in(mailboxes, directory, kept, found)
            for source, entry in wanted:
                transact(mailboxes.env, partial(enlist, mailboxes, listed(source, entry)))
            mailboxes.env.flush()
            mailboxes.env.checkpoint()
            mailboxes.env.flush()
        finally:
            mailboxes.close()
        self.done.mailboxes = len(wanted)

    def _partition(self, folder: Path) -> Iterator[tuple[Source, MailboxEntry]]:
        """Its mailboxes."""
        files: dict[tuple[int, int], Source] = {}
        for file in sorted(sources(folder, self.done.findings), key=lambda source: source.head.written):
            if file.found:
                files[file.head.id, file.head.uidvalidity] = file
        partition = Partition(folder, self.settings, News(), recover=True, broken=_broken)
        try:
            mark_behind(folder)
            states = list(partition.all_states())
        finally:
            partition.close(clean=True)
        for mailbox, state in states:
            if state.removed != DOOMED:
                source = files.get((mailbox, state.uidvalidity)) or self._nameless(
                    partition.name, mailbox, state, files)
                yield self._row(evolve(source, head=evolve(source.head, removed=state.removed)), mailbox, state)
                self.done.records += state.messages

    def _nameless(self, partition: str, mailbox: MailboxId, state: MailboxState, files: dict[tuple[int, int], Source]
                  ) -> Source:
        """A mailbox that has no file."""
        root = state.quota_root
        owner = "" if root.startswith(PUBLIC) else root.partition(SEPARATOR)[0]
        inbox = MailboxName(owner, INBOX)
        if owner and inbox not in self._names and all(source.name != inbox for source in files.values()):
            name = inbox
        else:
            name = MailboxName(owner, f"Recovered ({mailbox})")
        self.done.findings.append(Finding("it had no store.idx: nobody knows its name, nor who may use it", str(name),
                                          Repair.RENAME.of(name.owner or PUBLIC, name.path)))
        head = Head(id=mailbox, name=str(name), owner=owner, partition=partition, uidvalidity=state.uidvalidity,
                    uidnext=state.uidnext, highestmodseq=state.highestmodseq)
        return Source(partition, Path(), head, name)

    def _row(self, source: Source, mailbox: MailboxId, state: MailboxState) -> tuple[Source, MailboxEntry]:
        name = source.name
        if not state.removed:
            if name in self._names:
                name = free_name(name, mailbox, self.done.findings)
            self._names.add(name)
        return source, MailboxEntry(mailbox, name, source.partition, state.uidvalidity, source.head.created,
                                    source.head.special_use, acl_of(source.head))
