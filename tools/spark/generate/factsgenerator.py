"""Facts of invented back ends, for trying what runs over a fleet with more records than a machine could hold as mail.

Users and messages are as uneven as real ones: few users have most of the mail, most messages have one holder, some a
list's, and one in each back end everybody. The same seed makes the same facts. Digests of what all back ends got are
the same.
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

    _users(put, names)
    left, part = fleet.records, 0
    while left > 0:
        left -= _messages(put, fleet, number, part, names, min(left, FILE_RECORDS))
        part += 1
    rows = {name: sum(count for _, table, count, _ in files if table == name) for name in FACTS}
    privatefiles.write(folder / MANIFEST, json.dumps({
        "format": FORMAT, "version": VERSION, "store": store, "moment": "2026-09-21T14:13:20+00:00",
        "default_domain": "example.org", "rows": rows, "ranges": {"all": ["", files]}}))
    return folder


Put = Callable[[str, str, dict[str, Any], int], None]


def _users(put: Put, names: Numbers) -> None:
    """Users with their mailboxes and limits."""
    count, kinds = len(names), len(FOLDERS)
    owners = np.repeat(names, kinds)
    domains = np.char.partition(names, "@")[:, 2]
    put("users", "all", {"user": pa.array(names), "domain": pa.array(domains), "status": pa.repeat("active", count),
                         "groups": pa.array([["staff"] if at % 10 == 0 else [] for at in range(count)],
                                            fact_schema("users").field("groups").type)}, count)
    put("mailboxes", "all", {
        "id": pa.array(np.arange(1, count * kinds + 1)), "owner": pa.array(owners),
        "domain": pa.array(np.repeat(domains, kinds)), "quota_root": pa.array(owners),
        "name": pa.array(np.char.add(np.char.add("user/", owners), np.tile([f"/{kind}" for kind in FOLDERS], count))),
        "special_use": pa.array(np.tile(np.array([None, "\\Sent", "\\Trash", "\\Junk", "\\Archive", None], object),
                                        count), pa.string())}, count * kinds)
    put("quotas", "all", {
        "root": pa.array(names), "kind": pa.repeat("user", count), "limit_octets": pa.repeat(1 << 30, count),
        "default_octets": pa.repeat(False, count), "default_messages": pa.repeat(True, count),
        "written": arrays.times(np.full(count, _MOMENT)), "used_octets": pa.array(
            (np.random.default_rng(1).pareto(1.2, count) * (100 << 20)).astype(np.int64))}, count)


def _messages(put: Put, fleet: Fleet, number: int, part: int, names: Numbers, most: int) -> int:
    """Message files with about so many records; how many records they have."""
    own = np.random.default_rng([fleet.seed, number, part])
    count = max(1, most // PER_MESSAGE)
    digests = own.integers(0, 256, (count, 32), np.uint8)
    common = max(1, int(count * _COMMON))
    digests[:common] = np.random.default_rng([fleet.seed, part]).integers(0, 256, (common, 32), np.uint8)
    digests = digests.view("V32").reshape(-1)
    sizes = np.minimum(own.lognormal(9.2, 1.6, count), 40 << 20).astype(np.int64) + 400
    holders = np.minimum(own.zipf(1.6, count), len(names))
    if part == 0:
        holders[0] = len(names)             # what everybody got
    holders = _scaled(holders, most)
    which = np.repeat(np.arange(count), holders)
    records = len(which)
    starts = np.repeat(np.cumsum(holders) - holders, holders)
    # Holders of a message follow each other in an order in which those with much mail come first.
    first = (len(names) * own.random(count) ** 3).astype(np.int64)
    owner = (first[which] + (np.arange(records) - starts) * 7919) % len(names)
    folder = own.choice(len(FOLDERS), records, p=_SHARES)
    age = (own.exponential(1.2, count) * _YEAR).astype(np.int64)
    dates = arrays.times(_MOMENT - age[which])
    texts = arrays.digests(digests)
    put("messages", f"{part:08x}", {
        "digest": texts, "octets": pa.array(sizes), "staged": pa.repeat(False, count), "damage": pa.repeat("", count),
        "sender": pa.array(np.char.add(np.char.add("sender", np.minimum(own.zipf(1.3, count), 50_000).astype(str)),
                                       "@example.net"))}, count)
    put("references", f"{part:08x}", {
        "mailbox": pa.array(owner * len(FOLDERS) + folder + 1), "owner": pa.array(names).take(pa.array(owner)),
        "domain": pa.array(np.char.partition(names, "@")[:, 2]).take(pa.array(owner)),
        "digest": texts.take(pa.array(which)), "octets": pa.array(sizes[which]), "internal_date": dates,
        "saved": dates, "seen": pa.array((own.random(records) < 0.8) & (owner % 7 > 0)),
        "removed": pa.repeat(False, records)}, records)
    return records


def _scaled(holders: Numbers, records: int) -> Numbers:
    """These numbers, so that their sum is about that of the records; what has one holder keeps one."""
    more = holders - 1
    factor = max(0, records - len(holders)) / max(1, int(more.sum()))
    return 1 + (more * factor).astype(np.int64)
