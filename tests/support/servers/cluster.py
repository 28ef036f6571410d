"""A real Spark standalone cluster on loopback: a master and workers, each a process of its own, ended by its pid.

Memory is kept small, and nothing is asked of the machine's name. What the processes say is in a file each.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from attrs import define, field

from tests.support.processes import wait
from tests.support.processes.ports import free_port
from tests.support.servers.classarchive import java_options
from tools.spark.java import java_home

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
LIMIT = 300.0               # seconds: a machine with other things to do
_SETTINGS = {               # for sessions on the cluster
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "512m",
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "4", "spark.default.parallelism": "4",
    "spark.shuffle.io.retryWait": "200ms",          # where an executor was killed: three times 5 s otherwise
    "spark.locality.wait": "0s",                    # all executors are here
}
#: For sessions whose tests are not about Spark itself: on a few rows it takes longer to compile a plan than to run it.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def settings() -> dict[str, str]:
    """For sessions of tests, here or on the cluster: plans are interpreted."""
    return _SETTINGS | INTERPRETED | {"spark.executor.extraJavaOptions": java_options()}


@define(eq=False)
class Node:
    """A process of the cluster, and what it says."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        """The virtual machine's."""
        return self.process.pid

    def kill(self) -> None:
        """End it at once, with the executors that it started."""
        below = wait.tree(self.pid)[1:]
        self.process.kill()
        self.process.wait(LIMIT)
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            wait.gone(pid, "an executor", limit=LIMIT)

    def says(self, text: str) -> None:
        """Wait until it has said that."""
        wait.until(lambda: text in self.log.read_text(errors="replace"), f"{self.log.name} says {text!r}",
                   pid=self.pid, limit=LIMIT)


@define(eq=False)
class Cluster:
    """A master and its workers, in a folder of their own."""

    folder: Path
    port: int = field(factory=free_port)
    master: Node | None = None
    workers: list[Node] = field(factory=list)

    @property
    def url(self) -> str:
        """What --master is given."""
        return f"spark://127.0.0.1:{self.port}"

    def start(self, workers: int = 2) -> None:
        """Start the master, then so many workers with one core each, and wait until the master knows them."""
        self.master = self._node("master", MASTER, "--port", str(self.port), "--webui-port", "0")
        self.master.says("I have been elected leader")
        for _ in range(workers):
            self.add_worker(wait_for=False)
        for worker in self.workers:
            worker.says("Successfully registered with master")

    def add_worker(self, *, wait_for: bool = True) -> Node:
        """One more worker, with one core."""
        name = f"worker{len(self.workers)}"
        node = self._node(name, WORKER, "--cores", "1", "--memory", "600m", "--webui-port", "0",
                          "--work-dir", str(self.folder / name), self.url)
        self.workers.append(node)
        if wait_for:
            node.says("Successfully registered with master")
        return node

    def stop(self) -> None:
        """End all of it."""
        for node in [*self.workers, *([self.master] if self.master else [])]:
            if node.process.poll() is None:
                node.kill()

    def _node(self, name: str, kind: str, *arguments: str) -> Node:
        home, log = Path(pyspark.__file__).parent, self.folder / f"{name}.log"
        environment = {
            **os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1",
            "SPARK_LOCAL_DIRS": str(self.folder / f"{name}-local"), "SPARK_DAEMON_JAVA_OPTS": java_options()}
        with log.open("wb") as out:
            process = subprocess.Popen([home / "bin" / "spark-class", kind, "--host", "127.0.0.1", *arguments],
                                       env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       start_new_session=True)
        return Node(process, log)


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster that is there, and its end."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Cluster(folder)
    try:
        made.start(workers)
        with socket.create_connection(("127.0.0.1", made.port), LIMIT):
            pass
        yield made
    finally:
        made.stop()
