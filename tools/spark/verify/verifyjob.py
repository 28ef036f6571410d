"""The job that verifies a whole store: it reads and parses every message file and every `store.idx` once, and compares
them with each other and with the databases.

The files are read by the job that makes the plan of a rebuild (`rebuildjob.make_plan`): its tasks find what is wrong
with message files and `store.idx`, and which records do not fit their message files. So the plan is there when it is
needed, and `reconstruct --apply` knows it. What may be wrong is looked for among all that the plan has, and index
records are compared with those of `store.idx` that are as new, by this process (`suspects`, `comparing`) or by Spark
(`sparksuspects`, `sparkcompare`); here it is judged. What else only the databases know `store/check` looks at.

Of several findings that one fault makes, one is reported, and the others follow from it (`kinds.with_causes`).
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import asdict, define, field, frozen

from mboxlist import privatefiles
from store.check.causes import causes_among
from store.check.wholecheck import check_all, look_at_layout
from store.partition.partition import Partition
from store.store import Store
from store.tables.references import MessageRecord
from store.userarea.idxfile import DIRECTORY
from store.values import RECONSTRUCT, RESTORE, SWEEP
from tools.spark.rebuild.plan import Manifest, Plan
from tools.spark.rebuild.rebuildjob import Engine, make_plan
from tools.spark.verify import kinds, suspects
from tools.spark.verify.kinds import APPLY, Fault, message_at
from tools.spark.verify.suspects import LOOKING, Lost, WrongHead

FAULTS = "faults.parquet"       # in the plan's folder: what was found
_COLUMNS = pa.schema([(name, pa.string()) for name in ("kind", "where", "what", "repair", "partition", "follows")])

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
           by: suspects.Engine = LOOKING) -> Verified:
    """Verify the store in `root`, and make a plan of it in that folder; without `store` only what is in files. With
    `access`, also who can reach the files. `by` looks for what may be wrong.

    Raises StoreError NO_STORE, BadPlan when the folder has something else, OSError.
    """
    manifest = make_plan(root, folder, engine)
    found = _Verifying(root.absolute(), Plan(folder.absolute()), manifest, store, access, by).run()
    rows = [asdict(fault) for fault in found.faults]
    with privatefiles.open_file(folder / FAULTS, "wb") as file:
        pq.write_table(pa.Table.from_pylist(rows, _COLUMNS), file, compression="zstd")
    return found


@define(eq=False)
class _Verifying:
    """See `verify`."""

    root: Path
    plan: Plan
    manifest: Manifest
    store: Store | None
    access: bool
    by: suspects.Engine
    found: Verified = field(init=False)
    suspected: suspects.Suspects = field(init=False)
    faults: list[Fault] = field(factory=list)
    digests: dict[str, frozenset[bytes]] = field(factory=dict)      # of what wrong index records refer to
    misnamed: dict[bytes, str] = field(factory=dict)
    held: dict[str, Counter[bytes]] = field(factory=dict)           # references of what has been expunged, by partition
    layout: frozenset[str] = frozenset()                            # paths of which `look_at_layout` tells

    def __attrs_post_init__(self) -> None:
        self.found = Verified(self.manifest, databases=self.store is not None)
        self.suspected = self.by.suspects(self.plan, self.root)

    def run(self) -> Verified:
        """Look at everything. Raises BadPlan, StoreError."""
        layout = look_at_layout(self.root, access=self.access)
        self.layout = frozenset(finding.where for finding in layout)
        lost, unfit = self.suspected.unusable()
        self._damaged_heads()
        for one in unfit:
            self.faults.append(Fault("idx-fit", str(self.folder(one.partition) / one.path), f"{one.records} records do "
                                     f"not fit their message files: first UID {one.uid}", RECONSTRUCT, one.partition))
        self._message_files({(one.partition, one.digest): one for one in lost})
        if self.store is None:
            self.found.waiting = self.suspected.unused()
        else:
            compared = self.by.compare(self.store, self.plan)
            self.faults += compared.faults
            self.digests |= compared.digests
            self.found.moved, self.found.waiting = compared.moved, compared.waiting
            self._strangers(compared.unknown)
        self._wrong_heads()
        told = {fault.where for fault in self.faults}
        self.faults += kinds.of_check(finding for finding in layout if finding.where not in told)
        if self.store is not None:
            self.faults += kinds.of_check(causes_among(self.store, check_all(self.store, with_layout=False)))
        self.faults.sort(key=lambda fault: (fault.partition, fault.where, fault.kind, fault.what))
        files = self.suspected.mailboxes({fault.where for fault in self.faults if fault.kind in kinds.OF_MAILBOXES})
        self.found.faults = kinds.with_causes(self.faults, self.digests, files, self.misnamed)
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

    def _damaged_heads(self) -> None:
        for row in self.suspected.damaged_heads():
            path = self.folder(row["partition"]) / row["path"]
            if path.exists() and str(path) not in self.layout:
                kind = kinds.idx_kind(row["texts"], *_start(path))
                self.faults.append(Fault(kind, str(path), "; ".join(row["texts"]), RECONSTRUCT, row["partition"]))

    def _wrong_heads(self) -> None:
        """Names, places, ids, quota roots and rights."""
        for head in self.suspected.wrong_heads():
            self.faults += faults_of(head, str(self.folder(head.partition) / head.path))
        self.faults += [Fault("mailbox-name", row["place"], row["what"], row["repair"])
                        for row in self.suspected.names_twice()]

    # Message files

    def _message_files(self, lost: dict[tuple[str, bytes], Lost]) -> None:
        """Files that are not what their names say, and names without files."""
        damaged: set[tuple[str, bytes]] = set()
        rows = []
        for row in self.suspected.damaged_files():
            path = self.folder(row["partition"]) / row["path"]
            if str(path) in self.layout:
                damaged.add((row["partition"], row["digest"]))
            elif path.is_dir():
                self.faults.append(Fault("message-folder", str(path), row["what"], RECONSTRUCT, row["partition"]))
            elif os.path.lexists(path):
                rows.append(row)
        whole = self.suspected.whole() if rows else set()
        for row in rows:
            partition, digest = row["partition"], row["digest"]
            missing = _Some(partial(self._is_missing, partition, lost=lost))
            there = {each for place, each in whole if place == partition}
            found = kinds.Damaged(-1 if row["likely"] is None else row["octets"], row["likely"])
            path = str(self.folder(partition) / row["path"])
            in_place = digest is not None and path == self._path(partition, digest)
            octets = self._octets(partition, digest, lost) if in_place else None
            kind, right = kinds.damaged_file(found, octets, missing, there)
            if right is not None:
                self._found_elsewhere(partition, right, path)
            elif kind == "message-stranger":
                self.faults.append(Fault(kind, path, row["what"], SWEEP, partition))
            elif digest is not None:
                damaged.add((partition, digest))
                records = lost[partition, digest].records if (partition, digest) in lost else 0
                self.faults.append(Fault(kind, message_at(digest), f"{row['what']} ({records} records)", RESTORE,
                                         partition))
        self._misplaced()
        for place in sorted(lost.keys() - damaged - self.found.misnamed.keys()):
            if self._is_lost(*place):
                one = lost[place]
                self.faults.append(kinds.missing(one.digest, one.records, f"{one.name}, UID {one.uid}", one.partition))

    def _misplaced(self) -> None:
        """Whole files in folders that are not those of their digests."""
        for row in self.suspected.misplaced():
            partition, digest = row["partition"], bytes.fromhex(row["path"][-64:])
            path = str(self.folder(partition) / row["path"])
            if os.path.exists(self._path(partition, digest)):
                self.faults.append(Fault("message-stranger", path, "it is in its own folder as well", SWEEP, partition))
            else:
                self._found_elsewhere(partition, digest, path)

    def _found_elsewhere(self, partition: str, digest: bytes, path: str) -> None:
        self.found.misnamed[partition, digest] = path
        self.misnamed[digest] = path
        self.faults.append(Fault("message-misnamed", path, f"it is {message_at(digest)}", APPLY, partition))

    def _strangers(self, unknown: Iterable[tuple[str, bytes]]) -> None:
        """Whole files that nobody knows."""
        for partition, digest in unknown:
            if (partition, digest) not in self.found.misnamed and os.path.exists(self._path(partition, digest)):
                self.faults.append(Fault("message-stranger", self._path(partition, digest),
                                         "nothing is known of this file", SWEEP, partition))

    def _path(self, partition: str, digest: bytes) -> str:
        name = digest.hex()
        return f"{self.folder(partition)}/messages/{name[0]}/{name[1:3]}/{name}"

    def _octets(self, partition: str, digest: bytes, lost: Mapping[tuple[str, bytes], Lost]) -> int | None:
        """How many octets a message file has by the tables or the records."""
        if (partition, digest) in lost:
            return lost[partition, digest].octets
        record = self._record(partition, digest)
        return record.size if record is not None else None

    def _is_missing(self, partition: str, digest: bytes, *, lost: Mapping[tuple[str, bytes], Lost]) -> bool:
        """Whether something refers to that message, and its file is not where it belongs."""
        if os.path.exists(self._path(partition, digest)):
            return False
        record = self._record(partition, digest)
        return (partition, digest) in lost or record is not None and self._is_used(partition, digest, record)

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


def faults_of(head: WrongHead, path: str) -> Iterator[Fault]:
    """What is wrong with a store.idx at that path."""
    if head.misplaced:
        yield Fault("idx-place", path, f"it is that of {head.name}", APPLY, head.partition)
    if head.older:
        yield Fault("idx-id", path, f"a newer file of mailbox {head.id} is there", APPLY, head.partition)
    if head.foreign:
        yield Fault("idx-partition", path, f"it says that it is on partition {head.foreign}", RECONSTRUCT,
                    head.partition)
    if head.root is not None:
        yield Fault("idx-quota", path, f"it is charged to quota root {head.quota_root}, its name says {head.root}",
                    RECONSTRUCT, head.partition)
    if head.rights is not None:
        yield Fault("idx-rights", path, f"{head.rights[0]} has the rights {head.rights[1]}", "mailbox acl",
                    head.partition)


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

