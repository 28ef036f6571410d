"""onecopy reconstruct"""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mboxlist.entry import MailboxId
from mboxlist.names import OTHERS, PUBLIC, MailboxName, NameProblem
from store import portable, rebuild
from store.accounts.builtin import User
from store.check import check
from store.errors import Problem, StoreError
from store.findings import RECONSTRUCT, Finding
from store.ready import make_folders
from store.recount import recount, recount_some
from store.repair import Correction
from store.settings import Settings
from store.store import Store
from tools.commands import Invocation, Parsers, account
from tools.errors import Failure
from tools.output import print_json

if TYPE_CHECKING:
    from tools.spark.plan import Plan
    from tools.spark.rebuild import Engine

ENGINES = ("local", "spark")
SHOWN = 50                  # lines of each kind that are printed; --json has all of them


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("reconstruct", reconstruct, "make whole again what is damaged: indexes, counts, quota, store.idx; "
                  "and when the databases are lost, all of them; exit status 1 if something is left")
    what = made.add_mutually_exclusive_group()
    what.add_argument("what", nargs="?", metavar="USER|MAILBOX", help="a user's mailboxes; or a mailbox and those "
                      "below it, as user/alice/Archive or public/news")
    what.add_argument("--all", action="store_true", help="the whole store")
    what.add_argument("--partition", metavar="NAME", help="this partition alone")
    made.add_argument("--check", action="store_true", help="only say what is wrong; exit status 1 if something is")
    made.add_argument("--plan", type=Path, metavar="DIR", help="read every message and store.idx, and write to DIR "
                      "what the store should be; nothing is changed")
    made.add_argument("--apply", type=Path, metavar="DIR", help="do what such a plan says")
    made.add_argument("--users", type=Path, metavar="FILE", help="a users.db with the accounts, when the databases are "
                      "lost")
    made.add_argument("--engine", choices=ENGINES, help="what reads the messages: this process, or Spark (local)")
    made.add_argument("--json", action="store_true")
    group = made.add_argument_group("Spark")
    group.add_argument("--master", metavar="URL", default="local[*]",
                       help="local[N], spark://HOST:PORT, yarn or k8s://URL (local[*])")
    group.add_argument("--spark", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's own")


@attrs.define
class Result:
    """What was done, or is to be done; what was left as it is; and what cannot be repaired here."""

    mailboxes: int = 0
    records: int = 0
    messages: int = 0
    corrections: list[Correction] = attrs.field(factory=list)
    left: list[Finding] = attrs.field(factory=list)
    findings: list[Finding] = attrs.field(factory=list)


def reconstruct(invocation: Invocation) -> int:
    """onecopy reconstruct"""
    arguments, root = invocation.arguments, invocation.config.root
    if not (arguments.what or arguments.all or arguments.partition or arguments.plan or arguments.apply):
        raise Failure("what is to be reconstructed? A user, a mailbox, --partition NAME or --all")
    if arguments.apply and (arguments.plan or arguments.engine or arguments.partition):
        raise Failure("a plan that is applied is as it is: --plan, --engine and --partition are for making one")
    down = not any((root / "mboxlist").glob("*.db"))
    if down and not (root / "partitions").is_dir():
        raise StoreError(Problem.NO_STORE, f"There is no store in {root}; `onecopy init` makes one")
    if down and (arguments.what or arguments.partition and not arguments.plan):
        raise Failure("the databases are lost: only all of them can be made anew (--all)")
    with contextlib.ExitStack() as stack:
        if arguments.plan:
            result = _make_plan(invocation, arguments.plan, stack)
        elif arguments.apply:
            result = _apply(invocation, arguments.apply, down)
        elif arguments.engine == "spark" or down and arguments.check:
            folder = Path(tempfile.mkdtemp(prefix=".plan-", dir=root))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            planned = _make_plan(invocation, folder, stack)
            result = planned if down and arguments.check else _apply(invocation, folder, down)
        elif down:
            result = _rebuild(invocation)
        else:
            result = _repair(invocation)
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
    from tools.spark.rebuild import Local, Spark
    arguments = invocation.arguments
    if arguments.engine != "spark":
        return Local(progress)
    from tools.spark import session
    spark = stack.enter_context(session.session("onecopy reconstruct", arguments.master,
                                                session.options(arguments.spark)))
    stack.enter_context(session.progress(spark, "reconstruct"))
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
    from tools.spark.live import apply_live
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
    from tools.spark import session
    if session.missing():
        raise Failure(session.missing())
    from tools.spark import apply, plan
    from tools.spark import rebuild as making
    return _Plans(plan, making, apply)


# Without one

def _rebuild(invocation: Invocation) -> Result:
    done = rebuild.rebuild(invocation.config.root, settings=_settings(invocation), users=_users(invocation))
    return Result(done.mailboxes, done.records, done.messages, findings=done.findings)


def _repair(invocation: Invocation) -> Result:
    """Repair by what the databases and `store.idx` say of each other; message files are read where nothing else tells.
    """
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
        for name, partition in sorted(store.partitions.items()):
            here = [MailboxId(mailbox) for place, mailbox in scope if place == name]
            if arguments.what:
                result.corrections += recount_some(store, partition, here) if here else []
            elif arguments.partition in (None, name):
                make_folders(partition.folder)
                result.corrections += recount(store, partition)
            partition.unwritten.changed.update(here)
            portable.write_round(store, partition, hurry=True)
    return result


def _scope(store: Store, invocation: Invocation) -> list[tuple[str, int]]:
    """The mailboxes that are meant, also deleted ones: partition and id. Raises Failure, StoreError NO_USER,
    NO_MAILBOX."""
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


def _repairable(store: Store, only: set[int] | None, partition: str | None = None) -> list[Finding]:
    """What the check finds wrong and `reconstruct` repairs; with `only`, what is said of these mailboxes."""
    findings = [finding for finding in check(store) if finding.repair == RECONSTRUCT]
    if only is None:
        return findings if partition is None else [
            finding for finding in findings if _is_of(store, finding, {
                int(mailbox) for mailbox, _ in store.partitions[partition].all_states()}, partition)]
    return [finding for finding in findings if _is_of(store, finding, only, "")]


def _is_of(store: Store, finding: Finding, mailboxes: set[int], partition: str) -> bool:
    if partition and (f"/partitions/{partition}/" in finding.where or finding.where == f"partition {partition}"
                      or finding.where.startswith("message ")
                      and store.partitions[partition].refs.find(bytes.fromhex(finding.where[8:])) is not None):
        return True
    names = {str(found[0].name) for mailbox in mailboxes if (found := portable.whereabouts(store, mailbox))}
    where = finding.where.removesuffix(" (deleted)")
    places = {str(portable.right_place(store.partition_of(found[0]), *found)) for mailbox in mailboxes
              if (found := portable.whereabouts(store, mailbox))}
    return where in names or where in places


# What is common

def _settings(invocation: Invocation) -> Settings:
    return invocation.config.settings("store", Settings)


def _users(invocation: Invocation) -> list[User]:
    """The accounts of a users.db that has lost its environment. Raises Failure."""
    table = invocation.arguments.users
    if table is None:
        return []
    if not table.is_file():
        raise Failure(f"there is no file {table}")
    return rebuild.salvage_users(table)


@contextlib.contextmanager
def _bar(invocation: Invocation) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error while a person watches; Spark has its own."""
    if not sys.stderr.isatty() or invocation.arguments.engine == "spark":
        yield lambda what, done, total: None
        return
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
    figures = f"{result.mailboxes} mailboxes"
    if result.records or result.messages:
        figures += f", {result.records} records, {result.messages} messages"
    print(f"{figures}; {len(result.corrections)} corrections; {len(result.left) + len(result.findings)} left")
