"""A user learns nothing of what others hold from what the server says, and nothing from how it does it.

The channels, each with the test that holds it shut:

    replies, UIDs, sizes, sections, STATUS, SEARCH, quota     test_nothing_that_is_said_differs
    refusals for quota and size                               test_nothing_that_is_said_differs
    GETQUOTA and limits under `quota_charge = fair`           test_own_charges_stand_still_when_strangers_come_and_go
    the way through staging: written, synced, removed         test_the_way_through_staging_is_the_same
    trace fields of another delivery                          tests/store/delivery/test_trace_fields.py
    identifiers that are equal for equal content (RFC 8474)   test_there_are_no_identifiers_of_content
    when a file goes that nobody uses any more                test_what_others_expunged_changes_nothing
    the time of the answer                                    tools/bench sharing
"""

import re
from types import SimpleNamespace

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imap.verbs import quotaroots
from mboxlist.names import MailboxName
from store.delivery.concealment import StoredLately
from store.mailboxes import deletion, firstuse, namespace
from store.mailboxes.expunge import remove
from store.partition.staged import Staged
from store.quota import roots
from store.quota.accounting import reckon
from store.tables.quotatable import UNLIMITED
from tests.support.conversations.scripts import content
from tests.support.stores.purging import purge
from tests.support.stores.stores import HASH, SMALL, deliver, let_go, make_store

DATE = b'"01-Jan-2026 12:00:00 +0000"'
BOB = "user/bob/INBOX"


def ask(wire, command):
    """One command, with literals that need no continuation."""
    wire.send(b"x " + command + b"\r\n")
    return wire.received()


def conversation(place, texts):
    """What is told to a user who stores these messages and looks at all there is to see. No UIDVALIDITY, no serials."""
    namespace.create_mailbox(place.store, place.name("Probe"))
    wire = place.connect()
    wire.received()
    said = [ask(wire, b"LOGIN alice secret")]
    several = b"".join(b" () " + DATE + b" {%d+}\r\n" % len(text) + text for text in texts)
    said.append(ask(wire, b"APPEND Probe" + several))
    for text in texts:
        said.append(ask(wire, b"APPEND Probe () " + DATE + b" {%d+}\r\n" % len(text) + text))
    for command in (
            b"STATUS Probe (MESSAGES UIDNEXT SIZE UNSEEN HIGHESTMODSEQ)", b"SELECT Probe", b"GETQUOTAROOT Probe",
            b"FETCH 1:* (UID FLAGS MODSEQ INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE)",
            b"FETCH 1:* (BODY.PEEK[] BODY.PEEK[HEADER] BINARY.SIZE[1])",
            b"SEARCH OR HEADER RECEIVED \"\" HEADER RETURN-PATH \"\"", b"SEARCH TEXT stranger", b"COPY 1:* Probe",
            b"STORE 1 +FLAGS (\\Deleted)", b"EXPUNGE", b"STATUS Probe (SIZE)"):
        said.append(ask(wire, command))
    used = roots.quota(place.store, "alice").octets
    roots.set_quota(place.store, "alice", octets=used + len(texts[0]) - 1)
    said.append(ask(wire, b"APPEND Probe () " + DATE + b" {%d+}\r\n" % len(texts[0]) + texts[0]))
    roots.set_quota(place.store, "alice", octets=used + len(texts[0]))
    said.append(ask(wire, b"APPEND Probe () " + DATE + b" {%d+}\r\n" % len(texts[0]) + texts[0]))
    roots.set_quota(place.store, "alice", octets=UNLIMITED)
    said.append(ask(wire, b"APPEND Probe {100001+}\r\n" + b"x" * 100_001))
    wire.hang_up()
    entry = place.entry("Probe")
    deletion.delete_mailbox(place.store, entry.name)
    return re.sub(rb"\b%d\b" % entry.uidvalidity, b"V", b"".join(said))


@pytest.mark.parametrize("conceal", ["clients", "all", "none"])
def test_nothing_that_is_said_differs(place, conceal):
    """Whether strangers have the content, once or often, with trace fields or without: the octets are the same."""
    place.configure(conceal_sharing=conceal)
    texts = [content(f"sharing {number} {conceal}") for number in range(2)]
    alone = conversation(place, texts)
    assert alone.count(b"x OK") > 12 and alone.count(b"[OVERQUOTA]") == 1 and b"APPENDUID V 1:2" in alone
    for text in texts:
        deliver(place.store, text, BOB, trace=b"Return-Path: <stranger@example.org>\r\nReceived: from relay\r\n")
    assert conversation(place, texts) == alone
    for name in (BOB, "user/alice/INBOX", BOB):
        deliver(place.store, texts[0], name)
    assert conversation(place, texts) == alone


def test_what_others_expunged_changes_nothing(place):
    """Within the purge delay, when it is over, and when the file has gone."""
    texts = [content(f"expunged {number}") for number in range(2)]
    alone = conversation(place, texts)
    for text in texts:
        deliver(place.store, text, BOB)
    entry = place.entry(BOB)
    remove(place.store, entry, place.store.open_mailbox(entry).rows["uid"].tolist())
    assert conversation(place, texts) == alone
    let_go(place.store, 2**31)
    assert conversation(place, texts) == alone
    purge(place.store.partitions["primary"], 2**31)
    assert conversation(place, texts) == alone


