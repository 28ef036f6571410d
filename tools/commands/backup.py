"""onecopy backup, onecopy restore"""

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import attrs

from mboxlist.names import INBOX, PUBLIC, SEPARATOR
from store import values
from store.backup.archive import Archive, Catalogue, Scope
from store.backup.compression import KINDS, ZSTD
from store.backup.creation import Form, Making, SoFar
from store.backup.folder import Folder, archives_at
from store.backup.integrity import Verified, verify
from store.backup.restore import Choice, Restored, Restoring, passing_store
from store.operations.operationrecord import EVERYTHING
from store.store import Store
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.lookup import mailbox_name, owner
from tools.cli.output import print_facts, print_json, print_table, when
from tools.cli.progressbar import bar
from tools.cli.storeaccess import init, is_store
from tools.exits import Failure, no_partition

ACTIONS = ("create", "verify", "list")
STANDARD = "-"
FINDINGS_SHOWN = 50         # that are printed; --json has all of them
PART_SIZE = 4 << 30


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("backup", backup, "write a backup of the store, or a part of it, that any tar reads: onecopy backup "
                  "--to FILE; look at backups: onecopy backup verify|list ARCHIVE...; exit status 1 if something is "
                  "damaged")
    made.add_argument("action", nargs="?", choices=ACTIONS, default="create", help="create (the default), verify: "
                      "read an archive and compare all digests, list: say what is in it")
    made.add_argument("archive", nargs="*", metavar="ARCHIVE", help="for verify and list: a file, a folder, or - for "
                      "standard input; an incremental one with those that it continues")
    made.add_argument("--to", metavar="FILE|FOLDER|-", default=STANDARD, help="a new file; a folder (one that is "
                      "there, or a name with / at its end), which gets numbered parts and is continued by the next "
                      "backup; or - for standard output, the default")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--user", action="append", metavar="USER", help="only this user (public/: public mailboxes); can "
                      "be repeated")
    what.add_argument("--group", metavar="NAME", help="only the users of this group")
    what.add_argument("--partition", metavar="NAME", help="only this partition")
    since = made.add_mutually_exclusive_group()
    since.add_argument("--since", metavar="EARLIER", help="incremental: only what is not in this archive (a file or a "
                       "folder) and those that it continues")
    since.add_argument("--full", action="store_true", help="in a folder: begin with a full backup again")
    made.add_argument("--compress", choices=KINDS, default=ZSTD, help=f"default: {ZSTD}")
    made.add_argument("--level", type=int, default=3, metavar="N", help="of compression: 1 to 19 with zstd, 1 to 9 "
                      "with gzip (3)")
    made.add_argument("--part-size", type=typed(values.size), default=PART_SIZE, metavar="SIZE", help="after which a "
                      "folder gets another part (4G)")
    made.add_argument("--json", action="store_true", help="for create to standard error if the archive goes to "
                      "standard output")
    made.add_argument("--bytes", action="store_true")
    made = parser("restore", restore, "restore from a backup: everything, or what is named; can be repeated, and then "
                  "adds what is missing; what the store itself still keeps: undelete; exit status 1 if something was "
                  "damaged, or left as it is")
    made.add_argument("archive", nargs="+", metavar="ARCHIVE", help="a file, a folder of backups, or - for standard "
                      "input (of everything only); an incremental one with all that it continues")
    made.add_argument("--user", action="append", metavar="USER", help="only this user's mailboxes (public/: public "
                      "mailboxes); can be repeated")
    made.add_argument("--mailbox", metavar="MAILBOX", help="only this mailbox of the user")
    made.add_argument("--message", type=int, nargs="+", metavar="UID", help="only these messages of the mailbox "
                      f"({INBOX})")
    made.add_argument("--into", metavar="NAME", help="beside what is there: below this mailbox, or with --mailbox into "
                      "this one")
    made.add_argument("--over", action="store_true", help="add what is missing to mailboxes that are there; nothing "
                      "that they have is changed")
    made.add_argument("--dry-run", action="store_true", help="only read all that would be restored, and say what would "
                      "be done")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")


# Making

