"""The figures of the quota report without Spark: rules, limits, growth, sums that do not agree."""

import json
import os
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from store.settings import Settings
from store.tables.index import ROW
from store.tables.quotatable import QuotaUse
from store.values import Flag
from tools.exits import Failure
from tools.spark.report import totals
from tools.spark.report.charts import Bar, bars, columns, shortened
from tools.spark.report.page import more, number, octets
from tools.spark.report.reportjob import LOST_FILES, Read, gone
from tools.spark.report.totals import Live, Terms, differences, earlier, grown, report, save
from tools.spark.report.what_if import Left, compared, rules_in, rules_of
from tools.spark.source.schema import schema

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
SETTINGS = Settings(default_domain="example.org", default_quota=1000)
TERMS = Terms(SETTINGS, NOW)
HELD = pa.schema([(name, pa.string()) for name in ("store", "partition", "domain", "user", "name", "quota_root")] + [
    (name, pa.int64()) for name in (
        "messages", "logical", "fair_share", "unique", "freed", "user_unique", "user_freed", "domain_unique",
        "domain_freed", "files", "file_octets", "staged_octets", "staged_files", "missing", "missing_octets",
        "records", "headless")] + [
    *((name, pa.timestamp("us", "UTC")) for name in ("newest", "newest_read", "last_login", "last_read"))])


def box(user, name, messages, size, *, store="/s", root=None, newest=None, **others):
    """A mailbox whose messages nobody else has."""
    domain = user.partition("@")[2] or "example.org"
    zeros = dict.fromkeys(("staged_octets", "staged_files", "missing", "missing_octets", "headless"), 0)
    alone = dict.fromkeys(("logical", "fair_share", "unique", "freed", "user_unique", "user_freed", "domain_unique",
                           "domain_freed", "file_octets"), size)
    return {"store": store, "partition": "p", "domain": domain, "user": user, "name": f"user/{user}/{name}",
            "quota_root": root or user, "messages": messages, "records": messages, "files": messages, "newest": newest,
            **alone, **zeros, **others}


def limit(root, octets=None, messages=None, *, store="/s", default=False):
    return {"store": store, "partition": "p", "root": root, "kind": "user", "limit_octets": octets,
            "limit_messages": messages, "default_octets": default, "default_messages": default, "mailbox": 1,
            "written": NOW}


def read(boxes, limits=(), waiting=0, files=None, unread=()):
    rows = [*boxes, {"store": "/s", "partition": "p", "files": 1, "file_octets": waiting}] if waiting else list(boxes)
    octets = sum(row["file_octets"] for row in rows if row["store"] == "/s") if files is None else files
    stores = {row["store"]: sum(one["file_octets"] for one in rows if one["store"] == row["store"]) for row in rows}
    stores["/s"] = octets
    return Read(pa.Table.from_pylist(rows, HELD), None, pa.Table.from_pylist(
        [{"store": store, "partition": "p", "files": 9, "octets": size} for store, size in stores.items()]),
        pa.Table.from_pylist(list(limits), schema("quotas")), pa.Table.from_pylist(
        list(unread), pa.schema([(name, pa.string()) for name in ("store", "partition", "path")])))


def made(found, terms=TERMS, live=None):
    return report(found.held, found, terms, live)


def only(rows, **wanted):
    row, = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return row


def test_classes_of_service():
    """By hand (issue 25, item 4): users by the groups of their accounts, the largest fair share first; without an open
    store there is no telling."""
    found = read([box("alice", "INBOX", 3, 900), box("alice", "Sent", 1, 100), box("bob", "INBOX", 2, 1200),
                  box("carol@b.org", "INBOX", 1, 50, newest=NOW, newest_read=NOW), box("dora", "INBOX", 0, 0)])
    unknown = made(found)
    assert unknown["classes"] is None and {row["class"] for row in unknown["users"]} == {None}
    known = made(found, live=Live({}, {}, 0, {"alice": "gold,staff", "carol@b.org": "gold,staff", "bob": "free"}))
    assert known["classes"] == [
        {"class": "free", "users": 1, "messages": 2, "logical": 1200, "fair_share": 1200, "unique": 1200, "freed": 1200,
         "idle": 1, "reads_nothing": 1, "over": 1},
        {"class": "gold,staff", "users": 2, "messages": 5, "logical": 1050, "fair_share": 1050, "unique": 1050,
         "freed": 1050, "idle": 1, "reads_nothing": 1, "over": 0},
        {"class": "-", "users": 1, "messages": 0, "logical": 0, "fair_share": 0, "unique": 0, "freed": 0, "idle": 1,
         "reads_nothing": 1, "over": 0}]
    assert {row["user"]: row["class"] for row in known["users"]} == {
        "alice": "gold,staff", "bob": "free", "carol@b.org": "gold,staff", "dora": "-"}


