"""onecopy quota report"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from mboxlist import privatefiles
from store.errors import StoreError
from store.expiry.rulebook import Source
from store.filelock import temporary
from store.settings import Settings
from tools.cli.invocation import Invocation
from tools.cli.output import print_facts, print_json, print_table, size
from tools.exits import Failure
from tools.spark import engines
from tools.spark.engines import LOCAL
from tools.spark.facts.destinations import FolderDestination
from tools.spark.facts.factrows import Range, messages_of
from tools.spark.facts.factscommand import export_to, snapshot_for_now
from tools.spark.facts.factsexport import message_ranges
from tools.spark.facts.snapshottables import prepared
from tools.spark.report import drift, fleetcommand, reportlocal, totals
from tools.spark.report.fleetviews import OLD_DAYS
from tools.spark.report.lists import Against
from tools.spark.report.reportjob import Read, TooManyMailboxes, read
from tools.spark.report.totals import LISTS, Terms, earlier, save
from tools.spark.report.what_if import Left, compared, rules_in, rules_of
from tools.spark.sparkcommands import print_csv, session, stores
from tools.spark.sparksession import plain, progress

COLUMNS = {
    "users": ("user", "messages", "logical", "unique", "shared", "fair_share", "limit", "per_cent", "newest",
              "last_read"),
    "mailboxes": ("mailbox", "messages", "logical", "unique", "shared", "fair_share", "newest"),
    "domains": ("domain", "users", "messages", "logical", "unique", "shared", "fair_share", "limit", "per_cent"),
    "partitions": ("partition", "messages", "logical", "fair_share", "waiting", "files", "file_octets", "volume",
                   "free"),
    "stores": ("messages", "logical", "unique", "shared", "fair_share"),
    "roots": ("root", "messages", "octets", "charged", "limit", "message_limit", "per_cent", "refused_since",
              "drift_octets", "drift_messages"),
    "classes": ("class", "users", "messages", "logical", "unique", "fair_share", "freed", "idle", "over"),
    "ages": ("age", "kind", "messages", "logical", "unread"), "kinds": ("kind", "messages", "logical", "unread"),
    "sizes": ("size_class", "files", "file_octets", "messages", "logical"),
    "messages": ("partition", "size", "records", "holders", "sender", "digest"),
    "senders": ("sender", "files", "file_octets", "messages", "logical"), "purge": ("days", "freed", "files"),
}
SHOWN = 50                  # rows of the table; --json and --csv have all


def _rules(arguments: Any) -> list[Source]:
    """Those that are tried. Raises Failure."""
    found = []
    try:
        for text in arguments.expire:
            name = "--expire"
            found.append(rules_of(text))
        for path in arguments.expire_rules:
            name = "--expire-rules"
            found.append(rules_in(path))
    except ValueError as error:
        raise Failure(f"{name}: {error}") from None
    return found


def report(invocation: Invocation) -> int:
    """onecopy quota report"""
    arguments = invocation.arguments
    if arguments.html is not None and find_spec("jinja2") is None:
        raise Failure(f"--html needs Jinja2: {sys.executable} -m pip install 'jinja2>=3.1'")
    if arguments.fleet:
        return fleetcommand.report(invocation)
    where = stores(invocation)
    terms = totals.Terms(invocation.config.settings("store", Settings), datetime.now(UTC), arguments.idle)
    rules = _rules(arguments)
    is_live = _is_live(invocation)
    before = _earlier(arguments)
    try:
        found = _read(invocation, where, terms, rules, is_live=is_live)
    except TooManyMailboxes:
        if not is_live or fleetcommand.not_for_facts(arguments):
            raise
        return _as_fleet(invocation)
    made = totals.report(found.held, found, terms)
    notes: list[str] = []
    done: dict[str, Any] = {}
    if is_live:
        made, notes, done = _with_store(invocation, found, terms, made)
    totals.with_room(made)
    totals.grown(made, before)
    made["what_if"] = _what_if(arguments, found, made, terms)
    made["problems"] = [*totals.differences(made), *totals.lost(found)]
    made["notes"] = [*notes, *totals.oddities(found)]
    made |= done
    _print(arguments, made)
    for line in made["problems"]:
        print(f"onecopy: {line}", file=sys.stderr)
    return 1 if made["problems"] else 0


# What is read

def _is_live(invocation: Invocation) -> bool:
    """Whether the store is to be opened as well. Raises Failure where that cannot be, and must."""
    arguments = invocation.arguments
    needed = arguments.fix or arguments.notify
    if arguments.offline or arguments.stores is not None:
        if needed:
            raise Failure("--fix and --notify are for the store in --root, which must be open: not with --stores or "
                          "--offline")
        return False
    if needed:
        with invocation.store():
            pass                        # said before a report is made for nothing
    return True


def _as_fleet(invocation: Invocation) -> int:
    """The report of a store that has too many mailboxes for a row of each in one process: that of a fleet of one, whose
    lists have their first rows. What grows goes from its facts to the files of --parquet."""
    print("onecopy: so many mailboxes are reported as a fleet is: each list has its first rows, --parquet DIR all",
          file=sys.stderr)
    with temporary("facts") as folder:
        export_to(invocation, FolderDestination(folder))
        invocation.arguments.fleet = [str(folder)]
        return fleetcommand.report(invocation)


def _earlier(arguments: Any) -> dict[str, Any] | None:
    """The report that growth is since. Raises Failure."""
    if arguments.since is not None:
        return earlier(arguments.since)
    if arguments.parquet is not None and any((arguments.parquet / "users").glob("*.parquet")):
        return earlier(arguments.parquet)
    return None


def _read(invocation: Invocation, where: Sequence[str], terms: Terms, rules: Sequence[Source], *, is_live: bool
          ) -> Read:
    left = Left(rules, terms.now.timestamp()) if rules else None
    against = Against(terms.now, invocation.arguments.rows)
    domain = terms.settings.default_domain
    if _engine(invocation.arguments, where) == LOCAL:
        return reportlocal.read(where, domain, left, against, _known(invocation, where[0]) if is_live else None)
    with _known_ranges(invocation, where[0]) if is_live else nullcontext() as known, session(
            invocation, "quota report") as spark, progress(spark, "quota report"), plain():
        return read(spark, where, domain, left, against, known)


def _known(invocation: Invocation, name: str) -> list[pa.RecordBatch] | None:
    """What the databases know of message files; None where they cannot be opened."""
    try:
        with invocation.store() as store:
            return [batch.select(["store", "partition", "digest", "sender", "unused"])
                    for partition in store.partitions.values() for batch in messages_of(partition, name)]
    except (Failure, StoreError):
        return None


@contextmanager
def _known_ranges(invocation: Invocation, name: str) -> Iterator[list[Range] | None]:
    """Where executors read it: of a snapshot, since an open store is for processes that are not killed."""
    with ExitStack() as stack:
        known = None
        with suppress(Failure, StoreError):
            made = stack.enter_context(snapshot_for_now(invocation))
            known = message_ranges(stack.enter_context(prepared(made)), name)
        yield known


def _engine(arguments: Any, where: Sequence[str]) -> str:
    """The engine that is asked for; otherwise one by size, with a line that says which: the first one, on standard
    error where the rest is for programs."""
    if arguments.engine is not None:
        return str(arguments.engine)
    choice = engines.of_report(where, arguments.master)
    print(choice.why, file=sys.stderr if arguments.json or arguments.csv else sys.stdout)
    return choice.engine


def _with_store(invocation: Invocation, found: Read, terms: Terms, made: dict[str, Any]
                ) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """The report with what the open store knows beside files; what is to be noted; what was done. Raises StoreError."""
    arguments = invocation.arguments
    try:
        with invocation.store() as store:
            done: dict[str, Any] = {}
            users = [row["root"] for row in made["roots"] if row["kind"] == "user"]
            known = drift.uses(store, users)
            off = drift.drift(store, totals.apart(made["roots"], known))
            live = totals.Live(known, off, int(terms.now.timestamp()), drift.classes(
                store, [row["user"] for row in made["users"]]))
            if arguments.fix:
                done["fixed"] = drift.fix(store)
            if arguments.notify:
                done["notified"] = drift.notify(store)
    except (Failure, StoreError) as error:
        if arguments.fix or arguments.notify:
            raise
        return made, [f"The store was not opened: {error}"], {}
    return totals.report(found.held, found, terms, live), [], done


def _what_if(arguments: Any, found: Read, made: dict[str, Any], terms: Terms) -> dict[str, Any] | None:
    terms_tried = [f"messages were removed: {rule}" for rule in (*arguments.expire, *arguments.expire_rules)]
    if arguments.default_quota is not None:
        limit = size(arguments.default_quota) if arguments.default_quota else "none"
        terms_tried.append(f"the default quota were {limit}")
    if arguments.charging is not None:
        terms_tried.append(f"the {arguments.charging} size were charged" if arguments.charging == "logical"
                    else "fair shares were charged")
    if not terms_tried:
        return None
    held = found.held if found.after is None else found.after
    then = totals.report(held, found, totals.with_default(terms, arguments.default_quota, arguments.charging))
    return {"terms": terms_tried, **compared(made, then)}


# Output

def _print(arguments: Any, made: dict[str, Any]) -> None:
    if arguments.parquet is not None:
        save(made, arguments.parquet)
    if arguments.html is not None:
        from tools.spark.report.page import page  # here: only this needs Jinja2, which need not be there
        with privatefiles.replacing(arguments.html, sync=False) as file:
            file.write(page(made).encode())
    if arguments.json:
        print_json(made)
    elif arguments.csv:
        if rows := made[arguments.by] or ():
            print_csv(rows, rows[0].keys())
    else:
        _print_table(arguments.by, made)


def _print_table(level: str, made: dict[str, Any]) -> None:
    rows, totals = made[level] or (), made["totals"]
    stores = ("store",) if level not in LISTS and len(made["stores"]) > 1 or level == "stores" else ()
    growth = {"users": ("growth",), "partitions": ("growth", "full_on"), "roots": ("growth", "full_on")}.get(
        level, ()) if made["since"] is not None else ()
    print_table(rows[:SHOWN], (*stores, *COLUMNS[level], *growth), sizes=(
        "limit", "growth", "waiting", "volume", "freed", "size"))
    if len(rows) > SHOWN:
        print(f"... and {len(rows) - SHOWN} more (--json and --csv have all)")
    print()
    facts: dict[str, object] = {
        "users": totals["users"], "messages": f"{totals['messages']} in {totals['files']} files",
        "as users see it": size(totals["logical"]),
        "fair shares": size(totals["fair_share"]),
        "waits for the purge": f"{size(totals['waiting'])} in {totals['waiting_files']} files",
        "message files": size(totals["file_octets"]),
        f"in Junk and Trash alone, older than {OLD_DAYS} days": size(totals["rubbish"]),
        "over quota": totals["over"], "at the warning": totals["warned"], "in grace": totals["in_grace"],
        "idle": totals["idle"], "read nothing": totals["reads_nothing"], "counters that drifted": totals["drifted"]}
    for name in ("fixed", "notified"):
        if name in made:
            facts[name] = made[name]
    print_facts(facts)
    if made["what_if"] is not None:
        _print_what_if(made["what_if"])
    for line in made["notes"]:
        print(f"note: {line}")


def _print_what_if(found: dict[str, Any]) -> None:
    print(f"\nWhat if {'; '.join(found['terms'])}")
    print_table([{"": name.replace("_", " "), "today": found["today"][name], "then": found["then"][name]}
                 for name in found["today"]], ("", "today", "then"))
    print_facts({"freed": size(found["freed"]), "over then": found["over_then"] or None,
                 "over no more": found["over_no_more"] or None})
