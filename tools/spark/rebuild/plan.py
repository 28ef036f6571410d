"""The plan of a rebuild: a folder of Parquet tables, each a folder of files, and `manifest.json`, which comes last.

    messages/       a row for each message file: its digest, octets, trace header, and its cache record; of one that is
                    damaged what is wrong with it, and the digests that its content may have
    pieces/         the records of each store.idx, up to `RECORDS_IN_A_ROW`: those that refer to whole message files,
                    as they are stored (`index.ROW`); those that are not usable; the first also has what its head says
    mailboxes/      a row for each mailbox that is to be, with its final id and name
    references/     for each message file how many records refer to it, the sum of their marks, and the arrival serials
                    that they name
    quotas/         quota roots: use and limits
    findings/       what could not be read, or is not used

While Spark makes a plan, `read/` has pieces whose records are not judged yet.

Tables are read and written here; nothing is decided.
"""

import json
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from attrs import asdict, field, frozen
from numpy.typing import NDArray

from mboxlist import privatefiles
from mboxlist.engine.disk import replace_file
from store.partition.messagereading import MID_OCTETS
from store.values import Command, Finding

VERSION = 3
ORDER = ("place", "what", "repair")     # of findings
MANIFEST = "manifest.json"
DONE = "_SUCCESS"               # in the folder of a table that is complete
MID = f"V{MID_OCTETS}"          # numpy's type of a digest
RECORDS_IN_A_ROW = 32_768       # of the table `pieces`: 3 MiB

_PLACE = [("partition", pa.string()), ("path", pa.string())]
_FINDINGS = pa.list_(pa.field("element", pa.struct([("what", pa.string()), ("place", pa.string()),
                                                    ("repair", pa.string())])))
SCHEMAS = {
    "messages": pa.schema([*_PLACE, ("digest", pa.binary()), ("octets", pa.int64()), ("trace", pa.int64()),
                           ("staged", pa.bool_()), ("cached", pa.binary()), ("findings", _FINDINGS),
                           ("likely", pa.list_(pa.field("element", pa.binary())))]),
    "pieces": pa.schema([
        *_PLACE, ("piece", pa.int32()), ("head", pa.binary()), ("name", pa.string()), ("found", pa.bool_()),
        ("rows", pa.binary()), ("unused", pa.binary()), ("own", pa.binary()),
        ("uidls", pa.binary()),
        ("fields", pa.list_(pa.field("element", pa.struct([("number", pa.int64()), ("octets", pa.binary())])))),
        ("damaged", pa.bool_()), ("records", pa.int64()), ("octets", pa.int64()), ("size", pa.int64()),
        ("modified", pa.int64()), ("findings", _FINDINGS)]),
    "mailboxes": pa.schema([
        *_PLACE, ("id", pa.int64()), ("name", pa.string()), ("head", pa.binary()), ("found", pa.bool_()),
        ("damaged", pa.bool_()), ("records", pa.int64()), ("unused", pa.int64()), ("octets", pa.int64()),
        ("size", pa.int64()), ("modified", pa.int64()), ("findings", _FINDINGS)]),
    "references": pa.schema([
        ("partition", pa.string()), ("digest", pa.binary()), ("references", pa.int64()), ("low", pa.int64()),
        ("high", pa.int64()), ("first_serial", pa.int64()), ("last_serial", pa.int64())]),
    "quotas": pa.schema([
        ("partition", pa.string()), ("root", pa.string()), ("octets", pa.int64()), ("messages", pa.int64()),
        ("limit_octets", pa.int64()), ("limit_messages", pa.int64())]),
    "findings": pa.schema([("what", pa.string()), ("place", pa.string()), ("repair", pa.string())]),
}


class BadPlan(Exception):
    """That is no plan, or not one that can be used; the text says why."""


@frozen
class Figures:
    """What a plan has of one partition; `epoch` is that which its user area knew."""

    epoch: int = 0
    mailboxes: int = 0
    records: int = 0
    messages: int = 0
    octets: int = 0


@frozen
class Manifest:
    """What a plan is of: the store's folder, when it was begun (Unix time), and how much there is of it."""

    root: str
    begun: float
    partitions: dict[str, Figures]
    engine: str = "local"
    findings: int = 0
    version: int = VERSION

    @property
    def total(self) -> Figures:
        """Of all partitions together."""
        every = self.partitions.values()
        return Figures(0, *(sum(getattr(each, name) for each in every)
                            for name in ("mailboxes", "records", "messages", "octets")))


