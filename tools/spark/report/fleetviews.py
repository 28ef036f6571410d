"""Queries of the fleet report, over tables of facts: each view is made of those above it. No row of them goes through
the driver but those of `fleetjob`.

A message file is one on each partition, so what is shared is counted there; `uses` has a row for each user of a file.
Nothing is joined or partitioned by anything that one message or one user has alone, but for the rank of a file's
holders, which Spark sorts on disk.
"""

from collections.abc import Sequence

AGES = ((7, "a week"), (30, "a month"), (180, "6 months"), (365, "a year"), (1095, "3 years"))      # days
SIZES = ((10 << 10, "10 KiB"), (100 << 10, "100 KiB"), (1 << 20, "1 MiB"), (10 << 20, "10 MiB"), (100 << 20, "100 MiB"))
LONGER, LARGER = "longer", "larger"
OLD_DAYS = 30               # what is older in these kinds of folder is rubbish to most
RUBBISH = ("Junk", "Trash")
WAITS = (1, 3, 7, 14, 30)   # days


def classes(value: str, bounds: Sequence[tuple[int, str]], rest: str) -> str:
    """An expression: the name of the class in which a value is."""
    return "CASE " + " ".join(f"WHEN {value} <= {most} THEN '{name}'" for most, name in bounds) + f" ELSE '{rest}' END"


