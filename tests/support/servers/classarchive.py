"""How tests start Java: soon, and with an archive of Spark's classes that each virtual machine maps (JEP 350).

To load some 15,000 classes of Spark's jars costs each virtual machine seconds of the processor. Set-up makes the
archive (`python -m tests.support.servers.classarchive`); where there is none that fits, Java does without.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import ROOT

ARCHIVE = Path(sys.prefix, "javaclasses.jsa")
# Begins sooner, and does not last long: what Spark's own classes are is not verified. Of compiled code there is more
# than the 48 MiB that Java keeps room for with this compiler, where one process runs most tests of Spark.
_QUICK = ("-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions "
          "-XX:-BytecodeVerificationRemote")
_NO_WARNING = "-Xlog:disable -Xlog:all=error:stderr"
# What most tests do: a session, and rows of a store that are joined, summed up and written.
_USUAL = """
import sys
from pathlib import Path
from pyspark import SparkContext
from tools.spark.generate.generator import Shape, generate
from tools.spark.sparksession import session, tables
folder = Path(sys.argv[1])
generate(folder / "store", Shape(3, 2, 1, small=True))
with session("classes", "local[2]") as spark:
    tables(spark, [str(folder / "store")], ["messages", "references"])
    found = spark.sql("SELECT owner, count(*) AS n, max_by(digest, octets) AS largest, row_number()"
                      " OVER (ORDER BY owner) AS line FROM (SELECT digest FROM messages WHERE damage = '')"
                      " JOIN references USING (digest) GROUP BY owner ORDER BY owner")
    assert found.toArrow().num_rows
    found.write.parquet(str(folder / "rows"))
    assert spark.read.parquet(str(folder / "rows")).count()
machine = SparkContext._gateway.proc
machine.stdin.close()               # then it ends, and writes the archive
machine.wait()
"""


def java_options() -> str:
    """Words for each virtual machine of Spark."""
    return f"{_QUICK} -XX:SharedArchiveFile={ARCHIVE} {_NO_WARNING}" if ARCHIVE.exists() else _QUICK


def make() -> None:
    """By a session that notes, when its virtual machine ends, all classes that this has loaded."""
    part = ARCHIVE.with_suffix(".part")
    with tempfile.TemporaryDirectory(prefix="onecopy-classes-") as folder:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
        environment = others | {
            "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": folder,
            "SPARK_SUBMIT_OPTS": f"{_QUICK} -XX:ArchiveClassesAtExit={part} {_NO_WARNING}"}
        subprocess.run([sys.executable, "-c", _USUAL, folder], env=environment, cwd=ROOT, check=True,
                       stdin=subprocess.DEVNULL)
    part.rename(ARCHIVE)


if __name__ == "__main__":
    make()
