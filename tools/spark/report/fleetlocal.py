"""What `fleetjob` reports, by one process that reads the files of facts: for fleets that Spark takes longer to start
than to read.

The figures have the definitions of the queries of `fleetviews`, view by view. Message files are read by ranges of their
digests, with the records that refer to them: so a content comes with all its holders on all back ends, and of message
files and records only a range is in memory (`RANGE_ROWS`, and what one message has). Sums are in memory: users,
mailboxes and senders. What is a list of a store's report, too, is summed up by `lists`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as datasets

from mboxlist.names import PUBLIC
from tools.spark.facts.factfolders import Facts, table_of
from tools.spark.facts.factschema import fact_schema
from tools.spark.report.fleetjob import Terms, heading
from tools.spark.report.groups import Numbered, Numbers, Sums, numbers, of_group, places
from tools.spark.report.groups import begins as begins_of
from tools.spark.report.lists import NEVER, Against, Files, Lists, by, class_of_service, figures, kinds_of

Row = dict[str, Any]

RANGE_ROWS = 500_000          # records and message files of a range of digests, about
_RANGES = 1 << 16               # most of them
_PLACE = ["store", "partition"]
_FILE = [*_PLACE, "digest"]
_USE = [*_FILE, "domain", "user"]
_READ = {
    "references": ("store", "partition", "digest", "name", "owner", "special_use", "domain", "octets", "seen",
                   "internal_date", "saved", "removed"),
    "messages": ("store", "partition", "digest", "octets", "sender", "unused"),
    "expunged": ("store", "partition", "digest", "expunged")}
_FIGURES = ("messages", "logical", "fair_share", "unique", "freed")


def fleet(facts: Sequence[Facts], terms: Terms, write: Callable[[str, pa.Table], None] | None = None, *,
          range_rows: int = RANGE_ROWS) -> Row:
    """The report, as --json prints it. `write` gets each list that has all rows."""
    summed = _Summed(terms)
    for tables in _ranges(facts, range_rows):
        summed.add(tables)
    users = _users(facts, summed, terms)
    mailboxes = [_named(row) for row in summed.mailboxes.rows()]
    users.sort(key=lambda row: (-row["fair_share"], row["store"], row["user"]))
    mailboxes.sort(key=lambda row: (-row["logical"], row["store"], row["mailbox"], row["partition"]))
    for name, rows in (("users", users), ("mailboxes", mailboxes)) if write is not None else ():
        assert write is not None
        write(name, pa.Table.from_pylist(rows) if rows else pa.table({}))
    made = heading(facts, terms)
    most = terms.rows
    made |= {"users": users[:most], "over_quota": _over_quota(users)[:most],
             "never_reading": _never_reading(users)[:most],
             "domains": by(users, "domain", _is_over)[:most], "classes": by(users, "class", _is_over)[:most],
             "stores": sorted(by(users, "store", _is_over), key=lambda row: str(row["store"])),
             "partitions": _partitions(facts, summed.partitions), "mailboxes": mailboxes[:most],
             "moves": _moves(summed)[:most], "pairs": _ordered(summed.pairs, "octets", "store", "other_store")[:most]}
    partitions, lists = summed.partitions.rows(), summed.lists.made()
    made["totals"] = {
        **figures(users, _is_over), "rubbish": lists.pop("rubbish"), **{
            name: sum(row[name] for row in partitions) for name in ("files", "file_octets", "waiting",
                                                                    "waiting_files")},
        "doubled": summed.doubled, "doubled_octets": summed.doubled_octets, "mailboxes": _mailboxes(facts)}
    return {**made, **lists, "kinds": kinds_of(lists["ages"])}


# What is read

def _mailboxes(facts: Sequence[Facts]) -> int:
    """How many mailboxes are there."""
    return int(table_of(facts, "mailboxes", ("removed",))["removed"].null_count)


def _ranges(facts: Sequence[Facts], range_rows: int) -> Iterator[dict[str, pa.Table]]:
    """Message files, records and expunged messages, by ranges of digests of about so many rows."""
    rows = sum(one.rows.get("references", 0) + one.rows.get("messages", 0) for one in facts)
    count = min(_RANGES, max(1, -(-rows // range_rows)))
    bounds = [f"{_RANGES * at // count:04x}" for at in range(count)]
    for at, first in enumerate(bounds):
        chosen = pc.field("digest") >= first
        if at + 1 < count:
            chosen &= pc.field("digest") < bounds[at + 1]
        yield {table: _some(facts, table, columns, chosen) for table, columns in _READ.items()}


def _some(facts: Sequence[Facts], table: str, columns: Sequence[str], chosen: Any) -> pa.Table:
    paths = [path for one in facts for path in one.files[table]]
    if not paths:
        return fact_schema(table, columns).empty_table()
    return datasets.dataset(paths, schema=fact_schema(table), format="parquet").to_table(
        columns=list(columns), filter=chosen)


# Sums

class _Summed:
    """The sums of all ranges that were read."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.lists = Lists(Against(terms.now, terms.rows), Numbered())
        self.mail = Sums(("store", "user"), {
            "messages": "sum", "logical": "sum", "newest": "max", "newest_read": "max", "domain": "max"})
        self.shares = Sums(("store", "user"), {"fair_share": "sum", "unique": "sum", "freed": "sum"})
        self.mailboxes = Sums((*_PLACE, "name", "kind"), {"messages": "sum", "logical": "sum", "newest": "max"})
        self.partitions = Sums(("store", "partition"), {
            "files": "sum", "file_octets": "sum", "waiting": "sum", "waiting_files": "sum"})
        self.pairs = Sums(("store", "other_store"), {"contents": "sum", "octets": "sum"})
        self.homes = Sums(("store", "domain"), {"freed": "sum", "octets": "sum"})
        self.met = Sums(("store", "domain", "to_store"), {"there": "sum"})
        self.doubled = self.doubled_octets = 0

    def add(self, tables: Mapping[str, pa.Table]) -> None:
        """All of a range of digests."""
        records = self._records(tables["references"])
        self._add_records(records)
        uses = records.group_by(_USE).aggregate([([], "count_all"), ("octets", "sum"), ("rubbish", "sum")]
                                                ).rename_columns([*_USE, "n", "logical", "rubbish"])
        uses = uses.sort_by([(name, "ascending") for name in _USE])
        contents = self._contents(tables["messages"], uses)
        self._add_contents(contents)
        self._add_uses(uses, contents)
        self._add_waiting(contents, tables["expunged"])
        self._add_copies(uses, contents)

    def _records(self, references: pa.Table) -> pa.Table:
        """The records of mailboxes that are there, with the kind of folder (RFC 6154: Junk and Trash apart). One is
        dated by when it came into the mailbox, or else by its internal date."""
        table = references.filter(pc.invert(references["removed"]))
        public = pc.equal(table["owner"], "")
        domain = pc.if_else(pc.equal(pc.fill_null(table["domain"], ""), ""), self._terms.settings.default_domain,
                            table["domain"])
        received, saved = table["internal_date"], table["saved"]
        later = pc.fill_null(pc.greater(saved, received), False)
        newest = pc.if_else(later, saved, pc.coalesce(received, saved))
        days = self.lists.against.days(_seconds(pc.coalesce(saved, received)), 0)
        kind = pc.coalesce(pc.replace_substring(table["special_use"], "\\", ""), pc.if_else(
            public, "public", pc.if_else(pc.ends_with(table["name"], "/INBOX"), "INBOX", "others")))
        number = self.lists.kinds.numbers(kind)
        self.lists.add_records(days, number, numbers(table["octets"], 0), numbers(table["seen"], 0) == 1)
        return table.select([*_FILE, "name", "octets", "seen"]).append_column("kind", kind).append_column(
            "user", pc.if_else(public, PUBLIC, table["owner"])).append_column(
            "domain", pc.if_else(public, PUBLIC, domain)).append_column("newest", newest).append_column(
            "newest_read", pc.if_else(table["seen"], newest, None)).append_column(
            "rubbish", pa.array(self.lists.rubbish(days, number)))

    def _add_records(self, records: pa.Table) -> None:
        ones = pa.array(np.ones(len(records), np.int64))
        counted = records.append_column("messages", ones).append_column("logical", records["octets"])
        self.mailboxes.add(counted)
        self.mail.add(counted)

    def _contents(self, messages: pa.Table, uses: pa.Table) -> pa.Table:
        """Each message file of the range, held or not."""
        held = uses.group_by(_FILE).aggregate([([], "count_all"), ("domain", "count_distinct"), ("n", "sum"), (
            "logical", "sum"), ("rubbish", "sum")]).rename_columns(
            [*_FILE, "holders", "domains", "n", "logical", "rubbish"])
        found = messages.rename_columns([*_FILE, "size", "sender", "unused"]).join(held, _FILE)
        for name in ("holders", "domains", "n", "logical", "rubbish"):
            found = found.set_column(found.schema.get_field_index(name), name, pa.array(numbers(found[name], 0)))
        return found

    def _add_contents(self, contents: pa.Table) -> None:
        size, holders, messages, logical, rubbish = (numbers(contents[name], 0) for name in (
            "size", "holders", "n", "logical", "rubbish"))
        self.partitions.add(pa.table({
            "files": np.ones(len(contents), np.int64), "file_octets": size, "waiting": size * (holders == 0),
            "waiting_files": (holders == 0).astype(np.int64), "store": contents["store"],
            "partition": contents["partition"]}))
        digest, store, partition = (contents[name] for name in ("digest", *_PLACE))
        self.lists.add_files(Files(
            size, holders, messages, logical, rubbish, contents["sender"].combine_chunks(),
            lambda at: (digest[at].as_py(), store[at].as_py(), partition[at].as_py())))

    def _add_uses(self, uses: pa.Table, contents: pa.Table) -> None:
        """The octets that do not divide go one by one to the first in order of domain and user."""
        shares = uses.join(contents.select([*_FILE, "size", "holders"]), _FILE, join_type="inner").sort_by(
            [(name, "ascending") for name in _USE])
        rank = places(begins_of(shares, _FILE))
        size, holders, logical = (numbers(shares[name], 0) for name in ("size", "holders", "logical"))
        each = np.maximum(holders, 1)
        self.shares.add(pa.table({
            "store": shares["store"], "user": shares["user"], "fair_share": size // each + (rank <= size % each),
            "unique": logical * (holders == 1), "freed": size * (holders == 1)}))

    def _add_waiting(self, contents: pa.Table, expunged: pa.Table) -> None:
        """Files that nobody has: since when they wait for the purge, as far as that is known."""
        last = expunged.group_by(_FILE).aggregate([("expunged", "max")]).rename_columns([*_FILE, "expunged"])
        found = contents.filter(pc.equal(contents["holders"], 0)).join(last, _FILE)
        when = pc.coalesce(found["unused"], found["expunged"])
        waits = _seconds(when)
        known = waits != NEVER
        self.lists.add_waiting(self.lists.against.days(waits[known], 0), numbers(found["size"], 0)[known])

    def _add_copies(self, uses: pa.Table, contents: pa.Table) -> None:
        """Contents by back end, once however many partitions have them; and what lies on several back ends."""
        copies = contents.group_by(["store", "digest"]).aggregate([("size", "max"), ("domains", "sum")]).rename_columns(
            ["store", "digest", "size", "domains"]).sort_by([("digest", "ascending"), ("store", "ascending")])
        begins = begins_of(copies, ["digest"])
        size = numbers(copies["size"], 0)
        several = of_group(begins, np.ones(len(copies)), np.add) > 1
        first = begins & several
        self.doubled += int(first.sum())
        self.doubled_octets += int(size[several].sum()) - int(of_group(begins, size, np.maximum)[first].sum())
        doubled = copies.filter(pa.array(several)).select(["digest", "store", "size"])
        pairs = doubled.join(doubled.rename_columns(["digest", "other_store", "other_size"]), "digest",
                             join_type="inner")
        there = pairs.filter(pc.not_equal(pairs["store"], pairs["other_store"]))
        pairs = pairs.filter(pc.less(pairs["store"], pairs["other_store"]))
        self.pairs.add(pairs.append_column("contents", pa.array(np.ones(len(pairs), np.int64))).append_column(
            "octets", pc.min_element_wise(pairs["size"], pairs["other_size"])))
        held = uses.filter(pc.not_equal(uses["domain"], PUBLIC)).group_by(["store", "domain", "digest"]).aggregate([])
        homes = held.join(copies, ["store", "digest"], join_type="inner")
        size = numbers(homes["size"], 0)
        self.homes.add(pa.table({"store": homes["store"], "domain": homes["domain"], "octets": size,
                                 "freed": size * (numbers(homes["domains"], 0) == 1)}))
        met = held.join(there, ["store", "digest"], join_type="inner")
        self.met.add(pa.table({"store": met["store"], "domain": met["domain"], "to_store": met["other_store"],
                               "there": met["other_size"]}))


