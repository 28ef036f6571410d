"""No rows of Spark come into the driver but by `summaries`, which bounds them; and the jobs have no loop over rows.

This reads our code: the names of what brings rows here, in every module of tools/spark.
"""

import ast
from pathlib import Path

import pytest

from tools.exits import Failure
from tools.spark import summaries

ROOM = Path(summaries.__file__).parent
BRINGS = {"collect", "collectAsMap", "toPandas", "toArrow", "toLocalIterator", "takeOrdered", "foreachPartition"}
# Others have these names as well, so they are looked for where a module has to do with Spark.
AMBIGUOUS = {"take", "first", "head", "tail", "top", "foreach", "reduce", "fold", "aggregate", "show", "count"}
SPARK = ("pyspark", "sparkframes", "spark.sql(", "session.sql(", "createOrReplaceTempView")
OTHERS = {("facts/factfolders.py", "count")}         # of a text
# Modules that are run by Spark's driver and have all of a store before them; they read no table of a plan themselves.
JOBS = ("rebuild/sparkplan.py", "verify/sparkcompare.py", "verify/sparksuspects.py", "verify/verifyjob.py")
LOOPS = {"rows", "batches", "dataset", "read_table", "to_pylist", "to_table", "findings"}


def calls(path):
    """The names of the methods that are called in a module, each with its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node


def test_only_summaries_bring_rows():
    found = set()
    for path in ROOM.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        names = BRINGS | (AMBIGUOUS if any(word in text for word in SPARK) else set())
        found |= {(str(path.relative_to(ROOM)), name) for name, node in calls(path)
                  if name in names and getattr(node.func.value, "id", "") not in ("summaries", "sql")}
    assert {each for each in found if each[0] != "summaries.py"} - OTHERS == set()


@pytest.mark.parametrize("place", JOBS)
def test_a_job_has_no_loop_over_rows(place):
    """What it reads of a plan are frames; the only rows are those of `summaries`."""
    for name, node in calls(ROOM / place):
        if name in LOOPS | {"count"}:
            owner = getattr(node.func.value, "id", "")
            assert owner in ("summaries", "sql"), f"line {node.lineno}: {name}"


class Rows:
    """A frame of so many rows, which counts how many it was asked for."""

    def __init__(self, count):
        self.count, self.asked = count, None

    def limit(self, most):
        self.asked = most
        return Rows(min(most, self.count))

    def toArrow(self):
        import pyarrow as pa
        return pa.table({"n": range(self.count)})


def test_a_summary_is_bounded():
    assert summaries.rows(Rows(3), 3) == [{"n": 0}, {"n": 1}, {"n": 2}]
    large = Rows(1 << 40)
    with pytest.raises(Failure, match="more than 3 rows"):
        summaries.table(large, 3)
    assert large.asked == 4
