"""What can be wrong with files, all in one run of Spark: it finds what this process finds alone, and calls it the same.
(What only databases know is compared by this process in every case; all plantings are in
tests/tools/commands/test_every_fault.py. With PLANTINGS=all Spark looks at each of them, alone.)"""

import os

import pytest

from tests.store.check.test_wholecheck import damaged  # noqa: F401
from tests.tools.commands.test_every_fault import FAULTS
from tests.tools.spark.conftest import LOCAL
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.sparkplan import Spark
from tools.spark.verify.sparksuspects import SparkLooking
from tools.spark.verify.verifyjob import verify

WHERE = [LOCAL]
#: Those that can be there side by side. (Files that are missing or cut off: test_engines, by chance.)
TOGETHER = [
    ("nothing is known of this file", "it is damaged", "the folder is missing", "it was left over",
     "a chunk of records is lost", "a row of the list of deleted mailboxes is lost",
     "a message file has a second name")]
ALONE = [(what,) for what in FAULTS] if os.environ.get("PLANTINGS") == "all" else []


@pytest.mark.parametrize("names", [*TOGETHER, *ALONE], ids=" and ".join)
def test_spark_finds_what_one_process_finds(spark, damaged, names, tmp_path):        # noqa: F811
    for what in names:
        FAULTS[what](damaged)
    alone = verify(damaged.root, tmp_path / "alone", Local(), damaged)
    many = verify(damaged.root, tmp_path / "many", Spark(spark), damaged, by=SparkLooking(spark))
    assert many.faults == alone.faults and len(many.own) == len(names)
