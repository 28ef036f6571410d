"""onecopy check --engine spark"""

import contextlib
from pathlib import Path
from typing import Any

import attrs

from store.errors import Problem, StoreError
from store.filelock import scratch
from store.partition.marks import is_down
from tools.cli.invocation import Invocation
from tools.cli.output import print_json
from tools.exits import Failure
from tools.spark import engines, sparksession
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.plan import BadPlan, Plan
from tools.spark.rebuild.rebuildjob import Engine
from tools.spark.rebuild.sparkplan import Spark
from tools.spark.verify.kinds import classes, of_check
from tools.spark.verify.mending import mend
from tools.spark.verify.sparksuspects import SparkLooking
from tools.spark.verify.verifyjob import Verified, verify


def verify_store(invocation: Invocation) -> int:
    """Exit status 1 if something is wrong, or is left."""
    arguments, root = invocation.arguments, invocation.config.root
    down = is_down(root)
    if down and not (root / "partitions").is_dir():
        raise StoreError(Problem.NO_STORE, f"There is no store in {root}; `onecopy init` makes one")
    if down and arguments.apply:
        raise Failure("the databases are lost: `onecopy reconstruct --all` rebuilds them")
    with contextlib.ExitStack() as stack:
        if arguments.plan is None:
            folder = stack.enter_context(scratch(root, "plan"))
        else:
            folder = arguments.plan
        engine, parts = _engine(invocation, stack)
        store = None if down else stack.enter_context(invocation.store())
        try:
            found = verify(root, folder, engine, store, access=True, **parts)
            summary = found.summary()
            if arguments.apply and store is not None:
                summary |= _mend(store, Plan(folder.absolute()), found, arguments.sweep)
        except BadPlan as error:
            raise Failure(str(error)) from error
    if arguments.json:
        print_json(summary)
    else:
        _print(summary, None if arguments.plan is None else arguments.plan)
    return 1 if (summary["left"] if "left" in summary else summary["faults"]) else 0


def _engine(invocation: Invocation, stack: contextlib.ExitStack) -> tuple[Engine, dict[str, Any]]:
    arguments = invocation.arguments
    if (engines.chosen(invocation) if arguments.engine == engines.AUTO else arguments.engine) != engines.SPARK:
        return Local(), {}
    spark = stack.enter_context(sparksession.session("onecopy check", arguments.master,
                                                     sparksession.options(arguments.spark)))
    stack.enter_context(sparksession.progress(spark, "check"))
    return Spark(spark), {"by": SparkLooking(spark)}


def _mend(store: Any, plan: Any, found: Verified, sweep: bool) -> dict[str, Any]:
    """What was put right, and what is left."""
    applied = mend(store, plan, found, sweep=sweep)
    losses = [fault for fault in found.own if fault.is_loss]
    known = {fault.where for fault in losses}
    left = losses + [fault for fault in of_check(applied.left) if fault.where not in known]
    return {"corrections": [attrs.asdict(each) for each in applied.corrections],
            "left": len(left), "left_classes": classes(left)}


def _print(summary: dict[str, Any], folder: Path | None) -> None:
    _print_classes(summary["classes"])
    figures = f"{summary['messages']} messages, {summary['records']} records, {summary['mailboxes']} mailboxes"
    for name, text in (("waiting", "files wait for the purge"), ("moved", "mailboxes were in use, and not compared"),
                       ("follow", "more findings follow from these")):
        if summary[name]:
            figures += f"; {summary[name]} {text}"
    print(f"{figures}: {summary['faults'] or 'nothing'} wrong")
    if not summary["databases"]:
        print("the databases are lost: files alone were looked at")
    if "left" in summary:
        print(f"{len(summary['corrections'])} corrections; {summary['left']} left")
        _print_classes(summary["left_classes"])
    elif folder is not None and summary["faults"]:
        print(f"the plan is in {folder}")


def _print_classes(classes: list[dict[str, Any]]) -> None:
    for item in classes:
        print(f"{item['count']} {item['kind']}: {item['what']}{' (lost)' if item['loss'] else ''}; "
              f"repair: onecopy {' or '.join(item['repair'])}")
        for example in item["examples"]:
            print(f"    {example['where']}: {example['what']}")
        if item["count"] > len(item["examples"]):
            print(f"    ... {item['count'] - len(item['examples'])} more")
