"""The figures of the quota report, from the rows of `reportjob`: levels, limits, growth, and whether the sums agree.

No Spark. A report is what --json prints: see docs/quota-report.md. Its lists are lists of dictionaries, octets are
integers, times are RFC 3339 in UTC.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as parquet
from attrs import evolve, field, frozen

from mboxlist import privatefiles
from mboxlist.names import PUBLIC, SEPARATOR
from store.settings import Settings
from store.tables.quotatable import DEFAULT, DOMAIN, UNLIMITED, QuotaUse
from tools.exits import Failure
from tools.spark.report.lists import NO_LISTS, by, kinds_of
from tools.spark.report.reportjob import Read, gone

Row = dict[str, Any]

VERSION = 1
LEVELS = ("users", "mailboxes", "domains", "partitions", "stores", "roots")
LISTS = ("classes", "ages", "kinds", "sizes", "messages", "senders", "purge")       # see `lists`
FIGURES = ("messages", "logical", "unique", "shared", "fair_share", "freed")
_IDS = ("store", "partition", "domain", "user", "name")
# What is summed up of the rows of mailboxes: unique and freed are others on each level.
_SUMS = {
    "mailboxes": (("store", "partition", "name", "user", "domain", "quota_root"), "unique", "freed"),
    "users": (("store", "user", "domain"), "user_unique", "user_freed"),
    "domains": (("store", "domain"), "domain_unique", "domain_freed"),
    "partitions": (("store", "partition"), "logical", "file_octets"),
    "stores": (("store",), "logical", "file_octets"),
}


@frozen
class Live:
    """What a store that is open knows beside its files: the row of each root, as it is charged, and on how many octets
    and messages a fresh count came where the files differ; and the class of service of users who have one."""

    uses: Mapping[str, QuotaUse]
    drift: Mapping[str, tuple[int, int]]
    now: int
    classes: Mapping[str, str] = field(factory=dict)


@frozen
class Terms:
    """What figures are held against. `idle` is in days."""

    settings: Settings
    now: datetime
    idle: int = 180


def report(held: pa.Table, read: Read, terms: Terms, live: Live | None = None) -> dict[str, Any]:
    """The whole report; `held` is that of `read`, or what would be left."""
    mailboxes = held.filter(pa.compute.is_valid(held["user"]))
    waiting = _by(held.filter(pa.compute.is_null(held["user"])), ("store", "partition"), {
        "waiting": "file_octets", "waiting_files": "files"})
    made: dict[str, Any] = {level: _level(mailboxes, level, terms) for level in _SUMS}
    _place(made["partitions"], waiting, read, held)
    made["roots"] = roots(mailboxes, read.quotas, terms.settings, live)
    _limit(made, {(row["store"], row["root"]): row for row in made["roots"]})
    _sort(made)
    for user in made["users"]:
        user["class"] = None if live is None else live.classes.get(user["user"], "-")
    made["classes"] = None if live is None else by(made["users"], "class", lambda user: bool(user["over"]))
    made["totals"] = _totals(made, terms)
    lists = {**NO_LISTS, **(read.lists or {})}
    made["totals"]["rubbish"] = lists.pop("rubbish")
    made |= lists | {"kinds": kinds_of(lists["ages"])}
    return {"version": VERSION, "created": stamp(terms.now), "live": live is not None,
            "charging": terms.settings.quota_charge, "default_quota": terms.settings.default_quota or None,
            "idle_days": terms.idle, **made}


def stamp(when: datetime | None) -> str | None:
    """RFC 3339, in UTC and whole seconds."""
    return None if when is None else when.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


# Levels

def _by(table: pa.Table, keys: Sequence[str], sums: Mapping[str, str]) -> dict[tuple[Any, ...], Row]:
    """Sums of columns by keys."""
    found = table.group_by(list(keys)).aggregate([(column, "sum") for column in dict.fromkeys(sums.values())])
    return {tuple(row[key] for key in keys): {name: row[f"{column}_sum"] or 0 for name, column in sums.items()}
            for row in found.to_pylist()}


def _level(mailboxes: pa.Table, level: str, terms: Terms) -> list[Row]:
    """The rows of a level."""
    keys, unique, freed = _SUMS[level]
    columns = {"messages": "messages", "logical": "logical", "unique": unique, "fair_share": "fair_share",
               "freed": freed}
    aggregates = [(column, "sum") for column in dict.fromkeys(columns.values())]
    times = [(name, "max") for name in ("newest", "newest_read", "last_login", "last_read")]
    found = mailboxes.group_by(list(keys)).aggregate([*aggregates, *times])
    rows = []
    for row in found.to_pylist():
        figures = {name: row[f"{column}_sum"] or 0 for name, column in columns.items()}
        figures["shared"] = figures["logical"] - figures["unique"]
        made = {"mailbox" if key == "name" else key: row[key] for key in keys}
        made |= {name: figures[name] for name in FIGURES}
        if level in ("users", "mailboxes"):
            made |= _age(row["newest_max"], terms)
        if level == "users":
            made |= _reading(row, terms)
        rows.append(made)
    return rows


def _reading(row: Row, terms: Terms) -> Row:
    """When the user was last there, as far as that is on record; and whether the user has read anything lately: the
    record began with a version of onecopy, and what is \\Seen was read (or written by the user)."""
    login, read, newest = row["last_login_max"], row["last_read_max"], row["newest_read_max"]
    return {"last_login": _day(login), "last_read": _day(read), "newest_read": stamp(newest),
            "reads_nothing": all(_is_long_ago(when, terms) for when in (read, newest))}


def _day(when: datetime | None) -> str | None:
    return None if when is None else when.date().isoformat()


def _is_long_ago(when: datetime | None, terms: Terms) -> bool:
    return when is None or (terms.now - when).days > terms.idle


def _age(newest: datetime | None, terms: Terms) -> Row:
    """When something came last, and whether that is long ago; who never had a message is idle, too."""
    return {"newest": stamp(newest), "idle": _is_long_ago(newest, terms)}


def _place(partitions: list[Row], waiting: Mapping[tuple[Any, ...], Row], read: Read, held: pa.Table) -> None:
    """Add to partitions their files, and what waits for the purge; also to those that have no mailboxes."""
    files = {(row["store"], row["partition"]): row for row in read.files.to_pylist()}
    lost = _by(held, ("store", "partition"), {
        "missing_files": "missing", "missing": "missing_octets", "staged": "staged_octets",
        "staged_files": "staged_files"})
    known = {(row["store"], row["partition"]) for row in partitions}
    for store, partition in sorted({*files, *waiting} - known):
        partitions.append({"store": store, "partition": partition, **dict.fromkeys(FIGURES, 0)})
    for row in partitions:
        key = row["store"], row["partition"]
        row |= {"waiting": 0, "waiting_files": 0} | waiting.get(key, {})
        extra = lost.get(key, dict.fromkeys(("missing_files", "missing", "staged", "staged_files"), 0))
        there = files.get(key, {"files": 0, "octets": 0})
        row |= {"files": there["files"] + extra["staged_files"], "file_octets": there["octets"] + extra["staged"],
                "missing_files": extra["missing_files"], "missing": extra["missing"]}


def differences(made: Mapping[str, Any]) -> list[str]:
    """Where fair shares and what waits for the purge are not the octets of the message files, to the octet."""
    found = []
    users = sum(row["fair_share"] for row in made["users"])
    for level in ("mailboxes", "domains", "partitions", "stores"):
        if (other := sum(row["fair_share"] for row in made[level])) != users:
            found.append(f"the fair shares of {level} are {other - users:+} octets beside those of users")
    for row in made["partitions"]:
        off = row["fair_share"] + row["waiting"] - row["file_octets"] - row["missing"]
        if off:
            found.append(f"{row['store']}, partition {row['partition']}: fair shares and what waits for the purge are "
                         f"{off:+} octets beside the {row['file_octets']} octets of message files")
    return found


# Quota roots

def roots(mailboxes: pa.Table, quotas: pa.Table, settings: Settings, live: Live | None) -> list[Row]:
    """A row for each quota root, domains among them."""
    used = _uses(mailboxes, settings)
    limits = {(row["store"], _root(row["root"], settings)): row for row in quotas.to_pylist()}
    every = {*used, *limits}
    if live is not None:
        stores = {store for store, _ in every}
        every |= {(store, root) for store in stores if len(stores) == 1 for root in live.uses}
    found = []
    for store, root in sorted(every):
        octets, messages, discount = used.get((store, root), (0, 0, 0))
        use = QuotaUse(octets, messages, *_limits(limits.get((store, root)), root), discount=discount)
        found.append({"store": store, "root": root, "kind": _kind(root), **_fullness(use, settings),
                      **_known(root, use, settings, live)})
    return found


def _root(text: str, settings: Settings) -> str:
    return DOMAIN + settings.default_domain if text == DOMAIN else text


def _kind(root: str) -> str:
    return "domain" if root.startswith(DOMAIN) else "mailbox" if SEPARATOR in root else "user"


def _limits(limits: Row | None, root: str) -> tuple[int, int]:
    """The limits as the store keeps them; where no file says anything, users have the defaults."""
    if limits is None:
        return (DEFAULT, DEFAULT) if _kind(root) == "user" else (UNLIMITED, UNLIMITED)
    octets, messages = (DEFAULT if limits[f"default_{name}"] else UNLIMITED if limits[f"limit_{name}"] is None
                        else limits[f"limit_{name}"] for name in ("octets", "messages"))
    return octets, messages


def _uses(mailboxes: pa.Table, settings: Settings) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Octets, messages and discount of each root, and of each domain their sum. The discount is what `store.discounts`
    reckons: on each partition what a user's fair share is less than the user's messages, divided among the roots."""
    charged = mailboxes.filter(pa.compute.is_valid(mailboxes["quota_root"]))
    of_users = _by(mailboxes, ("store", "partition", "user"), {"octets": "logical", "fair": "fair_share"})
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    rows = _by(charged, ("store", "partition", "user", "domain", "quota_root"), {
        "octets": "logical", "messages": "messages"})
    for (store, partition, user, domain, root), row in rows.items():
        user_has = of_users[store, partition, user]
        whole = max(0, user_has["octets"] - user_has["fair"])
        discount = whole * row["octets"] // user_has["octets"] if user_has["octets"] else 0
        for key in [(store, root)] + [(store, DOMAIN + domain)] * (user != PUBLIC):
            octets, messages, less = found.get(key, (0, 0, 0))
            found[key] = octets + row["octets"], messages + row["messages"], less + discount
    return found


