"""What the plan of a rebuild is made of, as functions of one task each: pure Python, run by Spark or one by one.

A task is one of `reading.tasks`. What cannot be read, or is not used, becomes a finding of its row; nothing raises for
what a file holds.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import evolve
from numpy.typing import NDArray

from mboxlist.entry import MailboxId
from mboxlist.names import MailboxName
from store.errors import StoreError
from store.partition.filecontent import content, content_in, likely_digests
from store.partition.messagereading import MID_OCTETS
from store.rebuild.userareascan import Source, free_name, read_source
from store.tables.counters import counters_of
from store.tables.index import ROW, Rows, take
from store.tables.privateheaders import UNKNOWN
from store.tables.references import marks
from store.userarea.idxfile import Head, uidl_items
from store.values import RECONSTRUCT, RESTORE, Finding, Flag
from tools.spark.rebuild.plan import RECORDS_IN_A_ROW, SCHEMAS, Facts, facts, finding_rows
from tools.spark.source import reading

BATCH_ROWS = 512                # rows of a batch,
BATCH_OCTETS = 8 << 20          # or fewer, when they have so many octets
MODSEQS = 1 << 62               # a MODSEQ, or a serial, that no mailbox comes to
_FLAGS = np.uint16(sum(flag.value for flag in Flag))
UNUSED = "nothing refers to this file"
_HALF = np.uint64(0xFFFFFFFF)


def batches(table: str, rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Rows in batches that are not too large."""
    some: list[dict[str, Any]] = []
    octets = 0
    for row in rows:
        some.append(row)
        octets += sum(len(value) for value in row.values() if isinstance(value, bytes))
        if len(some) >= BATCH_ROWS or octets >= BATCH_OCTETS:
            yield pa.RecordBatch.from_pylist(some, SCHEMAS[table])
            some, octets = [], 0
    if some:
        yield pa.RecordBatch.from_pylist(some, SCHEMAS[table])


# Message files

def messages(task: reading.Task) -> Iterator[pa.RecordBatch]:
    """The message files of a task, each read once: rows of `messages`."""
    return batches("messages", _messages(task))


def _messages(task: reading.Task) -> Iterator[dict[str, Any]]:
    for name, entries, problem in reading.message_files(task):
        if problem:
            yield _no_message(task, f"messages/{name}", [Finding(problem, f"messages/{name}", RECONSTRUCT)])
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"messages/{name}/{entry.name}"
            if reading.is_digest(entry.name):
                yield _message(task, path, bytes.fromhex(entry.name), staged=False)
            else:
                yield _no_message(task, path, [Finding("nothing is known of this file", path, RECONSTRUCT)])
    for entry, digest in reading.staged_files(task):
        path = f"{reading.STAGING}/{entry.name}"
        if digest is None:
            yield _no_message(task, path, [Finding("cannot be read", path, RESTORE)])
            continue
        for each in reading.digests_of(task.folder, entry):
            yield _message(task, path, each, staged=True)


def _message(task: reading.Task, path: str, digest: bytes, *, staged: bool) -> dict[str, Any]:
    try:
        found = content(Path(task.folder) / path, digest, [])
        problem = "" if found is not None else "it does not agree with its digest"
    except FileNotFoundError:
        found, problem = None, "it is gone"
    except (OSError, StoreError) as error:
        found, problem = None, f"cannot be read: {error}"
    if found is None and (journalled := reading.in_journal(task.folder, digest.hex())) is not None:
        found = content_in(journalled, digest)
    if found is None:
        return _no_message(task, path, [Finding(problem, path, RESTORE)], digest)
    cached, octets = found
    return {"partition": task.partition, "path": path, "digest": digest, "octets": octets, "trace": cached.trace,
            "staged": staged, "cached": cached.data, "findings": []}


def _no_message(task: reading.Task, path: str, findings: list[Finding], digest: bytes | None = None) -> dict[str, Any]:
    octets, likely = _examined(Path(task.folder) / path)
    return {"partition": task.partition, "path": path, "digest": digest, "octets": octets, "likely": likely,
            "findings": finding_rows(findings)}


def _examined(path: Path) -> tuple[int | None, list[bytes] | None]:
    """How many octets a file has that does not hold what its name says, and what it may hold; None for what cannot be
    read."""
    try:
        status = os.lstat(path)
        return (status.st_size, likely_digests(path)) if stat.S_ISREG(status.st_mode) else (None, None)
    except OSError:
        return None, None


