"""Mail that comes from elsewhere is what it was there, once, however often it comes."""

import hashlib

import numpy as np
import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.delivery.batch import one_by_one
from store.errors import Problem, StoreError
from store.mailboxes import deletion, namespace, subscribing
from store.migration.messageimport import Contents, Known, add, lacking, new_rows
from store.quota import roots
from store.rebuild.desired import DesiredMailbox, new_mailbox
from store.rebuild.liveloader import LiveLoader
from store.store import Store
from store.values import Flag, Flags, InternalDate
from tests.support.faults.planted import Faults
from tests.support.stores.stores import deliver, reopen, reopen_after_crash

INBOX, FOLDER = MailboxName("alice", "INBOX"), MailboxName("alice", "Old/2019")
FIRST, SECOND, THIRD = (b"Subject: %d\r\n\r\nthe text %d\r\n" % (n, n) for n in (1, 2, 3))


def digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32).digest()


def octets(store: Store, name: MailboxName) -> dict[int, bytes]:
    """All messages of a mailbox by UID."""
    mailbox, found = store.open_mailbox(store.entry(name)), {}
    for row in mailbox.rows:
        with store.open_message(mailbox.entry, row) as file:
            found[int(row["uid"])] = file.read(0, file.size)
    return found


def contents(store: Store, *messages: bytes, trace: int = 0) -> Contents:
    brought = Contents(store.partitions["primary"], one_by_one)
    for message in messages:
        brought.store([message[:9], message[9:]], digest=digest(message[trace:]), trace=trace)
    brought.keep()
    return brought


def known(message: bytes, uid: int = 0, flags: Flags = Flags(), zone: int = 60, uidl: bytes = b"") -> Known:
    return Known(digest(message), len(message), InternalDate(1_500_000_000 + uid, zone), flags, uid, uidl)


def load(store: Store, desired: DesiredMailbox, messages: list[Known], brought: Contents) -> list[DesiredMailbox]:
    """The mailbox with these messages; what was refused."""
    loader = LiveLoader(store.partitions["primary"], store)
    rows, keywords, _ = new_rows(brought, messages)
    loader.load([evolve(desired, rows=rows, state=evolve(desired.state, keywords=keywords))])
    return loader.refused


def test_a_mailbox_comes_with_all_that_it_had(store: Store) -> None:
    brought = contents(store, FIRST, SECOND)
    messages = [known(FIRST, 7, Flags(Flag.SEEN, ("$Junk",))), known(SECOND, 900), known(FIRST, 901)]
    desired = new_mailbox(FOLDER, uidvalidity=42, special_use="\\Archive")
    desired = evolve(desired, entry=evolve(desired.entry, acl={"bob": "lr"}), subscriptions=("Old/2019",),
                     state=evolve(desired.state, uidnext=2000))
    assert load(store, desired, messages, brought) == []
    entry = store.entry(FOLDER)
    assert (entry.uidvalidity, entry.acl, entry.special_use) == (42, {"bob": "lr"}, "\\Archive")
    assert octets(store, FOLDER) == {7: FIRST, 900: SECOND, 901: FIRST}
    mailbox = store.open_mailbox(entry)
    assert mailbox.state.uidnext == 2000 and mailbox.keyword_names(int(mailbox.rows[0]["keywords"])) == ("$Junk",)
    assert [(int(row["received"]), int(row["zone"])) for row in mailbox.rows] == [
        (1_500_000_007, 60), (1_500_000_900, 60), (1_500_000_901, 60)]
    assert subscribing.subscriptions(store, "alice") == ["Old/2019"]
    assert brought.files == 2 and roots.quota(store, "alice").messages == 3
    assert not list(store.mailboxes.deleted.all())


def test_a_uidvalidity_that_the_name_had_never_comes_back(store: Store) -> None:
    for validity, as_asked in ((42, True), (42, False), (41, False)):
        load(store, new_mailbox(FOLDER, uidvalidity=validity), [known(FIRST, 7)], contents(store, FIRST))
        before = store.entry(FOLDER)
        assert (before.uidvalidity == validity) == as_asked and before.uidvalidity >= validity
        namespace.rename_mailbox(store, FOLDER, MailboxName("alice", "Other"))
        deletion.delete_mailbox(store, MailboxName("alice", "Other"))
        assert namespace.create_mailbox(store, FOLDER).uidvalidity > before.uidvalidity
        deletion.delete_mailbox(store, FOLDER)


