"""A standalone cluster, whose workers' Python has no onecopy: what comes with the session is enough. A driver that is
killed and started again, and a worker that goes for good, change no answer, and leave nothing over. (An executor that
is killed: test_death.)"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from store.filelock import temporary
from tests.support.faults import dying
from tests.support.processes import wait
from tests.support.servers.cluster import LIMIT, settings
from tests.tools.spark.conftest import CLUSTER
from tests.tools.spark.test_engines import contents
from tools.spark.generate.generator import Shape, generate
from tools.spark.rebuild.localplan import Local
from tools.spark.rebuild.plan import MANIFEST, SCHEMAS, Plan
from tools.spark.rebuild.rebuildjob import BEGUN, make_plan

WHERE = [CLUSTER]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("cluster") / "store"
    generate(root, Shape(60, 4, 4, seed=3, small=True))
    return root


@pytest.fixture(scope="module")
def wanted(root, tmp_path_factory):
    """The plan that one process makes."""
    folder = tmp_path_factory.mktemp("wanted")
    total = make_plan(root, folder, Local()).total
    return contents(Plan(folder)), total


def right(folder, manifest, wanted):
    """Whether it is the right plan, with nothing beside it."""
    assert (contents(Plan(folder)), manifest.total) == wanted
    assert {path.name for path in folder.iterdir()} == {*SCHEMAS, MANIFEST, BEGUN}
    left = {path.suffix for table in SCHEMAS for path in (folder / table).iterdir() if path.is_dir()}
    assert left == set()


def test_workers_have_no_onecopy_of_their_own(spark):
    def where(number):
        import sys

        import tools.spark
        return tools.spark.__file__, sys.prefix

    found = set(spark.sparkContext.parallelize(range(8), 8).map(where).collect())
    assert {".zip" in module for module, _ in found} == {True}
    assert {prefix for _, prefix in found} == {str(spark.nodes.folder / "bare")} != {sys.prefix}


def goes_for_good(place):
    """Batches of a task as they come; but after the first one the whole worker is killed, once: the executor, and what
    starts another. Then there is a file `place`."""
    def goes(batches):
        import os
        import signal
        for batch in batches:
            yield batch
            try:
                os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                continue
            line = [os.getpid()]                    # then the daemon, the executor, and the worker
            for _ in range(3):
                with open(f"/proc/{line[-1]}/stat") as status:
                    line.append(int(status.read().rpartition(")")[2].split()[1]))
            for pid in reversed(line):
                os.kill(pid, signal.SIGKILL)

    return goes


DRIVER = """
import json, os, signal, sys
from pathlib import Path
from pyspark import SparkContext
from tools.spark.rebuild.rebuildjob import make_plan
from tools.spark.rebuild.sparkplan import Spark
from tools.spark.sparksession import session

url, settings, root, folder = sys.argv[1:]
with session("driver", url, json.loads(settings)) as spark:
    pids = [os.getpid(), SparkContext._gateway.proc.pid]

    def ends_the_driver(batches):
        for batch in batches:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            yield batch

    class Mortal(Spark):
        def run(self, plan, name, tasks, work):
            super().run(plan, name, tasks, (lambda task: ends_the_driver(work(task))) if name == "read" else work)

    make_plan(Path(root), Path(folder), Mortal(spark))
"""


def test_a_driver_that_is_killed_and_a_worker_that_goes_for_good(spark, root, tmp_path, wanted, monkeypatch):
    """The driver in the middle of the second table: what is complete stays, and is not made again; its executors are
    gone, and its folder for what is temporary goes with the next start. Whoever begins again loses a worker in the
    middle of a task, which is done again by the one that is left."""
    worker = spark.nodes.add_worker()               # the session of the tests has the cores of the others
    (tmp_path / "temporary").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"}
    environment["TMPDIR"] = str(tmp_path / "temporary")
    plan = tmp_path / "plan"
    try:
        killed = subprocess.run(
            [sys.executable, "-P", "-c", DRIVER, spark.nodes.url, json.dumps(settings()), str(root),
             str(plan)], env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=6 * LIMIT)
        assert killed.returncode == -signal.SIGKILL
        assert Plan(plan).is_done("messages") and not (plan / MANIFEST).exists()
        before = {path: path.stat().st_mtime_ns for path in (plan / "messages").iterdir()}
        wait.until(lambda: len(wait.tree(worker.pid)) == 1, "no executor is left", pid=worker.pid, limit=LIMIT)
    finally:
        worker.kill()
        spark.nodes.workers.remove(worker)
    assert [path for path in (tmp_path / "temporary").rglob("*") if path.is_dir()]
    monkeypatch.setattr(tempfile, "tempdir", environment["TMPDIR"])
    with temporary("spark"):                        # as each session begins
        pass
    assert [str(path) for path in Path(tmp_path / "temporary").rglob("*") if path.is_file() and path.suffix != ".lock"
            or "blockmgr" in path.name] == []
    gone = tmp_path / "gone"
    right(plan, make_plan(root, plan, dying.engine(spark, {"read": goes_for_good(str(gone))})), wanted)
    assert gone.exists()
    assert {path: path.stat().st_mtime_ns for path in (plan / "messages").iterdir()} == before
    lost, = (node for node in spark.nodes.workers if node.process.poll() is not None)
    spark.nodes.workers.remove(lost)
    spark.nodes.add_worker()                        # for the tests that follow
