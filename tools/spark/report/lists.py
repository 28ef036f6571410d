"""The lists of a store's report that are of all its records and message files: by age, kind of folder, size and sender,
the largest messages, and what waits for the purge. Their definitions are those of a fleet (`fleetviews`).

None grows with the store. `Lists` sums them up in one process; the queries of `reportjob` do by Spark.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

from tools.spark.report.fleetviews import AGES, LARGER, LONGER, OLD_DAYS, RUBBISH, SIZES, WAITS
from tools.spark.report.groups import Numbered, Numbers, Sums, class_of

DAY = 86_400                # seconds
_NEVER = np.iinfo(np.int64).min
_AGES = [name for _, name in AGES] + [LONGER]
_FIGURES = ("files", "file_octets", "messages", "logical")

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


@define(eq=False)
class Lists:
    """The lists, summed up while records and message files come. `kinds` and `senders` are what numbers stand for;
    without `senders`, what only the databases know is null."""

    against: Against
    kinds: Numbered
    senders: Numbered | None
    _ages: dict[tuple[int, int], Row] = field(factory=dict)
    _sizes: Sums = field(factory=lambda: Sums(("size_class",), {**dict.fromkeys(_FIGURES, "sum"), "least": "min"}))
    _of_senders: Sums = field(factory=lambda: Sums(("sender",), dict.fromkeys(_FIGURES, "sum")))
    _largest: list[Row] = field(factory=list)
    _waiting: Sums = field(factory=lambda: Sums(("days",), {"freed": "sum", "files": "sum"}))
    _rubbish: int = 0

    def rubbish(self, records: Numbers) -> Numbers:
        """Of each record whether it is old, and in a folder for such."""
        such = np.array([name in RUBBISH for name in self.kinds.names] + [False])
        old: Numbers = such[records["kind"]] & (self._days(records["when"], 0) > OLD_DAYS)
        return old.astype(np.int64)

    def _days(self, when: Numbers, absent: int) -> Numbers:
        """How many days ago that was, as a calendar has them."""
        days: Numbers = np.where(when == _NEVER, absent, self.against.day - when // DAY)
        return days

    def add_records(self, records: Numbers) -> None:
        """Records, by age and kind of folder."""
        days = np.maximum(0, self._days(records["when"], 0))
        group = records["kind"].astype(np.int64) * len(_AGES) + np.searchsorted([most for most, _ in AGES], days)
        for number in np.unique(group).tolist():
            some = group == number
            row = self._ages.setdefault(divmod(number, len(_AGES)), {"messages": 0, "logical": 0, "unread": 0,
                                                                    "least": int(days[some].min())})
            row["messages"] += int(some.sum())
            row["logical"] += int(records["octets"][some].sum())
            row["unread"] += int((~records["seen"][some]).sum())
            row["least"] = min(row["least"], int(days[some].min()))

    def add_files(self, place: tuple[str, str], files: Mapping[str, Numbers]) -> None:
        """Message files of a partition."""
        size, holders, messages = (files[name] for name in ("size", "holders", "messages"))
        figures = pa.table({"files": np.ones(len(size), np.int64), "file_octets": size, "messages": messages,
                            "logical": files["logical"], "least": size,
                            "size_class": class_of(size, SIZES, LARGER)})
        self._sizes.add(figures)
        self._rubbish += int(size[(messages > 0) & (files["rubbish"] == messages)].sum())
        if self.senders is not None:
            names = pa.array([name or "-" for name in self.senders.names] + ["-"], pa.string())
            of = figures.append_column("sender", names.take(pa.array(files["sender"] % len(names))))
            self._of_senders.add(of.filter(pa.array(holders > 0)))
            waits = (holders == 0) & (files["unused"] != _NEVER)
            self._waiting.add(pa.table({"days": self._days(files["unused"][waits] // 1_000_000, 0),
                                        "freed": size[waits], "files": np.ones(waits.sum(), np.int64)}))
        self._add_largest(place, files)

    def _add_largest(self, place: tuple[str, str], files: Mapping[str, Numbers]) -> None:
        rows = self.against.rows
        size = files["size"]
        if len(size) > rows:                        # those that may be among the first, and all that are as large
            bound = np.partition(size, len(size) - rows)[len(size) - rows]
            files = {name: column[size >= bound] for name, column in files.items()}
        names = None if self.senders is None else [*self.senders.names, None]
        for at in range(len(files["size"])):
            self._largest.append({
                "digest": files["digest"][at].tobytes().hex(), "store": place[0], "partition": place[1],
                "size": int(files["size"][at]), "records": int(files["messages"][at]),
                "holders": int(files["holders"][at]),
                "sender": None if names is None else names[files["sender"][at]]})
        self._largest.sort(key=lambda row: (-row["size"], row["digest"], row["store"], row["partition"]))
        del self._largest[rows:]

    def made(self) -> Row:
        """The lists, as the report has them; `rubbish` is of its totals."""
        ages = sorted(({"age": _AGES[age], "kind": self.kinds.names[kind], **row} for (kind, age), row
                       in self._ages.items()), key=lambda row: (row["least"], row["kind"]))
        sizes = sorted(self._sizes.rows(), key=lambda row: int(row["least"]))
        known = self.senders is not None
        return {
            "ages": [_without(row, "least") for row in ages], "sizes": [_without(row, "least") for row in sizes],
            "messages": self._largest, "rubbish": self._rubbish,
            "senders": sorted(self._of_senders.rows(), key=lambda row: (-row["file_octets"], row["sender"]))[
                :self.against.rows] if known else None,
            "purge": purge(self._waiting.rows()) if known else None}


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


def _without(row: Row, name: str) -> Row:
    return {key: value for key, value in row.items() if key != name}