# Rules

def records(*given):
    """Records of so many days and octets; \\Flagged where there is a third word."""
    rows = np.zeros(len(given), ROW)
    for at, (days, size, *flagged) in enumerate(given):
        rows[at]["uid"], rows[at]["received"], rows[at]["size"] = at + 1, NOW.timestamp() - days * 86400, size
        rows[at]["flags"] = int(Flag.FLAGGED) if flagged else 0
    return rows


def left(rules, *given, name="user/alice/Lists", use=None):
    return Left([rules_of(rule) for rule in rules], NOW.timestamp()).of(name, use, records(*given))["uid"].tolist()


def test_rules_are_those_of_expiry():
    """Each as docs/expiry.md has it."""
    every = (10, 100), (5, 100), (3, 900), (1, 10, "flagged")
    assert left(["folderpattern: user/*/Lists; messagedays: 5"], *every) == [3, 4]
    assert left(["folderpattern: user/%/List; messagedays: 5"], *every) == [1, 2, 3, 4]
    assert left(["specialuse: Trash; messagedays: 5"], *every) == [1, 2, 3, 4]
    assert left(["specialuse: Trash; messagedays: 5"], *every, use="\\Trash") == [3, 4]
    assert left(["folderpattern: *; messagecount: 1"], *every) == [4]
    assert left(["folderpattern: *; messagecount: 1; flagged: not"], *every[::-1]) == [1]
    assert left(["folderpattern: *; foldersize: 950"], *every) == [3, 4]
    assert left(["folderpattern: *; messagesize: 50; messagesizedays: 4"], *every) == [3, 4]
    exclusive = "folderpattern: user/*; messagedays: 9; exclusive: yes"
    assert left(["folderpattern: *; messagedays: 0", exclusive], *every) == [2, 3, 4]
    assert left(["folderpattern: *; messagedays: 0; action: report"], *every) == [1, 2, 3, 4]
    assert left(["folderpattern: *; messagedays: 0"], *every, name=None) == [1, 2, 3, 4]


def test_a_file_of_rules(tmp_path):
    path = tmp_path / "my.rules"
    path.write_text("a.folderpattern: *\na.messagedays: 5\nb.folderpattern: *\nb.flagged: and\n")
    assert Left([rules_in(path)], NOW.timestamp()).of("user/alice/x", None, records((9, 1), (1, 1, "flagged"), (1, 1)))[
        "uid"].tolist() == [3]
    path.write_text("a.folderpattern: *\na.messagedays: x\n")
    with pytest.raises(ValueError, match=r"my\.rules:2:16: x: not a number"):
        rules_in(path)


# Levels and limits

def test_limits():
    """Per cent are rounded down; over is more than the limit; a user without a word has the default."""
    found = made(read([box("a", "INBOX", 3, 100), box("b", "INBOX", 3, 101), box("c", "INBOX", 3, 899),
                       box("d", "INBOX", 3, 900), box("e", "INBOX", 4, 1), box("f", "INBOX", 1, 10**15)],
                      [limit("a", 100), limit("b", 100, 100), limit("d", default=True), limit("e", 100, 3),
                       limit("f")]))
    assert {row["user"]: (row["limit"], row["message_limit"], row["per_cent"], row["over"], row["warned"])
            for row in found["users"]} == {
        "a": (100, None, 100, False, True), "b": (100, 100, 101, True, True), "c": (1000, None, 89, False, False),
        "d": (1000, None, 90, False, True), "e": (100, 3, 133, True, True), "f": (None, None, None, False, False)}
    assert [row["user"] for row in found["users"]] == ["f", "d", "c", "b", "a", "e"]        # largest first
    assert (found["totals"]["over"], found["totals"]["warned"], found["totals"]["in_grace"]) == (2, 4, None)
    assert found["live"] is False and only(found["users"], user="a")["refused_since"] is None


