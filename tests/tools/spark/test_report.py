"""`onecopy quota report`: against figures by hand, and against `store.accounting`, which reads the databases."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.mailboxes import namespace
from store.mailboxes.expunge import remove
from store.opening import open_store
from store.quota import roots as quotaroots
from store.quota.accounting import reckon, sharing
from store.settings import Settings
from store.values import InternalDate
from tests.support.stores.stores import SMALL, deliver, make_store
from tests.support.stores.whole import random_store
from tests.tools.spark.conftest import LOCAL
from tools.cli import program
from tools.spark.generate.generator import Shape, generate
from tools.spark.report import drift, reportjob, reportlocal
from tools.spark.report.lists import Against
from tools.spark.report.reportjob import TooManyMailboxes, read
from tools.spark.report.totals import Terms, differences, earlier, lost, oddities, report, with_default
from tools.spark.report.what_if import Left, compared, rules_of

WHERE = [LOCAL]             # a cluster makes the same rows: test_death, test_source
TRACE = b"Return-Path: <a@example.org>\r\n"         # 30 octets
LISTS = ("mailboxes", "classes", "ages", "kinds", "sizes", "messages", "senders", "purge")
FIGURES = ("messages", "logical", "unique", "shared", "fair_share", "freed")
SETTINGS = Settings(default_domain="example.org", default_quota=110)
NOW = datetime.now(UTC) + timedelta(40)
AGAINST = Against(NOW, 5)
RULES = Left([rules_of(text) for text in (
    "folderpattern: *; messagedays: 0; action: report", "folderpattern: *; messagedays: 0; action: fileinto:Old",
    "folderpattern: user/*/Trash; savedays: 30", "folderpattern: user/*/INBOX; messagesize: 50; messagesizedays: 30",
    "folderpattern: public/*; savedays: 30")], NOW.timestamp())


def body(number, size):
    return (b"Subject: %d\r\n\r\n" % number).ljust(size, b"x")


def fill(root):
    """Files of 131, 50, 100 and 40 octets; the last one waits for the purge."""
    store = make_store(root, ("alice", "bob", "carol@b.org", "dora"))
    for name in ("user/alice/Archive", "user/alice/Trash", "public/news"):
        namespace.create_mailbox(store, MailboxName.parse(name))
    old = InternalDate(1_000_000_000)
    deliver(store, body(1, 101), "user/alice/INBOX", "user/alice/Archive", "user/bob/INBOX", trace=TRACE, received=old)
    deliver(store, body(2, 50), "user/alice/INBOX", received=old)
    deliver(store, body(3, 100), "user/alice/Trash", "public/news", "user/carol@b.org/INBOX", received=old)
    deliver(store, body(4, 40), "user/bob/INBOX", received=old)
    remove(store, store.entry(MailboxName("bob", "INBOX")), [2])
    quotaroots.set_quota(store, "alice", 280)
    quotaroots.set_quota(store, "alice/Archive", 1000)
    quotaroots.set_quota(store, "bob", 131)
    quotaroots.set_quota(store, "@b.org", 200)
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Three back ends, and what the databases of each say."""
    folder = tmp_path_factory.mktemp("report")
    hand, random, made = (folder / name for name in ("hand", "random", "made"))
    opened = [fill(hand), random_store(random, 11)]
    generate(made, Shape(300, 12, 6, seed=9, small=True))
    opened.append(open_store(made, SMALL))
    accounts = {}
    for store in opened:
        accounts[str(store.root)] = sharing(store), {
            root: (use.octets, use.messages, use.octet_limit if use.octet_limit >= 0 else None)
            for partition in store.partitions.values() for root, use in partition.quotas.all()}
        store.close()
    return accounts


@pytest.fixture(scope="module")
def found(spark, stores):
    """One reading of all three, with the lists, and with what three rules would leave."""
    return read(spark, list(stores), "example.org", RULES, AGAINST)