def _seconds(when: pa.ChunkedArray) -> Numbers:
    """Unix times; NEVER for null."""
    found = numbers(when, NEVER)
    return np.where(found == NEVER, NEVER, found // 1_000_000)


# Lists

def _users(facts: Sequence[Facts], summed: _Summed, terms: Terms) -> list[Row]:
    """All users, with and without mail, as the view `fleet_users` has them."""
    shares = {(row["store"], row["user"]): row for row in summed.shares.rows()}
    mail = {key: row | shares.get(key, {}) for row in summed.mail.rows() for key in [(row["store"], row["user"])]}
    people = {(row["store"], row["user"]): row for row in table_of(facts, "users").to_pylist()
              if row["removed"] is None}
    limits = _limits(facts)
    today, found = terms.now.astimezone(UTC).date(), []
    for key in mail.keys() | people.keys():
        held, person = mail.get(key, {}), people.get(key, {})
        limit, charged = limits.get(key, (None, None))
        newest, read = held.get("newest"), [held.get("newest_read"), person.get("last_read")]
        domain = held.get("domain")
        if domain is None:
            domain = person["domain"] or terms.settings.default_domain
        found.append({
            "store": key[0], "user": key[1], "domain": domain,
            "class": class_of_service(person.get("groups") or ()),
            **{name: held.get(name) or 0 for name in _FIGURES},
            "newest": _stamp(newest), "newest_read": _stamp(read[0]), "last_login": _day(person.get("last_login")),
            "last_read": _day(read[1]), "idle": _is_long_ago([newest], today, terms.idle),
            "reads_nothing": _is_long_ago(read, today, terms.idle),
            "limit": (terms.settings.default_quota or None) if limit is _DEFAULT else limit, "charged": charged})
    return found


_DEFAULT = object()


def _limits(facts: Sequence[Facts]) -> dict[tuple[str, str], tuple[Any, int | None]]:
    """Of each user's root the limit that was written last (of several, one of the user's own), and what is charged."""
    found: dict[tuple[str, str], tuple[Any, Any]] = {}
    charged: dict[tuple[str, str], int | None] = {}
    for row in table_of(facts, "quotas").to_pylist():
        if row["kind"] == "user":
            key = row["store"], row["root"]
            used = row["used_octets"]
            charged[key] = charged.get(key) if used is None else (charged.get(key) or 0) + used
            order = row["written"], not row["default_octets"], row["limit_octets"] or 0
            if key not in found or order > found[key][0]:
                found[key] = order, _DEFAULT if row["default_octets"] else row["limit_octets"]
    return {key: (limit, charged[key]) for key, (_, limit) in found.items()}


def _is_long_ago(times: Sequence[datetime | None], today: date, idle: int) -> bool:
    return all(when is None or (today - when.date()).days > idle for when in times)


def _stamp(when: datetime | None) -> str | None:
    return None if when is None else f"{when:%Y-%m-%dT%H:%M:%SZ}"


def _day(when: datetime | None) -> str | None:
    return None if when is None else when.date().isoformat()


def _named(row: Row) -> Row:
    return {"store": row["store"], "partition": row["partition"], "mailbox": row["name"], "kind": row["kind"],
            "messages": row["messages"], "logical": row["logical"], "newest": _stamp(row["newest"])}


def _is_over(user: Mapping[str, Any]) -> bool:
    return user["limit"] is not None and user["charged"] is not None and user["charged"] > user["limit"]


def _over_quota(users: Sequence[Row]) -> list[Row]:
    found = [{"store": user["store"], "user": user["user"], "charged": user["charged"], "limit": user["limit"],
              "per_cent": 100 * user["charged"] // user["limit"]} for user in users
             if user["limit"] and user["charged"] is not None and 10 * user["charged"] >= 9 * user["limit"]]
    return sorted(found, key=lambda row: (-row["per_cent"], row["store"], row["user"]))


def _never_reading(users: Sequence[Row]) -> list[Row]:
    found = [{name: user[name] for name in ("store", "user", "logical", "fair_share", "freed", "newest", "newest_read",
                                            "last_read", "last_login")}
             for user in users if user["reads_nothing"] and user["logical"] > 0 and user["user"] != PUBLIC]
    return sorted(found, key=lambda row: (-row["freed"], row["store"], row["user"]))


def _partitions(facts: Sequence[Facts], found: Sums) -> list[Row]:
    volumes = {(row["store"], row["partition"]): row for row in table_of(facts, "volumes").to_pylist()}
    rows = []
    for row in sorted(found.rows(), key=lambda row: (row["store"], row["partition"])):
        volume = volumes.get((row["store"], row["partition"]), {})
        rows.append({**{name: row[name] for name in ("store", "partition", "files", "file_octets", "waiting")},
                     "volume": volume.get("octets"), "free": volume.get("free")})
    return rows


def _ordered(found: Sums, figure: str, *then: str) -> list[Row]:
    """The rows of a list, the largest first."""
    return sorted(found.rows(), key=lambda row: (-row[figure], *(row[name] for name in then)))


def _moves(summed: _Summed) -> list[Row]:
    """Which domain of one back end should live where others have the same messages."""
    homes = {(row["store"], row["domain"]): row for row in summed.homes.rows()}
    found = []
    for row in summed.met.rows():
        home = homes[row["store"], row["domain"]]
        added = home["octets"] - row["there"]
        if home["freed"] > added:
            found.append({"domain": row["domain"], "store": row["store"], "to_store": row["to_store"],
                          "octets": home["octets"], "freed": home["freed"], "added": added,
                          "saved": home["freed"] - added})
    return sorted(found, key=lambda row: (-row["saved"], row["domain"], row["store"], row["to_store"]))