def test_roots():
    """A mailbox with a limit of its own does not count for its user; a domain has all of its users."""
    found = made(read([box("a", "INBOX", 1, 100), box("a", "Old", 2, 300, root="a/Old"), box("b@x.org", "INBOX", 1, 7)],
                      [limit("a/Old", 200), limit("@", 800), limit("@x.org", 70)]))
    assert {row["root"]: (row["kind"], row["octets"], row["messages"], row["limit"], row["per_cent"])
            for row in found["roots"]} == {
        "a": ("user", 100, 1, 1000, 10), "a/Old": ("mailbox", 300, 2, 200, 150), "b@x.org": ("user", 7, 1, 1000, 0),
        "@example.org": ("domain", 400, 3, 800, 50), "@x.org": ("domain", 7, 1, 70, 10)}
    assert only(found["users"], user="a")["logical"] == 400
    assert [(row["domain"], row["users"], row["limit"]) for row in found["domains"]] == [
        ("example.org", 1, 800), ("x.org", 1, 70)]


def test_fair_charging():
    """As `store.discounts` has it: 400 octets with a fair share of 150 are charged as 100 - 62 and 300 - 187."""
    boxes = [box("a", "INBOX", 1, 100, fair_share=50), box("a", "Old", 2, 300, root="a/Old", fair_share=100)]
    fair = evolve(TERMS, settings=evolve(SETTINGS, quota_charge="fair"))
    assert {row["root"]: row["charged"] for row in made(read(boxes), fair)["roots"]} == {
        "a": 38, "a/Old": 113, "@example.org": 151}
    assert {row["charged"] for row in made(read(boxes))["roots"]} == {100, 300, 400}


def test_what_if():
    found = read([box("a", "INBOX", 3, 100), box("b", "INBOX", 3, 2000), box("c", "INBOX", 3, 300)],
                 [limit("c", 200)])
    today = made(found)
    told = compared(today, made(found, totals.with_default(TERMS, 99, None)))
    assert (told["over_then"], told["over_no_more"], told["freed"]) == (["a"], [], 0)
    assert (told["today"]["over"], told["then"]["over"]) == (2, 3)
    told = compared(today, made(found, totals.with_default(TERMS, 0, "fair")))
    assert (told["over_then"], told["over_no_more"]) == ([], ["b"])


def test_idle():
    found = made(read([box("a", "INBOX", 1, 1, newest=NOW - timedelta(180)), box("c", "INBOX", 0, 0),
                       box("b", "INBOX", 1, 1, newest=NOW - timedelta(181)), box("b", "x", 0, 0)]))
    assert {row["user"]: (row["newest"], row["idle"]) for row in found["users"]} == {
        "a": ("2026-01-02T12:00:00Z", False), "b": ("2026-01-01T12:00:00Z", True), "c": (None, True)}


def test_who_reads_nothing():
    """By hand, at 180 days: a record of reading, or a message that is \\Seen, of that time will do; a login not."""
    old, new = NOW - timedelta(200), NOW - timedelta(20)
    found = made(read([
        box("a", "INBOX", 1, 1, newest=new, newest_read=old, last_read=new, last_login=new),
        box("b", "INBOX", 1, 1, newest=new, newest_read=None), box("b", "Sent", 1, 1, newest=new, newest_read=new),
        box("c", "INBOX", 1, 1, newest=new, newest_read=old, last_read=old, last_login=new),
        box("d", "INBOX", 1, 1, newest=new)]))
    assert {row["user"]: (row["last_login"], row["last_read"], row["reads_nothing"]) for row in found["users"]} == {
        "a": ("2026-06-11", "2026-06-11", False), "b": (None, None, False),
        "c": ("2026-06-11", "2025-12-13", True), "d": (None, None, True)}
    assert found["totals"]["reads_nothing"] == 2


def test_an_empty_store():
    found = made(read([]))
    assert found["users"] == [] and found["totals"]["file_octets"] == 0 and differences(found) == []


def test_a_user_of_two_back_ends_has_two_rows():
    found = made(read([box("a", "INBOX", 1, 10), box("a", "INBOX", 1, 20, store="/t")]))
    assert {row["store"]: row["logical"] for row in found["users"]} == {"/s": 10, "/t": 20}
    assert {row["store"]: row["fair_share"] for row in found["stores"]} == {"/s": 10, "/t": 20}


# The sums

