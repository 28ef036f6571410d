"""Exports of facts, found again: of each the files that its manifest names, and no others.

Whoever reads a folder by itself would also read what an export that was cut off has left, and what the one before had.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as datasets
from attrs import frozen

from tools.exits import Failure
from tools.spark.facts.destinations import Destination, FolderDestination, HadoopDestination
from tools.spark.facts.factschema import FACTS, VERSION, fact_schema
from tools.spark.facts.factsexport import MANIFEST, manifest_of


@frozen
class Facts:
    """A whole export: where it is, its back end, the moment that it is of (RFC 3339), rows of each table, its files by
    table, the default domain there, and what could not be read."""

    place: str
    store: str
    moment: str
    rows: dict[str, int]
    files: dict[str, list[str]]
    default_domain: str
    findings: tuple[Mapping[str, str], ...] = ()

    @property
    def partitions(self) -> list[str]:
        """Names of the partitions of which there are messages or records."""
        return sorted({unquote(path.split("/")[-2]) for table in ("messages", "references")
                       for path in self.files[table]})


def is_uri(place: str) -> bool:
    """Whether a place is for Hadoop's file systems to read and write."""
    return "://" in place


def destination(place: str, work: Path, spark: Any = None) -> Destination:
    """What reads and writes there; a URI needs a session of Spark. `work` is a folder to make files in for a URI."""
    if is_uri(place):
        return HadoopDestination.at(spark, place, work)
    return FolderDestination(Path(place).absolute())


def opened(places: Sequence[str], spark: Any = None) -> list[Facts]:
    """The exports in these places. Raises Failure where there is none that is whole, and for one back end in two."""
    found = [_opened(place, spark) for place in places]
    names = [one.store for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Failure(f"the facts of {twice} are there twice")
    return found


def _opened(place: str, spark: Any) -> Facts:
    to = destination(place, Path(), spark)
    octets = to.read(MANIFEST)
    if octets is None:
        raise Failure(f"there are no whole facts in {place}: {MANIFEST}, which comes last, is not there")
    manifest = manifest_of(octets)
    if manifest["version"] != VERSION:
        raise Failure(f"the facts in {place} are of another version of onecopy")
    top = place.rstrip("/") if is_uri(place) else str(Path(place).absolute())
    there = dict(to.files())
    files: dict[str, list[str]] = {table: [] for table in FACTS}
    for _, made in manifest["ranges"].values():
        for path, table, _, size in made:
            if there.get(path) != size:
                raise Failure(f"{path} in {place} is missing or cut off: export the facts again")
            files[table].append(f"{top}/{path}")
    return Facts(place, manifest["store"], manifest["moment"], manifest["rows"], files, manifest["default_domain"],
                 tuple(manifest.get("findings", ())))


def table_of(found: Sequence[Facts], table: str, columns: Sequence[str] = ()) -> pa.Table:
    """A table of these exports, in memory."""
    form = fact_schema(table, columns)
    paths = [path for one in found for path in one.files[table]]
    if not paths:
        return form.empty_table()
    return datasets.dataset(paths, schema=fact_schema(table), format="parquet").to_table(columns=form.names)


def frame_of(spark: Any, found: Sequence[Facts], table: str) -> Any:
    """A table of these exports as a frame of Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema  # here: facts are also read without Spark
    form = from_arrow_schema(fact_schema(table))
    paths = [path if is_uri(path) else Path(path).as_uri() for one in found for path in one.files[table]]
    return spark.read.schema(form).parquet(*paths) if paths else spark.createDataFrame([], form)


def register(spark: Any, *places: str) -> tuple[str, ...]:
    """Make a view of each table over the exports of facts in these places; the names of the views. `quotas` has each
    root once on each partition. Raises Failure where an export is not whole."""
    found = opened(places, spark)
    for table in FACTS:
        frame_of(spark, found, table).createOrReplaceTempView(table)
    return tuple(FACTS)
