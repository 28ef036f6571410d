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
from tools.spark.report.fleetjob import shuffle_partitions

MEMORY = 2048                   # MiB of the driver and of each executor
EXECUTORS = 2
RECORDS, MANY = 20_000_000_000, 100     # the projection: records, and executors of one core
USERS = 200                     # records of a user, on the average
BACK_ENDS = 100
LISTED = 64                     # octets that the driver keeps for a task of a shuffle, beside a bit for each partition
DISK = 200 << 30                # octets that each executor has
READ = 128 << 20                # octets of facts that one task reads (spark.sql.files.maxPartitionBytes)
READS = 5000                    # small pieces that the disk of an executor reads in a second


@frozen
class Run:
    """A report that was made: seconds by the clock, and of processor time of all tasks and of the longest one; octets
    that were shuffled and spilled; tasks; octets of the facts."""

    records: int
    seconds: float
    task_seconds: float
    longest: float
    shuffled: int
    spilled: int
    tasks: int
    octets: int

    @property
    def shuffled_a_record(self) -> float:
        """Octets that go over the network for each record."""
        return self.shuffled / self.records


def main(words: Sequence[str] | None = None) -> int:
    """Run, print a line of JSON for each size and the projection, and draw the chart."""
    parser = argparse.ArgumentParser(prog="tools/bench facts", description=__doc__)
    parser.add_argument("--records", default="1000000,10000000", help="sizes, with commas between them")
    parser.add_argument("--work", type=Path, required=True, help="a folder for facts, shuffles and event logs")
    parser.add_argument("--chart", type=Path, help="an SVG file: processor time by size")
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
               sum(task["Disk Bytes Spilled"] for task in tasks), len(tasks),
               sum(path.stat().st_size for path in folder.rglob("*.parquet")))


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
    partitions, maps = shuffle_partitions(RECORDS), int(run.octets * factor) // READ
    driver = max(maps, partitions) * (partitions / 8 + LISTED)
    reads = (maps + partitions) * partitions / MANY / READS         # of records by digest, and of shares by user
    holders = RECORDS // USERS // BACK_ENDS
    rank = holders * run.task_seconds / run.records
    room = {"the disks of the executors, by the shuffle": DISK / disk,
            # Both numbers grow with the records.
            "the driver's memory, by the places of shuffled pieces": ((MEMORY << 20) / driver) ** 0.5,
            # Their number, too, while the time of the tasks grows with the records.
            "the disks of the executors, by reading small pieces": hours * 3600 / reads,
            "one task, by the holders of one message": hours * 3600 / rank}
    first = min(room, key=lambda name: room[name])
    return [
        f"{RECORDS:,} records on {MANY} executors of one core, by the run of {run.records:,}:",
        f"  {hours:.1f} hours, if the network is not the limit",
        f"  {disk / (1 << 30):,.0f} GiB of shuffle for each executor, {run.shuffled_a_record:.0f} octets a record",
        f"  {driver / (1 << 20):,.0f} MiB in the driver for the places of {maps:,} x {partitions:,} shuffled pieces",
        f"  {reads / 60:,.0f} minutes in which the disk of each executor reads such pieces, {READS:,} a second",
        f"  {rank:,.0f} s for the task that ranks the holders of a message which all {holders:,} users of a back end "
        "have",
        f"  What breaks first: {first}, at {room[first]:.0f} times as many records"]


def chart(runs: Sequence[Run]) -> str:
    """Processor time of all tasks by size, as SVG; in its title what of it a record takes, and what is shuffled."""
    sentence = "; ".join(
        f"{run.records:,} records: {run.task_seconds:.0f} s, {run.task_seconds * 1e6 / run.records:.1f} us and "
        f"{run.shuffled_a_record:.0f} octets shuffled a record" for run in runs)
    drawn = columns("Report of a fleet", sentence, [(f"{run.records:,}", round(run.task_seconds), "fair")
                                                    for run in runs])
    style = "<style>.fair{fill:#2563ad}.axis{fill:#ccc}text{font:12px sans-serif;fill:#333}</style>"
    return str(drawn).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1)


if __name__ == "__main__":
    raise SystemExit(main())
