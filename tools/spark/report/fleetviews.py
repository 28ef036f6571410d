"""Queries of the fleet report, over tables of facts: each view is made of those above it. No row of them goes through
the driver but those of `fleetjob`.

A message file is one on each partition, so what is shared is counted there; `uses` has a row for each user of a file.
Nothing is joined or partitioned by anything that one message or one user has alone, but for the rank of a file's
holders, which Spark sorts on disk.

What is much is read twice, and sent over the network twice. Once as it lies in the exports, mailbox by mailbox, so that
`folders` are summed where they are read. Once sent by digest: `uses`, `shares`, `contents` and what is made of these
stay where that put them. The shares go to their users then. Numbers stand for back ends (`site`) and partitions
(`place`), and nothing is joined to records but these.
"""

from collections.abc import Sequence

AGES = ((7, "a week"), (30, "a month"), (180, "6 months"), (365, "a year"), (1095, "3 years"))      # days
SIZES = ((10 << 10, "10 KiB"), (100 << 10, "100 KiB"), (1 << 20, "1 MiB"), (10 << 20, "10 MiB"), (100 << 20, "100 MiB"))
LONGER, LARGER = "longer", "larger"
OLD_DAYS = 30               # what is older in these kinds of folder is rubbish to most
RUBBISH = ("Junk", "Trash")
WAITS = (1, 3, 7, 14, 30)   # days


#: An expression: the kind of folder of a record (special use: RFC 6154).
KIND = """CASE WHEN special_use IS NOT NULL THEN replace(special_use, '\\\\', '')
                    WHEN owner = '' THEN 'public' WHEN name LIKE '%/INBOX' THEN 'INBOX' ELSE 'others' END"""


def kind_of(special_use: str | None, owner: str | None, name: str | None) -> str:
    """The kind of a folder, as KIND has it."""
    if special_use is not None:
        return special_use.replace("\\", "")
    return "public" if owner == "" else "INBOX" if name is not None and name.endswith("/INBOX") else "others"


def classes(value: str, bounds: Sequence[tuple[int, str]], rest: str) -> str:
    """An expression: the name of the class in which a value is."""
    return "CASE " + " ".join(f"WHEN {value} <= {most} THEN '{name}'" for most, name in bounds) + f" ELSE '{rest}' END"


# Sorted once, by what differs first.
_HOLDERS = "PARTITION BY digest, place, site ORDER BY domain, user"

