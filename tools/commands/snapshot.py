"""onecopy snapshot create, list, verify, restore, diff, remove"""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import attrs

import store.settings
from mboxlist import privatefiles
from mboxlist.engine.hotcopy import Logs
from store import values
from store.operations.operationrecord import begun
from store.snapshots import comparison, reset, retention, taking
from store.snapshots.comparison import Difference
from store.snapshots.taking import Snapshot
from store.snapshots.writefreeze import frozen_for
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.lookup import owner
from tools.cli.output import print_facts, print_json, print_table, size, when
from tools.cli.progressbar import changing_bar, counted
from tools.cli.storeaccess import open_configured
from tools.exits import Failure

NOW = "now"
COLUMNS = ("snapshot", "moment", "octets", "environments", "state")


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("snapshot create", create, "make a snapshot of the databases, beside a running server too; verified "
                                             "when made")
    made.add_argument("--freeze", metavar="COMMAND", help="freeze writing while this shell command runs, such as "
                      "one that makes a snapshot of the file system; the snapshot is of the same moment")
    made.add_argument("--freeze-time", type=typed(values.duration), metavar="TIME",
                      help="the command may take so long (store.freeze_time); then it is ended, and the store goes on")
    made.add_argument("--no-verify", action="store_true", help="do not read it again")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("snapshot list", list_all, "the snapshots that there are, the newest first")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made = parser("snapshot verify", verify, "compare the files of snapshots with their digests, and recover and read "
                                             "a copy; exit status 1 if one is not good")
    made.add_argument("snapshots", nargs="*", metavar="SNAPSHOT", help="default: all")
    made.add_argument("--json", action="store_true")
    made = parser("snapshot restore", restore, "make the store what it was: a snapshot, and what the logs since then "
                                               "have; the server must be down, and what there is is set aside")
    made.add_argument("snapshot", nargs="?", metavar="SNAPSHOT", help="default: the newest that is good")
    how = made.add_mutually_exclusive_group()
    how.add_argument("--until", type=_moment, metavar="TIME", help="only what was committed up to then, such as "
                                                                   "2026-01-31T23:59:59Z")
    how.add_argument("--exact", action="store_true", help="only the snapshot itself, without later logs")
    made.add_argument("--dry-run", action="store_true", help="do all but put it in place")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--json", action="store_true")
    made = parser("snapshot diff", diff, "what is different between two snapshots, or a snapshot and now")
    made.add_argument("before", metavar="SNAPSHOT", help="the earlier one")
    made.add_argument("after", nargs="?", default=NOW, metavar="SNAPSHOT", help="default: now")
    made.add_argument("--user", help="of this user's mailboxes alone; public/ for the public ones")
    made.add_argument("--json", action="store_true")
    made = parser("snapshot remove", remove, "remove snapshots; message files that only they refer to go with the next "
                                             "purge")
    made.add_argument("snapshots", nargs="+", metavar="SNAPSHOT", help="by their names in the list")
    made.add_argument("--force", action="store_true", help="also the newest")
    made.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    made.add_argument("--bytes", action="store_true")
    made.add_argument("--json", action="store_true")
    made.add_argument("--yes", action="store_true", help="do not ask")


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-01-31T23:59:59Z") from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp())


def create(invocation: Invocation) -> int:
    """onecopy snapshot create"""
    arguments = invocation.arguments
    with invocation.store() as opened, changing_bar(octets=True) as progress:
        hold = contextlib.nullcontext if arguments.freeze is None else partial(
            frozen_for, opened, arguments.freeze, arguments.freeze_time)
        start = time.monotonic()
        with opened.begun("snapshot create", {}, stops=True):
            made = retention.make(opened, progress, verify=not arguments.no_verify, hold=hold)
        took = time.monotonic() - start
    if arguments.json:
        print_json({**_facts(made), "seconds": round(took, 3)})
    else:
        print(f"{made.name}: {size(made.size)}, the store as it was at {when(made.manifest.moment)}")
    return 0


def list_all(invocation: Invocation) -> int:
    """onecopy snapshot list"""
    settings = invocation.config.settings("store", store.settings.Settings)
    folder = taking.folder(invocation.config.root, settings)
    rows = [_facts(each) for each in taking.listed(folder, every=True)]
    rows += [{"snapshot": name, "state": f"cannot be read: {why}"}
             for name, why in taking.unreadable(folder).items()]
    rows.sort(key=lambda row: str(row["snapshot"]), reverse=True)
    if invocation.arguments.json:
        print_json(rows)
    else:
        print_table(rows, COLUMNS)
        failed = folder / retention.FAILED
        if failed.exists():
            print(f"onecopy: at {when(failed.stat().st_mtime)} none could be made: "
                  f"{privatefiles.read_text(failed).strip()}",
                  file=sys.stderr)
    return 0


def _facts(snapshot: Snapshot) -> dict[str, object]:
    return {"snapshot": snapshot.name, "moment": when(snapshot.manifest.moment), "octets": snapshot.size,
            "environments": len(snapshot.manifest.environments), "path": str(snapshot.path),
            "version": snapshot.manifest.version, "state": "superseded" if snapshot.superseded else "good"}


def _named(invocation: Invocation, names: Sequence[str]) -> list[Snapshot]:
    """The snapshots of these names, or all. Raises Failure."""
    settings = invocation.config.settings("store", store.settings.Settings)
    folder = taking.folder(invocation.config.root, settings)
    there = {each.name: each for each in taking.listed(folder, every=True)}
    for name in names:
        if name not in there:
            why = taking.unreadable(folder).get(name)
            raise Failure(f"the snapshot {name} cannot be read: {why}" if why else f"there is no snapshot {name} in "
                          f"{folder} (onecopy snapshot list shows what there is)", 1)
    return [there[name] for name in names] if names else list(there.values())


