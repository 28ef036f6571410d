"""What `reportjob` reads, by one process: for stores that Spark takes longer to start than to read.

The figures have the definitions of the queries there, column by column and to the octet. In memory are the records, of
80 octets each, with mailboxes and message files; a range of digests at a time is sorted and summed up (`RANGE_ROWS`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field

from mboxlist.names import PUBLIC
from store.tables.index import Rows
from tools.spark.report.fleetviews import kind_of
from tools.spark.report.groups import Numbered, Numbers, numbers, of_group, places, starts
from tools.spark.report.lists import NEVER, Against, Files, Lists
from tools.spark.report.reportjob import ALL_LOOKED_FOR, COLUMNS, LOOKED_FOR, LOST_FILES, Read, bounded
from tools.spark.report.what_if import Left
from tools.spark.source import arrays
from tools.spark.source.reading import Wanted, tasks
from tools.spark.source.rows import MailboxOfRows, batches, records
from tools.spark.source.schema import TIME, schema

RANGE_ROWS = 1 << 19            # records and message files of a range of digests, about
_PREFIXES = 1 << 16             # beginnings of digests by which ranges are cut
_PARTITION = ["store", "partition"]
_BOX = [*_PARTITION, "domain", "user", "name"]
FILE, KNOWN = -1, -2          # lines that are no records: of a message file, and of what the databases know of one
_MOST = np.iinfo(np.int64).max
# A record: its mailbox and kind of folder, octets, those that its file should have (`sure`: it has no fields of its
# own); when it came, and the latest time of it, as Unix times. A message file has its octets; `seen`: only staged.
# Of what the databases know `octets` is the number of the sender, and `when` since when nobody refers to it.
LINE = np.dtype([("digest", "V32"), ("box", "<i4"), ("kind", "<i4"), ("octets", "<i8"), ("guess", "<i8"),
                  ("newest", "<i8"), ("when", "<i8"), ("sure", "?"), ("seen", "?")])
_SUMS = ("messages", "logical", "fair_share", "unique", "freed", "user_unique", "user_freed", "domain_unique",
         "domain_freed", "files", "file_octets", "staged_octets", "staged_files", "missing", "missing_octets")
_TIMES = ("newest", "newest_read")

Place = tuple[str, str]                 # store and partition


def read(stores: Sequence[str], default_domain: str, left: Left | None = None, against: Against | None = None,
         known: Iterable[pa.RecordBatch] | None = None) -> Read:
    """Read the stores, also as rules of expiry would have `left` them. With `against` the lists are made, too, of
    senders and what waits if that is `known`: rows of `messages` as facts have them. Raises TooManyMailboxes."""
    mailboxes = _table(stores, "mailboxes")
    bounded(len(mailboxes))
    messages = _table(stores, "messages")
    unread = [*messages.filter(pc.match_substring(messages["damage"], "cannot be")).select(
        [*_PARTITION, "path"]).to_pylist(), *mailboxes.filter(pc.invert(pc.ends_with(
            mailboxes["path"], "store.idx"))).select([*_PARTITION, "path"]).to_pylist()]
    kinds, senders = Numbered(), Numbered()
    lists = None if against is None else Lists(against, kinds, known is not None)
    others = _message_files(messages)
    for place, lines in _known(known or (), senders):
        others.setdefault(place, []).append(lines)
    found = _summed(_records(stores, default_domain, None, kinds), others, lists, senders)
    after = None if left is None else _summed(_records(stores, default_domain, left, kinds), others, None, senders)
    boxes = _boxes(mailboxes, default_domain)
    return Read(
        _held(found, boxes), None if after is None else _held(after, boxes), _own_files(found),
        _newest(_table(stores, "quotas")),
        pa.Table.from_pylist(unread, pa.schema([(name, pa.string()) for name in (*_PARTITION, "path")])), _lost(found),
        None if lists is None else lists.made())


def _table(stores: Sequence[str], table: str) -> pa.Table:
    columns = tuple(filter(None, COLUMNS[table].split(",")))
    return pa.Table.from_batches([batch for task in tasks(stores, table, Wanted(columns=columns))
                                  for batch in batches(task)], schema(table, columns))


def _boxes(mailboxes: pa.Table, default_domain: str) -> pa.Table:
    paths = mailboxes["path"]
    there = mailboxes.filter(pc.and_(pc.and_(pc.is_null(mailboxes["removed"]), pc.ends_with(
        paths, "/store.idx")), pc.invert(pc.starts_with(paths, "users/deleted/"))))
    names = [_who(owner, domain, name, default_domain) for owner, domain, name in zip(
        *(there[name].to_pylist() for name in ("owner", "domain", "name")), strict=True)]
    table = there.select([*_PARTITION, "quota_root", "records", "last_login", "last_read"]).append_column(
        "headless", pc.is_null(there["id"]).cast(pa.int64()))
    for at, name in enumerate(("domain", "user", "name")):
        table = table.append_column(name, pa.array([who[at] for who in names], pa.string()))
    return table.group_by(_BOX).aggregate([
        ("quota_root", "max"), ("records", "sum"), ("headless", "sum"), ("last_login", "max"), ("last_read", "max")
        ]).rename_columns([*_BOX, "quota_root", "records", "headless", "last_login", "last_read"])


def _who(owner: str | None, domain: str | None, name: str | None, default_domain: str) -> tuple[str, str, str]:
    """Domain, user and name as the report has them."""
    if owner == "":
        return PUBLIC, PUBLIC, name or "?"
    return domain or default_domain, "?" if owner is None else owner, "?" if name is None else name


def _newest(quotas: pa.Table) -> pa.Table:
    """Each quota root of a store once, as it was written last."""
    found = {(row["store"], row["root"]): row for row in quotas.sort_by([("written", "ascending")]).to_pylist()}
    return pa.Table.from_pylist(list(found.values()), quotas.schema)


# Lines

@define(eq=False)
class _Records:
    """The records of a partition, and the mailboxes that have them: domain, user and name, each with its number."""

    lines: list[Numbers] = field(factory=list)
    boxes: dict[tuple[str, str, str], int] = field(factory=dict)

    def add(self, mailbox: MailboxOfRows, rows: Rows, default_domain: str, kind: int) -> None:
        """Those of a mailbox."""
        who = _who(mailbox.owner, mailbox.domain, mailbox.name, default_domain)
        lines = np.zeros(len(rows), LINE)
        lines["box"], lines["kind"] = self.boxes.setdefault(who, len(self.boxes)), kind
        lines["digest"], lines["octets"] = rows["digest"], rows["size"]
        lines["guess"] = rows["size"] + rows["header_length"]
        lines["sure"], lines["seen"] = rows["head"] == 0, rows["flags"] & 1
        received = np.where(arrays.can_be_written(rows["received"]), rows["received"], NEVER)
        saved = np.where(rows["saved"] > 0, rows["saved"].astype(np.int64), NEVER)
        lines["newest"], lines["when"] = np.maximum(received, saved), np.where(saved == NEVER, received, saved)
        self.lines.append(lines)


def _records(stores: Sequence[str], default_domain: str, left: Left | None, kinds: Numbered) -> dict[Place, _Records]:
    """The records of all mailboxes that are there, by partition."""
    found: dict[Place, _Records] = {}
    for task in tasks(stores, "references"):
        here = found.setdefault((task.store, task.partition), _Records())
        for mailbox, rows in records(task, None if left is None else left.of):
            if not mailbox.removed:
                here.add(mailbox, rows, default_domain, kinds.number(kind_of(
                    mailbox.special_use, mailbox.owner, mailbox.name)))
    return found


def _message_files(messages: pa.Table) -> dict[Place, list[Numbers]]:
    """A line for each message file, by partition."""
    whole = pc.and_(pc.equal(messages["damage"], ""), pc.and_(
        pc.is_valid(messages["digest"]), pc.is_valid(messages["octets"])))
    found: dict[Place, list[Numbers]] = {}
    for place, some in _by_place(messages.filter(whole)):
        lines = _of_files(some, FILE)
        lines["octets"], lines["seen"] = numbers(some["octets"], 0), some["staged"].to_numpy()
        found.setdefault(place, []).append(lines)
    return found


def _known(given: Iterable[pa.RecordBatch], senders: Numbered) -> Iterator[tuple[Place, Numbers]]:
    """A line for each message file that the databases know."""
    for batch in given:
        for place, some in _by_place(pa.Table.from_batches([batch])):
            lines = _of_files(some, KNOWN)
            lines["octets"] = senders.numbers(some["sender"])
            lines["when"] = numbers(some["unused"].cast(pa.int64()), NEVER)
            yield place, lines


def _by_place(table: pa.Table) -> Iterator[tuple[Place, pa.Table]]:
    for place in table.select(_PARTITION).group_by(_PARTITION).aggregate([]).to_pylist():
        yield (place["store"], place["partition"]), table.filter(pc.and_(*(
            pc.equal(table[name], place[name]) for name in _PARTITION)))


def _of_files(table: pa.Table, what: int) -> Numbers:
    lines = np.zeros(len(table), LINE)
    lines["box"] = what
    lines["digest"] = np.frombuffer(bytes.fromhex("".join(table["digest"].to_pylist())), "V32")
    return lines


def _ranges(lines: list[Numbers]) -> Iterator[Numbers]:
    """All lines, a range of digests at a time."""
    every = np.concatenate(lines) if lines else np.zeros(0, LINE)
    count = -(-len(every) // RANGE_ROWS)
    octets = every.view(np.uint8).reshape(len(every), LINE.itemsize)
    part = (octets[:, 0].astype(np.int64) << 8 | octets[:, 1]) * count // _PREFIXES
    for number in range(count):
        yield every[part == number] if count > 1 else every


def in_order(lines: Numbers, ranks: Numbers) -> tuple[Numbers, Numbers]:
    """These lines in the order of digest and mailbox, and for each the number of its file. Where digests begin alike
    they are compared whole."""
    quarters = np.ascontiguousarray(lines["digest"]).view(">u8").reshape(-1, 4).astype(np.uint64)
    order = np.argsort(quarters[:, 0], kind="stable")
    begins, alike = _others(quarters[order])
    if alike:
        order = np.lexsort(quarters.T[::-1])
        begins, _ = _others(quarters[order])
    file = np.cumsum(begins) - 1
    box = lines["box"][order]
    within = np.argsort(file * (len(ranks) + 2) + np.where(box < 0, box, ranks[np.maximum(box, 0)]) + 2,
                        kind="stable")
    return lines[order[within]], file[within]


def _others(quarters: Numbers) -> tuple[Numbers, bool]:
    """Where another digest begins, and whether two that follow each other differ in their ends alone."""
    begins = np.ones(len(quarters), np.bool_)
    begins[1:] = (quarters[1:] != quarters[:-1]).any(axis=1)
    return begins, bool((begins[1:] & (quarters[1:, 0] == quarters[:-1, 0])).any())


# Sums

@define(eq=False)
class _Summed:
    """What is summed up of a partition: of each mailbox, in the order of domain, user and name; of what waits; and of
    the message files themselves. `lost` are the digests of missing files, each with its mailbox and octets."""

    boxes: list[tuple[str, str, str]]
    sums: dict[str, Numbers]
    lost: list[tuple[int, bytes, int]] = field(factory=list)
    waiting_files: int = 0
    waiting: int = 0
    files: int = 0
    octets: int = 0


def _summed(found: Mapping[Place, _Records], others: Mapping[Place, list[Numbers]], lists: Lists | None,
            senders: Numbered) -> dict[Place, _Summed]:
    """The sums of all partitions."""
    made, names = {}, pa.array([*senders.names, None], pa.string())
    for place in sorted({*found, *others}):
        here = found.get(place, _Records())
        boxes = sorted(here.boxes)
        ranks = np.zeros(len(boxes) + 1, np.int64)
        ranks[[here.boxes[box] for box in boxes]] = np.arange(len(boxes))
        sums = {name: np.zeros(len(boxes), np.int64) for name in _SUMS} | {
            name: np.full(len(boxes), NEVER) for name in _TIMES}
        made[place] = _Summed(boxes, sums)
        users, domains = (np.cumsum([box[:size] != before[:size] for before, box in pairwise([("", "", ""), *boxes])])
                          for size in (2, 1))
        for lines in _ranges([*here.lines, *others.get(place, ())]):
            _add(made[place], *in_order(lines, ranks), ranks=ranks, users=users, domains=domains, place=place,
                 lists=lists, senders=names)
    return made


def _add(summed: _Summed, lines: Numbers, file: Numbers, *, ranks: Numbers, users: Numbers, domains: Numbers,
         place: Place, lists: Lists | None, senders: pa.Array) -> None:
    """All of a range of digests: each file with all who hold it."""
    count = int(file[-1]) + 1
    octets, staged = _as_stored(lines, file, count)
    is_record = lines["box"] >= 0
    held = lines[is_record]
    rubbish = np.zeros(len(held), np.int64)
    if lists is not None:
        days = lists.against.days(held["when"], 0)
        rubbish = lists.rubbish(days, held["kind"])
        lists.add_records(days, held["kind"], held["octets"], held["seen"])
    uses = _uses(held, file[is_record], ranks[held["box"]], rubbish)
    shares = _shares(uses, octets, staged, users, domains)
    for name in _SUMS:
        np.add.at(summed.sums[name], uses["box"], shares[name])
    for name in _TIMES:
        np.maximum.at(summed.sums[name], uses["box"], uses[name])
    lost = np.flatnonzero(shares["missing"])
    summed.lost += zip(uses["box"][lost].tolist(), held["digest"][uses["at"][lost]].tolist(),
                       shares["size"][lost].tolist(), strict=True)
    is_held = np.zeros(count, np.bool_)
    is_held[uses["file"]] = True
    waits = (octets >= 0) & ~is_held & ~staged
    summed.waiting_files += int(waits.sum())
    summed.waiting += int(octets[waits].sum())
    placed = (octets >= 0) & ~staged
    summed.files += int(placed.sum())
    summed.octets += int(octets[placed].sum())
    if lists is not None:
        _add_contents(lists, place, _contents(lines, file, uses, shares["holders"], octets, (octets >= 0) & (
            is_held | ~staged)), senders)


def _as_stored(lines: Numbers, file: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Octets of each file, -1 of one that is not there, and whether it is only staged."""
    there = lines["box"] == FILE
    octets, staged = np.full(count, -1), np.ones(count, np.bool_)
    np.maximum.at(octets, file[there], lines["octets"][there])
    np.logical_and.at(staged, file[there], lines["seen"][there])
    return octets, staged