def test_who_comes_too_late_is_refused_and_leaves_nothing(store: Store, faults: Faults) -> None:
    faults.before(LiveLoader, "_publish", lambda *_: namespace.create_mailbox(store, FOLDER))
    refused = load(store, new_mailbox(FOLDER, uidvalidity=42), [known(FIRST, 7)], contents(store, FIRST))
    assert [desired.entry.name for desired in refused] == [FOLDER]
    assert octets(store, FOLDER) == {} and roots.quota(store, "alice").messages == 0
    assert store.partitions["primary"].refs.find(digest(FIRST)).references == 0     # type: ignore[union-attr]


def test_what_a_crash_cuts_off_is_not_there(store: Store) -> None:
    with Faults() as planted:
        planted.around(LiveLoader, "_publish", lambda *_: [])
        load(store, new_mailbox(FOLDER, uidvalidity=42), [known(FIRST, 7)], contents(store, FIRST))
    store.partitions["primary"].flush()
    assert check(store) == []
    again = reopen_after_crash(store)
    assert check(again) == [] and again.mailboxes.find(FOLDER) is None
    assert len(list(again.partitions["primary"].all_states())) == 2
    load(again, new_mailbox(FOLDER, uidvalidity=42), [known(FIRST, 7)], brought := contents(again, FIRST))
    assert octets(again, FOLDER) == {7: FIRST} and again.entry(FOLDER).uidvalidity == 42
    assert brought.files == 0                       # it was on disk already
    assert check(again) == []
    again.close()
    reopen(store, again.settings)


def test_what_a_mailbox_lacks_is_added_once(store: Store) -> None:
    deliver(store, FIRST, str(INBOX), received=InternalDate(1_500_000_001, 60))
    brought = contents(store, FIRST, SECOND, THIRD)
    messages = [known(FIRST, 1), known(SECOND, 5, Flags(Flag.FLAGGED, ("a", "B"))), known(SECOND, 5), known(THIRD, 9)]
    for new in ({1: 5, 2: 6, 3: 9}, {}):
        rows, keywords, _ = new_rows(brought, messages)
        added = add(store.partitions["primary"], store.entry(INBOX), new_mailbox(
            INBOX, rows, keywords, uidls={9: b"elsewhere-9"}))
        assert added.uids == new and added.there == 4 - len(new)
    assert octets(store, INBOX) == {1: FIRST, 5: SECOND, 6: SECOND, 9: THIRD}
    assert store.uidls(store.entry(INBOX)) == {9: b"elsewhere-9"}
    mailbox = store.open_mailbox(store.entry(INBOX))
    assert mailbox.keyword_names(int(mailbox.rows[1]["keywords"])) == ("a", "B")
    assert mailbox.state.uidnext == 10


def test_a_uid_that_was_given_out_is_not_given_again(store: Store) -> None:
    for number in range(3):
        deliver(store, b"Subject: new %d\r\n\r\n" % number, str(INBOX))
    rows, keywords, _ = new_rows(contents(store, SECOND), [known(SECOND, 2)])
    assert add(store.partitions["primary"], store.entry(INBOX), new_mailbox(
        INBOX, rows, keywords)).uids == {0: 4}


def test_content_with_another_trace_header_stays_what_it_is(store: Store) -> None:
    deliver(store, FIRST, str(INBOX), trace=b"Return-Path: <a@example.org>\r\n")
    trace = b"Return-Path: <b@example.org>\r\n"
    brought = contents(store, trace + FIRST, trace=len(trace))
    both = [Known(digest(FIRST), len(trace + FIRST), InternalDate(5), uid=8),
            Known(digest(FIRST), len(FIRST), InternalDate(6), uid=9)]
    rows, _, had = new_rows(brought, both)
    assert had == [True, True]
    add(store.partitions["primary"], store.entry(INBOX), new_mailbox(INBOX, rows))
    assert list(octets(store, INBOX).values()) == [
        b"Return-Path: <a@example.org>\r\n" + FIRST, trace + FIRST, FIRST]


def test_what_is_not_what_its_digest_says_is_refused(store: Store) -> None:
    brought = Contents(store.partitions["primary"], one_by_one)
    with pytest.raises(StoreError) as refused:
        brought.store([FIRST], digest=digest(SECOND))
    assert refused.value.problem is Problem.CORRUPT
    brought.keep()
    _, _, had = new_rows(brought, [known(SECOND, 1)])
    assert had == [False]


def test_lacking_counts_equal_messages(store: Store) -> None:
    rows, _, _ = new_rows(contents(store, FIRST), [Known(digest(FIRST), len(FIRST), InternalDate(5))] * 3)
    there = rows[:2].copy()
    there["uid"] = (11, 12)
    assert np.count_nonzero(lacking(there, rows)) == 1