def test_the_sums_agree():
    found = made(read([box("a", "INBOX", 1, 100)], waiting=40))
    row, = found["partitions"]
    assert (row["waiting"], row["waiting_files"], row["file_octets"]) == (40, 1, 140) and differences(found) == []


@pytest.mark.parametrize("off", [-1, 1])
def test_one_octet_is_told(off):
    line, = differences(made(read([box("a", "INBOX", 1, 100)], waiting=40, files=140 - off)))
    assert line == (f"/s, partition p: fair shares and what waits for the purge are {off:+} octets beside the "
                    f"{140 - off} octets of message files")


def test_a_level_that_has_other_sums_is_told():
    found = made(read([box("a", "INBOX", 1, 100)]))
    found["domains"][0]["fair_share"] = 99
    assert differences(found) == ["the fair shares of domains are -1 octets beside those of users"]


def test_files_that_are_not_there(tmp_path):
    folder = tmp_path / "partitions/p/messages/a/bc"
    folder.mkdir(parents=True)
    there, other = "abc" + "0" * 61, "abc" + "1" * 61
    (folder / there).write_bytes(b"12345")
    store = str(tmp_path)
    assert gone([(store, "p", there, 5)]) == []             # it came meanwhile
    assert gone([(store, "p", there, 6), (store, "p", other, 5)]) == [(store, "p", there, 6), (store, "p", other, 5)]
    lost = pa.Table.from_pylist([{"store": store, "partition": "p", "domain": "example.org", "user": "a", "size": 5,
                                  "name": "user/a/INBOX", "digest": digest} for digest in (there, other)], LOST_FILES)
    for missing, said in ((2, 1), (7, 6)):      # of those that are not looked for again none can have come
        row = box("a", "INBOX", 2, 10, store=store, missing=missing, missing_octets=5 * missing)
        assert totals.lost(evolve(read([row]), lost=lost)) == [
            f"{store}, partition p: {said} message files of user/a/INBOX are missing or cut off, such as {other}"]
    assert totals.lost(evolve(read([row]), lost=lost[:0])) == [
        f"{store}, partition p: 7 message files of user/a/INBOX are missing or cut off"]
    assert totals.lost(read([], unread=[{"store": "/s", "partition": "p", "path": "users/a0"}])) == [
        "/s, partition p: users/a0 could not be read"]


def test_oddities():
    told = totals.oddities(read([box("a", "INBOX", 3, 1, records=4), box("b", "INBOX", 3, 1, headless=1),
                                  box("c", "INBOX", 3, 1)]))
    assert len(told) == 2 and "3 of 4 records" in told[0] and "head" in told[1]


# A store that is open

def test_live():
    found = read([box("a", "INBOX", 3, 100), box("b", "INBOX", 3, 100)])
    late, now = int(NOW.timestamp()) - SETTINGS.quota_grace, int(NOW.timestamp())
    live = Live({"a": QuotaUse(100, 3, refused=late), "b": QuotaUse(90, 3, refused=late + 1), "z": QuotaUse()},
                {"b": (-10, 0)}, now)
    told = made(found, live=live)
    assert {row["user"]: (row["in_grace"], row["drift_octets"]) for row in told["users"]} == {
        "a": (False, 0), "b": (True, -10)}
    assert only(told["roots"], root="a")["refused_since"] == "2026-06-26T12:00:00Z"
    assert only(told["roots"], root="z")["counter_octets"] == 0
    assert (told["totals"]["in_grace"], told["totals"]["drifted"]) == (1, 1)
    assert totals.apart(told["roots"], live.uses) == ["b"]


# Growth

def test_growth(tmp_path):
    before = made(read([box("a", "INBOX", 3, 100), box("gone", "INBOX", 3, 11)]), evolve(
        TERMS, now=NOW - timedelta(30)))
    grown(before, None)
    assert before["users"][0]["growth"] is None and before["since"] is None
    now = made(read([box("a", "INBOX", 3, 70), box("new", "INBOX", 3, 10)]))
    (tmp_path / "r.json").write_text(json.dumps(before))
    save(before, tmp_path / "out")
    save(made(read([box("a", "INBOX", 3, 1)]), evolve(TERMS, now=NOW - timedelta(31))), tmp_path / "out")
    save(made(read([])), tmp_path / "out")          # nobody was there
    for place in (tmp_path / "r.json", tmp_path / "out"):
        grown(now, earlier(place))
        assert {row["user"]: row["growth"] for row in now["users"]} == {"a": -30, "new": 10}
        assert (now["since"], now["totals"]["growth"]) == ("2026-06-01T12:00:00Z", 80 - 111)
    assert sorted(path.name for path in (tmp_path / "out/users").iterdir()) == [
        "20260531T120000Z.parquet", "20260601T120000Z.parquet"]
    table = pa.parquet.read_table(tmp_path / "out/users/20260601T120000Z.parquet")
    assert table.to_pylist() == [{"created": before["created"], **row} for row in before["users"]]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"created": "x", "users": [1]}', '{"created": 1, "users": null}'])