def _uses(lines: Numbers, file: Numbers, rank: Numbers, rubbish: Numbers) -> dict[str, Numbers]:
    """What the records say of each file and mailbox. `guess` is what the file should have when it is not there, and
    `at` the first of the records."""
    at = np.flatnonzero(starts(file, rank))
    sure = np.minimum.reduceat(np.where(lines["sure"], lines["guess"], _MOST), at)
    return {
        "at": at, "file": file[at], "box": rank[at], "messages": np.diff(at, append=len(lines)),
        "logical": np.add.reduceat(lines["octets"], at), "newest": np.maximum.reduceat(lines["newest"], at),
        "newest_read": np.maximum.reduceat(np.where(lines["seen"], lines["newest"], NEVER), at),
        "guess": np.where(sure == _MOST, np.minimum.reduceat(lines["guess"], at), sure),
        "rubbish": np.add.reduceat(rubbish, at)}


def _shares(uses: Mapping[str, Numbers], octets: Numbers, staged: Numbers, users: Numbers, domains: Numbers
            ) -> dict[str, Numbers]:
    """What each file and mailbox adds to the figures of the mailbox. The lines of a file follow each other, in the
    order of domain, user and name."""
    file, rank = uses["file"], uses["box"]
    file_begins = starts(file)
    domain_begins, user_begins = starts(file, domains[rank]), starts(file, users[rank])
    line, domain_line, box = (places(begins) for begins in (file_begins, domain_begins, user_begins))
    holders, domain_count = of_group(file_begins, user_begins, np.add), of_group(file_begins, domain_begins, np.add)
    ends, boxes = of_group(file_begins, line, np.maximum), of_group(user_begins, box, np.maximum)
    order = np.cumsum(user_begins)
    holder = order - of_group(file_begins, order, np.minimum) + 1
    missing = octets[file] < 0
    size = np.where(missing, of_group(file_begins, uses["guess"], np.minimum), octets[file])
    share = size // np.maximum(holders, 1) + (holder <= size % np.maximum(holders, 1))
    logical, first = uses["logical"], line == 1
    return {
        "messages": uses["messages"], "logical": logical,
        "fair_share": share // np.maximum(boxes, 1) + (box <= share % np.maximum(boxes, 1)),
        "unique": logical * (ends == 1), "freed": size * (ends == 1),
        "user_unique": logical * (holders == 1), "user_freed": size * ((holders == 1) & (box == 1)),
        "domain_unique": logical * (domain_count == 1),
        "domain_freed": size * ((domain_count == 1) & (domain_line == 1)),
        "files": first, "file_octets": size * first, "staged_octets": size * (first & ~missing & staged[file]),
        "staged_files": first & ~missing & staged[file], "missing": first & missing,
        "missing_octets": size * (first & missing), "size": size, "holders": holders}


