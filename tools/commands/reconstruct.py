"""onecopy reconstruct"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from store.errors import Problem, StoreError
from store.partition.marks import is_down
from store.values import RECONSTRUCT, Finding
from tools.cli.exits import Failure
from tools.cli.invocation import Invocation, Parsers, account
from tools.cli.output import print_json
from tools.commands import reconstruct_parts
from tools.commands.reconstruct_parts import Result

if TYPE_CHECKING:           # what is needed is loaded where it is: each function is for some uses of the command
    from store.accounts.builtin import User
    from store.settings import Settings
    from store.store import Store
    from tools.spark.rebuild.plan import Plan
    from tools.spark.rebuild.rebuildjob import Engine

ENGINES = ("local", "spark")
SHOWN = 50                  # lines of each kind that are printed; --json has all of them


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
                      "list, are set aside and made anew; of mailboxes all cache records and store.idx are, and every "
                      "message file is compared with its digest")
    made.add_argument("--deep", action="store_true", help="with USER|MAILBOX or --all: read every message file, too, "
                      "and compare it with its digest")
    parts = made.add_argument_group("parts", "in the place of all that can be wrong")
    parts.add_argument("--cache", action="store_true", help="what is remembered of messages (ENVELOPE, "
                       "BODYSTRUCTURE), made anew from the message files")
    parts.add_argument("--uid", type=reconstruct_parts.uid_set, metavar="SET",
                       help="with --cache and a mailbox: only of "
                       "these UIDs, such as 1:9,12")
    parts.add_argument("--quota", action="store_true", help="what quota roots use")
    parts.add_argument("--rights", action="store_true", help="the tables by which shared mailboxes and aliases are "
                       "looked up")
    made.add_argument("--plan", type=Path, metavar="DIR", help="read every message and store.idx, and write to DIR "
                      "what the store should be; nothing is changed")
    made.add_argument("--apply", type=Path, metavar="DIR", help="do what such a plan says")
    made.add_argument("--users", type=Path, metavar="FILE", help="a users.db with the accounts, when the databases are "
                      "lost; default: one that was set aside, or that of the newest snapshot")
    made.add_argument("--engine", choices=ENGINES, help="what reads the messages: this process, or Spark (local)")
    made.add_argument("--json", action="store_true")
    group = made.add_argument_group("Spark")
    group.add_argument("--master", metavar="URL", default="local[*]",
                       help="local[N], spark://HOST:PORT, yarn or k8s://URL (local[*])")
    group.add_argument("--spark", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's own")


def reconstruct(invocation: Invocation) -> int:
    """onecopy reconstruct"""
    arguments, root = invocation.arguments, invocation.config.root
    parts = arguments.cache or arguments.quota or arguments.rights
    if not (arguments.what or arguments.all or arguments.partition or arguments.plan or arguments.apply
            or arguments.mboxlist or arguments.quota or arguments.rights):
        raise Failure("what is to be reconstructed? A user, a mailbox, --partition NAME, --mboxlist or --all")
    if arguments.uid and not (arguments.cache and arguments.what):
        raise Failure("--uid is for --cache and a mailbox")
    if arguments.deep and (parts or arguments.check or arguments.plan or arguments.apply or arguments.engine
                           or not (arguments.what or arguments.all)):
        raise Failure("--deep is for USER|MAILBOX or --all; onecopy scrub reads all and changes nothing")
    if parts and (arguments.plan or arguments.apply or arguments.engine or arguments.mboxlist):
        raise Failure("--cache, --quota and --rights need no plan, and are not for the list")
    if arguments.apply and (arguments.plan or arguments.engine or arguments.partition):
        raise Failure("a plan that is applied is as it is: --plan, --engine and --partition are for making one")
    down = is_down(root)
    if down and not (root / "partitions").is_dir():
        raise StoreError(Problem.NO_STORE, f"There is no store in {root}; `onecopy init` makes one")
    if down and (arguments.what or parts or arguments.partition and not arguments.plan):
        raise Failure("the databases are lost: only all of them can be made anew (--all), or the list (--mboxlist)")
    with contextlib.ExitStack() as stack:
        if arguments.plan:
            result = _make_plan(invocation, arguments.plan, stack)
        elif arguments.apply:
            result = _apply(invocation, arguments.apply, down)
        elif arguments.mboxlist or down and arguments.all and _only_list_is_lost(root):
            result = reconstruct_parts.make_list(invocation, _users(invocation), force=arguments.force)
        elif arguments.engine == "spark" or down and arguments.check:
            import shutil
            import tempfile
            folder = Path(tempfile.mkdtemp(prefix=".plan-", dir=root))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            planned = _make_plan(invocation, folder, stack)
            result = planned if down and arguments.check else _apply(invocation, folder, down)
            if not arguments.check and not arguments.partition:
                reconstruct_parts.take_in_all(invocation, result)
        elif down:
            result = _rebuild(invocation)
        elif parts:
            result = _parts(invocation)
        else:
            result = _partitions(invocation) or _repair(invocation)
    _print(result, invocation)
    return 1 if result.left or result.findings or arguments.check and result.corrections else 0


# With a plan

def _make_plan(invocation: Invocation, folder: Path, stack: contextlib.ExitStack) -> Result:
    plans = _plans()
    with _bar(invocation) as progress:
        try:
            manifest = plans.rebuild.make_plan(invocation.config.root, folder, _engine(invocation, stack, progress),
                                               partition=invocation.arguments.partition)
        except plans.plan.BadPlan as error:
            raise Failure(str(error)) from error
    total = manifest.total
    return Result(total.mailboxes, total.records, total.messages, findings=plans.plan.Plan(folder).findings())


def _engine(invocation: Invocation, stack: contextlib.ExitStack, progress: Callable[[str, int, int], None]) -> "Engine":
    """What makes the plan. Raises Failure."""
    from tools.spark.rebuild.rebuildjob import Local, Spark
    arguments = invocation.arguments
    if arguments.engine != "spark":
        return Local(progress)
    from tools.spark import sparksession
    spark = stack.enter_context(sparksession.session("onecopy reconstruct", arguments.master,
                                                sparksession.options(arguments.spark)))
    stack.enter_context(sparksession.progress(spark, "reconstruct"))
    return Spark(spark)


def _apply(invocation: Invocation, folder: Path, down: bool) -> Result:
    plans = _plans()
    plan, arguments = plans.plan.Plan(folder), invocation.arguments
    try:
        manifest = plan.read_manifest()
        if Path(manifest.root).resolve() != invocation.config.root.resolve():
            raise plans.plan.BadPlan(f"{folder} is a plan of the store in {manifest.root}")
        if not down:
            return _apply_live(invocation, plan)
        if arguments.check:
            return Result(manifest.total.mailboxes, manifest.total.records, manifest.total.messages,
                          findings=plan.findings())
        with _bar(invocation) as progress:
            done = plans.apply.apply_down(invocation.config.root, plan, _settings(invocation), users=_users(invocation),
                                          progress=progress)
        return Result(done.mailboxes, done.records, done.messages, findings=done.findings)
    except plans.plan.BadPlan as error:
        raise Failure(str(error)) from error


def _apply_live(invocation: Invocation, plan: "Plan") -> Result:
    from tools.spark.rebuild.planlive import apply_live
    check_only = invocation.arguments.check
    with invocation.store() as store:
        only = None if invocation.arguments.what is None else {mailbox for _, mailbox in _scope(store, invocation)}
        applied = apply_live(store, plan, change=not check_only, only=only)
        left = applied.left + (_repairable(store, only) if check_only else [])
    return Result(mailboxes=applied.mailboxes, corrections=applied.corrections, left=left)


@attrs.frozen
class _Plans:
    """The modules that need pyarrow."""

    plan: Any
    rebuild: Any
    apply: Any


def _plans() -> _Plans:
    """Raises Failure when what they need is not installed."""
    from tools.spark import sparksession
    if sparksession.missing():
        raise Failure(sparksession.missing())
    from tools.spark.rebuild import plan
    from tools.spark.rebuild import planload as apply
    from tools.spark.rebuild import rebuildjob as making
    return _Plans(plan, making, apply)


# Without one

def _only_list_is_lost(root: Path) -> bool:
    from store.reconstruct.mailboxlist import only_list_is_lost
    return only_list_is_lost(root)


def _rebuild(invocation: Invocation) -> Result:
    from store.reconstruct import wholestore as rebuild
    result = Result()
    with _bar(invocation) as progress:
        result.add(rebuild.rebuild(invocation.config.root, settings=_settings(invocation), users=_users(invocation),
                                   progress=progress))
    reconstruct_parts.take_in_all(invocation, result)
    return result


def _partitions(invocation: Invocation) -> Result | None:
    """Make anew the databases of partitions that have lost theirs; None when that was not what was asked for."""
    arguments, root = invocation.arguments, invocation.config.root
    if arguments.what:
        return None
    names = [name for name in reconstruct_parts.lost_partitions(root) if arguments.all or arguments.partition == name]
    if arguments.partition and not names and (arguments.force or reconstruct_parts.unlisted(invocation,
                                                                                            arguments.partition)):
        names = [arguments.partition]
    if not names:
        return None
    result = Result()
    for name in names:
        with _bar(invocation) as progress:
            done = reconstruct_parts.make_partition(invocation, name, progress, force=arguments.force)
        for field in attrs.fields(Result):
            setattr(result, field.name, getattr(result, field.name) + getattr(done, field.name))
    return result


def _parts(invocation: Invocation) -> Result:
    """Cache records, quotas, or tables of rights alone."""
    from mboxlist.entry import MailboxId
    arguments, result = invocation.arguments, Result()
    change = not arguments.check
    quota_alone = arguments.quota and not (arguments.cache or arguments.rights or arguments.what)
    if quota_alone and _quotas_are_right(invocation):
        return result
    with invocation.store() as store, _bar(invocation) as progress:
        scope = [entry for _, mailbox in _scope(store, invocation) if (entry := store.mailboxes.find_id(
            MailboxId(mailbox))) is not None and entry.partition in store.partitions] if arguments.cache else []
        result.mailboxes = len(scope)
        if arguments.cache:
            reconstruct_parts.recache(store, scope, result, invocation, progress)
        if arguments.quota:
            reconstruct_parts.recount_quotas(store, result, _owner(store, invocation), arguments.partition,
                                             change=change)
        if arguments.rights:
            reconstruct_parts.recount_rights(store, result, change=change)
    return result


def _quotas_are_right(invocation: Invocation) -> bool:
    from store.quota.sums import are_right
    return are_right(invocation.config.root, invocation.arguments.program, invocation.arguments.partition)


def _owner(store: "Store", invocation: Invocation) -> str | None:
    """Whose the mailboxes are that are meant; None for all."""
    from mboxlist.names import OTHERS, PUBLIC, MailboxName, NameProblem
    what = invocation.arguments.what
    if what is None:
        return None
    if not what.startswith((OTHERS, PUBLIC)):
        return account(store, what).user
    try:
        return MailboxName.parse(what).owner
    except NameProblem as error:
        raise Failure(f"{what}: {error}") from None


def _repair(invocation: Invocation) -> Result:
    """Repair by what the databases and `store.idx` say of each other; message files are read where nothing else tells.
    """
    from mboxlist.entry import MailboxId
    from store.reconstruct.recount import recount, recount_some
    from store.userarea import writing
    arguments, result = invocation.arguments, Result()
    with invocation.store() as store:
        if arguments.partition is not None and arguments.partition not in store.partitions:
            raise Failure(f"there is no partition {arguments.partition}")
        scope = _scope(store, invocation)
        result.mailboxes = len(scope)
        if arguments.check:
            result.left = _repairable(store, {mailbox for _, mailbox in scope} if arguments.what else None,
                                      arguments.partition)
            return result
        entries = [entry for _, mailbox in scope if (entry := store.mailboxes.find_id(MailboxId(mailbox))) is not None
                   and entry.partition in store.partitions] if arguments.what or arguments.deep else []
        if arguments.force and (arguments.what or arguments.all):
            with _bar(invocation) as progress:
                reconstruct_parts.recache(store, entries or list(store.mailboxes.all()), result, invocation, progress)
        uses: dict[str, Any] = {}
        for name, partition in sorted(store.partitions.items()):
            here = [MailboxId(mailbox) for place, mailbox in scope if place == name]
            if arguments.what:
                if here:
                    done, uses[name] = recount_some(store, partition, here)
                    result.corrections += done
            elif arguments.partition in (None, name):
                from store.recovery.emptying import make_folders
                make_folders(partition.folder)
                result.corrections += recount(store, partition)
                reconstruct_parts.take_in_lost(store, partition, result)
            partition.unwritten.changed.update(here)
            writing.write_round(store, partition, hurry=True)
        with _bar(invocation) as progress:
            reconstruct_parts.look_at(store, entries, result, progress, deep=arguments.deep,
                               uses=uses if arguments.what and not result.corrections else {})
    return result


def _scope(store: "Store", invocation: Invocation) -> list[tuple[str, int]]:
    """The mailboxes that are meant, also deleted ones: partition and id. Raises Failure, StoreError NO_USER,
    NO_MAILBOX."""
    from mboxlist.names import OTHERS, PUBLIC, MailboxName, NameProblem
    arguments, what = invocation.arguments, invocation.arguments.what
    if what is None:
        found = [(name, int(mailbox)) for name, partition in store.partitions.items()
                 if arguments.partition in (None, name) for mailbox, _ in partition.all_states()]
        return found
    if not what.startswith((OTHERS, PUBLIC)):
        return [(entry.partition, entry.id) for entry in store.names(account(store, what).user)]
    try:
        name = MailboxName.parse(what)
    except NameProblem as error:
        raise Failure(f"{what}: {error}") from None
    below = list(store.mailboxes.below(name.owner, name.path))
    return [(entry.partition, entry.id) for entry in ([] if below and store.mailboxes.find(name) is None
                                                      else [store.entry(name)]) + below]


def _repairable(store: "Store", only: set[int] | None, partition: str | None = None) -> list[Finding]:
    """What the check finds wrong and `reconstruct` repairs; with `only`, what is said of these mailboxes."""
    from store.check.wholecheck import check
    findings = [finding for finding in check(store) if finding.repair == RECONSTRUCT]
    if only is None:
        return findings if partition is None else [
            finding for finding in findings if _is_of(store, finding, {
                int(mailbox) for mailbox, _ in store.partitions[partition].all_states()}, partition)]
    return [finding for finding in findings if _is_of(store, finding, only, "")]


def _is_of(store: "Store", finding: Finding, mailboxes: set[int], partition: str) -> bool:
    from store.userarea import writing
    if partition and (f"/partitions/{partition}/" in finding.where or finding.where == f"partition {partition}"
                      or finding.where.startswith("message ")
                      and store.partitions[partition].refs.find(bytes.fromhex(finding.where[8:])) is not None):
        return True
    names = {str(found[0].name) for mailbox in mailboxes if (found := store.known(mailbox))}
    where = finding.where.removesuffix(" (deleted)")
    places = {str(writing.right_place(store.partition_of(found[0]), *found)) for mailbox in mailboxes
              if (found := store.known(mailbox))}
    return where in names or where in places


# What is common

def _settings(invocation: Invocation) -> "Settings":
    from store.settings import Settings
    return invocation.config.settings("store", Settings)


def _users(invocation: Invocation) -> "list[User]":
    """The accounts of a users.db that has lost its environment. Raises Failure."""
    table = invocation.arguments.users
    if table is None:
        return reconstruct_parts.kept_accounts(invocation.config.root)
    if not table.is_file():
        raise Failure(f"there is no file {table}")
    from store.reconstruct.wholestore import salvage_users
    return salvage_users(table)


@contextlib.contextmanager
def _bar(invocation: Invocation) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error while a person watches; Spark has its own."""
    if not sys.stderr.isatty() or invocation.arguments.engine == "spark":
        yield lambda what, done, total: None
        return
    from rich.console import Console  # here: it takes as long to load as the rest of a small command
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total)


def _print(result: Result, invocation: Invocation) -> None:
    if invocation.arguments.json:
        print_json(attrs.asdict(result))
        return
    for correction in result.corrections[:SHOWN]:
        print(f"{correction.where}: {correction.what}")
    for finding in [*result.left, *result.findings][:SHOWN]:
        print(f"{finding.where}: {finding.what} (repair: onecopy {finding.repair})")
    for what, items in (("corrections", result.corrections), ("findings", [*result.left, *result.findings])):
        if len(items) > SHOWN:
            print(f"... {len(items)} {what} in all: --json has them")
    figures = f"{result.mailboxes} mailboxes; " if result.mailboxes else ""
    if result.records or result.messages:
        figures = f"{result.mailboxes} mailboxes, {result.records} records, {result.messages} messages; "
    print(f"{figures}{len(result.corrections)} corrections; {len(result.left) + len(result.findings)} left")
