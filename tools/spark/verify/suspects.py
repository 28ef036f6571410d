"""What may be wrong, of all that a plan has: few rows of a large store, which `verifyjob` judges one by one.

Here they are looked for in this process (`Local`), by Spark in `sparksuspects`; of both they are the same.
"""

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow.compute as pc
from attrs import define, evolve, frozen

from mboxlist.names import SEPARATOR
from store.quota.roots import root_of
from store.rebuild.desired import limits_of
from store.rebuild.userareascan import Source
from store.store import Store
from store.tables.index import ROW
from store.tables.quotatable import DOMAIN
from tools.spark.rebuild import plantasks
from tools.spark.rebuild.plan import Plan, facts
from tools.spark.source import reading
from tools.spark.verify import comparing, kinds

TWICE = "another mailbox has this name"


@frozen
class Lost:
    """A message whose file is not there: its octets by the first record that cannot be used for it, how many these are,
    and which is the first, by path and UID."""

    partition: str
    digest: bytes
    octets: int
    records: int
    name: str
    uid: int


@frozen
class Unfit:
    """So many records of a store.idx do not fit their message files; the first UID."""

    partition: str
    path: str
    records: int
    uid: int


@frozen
class WrongHead:
    """A store.idx that is not in its place, or older than another one of its mailbox, or tells what is not so. `root`
    is the quota root that the name of its mailbox says, where `quota_root` is another."""

    partition: str
    path: str
    name: str
    id: int
    misplaced: bool = False
    older: bool = False
    foreign: str = ""               # the partition that it names
    rights: tuple[str, str] | None = None
    root: str | None = None
    quota_root: str = ""


class Suspects(Protocol):
    """What a plan of a store has of these."""

    def damaged_heads(self) -> list[dict[str, Any]]:
        """`partition` and `path` of each store.idx that has findings, and these as `texts`."""

    def wrong_heads(self) -> list[WrongHead]:
        """Those that are whole, and there."""

    def mailboxes(self, paths: set[str]) -> dict[str, str]:
        """Of these paths of store.idx in their places the mailboxes."""

    def names_twice(self) -> list[dict[str, Any]]:
        """Findings (`what`, `place`, `repair`) of mailboxes whose name another one has."""

    def unusable(self) -> tuple[list[Lost], list[Unfit]]:
        """What the records that cannot be used say."""

    def damaged_files(self) -> list[dict[str, Any]]:
        """`partition`, `path`, `digest`, `octets`, `likely` and `what` of what is no whole message file."""

    def whole(self) -> set[tuple[str, bytes]]:
        """The whole message files, by partition and digest, among those that damaged ones may be."""

    def misplaced(self) -> list[dict[str, Any]]:
        """`partition` and `path` of whole files in folders that are not those of their digests."""

    def unused(self) -> int:
        """How many whole files no store.idx refers to."""


class Engine(Protocol):
    """What looks."""

    def suspects(self, plan: Plan, root: Path) -> Suspects:
        """What may be wrong with the files of the store there."""

    def compare(self, store: Store, plan: Plan) -> comparing.Compared:
        """What is other in the index than in store.idx (`comparing`)."""


@frozen
class Looking:
    """Looks in this process."""

    def suspects(self, plan: Plan, root: Path) -> "Local":
        """See Engine."""
        return Local(plan, root)

    def compare(self, store: Store, plan: Plan) -> comparing.Compared:
        """See Engine."""
        return comparing.compare_all(store, plan)


