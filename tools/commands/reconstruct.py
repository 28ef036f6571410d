"""onecopy reconstruct"""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import asdict

from store.reconstruct.procedures import reconstruct as reconstruct_store
from store.reconstruct.request import Planner, Progress, Refused, Request
from store.settings import Settings
from tools.cli.invocation import Invocation, Parsers
from tools.cli.later import Later
from tools.cli.lookup import account
from tools.cli.output import print_json
from tools.cli.progressbar import changing_bar
from tools.commands.spark import REQUIRE
from tools.exits import Failure

if TYPE_CHECKING:           # what a small reconstruct does without
    from store.rebuild.outcome import Outcome

RANGES = 10_000             # of a set of UIDs
ENGINES = ("auto", "local", "spark")
SHOWN = 50                  # lines of each kind that are printed; --json has all of them

# Most of this takes longer to load than a small reconstruct takes.
_check = Later("store.check.wholecheck:check_all")
_parquet_planner = Later("tools.spark.rebuild.planner:ParquetPlanner", REQUIRE)
_chosen_engine = Later("tools.spark.engines:chosen", REQUIRE)


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("reconstruct", reconstruct, "make whole again what is damaged: indexes, counts, quota, store.idx; "
                  "and when databases are lost, those of a partition beside a running server, or all of them; exit "
                  "status 1 if something is left")
    what = made.add_mutually_exclusive_group()
    what.add_argument("what", nargs="?", metavar="USER|MAILBOX", help="a user's mailboxes; or a mailbox and those "
                      "below it, as user/alice/Archive or public/news. Their records are compared with what is known "
                      "of the message files, and these must be there and have the right length; figures and quota use "
                      "are counted, store.idx is written, and a cache record that is missing or damaged is made from "
                      "its message. References to files are counted over the whole partition only if something was "
                      "wrong, or those from these mailboxes cannot be right")
    what.add_argument("--all", action="store_true", help="the whole store")
    what.add_argument("--partition", metavar="NAME", help="this partition alone; when its databases are lost, also "
                      "beside a running server, which takes it up by itself")
    what.add_argument("--mboxlist", action="store_true", help="the list of mailboxes, when it alone is lost")
    made.add_argument("--check", "--dry-run", action="store_true", help="only say what is wrong; exit status 1 if "
                      "something is")
    made.add_argument("--force", action="store_true", help="take nothing on trust: a partition's databases, or the "
                      "list, are set aside and rebuilt; of mailboxes all cache records and store.idx are, and every "
                      "message file is compared with its digest")
    made.add_argument("--deep", action="store_true", help="with USER|MAILBOX or --all: read every message file, too, "
                      "and compare it with its digest")
    parts = made.add_argument_group("parts", "in the place of all that can be wrong")
    parts.add_argument("--cache", action="store_true", help="what is remembered of messages (ENVELOPE, "
                       "BODYSTRUCTURE), rebuilt from the message files")
    parts.add_argument("--uid", type=uid_set, metavar="SET", help="with --cache and a mailbox: only of "
                       "these UIDs, such as 1:9,12")
    parts.add_argument("--quota", action="store_true", help="what quota roots use")
    parts.add_argument("--rights", action="store_true", help="the tables by which shared mailboxes and aliases are "
                       "looked up")
    made.add_argument("--plan", type=Path, metavar="DIR", help="read every message and store.idx, and write to DIR "
                      "what the store should be; nothing is changed")
    made.add_argument("--apply", type=Path, metavar="DIR", help="do what such a plan says")
    made.add_argument("--users", type=Path, metavar="FILE", help="a users.db with the accounts, when the databases are "
                      "lost; default: one that was set aside, or that of the newest snapshot")
    made.add_argument("--engine", choices=ENGINES, help="what reads the messages: this process, or Spark; auto: "
                      "whichever is quicker, as is the default for --plan")
    made.add_argument("--json", action="store_true")
    group = made.add_argument_group("Spark")
    group.add_argument("--master", metavar="URL", default="local[*]",
                       help="local[N], spark://HOST:PORT, yarn or k8s://URL (local[*])")
    group.add_argument("--spark", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's own")


def uid_set(text: str) -> Callable[[int], bool]:
    """Whether a UID is in a set as IMAP has them (RFC 3501 §9, sequence-set)."""
    from imap.wire import grammar, scanner  # here: they are needed for this option alone
    try:
        found = scanner.parse_number_set(text.encode("ascii"), RANGES)
    except (grammar.SyntaxProblem, UnicodeError):
        raise argparse.ArgumentTypeError(f"{text!r} is no set of UIDs, such as 1:9,12") from None
    ranges = found.resolve((1 << 32) - 1)
    return lambda uid: any(first <= uid <= last for first, last in ranges)


def reconstruct(invocation: Invocation) -> int:
    """onecopy reconstruct"""
    arguments = invocation.arguments
    engine = arguments.engine or ("auto" if arguments.plan else None)
    if engine == "auto":
        engine = _chosen_engine(invocation)
    try:
        outcome = reconstruct_store(Request(
            invocation.config.root, arguments.program, lambda: _settings(invocation), invocation.store,
            lambda store, address: account(store, address).user, _check, lambda: _planner(invocation),
            lambda: _bar(engine), arguments.what, arguments.all, arguments.partition, arguments.mboxlist,
            arguments.check, arguments.force, arguments.deep, arguments.cache, arguments.uid, arguments.quota,
            arguments.rights, arguments.plan, arguments.apply, arguments.users, engine))
    except Refused as error:
        raise Failure(str(error)) from error
    _print(outcome, invocation)
    return 1 if outcome.left or outcome.findings or arguments.check and outcome.corrections else 0


def _settings(invocation: Invocation) -> Settings:
    return invocation.config.settings("store", Settings)


def _planner(invocation: Invocation) -> Planner:
    """Raises Failure when what it needs is not installed."""
    planner: Planner = _parquet_planner(invocation.arguments.master, invocation.arguments.spark)
    return planner


def _bar(engine: str | None) -> AbstractContextManager[Progress]:
    """A bar on standard error while a person watches; Spark has its own."""
    if engine == "spark":
        return nullcontext(lambda what, done, total: None)
    return changing_bar()


def _print(outcome: "Outcome", invocation: Invocation) -> None:
    if invocation.arguments.json:
        print_json(asdict(outcome))
        return
    for correction in outcome.corrections[:SHOWN]:
        print(f"{correction.where}: {correction.what}")
    for finding in [*outcome.left, *outcome.findings][:SHOWN]:
        print(f"{finding.where}: {finding.what} (repair: onecopy {finding.repair})")
    for what, items in (("corrections", outcome.corrections), ("findings", [*outcome.left, *outcome.findings])):
        if len(items) > SHOWN:
            print(f"... {len(items)} {what} in all: --json has them")
    figures = f"{outcome.mailboxes} mailboxes; " if outcome.mailboxes else ""
    if outcome.records or outcome.messages:
        figures = f"{outcome.mailboxes} mailboxes, {outcome.records} records, {outcome.messages} messages; "
    print(f"{figures}{len(outcome.corrections)} corrections; {len(outcome.left) + len(outcome.findings)} left")
