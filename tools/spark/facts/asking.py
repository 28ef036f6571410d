"""onecopy spark shell, sql: questions to the tables of stores, or of exports of facts."""

import code
import sys
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tools.cli.invocation import Invocation
from tools.cli.output import print_json, print_table
from tools.exits import Failure
from tools.spark import summaries
from tools.spark.facts.factfolders import register
from tools.spark.facts.factschema import FACTS
from tools.spark.sparkcommands import print_csv, session, stores
from tools.spark.sparksession import first_line, plain, progress, tables
from tools.spark.tablenames import TABLES


class Prompt(code.InteractiveConsole):
    """A Python prompt that says what Spark complains of in a line: its own traceback is that of a virtual machine."""

    def showtraceback(self) -> None:
        """Print the error that is being handled."""
        error = sys.exc_info()[1]
        if isinstance(error, PySparkException | Py4JError | Failure):
            self.write(f"{first_line(error)}\n")
        else:
            super().showtraceback()


def shell(invocation: Invocation) -> int:
    """onecopy spark shell"""
    where = [] if invocation.arguments.facts else stores(invocation)
    with session(invocation, "shell") as spark:
        with plain():
            known = _views(spark, invocation, where, TABLES)
        names = {"spark": spark, "sql": spark.sql, **{name: spark.table(name) for name in known}}
        banner = f"Spark {spark.version}. Tables: {', '.join(known)}. Try sql(\"SELECT ...\").show(), quotas.show()"
        Prompt(names).interact(banner if sys.stdin.isatty() else "", "")
    return 0


def sql(invocation: Invocation) -> int:
    """onecopy spark sql"""
    arguments = invocation.arguments
    where = [] if arguments.facts else stores(invocation)
    with session(invocation, "sql") as spark:
        with plain():
            _views(spark, invocation, where, [table for table in TABLES if table in arguments.query.lower()])
            frame = spark.sql(arguments.query)
            with progress(spark, "sql"):
                rows = summaries.rows(frame.limit(arguments.limit + 1) if arguments.limit else frame)
        columns = list(frame.columns)
    more = bool(arguments.limit) and len(rows) > arguments.limit
    rows = rows[:arguments.limit] if more else rows
    if arguments.json:
        print_json(rows)
    elif arguments.csv:
        print_csv(rows, columns)
    elif columns:
        print_table(rows, columns)
    if more:
        print(f"onecopy: there are more than these {arguments.limit} rows: see --limit", file=sys.stderr)
    return 0


def _views(spark: Any, invocation: Invocation, where: list[str], wanted: Any) -> tuple[str, ...]:
    """Make the views that the options ask for; their names. (Those of `wanted` cost the start of a process each.)"""
    if invocation.arguments.facts:
        register(spark, *invocation.arguments.facts)
        return tuple(FACTS)
    tables(spark, where, wanted)
    return tuple(wanted)
