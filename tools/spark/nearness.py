"""What a message is without the header fields that differ from copy to copy of it.

The same message that came on several ways (to each of its recipients by itself, over a list and directly, before and
after a filter) differs in a few fields at its head alone. `plain` is a digest of all the rest. Left out are the
trace fields of RFC 5321 §4.4, those of resending (RFC 5322 §3.6.6), and what filters and final deliveries add:
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from mboxlist import privatefiles
from store.partition.filecontent import READ_OCTETS
from store.partition.messagereading import MID_OCTETS
from tools.spark.source import reading
from tools.spark.source.schema import NUMBER, TEXT

LEFT_OUT = frozenset(name.encode() for name in (
    "return-path", "received", "received-spf", "delivered-to", "envelope-to", "delivery-date", "dkim-signature",
    "domainkey-signature", "authentication-results", "auto-submitted-to", "list-unsubscribe", "list-unsubscribe-post",
    "resent-date", "resent-from", "resent-sender", "resent-to", "resent-cc", "resent-bcc", "resent-message-id",
    "errors-to", "status", "lines", "bytes"))
BEGINNINGS = (b"x-", b"arc-")           # fields whose names begin so are left out, too
HEADER_LIMIT = 1 << 20                  # octets of a header that are looked at
FORM = pa.schema([("store", TEXT), ("partition", TEXT), ("digest", TEXT), ("plain", TEXT), ("octets", NUMBER)])
BATCH = 4096
_FIELD = re.compile(rb"([^\x00-\x20:\x7f]+)[ \t]*:[^\n]*(?:\n[ \t][^\n]*)*(?:\n|\Z)")
_END = re.compile(rb"\r?\n")


def is_left_out(name: bytes) -> bool:
    """Whether fields of that name differ from copy to copy."""
    name = name.lower()
    return name in LEFT_OUT or name.startswith(BEGINNINGS)


def plain_header(octets: bytes) -> tuple[bytes, int]:
    """The fields of a header that stay, and where what comes behind them begins. A line that is no field ends it."""
    at, kept = 0, []
    while not _END.match(octets, at) and (found := _FIELD.match(octets, at)):
        if not is_left_out(found[1]):
            kept.append(found[0])
        at = found.end()
    return b"".join(kept), at


def plain(path: Path) -> bytes:
    """The digest of a message file without what differs. Raises OSError."""
    with privatefiles.open_file(path, "rb", buffering=0) as file:
        start = file.read(HEADER_LIMIT)
        kept, at = plain_header(start)
        digest = hashlib.blake2b(kept, digest_size=MID_OCTETS)
        data = start[at:]
        while data:
            digest.update(data)
            data = file.read(READ_OCTETS)
    return digest.digest()


def nearness(task: reading.Task) -> Iterator[pa.RecordBatch]:
    """A row for each message file of a task: its digest, and that of what is left of it. What cannot be read is left
    out: `onecopy check` tells."""
    rows: list[dict[str, Any]] = []
    for name, entries, _ in reading.message_files(task):
        for entry in entries:
            if reading.is_digest(entry.name):
                try:
                    found = plain(Path(f"{task.folder}/messages/{name}/{entry.name}"))
                    size = entry.stat().st_size
                except OSError:
                    continue
                rows.append({"store": task.store, "partition": task.partition, "digest": entry.name,
                             "plain": found.hex(), "octets": size})
        if len(rows) >= BATCH:
            yield pa.RecordBatch.from_pylist(rows, FORM)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, FORM)