def test_there_are_no_identifiers_of_content(place):
    """RFC 8474: an EMAILID that follows from the content would be the same for all who hold it."""
    wire = place.connect()
    wire.received()
    told = ask(wire, b"LOGIN alice secret") + ask(wire, b"CAPABILITY")
    assert b"IMAP4rev1" in told and b"OBJECTID" not in told
    assert b"BAD" in ask(wire, b"SELECT INBOX") + ask(wire, b"FETCH 1:* (EMAILID)")


@pytest.mark.parametrize(("conceal", "same"), [("clients", True), ("none", False)])
def test_the_way_through_staging_is_the_same(place, conceal, same):
    """Known content is written, synced and removed by the same steps as new content gets its place."""
    place.configure(conceal_sharing=conceal)
    steps = []
    for name in ("sync", "place"):
        place.faults.around(Staged, name, lambda real, staged, name=name: (steps.append(name), real(staged))[1])
    text = content(f"a way {conceal}")
    deliver(place.store, text, BOB)
    steps.clear()
    wire = place.connect()
    wire.received()
    ask(wire, b"LOGIN alice secret")
    seen = []
    for each in (text, content(f"new {conceal}")):
        for few in (1, 2):
            steps.clear()
            more = content(f"one more {len(seen)} {conceal}")
            several = b"".join(b" {%d+}\r\n" % len(one) + one for one in (each + b"x" * few, more)[:few])
            if each is text:
                deliver(place.store, each + b"x" * few, BOB)
                steps.clear()
            assert b"x OK" in ask(wire, b"APPEND INBOX" + several)
            seen.append(sorted(steps))
    assert seen[2:] == [["place", "sync"], ["place", "place", "sync", "sync"]]
    assert (seen[:2] == seen[2:]) is same
    wire.hang_up()


def test_what_the_user_stored_itself_takes_the_short_way(place):
    """It tells nothing: the store has it whatever others do. Not for another user, nor after an hour."""
    text, clock = content("my own"), [0.0]
    place.store.owned.put(StoredLately, StoredLately(lambda: clock[0]))
    steps = []
    place.faults.around(Staged, "sync", lambda real, staged: (steps.append("sync"), real(staged))[1])

    def synced(count=1):
        steps.clear()
        assert b"x OK" in ask(wire, b"APPEND INBOX" + (b" {%d+}\r\n" % len(text) + text) * count)
        return len(steps)

    wire = place.connect()
    wire.received()
    ask(wire, b"LOGIN alice secret")
    assert [synced(), synced(), synced(count=3)] == [1, 0, 0]
    clock[0] = 3599.0
    assert synced() == 0
    clock[0] = 3600.0 + 3599.0
    assert [synced(), synced()] == [1, 0]
    place.configure(purge_delay=0)
    assert synced() == 1
    wire.hang_up()


# Quota: the attack of the report, which reads GETQUOTA while strangers come and go

def observed(store, size):
    """All that alice is told of her quota, and what is refused to her: a warning, GETQUOTA, room for one more message,
    and whether a message that just fits, or just does not, is taken."""
    use = roots.quota(store, "alice")
    inbox = store.entry(MailboxName("alice", "INBOX"))
    session = SimpleNamespace(store=store)
    return (quotaroots._quota(session, "alice"), roots.warning(store, inbox), use.describe(store.settings),
            use.per_cent(store.settings), [roots.has_room(store, inbox, octets) for octets in range(0, size, 97)])


@pytest.fixture(scope="module")
def fair(tmp_path_factory):
    store = make_store(tmp_path_factory.mktemp("fair") / "store",
                       settings=evolve(SMALL, quota_charge="fair", quota_warn=50))
    firstuse.inbox(store, store.directory.add("carol", HASH))
    yield store
    store.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(strangers=st.lists(st.tuples(st.sampled_from(["bob", "carol"]), st.integers(0, 2), st.booleans()), max_size=8),
       limit=st.integers(0, 1200))
def test_own_charges_stand_still_when_strangers_come_and_go(fair, strangers, limit):
    """Whatever they get and expunge, and however often shares are reckoned anew meanwhile."""
    texts = [b"Subject: %d\r\n\r\n" % number + b"x" * 180 for number in range(3)]
    for text in texts:
        deliver(fair, text, "user/alice/INBOX")
    roots.set_quota(fair, "alice", octets=limit)
    reckon(fair, "primary")
    before = observed(fair, 1200)
    for user, number, comes in strangers:
        entry = fair.entry(MailboxName(user, "INBOX"))
        uids = fair.open_mailbox(entry).rows["uid"].tolist()
        if comes:
            deliver(fair, texts[number], f"user/{user}/INBOX")
        elif uids:
            remove(fair, entry, uids[:1])
        reckon(fair, "primary")
        assert observed(fair, 1200) == before
    roots.set_quota(fair, "alice", octets=UNLIMITED)
    for user in ("alice", "bob", "carol"):
        entry = fair.entry(MailboxName(user, "INBOX"))
        remove(fair, entry, fair.open_mailbox(entry).rows["uid"].tolist())
