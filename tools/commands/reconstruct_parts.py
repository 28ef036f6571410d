"""Parts of onecopy reconstruct: a partition or the list of mailboxes alone, and what can be made anew of a store that
is whole otherwise: cache records, quotas, the rights look-up."""

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from store.errors import Problem, StoreError
from store.values import RECONSTRUCT, Finding
from tools.cli.exits import Failure
from tools.cli.invocation import Invocation

if TYPE_CHECKING:           # what is needed is loaded where it is: each function is for some uses of the command
    from mboxlist.entry import MailboxEntry
    from store.accounts.builtin import User
    from store.partition.partition import Partition
    from store.reconstruct import wholestore
    from store.reconstruct.repair import Correction
    from store.store import Store

RANGES = 10_000             # of a set of UIDs

Progress = Callable[[str, int, int], None]      # what is done, how much of it, out of how much


@define
class Result:
    """What was done, or is to be done; what was left as it is; and what cannot be repaired here."""

    mailboxes: int = 0
    records: int = 0
    messages: int = 0
    corrections: "list[Correction]" = field(factory=list)
    left: list[Finding] = field(factory=list)
    findings: list[Finding] = field(factory=list)

    def add(self, done: "wholestore.Rebuilt") -> None:
        """What a rebuild has made."""
        self.mailboxes += done.mailboxes
        self.records += done.records
        self.messages += done.messages
        self.findings += done.findings


def uid_set(text: str) -> Callable[[int], bool]:
    """Whether a UID is in a set as IMAP has them (RFC 3501 §9, sequence-set)."""
    from imap.wire.grammar import SyntaxProblem  # here: it is needed for this option alone
    from imap.wire.numbers import parse_number_set
    try:
        numbers = parse_number_set(text.encode("ascii"), RANGES)
    except (SyntaxProblem, UnicodeError):
        raise argparse.ArgumentTypeError(f"{text!r} is no set of UIDs, such as 1:9,12") from None
    ranges = numbers.resolve((1 << 32) - 1)
    return lambda uid: any(first <= uid <= last for first, last in ranges)


# Partitions and the list

def lost_partitions(root: Path) -> list[str]:
    """Those that have message files and no databases."""
    from store.partitions import volumes
    folder = root / "partitions"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if names := [name for name in names if not volumes.is_whole(folder / name)]:
        from store.reconstruct import livepartition
        names = [name for name in names if livepartition.is_lost(root, name)]
    return names


def unlisted(invocation: Invocation, name: str) -> bool:
    """Whether the partition is whole, and the processes in the store do not know of it."""
    from store.partition import inuse
    from store.partition.processes import server
    from store.partitions import volumes
    known = inuse.listed(invocation.config.root)
    return known is not None and name not in known and volumes.is_whole(
        invocation.config.root / "partitions" / name) and server(invocation.config.root / "run" / "server.pid") != 0


def make_partition(invocation: Invocation, name: str, progress: Progress, *, force: bool = False) -> Result:
    """A partition's databases made anew, beside a running server. Raises StoreError, Failure."""
    from store.reconstruct import livepartition
    from store.settings import Settings
    root, result = invocation.config.root, Result()
    if invocation.arguments.check:
        result.left.append(Finding("it has no databases" if livepartition.is_lost(root, name) else
                                   "its databases would be made anew", f"partition {name}", RECONSTRUCT))
        return result
    if livepartition.is_lost(root, name) and not (root / "mboxlist").is_dir():
        raise Failure("the list of mailboxes is lost, too: make everything anew (--all)")
    settings = invocation.config.settings("store", Settings)
    result.add(livepartition.reinstate(root, name, settings, invocation.store, restart=partial(_restart, root),
                                       force=force,
                             progress=progress))
    with invocation.store() as store:
        take_in_lost(store, store.partition(name), result)
    return result


def _restart(root: Path) -> None:
    """Have a server's processes begin anew: when a process dies in the store its supervisor starts all of them again,
    and clients see a dropped connection. A command that has the store open must end by itself."""
    from store.partition.processes import ProcessRegistry, server
    if not server(root / "run" / "server.pid"):
        return
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            ProcessRegistry(root / "run", "onecopy reconstruct, which wants all to begin anew").settled()
        os._exit(1)
    os.waitpid(child, 0)


def take_in_lost(store: "Store", partition: "Partition", result: Result, *, change: bool = True) -> None:
    """Message files that nothing claims go to the administrator's mailbox; it is no fault that they were there."""
    from store.reconstruct import orphans
    from store.reconstruct.wholestore import UNKNOWN_FILE
    taken = orphans.take_in(store, partition, change=change)
    result.corrections += taken.corrections
    result.left += taken.left
    known = {correction.where.removeprefix("message ") for correction in taken.corrections}
    result.findings = [finding for finding in result.findings
                       if not (finding.what == UNKNOWN_FILE and Path(finding.where).name in known)]


def take_in_all(invocation: Invocation, result: Result) -> None:
    """The same for a store that was made anew."""
    with invocation.store() as store:
        for _, partition in sorted(store.partitions.items()):
            take_in_lost(store, partition, result)