def test_no_earlier_report(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    for place in (tmp_path / "r.json", tmp_path, tmp_path / "none"):
        with pytest.raises(Failure):
            earlier(place)


# What the page is made of

@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=4))
def test_bars_are_as_long_as_their_numbers(lengths):
    """To a thousandth of a per cent of the chart, however large; together no longer than the chart."""
    drawn = bars("n", "t", [Bar("x", "y", tuple(("fair", length) for length in lengths))])
    found = re.findall(r'class="fair" x="([0-9.]+)%" y="\d+" width="([0-9.]+)%"', drawn)
    whole, begin = sum(lengths) or 1, 0
    assert len(found) == sum(length > 0 for length in lengths)
    for (x, width), length in zip(found, filter(None, lengths), strict=True):
        assert abs(float(width) - 100 * length / whole) < 0.0011 and abs(float(x) - 100 * begin / whole) < 0.0011
        assert float(x) + float(width) <= 100
        begin += length


@given(st.text(max_size=80))
def test_names_cannot_be_markup(text):
    drawn = bars(text, text, [Bar(text, text, (("fair", 1),))]) + columns(text, text, [(text, 1, "fair")])
    clean = re.sub(r'<(/?(svg|g|title|text|tspan|rect))( [a-z-]+="[^"<>]*")*/?>', "", drawn)
    assert "<" not in clean and ">" not in clean


@given(st.text(max_size=80))
def test_labels_are_short(text):
    found = shortened(text)
    assert len(found) <= 24 and (found == text or len(text) > 24)


def test_numbers():
    assert [octets(value) for value in (None, 0, 1536, -1536)] == ["–", "0 octets", "1.5 KiB", "−1.5 KiB"]
    assert [number(value) for value in (None, 0, 1234567, -1234)] == ["–", "0", "1,234,567", "−1,234"]
    assert [more(value) for value in (0, 1024, -1024)] == ["0 octets", "+1.0 KiB", "−1.0 KiB"]


def test_when_a_root_or_a_partition_is_full():
    """By hand (issue 25, item 4): in 10 days 100 octets more, of which 200 are left: 20 days. What does not grow, or
    was not there, is never full; what is full already has no day."""
    before = {"created": "2026-06-21T12:00:00Z", "users": [], "partitions": [
        {"store": "/s", "partition": "p", "file_octets": 300}], "roots": [
        {"store": "/s", "root": "a", "charged": 300}, {"store": "/s", "root": "b", "charged": 50},
        {"store": "/s", "root": "c", "charged": 1}]}
    now = made(read([box("a", "INBOX", 1, 400), box("b", "INBOX", 1, 50), box("c", "INBOX", 1, 80),
                     box("d", "INBOX", 1, 5)], [limit("a", 600), limit("b", 100), limit("c", 79), limit("d", 100)]))
    for row in now["partitions"]:
        row |= {"file_octets": 400, "volume": 1000, "free": 200}
    grown(now, before)
    assert [(row["growth"], row["full_on"]) for row in now["partitions"]] == [(100, "2026-07-21")]
    roots = {row["root"]: (row["growth"], row["full_on"]) for row in now["roots"]}
    assert {root: roots[root] for root in "abcd"} == {
        "a": (100, "2026-07-21"), "b": (0, None), "c": (79, None), "d": (None, None)}


def test_room_on_the_volume(tmp_path):
    """That of the partition's file system, as `df` has it; nothing where there is no such folder here."""
    rows = [{"store": str(tmp_path), "partition": "p"}, {"store": "/nowhere", "partition": "p"}]
    totals.with_room({"partitions": rows})
    there = os.statvfs(tmp_path)
    assert rows[0]["volume"] == there.f_blocks * there.f_frsize >= rows[0]["free"] > 0
    assert (rows[1]["volume"], rows[1]["free"]) == (None, None)
