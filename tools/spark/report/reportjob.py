"""The Spark job of `onecopy quota report`: what each mailbox holds, by the definitions of `store.quota.accounting`.

Records and message files are joined by the digest. Every record and every file goes over the network once: all that is
of one file comes to one place, where its octets are divided among its holders. What comes back is a row for each
mailbox, so many at most (`MAILBOXES`): a larger store is reported as a fleet is (`fleetjob`), whose executors write
what grows. `totals` makes the report of that.
"""

import os
from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import frozen

from mboxlist.names import PUBLIC
from tools.exits import Failure
from tools.spark import summaries
from tools.spark.facts import factrows
from tools.spark.facts.factrows import Range
from tools.spark.facts.factschema import fact_schema
from tools.spark.report.fleetviews import AGES, KIND, LARGER, LONGER, OLD_DAYS, RUBBISH, SIZES, WAITS, classes
from tools.spark.report.lists import Against, purge
from tools.spark.report.what_if import Left
from tools.spark.source.reading import Wanted, tasks
from tools.spark.source.schema import FORMAT, schema
from tools.spark.source.sparkframes import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE = "spark.sql.shuffle.partitions"
MAILBOXES = 1_000_000       # rows of a report that may come into the driver: some 300 MB
LOOKED_FOR = 1000           # missing files of a mailbox that are looked for again
ALL_LOOKED_FOR = 100_000    # and of all mailboxes
LOST_FILES = pa.schema([*((name, pa.string()) for name in ("store", "partition", "domain", "user", "name", "digest")),
                        ("size", pa.int64())])

# What the references say of each file and mailbox. `guess` is what the file should have when it is not there.
_USES = """
    SELECT store, partition, digest, domain, user, name, count(*) AS n, sum(octets) AS logical, max(newest) AS newest,
           max(if(seen, newest, NULL)) AS newest_read,
           coalesce(min(if(head = 0, octets + skip, NULL)), min(octets + skip)) AS guess,
           count_if({rubbish}) AS rubbish
    FROM (
        SELECT /*+ REPARTITION(store, partition, digest) */
               store, partition, unhex(digest) AS digest, coalesce(name, '?') AS name, octets, skip, head, seen,
               {kind} AS kind, {days} AS days,
               if(owner = '', '{public}', coalesce(owner, '?')) AS user,
               if(owner = '', '{public}', coalesce(nullif(domain, ''), {default})) AS domain,
               greatest(internal_date, saved) AS newest
        FROM {references} WHERE NOT removed)
    GROUP BY store, partition, digest, domain, user, name"""

_SEEN = """
    SELECT store, partition, unhex(digest) AS digest, octets, staged, if(damage = '', NULL, path) AS unread
    FROM report_messages WHERE damage = '' AND digest IS NOT NULL AND octets IS NOT NULL OR damage LIKE '%cannot be%'"""

_FILES = """
    SELECT store, partition, digest, max(octets) AS octets, min(staged) AS staged
    FROM report_seen WHERE unread IS NULL GROUP BY store, partition, digest"""

_UNREAD = """
    SELECT store, partition, path FROM report_mailboxes WHERE path NOT LIKE '%store.idx'
    UNION ALL SELECT store, partition, unread FROM report_seen WHERE unread IS NOT NULL"""

# Places in the order of domain, user and name; a file that nobody holds has one line, without a user.
_RANKED = """
    SELECT *, if(octets IS NULL, min(guess) OVER (PARTITION BY store, partition, digest), octets) AS size,
           row_number() OVER (PARTITION BY store, partition, digest ORDER BY domain, user, name) AS line,
           dense_rank() OVER (PARTITION BY store, partition, digest ORDER BY domain, user) AS holder,
           dense_rank() OVER (PARTITION BY store, partition, digest ORDER BY domain) AS domain_rank,
           row_number() OVER (PARTITION BY store, partition, digest, domain ORDER BY user, name) AS domain_line,
           row_number() OVER (PARTITION BY store, partition, digest, domain, user ORDER BY name) AS box
    FROM {uses} FULL OUTER JOIN report_files USING (store, partition, digest)
    WHERE user IS NOT NULL OR NOT staged"""