#: In order: `facts_*` are the tables, and `fleet_places` what numbers stand for; {now} is the moment, {default} the
#: default domain, both quoted.
VIEWS = {
    "fleet_sites": "SELECT DISTINCT site, store FROM fleet_places",
    # A record is dated by when it came into the mailbox, or else by its internal date.
    "fleet_records": f"""
        SELECT p.site, p.place, unhex(r.digest) AS digest, r.mailbox, r.name, r.octets, r.seen,
               {KIND} AS kind,
               if(r.owner = '', 'public/', r.owner) AS user, greatest(r.internal_date, r.saved) AS newest,
               greatest(0, datediff({{now}}, coalesce(r.saved, r.internal_date))) AS days
        FROM facts_references r JOIN fleet_places p USING (store, partition) WHERE NOT r.removed""",
    "fleet_files": """
        SELECT p.site, p.place, unhex(m.digest) AS digest, m.octets AS size, m.sender, m.unused
        FROM facts_messages m JOIN fleet_places p USING (store, partition)""",
    # What is in each mailbox, by age.
    "fleet_folders": f"""
        SELECT site, place, mailbox, name, kind, user, {classes("days", AGES, LONGER)} AS age, count(*) AS n,
               sum(octets) AS logical, max(newest) AS newest, max(if(seen, newest, NULL)) AS newest_read,
               count_if(NOT seen) AS unread, min(days) AS days
        FROM fleet_records GROUP BY site, place, mailbox, name, kind, user, 7""",
    "fleet_uses": f"""
        SELECT site, place, digest, user, count(*) AS n, sum(octets) AS logical,
               sum(if(days > {OLD_DAYS} AND kind IN {RUBBISH}, 1, 0)) AS rubbish
        FROM (SELECT site, place, digest, user, octets, days, kind FROM fleet_records DISTRIBUTE BY site, digest)
        GROUP BY site, place, digest, user""",
    # The octets that do not divide go one by one to the first in order of domain and user; `first`: of a domain.
    "fleet_shares": f"""
        SELECT site, place, digest, user, n, logical, rubbish, size, holders, first,
               size div holders + if(rank <= size % holders, 1, 0) AS fair
        FROM (SELECT /*+ SHUFFLE_HASH(f) */ u.*, f.size, count(*) OVER (
                         {_HOLDERS} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS holders,
                     row_number() OVER ({_HOLDERS}) AS rank, NOT domain <=> lag(domain) OVER ({_HOLDERS}) AS first
              FROM (SELECT *, {{domain}} AS domain FROM fleet_uses) u
              JOIN fleet_files f USING (site, place, digest))""",
    # Each file, held or not.
    "fleet_contents": """
        SELECT f.*, coalesce(h.holders, 0) AS holders, coalesce(h.domains, 0) AS domains, coalesce(h.n, 0) AS n,
               coalesce(h.logical, 0) AS logical, coalesce(h.rubbish, 0) AS rubbish
        FROM fleet_files f LEFT JOIN (
            SELECT site, place, digest, count(*) AS holders, count_if(first) AS domains, sum(n) AS n,
                   sum(logical) AS logical, sum(rubbish) AS rubbish
            FROM fleet_shares GROUP BY site, place, digest) h USING (site, place, digest)""",
    "fleet_limits": """
        SELECT s.site, root AS user, max_by(struct(limit_octets, default_octets),
                                            struct(written, NOT default_octets, coalesce(limit_octets, 0))) AS limits,
               sum(used_octets) AS charged
        FROM facts_quotas JOIN fleet_sites s USING (store) WHERE kind = 'user' GROUP BY s.site, root""",
    "fleet_people": """
        SELECT s.site, user, array_join(array_sort(groups), ',') AS class, last_login, last_read
        FROM facts_users JOIN fleet_sites s USING (store) WHERE removed IS NULL""",
    "fleet_users": """
        WITH summed AS (
            SELECT site, user, sum(n) AS messages, sum(logical) AS logical, max(newest) AS newest,
                   max(newest_read) AS newest_read FROM fleet_folders GROUP BY site, user),
        shared AS (
            SELECT site, user, sum(fair) AS fair_share, sum(if(holders = 1, logical, 0)) AS unique,
                   sum(if(holders = 1, size, 0)) AS freed FROM fleet_shares GROUP BY site, user)
        SELECT s.store, user, {domain} AS domain, coalesce(nullif(p.class, ''), '-') AS class,
               coalesce(messages, 0) AS messages, coalesce(logical, 0) AS logical,
               coalesce(fair_share, 0) AS fair_share, coalesce(unique, 0) AS unique, coalesce(freed, 0) AS freed,
               date_format(newest, "yyyy-MM-dd'T'HH:mm:ss'Z'") AS newest,
               date_format(newest_read, "yyyy-MM-dd'T'HH:mm:ss'Z'") AS newest_read,
               date_format(p.last_login, 'yyyy-MM-dd') AS last_login,
               date_format(p.last_read, 'yyyy-MM-dd') AS last_read,
               coalesce(datediff({now}, newest), 1000000) > {idle} AS idle,
               coalesce(datediff({now}, greatest(newest_read, p.last_read)), 1000000) > {idle} AS reads_nothing,
               if(l.limits.default_octets, {quota}, l.limits.limit_octets) AS limit, l.charged
        FROM summed FULL OUTER JOIN fleet_people p USING (site, user)
        LEFT JOIN shared USING (site, user) LEFT JOIN fleet_limits l USING (site, user)
        JOIN fleet_sites s USING (site)""",
    "fleet_mailboxes": """
        SELECT p.store, p.partition, f.name AS mailbox, f.kind, sum(n) AS messages, sum(logical) AS logical,
               date_format(max(newest), "yyyy-MM-dd'T'HH:mm:ss'Z'") AS newest
        FROM fleet_folders f JOIN fleet_places p USING (place) GROUP BY p.store, p.partition, f.name, f.kind""",
    "fleet_waiting": """
        SELECT c.place, c.digest, c.size, datediff({now}, coalesce(c.unused, max(e.expunged))) AS days
        FROM (SELECT * FROM fleet_contents WHERE holders = 0) c LEFT JOIN (
            SELECT p.place, unhex(digest) AS digest, expunged
            FROM facts_expunged JOIN fleet_places p USING (store, partition)) e USING (place, digest)
        GROUP BY c.place, c.digest, c.size, c.unused""",
    # Contents by back end: what each has, once however many partitions.
    "fleet_copies": """
        SELECT site, digest, max(size) AS size, sum(domains) AS domains FROM fleet_contents GROUP BY site, digest""",
    "fleet_doubled": """
        SELECT digest, max(size) AS size, count(*) AS copies, sum(size) - max(size) AS cost FROM fleet_copies
        GROUP BY digest HAVING count(*) > 1""",
    # Those contents on two back ends.
    "fleet_pairs": """
        SELECT a.site, digest, a.size, b.site AS other, b.size AS other_size
        FROM fleet_doubled JOIN fleet_copies a USING (digest) JOIN fleet_copies b USING (digest)
        WHERE a.site <> b.site""",
    "fleet_domains": """
        SELECT DISTINCT site, digest, {domain} AS domain FROM fleet_shares WHERE first AND user <> 'public/'""",
}

#: The domain of `user`, a user or public mailboxes; in braces the default domain.
DOMAIN = ("if(user = 'public/', user, coalesce("
          "nullif(if(instr(user, '@') > 0, substr(user, instr(user, '@') + 1), ''), ''), {default}))")
