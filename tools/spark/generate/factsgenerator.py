"""Facts of invented back ends, for trying what runs over a fleet with more records than a machine could hold as mail.

Users and messages are as uneven as real ones: few users have most of the mail, most messages have one holder, some a
list's, and one in each back end everybody. The same seed makes the same facts. Digests of what all back ends got are
the same. Records lie as an export writes them, mailbox by mailbox: digests in no order.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from attrs import frozen
from numpy.typing import NDArray

from mboxlist import privatefiles
from tools.spark.facts.factschema import FACTS, VERSION, fact_schema
from tools.spark.facts.factsexport import FORMAT, MANIFEST
from tools.spark.source import arrays

FILE_RECORDS = 1 << 20          # records of a file, about
PER_MESSAGE = 20                # records of a message, on the average
FOLDERS = ("INBOX", "Sent", "Trash", "Junk", "Archive", "Lists")
_SHARES = (0.45, 0.08, 0.12, 0.1, 0.15, 0.1)
_MOMENT = 1_790_000_000         # Unix time
_YEAR = 31_557_600
_COMMON = 0.01                  # of messages, those that every back end got

Numbers = NDArray[Any]


@frozen
class Fleet:
    """What to make: records and users of each back end."""

    records: int
    users: int
    back_ends: int = 2
    seed: int = 1


def generate(folder: Path, fleet: Fleet) -> list[Path]:
    """Make the facts of all back ends, each in a folder of its own. Raises OSError."""
    return [_back_end(folder / f"mail{number}", fleet, number) for number in range(fleet.back_ends)]


def _back_end(folder: Path, fleet: Fleet, number: int) -> Path:
    store = f"mail{number}.example.org:/srv/mail"
    files: list[tuple[str, str, int, int]] = []
    domains = max(1, fleet.users // 50)
    names = np.array([f"user{at}@dom{at % domains}.example" for at in range(fleet.users)])

    def put(table: str, part: str, columns: dict[str, Any], count: int) -> None:
        path = f"{table}/p/{part}.0.parquet"
        form = fact_schema(table)
        given = {"store": pa.repeat(store, count), "partition": pa.repeat("p", count), **columns}
        made = pa.table([given[name] if name in given else pa.nulls(count, form.field(name).type)
                         for name in form.names], schema=form)
        privatefiles.make_folder((folder / path).parent, parents=True, exist_ok=True)
        with privatefiles.replacing(folder / path, sync=False) as file:
            parquet.write_table(made, file, compression="zstd")
        files.append((path, table, count, (folder / path).stat().st_size))

    boxes = _users(put, names)
    _records(put, _messages(put, fleet, number, len(names)), boxes, np.random.default_rng([fleet.seed, number, 1]))
    rows = {name: sum(count for _, table, count, _ in files if table == name) for name in FACTS}
    privatefiles.write(folder / MANIFEST, json.dumps({
        "format": FORMAT, "version": VERSION, "store": store, "moment": "2026-09-21T14:13:20+00:00",
        "default_domain": "example.org", "rows": rows, "ranges": {"all": ["", files]}}))
    return folder


Put = Callable[[str, str, dict[str, Any], int], None]


def _users(put: Put, names: Numbers) -> pa.Table:
    """Users with their mailboxes and limits; the mailboxes, in order of their ids."""
    count, kinds = len(names), len(FOLDERS)
    owners = np.repeat(names, kinds)
    domains = np.char.partition(names, "@")[:, 2]
    put("users", "all", {"user": pa.array(names), "domain": pa.array(domains), "status": pa.repeat("active", count),
                         "groups": pa.array([["staff"] if at % 10 == 0 else [] for at in range(count)],
                                            fact_schema("users").field("groups").type)}, count)
    boxes = pa.table({
        "id": pa.array(np.arange(1, count * kinds + 1)), "owner": pa.array(owners),
        "domain": pa.array(np.repeat(domains, kinds)), "quota_root": pa.array(owners),
        "name": pa.array(np.char.add(np.char.add("user/", owners), np.tile([f"/{kind}" for kind in FOLDERS], count))),
        "special_use": pa.array(np.tile(np.array([None, "\\Sent", "\\Trash", "\\Junk", "\\Archive", None], object),
                                        count), pa.string())})
    put("mailboxes", "all", {name: boxes[name] for name in boxes.column_names}, count * kinds)
    put("quotas", "all", {
        "root": pa.array(names), "kind": pa.repeat("user", count), "limit_octets": pa.repeat(1 << 30, count),
        "default_octets": pa.repeat(False, count), "default_messages": pa.repeat(True, count),
        "written": arrays.times(np.full(count, _MOMENT)), "used_octets": pa.array(
            (np.random.default_rng(1).pareto(1.2, count) * (100 << 20)).astype(np.int64))}, count)
    return boxes


@frozen(eq=False)
class _Mail:
    """The message files of a back end, and of each how many have it, the first of these, and its age in seconds."""

    digests: Numbers
    sizes: Numbers
    holders: Numbers
    first: Numbers
    ages: Numbers
    users: int


def _messages(put: Put, fleet: Fleet, number: int, users: int) -> _Mail:
    """Message files with about so many records."""
    own = np.random.default_rng([fleet.seed, number])
    count = max(1, fleet.records // PER_MESSAGE)
    digests = own.integers(0, 256, (count, 32), np.uint8)
    common = max(1, int(count * _COMMON))
    digests[:common] = np.random.default_rng(fleet.seed).integers(0, 256, (common, 32), np.uint8)
    digests = digests.view("V32").reshape(-1)
    sizes = np.minimum(own.lognormal(9.2, 1.6, count), 40 << 20).astype(np.int64) + 400
    holders = np.minimum(own.zipf(1.6, count), users)
    holders[0] = users                      # what everybody got
    holders = _scaled(holders, fleet.records)
    for part, at in enumerate(range(0, count, FILE_RECORDS)):
        some = slice(at, at + FILE_RECORDS)
        here = len(sizes[some])
        put("messages", f"{part:08x}", {
            "digest": arrays.digests(digests[some]), "octets": pa.array(sizes[some]), "staged": pa.repeat(False, here),
            "damage": pa.repeat("", here), "sender": pa.array(np.char.add(np.char.add("sender", np.minimum(
                own.zipf(1.3, here), 50_000).astype(str)), "@example.net"))}, here)
    # Holders of a message follow each other in an order in which those with much mail come first.
    first = (users * own.random(count) ** 3).astype(np.int32)
    return _Mail(digests, sizes, holders, first, (own.exponential(1.2, count) * _YEAR).astype(np.int64), users)


def _records(put: Put, mail: _Mail, boxes: pa.Table, own: np.random.Generator) -> None:
    """The records of all mailboxes, in their order."""
    which = np.repeat(np.arange(len(mail.sizes), dtype=np.int32), mail.holders)
    records = len(which)
    at = np.arange(records) - np.repeat(np.cumsum(mail.holders) - mail.holders, mail.holders)
    boxes_of = ((mail.first[which] + at * 7919) % mail.users * len(FOLDERS)).astype(np.int32)
    boxes_of += own.choice(np.arange(len(FOLDERS), dtype=np.int32), records, p=_SHARES)
    del at
    order = np.argsort(boxes_of, kind="stable").astype(np.int32)
    for part, start in enumerate(range(0, records, FILE_RECORDS)):
        some = order[start:start + FILE_RECORDS]
        files, box = which[some], boxes_of[some]
        here, dates = len(some), arrays.times(_MOMENT - mail.ages[files])
        mailboxes = boxes.take(pa.array(box))
        put("references", f"{part:08x}", {
            "mailbox": mailboxes["id"], **{name: mailboxes[name] for name in (
                "owner", "domain", "name", "special_use")},
            "digest": arrays.digests(mail.digests[files]), "octets": pa.array(mail.sizes[files]),
            "internal_date": dates, "saved": dates, "removed": pa.repeat(False, here),
            "seen": pa.array((own.random(here) < 0.8) & (box // len(FOLDERS) % 7 > 0))}, here)


def _scaled(holders: Numbers, records: int) -> Numbers:
    """These numbers, so that their sum is about that of the records; what has one holder keeps one."""
    more = holders - 1
    factor = max(0, records - len(holders)) / max(1, int(more.sum()))
    return 1 + (more * factor).astype(np.int64)
