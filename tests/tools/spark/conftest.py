"""What the tests of Spark share: a store with a little of everything, what the Store API says of it, and sessions.

There is one session at a time, on two threads here or on a real cluster; pytest runs all tests of one before the other.
"""

import os
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from mboxlist.names import MailboxName
from store.mailboxes import deletion, firstuse, namespace, subscribing
from store.mailboxes.authorization import set_acl
from store.mailboxes.flagchanges import change_flags
from store.partitions import volumes
from store.quota import roots as quotaroots
from store.settings import Settings
from store.store import Store
from store.tables.index import chunk_key, join
from store.tables.quotatable import DEFAULT, UNLIMITED
from store.tables.state import Mailbox
from store.values import Flag, FlagAction, Flags, InternalDate
from tests.conftest import MEMORY
from tests.support.faults.planted import Faults
from tests.support.stores.messages import make
from tests.support.stores.stores import HASH, deliver, make_store
from tools.spark.source.reading import ALL, Wanted, roots, tasks
from tools.spark.source.rows import batches

QUIET = Settings(cache=1 << 20, disk_reserve=0, database_locks=20_000, default_domain="example.org",
                 special_mailboxes=())
LOCAL, CLUSTER = "local[2]", "cluster"


@frozen
class Place:
    """Two stores, closed, and the rows of each table as the Store API told them before."""

    stores: tuple[str, str]
    expected: dict[str, list[dict[str, Any]]]