_COUNTED = """
    SELECT *, max(line) OVER (PARTITION BY store, partition, digest) AS lines,
           max(holder) OVER (PARTITION BY store, partition, digest) AS holders,
           max(domain_rank) OVER (PARTITION BY store, partition, digest) AS domains,
           max(box) OVER (PARTITION BY store, partition, digest, domain, user) AS boxes
    FROM ({ranked})"""

_SHARED = """
    SELECT *, share div boxes + if(box <= share % boxes, 1, 0) AS fair
    FROM (SELECT *, size div holders + if(holder <= size % holders, 1, 0) AS share FROM ({counted}))"""

_HELD = """
    SELECT store, partition, domain, user, name, sum(n) AS messages, sum(logical) AS logical, sum(fair) AS fair_share,
           sum(if(lines = 1, logical, 0)) AS unique, sum(if(lines = 1, size, 0)) AS freed,
           sum(if(holders = 1, logical, 0)) AS user_unique,
           sum(if(holders = 1 AND box = 1, size, 0)) AS user_freed,
           sum(if(domains = 1, logical, 0)) AS domain_unique,
           sum(if(domains = 1 AND domain_line = 1, size, 0)) AS domain_freed,
           count_if(line = 1) AS files, sum(if(line = 1, size, 0)) AS file_octets, max(newest) AS newest,
           max(newest_read) AS newest_read,
           sum(if(line = 1 AND staged, size, 0)) AS staged_octets, count_if(line = 1 AND staged) AS staged_files,
           count_if(line = 1 AND octets IS NULL) AS missing,
           sum(if(line = 1 AND octets IS NULL, size, 0)) AS missing_octets
    FROM {shared} GROUP BY store, partition, domain, user, name"""

_LOST = """
    SELECT store, partition, domain, user, name, lower(hex(digest)) AS digest, size FROM (
        SELECT *, row_number() OVER (PARTITION BY store, partition, domain, user, name ORDER BY digest) AS place
        FROM report_shared WHERE line = 1 AND octets IS NULL)
    WHERE place <= {most} LIMIT {all}"""

# A record is dated by when it came into the mailbox, or else by its internal date.
_DAYS = "greatest(0, datediff({now}, coalesce(saved, internal_date)))"
_AGES = f"""
    SELECT age, kind, count(*) AS messages, sum(octets) AS logical, count_if(NOT seen) AS unread
    FROM (SELECT {classes("days", AGES, LONGER)} AS age, kind, days, octets, seen
          FROM (SELECT {{days}} AS days, {KIND} AS kind, octets, seen FROM {{references}} WHERE NOT removed))
    GROUP BY age, kind ORDER BY min(days), kind LIMIT 1000"""

# Each message file that is there, held or not, and what the databases know of it.
_CONTENTS = """
    SELECT c.*, k.sender, k.unused FROM (
        SELECT store, partition, digest, max(size) AS size, count_if(user IS NOT NULL AND box = 1) AS holders,
               coalesce(sum(n), 0) AS n, coalesce(sum(logical), 0) AS logical, coalesce(sum(rubbish), 0) AS rubbish
        FROM report_shared WHERE octets IS NOT NULL GROUP BY store, partition, digest) c
    LEFT JOIN report_known k USING (store, partition, digest)"""
_OF_FILES = "count(*) AS files, sum(size) AS file_octets, sum(n) AS messages, sum(logical) AS logical"
_LISTS = {
    "sizes": f"""SELECT {classes("size", SIZES, LARGER)} AS size_class, {_OF_FILES} FROM report_contents
        GROUP BY 1 ORDER BY min(size) LIMIT 100""",
    "messages": """SELECT lower(hex(digest)) AS digest, store, partition, size, n AS records, holders, sender
        FROM report_contents ORDER BY size DESC, digest, store, partition LIMIT {rows}""",
}
_OF_KNOWN = {
    "senders": f"""SELECT coalesce(sender, '-') AS sender, {_OF_FILES} FROM report_contents WHERE holders > 0
        GROUP BY 1 ORDER BY file_octets DESC, sender LIMIT {{rows}}""",
    # How long they wait is cut off at what a delay may be, so that there are few rows.
    "purge": f"""SELECT least(datediff({{now}}, unused), {max(WAITS)}) AS days, sum(size) AS freed, count(*) AS files
        FROM report_contents WHERE holders = 0 AND unused IS NOT NULL GROUP BY 1 LIMIT 100000""",
}
_RUBBISH = "SELECT coalesce(sum(size), 0) AS octets FROM report_contents WHERE n > 0 AND rubbish = n"

