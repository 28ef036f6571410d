"""A Spark session for the store: Java found, the interpreter and our packages brought to the workers, little said.

Nothing has to be configured for `local[*]`, the default. On a cluster (`spark://`, `yarn`, `k8s://`) each worker needs
Python with what the extra `spark` asks for; our own packages come with the session.
"""

import contextlib
import logging
import os
import re
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import requires
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mboxlist import privatefiles
from store.filelock import temporary
from tools.cli.richtable import console
from tools.exits import Failure
from tools.spark.java import java_home

if find_spec("pyspark") and find_spec("pyarrow"):       # without them `missing` can still say what to do
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from tools.spark.source.schema import FORMAT, TABLES
    from tools.spark.source.source import register

PACKAGES = ("mboxlist", "store", "tools")       # what workers import; the servers are not among it
_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[[\d, ]+\]|spark://.+|k8s://.+|yarn")
LOCAL = "local[*]"
_EXTRA = re.compile(r"extra == ['\"]spark['\"]")
_LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex{{short}}
"""
# What is always said, and nobody can use.
_QUIET = ("WARNING: Using incubator modules", "Using Spark's default log4j", "Setting default log level",
          "To adjust logging level")
_CHATTERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")    # repeat at length each error that they raise


def missing() -> str:
    """How to install Spark, in one line; "" when it is installed. (`java_home` looks for Java.)"""
    if find_spec("pyspark") and find_spec("pyarrow"):
        return ""
    extra = [f"'{text.partition(';')[0].strip()}'" for text in requires("onecopy") or () if _EXTRA.search(text)]
    return f"Spark is not installed: {sys.executable} -m pip install {' '.join(extra)}"


def require() -> None:
    """Raises Failure when there is no Spark."""
    if missing():
        raise Failure(missing())


@contextlib.contextmanager
def session(name: str, master: str = LOCAL, settings: Mapping[str, str] | None = None, *,
            level: str = "error") -> Iterator["SparkSession"]:
    """A session that knows the format `onecopy`, and its end. `settings` are Spark's own, and stand above ours.

    Raises Failure when Spark or Java is missing, or the master does not answer.
    """
    require()
    with temporary("spark") as work:
        spark = _begin(name, master, settings or {}, level, work)
        try:
            yield spark
        finally:
            _end(spark)


def _begin(name: str, master: str, settings: Mapping[str, str], level: str, work: Path) -> "SparkSession":
    os.environ["JAVA_HOME"] = str(java_home())
    _look_for(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = SparkConf(loadDefaults=False).setAppName(name).setMaster(master)
    for key, value in {**defaults(master, level, work), **settings}.items():
        conf.set(key, value)
    try:
        _launch(conf)
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise Failure(f"Spark does not start with the master {master}: {first_line(error)}", 1) from error
    for chatter in _CHATTERS:
        logging.getLogger(chatter).setLevel(logging.CRITICAL + 1)
    spark.sparkContext.setLogLevel(level.upper())
    spark.sparkContext.addPyFile(str(packed(work / "onecopy.zip")))
    register(spark)
    return spark


def _look_for(master: str) -> None:
    """Whether there is such a master, as far as that can be told at once: Spark itself shows the traceback of a virtual
    machine, or waits for a minute. Of a standalone cluster one has to answer.

    Raises Failure.
    """
    if _MASTER.fullmatch(master) is None:
        raise Failure(f"{master} is no master of Spark: local[*], spark://HOST:PORT, yarn or k8s://URL")
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise Failure("--master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, the folder of YARN's settings")
    addresses = master.removeprefix("spark://").split(",") if master.startswith("spark://") else []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), 5):
                return
        except (OSError, ValueError):
            continue
    if addresses:
        raise Failure(f"there is no Spark master at {', '.join(addresses)}")


def defaults(master: str, level: str, work: Path) -> dict[str, str]:
    """Settings that hold where nobody says otherwise."""
    privatefiles.write(work / "log4j2.properties", _LOGGING.format(level=level))
    privatefiles.make_folder(work / "warehouse", exist_ok=True)
    found = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.fs.permissions.umask-mode": "077",        # what Spark writes only its owner reads
        "spark.local.dir": str(work),                           # which the next start removes if this one is killed
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": (work / "warehouse").as_uri(),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={(work / 'log4j2.properties').as_uri()}",
    }
    if master.startswith("local"):
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
                  "spark.driver.memory": f"{_memory()}m"}
    return found


def _memory() -> int:
    """MiB for the virtual machine of a local session: a quarter of what there is, 1 to 8 GiB."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(1024, min(8192, there // 4))


