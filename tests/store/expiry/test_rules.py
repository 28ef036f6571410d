"""Rules of expiry: how they are written, what they hit, and which of them a mailbox has."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.expiry.decide import DAY, decide
from store.expiry.rounds import Record, following, is_due
from store.expiry.rulebook import built_in
from store.expiry.rules import Action, Fault, How, Rule, parse
from store.settings import Settings, schedule
from store.tables.index import ROW
from store.values import Flag

NOW = 1_700_000_000

# How rules are written


def test_a_file():
    rules, faults = parse("""# of the whole store
Old.folderpattern: user/*/Lists/%
Old.messagedays: 365
old.FolderPattern: user/%/inbox
old.messagecount: 1000
old.foldersize: 10M
old.messagesize: 2000000
old.messagesizedays: 7
old.seen: and
old.deleted: or
old.flagged: not
old.exclusive: Yes
old.action: fileinto: Archive/Old
news.regexp: 1
news.folderpattern: public/(news|talk)
news.messageheader.Subject: Get Rich: Now!
news.action: report
""")
    assert faults == ()
    assert rules == (
        Rule("Old", pattern="user/*/Lists/%", days=365),
        Rule("old", pattern="user/%/inbox", count=1000, octets=10 << 20, size=2_000_000, size_days=7,
             flags=((Flag.SEEN, How.AND), (Flag.DELETED, How.OR), (Flag.FLAGGED, How.NOT)), exclusive=True,
             action=Action.FILEINTO, target="Archive/Old"),
        Rule("news", pattern="public/(news|talk)", regexp=True, headers=(("Subject", "Get Rich: Now!"),),
             action=Action.REPORT))
    assert [rule.line for rule in rules] == [2, 4, 14]


def test_a_rule_without_a_name_is_about_all_that_its_file_is_for():
    rules, faults = parse("messagedays: 3\nmessageheader.List-Id: a.b\n", True)
    assert (rules, faults) == ((Rule("rule", days=3, headers=(("List-Id", "a.b"),)),), ())
    assert parse("messagedays: 3\n")[1] == (Fault(1, 1, "rule has neither folderpattern nor specialuse"),)


WHERE = "a.folderpattern: user/%/x\n"


@pytest.mark.parametrize(("text", "line", "column"), [
    ("nothing\n", 1, 1),
    ("   nothing\n", 1, 4),
    (WHERE + "a.messagedays: 3\n  a.unknown: 1\n", 3, 5),
    (WHERE + "a.messagedays: three\n", 2, 16),
    (WHERE + "a.messagedays:   -3\n", 2, 18),
    (WHERE + "a.messagedays: 3k\n", 2, 16),
    (WHERE + "a.messagedays:\n", 2, 15),
    (WHERE + "a.messagedays: 3\na.messagedays: 4\n", 3, 3),
    (WHERE + "a.seen: maybe\n", 2, 9),
    (WHERE + "a.exclusive: perhaps\n", 2, 14),
    (WHERE + "a.messagedays: 1\na.action: archive\n", 3, 11),
    (WHERE + "a.messagedays: 1\na.action: fileinto\n", 3, 11),
    (WHERE + "a.messagedays: 1\na.action: fileinto:a//b\n", 3, 11),
    (WHERE + "a.messagedays: 1\na.action: discard:b\n", 3, 11),
    (WHERE + "a.messageheader.: x\n", 2, 3),
    (WHERE + "a.messageheader.A B: x\n", 2, 3),
    (WHERE + "a.messagesizedays: 1\na.messagedays: 1\n", 2, 20),
    (WHERE, 1, 1),
    (WHERE + "a.flagged: not\n", 1, 1),
    ("a.folderpattern: alice/x\na.messagedays: 1\n", 1, 18),
    ("a.regexp: 1\na.folderpattern: user/(\na.messagedays: 1\n", 2, 18),
    ("a.regexp: 1\na.specialuse: Trash\na.messagedays: 1\n", 1, 11),
    ("a.specialuse: Rubbish\na.messagedays: 1\n", 1, 15),
    ("ä.messagedays: 1\n", 1, 1),
    ("b: 3\n", 1, 1),
])
def test_what_is_wrong_and_where(text, line, column):
    faults = parse(text)[1]
    assert (line, column) in [(fault.line, fault.column) for fault in faults], faults