_BOXES = """
    SELECT store, partition, coalesce(name, '?') AS name, if(owner = '', '{public}', coalesce(owner, '?')) AS user,
           if(owner = '', '{public}', coalesce(nullif(domain, ''), {default})) AS domain,
           max(quota_root) AS quota_root, sum(records) AS records, count_if(id IS NULL) AS headless,
           max(last_login) AS last_login, max(last_read) AS last_read
    FROM report_mailboxes WHERE removed IS NULL AND path NOT LIKE 'users/deleted/%' AND path LIKE '%/store.idx'
    GROUP BY 1, 2, 3, 4, 5"""

_REFERENCES = "store,partition,name,owner,domain,digest,octets,skip,head,internal_date,saved,removed,seen,special_use"
COLUMNS = {
    "references": _REFERENCES,
    "messages": "store,partition,digest,octets,staged,path,damage",
    "mailboxes": "store,partition,id,name,owner,domain,quota_root,records,removed,path,last_login,last_read",
    "quotas": "",               # all
}


class TooManyMailboxes(Failure):
    """A report has a row for each mailbox, and these are more than MAILBOXES."""

    def __init__(self, count: int) -> None:
        super().__init__(f"a report has a row for each mailbox in one process, and there are {count:,}, more than "
                         f"{MAILBOXES:,}: onecopy facts export, on each back end, then onecopy quota report --fleet", 1)


def bounded(count: int) -> None:
    """Raises TooManyMailboxes."""
    if count > MAILBOXES:
        raise TooManyMailboxes(count)


@frozen(eq=False)
class Read:
    """What was read. `held` has a row for each mailbox, and one without a user for what waits on a partition; `after`
    is the same as the rules of expiry would leave it, None without any. `files` are the message files, summed up by
    themselves. `unread`: what of the folders of mailboxes could not be read; `lost`: message files that are not there,
    as far as they are to be looked for again."""

    held: pa.Table
    after: pa.Table | None
    files: pa.Table
    quotas: pa.Table
    unread: pa.Table
    lost: pa.Table = LOST_FILES.empty_table()
    lists: dict[str, Any] | None = None


def read(spark: "SparkSession", stores: Sequence[str], default_domain: str, left: Left | None = None,
         against: Against | None = None, known: Sequence[Range] | None = None) -> Read:
    """Read the stores, also as rules of expiry would have `left` them. With `against` the lists are made, too, of
    senders and what waits if that is `known`: from which ranges of a snapshot the executors read it. Raises
    PySparkException, TooManyMailboxes."""
    if not spark.sparkContext.getConf().contains(SHUFFLE):      # Spark's own 200 are many for a small store
        spark.conf.set(SHUFFLE, max(2 * spark.sparkContext.defaultParallelism, 2 * len(tasks(stores, "references"))))
    for table, wanted in COLUMNS.items():
        spark.read.format(FORMAT).option("table", table).option("columns", wanted).load(
            list(stores)).createOrReplaceTempView(f"report_{table}")
    names = {"public": PUBLIC, "default": _quoted(default_domain), "kind": KIND, "days": "0", "rubbish": "false"}
    if against is not None:
        names |= {"days": _DAYS.format(now=_moment(against)), "rubbish": f"days > {OLD_DAYS} AND kind IN {RUBBISH}"}
    kept: list[Any] = []

    def keep(view: str, frame: Any) -> None:
        kept.append(frame.persist())
        kept[-1].createOrReplaceTempView(view)

    try:
        keep("report_mailboxes", spark.table("report_mailboxes"))
        bounded(summaries.count(kept[0]))
        keep("report_seen", spark.sql(_SEEN))
        spark.sql(_FILES).createOrReplaceTempView("report_files")
        spark.sql(_BOXES.format(**names)).createOrReplaceTempView("report_boxes")
        keep("report_shared", spark.sql(_shared("report_references", names)))
        held = _held(spark, "report_shared")
        lists = None if against is None else _lists(spark, against, known, names)
        after = None
        if left is not None:
            columns = tuple(_REFERENCES.split(","))
            frame(spark, "references_left", tasks(stores, "references", Wanted(columns=columns)), left,
                  schema("references", columns)).createOrReplaceTempView("report_references_left")
            after = _held(spark, f"({_shared('report_references_left', names)})")
        files, quotas, unread, lost = (summaries.table(spark.sql(query)) for query in ("""
            SELECT store, partition, count(*) AS files, sum(octets) AS octets FROM report_files WHERE NOT staged
            GROUP BY store, partition""", """
            SELECT newest.* FROM (SELECT max_by(struct(*), written) AS newest FROM report_quotas
                                  GROUP BY store, root)""", _UNREAD, _LOST.format(
                most=LOOKED_FOR, all=ALL_LOOKED_FOR)))
        return Read(held, after, files, quotas, unread, lost, lists)
    finally:
        for one in kept:
            one.unpersist()