def rows(stores: Any, table: str, wanted: Wanted = ALL) -> list[dict[str, Any]]:
    """What plain reading gives."""
    return [row for task in tasks(roots(stores), table, wanted) for batch in batches(task) for row in batch.to_pylist()]


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same in an order that goes by what is in the rows."""
    return sorted(found, key=lambda row: repr(sorted(row.items())))


@pytest.fixture(scope="session")
def place() -> Iterator[Place]:
    """The stores, which nobody may change."""
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        stores = (Path(folder, "a b"), Path(folder, "second"))
        expected: dict[str, list[dict[str, Any]]] = {}
        for number, root in enumerate(stores):
            store = make_store(root, ("alice", "bob", "carol@elsewhere.example"), QUIET)
            (fill if number == 0 else fill_little)(store)
            for table, told in tell(store).items():
                expected.setdefault(table, []).extend(told)
            store.close()
        yield Place((str(stores[0]), str(stores[1])), expected)


def fill(store: Store) -> None:
    """Mailboxes of all kinds on two partitions, messages with flags, keywords, dates and zones."""
    volumes.add(store, "archive")
    firstuse.inbox(store, store.directory.add("dave", HASH, partition="archive"))        # type: ignore[attr-defined]
    for name in ("user/alice/Archive/2026", "user/alice/Grüße", "user/bob/Gone", "public/news", "public/news/more"):
        namespace.create_mailbox(store, MailboxName.parse(name))
    namespace.create_mailbox(store, MailboxName.parse("user/bob/Sent"), special_use="\\Sent")
    words = ["$Work", "later", "$MDNSent"]
    for number in range(30):
        deliver(store, make(7, number, 1024 + 37 * number), "user/alice/INBOX", "user/bob/INBOX",
                *(["user/alice/Archive/2026"] if number % 3 == 0 else []),
                *(["public/news"] if number % 5 == 0 else []),
                flags=Flags(Flag(number % 32), tuple(words[:number % 4])),
                trace=b"Return-Path: <s@example.org>\r\nReceived: by example.org\r\n" if number % 2 else b"",
                header=b"Delivered-To: {}\r\n" if number % 7 == 0 else b"",
                received=InternalDate(86_400 * 400 * number, 60 * (number % 25 - 12)))
    deliver(store, make(8, 1, 5000), "user/dave/INBOX", "user/carol@elsewhere.example/INBOX")
    deliver(store, make(8, 3, 2500), "user/bob/Sent", flags=Flags(keywords=("later", "own")))    # other bits
    deliver(store, make(8, 2, 2000), "user/bob/Gone")
    deletion.delete_mailbox(store, MailboxName.parse("user/bob/Gone"))
    shared = store.entry(MailboxName.parse("user/alice/Archive/2026"))
    for name, who, rights in ((shared.name, "bob", "lrs"), (shared.name, "-bob", "t"),
                              (MailboxName.parse("public/news"), "anyone", "lr")):
        set_acl(store, name, who, rights)
    shared = store.entry(shared.name)
    change_flags(store, shared, store.open_mailbox(shared).rows["uid"][:2], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    quotaroots.set_quota(store, "alice", 5_000_000, DEFAULT)
    quotaroots.set_quota(store, "bob", UNLIMITED, 500)
    quotaroots.set_quota(store, "alice/Archive", 1_000_000, None)
    quotaroots.set_quota(store, "@elsewhere.example", 7_000_000, None)
    quotaroots.set_quota(store, "@example.org", None, 9_000)
    quotaroots.set_quota(store, "public/news", 3_000_000, 10)
    subscribing.subscribe(store, "alice", "Archive/2026")


def fill_little(store: Store) -> None:
    """Something the first one has as well."""
    deliver(store, make(7, 3, 1024 + 37 * 3), "user/alice/INBOX")


def tell(store: Store) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables, told by the databases."""
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in ("messages", "references", "mailboxes", "rights",
                                                                   "quotas")}
    entries = [(entry, 0) for entry in store.mailboxes.all()]
    entries += [(entry, when) for when, entry in store.mailboxes.deleted.all()]
    for entry, when in entries:
        partition, name = store.partitions[entry.partition], entry.name
        state = partition.state(entry.id) if not when else dict(partition.all_states())[entry.id]
        chunks = [value for _, value in partition.index.scan(chunk_key(entry.id, 0), chunk_key(entry.id + 1, 0))]
        mailbox = Mailbox(entry, state, join(chunks))
        own = {"store": str(store.root), "partition": entry.partition}
        common = {"name": str(name), "owner": name.owner, "domain": name.owner.partition("@")[2]}
        told["mailboxes"].append({
            **own, **common, "id": entry.id, "uidvalidity": state.uidvalidity, "uidnext": state.uidnext,
            "highestmodseq": state.highestmodseq, "epoch": state.epoch, "created": instant(entry.created),
            "removed": instant(when), "special_use": entry.special_use, "quota_root": state.quota_root,
            "keywords": list(state.keywords), "records": len(mailbox.rows), "damage": "", "last_login": None,
            "last_read": None,
            "subscriptions": subscribing.subscriptions(store, name.owner) if name.is_inbox() and not when else []})
        of_records = {"removed": bool(when), "special_use": entry.special_use}
        told["references"] += [own | common | reference(mailbox, row) | of_records for row in mailbox.rows]
        del common["domain"]
        told["rights"] += [
            own | common | {"mailbox": entry.id, "identifier": who.lstrip("-"), "rights": rights,
                            "negative": who.startswith("-")} for who, rights in entry.acl.items()]
    for partition in store.partitions.values():
        for digest, record in partition.refs.all():
            path = Path(partition.files.path(digest))
            told["messages"].append({
                "store": str(store.root), "partition": partition.name, "digest": digest.hex(), "octets": record.size,
                "folder": f"{path.parts[-3]}/{path.parts[-2]}", "staged": False, "damage": "",
                "modified": instant(path.stat().st_mtime_ns, 10**9), "path": str(path.relative_to(partition.folder))})
        told["quotas"] += list(quotas_of(store, partition))
    return told