#: In order: `facts_*` are the tables; {now} is the moment, {default} the default domain, both quoted.
VIEWS = {
    "fleet_boxes": """
        SELECT store, partition, id AS mailbox, name, quota_root,
               CASE WHEN special_use IS NOT NULL THEN replace(special_use, '\\\\', '')
                    WHEN owner = '' THEN 'public' WHEN name LIKE '%/INBOX' THEN 'INBOX' ELSE 'others' END AS kind
        FROM facts_mailboxes WHERE removed IS NULL""",
    # A record is dated by when it came into the mailbox, or else by its internal date.
    "fleet_records": """
        SELECT r.store, r.partition, unhex(r.digest) AS digest, r.mailbox, b.name, b.kind, r.octets, r.seen,
               if(r.owner = '', 'public/', r.owner) AS user,
               if(r.owner = '', 'public/', coalesce(nullif(r.domain, ''), {default})) AS domain,
               greatest(r.internal_date, r.saved) AS newest,
               greatest(0, datediff({now}, coalesce(r.saved, r.internal_date))) AS days
        FROM facts_references r JOIN fleet_boxes b USING (store, partition, mailbox)""",
    "fleet_files": """
        SELECT store, partition, unhex(digest) AS digest, octets AS size, sender, unused FROM facts_messages""",
    "fleet_uses": f"""
        SELECT store, partition, digest, domain, user, count(*) AS n, sum(octets) AS logical, max(newest) AS newest,
               max(if(seen, newest, NULL)) AS newest_read,
               count_if(days > {OLD_DAYS} AND kind IN {RUBBISH}) AS rubbish
        FROM fleet_records GROUP BY store, partition, digest, domain, user""",
    "fleet_held": """
        SELECT store, partition, digest, count(*) AS holders, count(DISTINCT domain) AS domains, sum(n) AS n,
               sum(logical) AS logical, sum(rubbish) AS rubbish
        FROM fleet_uses GROUP BY store, partition, digest""",
    # Each file, held or not.
    "fleet_contents": """
        SELECT f.*, coalesce(h.holders, 0) AS holders, coalesce(h.domains, 0) AS domains, coalesce(h.n, 0) AS n,
               coalesce(h.logical, 0) AS logical, coalesce(h.rubbish, 0) AS rubbish
        FROM fleet_files f LEFT JOIN fleet_held h USING (store, partition, digest)""",
    # The octets that do not divide go one by one to the first in order of domain and user.
    "fleet_shares": """
        SELECT store, partition, u.domain, u.user, digest, u.n, u.logical, u.newest, u.newest_read, c.size, c.holders,
               c.size div c.holders + if(row_number() OVER (PARTITION BY store, partition, digest
                                                            ORDER BY u.domain, u.user) <= c.size % c.holders,
                                         1, 0) AS fair
        FROM fleet_uses u JOIN fleet_contents c USING (store, partition, digest)""",
    "fleet_levels": """
        SELECT store, partition, domain, user, sum(n) AS messages, sum(logical) AS logical, sum(fair) AS fair_share,
               sum(if(holders = 1, logical, 0)) AS unique, sum(if(holders = 1, size, 0)) AS freed,
               max(newest) AS newest, max(newest_read) AS newest_read
        FROM fleet_shares GROUP BY store, partition, domain, user""",
    "fleet_limits": """
        SELECT store, root AS user, max_by(struct(limit_octets, default_octets),
                                           struct(written, NOT default_octets, coalesce(limit_octets, 0))) AS limits,
               sum(used_octets) AS charged FROM facts_quotas WHERE kind = 'user' GROUP BY store, root""",
    "fleet_people": """
        SELECT store, user, if(domain = '', {default}, domain) AS domain, status,
               array_join(array_sort(groups), ',') AS class, last_login, last_read
        FROM facts_users WHERE removed IS NULL""",
    "fleet_users": """
        WITH summed AS (
            SELECT store, user, max(domain) AS domain, sum(messages) AS messages, sum(logical) AS logical,
                   sum(fair_share) AS fair_share, sum(unique) AS unique, sum(freed) AS freed, max(newest) AS newest,
                   max(newest_read) AS newest_read FROM fleet_levels GROUP BY store, user)
        SELECT store, user, coalesce(s.domain, p.domain) AS domain, coalesce(nullif(p.class, ''), '-') AS class,
               coalesce(messages, 0) AS messages, coalesce(logical, 0) AS logical,
               coalesce(fair_share, 0) AS fair_share, coalesce(unique, 0) AS unique, coalesce(freed, 0) AS freed,
               date_format(newest, "yyyy-MM-dd'T'HH:mm:ss'Z'") AS newest,
               date_format(newest_read, "yyyy-MM-dd'T'HH:mm:ss'Z'") AS newest_read,
               date_format(p.last_login, 'yyyy-MM-dd') AS last_login,
               date_format(p.last_read, 'yyyy-MM-dd') AS last_read,
               coalesce(datediff({now}, newest), 1000000) > {idle} AS idle,
               coalesce(datediff({now}, greatest(newest_read, p.last_read)), 1000000) > {idle} AS reads_nothing,
               if(l.limits.default_octets, {quota}, l.limits.limit_octets) AS limit, l.charged
        FROM summed s FULL OUTER JOIN fleet_people p USING (store, user)
        LEFT JOIN fleet_limits l USING (store, user)""",
    "fleet_mailboxes": """
        SELECT store, partition, name AS mailbox, kind, count(*) AS messages, sum(octets) AS logical,
               date_format(max(newest), "yyyy-MM-dd'T'HH:mm:ss'Z'") AS newest
        FROM fleet_records GROUP BY store, partition, name, kind""",
    "fleet_waiting": """
        SELECT c.store, c.partition, c.digest, c.size, datediff({now}, coalesce(c.unused, max(e.expunged))) AS days
        FROM (SELECT * FROM fleet_contents WHERE holders = 0) c LEFT JOIN (
            SELECT store, partition, unhex(digest) AS digest, expunged FROM facts_expunged) e
            USING (store, partition, digest)
        GROUP BY c.store, c.partition, c.digest, c.size, c.unused""",
    # Contents by back end: what each has, once however many partitions.
    "fleet_copies": """
        SELECT store, digest, max(size) AS size, sum(domains) AS domains FROM fleet_contents GROUP BY store, digest""",
    "fleet_doubled": """
        SELECT digest, max(size) AS size, count(*) AS copies, sum(size) - max(size) AS cost FROM fleet_copies
        GROUP BY digest HAVING count(*) > 1""",
}