def _contents(lines: Numbers, file: Numbers, uses: Mapping[str, Numbers], holders: Numbers, octets: Numbers,
              wanted: Numbers) -> dict[str, Numbers]:
    """The files that are wanted: what each has, who holds it, and what is known of it."""
    made = {name: np.zeros(len(octets), np.int64) for name in ("messages", "logical", "rubbish")}
    for name, sums in made.items():
        np.add.at(sums, uses["file"], uses[name])
    made |= {"size": octets, "holders": np.zeros(len(octets), np.int64), "sender": np.full(len(octets), -1),
             "unused": np.full(len(octets), NEVER)}
    made["holders"][uses["file"]] = holders
    known = lines["box"] == KNOWN
    made["sender"][file[known]], made["unused"][file[known]] = lines["octets"][known], lines["when"][known]
    return {"digest": lines["digest"][starts(file)][wanted], **{name: column[wanted] for name, column in made.items()}}


def _add_contents(lists: Lists, place: Place, files: Mapping[str, Numbers], senders: pa.Array) -> None:
    """These files to the lists."""
    size, holders, unused = files["size"], files["holders"], files["unused"]
    lists.add_files(Files(
        size, holders, files["messages"], files["logical"], files["rubbish"],
        senders.take(pa.array(files["sender"] % len(senders))),
        lambda at: (files["digest"][at].tobytes().hex(), *place)))
    waits = (holders == 0) & (unused != NEVER)
    lists.add_waiting(lists.against.days(unused[waits] // 1_000_000, 0), size[waits])


# Tables

def _held(found: Mapping[Place, _Summed], boxes: pa.Table) -> pa.Table:
    """A row for each mailbox, those without messages among them, and for what waits on each partition."""
    rows = [pa.table({
        **{name: pa.repeat(pa.scalar(value, pa.string()), len(one.boxes)) for name, value in zip(
            _PARTITION, place, strict=True)},
        **{name: pa.array([box[at] for box in one.boxes], pa.string()) for at, name in enumerate(_BOX[2:])},
        **{name: pa.array(one.sums[name]) for name in _SUMS},
        **{name: arrays.times(one.sums[name]) for name in _TIMES}}) for place, one in found.items()]
    form = pa.schema([*((name, pa.string()) for name in _BOX), *((name, pa.int64()) for name in _SUMS), *(
        (name, TIME) for name in _TIMES)])
    held = pa.concat_tables([form.empty_table(), *rows]).join(boxes, _BOX, join_type="full outer")
    waiting = [{**dict(zip(_PARTITION, place, strict=True)), "files": one.waiting_files, "file_octets": one.waiting}
               for place, one in found.items() if one.waiting_files]
    return pa.concat_tables([held, pa.Table.from_pylist(waiting, held.schema)])


def _own_files(found: Mapping[Place, _Summed]) -> pa.Table:
    return pa.Table.from_pylist([
        {**dict(zip(_PARTITION, place, strict=True)), "files": one.files, "octets": one.octets}
        for place, one in found.items() if one.files], pa.schema([
            *((name, pa.string()) for name in _PARTITION), ("files", pa.int64()), ("octets", pa.int64())]))


def _lost(found: Mapping[Place, _Summed]) -> pa.Table:
    """Message files that are missing, so many of each mailbox as are looked for again."""
    rows: list[dict[str, object]] = []
    for place, one in found.items():
        looked_for: Counter[int] = Counter()
        for box, digest, size in sorted(one.lost):
            looked_for[box] += 1
            if looked_for[box] <= LOOKED_FOR:
                rows.append({**dict(zip(_BOX, (*place, *one.boxes[box]), strict=True)), "digest": digest.hex(),
                             "size": size})
    return pa.Table.from_pylist(rows[:ALL_LOOKED_FOR], LOST_FILES)
