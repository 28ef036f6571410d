"""What can be wrong: a run of Spark for each kind finds what this process finds, and calls it the same. Only with
PLANTINGS=all; in every run test_engines has Spark look at what is wrong with files, by chance and side by side. (What
only databases know is compared by this process in every case; in tests/tools/commands/test_every_fault.py it finds all
of them.)"""

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

if os.environ.get("PLANTINGS") == "all":
    @pytest.mark.parametrize("what", FAULTS)
    def test_spark_finds_what_one_process_finds(spark, damaged, what, tmp_path):        # noqa: F811
        FAULTS[what](damaged)
        alone = verify(damaged.root, tmp_path / "alone", Local(), damaged)
        many = verify(damaged.root, tmp_path / "many", Spark(spark), damaged, by=SparkLooking(spark))
        assert many.faults == alone.faults and len(many.own) == 1
