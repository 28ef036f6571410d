"""The Spark job of `onecopy quota report --fleet`: what the users of many back ends hold, from their facts, and what
could be had back.

What grows with users, mailboxes or messages is written by the executors (`write`); through the driver go sums, classes
and the first rows of each list (`summaries`), whatever the fleet has.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import frozen

from store.settings import Settings
from tools.spark import summaries
from tools.spark.facts.factfolders import Facts, frame_of
from tools.spark.facts.factschema import FACTS
from tools.spark.report import totals
from tools.spark.report.fleetviews import DOMAIN, LARGER, SIZES, VIEWS, WAITS, classes
from tools.spark.report.lists import kinds_of
from tools.spark.report.reportjob import SHUFFLE

VERSION = 1
LISTS = {"users": "fair_share", "mailboxes": "logical"}     # what `write` writes, and what comes first
#: Columns that are octets.
OCTETS = frozenset({"logical", "fair_share", "freed", "file_octets", "size", "waiting", "volume", "free", "charged",
                    "limit", "octets", "added", "saved", "growth", "unique"})
#: The lists, as they are called on a page.
TITLES = {
    "partitions": "Partitions", "users": "Largest users", "over_quota": "Users over quota, or nearly",
    "never_reading": "Who has mail and reads none, by what would be freed", "domains": "Domains",
    "classes": "Classes of service (groups)", "mailboxes": "Largest mailboxes", "messages": "Largest messages",
    "senders": "Senders, by octets of message files", "ages": "Age of messages, by kind of folder",
    "sizes": "Size of message files", "kinds": "Kinds of folder",
    "purge": "What a purge delay of so many days would free",
    "pairs": "Back ends that have the same contents",
    "moves": "Domains that would cost less on another back end"}
_TOLD = 10                  # of what could not be read, for each back end
_KEPT = ("fleet_folders", "fleet_shares", "fleet_contents", "fleet_users", "fleet_copies", "fleet_pairs")
_BY_SOME_KEYS = "spark.sql.requireAllClusterKeysForCoPartition"      # false: what is sent by digest stays for joins
PARTITION = 250_000         # records that one task of a shuffle gets, about; of more than FEW
FEW, LARGE = 400, 2_000_000     # tasks so many: what is sent is cut by maps times partitions, and the driver knows each
_FIGURES = "count(*) AS users, " + ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in (
    "messages", "logical", "fair_share", "unique", "freed")) + """,
    count_if(idle) AS idle, count_if(reads_nothing) AS reads_nothing, count_if(charged > limit) AS over"""


@frozen
class Terms:
    """What figures are held against: the settings, the moment, days after which a user is idle, rows of each list."""

    settings: Settings
    now: datetime
    idle: int = 180
    rows: int = 25


def fleet(spark: Any, facts: Sequence[Facts], terms: Terms, write: Callable[[str, Any], None] | None = None
          ) -> dict[str, Any]:
    """The report, as --json prints it. `write` gets each list and its frame. Raises PySparkException."""
    if not spark.sparkContext.getConf().contains(SHUFFLE):
        records = sum(one.rows["references"] for one in facts)
        spark.conf.set(SHUFFLE, max(spark.sparkContext.defaultParallelism, shuffle_partitions(records)))
    spark.conf.set(_BY_SOME_KEYS, "false")
    for table in FACTS:
        frame_of(spark, facts, table).createOrReplaceTempView(f"facts_{table}")
    places = [(site, one.store, name) for site, one in enumerate(facts) for name in one.partitions or [""]]
    values = ", ".join(f"({site}, {place}, {_quoted(store)}, {_quoted(name)})"
                       for place, (site, store, name) in enumerate(places))
    spark.sql(f"SELECT * FROM VALUES {values} AS places(site, place, store, partition)").createOrReplaceTempView(
        "fleet_places")
    kept = _views(spark, terms)
    try:
        for name in LISTS if write is not None else ():
            assert write is not None
            write(name, spark.table(f"fleet_{name}"))
        made = heading(facts, terms)
        made |= {name: summaries.rows(spark.sql(query.format(rows=terms.rows))) for name, query in _LISTS.items()}
        made["totals"] = {}
        for query in _TOTALS:
            made["totals"] |= summaries.rows(spark.sql(query))[0]
        return {**made, "kinds": kinds_of(made["ages"])}
    finally:
        for frame in kept:
            frame.unpersist()


def shuffle_partitions(records: int) -> int:
    """Into how many parts so many records are cut."""
    return min(records // PARTITION, FEW + records // LARGE)


def _views(spark: Any, terms: Terms) -> list[Any]:
    """Make the views; those that are kept."""
    kept = []
    names = {"now": f"TIMESTAMP '{terms.now.astimezone(UTC):%Y-%m-%d %H:%M:%S}'", "idle": terms.idle,
             "domain": DOMAIN.format(default=_quoted(terms.settings.default_domain)),
             "quota": terms.settings.default_quota or "NULL"}
    for name, query in VIEWS.items():
        frame = spark.sql(query.format(**names))
        if name in _KEPT:
            frame = frame.persist()
            kept.append(frame)
        frame.createOrReplaceTempView(name)
    return kept


def heading(facts: Sequence[Facts], terms: Terms) -> dict[str, Any]:
    """What a report begins with."""
    return {"version": VERSION, "fleet": True, "created": _stamp(terms.now), "idle_days": terms.idle,
            "rows": terms.rows, "back_ends": [
                {"store": one.store, "moment": one.moment, "rows": one.rows, "findings": len(one.findings)}
                for one in sorted(facts, key=lambda one: one.store)]}


def back_ends(made: Mapping[str, Any]) -> str:
    """How many back ends a report is of, in words."""
    count = len(made["back_ends"])
    return "1 back end" if count == 1 else f"{count:,} back ends"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _stamp(when: datetime) -> str:
    return when.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


_LISTS = {
    "users": "SELECT * FROM fleet_users ORDER BY fair_share DESC, store, user LIMIT {rows}",
    "over_quota": """SELECT store, user, charged, limit, 100 * charged div limit AS per_cent FROM fleet_users
        WHERE limit > 0 AND 10 * charged >= 9 * limit ORDER BY per_cent DESC, store, user LIMIT {rows}""",
    "never_reading": """SELECT store, user, logical, fair_share, freed, newest, newest_read, last_read, last_login
        FROM fleet_users
        WHERE reads_nothing AND logical > 0 AND user <> 'public/' ORDER BY freed DESC, store, user LIMIT {rows}""",
    "domains": f"""SELECT domain, {_FIGURES} FROM fleet_users GROUP BY domain
        ORDER BY fair_share DESC, domain LIMIT {{rows}}""",
    "classes": f"""SELECT class, {_FIGURES} FROM fleet_users GROUP BY class
        ORDER BY fair_share DESC, class LIMIT {{rows}}""",
    "stores": f"""SELECT store, {_FIGURES} FROM fleet_users GROUP BY store ORDER BY store LIMIT 10000""",
    "partitions": """
        SELECT store, partition, files, file_octets, waiting, v.octets AS volume, v.free
        FROM (SELECT place, count(*) AS files, sum(size) AS file_octets, sum(if(holders = 0, size, 0)) AS waiting
              FROM fleet_contents GROUP BY place) JOIN fleet_places USING (place)
        LEFT JOIN facts_volumes v USING (store, partition) ORDER BY store, partition LIMIT 10000""",
    "mailboxes": "SELECT * FROM fleet_mailboxes ORDER BY logical DESC, store, mailbox, partition LIMIT {rows}",
    "messages": """SELECT lower(hex(digest)) AS digest, store, partition, size, n AS records, holders, sender
        FROM fleet_contents JOIN fleet_places USING (place) ORDER BY size DESC, digest, store, partition
        LIMIT {rows}""",
    "senders": """SELECT coalesce(sender, '-') AS sender, count(*) AS files, sum(size) AS file_octets,
        sum(n) AS messages, sum(logical) AS logical FROM fleet_contents WHERE holders > 0 GROUP BY sender
        ORDER BY file_octets DESC, sender LIMIT {rows}""",
    "ages": """SELECT age, kind, sum(n) AS messages, sum(logical) AS logical, sum(unread) AS unread
        FROM fleet_folders GROUP BY age, kind ORDER BY min(days), kind LIMIT 1000""",
    "sizes": f"""SELECT {classes("size", SIZES, LARGER)} AS size_class, count(*) AS files, sum(size) AS file_octets,
        sum(n) AS messages, sum(logical) AS logical FROM fleet_contents GROUP BY 1 ORDER BY min(size) LIMIT 100""",
    "purge": f"""
        SELECT delay AS days, coalesce(sum(if(w.days >= delay, w.size, 0)), 0) AS freed,
               coalesce(sum(if(w.days >= delay, w.files, 0)), 0) AS files
        FROM (SELECT explode(array{WAITS}) AS delay) LEFT JOIN (
            SELECT days, sum(size) AS size, count(*) AS files FROM fleet_waiting GROUP BY days) w ON true
        GROUP BY delay ORDER BY delay""",
    # Which domain of one back end should live where others have the same messages.
    "moves": """
        WITH homes AS (
            SELECT site, domain, sum(if(c.domains = 1, c.size, 0)) AS freed, sum(c.size) AS octets
            FROM fleet_domains JOIN fleet_copies c USING (site, digest) GROUP BY site, domain),
        met AS (
            SELECT site, domain, other, sum(other_size) AS there
            FROM fleet_domains JOIN fleet_pairs USING (site, digest) GROUP BY site, domain, other)
        SELECT domain, a.store, b.store AS to_store, octets, freed, octets - there AS added,
               freed - (octets - there) AS saved
        FROM homes h JOIN met m USING (site, domain) JOIN fleet_sites a ON a.site = h.site
        JOIN fleet_sites b ON b.site = m.other WHERE freed > octets - there
        ORDER BY saved DESC, domain, store, to_store LIMIT {rows}""",
    "pairs": """
        SELECT a.store, b.store AS other_store, contents, octets
        FROM (SELECT site, other, count(*) AS contents, sum(least(size, other_size)) AS octets FROM fleet_pairs
              GROUP BY site, other) p
        JOIN fleet_sites a ON a.site = p.site JOIN fleet_sites b ON b.site = p.other WHERE a.store < b.store
        ORDER BY octets DESC, store, other_store LIMIT {rows}""",
}

_TOTALS = (
    f"SELECT {_FIGURES} FROM fleet_users",
    """SELECT count(*) AS files, coalesce(sum(size), 0) AS file_octets,
        coalesce(sum(if(holders = 0, size, 0)), 0) AS waiting, count_if(holders = 0) AS waiting_files,
        coalesce(sum(if(n > 0 AND rubbish = n, size, 0)), 0) AS rubbish FROM fleet_contents""",
    """SELECT count(*) AS doubled, coalesce(sum(cost), 0) AS doubled_octets FROM fleet_doubled""",
    """SELECT count(*) AS mailboxes FROM facts_mailboxes WHERE removed IS NULL""",
)


def differences(made: Mapping[str, Any]) -> list[str]:
    """Where fair shares and what waits for the purge are not the octets of the message files, to the octet."""
    totals = made["totals"]
    off = totals["fair_share"] + totals["waiting"] - totals["file_octets"]
    return [f"fair shares and what waits for the purge are {off:+} octets beside the {totals['file_octets']} octets of "
            "message files"] if off else []


def unread(facts: Sequence[Facts]) -> list[str]:
    """What of back ends could not be read when their facts were exported, so that it is in no figure: a line for each,
    up to so many."""
    lines = []
    for one in facts:
        lines += [f"{one.store}: {finding['where']}: {finding['what']} (repair there: onecopy {finding['repair']})"
                  for finding in one.findings[:_TOLD]]
        if len(one.findings) > _TOLD:
            lines.append(f"{one.store}: {len(one.findings) - _TOLD} more could not be read: see facts.json")
    return lines


def full_on(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
    """Add to partitions how much they have grown since an earlier report, and on which day they will be full if they go
    on like that; null where they do not grow, and without a report."""
    known = {} if before is None else {(row["store"], row["partition"]): row["file_octets"]
                                       for row in before["partitions"]}
    for row in now["partitions"]:
        old = known.get((row["store"], row["partition"]))
        row["growth"] = None if old is None else row["file_octets"] - old
        row["full_on"] = None if old is None or before is None else totals.full_on(
            now["created"], before["created"], row["growth"], row["free"])