def _fullness(use: QuotaUse, settings: Settings) -> Row:
    """What the accounts say of a root: what is charged, how full it is, and whether that is too much."""
    octets, messages = use.limits(settings)
    charged = use.accounted(settings)
    return {"octets": use.octets, "messages": use.messages, "charged": charged.octets, "limit": octets,
            "message_limit": messages, "per_cent": charged.per_cent(settings),
            "over": octets is not None and charged.octets > octets or messages is not None and use.messages > messages,
            "warned": charged.deserves_warning(settings)}


def _known(root: str, use: QuotaUse, settings: Settings, live: Live | None) -> Row:
    """What only a store that is open knows; null where there is none."""
    nothing = dict.fromkeys(("refused_since", "in_grace", "counter_octets", "counter_messages", "drift_octets",
                             "drift_messages"))
    if live is None:
        return nothing
    if root.startswith(DOMAIN):
        return nothing | {"in_grace": False}
    counted = live.uses.get(root, QuotaUse())
    drift = live.drift.get(root, (0, 0))
    return {"refused_since": stamp(datetime.fromtimestamp(counted.refused, UTC)) if counted.refused else None,
            "in_grace": bool(counted.refused) and live.now - counted.refused < settings.quota_grace,
            "counter_octets": counted.octets, "counter_messages": counted.messages,
            "drift_octets": drift[0], "drift_messages": drift[1]}