@given(st.text(max_size=300) | st.lists(st.sampled_from((
    "a.", "b", ".", ":", " ", "\n", "messagedays", "messageheader", "folderpattern", "user/%/x", "regexp", "1", "(",
    "action", "fileinto", "exclusive", "yes", "seen", "and", "9" * 30, "\x00")), max_size=30).map("".join))
def test_junk(text):
    rules, faults = parse(text)
    lines = text.splitlines()
    for fault in faults:
        assert 1 <= fault.line <= len(lines) and 1 <= fault.column <= len(lines[fault.line - 1]) + 1
    if not faults:
        for rule in rules:
            rule.matches("user/alice/x", None)


@pytest.mark.parametrize(("pattern", "name", "matches"), [
    ("user/%/Trash", "user/alice/Trash", True), ("user/%/Trash", "user/alice/Trash/a", False),
    ("user/*/Trash", "user/alice/Old/Trash", True), ("user/alice/*", "user/alice/INBOX", True),
    ("user/alice/inbox", "user/alice/INBOX", True), ("user/%/Inbox/a", "user/b/INBOX/a", True),
    ("user/%/trash", "user/alice/Trash", False), ("public/*", "public/news", True), ("*", "public/news", True),
    ("public/%", "user/alice/Trash", False), ("user/%@example.com/*", "user/a@example.com/x/y", True)])
def test_patterns(pattern, name, matches):
    assert Rule("a", pattern=pattern).matches(name, None) is matches


def test_regular_expressions_are_of_the_whole_name():
    rule = Rule("a", pattern="user/[^/]+/(Trash|Junk)", regexp=True)
    assert rule.matches("user/a/Junk", None) and not rule.matches("user/a/Junk/b", None)
    assert not rule.matches("xuser/a/Junk", None)


def test_special_use():
    rules = built_in(30 * DAY, 0).rules
    assert rules == (Rule("Trash", special_use="\\Trash", saved_days=30),)
    assert rules[0].matches("user/a/Papierkorb", "\\Trash") and not rules[0].matches("user/a/Trash", None)
    assert [(rule.name, rule.saved_days) for rule in built_in(0, DAY + 1).rules] == [("Junk", 2)]
    assert built_in(0, 0).rules == ()


# What they hit: a plain evaluator beside ours

MESSAGES = st.lists(st.fixed_dictionaries({
    "received": st.integers(NOW - 20 * DAY, NOW + DAY) | st.sampled_from([NOW - 5 * DAY, NOW - 5 * DAY + 1]),
    "saved": st.integers(NOW - 20 * DAY, NOW) | st.just(0),
    "size": st.integers(0, 50),
    "flags": st.integers(0, 15),
    "subject": st.sampled_from(["free money", "news of today", ""])}), max_size=12)
TESTS = st.sampled_from(list(How))
RULES = st.builds(
    Rule, st.sampled_from("abc"), days=st.none() | st.integers(0, 20), saved_days=st.none() | st.integers(0, 20),
    count=st.none() | st.integers(0, 12), octets=st.none() | st.integers(0, 300), size=st.none() | st.integers(0, 50),
    size_days=st.integers(0, 15), headers=st.sampled_from([(), (("Subject", "money"),),
                                                            (("Subject", "news"), ("Subject", "today"))]),
    flags=st.dictionaries(st.sampled_from([Flag.SEEN, Flag.DELETED, Flag.FLAGGED]), TESTS, max_size=3).map(
        lambda found: tuple(found.items())),
    action=st.sampled_from([Action.DISCARD, Action.REPORT]))


def hit_by(rule, messages):
    """Which messages a rule hits: one by one, from what the manual of the rules says."""
    oldest_first = sorted(messages, key=lambda message: (message["received"], message["uid"]))
    too_many = set()
    if rule.count is not None:
        too_many |= {message["uid"] for message in oldest_first[:max(0, len(messages) - rule.count)]}
    if rule.octets is not None:
        left = sum(message["size"] for message in messages)
        for message in oldest_first:
            if left <= rule.octets:
                break
            too_many.add(message["uid"])
            left -= message["size"]
    found = set()
    for message in messages:
        age = NOW - message["received"]
        limits = []
        if rule.days is not None:
            limits.append(age >= rule.days * DAY)
        if rule.saved_days is not None:
            limits.append(NOW - (message["saved"] or message["received"]) >= rule.saved_days * DAY)
        if rule.size is not None:
            limits.append(message["size"] > rule.size and age >= rule.size_days * DAY)
        if rule.count is not None or rule.octets is not None:
            limits.append(message["uid"] in too_many)
        has = {test: [bool(message["flags"] & flag) for flag, how in rule.flags if how is test] for test in How}
        hit = any(limits) if limits else bool(rule.headers or has[How.AND])
        hit = hit and all(text in message["subject"] for _, text in rule.headers) and all(has[How.AND])
        hit = hit or any(has[How.OR])
        if hit and not any(has[How.NOT]):
            found.add(message["uid"])
    return found