@pytest.fixture
def made(found):
    return report(found.held, found, Terms(SETTINGS, NOW))


def of(rows, store, key):
    return {row[key]: tuple(row[name] for name in FIGURES) for row in rows if row["store"] == store}


def test_by_hand(made, stores):
    """The file of 131 octets: 66 are alice's, 33 of them for each of her mailboxes. That of 100 octets: b.org comes
    before example.org, so carol has 34."""
    hand = list(stores)[0]
    assert of(made["users"], hand, "user") == {
        "alice": (4, 412, 50, 362, 149, 50), "bob": (1, 131, 0, 131, 65, 0), "carol@b.org": (1, 100, 0, 100, 34, 0),
        "public/": (1, 100, 0, 100, 33, 0), "dora": (0, 0, 0, 0, 0, 0)}
    assert of(made["mailboxes"], hand, "mailbox") == {
        "user/alice/INBOX": (2, 181, 50, 131, 83, 50), "user/alice/Archive": (1, 131, 0, 131, 33, 0),
        "user/alice/Trash": (1, 100, 0, 100, 33, 0), "user/bob/INBOX": (1, 131, 0, 131, 65, 0),
        "user/carol@b.org/INBOX": (1, 100, 0, 100, 34, 0), "public/news": (1, 100, 0, 100, 33, 0),
        "user/dora/INBOX": (0, 0, 0, 0, 0, 0)}
    assert of(made["domains"], hand, "domain") == {
        "example.org": (5, 543, 443, 100, 214, 181), "b.org": (1, 100, 0, 100, 34, 0),
        "public/": (1, 100, 0, 100, 33, 0)}
    assert of(made["stores"], hand, "store") == {hand: (7, 743, 743, 0, 281, 281)}
    row, = [row for row in made["partitions"] if row["store"] == hand]
    assert [row[name] for name in (*FIGURES, "waiting", "waiting_files", "files", "file_octets")] == [
        7, 743, 743, 0, 281, 281, 40, 1, 4, 321]


def test_limits_by_hand(made, stores):
    hand = list(stores)[0]
    roots = {row["root"]: (row["charged"], row["limit"], row["per_cent"], row["over"], row["warned"])
             for row in made["roots"] if row["store"] == hand}
    assert roots == {
        "alice": (281, 280, 100, True, True), "alice/Archive": (131, 1000, 13, False, False),
        "bob": (131, 131, 100, False, True), "carol@b.org": (100, 110, 90, False, True),
        "dora": (0, 110, 0, False, False), "public/news": (100, None, None, False, False),
        "@b.org": (100, 200, 50, False, False), "@example.org": (543, None, None, False, False)}
    users = {row["user"]: (row["newest"] is not None, row["idle"]) for row in made["users"] if row["store"] == hand}
    assert users["alice"] == (True, False) and users["dora"] == (False, True)


@pytest.mark.parametrize("at", range(3))
def test_against_accounting(made, stores, at):
    """Every figure of every level is what `onecopy quota sharing` says."""
    store, (accounts, uses) = list(stores.items())[at]
    for level, key in (("users", "user"), ("mailboxes", "mailbox"), ("domains", "domain"),
                       ("partitions", "partition")):
        expected = {name: (share.messages, share.octets, share.unique, share.shared, share.fair, share.freed)
                    for name, share in getattr(accounts, level).items()}
        assert of(made[level], store, key) == expected, level
    assert {row["partition"]: row["waiting"] for row in made["partitions"] if row["store"] == store} == accounts.waiting
    roots = {row["root"]: (row["octets"], row["messages"], None if row["limit"] == 110 else row["limit"])
             for row in made["roots"] if row["store"] == store and row["kind"] != "domain"}
    assert roots == {root: (0, 0, None) for root in roots} | uses