def backup(invocation: Invocation) -> int:
    """onecopy backup"""
    arguments = invocation.arguments
    if arguments.action != "create":
        if not arguments.archive:
            raise Failure(f"which archive? onecopy backup {arguments.action} ARCHIVE...")
        return _verify(invocation) if arguments.action == "verify" else _list(invocation)
    if arguments.archive:
        raise Failure("an archive is written --to a file")
    if arguments.to == STANDARD and sys.stdout.isatty():
        raise Failure("where to? --to FILE, --to FOLDER, or a pipe")
    if not 1 <= arguments.level <= (9 if arguments.compress == "gzip" else 19):
        raise Failure("there is no such level")
    begun = time.monotonic()
    with invocation.store() as store, bar("mailboxes") as tell:
        scope = _scope(store, arguments)
        into = Path(arguments.to)
        form = Form(arguments.compress, arguments.level)
        def progress(so_far: SoFar) -> None:
            tell(so_far.mailboxes, _rate(so_far.messages, begun), so_far.of)

        if arguments.to != STANDARD and (into.is_dir() or arguments.to.endswith(SEPARATOR)):
            if arguments.since:
                raise Failure("a folder continues what is in it: --since is for files")
            made = Folder.of(into).backup(lambda previous: Making(store, scope, previous, progress),
                                          attrs.evolve(form, part=arguments.part_size), full=arguments.full)
        else:
            if arguments.full:
                raise Failure("without --since every file is a full backup: --full is for folders")
            making = Making(store, scope, _earlier(arguments.since) if arguments.since else None, progress)
            if arguments.to == STANDARD:
                making.write(sys.stdout.buffer.write, form)
                sys.stdout.buffer.flush()
            else:
                making.write_file(into, form)
            made = [making]
    return _report(invocation, made, time.monotonic() - begun)


def _scope(store: Store, arguments: Any) -> Scope:
    if arguments.user:
        return Scope(tuple(sorted({owner(store, user) for user in arguments.user})))
    if arguments.group:
        users = tuple(account.user for account in list(store.directory.all()) if arguments.group in account.groups)
        if not users:
            raise Failure(f"nobody is in the group {arguments.group}", 1)
        return Scope(users, group=arguments.group)
    if arguments.partition and arguments.partition not in store.partitions:
        raise no_partition(arguments.partition, store.partitions)
    return Scope(partition=arguments.partition or "")


def _earlier(name: str) -> Catalogue:
    archives = archives_at(Path(name))
    found = archives[-1].catalogue() if archives else None
    if found is None:
        raise Failure(f"{name}: there is no backup, or its catalogue is damaged: make a full one", 1)
    return found


def _report(invocation: Invocation, made: list[Making], seconds: float) -> int:
    findings = [finding for each in made for finding in each.findings]
    facts: dict[str, object] = {
        "archives": len(made), "mailboxes": sum(each.totals.mailboxes for each in made),
        "unchanged": len(made[-1].catalogue.mailboxes) - sum(each.totals.mailboxes for each in made),
        "records": sum(each.totals.records for each in made), "messages": sum(each.totals.messages for each in made),
        "octets": sum(each.totals.octets for each in made), "seconds": round(seconds, 1)}
    with contextlib.ExitStack() as stack:
        if invocation.arguments.to == STANDARD:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        _print(invocation, facts, findings)
    return 1 if findings else 0


def _print(invocation: Invocation, facts: dict[str, object], findings: list[str]) -> None:
    if invocation.arguments.json:
        print_json({**facts, "findings": findings})
        return
    print_facts(facts)
    for finding in findings[:FINDINGS_SHOWN]:
        print(finding)
    if len(findings) > FINDINGS_SHOWN:
        print(f"and {len(findings) - FINDINGS_SHOWN} more (--json has all)")


# Looking

def _archives(names: list[str]) -> list[Archive]:
    """Those that were named. Raises Failure."""
    found: list[Archive] = []
    for name in names:
        path = Path(name)
        if name == STANDARD:
            if len(names) > 1:
                raise Failure("standard input is one archive for itself")
            found.append(Archive(None, sys.stdin.buffer.read))
        elif not (path.is_dir() or path.is_file()):
            raise Failure(f"there is no file {path}")
        elif not (archives := archives_at(path)):
            raise Failure(f"there is no backup in {path}", 1)
        else:
            found += archives
    return found