@pytest.mark.long
@given(MESSAGES, st.lists(RULES, max_size=4))
def test_what_rules_hit(messages, rules):
    rows = np.zeros(len(messages), ROW)
    for number, message in enumerate(messages):
        message["uid"] = rows["uid"][number] = 3 * number + 1
        for name in ("received", "saved", "size", "flags"):
            rows[name][number] = message[name]
    asked = []

    def having(places, name, text):
        asked.append(len(places))
        return np.array([text in messages[place]["subject"] for place in places.tolist()], np.bool_)

    verdicts = {verdict.rule: set(rows["uid"][verdict.places].tolist()) for verdict in decide(rules, rows, NOW, having)}
    expected, taken = {}, set()
    for number in reversed(range(len(rules))):          # the last weighs most
        hit = hit_by(rules[number], messages)
        if rules[number].action is not Action.REPORT:
            hit -= taken
            taken |= hit
        if hit:
            expected[number] = hit
    assert verdicts == expected
    assert all(asked)                                   # headers are asked for only where something hangs on it


def test_a_large_mailbox_takes_milliseconds():
    """Counted in what is looked at, not in time: no header is read unless a rule asks."""
    rows = np.zeros(100_000, ROW)
    rows["uid"] = np.arange(1, len(rows) + 1)
    rows["received"] = NOW - np.arange(len(rows))[::-1]
    rows["size"] = 10
    rules = [Rule("a", days=1), Rule("b", count=500), Rule("c", octets=1000), Rule("d", size=5, size_days=1)]

    def having(places, name, text):
        raise AssertionError

    places = {verdict.rule: verdict.places for verdict in decide(rules, rows, NOW, having)}
    assert len(places[2]) == 100_000 - 100 - len(places.get(3, ()))
    assert sum(map(len, places.values())) == 100_000 - 100


# When

@pytest.mark.parametrize(("text", "result"), [
    ("03:30", ("at", 12600)), ("0:00", ("at", 0)), ("23:59", ("at", 86340)), ("6h", ("every", 21600)),
    ("30m", ("every", 1800)), ("never", ("never", 0)), ("off", ("never", 0))])
def test_schedules(text, result):
    assert schedule(text) == result
    assert Settings(expire_schedule=text)


@pytest.mark.parametrize("text", ["24:00", "3", "03:60", "0h", "soon", "1w"])
def test_no_schedules(text):
    with pytest.raises(ValueError, match="neither"):
        Settings(expire_schedule=text)


@pytest.fixture
def berlin(monkeypatch):
    """A place where clocks change: forward on 2026-03-29 at 02:00."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text):
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M"))


def test_a_time_of_day(berlin):
    last = Record(began=at("2026-03-27 03:30") + 5, ended=at("2026-03-27 03:31"))
    assert not is_due("03:30", last, at("2026-03-27 23:00"))
    assert not is_due("03:30", last, at("2026-03-28 03:29"))
    assert is_due("03:30", last, at("2026-03-28 03:30"))
    assert is_due("03:30", last, at("2026-03-30 17:00"))            # the server was down
    assert following("03:30", last, at("2026-03-27 23:00")) == at("2026-03-28 03:30")
    short = Record(began=at("2026-03-28 03:30"))                    # the night of 23 hours
    assert not is_due("03:30", short, at("2026-03-29 03:29")) and is_due("03:30", short, at("2026-03-29 03:30"))
    assert not is_due("never", last, at("2027-01-01 00:00")) and following("never", last, NOW) is None


def test_a_clock_that_has_been_set_back(berlin):
    last = Record(began=NOW + 365 * 86400, ended=NOW + 365 * 86400 + 1)
    assert is_due("6h", last, NOW) and is_due("03:30", last, NOW) and not is_due("never", last, NOW)
    assert following("6h", last, NOW) == following("03:30", last, NOW) == NOW


def test_an_interval():
    last = Record(began=NOW, ended=NOW + 1)
    assert not is_due("6h", last, NOW + 6 * 3600 - 1) and is_due("6h", last, NOW + 6 * 3600)
    assert following("6h", last, NOW + 5) == NOW + 6 * 3600