def apart(rows: Iterable[Row], uses: Mapping[str, QuotaUse]) -> list[str]:
    """The roots (not domains) whose counters are not what the files say: these are to be looked at in the store."""
    return [row["root"] for row in rows if row["kind"] != "domain"
            and (row["octets"], row["messages"]) != (
                (known := uses.get(row["root"], QuotaUse())).octets, known.messages)]


_OF_USERS = ("charged", "limit", "message_limit", "per_cent", "over", "warned", "refused_since", "in_grace",
             "drift_octets", "drift_messages")


def _limit(made: Row, known: Mapping[tuple[str, str], Row]) -> None:
    """Add to users and domains what their roots say; to mailboxes, what a root of their own does."""
    nothing: Row = {**dict.fromkeys(_OF_USERS), "charged": 0, "over": False, "warned": False}
    for row in made["users"]:
        root = known.get((row["store"], row["user"]), nothing)
        row |= {name: root[name] for name in _OF_USERS}
    for row in made["domains"]:
        root = known.get((row["store"], DOMAIN + row["domain"]), nothing)
        row |= {name: root[name] for name in _OF_USERS[:6]}
    counts = Counter((user["store"], user["domain"]) for user in made["users"])
    for row in made["domains"]:
        row["users"] = counts[row["store"], row["domain"]]


