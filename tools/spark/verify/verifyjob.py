"""The job that verifies a whole store: it reads and parses every message file and every `store.idx` once, and compares
them with each other and with the databases.

The files are read by the job that makes the plan of a rebuild (`rebuildjob.make_plan`): its tasks find what is wrong
with message files and `store.idx`, and which records do not fit their message files. So the plan is there when it is
needed, and `reconstruct --apply` knows it. Index records are compared with those of `store.idx` that are as new, by
this process (`comparing`) or by Spark (`sparkcompare`); what else only the databases know, by `store/check` here.

Of several findings that one fault makes, one is reported, and the others follow from it (`kinds.with_causes`).
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import asdict, define, field, frozen

from mboxlist import privatefiles
from mboxlist.names import SEPARATOR
from store.check.causes import causes_among
from store.check.wholecheck import check_all, look_at_layout
from store.partition.partition import Partition
from store.quota.roots import root_of
from store.rebuild.desired import limits_of
from store.rebuild.userareascan import Source
from store.store import Store
from store.tables.index import ROW
from store.tables.quotatable import DOMAIN
from store.tables.references import MessageRecord
from store.userarea.idxfile import DIRECTORY
from store.values import RECONSTRUCT, RESTORE, SWEEP
from tools.spark.rebuild import plantasks
from tools.spark.rebuild.plan import Facts, Manifest, Plan, facts
from tools.spark.rebuild.rebuildjob import Engine, make_plan
from tools.spark.source import reading
from tools.spark.verify import comparing, kinds
from tools.spark.verify.kinds import APPLY, Fault, message_at

FAULTS = "faults.parquet"       # in the plan's folder: what was found
_COLUMNS = pa.schema([(name, pa.string()) for name in ("kind", "where", "what", "repair", "partition", "follows")])

Compare = Callable[[Store, Plan], comparing.Compared]


@define
class Verified:
    """What was found. `waiting` files are referred to by nothing, and wait for the purge as far as the databases say;
    `moved` mailboxes have changed since their `store.idx` were written, so that their records were not compared."""

    manifest: Manifest
    faults: list[Fault] = field(factory=list)
    waiting: int = 0
    moved: int = 0
    databases: bool = False
    misnamed: dict[tuple[str, bytes], str] = field(factory=dict)    # by partition and digest the path of the file

    @property
    def own(self) -> list[Fault]:
        """Without those that follow from others."""
        return [fault for fault in self.faults if not fault.follows]

    def summary(self) -> dict[str, Any]:
        """Figures and faults by kind, as `check --json` prints them."""
        return {**{name: figure for name, figure in asdict(self.manifest.total).items() if name != "epoch"},
                "databases": self.databases, "waiting": self.waiting, "moved": self.moved,
                "faults": len(self.own), "follow": len(self.faults) - len(self.own),
                "classes": kinds.classes(self.faults)}


def verify(root: Path, folder: Path, engine: Engine, store: Store | None = None, *, access: bool = False,
           compare: Compare = comparing.compare_all) -> Verified:
    """Verify the store in `root`, and make a plan of it in that folder; without `store` only what is in files. With
    `access`, also who can reach the files. `compare` compares index records with the plan.

    Raises StoreError NO_STORE, BadPlan when the folder has something else, OSError.
    """
    manifest = make_plan(root, folder, engine)
    found = _Verifying(root.absolute(), Plan(folder.absolute()), manifest, store, access, compare).run()
    rows = [asdict(fault) for fault in found.faults]
    with privatefiles.open_file(folder / FAULTS, "wb") as file:
        pq.write_table(pa.Table.from_pylist(rows, _COLUMNS), file, compression="zstd")
    return found


@frozen(eq=False)
class _Files:
    """What the records that cannot be used say of the message files of a partition, by digest: octets; records; the
    first of them."""

    octets: dict[bytes, int] = field(factory=dict)
    records: dict[bytes, int] = field(factory=dict)
    first: dict[bytes, str] = field(factory=dict)

    def add(self, name: str, row: Any, octets: int) -> None:
        """One record of that mailbox."""
        digest = bytes(row["digest"])
        self.octets.setdefault(digest, octets)
        self.records[digest] = self.records.get(digest, 0) + 1
        self.first.setdefault(digest, f"{name}, UID {row['uid']}")


@define(eq=False)
class _Verifying:
    """See `verify`."""

    root: Path
    plan: Plan
    manifest: Manifest
    store: Store | None
    access: bool
    compare: Compare
    found: Verified = field(init=False)
    faults: list[Fault] = field(factory=list)
    digests: dict[str, frozenset[bytes]] = field(factory=dict)      # of what wrong index records refer to
    files: dict[str, str] = field(factory=dict)                     # mailbox of each store.idx in its place
    misnamed: dict[bytes, str] = field(factory=dict)
    held: dict[str, Counter[bytes]] = field(factory=dict)           # references of what has been expunged, by partition
    layout: frozenset[str] = frozenset()                            # paths of which `look_at_layout` tells

    def __attrs_post_init__(self) -> None:
        self.found = Verified(self.manifest, databases=self.store is not None)

    def run(self) -> Verified:
        """Look at everything. Raises BadPlan, StoreError."""
        layout = look_at_layout(self.root, access=self.access)
        self.layout = frozenset(finding.where for finding in layout)
        heads = self._heads()
        for name in sorted(self.manifest.partitions):
            known = facts(str(self.plan.folder), name)
            files = self._pieces(name, known)
            self._message_files(name, known, files)
            self._unused(name, known)
        if self.store is not None:
            compared = self.compare(self.store, self.plan)
            self.faults += compared.faults
            self.digests |= compared.digests
            self.found.moved += compared.moved
        self._look_at_heads(heads)
        told = {fault.where for fault in self.faults}
        self.faults += kinds.of_check(finding for finding in layout if finding.where not in told)
        if self.store is not None:
            self.faults += kinds.of_check(causes_among(self.store, check_all(self.store, with_layout=False)))
        self.faults.sort(key=lambda fault: (fault.partition, fault.where, fault.kind, fault.what))
        self.found.faults = kinds.with_causes(self.faults, self.digests, self.files, self.misnamed)
        return self.found

    def folder(self, partition: str) -> Path:
        """That of a partition."""
        return self.root / "partitions" / partition

    def _partition(self, name: str) -> Partition | None:
        return None if self.store is None else self.store.partitions.get(name)

    def _record(self, partition: str, digest: bytes) -> MessageRecord | None:
        """What the databases have of a message file; None also where they cannot be asked."""
        here = self._partition(partition)
        return None if here is None else here.refs.find(digest)

    def _is_used(self, partition: str, digest: bytes, record: MessageRecord) -> bool:
        """Whether a mailbox refers to the file: not only what has been expunged."""
        if partition not in self.held and (here := self._partition(partition)) is not None:
            self.held[partition] = here.removed.counts()
        return record.references > self.held[partition][digest]

    # store.idx

    def _heads(self) -> list[dict[str, Any]]:
        """What each store.idx says of its mailbox, and what of it is damaged."""
        columns = ["partition", "path", "piece", "head", "name", "found", "damaged", "size", "findings"]
        rows = [row for row in self.plan.rows("pieces", columns) if not row["piece"]]
        for row in rows:
            path = self.folder(row["partition"]) / row["path"]
            texts = [item["what"] for item in row["findings"] if item["place"] == row["path"]]
            if texts and path.exists() and str(path) not in self.layout:
                kind = kinds.idx_kind(texts, *_start(path))
                self.faults.append(Fault(kind, str(path), "; ".join(texts), RECONSTRUCT, row["partition"]))
        return [row for row in rows if row["head"] is not None]

    def _look_at_heads(self, rows: list[dict[str, Any]]) -> None:
        """Names, places, ids, quota roots and rights."""
        sources = [plantasks.source_of(row, self.folder(row["partition"])) for row in rows]
        limits = {name: limits_of(sources, name) for name in self.manifest.partitions}
        sure = {(source.partition, source.head.owner) for source in sources if source.found and (
            source.name.is_inbox() or not source.head.owner)}       # the others' limits may be lost
        whole = [(row, source) for row, source in zip(rows, sources, strict=True)
                 if source.found and source.path.exists()]           # or it went to another place just now
        elsewhere = [source for row, source in whole if kinds.misplaced(
            self.folder(source.partition), row["path"], source.head, reading.owner_place)]
        self.faults += [Fault("idx-place", str(source.path), f"it is that of {source.head.name}", APPLY,
                              source.partition) for source in elsewhere]
        wrong = {source.path for source in elsewhere}
        whole = [(row, source) for row, source in whole if source.path not in wrong]
        older = {(partition, path) for partition, path, _ in kinds.several(
            ((source.head.store, source.head.id), source.partition, source.head.written, row["path"])
            for row, source in whole)}
        for row, source in whole:
            path = str(source.path)
            if (source.partition, row["path"]) in older:
                self.faults.append(Fault("idx-id", path, f"a newer file of mailbox {source.head.id} is there", APPLY,
                                         source.partition))
            else:
                self.files[path] = source.head.name
                self.faults += kinds.head_faults(source.partition, path, source.head,
                                                     _root(source, limits[source.partition], sure))
        for finding in self.plan.findings():
            if finding.what.startswith("another mailbox has this name"):
                self.faults.append(Fault("mailbox-name", finding.where, finding.what, finding.repair))

    def _pieces(self, partition: str, known: Facts) -> _Files:
        """The records that refer to message files that are not there, or that are not as long as they should be."""
        files = _Files()
        columns = ["path", "name", "unused", "fields"]
        for row in self.plan.rows("pieces", columns, partition=partition):
            if not row["unused"]:
                continue
            unused = np.frombuffer(row["unused"], ROW)
            fields = {item["number"]: len(item["octets"]) for item in row["fields"] or ()}
            _, there = known.find(unused["digest"])
            octets = kinds.file_octets(unused, fields)
            for at, record in enumerate(unused):
                if not there[at]:
                    files.add(row["name"], record, int(octets[at]))
            if there.any():
                first = int(unused["uid"][there][0])
                self.faults.append(Fault(
                    "idx-fit", str(self.folder(partition) / row["path"]), f"{np.count_nonzero(there)} records do not "
                    f"fit their message files: first UID {first}", RECONSTRUCT, partition))
        return files

    # Message files

    def _message_files(self, partition: str, known: Facts, files: _Files) -> None:
        """Files that are not what their names say, and names without files."""
        folder, damaged = self.folder(partition), set()
        rows = []
        for row in self._damaged(partition):
            path, digest, what = folder / row["path"], row["digest"], row["findings"][0]["what"]
            if str(path) in self.layout:
                damaged.add(digest)
            elif path.is_dir():
                self.faults.append(Fault("message-folder", str(path), what, RECONSTRUCT, partition))
            elif os.path.lexists(folder / row["path"]):
                rows.append(row)
        missing, there = _Some(lambda digest: self._is_missing(partition, digest, files)), _Some(
            lambda digest: bool(known.find(np.frombuffer(digest, "V32"))[1][0]))
        for row in rows:
            found = kinds.Damaged(-1 if row["likely"] is None else row["octets"], row["likely"])
            path, digest = str(folder / row["path"]), row["digest"]
            what = row["findings"][0]["what"]
            in_place = digest is not None and path == self._path(partition, digest)
            kind, right = kinds.damaged_file(found, self._octets(partition, digest, files) if in_place else None,
                                                 missing, there)
            if right is not None:
                self._found_elsewhere(partition, right, path)
            elif kind == "message-stranger":
                self.faults.append(Fault(kind, path, what, SWEEP, partition))
            elif digest is not None:
                damaged.add(digest)
                self.faults.append(Fault(kind, message_at(digest), f"{what} ({files.records.get(digest, 0)} records)",
                                         RESTORE, partition))
        self._misplaced(partition)
        for digest in sorted(files.octets.keys() - damaged - {digest for place, digest in self.found.misnamed
                                                           if place == partition}):
            if self._is_lost(partition, digest):
                self.faults.append(kinds.missing(digest, files.records[digest], files.first[digest], partition))

    def _damaged(self, partition: str) -> Iterator[dict[str, Any]]:
        test = (pc.field("partition") == partition) & ~pc.is_valid(pc.field("trace"))
        table = self.plan.dataset("messages").to_table(columns=["path", "digest", "octets", "likely", "findings"],
                                                           filter=test)
        yield from table.to_pylist()

    def _misplaced(self, partition: str) -> None:
        """Whole files in folders that are not those of their digests."""
        test = (pc.field("partition") == partition) & pc.is_valid(pc.field("trace")) & ~pc.field("staged")
        folder = self.folder(partition)
        for batch in self.plan.dataset("messages").to_batches(columns=["path"], filter=test):
            column = batch["path"]          # messages/3/fa/3fa...
            place = [pc.utf8_slice_codeunits(column, *span) for span in ((9, 10), (11, 13))]
            wrong = pc.not_equal(pc.binary_join_element_wise(*place, ""), pc.utf8_slice_codeunits(column, 14, 17))
            for path in column.filter(wrong).to_pylist():
                digest = bytes.fromhex(path[-64:])
                if os.path.exists(self._path(partition, digest)):
                    self.faults.append(Fault("message-stranger", str(folder / path), "it is in its own folder as well",
                                             SWEEP, partition))
                else:
                    self._found_elsewhere(partition, digest, str(folder / path))

    def _found_elsewhere(self, partition: str, digest: bytes, path: str) -> None:
        self.found.misnamed[partition, digest] = path
        self.misnamed[digest] = path
        self.faults.append(Fault("message-misnamed", path, f"it is {message_at(digest)}", APPLY, partition))

    def _path(self, partition: str, digest: bytes) -> str:
        name = digest.hex()
        return f"{self.folder(partition)}/messages/{name[0]}/{name[1:3]}/{name}"

    def _octets(self, partition: str, digest: bytes, files: _Files) -> int | None:
        """How many octets a message file has by the tables or the records."""
        record = self._record(partition, digest)
        return files.octets.get(digest, record.size if record is not None else None)

    def _is_missing(self, partition: str, digest: bytes, files: _Files) -> bool:
        """Whether something refers to that message, and its file is not where it belongs."""
        if os.path.exists(self._path(partition, digest)):
            return False
        record = self._record(partition, digest)
        return digest in files.octets or record is not None and self._is_used(partition, digest, record)

    def _is_lost(self, partition: str, digest: bytes) -> bool:
        """Whether the file is not there, and (where the databases can be asked) still referred to."""
        path = self._path(partition, digest)
        if os.path.lexists(path) or not os.path.isdir(os.path.dirname(path)):
            return False
        here = self._partition(partition)
        if here is None:
            return True
        record = here.refs.find(digest)
        return record is None or self._is_used(partition, digest, record) and here.files.locate(digest,
                                                                                           record.serial) is None

    def _unused(self, partition: str, known: Facts) -> None:
        """Whole files that no store.idx refers to: they wait for the purge, or nobody knows them."""
        used = np.zeros(len(known.digests), np.bool_)
        for batch in self.plan.batches("references", ["digest"], partition=partition):
            used[known.find_column(batch["digest"])] = True
        here = self._partition(partition)
        for digest in known.digests[~used].tolist():
            digest = digest.ljust(32, b"\0")
            record = here.refs.find(digest) if here is not None else None
            if here is None or record is not None:
                self.found.waiting += here is None or record is None or not self._is_used(partition, digest, record)
            elif (partition, digest) not in self.found.misnamed and os.path.exists(self._path(partition, digest)):
                self.faults.append(Fault("message-stranger", self._path(partition, digest),
                                         "nothing is known of this file", SWEEP, partition))


@frozen(eq=False)
class _Some:
    """The digests for which that holds."""

    test: Callable[[bytes], bool]

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, bytes) and self.test(digest)


def _start(path: Path) -> tuple[bytes, int]:
    """The first octets of a file, and how many it has."""
    try:
        with privatefiles.open_file(path, "rb") as file:
            return file.read(DIRECTORY), os.fstat(file.fileno()).st_size
    except OSError:
        return b"", 0


def _root(source: Source, limits: dict[str, list[int]], sure: set[tuple[str, str]]) -> str | None:
    """The quota root that a mailbox belongs to by its name; None when limits may be lost."""
    if (source.partition, source.head.owner) not in sure:
        return None
    return root_of(source.name, {root for root in limits if SEPARATOR in root and not root.startswith(DOMAIN)})