# Mailboxes

def pieces(folder: str, begun: float, task: reading.Task) -> Iterator[pa.RecordBatch]:
    """The mailboxes of a task: rows of `pieces`, for a plan in that folder that was begun at that Unix time, and has
    all of its table `messages`."""
    known = facts(folder, task.partition)
    return batches("pieces", (judged(row, known, task.folder, begun) for row in _read(task)))


def read(task: reading.Task) -> Iterator[pa.RecordBatch]:
    """The mailboxes of a task: rows of `pieces` that are not `judged` yet. Each has the header fields that its own
    records name, and the head."""
    return batches("pieces", _read(task))


def _read(task: reading.Task) -> Iterator[dict[str, Any]]:
    for found in reading.idx_files(task):
        if found.problem:
            yield _no_mailbox(task, found.below, [Finding(found.problem, found.below, RESTORE)])
        else:
            yield from _mailbox(task, found.below)


def _no_mailbox(task: reading.Task, path: str, findings: list[Finding]) -> dict[str, Any]:
    return {"partition": task.partition, "path": path, "findings": finding_rows(findings)}


def _mailbox(task: reading.Task, path: str) -> Iterator[dict[str, Any]]:
    findings: list[Finding] = []
    folder = Path(task.folder)
    try:
        status = os.stat(folder / path)
    except OSError:
        return                              # it went away just now
    source, left = read_source(folder, folder / path, findings)
    if source is None or left is None:
        yield _no_mailbox(task, path, findings)
        return
    for at in range(0, max(len(left.rows), 1), RECORDS_IN_A_ROW):
        part = left.rows[at:at + RECORDS_IN_A_ROW]
        named = np.unique(part["head"]).tolist() if left.private_headers else ()
        row = {"partition": task.partition, "path": path, "piece": at // RECORDS_IN_A_ROW, "rows": part.tobytes(),
               "head": source.head.to_bytes(), "name": str(source.name), "found": source.found,
               "damaged": bool(findings), "findings": [],
               "fields": [{"number": number, "octets": left.private_headers[number]} for number in named
                          if number in left.private_headers]}
        if not at:
            row |= {"own": left.own.tobytes(), "uidls": uidl_items(left.uidls).tobytes(), "size": status.st_size,
                    "modified": status.st_mtime_ns, "findings": finding_rows(findings)}
        yield row


def judged(row: dict[str, Any], known: Facts, folder: str, begun: float) -> dict[str, Any]:
    """A row that was `read`, with those of its records that can be used, and the others. `folder` is the partition's.
    """
    if row.get("rows") is None:
        return row
    findings: list[Finding] = []
    private_headers = {item["number"]: item["octets"] for item in row["fields"]}
    rows, unused = usable(source_of(row, Path(folder)), np.frombuffer(row["rows"], ROW), private_headers, known,
                          findings, lambda record: _is_new(folder, record, begun))
    return row | {"rows": rows.tobytes(), "unused": unused.tobytes(), "records": len(rows),
                  "octets": counters_of(rows).octets, "findings": row["findings"] + finding_rows(findings)}


def usable(source: Source, left: Rows, own_fields: Mapping[int, bytes], known: Facts, findings: list[Finding],
           is_new: Callable[[Any], bool] = lambda row: False) -> tuple[Rows, Rows]:
    """Of the records that are left, those whose message files are there, whole; and the others, which are reported
    unless their messages are new. Flags and keywords that cannot be are left out. `own_fields` are header fields that
    messages have in this mailbox alone, by number.
    """
    rows = left.copy()
    places, there = known.find(rows["digest"])
    header_length = rows["header_length"].astype(np.int64)
    octets, traces = (known.octets[places], known.traces[places]) if len(known.digests) else (header_length,
                                                                                              header_length)
    numbers, which = np.unique(rows["head"], return_inverse=True)
    sizes = [len(own_fields[number]) if number in own_fields else UNKNOWN if number else 0
             for number in numbers.tolist()]
    private_headers = np.array(sizes, np.int64)[which]
    more = rows["size"].astype(np.int64) + header_length - octets
    fits = there & ((header_length == 0) | (header_length == traces)) & (
        (more == private_headers) | (private_headers == UNKNOWN) & (more > 0))
    for at in np.flatnonzero(fits & (private_headers == UNKNOWN)).tolist():
        rows["head"][at], rows["size"][at] = 0, octets[at] - header_length[at]
        findings.append(Finding("header fields that it has in this mailbox alone are lost",
                                f"{source.name}, UID {rows['uid'][at]}", RESTORE))
    for at in np.flatnonzero(~fits).tolist():
        if not there[at] and bytes(rows["digest"][at]) not in known.damaged and is_new(rows[at]):
            continue
        findings.append(Finding(
            f"its message file {bytes(rows['digest'][at]).hex()} is missing, damaged, or not as long as it was",
            f"{source.name}, UID {rows['uid'][at]}", RESTORE))
    rows["modseq"] = np.minimum(rows["modseq"], MODSEQS)
    rows["keywords"] &= np.uint64((1 << (len(source.head.keywords) if source.found else 0)) - 1)
    rows["flags"] &= _FLAGS
    return take(rows, np.flatnonzero(fits)), take(rows, np.flatnonzero(~fits))