def _sort(made: Row) -> None:
    """Largest first, where that says something."""
    for level in ("users", "domains", "stores", "partitions"):
        made[level].sort(key=lambda row: (-row["fair_share"], *(str(value) for value in row.values())))
    made["mailboxes"].sort(key=lambda row: (row["store"], row["mailbox"], row["partition"]))


def _totals(made: Row, terms: Terms) -> Row:
    users, partitions = made["users"], made["partitions"]
    found: Row = {name: sum(row[name] for row in partitions) for name in (
        "messages", "logical", "fair_share", "files", "file_octets", "waiting", "waiting_files", "missing_files",
        "missing")}
    of_users = [root for root in made["roots"] if root["kind"] != "domain"]
    return found | {
        "stores": len(made["stores"]), "partitions": len(partitions), "domains": len(made["domains"]),
        "users": len(users), "mailboxes": len(made["mailboxes"]), "spared": found["logical"] - found["fair_share"],
        "over": sum(user["over"] for user in users), "warned": sum(user["warned"] for user in users),
        "in_grace": sum(bool(user["in_grace"]) for user in users) if any(
            user["in_grace"] is not None for user in users) else None,
        "drifted": sum(bool(root["drift_octets"] or root["drift_messages"]) for root in of_users) if any(
            root["drift_octets"] is not None for root in of_users) else None,
        "idle": sum(user["idle"] for user in users),
        "reads_nothing": sum(user["reads_nothing"] for user in users)}


# Growth

def grown(made: Row, before: Mapping[str, Any] | None) -> None:
    """Add to users how much they have grown since an earlier report: null without one. Also to the totals."""
    earlier = {(row["store"], row["user"]): row["logical"] for row in before["users"]} if before is not None else None
    for row in made["users"]:
        row["growth"] = None if earlier is None else row["logical"] - earlier.get((row["store"], row["user"]), 0)
    made["since"] = None if before is None else before["created"]
    made["totals"]["growth"] = None if earlier is None else made["totals"]["logical"] - sum(earlier.values())
    for level, key, figure in (("partitions", "partition", "file_octets"), ("roots", "root", "charged")):
        known = {(row["store"], row[key]): row[figure] for row in (before or {}).get(level, ())}
        for row in made[level]:
            old = known.get((row["store"], row[key]))
            row["growth"] = None if old is None else row[figure] - old
            left = row.get("free")                      # of a partition
            if level == "roots" and row["limit"] is not None:
                left = row["limit"] - row[figure]
            row["full_on"] = None if old is None or before is None else full_on(
                made["created"], before["created"], row["growth"], left)


def full_on(now: str, before: str, growth: int, left: int | None) -> str | None:
    """The day on which something is full of which so many octets are left, if it goes on growing as it did between
    these times; None where it does not grow, or is full now."""
    end, begin = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (now, before))
    days = (end - begin).total_seconds() / 86_400
    if growth <= 0 or days <= 0 or left is None or left < 0:
        return None
    return (end + timedelta(min(left * days / growth, 36_500))).date().isoformat()


def with_room(made: Row) -> None:
    """Add to partitions how large their file systems are, and what is free there; null where that cannot be asked."""
    for row in made["partitions"]:
        row |= {"volume": None, "free": None}
        for folder in (Path(row["store"], "partitions", row["partition"]), Path(row["store"])):
            with suppress(OSError):
                status = os.statvfs(folder)
                row |= {"volume": status.f_blocks * status.f_frsize, "free": status.f_bavail * status.f_frsize}
                break


_GROWING = {"users": ("store", "user", "logical"), "partitions": ("store", "partition", "file_octets"),
            "roots": ("store", "root", "charged")}