@define(eq=False)
class Local:
    """See Suspects."""

    plan: Plan
    root: Path

    def folder(self, partition: str) -> Path:
        """That of a partition."""
        return self.root / "partitions" / partition

    # store.idx

    def _firsts(self) -> Iterator[dict[str, Any]]:
        columns = ["partition", "path", "piece", "head", "name", "found", "findings"]
        return (row for row in self.plan.rows("pieces", columns) if not row["piece"])

    def damaged_heads(self) -> list[dict[str, Any]]:
        """See Suspects."""
        found = [(row["partition"], row["path"], [item["what"] for item in row["findings"]
                                                  if item["place"] == row["path"]]) for row in self._firsts()]
        return [{"partition": partition, "path": path, "texts": texts} for partition, path, texts in found if texts]

    def _sources(self) -> list[tuple[str, Source]]:
        return [(row["path"], plantasks.source_of(row, self.folder(row["partition"])))
                for row in self._firsts() if row["head"] is not None]

    def _placed(self) -> tuple[list[tuple[str, Source]], list[tuple[str, Source]], set[tuple[str, str]]]:
        """Those in their places, those that are not, and which of the former are older ones."""
        whole = [(path, source) for path, source in self._sources() if source.found and source.path.exists()]
        elsewhere = [(path, source) for path, source in whole if kinds.misplaced(
            self.folder(source.partition), path, source.head, reading.owner_place)]
        wrong = {source.path for _, source in elsewhere}
        whole = [(path, source) for path, source in whole if source.path not in wrong]
        older = {(partition, path) for partition, path, _ in kinds.several(
            ((source.head.store, source.head.id), source.partition, source.head.written, path)
            for path, source in whole)}
        return whole, elsewhere, older

    def wrong_heads(self) -> list[WrongHead]:
        """See Suspects."""
        sources = [source for _, source in self._sources()]
        limits = {name: limits_of(sources, name) for name in {source.partition for source in sources}}
        sure = {(source.partition, source.head.owner) for source in sources if is_sure(source)}
        whole, elsewhere, older = self._placed()
        found = [WrongHead(source.partition, path, source.head.name, source.head.id, misplaced=True)
                 for path, source in elsewhere]
        for path, source in whole:
            roots = {root for root in limits[source.partition] if is_own_root(root)}
            root = root_of(source.name, roots) if (source.partition, source.head.owner) in sure else None
            made = judged(path, source, root)
            if (source.partition, path) in older:
                found.append(WrongHead(source.partition, path, source.head.name, source.head.id, older=True))
            elif made is not None:
                found.append(made)
        return found

    def mailboxes(self, paths: set[str]) -> dict[str, str]:
        """See Suspects."""
        if not paths:
            return {}
        whole, _, older = self._placed()
        return {str(source.path): source.head.name for path, source in whole
                if str(source.path) in paths and (source.partition, path) not in older}

    def names_twice(self) -> list[dict[str, Any]]:
        """See Suspects."""
        return [row for row in self.plan.rows("findings") if row["what"].startswith(TWICE)]

    # Message files

    def unusable(self) -> tuple[list[Lost], list[Unfit]]:
        """See Suspects."""
        lost: dict[tuple[str, bytes], tuple[tuple[str, int], Lost]] = {}
        unfit: dict[tuple[str, str], Unfit] = {}
        for row in self.plan.rows("pieces", ["partition", "path", "name", "unused", "fields"]):
            for one in unusable(row):
                partition, path, digest = one["partition"], one["path"], one["digest"]
                if facts(str(self.plan.folder), partition).find(np.frombuffer(digest, "V32"))[1][0]:
                    known = unfit.get((partition, path), Unfit(partition, path, 0, one["uid"]))
                    unfit[partition, path] = Unfit(partition, path, known.records + one["records"],
                                                   min(known.uid, one["uid"]))
                    continue
                order = path, one["uid"]
                made = Lost(partition, digest, one["octets"], one["records"], one["name"], one["uid"])
                if (before := lost.get((partition, digest))) is not None:
                    (order, made), (_, other) = sorted([before, (order, made)], key=itemgetter(0))
                    made = evolve(made, records=made.records + other.records)
                lost[partition, digest] = order, made
        return [one for _, one in lost.values()], list(unfit.values())

    def damaged_files(self) -> list[dict[str, Any]]:
        """See Suspects."""
        table = self.plan.dataset("messages").to_table(
            columns=["partition", "path", "digest", "octets", "likely", "findings"],
            filter=~pc.is_valid(pc.field("trace")))
        return [row | {"what": row.pop("findings")[0]["what"]} for row in table.to_pylist()]

    def whole(self) -> set[tuple[str, bytes]]:
        """See Suspects."""
        return {(row["partition"], digest) for row in self.damaged_files() for digest in row["likely"] or ()
                if facts(str(self.plan.folder), row["partition"]).find(np.frombuffer(digest, "V32"))[1][0]}

    def misplaced(self) -> list[dict[str, Any]]:
        """See Suspects."""
        test = pc.is_valid(pc.field("trace")) & ~pc.field("staged")
        found: list[dict[str, Any]] = []
        for batch in self.plan.dataset("messages").to_batches(columns=["partition", "path"], filter=test):
            column = batch["path"]          # messages/3/fa/3fa...
            place = [pc.utf8_slice_codeunits(column, *span) for span in ((9, 10), (11, 13))]
            wrong = pc.not_equal(pc.binary_join_element_wise(*place, ""), pc.utf8_slice_codeunits(column, 14, 17))
            found += batch.filter(wrong).to_pylist()
        return found

    def unused(self) -> int:
        """See Suspects."""
        return sum(len(comparing.unused(self.plan, name)) for name in self.plan.read_manifest().partitions)


# What is judged of one row, by both

def is_sure(source: Source) -> bool:
    """Whether the limits that its owner has on its partition are known: those of others may be lost."""
    return source.found and (source.name.is_inbox() or not source.head.owner)


def is_own_root(root: str) -> bool:
    """Whether it is the quota root of a mailbox, not of a user or a domain."""
    return SEPARATOR in root and not root.startswith(DOMAIN)


def judged(path: str, source: Source, root: str | None) -> WrongHead | None:
    """What is wrong with what a file in its place tells; `root` is the quota root that its name says, None when there
    is no telling."""
    head = source.head
    quota = root is not None and head.quota_root != root and not head.removed
    foreign = head.partition if head.partition != source.partition else ""
    rights = kinds.wrong_rights(head)
    if not quota and not foreign and rights is None:
        return None
    return WrongHead(source.partition, path, head.name, head.id, foreign=foreign, rights=rights,
                     root=root if quota else None, quota_root=head.quota_root)


def unusable(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of a row of `pieces` the messages of its records that cannot be used: of each how many these are, and octets and
    UID of the first one."""
    if not row["unused"]:
        return
    records = np.frombuffer(row["unused"], ROW)
    records = records[np.argsort(records["uid"], kind="stable")]
    octets = kinds.file_octets(records, {item["number"]: len(item["octets"]) for item in row["fields"] or ()})
    _, firsts, counts = np.unique(records["digest"].view("S32"), return_index=True, return_counts=True)
    for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
        yield {"partition": row["partition"], "path": row["path"], "name": row["name"], "records": count,
               "digest": records["digest"][first].tobytes(), "uid": int(records["uid"][first]),
               "octets": int(octets[first])}


LOOKING = Looking()
