"""What a plan is made of, as functions of the batches of a frame: `plantasks` for `sparkplan`."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mboxlist.names import PUBLIC, SEPARATOR, MailboxName
from store.quota.roots import root_of
from store.tables.index import ROW
from store.tables.quotatable import DOMAIN
from tools.spark.rebuild import plantasks
from tools.spark.rebuild.plan import MID, SCHEMAS, Facts

Batches = Iterator[pa.RecordBatch]
Row = dict[str, Any]

RECORD_OCTETS = ROW.itemsize
_MAILBOX = [("partition", pa.string()), ("path", pa.string())]
NAMED = pa.schema([("partition", pa.string()), ("number", pa.int64()), ("digest", pa.binary())])
HEADS = pa.schema([*_MAILBOX, ("found", pa.bool_()), ("id", pa.int64()), ("list", pa.string()),
                   ("uidvalidity", pa.int64()), ("written", pa.int64()), ("removed", pa.bool_())])
USES = pa.schema([*_MAILBOX, ("octets", pa.int64()), ("records", pa.int64()), ("root", pa.string()),
                  ("roots", pa.list_(pa.field("element", pa.string())))])
LIMITS = pa.schema([
    ("partition", pa.string()), ("owner", pa.string()), ("id", pa.int64()), ("written", pa.int64()),
    ("limits", pa.list_(pa.field("element", pa.struct([("root", pa.string()), ("owner", pa.string()),
                                                       ("octets", pa.int64()), ("messages", pa.int64())]))))])


def named(batches: Batches) -> Batches:
    """The digests that the records of each row of `read` name, each once."""
    for batch in batches:
        for row in batch.to_pylist():
            digests = np.unique(np.frombuffer(row["rows"], ROW)["digest"].view("S32"))
            yield pa.RecordBatch.from_arrays(
                [pa.array([row["partition"]] * len(digests), pa.string()),
                 pa.array(np.full(len(digests), row["number"], np.int64)), plantasks.digest_column(digests)],
                schema=NAMED)


def judged(folders: Mapping[str, str], begun: float, batches: Batches) -> Batches:
    """Rows of `pieces`, of rows of `read` with those `files` that their records name; `folders` are the partitions'."""
    return plantasks.batches("pieces", (
        plantasks.judged(row, _facts(row.pop("files") or ()), folders[row["partition"]], begun)
        for batch in batches for row in batch.to_pylist()))


def _facts(files: Any) -> Facts:
    whole = sorted((file for file in files if file["whole"]), key=lambda file: bytes(file["digest"]))
    digests = np.frombuffer(b"".join(file["digest"] for file in whole), MID).view("S32")
    octets, traces = (np.array([file[name] for file in whole], np.int64) for name in ("octets", "trace"))
    return Facts(digests, octets, traces, frozenset(file["digest"] for file in files if file["damaged"]))


def heads(batches: Batches) -> Batches:
    """What `userareascan.choose` goes by."""
    return each(batches, HEADS, _head)


def _head(row: Row) -> Iterator[Row]:
    head = plantasks.source_of(row | {"name": "user/nobody/INBOX"}, Path()).head
    yield {"id": head.id, "list": head.store, "uidvalidity": head.uidvalidity, "written": head.written,
           "removed": bool(head.removed), **{name: row[name] for name in ("partition", "path", "found")}}


def chosen(batches: Batches) -> Batches:
    """Rows of `mailboxes`."""
    return each(batches, SCHEMAS["mailboxes"], lambda row: iter((
        plantasks.chosen(row, row["id"], again=row["again"]),)))


def references(batches: Batches) -> Batches:
    """Rows of `references`, of rows of `pieces` with the ids of their mailboxes."""
    for batch in batches:
        for row in batch.to_pylist():
            yield plantasks.counted(row["partition"], row["id"], np.frombuffer(row["rows"], ROW))


# Quota

def uses(batches: Batches) -> Batches:
    """What each mailbox uses, of which root: the first of `roots` that has limits, or `root`."""
    return each(batches, USES, _use)


def _use(row: Row) -> Iterator[Row]:
    source = plantasks.source_of(row | {"found": True}, Path())
    if not source.head.removed:
        root, roots = roots_of(source.name)
        yield {"partition": row["partition"], "path": row["path"], "octets": row["octets"], "records": row["records"],
               "root": root, "roots": roots}


def roots_of(name: MailboxName) -> tuple[str, list[str]]:
    """The quota root that a mailbox of that name is charged to when none of others, the nearest first, has limits; and
    these others."""
    asked = _Asked()
    return root_of(name, asked), asked


class _Asked(list[str]):
    """A collection of roots that has none, and notes which ones it was asked for."""

    def __contains__(self, root: object) -> bool:
        self.append(str(root))
        return False

    def __bool__(self) -> bool:
        return True


def limits(batches: Batches) -> Batches:
    """The limits that the head of each mailbox tells of, and whose mailbox it is; those of a domain have no owner."""
    return each(batches, LIMITS, _limits)


def _limits(row: Row) -> Iterator[Row]:
    source = plantasks.source_of(row | {"found": True}, Path())
    yield {"partition": row["partition"], "owner": source.name.owner or PUBLIC[:-1], "id": row["id"],
           "written": source.head.written, "limits": [
               {"root": root, "owner": None if root.startswith(DOMAIN) else root.partition(SEPARATOR)[0],
                "octets": octets, "messages": messages}
               for root, (octets, messages) in source.head.limits.items()]}


def each(batches: Batches, form: pa.Schema, work: Callable[[Row], Iterator[Row]]) -> Batches:
    """The rows that `work` gives for each row, in batches of that form."""
    for batch in batches:
        made = [one for row in batch.to_pylist() for one in work(row)]
        if made:
            yield pa.RecordBatch.from_pylist(made, form)