def make_list(invocation: Invocation, users: "list[User]", *, force: bool) -> Result:
    """The list of mailboxes made anew, while nobody is in the store. Raises StoreError, Failure."""
    from store.partition.processes import server
    from store.reconstruct import mailboxlist
    from store.settings import Settings
    from tools.cli.storeaccess import open_configured
    root, result = invocation.config.root, Result()
    aside = root / "mboxlist"
    if any(aside.glob("*.db")):
        if not force:
            raise Failure("there is a list of mailboxes; with --force it is set aside, and made anew")
        if invocation.arguments.check:
            return Result(left=[Finding("it would be made anew", str(aside), RECONSTRUCT)])
        if server(root / "run" / "server.pid"):
            raise StoreError(Problem.STORE_IN_USE, "Stop the server first: nobody can do without the list")
        aside.rename(root / f"mboxlist.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        users = users or kept_accounts(root)
    if not mailboxlist.only_list_is_lost(root):
        raise Failure("partitions have no databases, either: make everything anew (--all)")
    if invocation.arguments.check:
        return Result(left=[Finding("it is lost", str(aside), RECONSTRUCT)])
    result.add(mailboxlist.relist(root, invocation.config.settings("store", Settings), users=users))
    open_configured(invocation.config, invocation.arguments.program).close()         # which settles what differs
    return result


def kept_accounts(root: Path) -> "list[User]":
    """The accounts that are in a list that was set aside, or else in the newest snapshot that has any."""
    from store.partition.partition import snapshot_time
    from store.reconstruct.wholestore import salvage_users
    aside = sorted(root.glob("mboxlist.damaged-*/users.db"), reverse=True)
    taken = [path for path in root.glob("snapshots/*/mboxlist/users.db")
             if snapshot_time(path.parent.parent.name) is not None]
    for table in [*aside, *sorted(taken, reverse=True)]:
        users = salvage_users(table)
        if users:
            return users
    return []


# Parts of what is whole otherwise

def recache(store: "Store", entries: "list[MailboxEntry]", result: Result, invocation: Invocation,
            progress: Progress) -> None:
    """Cache records of these mailboxes' messages, or of some UIDs, from their files. Raises StoreError."""
    from store.reconstruct import cacherebuild
    arguments = invocation.arguments
    found = cacherebuild.messages_of(store, entries, arguments.uid)
    total, done = sum(map(len, found.values())), 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        progress("messages", done, total)

    result.messages = total
    for name, digests in sorted(found.items()):
        for item in cacherebuild.recache(store.partitions[name], digests, change=not arguments.check,
                                         verify=arguments.force,
                                 tell=tell):
            if isinstance(item, Finding):
                result.findings.append(item)
            elif arguments.check:
                result.left.append(Finding(item.what, item.where, RECONSTRUCT))
            else:
                result.corrections.append(item)


def recount_quotas(store: "Store", result: Result, owner: str | None, partition: str | None, *, change: bool) -> None:
    """Quota use, as the figures of mailboxes sum up; of all, or of one owner's roots. Raises StoreError."""
    from store.reconstruct.recount import recount_quota
    for name, place in sorted(store.partitions.items()):
        if partition in (None, name):
            told = recount_quota(place, _roots_of(owner), change=change)
            if change:
                result.corrections += told
                place.flush()
            else:
                result.left += [Finding(each.what, each.where, RECONSTRUCT) for each in told]


def _roots_of(owner: str | None) -> Callable[[str], bool]:
    from mboxlist.names import PUBLIC, SEPARATOR
    if owner is None:
        return lambda root: True
    if not owner:
        return lambda root: root.startswith(PUBLIC)
    return lambda root: root.partition(SEPARATOR)[0] == owner


def recount_rights(store: "Store", result: Result, *, change: bool) -> None:
    """The tables by which rights and aliases are looked up. Raises StoreError."""
    from store.reconstruct import recount
    if change:
        result.corrections += recount.rebuild_rights(store) + recount.settle_aliases(store)
    else:
        result.left += [Finding(each.what, each.where, RECONSTRUCT) for each in recount.wrong_rights(store)]


def look_at(store: "Store", entries: "list[MailboxEntry]", result: Result, progress: Progress, *, deep: bool,
            uses: Mapping[str, Any]) -> None:
    """The message files and cache records of these mailboxes: what is missing or has not the right length, or with
    `deep` not the right content. `uses`: by partition what `recount_some` knows of all of their records, or None.

    Raises StoreError.
    """
    from store.reconstruct import cacherebuild
    found = {name: said for name, said in uses.items() if said is not None}
    if not uses or len(found) < len(uses):
        found = {name: cacherebuild.known(store.partitions[name], digests)
                 for name, digests in cacherebuild.messages_of(store, entries).items()}
    total, done = sum(map(len, found.values())), 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        progress("messages", done, total)

    known = {finding.where for finding in result.findings}     # --force has read the files already
    for name, said in sorted(found.items()):
        for item in cacherebuild.look_at(store.partitions[name], said, deep=deep, tell=tell):
            if not isinstance(item, Finding):
                result.corrections.append(item)
            elif item.where not in known:
                result.findings.append(item)