def test_the_sums_are_the_files_on_disk(made, found):
    for row in made["partitions"]:
        files = list(Path(row["store"], "partitions", row["partition"], "messages").glob("?/??/*"))
        assert (row["files"], row["file_octets"]) == (len(files), sum(path.stat().st_size for path in files))
        assert row["fair_share"] + row["waiting"] == row["file_octets"]
    assert differences(made) == lost(found) == oddities(found) == []
    assert any(row["waiting"] for row in made["partitions"])


def test_what_expiry_frees(made, found, stores):
    """By hand: five references go, and the file of 100 octets with its last one; those of 131 and 50 stay."""
    hand = list(stores)[0]
    after = report(found.after, found, Terms(SETTINGS, NOW))
    assert of(after["mailboxes"], hand, "mailbox") == {
        "user/alice/INBOX": (1, 50, 50, 0, 50, 50), "user/alice/Archive": (1, 131, 131, 0, 131, 131),
        **dict.fromkeys(("user/alice/Trash", "user/bob/INBOX", "user/carol@b.org/INBOX", "public/news",
                         "user/dora/INBOX"), (0, 0, 0, 0, 0, 0))}
    before, = [row for row in made["partitions"] if row["store"] == hand]
    row, = [row for row in after["partitions"] if row["store"] == hand]
    assert (before["fair_share"] - row["fair_share"], row["waiting"]) == (100, 140)
    told = compared(made, after)
    assert told["freed"] == made["totals"]["fair_share"] - after["totals"]["fair_share"] >= 100
    assert differences(after) == []


def test_fair_charging_by_hand(found, stores):
    """alice's 412 octets are 149 fair: 263 less, 179 of them for her own root and 83 for Archive."""
    hand = list(stores)[0]
    then = report(found.held, found, with_default(Terms(SETTINGS, NOW), None, "fair"))
    charged = {row["root"]: (row["charged"], row["over"]) for row in then["roots"] if row["store"] == hand}
    assert charged["alice"] == (102, False) and charged["alice/Archive"] == (48, False)
    assert charged["bob"] == (65, False) and charged["carol@b.org"] == (34, False)


def alike(one, other):
    """Whether two readings make the same report, and find the same wrong; also with what rules would leave."""
    for held, own in ((one.held, other.held), (one.after, other.after)):
        made = report(held, one, Terms(SETTINGS, NOW))
        assert made == report(own, other, Terms(SETTINGS, NOW)) and made["users"]
        assert differences(made) == []
    assert sorted(lost(one)) == sorted(lost(other)) and sorted(oddities(one)) == sorted(oddities(other))
    assert one.lists == other.lists and one.lists["ages"] and one.lists["sizes"]


def test_one_process_reads_the_same(found, stores, monkeypatch):
    """Also in ranges of digests."""
    monkeypatch.setattr(reportlocal, "RANGE_ROWS", 100)
    alike(found, reportlocal.read(list(stores), "example.org", RULES, AGAINST))


def test_lists_by_hand(stores):
    """Saved a moment ago and looked at 40 days later. Files of 131 octets (3 records), 50, 100 (3) and 40, which nobody
    has; none is in Junk or Trash alone, since that of 100 octets is public, too."""
    made = reportlocal.read(list(stores)[:1], "example.org", None, AGAINST).lists
    assert {row["age"] for row in made["ages"]} == {"6 months"}
    assert {row["kind"]: (row["messages"], row["logical"], row["unread"]) for row in made["ages"]} == {
        "INBOX": (4, 412, 4), "others": (2, 231, 2), "public": (1, 100, 1)}
    assert made["sizes"] == [{"size_class": "10 KiB", "files": 4, "file_octets": 321, "messages": 7, "logical": 743}]
    assert [(row["size"], row["records"], row["holders"]) for row in made["messages"]] == [
        (131, 3, 2), (100, 3, 3), (50, 1, 1), (40, 0, 0)]
    assert (made["rubbish"], made["senders"], made["purge"]) == (0, None, None)


