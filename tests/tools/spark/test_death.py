"""A worker that is killed in the middle of a verification or a report changes nothing in what these find.

(Functions and classes within others are pickled as they are: workers have no tests. Of the rebuild: test_rebuild. Other
tables than these can be put in their place: messages in both.)
"""

import shutil

import pytest

from store.opening import open_store
from tests.support.faults import dying
from tests.support.faults.spark_faults import FAULTS, QUIET, plant
from tests.tools.spark.conftest import CLUSTER
from tools.spark.generate.generator import Shape, generate
from tools.spark.rebuild.localplan import Local
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


@pytest.mark.parametrize("table", ["read"])
def test_verification(spark, whole, tmp_path, table):
    root, mark = tmp_path / "store", tmp_path / "died"
    shutil.copytree(whole, root)
    plant(root, len(FAULTS), 17)

    def found(folder, engine, **options):
        store = open_store(root, QUIET)
        try:
            said = verify(root, folder, engine, store, **options)
            return said.faults, said.manifest.total, said.waiting, said.moved
        finally:
            store.close()

    killed = found(tmp_path / "killed", dying.engine(spark, table, dying.dies_once(mark)), by=SparkLooking(spark))
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


@pytest.mark.parametrize("table", ["references"])
def test_report(spark, whole, tmp_path, table):
    def held():
        found = read(spark, [str(whole)], "example.org")
        return [sorted(map(repr, each.to_pylist())) for each in (found.held, found.files, found.quotas, found.unread)]

    mark = tmp_path / "died"
    quiet = held()
    try:
        spark.dataSource.register(_source(Source, table, dying.dies_once(mark)))
        assert held() == quiet and len(quiet[0]) > 9
    finally:
        register(spark)
    assert mark.exists()
