"""Views of a mailbox: refreshing one gives what reading it anew would give, whatever happened and whoever did it."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mboxlist.names import MailboxName
from store.mailboxes import namespace
from store.mailboxes.copymessages import copy_messages
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partition.recordbuffers import LARGE
from store.partitions import holding
from store.tables.index import chunk_key, chunk_number
from store.values import Flag, FlagAction, Flags
from tests.support.stores.stores import SMALL, deliver, make_store

STEPS = st.lists(st.tuples(st.sampled_from(["arrive", "flag", "remove", "other process"]), st.integers(1, 200)),
                 min_size=1, max_size=6)


def act(store, entry, what, number):
    if what == "arrive":
        for at in range(number % 70 + 1):
            deliver(store, b"Subject: %d\r\n\r\n" % (at % 3), "user/alice/INBOX")
    elif what == "flag":
        change_flags(store, entry, range(number, number + 5), FlagAction.ADD, Flags(Flag.SEEN, ("word",)))
    elif what == "remove":
        remove(store, entry, range(number, number + 70))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures") / "store"
    store = make_store(root)
    other = open_store(root, SMALL)
    yield store, other
    other.close()
    store.close()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_a_refreshed_picture_is_a_new_one(place, steps):
    store, other = place
    entry = store.entry(MailboxName("alice", "INBOX"))
    view = store.open_mailbox(entry)
    for what, number in steps:
        if what == "other process":
            act(other, entry, ("arrive", "flag", "remove")[number % 3], number)
        else:
            act(store, entry, what, number)
        again = store.open_again(entry)
        if number % 2:
            view = store.refresh(view)
        if again is not None:
            fresh = store.open_mailbox(entry)
            assert (again.rows.tobytes(), again.state.to_bytes()) == (fresh.rows.tobytes(), fresh.state.to_bytes())
    view, fresh = store.refresh(view), store.open_mailbox(entry)
    assert view.rows.tobytes() == fresh.rows.tobytes()
    assert view.state.to_bytes() == fresh.state.to_bytes()


@pytest.mark.parametrize("messages", [3, LARGE])
def test_who_opens_a_mailbox_again_reads_it_only_after_a_change(place, messages):
    """The view is of now; of a mailbox that is on its way to another partition there is none."""
    store, other = place
    entry = namespace.create_mailbox(store, MailboxName("bob", f"Of {messages}"))
    deliver(store, b"Subject: x\r\n\r\n", str(entry.name))
    while more := messages - store.status(entry).messages:
        copy_messages(store, entry, entry, store.open_mailbox(entry).uids[:more])
    opened = store.open_mailbox(entry)
    assert store.open_again(entry).rows.tobytes() == opened.rows.tobytes()
    assert store.open_again(entry, "alice") is None                     # whose flags may be others
    change_flags(other, entry, [2], FlagAction.ADD, Flags(Flag.SEEN))
    assert store.open_again(entry) is None
    store.open_mailbox(entry)
    assert store.open_again(entry).rows["flags"].tolist()[:3] == [0, Flag.SEEN, 0]
    store.transact(entry, lambda txn: holding.hold(txn, [entry.id]))
    assert store.open_again(entry) is None
    store.transact(entry, lambda txn: holding.moves_no_more(txn, entry.id))
    assert store.open_again(entry) is not None


@pytest.mark.parametrize("actors", list(itertools.product("mo", repeat=3)))
def test_whoever_changed_what_in_between(place, actors):
    """Three chunks, each changed by this process (m) or another (o): no order of the two hides a change."""
    store, other = place
    entry = store.entry(MailboxName("bob", "INBOX"))
    while len(store.open_mailbox(entry).rows) < 200:
        deliver(store, b"Subject: x\r\n\r\n", "user/bob/INBOX")
    view = store.refresh(store.open_mailbox(entry))
    change_flags(store, entry, [int(view.rows["uid"][0])], FlagAction.REPLACE, Flags(keywords=("".join(actors),)))
    view = store.refresh(view)
    for at, actor in enumerate(actors):
        remove({"m": store, "o": other}[actor], entry, [int(view.rows["uid"][at * 70 + 1])])
    assert store.refresh(view).rows.tobytes() == store.open_mailbox(entry).rows.tobytes()
    assert len(store.refresh(view).rows) == len(view.rows) - 3


@pytest.mark.parametrize("undone", ["a flag", "an arrival"])
def test_what_another_process_undid_is_seen_by_who_has_an_older_picture_and_by_who_has_a_newer_one(place, undone):
    """RFC 3501 §7: the newer one has what is no more, although between the older one and now nothing is different."""
    store, other = place
    entry = store.entry(MailboxName("alice", "INBOX"))
    uid = deliver(other, b"Subject: undone\r\n\r\n", "user/alice/INBOX")[0].uid
    older = store.open_mailbox(entry)
    if undone == "a flag":
        change_flags(other, entry, [uid], FlagAction.ADD, Flags(Flag.FLAGGED))
        newer = store.open_mailbox(entry)
        change_flags(other, entry, [uid], FlagAction.REMOVE, Flags(Flag.FLAGGED))
    else:
        uid = deliver(other, b"Subject: undone again\r\n\r\n", "user/alice/INBOX")[0].uid
        newer = store.open_mailbox(entry)
        remove(other, entry, [uid])
    older = store.refresh(older)
    newer, fresh = store.refresh(newer), store.open_mailbox(entry)
    assert older.rows.tobytes() == newer.rows.tobytes() == fresh.rows.tobytes()
    assert newer.since is None or newer.since.chunks


def hearing(other, told):
    """Have what the other process tells of its changes collected, as a socket would bring it."""
    other.news.forward = lambda mailboxes, changes: told.extend(changes)


HEARD = st.lists(st.tuples(st.sampled_from(["arrive", "flag", "remove"]), st.booleans(), st.integers(1, 200),
                           st.sampled_from(["heard", "late", "lost", "twice"])), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=HEARD)
def test_what_is_heard_of_changes_elsewhere_late_twice_or_not_at_all_changes_no_view(place, steps):
    store, other = place
    entry = store.entry(MailboxName("alice", "INBOX"))
    view, late = store.open_mailbox(entry), []
    for what, elsewhere, number, how in steps:
        told = []
        hearing(other, told)
        act(other if elsewhere else store, entry, what, number)
        if how != "lost":
            (late if how == "late" else told).extend(told * (how == "twice"))
            late += told if how == "late" else []
            store.news.hear([], told if how != "late" else [])
        if number % 3 == 0:
            view = store.refresh(view)
        if number % 5 == 0:
            store.news.hear([], reversed(late))
            late = []
    view, fresh = store.refresh(view), store.open_mailbox(entry)
    assert view.rows.tobytes() == fresh.rows.tobytes()
    assert view.state.to_bytes() == fresh.state.to_bytes()


@pytest.mark.parametrize(("way", "flag"), [("heard", Flag.FLAGGED), ("shown", Flag.ANSWERED)])
def test_who_knows_what_another_process_changed_reads_that_chunk_and_no_other(place, faults, way, flag):
    """It was heard, or is shown to who asks for it."""
    store, other = place
    entry = store.entry(MailboxName("bob", "INBOX"))
    while len(store.open_mailbox(entry).rows) < 300:
        deliver(store, b"Subject: x\r\n\r\n", "user/bob/INBOX")
    view, told = store.open_mailbox(entry), []
    hearing(other, told)
    uids = [int(view.rows["uid"][100]), int(view.rows["uid"][280])]
    change_flags(other, entry, uids[:1], FlagAction.ADD, Flags(flag))
    uids.append(deliver(other, b"Subject: y\r\n\r\n", "user/bob/INBOX")[0].uid)
    change_flags(other, entry, uids[1:2], FlagAction.ADD, Flags(flag))
    if way == "heard":
        store.news.hear([], told)
    else:
        faults.around(store.news, "shown", lambda _, mailbox: [change for change in told if change.mailbox == mailbox])
    read = []
    table = type(store.partition_of(entry).index)
    faults.before(table, "get", lambda self, key, txn=None: self.name == "index.db" and read.append(key))
    faults.forbid(table, "scan")        # of all chunks
    view = store.refresh(view)
    faults.mend()
    assert read == [chunk_key(entry.id, number) for number in sorted({chunk_number(uid) for uid in uids})]
    assert view.rows.tobytes() == store.open_mailbox(entry).rows.tobytes()


def test_nothing_new_is_the_same_object(store):
    view = store.open_mailbox(store.entry(MailboxName("alice", "INBOX")))
    assert store.refresh(view) is view


def test_pictures_cannot_be_written_to(store):
    deliver(store, b"x", "user/alice/INBOX")
    entry = store.entry(MailboxName("alice", "INBOX"))
    view = store.open_mailbox(entry)
    deliver(store, b"y", "user/alice/INBOX")
    for rows in (view.rows, store.refresh(view).rows):
        with pytest.raises(ValueError):
            rows["flags"] = np.uint16(1)


def test_recent_belongs_to_one_session(store):
    deliver(store, b"x", "user/alice/INBOX")
    deliver(store, b"y", "user/alice/INBOX")
    entry = store.entry(MailboxName("alice", "INBOX"))
    assert store.claim_recent(entry) == (1, 3)
    assert store.claim_recent(entry) == (3, 3)
    deliver(store, b"z", "user/alice/INBOX")
    assert store.claim_recent(entry) == (3, 4)


@pytest.mark.parametrize("what", ["arrive", "flag", "remove"])
@pytest.mark.parametrize("who", ["this process", "another process"])
def test_what_several_sessions_look_at_is_read_once(place, faults, what, who):
    """Issue 24: 50 sessions in IDLE on a mailbox read each message that arrived 50 times, a transaction for each."""
    store, other = place
    entry = store.entry(MailboxName("alice", "INBOX"))
    deliver(store, b"Subject: x\r\n\r\n", "user/alice/INBOX")
    views = [store.open_mailbox(entry) for _ in range(5)]
    act(store if who == "this process" else other, entry, what, int(views[0].rows["uid"][-1]))
    partition = store.partition_of(entry)
    begun = faults.watch(partition.env, "begin", lambda **how: how)
    refreshed = [store.refresh(view) for view in views]
    assert len(begun) <= 1
    faults.mend()
    partition.views.forget()
    fresh = store.open_mailbox(entry)
    for old, view in zip(views, refreshed, strict=True):
        assert (view.rows.tobytes(), view.state.to_bytes()) == (fresh.rows.tobytes(), fresh.state.to_bytes())
        assert view.since.chunks == refreshed[0].since.chunks and view.since.state is old.state


def test_what_one_session_has_read_the_next_one_need_not_look_for(place):
    store, other = place
    entry = store.entry(MailboxName("bob", "INBOX"))
    views = store.partition_of(entry).views
    for what in ("arrive", "flag", "arrive"):
        first, second = store.open_mailbox(entry), store.open_mailbox(entry)
        if what == "flag":
            change_flags(other, entry, [int(first.uids[0])], FlagAction.ADD, Flags(Flag.ANSWERED))
        else:
            deliver(other, b"Subject: one more\r\n\r\n", "user/bob/INBOX")
        assert views.glance(first) is None
        read = store.refresh(first)
        found = views.glance(second)
        assert found is not None and found.rows is read.rows and found.state.to_bytes() == read.state.to_bytes()
        if what == "arrive":
            assert read.since is not None and found.since is not None and read.since.at == found.since.at == ()