def verify(invocation: Invocation) -> int:
    """onecopy snapshot verify"""
    arguments = invocation.arguments
    settings = invocation.config.settings("store", store.settings.Settings)
    rows: list[dict[str, Any]] = []
    with changing_bar(octets=True) as progress:
        for each in _named(invocation, arguments.snapshots):
            rows.append({"snapshot": each.name, "findings": taking.verify(each, progress=progress)})
    if not arguments.snapshots:
        folder = taking.folder(invocation.config.root, settings)
        rows += [{"snapshot": name, "findings": [why]} for name, why in taking.unreadable(folder).items()]
    if arguments.json:
        print_json(rows)
    else:
        for row in rows:
            for finding in row["findings"] or ["nothing wrong was found"]:
                print(f"{row['snapshot']}: {finding}")
    return 1 if any(row["findings"] for row in rows) else 0


def restore(invocation: Invocation) -> int:
    """onecopy snapshot restore"""
    arguments, root = invocation.arguments, invocation.config.root
    settings = invocation.config.settings("store", store.settings.Settings)
    with reset.nobody_else(root):
        if not arguments.dry_run and reset.finish(root):
            print("onecopy: a restore that had been cut off is finished; run it again for another one", file=sys.stderr)
            _open_once(invocation)
            return 0
    chosen = reset.choose(root, settings, name=arguments.snapshot, until=arguments.until)
    if not arguments.dry_run:
        what = "exactly" if arguments.exact else f"and its logs up to {when(arguments.until)}" if arguments.until else \
            "and all its logs"
        invocation.confirm(f"Put back the snapshot {chosen.name} {what}?", final=False)
    on_record = contextlib.nullcontext() if arguments.dry_run else begun(
        root, "snapshot restore", arguments.program, {"snapshot": chosen.name}, stops=True)
    with on_record, changing_bar(octets=True) as progress:
        done = reset.restore(root, settings, chosen, exact=arguments.exact, until=arguments.until,
                             dry_run=arguments.dry_run, progress=progress)
    if not arguments.dry_run:
        _open_once(invocation)
    facts = {"snapshot": chosen.name, "moment": when(chosen.manifest.moment), "done": not arguments.dry_run,
             "logs": {name: _followed(each) for name, each in done.logs.items()},
             "passed over": sorted(path for each in done.logs.values() for path in each.passed_over),
             "set aside": done.aside, "message files set aside": done.files}
    if arguments.json:
        print_json({name.replace(" ", "_"): value for name, value in facts.items()})
    else:
        print_facts({**facts, "logs": [f"{name} {text}" for name, text in facts["logs"].items()],    # type: ignore
                     "message files set aside": sum(done.files.values())})
    return 0


def _open_once(invocation: Invocation) -> None:
    """The first open recovers the store and has the list and the partitions agree."""
    open_configured(invocation.config, invocation.arguments.program).close()


def _followed(logs: Logs) -> str:
    return f"up to file {logs.last}" if logs.later else "its own"


def diff(invocation: Invocation) -> int:
    """onecopy snapshot diff"""
    arguments = invocation.arguments
    settings = invocation.config.settings("store", store.settings.Settings)
    before, *rest = _named(invocation, [arguments.before, *([] if arguments.after == NOW else [arguments.after])])
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(comparison.opened(before, settings))
        two = stack.enter_context(comparison.opened(rest[0], settings) if rest else invocation.store())
        user = owner(two, arguments.user) or "public/" if arguments.user else None
        found = list(counted(comparison.differences(one, two, user), "differences"))
    summary = comparison.by_user(found)
    if arguments.json:
        print_json({"before": before.name, "after": rest[0].name if rest else NOW, "users": summary,
                    "mailboxes": [{"user": each.user, "what": each.what, **attrs.asdict(each)} for each in found]})
    else:
        rows = [{"user": each.user, "mailbox": each.after or each.before, "what": _what(each), "added": len(each.added),
                 "gone": len(each.gone), "flags": len(each.flags)} for each in found]
        print_table(rows, ("user", "mailbox", "what", "added", "gone", "flags"))
        print(f"{len(summary)} users, {len(found)} mailboxes: {sum(row['added'] for row in summary)} messages came, "
              f"{sum(row['gone'] for row in summary)} went, {sum(row['flags'] for row in summary)} have other flags")
    return 0


def _what(found: Difference) -> str:
    if found.unreadable:
        return f"cannot be read: {found.unreadable}"
    return f"renamed, was {found.before}" if found.what == "renamed" else found.what


def remove(invocation: Invocation) -> int:
    """onecopy snapshot remove"""
    arguments = invocation.arguments
    settings = invocation.config.settings("store", store.settings.Settings)
    going = _named(invocation, arguments.snapshots)
    newest = next(iter(taking.listed(taking.folder(invocation.config.root, settings))), None)
    if newest in going and not arguments.force:
        raise Failure(f"{newest.name if newest else ''} is the newest: without it a damaged store cannot be recovered; "
                      "use --force", 1)
    if not arguments.dry_run:
        invocation.confirm(f"Remove {', '.join(each.name for each in going)}?")
        with invocation.store() as opened:
            with opened.begun("snapshot remove", {"snapshots": [each.name for each in going]}):
                for each in going:
                    taking.remove(each)
                taking.keep_what_is_needed(opened)
    if arguments.json:
        print_json([{"snapshot": each.name, "octets": each.size, "removed": not arguments.dry_run} for each in going])
    else:
        for each in going:
            print(f"{each.name}: {size(each.size)} {'would be ' if arguments.dry_run else ''}removed")
    return 0