@frozen
class Plan:
    """A plan's folder."""

    folder: Path

    def read_manifest(self) -> Manifest:
        """What the plan is of. Raises BadPlan."""
        try:
            values = json.loads(privatefiles.read(self.folder / MANIFEST))
            if values["version"] != VERSION:
                raise BadPlan(f"{self.folder} is a plan of version {values['version']}; this onecopy knows {VERSION}")
            places = {name: Figures(**figures) for name, figures in values.pop("partitions").items()}
            return Manifest(partitions=places, **values)
        except FileNotFoundError:
            raise BadPlan(f"{self.folder} has no {MANIFEST}: it is no plan, or one that was not completed") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadPlan(f"{self.folder / MANIFEST} cannot be read: {error}") from error

    def write_manifest(self, manifest: Manifest) -> None:
        """The plan is complete."""
        replace_file(self.folder / MANIFEST, json.dumps(asdict(manifest), indent=2).encode() + b"\n")

    def is_done(self, table: str) -> bool:
        """Whether the table is complete."""
        return (self.folder / table / DONE).exists()

    def write_part(self, table: str, number: int, batches: Iterable[pa.RecordBatch]) -> None:
        """One file of a table, whole or not at all."""
        folder = self.folder / table
        privatefiles.make_folder(folder, parents=True, exist_ok=True)
        path = folder / f"part-{number:05}.parquet"
        temporary = folder / f".{path.name}.{os.getpid()}"
        with privatefiles.open_file(temporary, "wb") as file, pq.ParquetWriter(
                file, SCHEMAS[table], compression="zstd", compression_level=1, use_dictionary=["partition"]) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=max(1, batch.num_rows))
        temporary.replace(path)

    def has_part(self, table: str, number: int) -> bool:
        """Whether the file is there."""
        return (self.folder / table / f"part-{number:05}.parquet").exists()

    def complete(self, table: str) -> None:
        """All files of the table are there."""
        privatefiles.make_folder(self.folder / table, parents=True, exist_ok=True)
        privatefiles.touch(self.folder / table / DONE)

    def write(self, table: str, rows: list[dict[str, Any]]) -> None:
        """A table in one file."""
        self.write_part(table, 0, pa.Table.from_pylist(rows, SCHEMAS[table]).to_batches())
        self.complete(table)

    def dataset(self, table: str) -> ds.Dataset:
        """A table, for reading. Raises BadPlan."""
        try:
            return ds.dataset(self.folder / table, schema=SCHEMAS[table], format="parquet",
                              exclude_invalid_files=False)
        except (OSError, pa.ArrowException) as error:
            raise BadPlan(f"{self.folder / table} cannot be read: {error}") from error

    def rows(self, table: str, columns: list[str] | None = None, **equal: object) -> Iterator[dict[str, Any]]:
        """The rows in which these columns have these values, a few at a time. Raises BadPlan."""
        for batch in self.batches(table, columns, **equal):
            yield from batch.to_pylist()

    def batches(self, table: str, columns: list[str] | None = None, **equal: object) -> Iterator[pa.RecordBatch]:
        """Such rows in record batches."""
        wanted = None
        for name, value in equal.items():
            test = pc.field(name) == value
            wanted = test if wanted is None else wanted & test
        try:
            yield from self.dataset(table).to_batches(columns=columns, filter=wanted, batch_size=1024,
                                                      batch_readahead=2, fragment_readahead=1)
        except (OSError, pa.ArrowException) as error:
            raise BadPlan(f"{self.folder / table} cannot be read: {error}") from error

    def findings(self) -> list[Finding]:
        """What could not be read, or is not used."""
        return [Finding(row["what"], row["place"], Command(row["repair"])) for row in self.rows("findings")]


def finding_rows(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Findings as the column has them."""
    return [{"what": finding.what, "place": finding.where, "repair": finding.repair} for finding in findings]


# Message files by their place

@frozen(eq=False)
class Facts:
    """The whole message files of one partition, in order of digest; `damaged` are digests of those that are not."""

    digests: NDArray[np.bytes_]
    octets: NDArray[np.int64]
    traces: NDArray[np.int64]
    damaged: frozenset[bytes] = frozenset()
    _keys: NDArray[np.uint64] = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_keys", _keys(self.digests))

    @classmethod
    def of(cls, table: pa.Table, damaged: Iterable[bytes] = ()) -> "Facts":
        """From rows of `messages`; of a file that has its place and one that is staged the former counts."""
        digests = np.frombuffer(b"".join(table["digest"].to_pylist()), f"S{MID_OCTETS}")
        staged = np.array(table["staged"].to_pylist(), np.bool_)
        order = np.lexsort((staged, digests)) if len(digests) else np.empty(0, np.intp)
        ordered = digests[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        order = order[first]
        return cls(digests[order], table["octets"].to_numpy()[order], table["trace"].to_numpy()[order],
                   frozenset(damaged))

    def find(self, digests: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The place of each digest, and whether it is there at all."""
        wanted = np.ascontiguousarray(digests).view(f"S{MID_OCTETS}")
        if not len(self.digests) or not len(wanted):
            return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
        last = len(self.digests) - 1
        places = np.minimum(np.searchsorted(self._keys, _keys(wanted)), last)
        there = self.digests[places] == wanted
        for at in np.flatnonzero(~there).tolist():          # missing; or two digests that begin with the same octets
            places[at] = min(int(np.searchsorted(self.digests, wanted[at])), last)
            there[at] = self.digests[places[at]] == wanted[at]
        return places, there

    def find_column(self, digests: pa.Array) -> NDArray[np.int64]:
        """The place of each digest of a column, all of which are there."""
        return self.find(np.frombuffer(b"".join(digests.to_pylist()), MID))[0]


def _keys(digests: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    """Their first octets, as numbers that ascend as digests do."""
    return np.ascontiguousarray(digests).view(">u8").reshape(-1, MID_OCTETS // 8)[:, 0].astype(np.uint64)


@lru_cache(maxsize=4)
def facts(folder: str, partition: str) -> Facts:
    """Those of a plan whose table `messages` is complete; kept, since each task of a process asks for them."""
    every, whole = Plan(Path(folder)).dataset("messages"), pc.is_valid(pc.field("cached"))
    here = (pc.field("partition") == partition) & pc.is_valid(pc.field("digest"))
    damaged = every.to_table(columns=["digest"], filter=here & ~whole)["digest"].to_pylist()
    return Facts.of(every.to_table(columns=["digest", "octets", "trace", "staged"], filter=here & whole), damaged)