def _held(spark: "SparkSession", shared: str) -> pa.Table:
    """A row for each mailbox, those without messages among them, and for what waits on each partition."""
    return summaries.table(spark.sql(f"""
        SELECT * FROM ({_HELD.format(shared=shared)})
        FULL OUTER JOIN report_boxes USING (store, partition, domain, user, name)"""))


def _shared(references: str, names: dict[str, str]) -> str:
    """The query that has a line for each file and mailbox, with what it adds to the figures of the mailbox."""
    uses = f"({_USES.format(references=references, **names)})"
    return _SHARED.format(counted=_COUNTED.format(ranked=_RANKED.format(uses=uses)))


def _lists(spark: "SparkSession", against: Against, known: Sequence[Range] | None, names: dict[str, str]
           ) -> dict[str, Any]:
    """The lists, as `lists.Lists` has them."""
    form = fact_schema("messages")
    frame(spark, "known_messages", known or (), factrows.messages, form).createOrReplaceTempView("report_known_rows")
    spark.sql("SELECT store, partition, unhex(digest) AS digest, sender, unused FROM report_known_rows"
              ).createOrReplaceTempView("report_known")
    contents = spark.sql(_CONTENTS).persist()
    try:
        contents.createOrReplaceTempView("report_contents")
        terms = {"rows": str(against.rows), "now": _moment(against)}
        made: dict[str, Any] = {"ages": summaries.rows(spark.sql(_AGES.format(
            references="report_references", days=names["days"])))}
        made |= {name: summaries.rows(spark.sql(query.format(**terms))) for name, query in _LISTS.items()}
        made |= {name: None if known is None else summaries.rows(spark.sql(query.format(**terms)))
                 for name, query in _OF_KNOWN.items()}
        made["purge"] = None if known is None else purge(made["purge"])
        return made | {"rubbish": summaries.rows(spark.sql(_RUBBISH))[0]["octets"]}
    finally:
        contents.unpersist()


def _moment(against: Against) -> str:
    return f"TIMESTAMP '{against.now.astimezone(UTC):%Y-%m-%d %H:%M:%S}'"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def gone(lost: Iterable[tuple[str, str, str, int]]) -> list[tuple[str, str, str, int]]:
    """Of files that were not there (store, partition, digest, octets): those that are not there now either, or are not
    as large as the records say. On a store in use a message may arrive while its folder has been read already."""
    return [each for each in lost if _octets(*each[:3]) != each[3]]


def _octets(store: str, partition: str, digest: str) -> int | None:
    below = f"messages/{digest[0]}/{digest[1:3]}/{digest}"
    for path in (f"{store}/partitions/{partition}/{below}", f"{store}/{below}"):
        try:
            return os.stat(path).st_size
        except OSError:
            continue
    return None