def _launch(conf: "SparkConf") -> None:
    """Start the virtual machine unless it runs. Its standard error is ours, without the lines of `_QUIET`."""
    if SparkContext._gateway is not None:
        return
    read, write = os.pipe()
    try:
        gateway = launch_gateway(conf, {"stderr": write})      # type: ignore[no-untyped-call]
    except BaseException:
        os.close(write)
        _copy(read)
        raise
    os.close(write)
    threading.Thread(target=_copy, args=(read,), daemon=True, name="spark-stderr").start()
    SparkContext._gateway = gateway
    SparkContext._jvm = gateway.jvm


def _copy(handle: int) -> None:
    with os.fdopen(handle, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(_QUIET):
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(line)


def _end(spark: "SparkSession") -> None:
    """Stop the session. The virtual machine stays for the next one, and ends with this process."""
    with contextlib.suppress(Exception):        # a cluster that is gone is no reason to complain now
        spark.stop()


def packed(path: Path) -> Path:
    """A zip file of our packages, as they are in this process; compiled, too, where Python keeps that, so that not each
    process of a worker compiles them."""
    with (privatefiles.open_file(path, "wb") as file,
          zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made):
        for package in PACKAGES:
            spec = find_spec(package)
            assert spec is not None and spec.origin is not None
            folder = Path(spec.origin).parent
            for source in sorted(folder.rglob("*.py")):
                name = source.relative_to(folder.parent)
                made.write(source, name)
                with contextlib.suppress(FileNotFoundError):
                    made.write(cache_from_source(source), name.with_suffix(".pyc"))
    return path


def tables(spark: "SparkSession", stores: Sequence[str], only: Sequence[str] | None = None) -> None:
    """Temporary views of the tables of the stores, or of some, by their names. Each costs Spark the start of a process.

    `quotas` has each root once, as it is newest.
    """
    for table in TABLES if only is None else only:
        frame = spark.read.format(FORMAT).option("table", table).load(list(stores))
        if table == "quotas":
            frame.createOrReplaceTempView("all_quotas")
            frame = spark.sql("""
                SELECT newest.* FROM (SELECT max_by(struct(*), written) AS newest FROM all_quotas
                                      GROUP BY store, partition, root)""")
        frame.createOrReplaceTempView(table)


def first_line(error: BaseException) -> str:
    """What an error of Spark says, without the rest."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage() or java)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Turn an error of Spark into one line. Raises Failure."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise Failure(first_line(error), 1) from error


@contextlib.contextmanager
def progress(spark: "SparkSession", what: str) -> Iterator[None]:
    """A bar on standard error while a person watches: tasks that are done, how many a second, and the time left."""
    if not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
               TimeElapsedColumn(), TimeRemainingColumn())
    ended = threading.Event()
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        watcher = threading.Thread(target=_watch, args=(spark, bar, ended), daemon=True, name="spark-progress")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(spark: "SparkSession", bar: Progress, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    task, seen = bar.add_task("", total=None, rate=""), Seen()
    while not ended.wait(0.5):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                seen.stages[stage] = (info.numCompletedTasks, info.numTasks)
        done, total = seen.tasks(set(tracker.getActiveStageIds()))
        speed = bar.tasks[0].speed
        bar.update(task, completed=done, total=total or None, rate=f"{speed:.1f} tasks/s" if speed else "")


class Seen:
    """The stages that were seen active: how many of their tasks are done."""

    def __init__(self) -> None:
        self.stages: dict[int, tuple[int, int]] = {}

    def tasks(self, active: set[int]) -> tuple[int, int]:
        """Tasks that are done, and all; a stage that is not active any more is done."""
        return (sum(done if stage in active else total for stage, (done, total) in self.stages.items()),
                sum(total for _, total in self.stages.values()))


def options(pairs: Sequence[str]) -> dict[str, str]:
    """Spark's own settings, each "key=value". Raises Failure."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.startswith("spark."):
            raise Failure(f"{pair} is not a setting of Spark, such as spark.executor.memory=4g")
        found[key] = value
    return found
