"""What `reportjob` reads, by one process: for stores that Spark takes longer to start than to read.

The figures have the definitions of the queries there, column by column and to the octet. All records are in memory at
once, some 1,500 octets each.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mboxlist.names import PUBLIC
from tools.spark.report.groups import numbers, of_group, places, starts
from tools.spark.report.reportjob import ALL_LOOKED_FOR, COLUMNS, LOOKED_FOR, LOST_FILES, Read
from tools.spark.report.what_if import Left
from tools.spark.source.reading import Task, Wanted, tasks
from tools.spark.source.rows import batches
from tools.spark.source.schema import schema

_PARTITION = ["store", "partition"]
_FILE = [*_PARTITION, "digest"]
_BOX = [*_PARTITION, "domain", "user", "name"]


def read(stores: Sequence[str], default_domain: str, left: Left | None = None) -> Read:
    """Read the stores, also as rules of expiry would have `left` them."""
    files, unread = _message_files(_table(stores, "messages"))
    mailboxes = _table(stores, "mailboxes")
    paths = mailboxes["path"]
    boxes = _boxes(mailboxes.filter(pc.and_(pc.and_(pc.is_null(mailboxes["removed"]), pc.ends_with(
        paths, "/store.idx")), pc.invert(pc.starts_with(paths, "users/deleted/")))), default_domain)
    unread += mailboxes.filter(pc.invert(pc.ends_with(paths, "store.idx"))).select([*_PARTITION, "path"]).to_pylist()
    held, lost = _held(_table(stores, "references"), files, boxes, default_domain)
    after = None if left is None else _held(_table(stores, "references", left), files, boxes, default_domain)[0]
    own = files.filter(pc.equal(files["staged"], 0)).group_by(_PARTITION).aggregate([
        ([], "count_all"), ("octets", "sum")]).rename_columns([*_PARTITION, "files", "octets"])
    return Read(held, after, own, _newest(_table(stores, "quotas")), pa.Table.from_pylist(
        unread, pa.schema([(name, pa.string()) for name in (*_PARTITION, "path")])), lost)


def _table(stores: Sequence[str], table: str, work: Callable[[Task], Iterator[pa.RecordBatch]] = batches) -> pa.Table:
    columns = tuple(filter(None, COLUMNS[table].split(",")))
    return pa.Table.from_batches([batch for task in tasks(stores, table, Wanted(columns=columns))
                                  for batch in work(task)], schema(table, columns))


def _message_files(messages: pa.Table) -> tuple[pa.Table, list[dict[str, str]]]:
    """Octets of each message file, and whether it is only staged; and what could not be read."""
    whole = pc.equal(messages["damage"], "")
    files = messages.filter(pc.and_(whole, pc.and_(pc.is_valid(messages["digest"]), pc.is_valid(messages["octets"]))))
    files = files.set_column(files.schema.get_field_index("staged"), "staged", files["staged"].cast(pa.int8()))
    unread = messages.filter(pc.and_(pc.invert(whole), pc.match_substring(messages["damage"], "cannot be")))
    return files.group_by(_FILE).aggregate([("octets", "max"), ("staged", "min")]).rename_columns(
        [*_FILE, "octets", "staged"]), unread.select([*_PARTITION, "path"]).to_pylist()


def _boxes(mailboxes: pa.Table, default_domain: str) -> pa.Table:
    headless = pc.is_null(mailboxes["id"]).cast(pa.int64())
    return _with_user(mailboxes, default_domain).append_column("headless", headless).group_by(_BOX).aggregate([
        ("quota_root", "max"), ("records", "sum"), ("headless", "sum"), ("last_login", "max"), ("last_read", "max")
        ]).rename_columns([*_BOX, "quota_root", "records", "headless", "last_login", "last_read"])


def _with_user(table: pa.Table, default_domain: str) -> pa.Table:
    """The table with `user`, and with `domain` and `name` as the report has them."""
    public = pc.fill_null(pc.equal(table["owner"], ""), False)
    domain = pc.fill_null(table["domain"], "")
    columns = {"user": pc.if_else(public, PUBLIC, pc.fill_null(table["owner"], "?")),
               "domain": pc.if_else(public, PUBLIC, pc.if_else(pc.equal(domain, ""), default_domain, domain)),
               "name": pc.fill_null(table["name"], "?")}
    kept = table.drop_columns(["owner", "domain", "name"])
    for name, column in columns.items():
        kept = kept.append_column(name, column)
    return kept


def _newest(quotas: pa.Table) -> pa.Table:
    """Each quota root of a store once, as it was written last."""
    found = {(row["store"], row["root"]): row for row in quotas.sort_by([("written", "ascending")]).to_pylist()}
    return pa.Table.from_pylist(list(found.values()), quotas.schema)


# Shares

def _held(references: pa.Table, files: pa.Table, boxes: pa.Table, default_domain: str) -> tuple[pa.Table, pa.Table]:
    """A row for each mailbox, those without messages among them, and for what waits on each partition; and what is
    lost."""
    lines = _uses(references, default_domain).join(files, _FILE, join_type="full outer")
    lines = lines.filter(pc.or_kleene(pc.is_valid(lines["user"]), pc.equal(lines["staged"], 0)))
    lines = _with_shares(lines.sort_by([(name, "ascending") for name in (*_FILE, "domain", "user", "name")]))
    sums = [name for name in lines.column_names if name not in (*_FILE, *_BOX, "newest", "newest_read", "size")]
    held = lines.group_by(_BOX).aggregate([*((name, "sum") for name in sums), ("newest", "max"), ("newest_read", "max")
        ]).rename_columns([*_BOX, *sums, "newest", "newest_read"]).join(boxes, _BOX, join_type="full outer")
    return held, _lost(lines)


def _lost(lines: pa.Table) -> pa.Table:
    """Message files that are missing, so many of each mailbox as are looked for again."""
    found = lines.filter(pc.equal(lines["missing"], 1)).select(LOST_FILES.names).sort_by(
        [(name, "ascending") for name in (*_BOX, "digest")])
    return found.filter(pa.array(places(starts(found, _BOX)) <= LOOKED_FOR))[:ALL_LOOKED_FOR].cast(LOST_FILES)


def _uses(references: pa.Table, default_domain: str) -> pa.Table:
    """What the records say of each file and mailbox. `guess` is what the file should have when it is not there."""
    table = _with_user(references.filter(pc.invert(references["removed"])), default_domain)
    octets = pc.add(table["octets"], table["skip"])
    received, saved = table["internal_date"], table["saved"]
    later = pc.fill_null(pc.greater(saved, received), False)
    table = table.append_column("newest", pc.if_else(later, saved, pc.coalesce(received, saved)))
    table = table.append_column("newest_read", pc.if_else(table["seen"], table["newest"], None))
    table = table.append_column("guess", octets).append_column(
        "sure", pc.if_else(pc.equal(table["head"], 0), octets, pa.scalar(None, pa.int64())))
    found = table.group_by([*_FILE, "domain", "user", "name"]).aggregate([
        ([], "count_all"), ("octets", "sum"), ("newest", "max"), ("newest_read", "max"), ("sure", "min"),
        ("guess", "min")])
    return found.select([*_FILE, "domain", "user", "name"]).append_column("messages", found["count_all"]).append_column(
        "logical", found["octets_sum"]).append_column("newest", found["newest_max"]).append_column(
        "newest_read", found["newest_read_max"]).append_column(
        "guess", pc.coalesce(found["sure_min"], found["guess_min"]))


def _with_shares(lines: pa.Table) -> pa.Table:
    """Each file and mailbox with what it adds to the figures of the mailbox. The lines of a file follow each other, in
    the order of domain, user and name; a file that nobody holds has one line, without a user."""
    file_begins = starts(lines, _FILE)
    domain_begins = file_begins | starts(lines, ["domain"])
    user_begins = domain_begins | starts(lines, ["user"])
    line, domain_line, box = (places(begins) for begins in (file_begins, domain_begins, user_begins))
    holders, domains = of_group(file_begins, user_begins, np.add), of_group(file_begins, domain_begins, np.add)
    ends, boxes = of_group(file_begins, line, np.maximum), of_group(user_begins, box, np.maximum)
    ranks = np.cumsum(user_begins)
    holder = ranks - of_group(file_begins, ranks, np.minimum) + 1
    octets, guess = numbers(lines["octets"], -1), numbers(lines["guess"], np.iinfo(np.int64).max)
    missing = octets < 0
    size = np.where(missing, of_group(file_begins, guess, np.minimum), octets)
    share = size // holders + (holder <= size % holders)
    logical, staged = numbers(lines["logical"], 0), numbers(lines["staged"], 0) > 0
    first = line == 1
    columns = {
        "messages": numbers(lines["messages"], 0), "logical": logical,
        "fair_share": share // boxes + (box <= share % boxes),
        "unique": logical * (ends == 1), "freed": size * (ends == 1),
        "user_unique": logical * (holders == 1), "user_freed": size * ((holders == 1) & (box == 1)),
        "domain_unique": logical * (domains == 1), "domain_freed": size * ((domains == 1) & (domain_line == 1)),
        "files": first, "file_octets": size * first, "staged_octets": size * (first & staged),
        "staged_files": first & staged, "missing": first & missing, "missing_octets": size * (first & missing),
        "size": size}
    made = lines.select([*_FILE, "domain", "user", "name", "newest", "newest_read"])
    for name, column in columns.items():
        made = made.append_column(name, pa.array(column.astype(np.int64)))
    return made