def _verify(invocation: Invocation) -> int:
    archives = _archives(invocation.arguments.archive)
    total = sum(archive.path.stat().st_size for archive in archives if archive.path is not None)
    begun = time.monotonic()
    with bar("octets") as tell:
        def progress(so_far: Verified) -> None:
            tell(so_far.octets, _rate(so_far.messages, begun), max(total, so_far.octets))

        found = verify(archives, progress)
    facts = attrs.asdict(found)
    _print(invocation, facts, facts.pop("findings"))
    return 1 if found.findings else 0


def _list(invocation: Invocation) -> int:
    archives = _archives(invocation.arguments.archive)
    if archives[0].path is None:
        raise Failure("the list is at the end of an archive: name a file")
    rows: list[dict[str, object]] = []
    facts: list[dict[str, object]] = []
    status = 0
    for archive in archives:
        catalogue = archive.catalogue()
        if catalogue is None or archive.totals is None:
            facts.append({"archive": archive.name, "id": archive.manifest.id if archive.manifest else None})
            print(f"onecopy: {archive.name}: its catalogue is damaged, or cut off", file=sys.stderr)
            status = 1
            continue
        manifest, totals = catalogue.manifest, archive.totals
        facts.append({"archive": archive.name, "id": manifest.id, "time": when(manifest.time),
                      "kind": "incremental" if manifest.since else "full", "mailboxes": totals.mailboxes,
                      "messages": totals.messages, "octets": totals.octets, "complete": totals.complete})
        rows = [{"mailbox": each.name, "messages": each.records, "uidvalidity": each.uidvalidity,
                 "archive": each.archive} for each in catalogue.mailboxes.values()]
    if invocation.arguments.json:
        print_json({"archives": facts, "mailboxes": rows})
        return status
    print_table(facts, ("archive", "id", "time", "kind", "mailboxes", "messages", "octets", "complete"))
    print_table(rows, ("mailbox", "messages", "uidvalidity", "archive"))
    return status


# Restoring

def restore(invocation: Invocation) -> int:
    """onecopy restore"""
    arguments, root = invocation.arguments, invocation.config.root
    if arguments.message and not arguments.mailbox:
        arguments.mailbox = INBOX
    if arguments.mailbox and (not arguments.user or len(arguments.user) > 1):
        raise Failure("whose mailbox? --user USER")
    if arguments.message and any(not 0 < uid < 1 << 32 for uid in arguments.message):
        raise Failure("a UID is between 1 and 4294967295")
    archives = _archives(arguments.archive)
    if archives[0].path is None and (arguments.user or arguments.mailbox):
        raise Failure("what is in a pipe is restored as a whole: write it to a file first")
    with contextlib.ExitStack() as stack:
        if is_store(root):
            store = stack.enter_context(invocation.store())
        elif arguments.dry_run:
            store = stack.enter_context(passing_store())
        else:
            init(root)
            store = stack.enter_context(invocation.store())
        choice = _choice(store, arguments)
        tell, begun = stack.enter_context(bar("messages", lambda: _records(archives))), time.monotonic()

        def progress(so_far: Restored) -> None:
            tell(so_far.messages + so_far.there, _rate(so_far.files, begun))

        if not arguments.dry_run:
            stack.enter_context(invocation.repeatable(
                "restore", [EVERYTHING] if choice.users is None else sorted(choice.users),
                waits=archives[0].path is not None))
        done = Restoring(store, archives, choice, progress).run()
    facts = attrs.asdict(done)
    _print(invocation, facts, facts.pop("findings"))
    return 1 if done.findings else 0


def _records(archives: list[Archive]) -> int:
    catalogue = archives[-1].catalogue()
    return sum(each.records for each in catalogue.mailboxes.values()) if catalogue is not None else 0


def _choice(store: Store, arguments: Any) -> Choice:
    users = None
    mailbox = arguments.mailbox or ""
    if arguments.user:
        ids = {user: "" if user == PUBLIC else store.directory.user_id(user) for user in arguments.user}
        users = frozenset(ids.values())
        if mailbox:
            mailbox = mailbox_name(next(iter(users)), mailbox).path
    into = arguments.into or ""
    if into:
        into = mailbox_name("nobody", into).path
    return Choice(users, mailbox, frozenset(arguments.message or ()), into, arguments.over, arguments.dry_run)


def _rate(messages: int, begun: float) -> str:
    return f"{messages} message files, {messages / max(time.monotonic() - begun, 0.1):.0f}/s"