def instant(value: int, unit: int = 1) -> datetime | None:
    """A time of so many units a second since 1970, cut to microseconds; None for 0."""
    return datetime.fromtimestamp(value // unit, UTC).replace(microsecond=value * 1_000_000 // unit % 1_000_000) \
        if value else None


def reference(mailbox: Mailbox, row: Any) -> dict[str, Any]:
    """A record, value by value."""
    flags = Flag(int(row["flags"]))
    return {
        "mailbox": mailbox.entry.id, "digest": bytes(row["digest"]).hex(), "octets": int(row["size"]),
        **{name: int(row[name]) for name in ("uid", "modseq", "serial", "head")}, "skip": int(row["header_length"]),
        "internal_date": datetime.fromtimestamp(int(row["received"]), UTC), "zone": int(row["zone"]),
        "saved": instant(int(row["saved"])), "keywords": list(mailbox.keyword_names(int(row["keywords"]))),
        "flags": [f"\\{flag.name.capitalize()}" for flag in Flag if flag in flags and flag.name],
        "seen": Flag.SEEN in flags, "answered": Flag.ANSWERED in flags, "flagged": Flag.FLAGGED in flags,
        "deleted": Flag.DELETED in flags, "draft": Flag.DRAFT in flags}


def quotas_of(store: Store, partition: Any) -> Iterator[dict[str, Any]]:
    """Limits of the roots that mailboxes on the partition tell of, each once."""
    here = {entry.name for entry in store.mailboxes.all() if entry.partition == partition.name}
    users = {name.owner for name in here if name.is_inbox()}
    domains = {user.partition("@")[2] for user in users}
    limits = [(user, partition.quotas.find(user)) for user in users]        # also one that has never had a message
    limits += [(root, use) for root, use in partition.quotas.all() if root.partition("/")[0] in {*users, "public"}
               and root not in users]
    limits += [("@" + domain, use) for domain, use in partition.quotas.domains() if domain in domains]
    for root, use in limits:
        yield {"store": str(store.root), "partition": partition.name, "root": root,
               "kind": "domain" if root[0] == "@" else "mailbox" if "/" in root else "user",
               "limit_octets": use.octet_limit if use.octet_limit >= 0 else None,
               "limit_messages": use.message_limit if use.message_limit >= 0 else None,
               "default_octets": use.octet_limit == DEFAULT, "default_messages": use.message_limit == DEFAULT}


# Sessions

def bare_python(folder: Path) -> Path:
    """An interpreter that has all that we need, but not onecopy itself: what a worker's host has. (A `.pth` in a folder
    that a `.pth` names does nothing: so an editable installation is not seen.)"""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session. Its parameter says where: LOCAL or CLUSTER. Plans are interpreted."""
    from tests.support.servers.classarchive import java_options
    from tests.support.servers.cluster import cluster, settings
    from tools.spark.sparksession import session
    with tempfile.TemporaryDirectory(prefix="onecopy-spark-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", java_options())
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_LOCAL_DIRS", folder)
        if request.param == CLUSTER:
            patch.setenv("PYSPARK_PYTHON", str(bare_python(Path(folder, "bare"))))
        with cluster(Path(folder)) if request.param == CLUSTER else nullcontext() as nodes:
            with session("tests", LOCAL if nodes is None else nodes.url, settings()) as made:
                made.nodes = nodes
                yield made


@contextmanager
def compiled(spark: Any) -> Iterator[None]:
    """Plans are compiled meanwhile, as they are everywhere but in the sessions of these tests."""
    from tests.support.servers.cluster import INTERPRETED
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")         # Spark's own defaults
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.fixture
def in_session(spark: Any, faults: Faults) -> None:
    """Commands use the session of these tests."""
    from tools.spark import sparksession
    faults.around(sparksession, "session", lambda *_: nullcontext(spark))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests with a session run on both, unless they, or `WHERE` of their module, say where."""
    marker = metafunc.definition.get_closest_marker("parametrize")
    if "spark" in metafunc.fixturenames and not (marker and "spark" in marker.args[0]):
        where = getattr(metafunc.module, "WHERE", [LOCAL, CLUSTER])
        metafunc.parametrize("spark", where, indirect=True, scope="session")
