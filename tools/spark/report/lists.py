"""The lists of a report that are of all its records and message files: by age, kind of folder, size and sender, the
largest messages, and what waits for the purge; and what is summed over users.

None grows with the store. `Lists` sums them up in one process, of a store (`reportlocal`) or of a fleet (`fleetlocal`);
with Spark the queries of `reportjob` and `fleetjob` do, with the definitions of `fleetviews`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field, frozen

from tools.spark.report.fleetviews import AGES, LARGER, LONGER, OLD_DAYS, RUBBISH, SIZES, WAITS
from tools.spark.report.groups import Numbered, Numbers, Sums, class_of

DAY = 86_400                # seconds
NEVER = np.iinfo(np.int64).min
_AGES = [name for _, name in AGES] + [LONGER]
_FIGURES = ("files", "file_octets", "messages", "logical")
_OF_USERS = ("messages", "logical", "fair_share", "unique", "freed")
_TRUTHS = ("idle", "reads_nothing")

Row = dict[str, Any]
NO_LISTS: Mapping[str, Any] = {"ages": [], "sizes": [], "messages": [], "senders": None, "purge": None, "rubbish": 0}


@frozen
class Against:
    """What lists are made against: the moment, and how many rows those have that could go on."""

    now: datetime
    rows: int = 25

    @property
    def day(self) -> int:
        """The day, of 1970, in UTC."""
        return int(self.now.astimezone(UTC).timestamp()) // DAY

    def days(self, when: Numbers, absent: int) -> Numbers:
        """How many days ago these Unix times were, as a calendar has them; `absent` for NEVER."""
        days: Numbers = np.where(when == NEVER, absent, self.day - when // DAY)
        return days


@frozen(eq=False)
class Files:
    """Message files: octets, who holds each, its records, what these are as users see them, and how many are rubbish;
    its sender, as far as that is known; and its name: digest, back end and partition of the one at a place."""

    size: Numbers
    holders: Numbers
    messages: Numbers
    logical: Numbers
    rubbish: Numbers
    sender: pa.Array
    name: Callable[[int], tuple[str, str, str]]


@define(eq=False)
class Lists:
    """The lists, summed up while records and message files come. `kinds` is what numbers stand for. Where senders and
    what waits are not `known` there are no such lists."""

    against: Against
    kinds: Numbered
    known: bool = True
    _ages: dict[tuple[int, int], Row] = field(factory=dict)
    _sizes: Sums = field(factory=lambda: Sums(("size_class",), {**dict.fromkeys(_FIGURES, "sum"), "least": "min"}))
    _of_senders: Sums = field(factory=lambda: Sums(("sender",), dict.fromkeys(_FIGURES, "sum")))
    _largest: list[Row] = field(factory=list)
    _waiting: Sums = field(factory=lambda: Sums(("days",), {"freed": "sum", "files": "sum"}))
    _rubbish: int = 0

    def rubbish(self, days: Numbers, kind: Numbers) -> Numbers:
        """Of each record whether it is old, and in a folder for such: 1 or 0."""
        such = np.array([name in RUBBISH for name in self.kinds.names] + [False])
        old: Numbers = such[kind] & (days > OLD_DAYS)
        return old.astype(np.int64)

    def add_records(self, days: Numbers, kind: Numbers, octets: Numbers, seen: Numbers) -> None:
        """Records, by age and kind of folder."""
        days = np.maximum(0, days)
        group = kind.astype(np.int64) * len(_AGES) + np.searchsorted([most for most, _ in AGES], days)
        for number in np.unique(group).tolist():
            some = group == number
            row = self._ages.setdefault(divmod(number, len(_AGES)), {"messages": 0, "logical": 0, "unread": 0,
                                                                    "least": int(days[some].min())})
            row["messages"] += int(some.sum())
            row["logical"] += int(octets[some].sum())
            row["unread"] += int((~seen[some]).sum())
            row["least"] = min(row["least"], int(days[some].min()))

    def add_files(self, files: Files) -> None:
        """Message files, held or not."""
        size, messages = files.size, files.messages
        figures = pa.table({"files": np.ones(len(size), np.int64), "file_octets": size, "messages": messages,
                            "logical": files.logical, "least": size, "size_class": class_of(size, SIZES, LARGER)})
        self._sizes.add(figures)
        self._rubbish += int(size[(messages > 0) & (files.rubbish == messages)].sum())
        if self.known:
            self._of_senders.add(figures.append_column("sender", pc.fill_null(files.sender, "-")).filter(
                pa.array(files.holders > 0)))
        self._add_largest(files)

    def _add_largest(self, files: Files) -> None:
        rows, size = self.against.rows, files.size
        bound = np.partition(size, len(size) - rows)[len(size) - rows] if len(size) > rows else 0
        for at in np.flatnonzero(size >= bound).tolist():       # those that may be among the first, and all as large
            digest, store, partition = files.name(at)
            self._largest.append({
                "digest": digest, "store": store, "partition": partition, "size": int(size[at]),
                "records": int(files.messages[at]), "holders": int(files.holders[at]),
                "sender": files.sender[at].as_py()})
        self._largest.sort(key=lambda row: (-row["size"], row["digest"], row["store"], row["partition"]))
        del self._largest[rows:]

    def add_waiting(self, days: Numbers, size: Numbers) -> None:
        """Files that nobody holds: how long they wait for the purge, and their octets."""
        self._waiting.add(pa.table({"days": days, "freed": size, "files": np.ones(len(size), np.int64)}))

    def made(self) -> Row:
        """The lists, as the report has them; `rubbish` is of its totals."""
        ages = sorted(({"age": _AGES[age], "kind": self.kinds.names[kind], **row} for (kind, age), row
                       in self._ages.items()), key=lambda row: (row["least"], row["kind"]))
        sizes = sorted(self._sizes.rows(), key=lambda row: int(row["least"]))
        return {
            "ages": [_without(row, "least") for row in ages], "sizes": [_without(row, "least") for row in sizes],
            "messages": self._largest, "rubbish": self._rubbish,
            "senders": sorted(self._of_senders.rows(), key=lambda row: (-row["file_octets"], row["sender"]))[
                :self.against.rows] if self.known else None,
            "purge": purge(self._waiting.rows()) if self.known else None}


def purge(waiting: list[Row]) -> list[Row]:
    """What a purge delay of so many days would free, by the days for which files wait."""
    return [{"days": delay, **{name: sum(row[name] for row in waiting if row["days"] >= delay)
                               for name in ("freed", "files")}} for delay in WAITS]


def kinds_of(ages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Kinds of folder, summed over the ages of their messages."""
    found: dict[str, dict[str, Any]] = {}
    for row in ages:
        sums = found.setdefault(row["kind"], {"kind": row["kind"], "messages": 0, "logical": 0, "unread": 0})
        for name in ("messages", "logical", "unread"):
            sums[name] += row[name]
    return sorted(found.values(), key=lambda row: (-row["logical"], row["kind"]))


# Over users

Over = Callable[[Mapping[str, Any]], bool]      # whether a user is over quota


def figures(users: Sequence[Mapping[str, Any]], over: Over) -> Row:
    """What these users have together."""
    return {"users": len(users), **{name: sum(user[name] for user in users) for name in (*_OF_USERS, *_TRUTHS)},
            "over": sum(map(over, users))}


def by(users: Sequence[Mapping[str, Any]], key: str, over: Over) -> list[Row]:
    """Figures of users by something that they have, the largest first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for user in users:
        found.setdefault(user[key], []).append(user)
    return sorted(({key: value, **figures(some, over)} for value, some in found.items()),
                  key=lambda row: (-row["fair_share"], row[key]))


def class_of_service(groups: Sequence[str]) -> str:
    """The class of an account: its groups."""
    return ",".join(sorted(groups)) or "-"


def _without(row: Row, name: str) -> Row:
    return {key: value for key, value in row.items() if key != name}