def earlier(path: Path) -> Row:
    """An earlier report: a file that --json wrote, or the newest in a folder that --parquet wrote. Raises Failure."""
    try:
        if path.is_dir():
            newest = max((path / "users").glob("*.parquet"), key=lambda file: file.name, default=None)
            if newest is None:
                raise Failure(f"there is no report in {path}")
            table = parquet.read_table(newest, columns=["created", *_GROWING["users"]])
            others = {level: parquet.read_table(file, columns=list(columns)).to_pylist()
                      for level, columns in _GROWING.items() if (file := path / level / newest.name).exists()}
            return {"created": table["created"][0].as_py(), **others}
        found = json.loads(privatefiles.read_text(path))
        return {"created": str(found["created"]), **{level: [
            {"store": str(row["store"]), key: str(row[key]), figure: int(row[figure])} for row in found[level]]
            for level, (_, key, figure) in _GROWING.items()}}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path} is not a report of onecopy: {getattr(error, 'strerror', None) or error}") from None


def save(made: Mapping[str, Any], folder: Path) -> None:
    """Write the lists of a report as Parquet, a file each in a folder each: DIR/users/20261122T034557Z.parquet."""
    name = made["created"].replace("-", "").replace(":", "") + ".parquet"
    for level in (*LEVELS, *LISTS):
        rows = [{"created": made["created"], **row} for row in made[level] or ()]
        if not rows:
            continue
        privatefiles.make_folder(folder / level, parents=True, exist_ok=True)
        with privatefiles.replacing(folder / level / name, sync=False) as file:
            parquet.write_table(pa.Table.from_pylist(rows, schema_of(rows)), file, compression="zstd")


_TEXTS = frozenset({"created", "store", "partition", "domain", "user", "mailbox", "quota_root", "root", "kind",
                    "newest", "newest_read", "last_login", "last_read", "refused_since",
                    "full_on", "class", "age", "size_class", "digest", "sender"})
_TRUTHS = frozenset({"over", "warned", "idle", "reads_nothing", "in_grace"})


def schema_of(rows: Sequence[Row]) -> pa.Schema:
    """The types of the columns, which do not depend on what is null in one report. (Of classes, how many users: 1.)"""
    return pa.schema([(name, pa.string() if name in _TEXTS else pa.bool_() if name in _TRUTHS and type(
        rows[0][name]) is not int else pa.int64()) for name in rows[0]])


def with_default(terms: Terms, default_quota: int | None, charging: str | None) -> Terms:
    """Other terms, for a report of what would be."""
    settings = terms.settings
    if default_quota is not None:
        settings = evolve(settings, default_quota=default_quota)
    if charging is not None:
        settings = evolve(settings, quota_charge=charging)
    return evolve(terms, settings=settings)


# What is wrong

def lost(read: Read) -> list[str]:
    """Message files that records refer to and that are not there, and folders that cannot be read."""
    found, lost = [], dict[tuple[Any, ...], list[Row]]()
    for row in read.lost.to_pylist():
        lost.setdefault(tuple(row[name] for name in _IDS), []).append(row)
    for row in read.held.filter(pa.compute.greater(pa.compute.fill_null(read.held["missing"], 0), 0)).to_pylist():
        known = lost.get(tuple(row[name] for name in _IDS), [])
        files = gone((one["store"], one["partition"], one["digest"], one["size"]) for one in known)
        if count := row["missing"] - len(known) + len(files):       # what was not looked for again is missing
            example = f", such as {files[0][2]}" if files else ""
            found.append(f"{row['store']}, partition {row['partition']}: {count} message files of {row['name']} are "
                         f"missing or cut off{example}")
    return found + [f"{row['store']}, partition {row['partition']}: {row['path']} could not be read"
                    for row in read.unread.to_pylist()]


def oddities(read: Read) -> list[str]:
    """Mailboxes of which not all was read, or that changed meanwhile."""
    found = []
    for row in read.held.filter(pa.compute.is_valid(read.held["records"])).to_pylist():
        if row["headless"]:
            found.append(f"{row['name']}: the head of its store.idx is lost")
        elif row["records"] != (row["messages"] or 0):
            found.append(f"{row['name']}: {row['messages'] or 0} of {row['records']} records were read: its store.idx "
                        "is damaged, or was written meanwhile")
    return found
