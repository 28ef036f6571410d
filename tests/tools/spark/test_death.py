"""A worker that is killed in the middle of a verification or a report changes nothing in what these find.

(Functions and classes within others are pickled as they are: workers have no tests. A worker that goes for good:
test_cluster.)
"""

import shutil

import pytest

from store.opening import open_store
from tests.support.faults import dying
from tests.support.faults.spark_faults import FAULTS, QUIET, plant
from tests.tools.spark.conftest import CLUSTER
from tests.tools.spark.test_engines import contents, told
from tools.spark.generate.generator import Shape, generate
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.plan import Plan
from tools.spark.report import reportlocal
from tools.spark.report.reportjob import read
from tools.spark.source.source import Source, register
from tools.spark.verify.sparksuspects import SparkLooking
from tools.spark.verify.verifyjob import verify

WHERE = [CLUSTER]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "store"
    generate(root, Shape(150, 9, 6, seed=6, small=True))
    return root


def test_verification(spark, whole, tmp_path):
    """Killed while message files are read. (While store.idx files are: test_cluster.)"""
    root, mark = tmp_path / "store", tmp_path / "died"
    shutil.copytree(whole, root)
    plant(root, len(FAULTS), 17)

    def found(folder, engine, **options):
        store = open_store(root, QUIET)
        try:
            said = verify(root, folder, engine, store, **options)
            return said.faults, said.manifest.total, said.waiting, said.moved, contents(Plan(folder))
        finally:
            store.close()

    mortal = dying.engine(spark, {"messages": dying.dies_once(mark)})
    killed = found(tmp_path / "killed", mortal, by=SparkLooking(spark))
    assert killed == found(tmp_path / "quiet", Local())
    assert mark.exists()


def _source(base, table, deadly):
    """The data source; whoever reads that table dies once."""
    class Mortal(base):
        def reader(self, schema):
            made = super().reader(schema)
            if made.table == table:
                kind = type(made)

                class Dying(kind):
                    def read(self, partition):
                        return deadly(kind.read(self, partition))
                object.__setattr__(made, "__class__", Dying)      # it is frozen
            return made
    return Mortal


def test_report(spark, whole, tmp_path):
    """It is that of this process."""
    mark = tmp_path / "died"
    try:
        spark.dataSource.register(_source(Source, "references", dying.dies_once(mark)))
        killed = read(spark, [str(whole)], "example.org")
    finally:
        register(spark)
    assert mark.exists()
    quiet = reportlocal.read([str(whole)], "example.org")
    assert told(killed) == told(quiet) and len(quiet.held) > 9