def test_one_process_finds_the_same_wrong(spark, tmp_path, monkeypatch):
    """Message files that are gone, a message that is only staged, a head that is lost, and a folder that is none."""
    store = fill(tmp_path / "store")
    partition = store.partitions["primary"]
    deliver(store, body(6, 300), "user/alice/INBOX", "user/bob/INBOX")
    store.close()
    for path in (partition.folder / "messages").glob("?/??/*"):
        if path.stat().st_size == 131:
            path.unlink()
        elif path.stat().st_size == 300:
            path.rename(partition.folder / "staging" / "0")
    path, = partition.folder.glob("users/*/*/bob/store.idx")
    path.write_bytes(b"x" * 1000 + path.read_bytes()[1000:])
    (tmp_path / "lost" / "messages").mkdir(parents=True)
    where = [str(tmp_path / "store"), str(tmp_path / "lost")]
    one = read(spark, where, "example.org", RULES, AGAINST)
    other = reportlocal.read(where, "example.org", RULES, AGAINST)
    alike(one, other)
    assert lost(one) and any("could not be read" in line for line in lost(one)) and oddities(one)
    monkeypatch.setattr(reportjob, "MAILBOXES", 3)      # no more rows than that come into the driver
    with pytest.raises(TooManyMailboxes, match="--fleet"):
        read(spark, where, "example.org")


# The command

@pytest.fixture
def command(in_session, capsys):
    """Runs `onecopy quota report` in the session of these tests."""
    def run(*words, status=0):
        assert program.main(["quota", "report", "--engine", "spark", *map(str, words)]) == status
        return capsys.readouterr()

    return run


def test_an_open_store(command, tmp_path, capsys):
    """Counters that are wrong are told, corrected, and right the next time; who is nearly full gets a notice; a page
    and Parquet files are written, and the next report tells the growth."""
    store = fill(tmp_path / "store")
    partition = store.partitions["primary"]
    transact(partition.env, lambda txn: partition.quotas.charge("alice", 7, 1, txn, enforce=False))
    store.close()
    where = ("--root", tmp_path / "store", "--parquet", tmp_path / "out")
    out, error = command(*where, "--json", "--fix", "--html", tmp_path / "page.html",
                         "--expire", "folderpattern: *; savedays: 30", "--expire", "folderpattern: *; messagesize: 130")
    first = json.loads(out)
    assert error == "" and first["problems"] == first["notes"] == [] and first["live"]
    alice = next(row for row in first["users"] if row["user"] == "alice")
    assert (alice["charged"], alice["drift_octets"], alice["drift_messages"], alice["growth"]) == (281, 7, 1, None)
    assert first["totals"]["drifted"] == 1
    assert first["fixed"] == ["quota root alice: the quota's use was wrong by 7 octets, 1 messages"]
    # Messages came a moment ago, whatever their internal date is: only what is large goes.
    assert (first["what_if"]["freed"], first["what_if"]["messages_gone"]) == (131, 3)
    assert (first["what_if"]["over_then"], first["what_if"]["over_no_more"]) == ([], ["alice"])
    # What only the databases know: all four have no sender, and that of 40 octets waits since a moment ago.
    assert first["senders"] == [{"sender": "-", "files": 3, "file_octets": 281, "messages": 7, "logical": 743}]
    assert [row["freed"] for row in first["purge"]] == [0] * 5 and first["totals"]["rubbish"] == 0
    assert program.main(["quota", "report", "--engine", "local", "--json", *map(str, where[:2])]) == 0
    local = json.loads(capsys.readouterr().out)
    assert {name: local[name] for name in LISTS} == {name: first[name] for name in LISTS}
    assert "<svg" in (tmp_path / "page.html").read_text()

    store = open_store(tmp_path / "store", SMALL)
    deliver(store, body(5, 77), "user/carol@b.org/INBOX", "user/dora/INBOX")
    store.close()
    out, error = command(*where, "--csv", "--notify", "--engine", "local")      # what of it is new is not the engine's
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["user"]: row["growth"] for row in rows} == {
        "alice": "0", "bob": "0", "dora": "77", "carol@b.org": "77", "public/": "0"}
    assert {row["drift_octets"] for row in rows if row["user"] != "public/"} == {"0"}
    assert len(earlier(tmp_path / "out")["users"]) == 5
    store = open_store(tmp_path / "store", SMALL)
    inbox = store.open_mailbox(store.entry(MailboxName("alice", "INBOX")))
    assert len(inbox.rows) == 3                 # the notice
    assert quotaroots.quota(store, "alice").octets == 281 + int(inbox.rows["size"][2])
    store.close()


