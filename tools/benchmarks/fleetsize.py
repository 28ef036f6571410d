"""tools/bench facts: the report of a fleet over invented facts of growing size, and what it would take for a real one.

    tools/bench facts --records 1000000,10000000 --work DIR [--chart FILE]

Each size runs in processes of its own: a driver and two executors of one core and 2 GiB each. What Spark's event log
says of tasks is summed up; the projection is for 2 x 10^10 records (10^9 messages of 20) on 100 executors.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from mboxlist import privatefiles
from tools.spark.generate.factsgenerator import Fleet, generate
from tools.spark.report.charts import columns

MEMORY = 2048                   # MiB of the driver and of each executor
EXECUTORS = 2
RECORDS, MANY = 20_000_000_000, 100     # the projection: records, and executors of one core
USERS = 200                     # records of a user, on the average
LISTED = 24                     # octets that the driver keeps for a map task and each 8 reduce partitions, about


@frozen
class Run:
    """A report that was made: seconds by the clock, and of processor time of all tasks and of the longest one; octets
    that were shuffled and spilled; tasks."""

    records: int
    seconds: float
    task_seconds: float
    longest: float
    shuffled: int
    spilled: int
    tasks: int

    @property
    def shuffled_a_record(self) -> float:
        """Octets that go over the network for each record."""
        return self.shuffled / self.records


def main(words: Sequence[str] | None = None) -> int:
    """Run, print a line of JSON for each size and the projection, and draw the chart."""
    parser = argparse.ArgumentParser(prog="tools/bench facts", description=__doc__)
    parser.add_argument("--records", default="1000000,10000000", help="sizes, with commas between them")
    parser.add_argument("--work", type=Path, required=True, help="a folder for facts, shuffles and event logs")
    parser.add_argument("--chart", type=Path, help="an SVG file: seconds by size")
    arguments = parser.parse_args(words)
    done = []
    for records in map(int, arguments.records.split(",")):
        done.append(measured(records, arguments.work))
        print(json.dumps(asdict(done[-1]) | {"shuffled_a_record": round(done[-1].shuffled_a_record, 1)}), flush=True)
    print("\n".join(projected(done[-1])))
    if arguments.chart is not None:
        privatefiles.write(arguments.chart, chart(done))
    return 0


def measured(records: int, work: Path) -> Run:
    """One size: facts are made unless they are there, and the report of them."""
    folder, log = work / f"facts-{records}", work / "events"
    if not folder.exists():
        generate(folder, Fleet(records // 2, max(100, records // USERS)))
    shutil.rmtree(log, ignore_errors=True)
    privatefiles.make_folder(log)
    settings = {
        "spark.driver.memory": f"{MEMORY}m", "spark.executor.memory": f"{MEMORY}m", "spark.local.dir": str(work),
        "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.rolling.enabled": "false"}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tools.cli.program", "quota", "report", "--json", "--root", str(work),
         "--master", f"local-cluster[{EXECUTORS},1,{MEMORY}]", "--fleet", *map(str, sorted(folder.iterdir())),
         *(word for name, value in settings.items() for word in ("--spark", f"{name}={value}"))],
        stdout=subprocess.PIPE, check=False)
    seconds = time.monotonic() - begun
    made = json.loads(done.stdout)
    if made["problems"] or done.returncode:
        raise SystemExit(f"the report is wrong: {made['problems']}")
    tasks = [event["Task Metrics"] for event in _events(log) if event["Event"] == "SparkListenerTaskEnd"]
    times = [task["Executor CPU Time"] / 1e9 for task in tasks]
    return Run(sum(one["rows"]["references"] for one in made["back_ends"]), round(seconds, 1), round(sum(times), 1),
               round(max(times), 2), sum(task["Shuffle Write Metrics"]["Shuffle Bytes Written"] for task in tasks),
               sum(task["Disk Bytes Spilled"] for task in tasks), len(tasks))


def _events(log: Path) -> Iterator[dict[str, Any]]:
    for path in log.rglob("*"):
        if path.is_file():
            for line in privatefiles.read_text(path).splitlines():
                yield json.loads(line)


def projected(run: Run) -> list[str]:
    """What a fleet of RECORDS would take on MANY executors, by the largest run, and what would break first."""
    factor = RECORDS / run.records
    hours = run.task_seconds * factor / MANY / 3600
    disk = run.shuffled * factor / MANY
    partitions = RECORDS // 250_000
    maps = RECORDS // 1_000_000
    driver = maps * partitions / 8 + maps * LISTED
    everybody = run.longest * factor ** 0.5
    return [
        f"{RECORDS:,} records on {MANY} executors, by the run of {run.records:,}:",
        f"  {hours:.1f} hours, if tasks are as quick and the network is not the limit",
        f"  {disk / (1 << 30):,.0f} GiB of shuffle on the disk of each executor, {run.shuffled_a_record:.0f} octets a "
        "record",
        f"  {driver / (1 << 20):,.0f} MiB in the driver for the places of {maps:,} x {partitions:,} shuffled pieces",
        f"  {everybody / 60:,.0f} minutes for the task of a message that everybody has: users grow with records, and "
        "one task ranks its holders",
        "What breaks first: " + min(
            (2.0 * (1 << 30) / driver, "the driver's memory, by the places of shuffled pieces"),
            ((200 << 30) / disk, "disks of 200 GiB, by the shuffle"),
            (hours * 3600 / everybody, "the time of the longest task"))[1]]


def chart(runs: Sequence[Run]) -> str:
    """Seconds by size, as SVG."""
    sentence = "; ".join(f"{run.records:,} records: {run.seconds:.0f} s" for run in runs)
    drawn = columns("Report of a fleet", sentence, [(f"{run.records:,}", round(run.seconds), "fair") for run in runs])
    style = "<style>.fair{fill:#2563ad}.axis{fill:#ccc}text{font:12px sans-serif;fill:#333}</style>"
    return str(drawn).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1)


if __name__ == "__main__":
    raise SystemExit(main())
