"""onecopy check --engine spark"""

import argparse
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from store.errors import Problem, StoreError
from store.partition.marks import is_down
from tools.cli.exits import Failure
from tools.cli.invocation import Invocation
from tools.cli.output import print_json

if TYPE_CHECKING:
    from tools.spark.rebuild.rebuildjob import Engine
    from tools.spark.verify.verifyjob import Each, Verified

ENGINES = ("check", "local", "spark")


def add_options(made: argparse.ArgumentParser) -> None:
    """The options of a verification."""
    group = made.add_argument_group("verification", "that also reads every message and store.idx")
    group.add_argument("--engine", choices=ENGINES, default="check",
                       help="what reads all of the store: this process, or Spark; check: only databases and store.idx "
                            "are read (the default)")
    group.add_argument("--plan", type=Path, metavar="DIR", help="keep what was found, and a plan of a rebuild, in DIR")
    group.add_argument("--apply", action="store_true", help="put right what was found")
    group.add_argument("--sweep", action="store_true", help="and remove the files that nobody knows")
    group.add_argument("--master", metavar="URL", default="local[*]",
                       help="local[N], spark://HOST:PORT, yarn or k8s://URL (local[*])")
    group.add_argument("--spark", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's own")


def is_asked(invocation: Invocation) -> bool:
    """Whether a verification is asked for. Raises Failure for options that only one has."""
    arguments = invocation.arguments
    if arguments.engine == "check":
        if arguments.plan or arguments.apply or arguments.sweep:
            raise Failure("--plan, --apply and --sweep are for --engine spark, or local")
        return False
    if arguments.sweep and not arguments.apply:
        raise Failure("--sweep is for --apply")
    return True


def verify_store(invocation: Invocation) -> int:
    """Exit status 1 if something is wrong, or is left."""
    from tools.spark import sparksession
    if sparksession.missing():
        raise Failure(sparksession.missing())
    from tools.spark.rebuild.plan import BadPlan, Plan
    from tools.spark.verify.verifyjob import verify
    arguments, root = invocation.arguments, invocation.config.root
    down = is_down(root)
    if down and not (root / "partitions").is_dir():
        raise StoreError(Problem.NO_STORE, f"There is no store in {root}; `onecopy init` makes one")
    if down and arguments.apply:
        raise Failure("the databases are lost: `onecopy reconstruct --all` makes them anew")
    with contextlib.ExitStack() as stack:
        if arguments.plan is None:
            folder = Path(tempfile.mkdtemp(prefix=".plan-", dir=root))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        else:
            folder = arguments.plan
        engine, each = _engine(invocation, stack)
        store = None if down else stack.enter_context(invocation.store())
        try:
            found = verify(root, folder, engine, store, each=each)
            told = found.told()
            if arguments.apply and store is not None:
                told |= _mend(store, Plan(folder.absolute()), found, arguments.sweep)
        except BadPlan as error:
            raise Failure(str(error)) from error
    if arguments.json:
        print_json(told)
    else:
        _print(told, None if arguments.plan is None else arguments.plan)
    return 1 if (told["left"] if "left" in told else told["faults"]) else 0


def _engine(invocation: Invocation, stack: contextlib.ExitStack) -> "tuple[Engine, Each]":
    from tools.spark.rebuild.rebuildjob import Local, Spark
    from tools.spark.verify.verifyjob import one_by_one
    arguments = invocation.arguments
    if arguments.engine != "spark":
        return Local(), one_by_one
    from tools.spark import sparksession
    spark = stack.enter_context(sparksession.session("onecopy check", arguments.master,
                                                     sparksession.options(arguments.spark)))
    stack.enter_context(sparksession.progress(spark, "check"))
    return Spark(spark), sparksession.mapper(spark, 256)


def _mend(store: Any, plan: Any, found: "Verified", sweep: bool) -> dict[str, Any]:
    """What was put right, and what is left."""
    from store.check.wholecheck import check
    from tools.spark.verify.kinds import classes, of_check
    from tools.spark.verify.mending import mend
    applied = mend(store, plan, found, sweep=sweep)
    losses = [fault for fault in found.own if fault.is_loss]
    known = {fault.where for fault in losses}
    left = losses + [fault for fault in of_check(check(store)) if fault.where not in known]
    return {"corrections": [attrs.asdict(each) for each in applied.corrections],
            "not_applied": [attrs.asdict(each) for each in applied.left],
            "left": len(left) + len(applied.left), "left_classes": classes(left)}


def _print(told: dict[str, Any], folder: Path | None) -> None:
    _print_classes(told["classes"])
    figures = f"{told['messages']} messages, {told['records']} records, {told['mailboxes']} mailboxes"
    for name, text in (("waiting", "files wait for the purge"), ("moved", "mailboxes were in use, and not compared"),
                       ("follow", "more findings follow from these")):
        if told[name]:
            figures += f"; {told[name]} {text}"
    print(f"{figures}: {told['faults'] or 'nothing'} wrong")
    if not told["databases"]:
        print("the databases are lost: files alone were looked at")
    if "left" in told:
        print(f"{len(told['corrections'])} corrections; {told['left']} left")
        for item in told["not_applied"]:
            print(f"  {item['where']}: {item['what']} (repair: onecopy {item['repair']})")
        _print_classes(told["left_classes"])
    elif folder is not None and told["faults"]:
        print(f"the plan is in {folder}")


def _print_classes(classes: list[dict[str, Any]]) -> None:
    for item in classes:
        print(f"{item['count']} {item['kind']}: {item['what']}{' (lost)' if item['loss'] else ''}; "
              f"repair: onecopy {' or '.join(item['repair'])}")
        for example in item["examples"]:
            print(f"    {example['where']}: {example['what']}")
        if item["count"] > len(item["examples"]):
            print(f"    ... {item['count'] - len(item['examples'])} more")