def _is_new(folder: str, row: Any, begun: float) -> bool:
    """Whether its message came when the plan had been begun: the store is in use."""
    name = bytes(row["digest"]).hex()
    for path in (f"messages/{name[0]}/{name[1:3]}/{name}", f"{reading.STAGING}/{int(row['serial']):016x}"):
        try:
            return os.stat(os.path.join(folder, path)).st_ctime >= begun - 1
        except OSError:
            continue
    return False


def source_of(row: dict[str, Any], folder: Path) -> Source:
    """The mailbox that a row of `pieces` (the first of its mailbox) or of `mailboxes` tells of."""
    return Source(row["partition"], folder / row["path"], Head.from_bytes(row["head"]), MailboxName.parse(row["name"]),
                  row["found"])


# References

def counted(partition: str, mailbox: int, rows: Rows) -> pa.RecordBatch:
    """What the records of a mailbox with that id refer to: rows of `references`, of which other mailboxes, and other
    pieces of this one, have more."""
    digests = np.ascontiguousarray(rows["digest"]).view(f"S{MID_OCTETS}")
    order = np.argsort(digests, kind="stable")
    different, starts, counts = np.unique(digests[order], return_index=True, return_counts=True)
    values = marks(MailboxId(mailbox), rows["uid"])[order]
    serials = np.minimum(rows["serial"], np.uint64(MODSEQS)).astype(np.int64)[order]
    figures = {"references": counts.astype(np.int64),
               "low": np.add.reduceat(values & _HALF, starts).astype(np.int64),
               "high": np.add.reduceat(values >> np.uint64(32), starts).astype(np.int64),
               "first_serial": np.minimum.reduceat(serials, starts),
               "last_serial": np.maximum.reduceat(serials, starts)}
    columns = [pa.array([partition] * len(different), pa.string()), digest_column(different),
               *map(pa.array, figures.values())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS["references"])


def digest_column(digests: NDArray[np.bytes_]) -> pa.Array:
    """Digests as a column; not by `tolist`, which cuts off NULs at their ends."""
    octets = pa.py_buffer(np.ascontiguousarray(digests))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(MID_OCTETS), len(digests), [None, octets]).cast(pa.binary())


SUMS = {"references": "sum", "low": "sum", "high": "sum", "first_serial": "min", "last_serial": "max"}


def summed(table: pa.Table) -> pa.Table:
    """One row for each message file. (No sum overflows: of 32-bit halves there would have to be 2^31.)"""
    grouped = table.group_by(["partition", "digest"]).aggregate(list(SUMS.items()))
    found = grouped.rename_columns([name.removesuffix("_sum").removesuffix("_min").removesuffix("_max")
                                    for name in grouped.column_names])
    return found.select(SCHEMAS["references"].names).cast(SCHEMAS["references"])


# The mailboxes that are to be

def chosen(row: dict[str, Any], mailbox: int, *, again: bool) -> dict[str, Any]:
    """The row of `mailboxes` of a mailbox that gets that id: `row` has the columns of `pieces`, `records`, `unused` and
    `octets` in figures. `again`: another mailbox has its name, too."""
    findings: list[Finding] = []
    source = source_of(row, Path())
    name = free_name(source.name, MailboxId(mailbox), findings) if again else source.name
    return {**{column: row[column] for column in _KEPT}, "id": mailbox, "name": str(name),
            "head": evolve(source.head, id=mailbox).to_bytes(), "findings": finding_rows(findings)}


_KEPT = ("partition", "path", "found", "damaged", "records", "unused", "octets", "size", "modified")