def test_a_lost_message_file(capsys, tmp_path):
    """The report is made, says what is missing and what the difference is, and fails. (That Spark finds it, too, is
    tried above.)"""
    store = fill(tmp_path / "store")
    path, = [path for path in (tmp_path / "store/partitions/primary/messages").glob("?/??/*")
             if path.stat().st_size == 131]
    store.close()
    path.unlink()
    status, out, error = run(capsys, "--root", tmp_path / "store", "--offline", "--engine", "local")
    assert status == 1
    assert error == (f"onecopy: {tmp_path / 'store'}, partition primary: 1 message files of user/alice/Archive are "
                     f"missing or cut off, such as {path.name}\n")
    assert [line.split()[0] for line in out.splitlines()[1:6]] == ["alice", "bob", "carol@b.org", "public/", "dora"]


def run(capsys, *words):
    status = program.main(["quota", "report", *map(str, words)])
    return status, *capsys.readouterr()


@pytest.mark.parametrize(("words", "said"), [
    (("--fix", "--offline"), "--fix and --notify are for the store in --root"),
    (("--notify", "--stores", "STORE"), "--fix and --notify are for the store in --root"),
    (("--expire", "Trash"), "--expire: no colon: a line is Name.attribute: value"),
    (("--expire", "folderpattern: *; messageheader.Subject: x"), "--expire: a report reads no header fields"),
    (("--expire-rules", "none.rules"), "--expire-rules: none.rules:1:1: No such file or directory"),
    (("--idle", "x"), "argument --idle: 'x' is not a number of days"),
    (("--default-quota", "x"), "argument --default-quota: 'x': not a size"),
    (("--since", "nothing"), "nothing is not a report of onecopy: No such file or directory"),
    (("--stores", "/nowhere"), "there is no store in /nowhere"),
])
def test_wrong_use_is_said_before_spark_begins(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    make_store(tmp_path / "store").close()
    words = [str(tmp_path / "store") if word == "STORE" else word for word in words]
    status, out, error = run(capsys, "--root", tmp_path / "store", *words)
    assert (status, out) == (2, "") and error.startswith(f"onecopy: {said}") and error.count("\n") == 1


# A store that is open, without Spark

def test_drift_is_of_the_records_not_of_the_files(tmp_path):
    store = fill(tmp_path / "store")
    assert drift.drift(store, ["alice", "alice/Archive", "bob", "nobody"]) == {}
    partition = store.partitions["primary"]
    transact(partition.env, lambda txn: partition.quotas.charge("bob", -3, 0, txn, enforce=False))
    assert drift.drift(store, ["alice", "bob"]) == {"bob": (-3, 0)}
    assert drift.fix(store) == ["quota root bob: the quota's use was wrong by -3 octets, 0 messages"]
    assert drift.drift(store, ["alice", "bob"]) == {}
    assert drift.uses(store, ["dora"])["dora"].octets == 0
    store.close()


def test_discounts_are_those_of_the_store(tmp_path):
    """The arithmetic by hand above is the store's."""
    store = fill(tmp_path / "store")
    reckon(store, "primary")
    settings = attrs.evolve(store.settings, quota_charge="fair")
    assert [quotaroots.quota(store, root).accounted(settings).octets for root in ("alice", "alice/Archive", "bob",
                                                                         "carol@b.org")] == [
        102, 48, 65, 34]
    store.close()
