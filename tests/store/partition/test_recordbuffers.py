"""Large mailboxes in memory: few arrays that are changed where nobody looks, and views that stay what they were."""

import gc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mboxlist.names import MailboxName
from store.mailboxes.authorization import set_acl
from store.mailboxes.expunge import remove
from store.mailboxes.flagchanges import change_flags
from store.opening import open_store
from store.partition import recordbuffers, views
from store.partition import transactions as txn
from store.tables.index import CHUNK, ROW, chunk_key
from store.values import Flag, FlagAction, Flags
from tests.support.stores import chunkforms
from tests.support.stores.stores import SMALL, deliver, make_store

KINDS = ["arrive", "flag", "flag many", "remove", "remove the last", "other flag", "other arrive", "other remove"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 400), st.lists(st.integers(0, 3), max_size=3)),
                 min_size=1, max_size=8)


@pytest.fixture(autouse=True)
def _every_mailbox_is_large(monkeypatch):
    monkeypatch.setattr(recordbuffers, "LARGE", 1)
    monkeypatch.setattr(views, "LARGE", 1)
    monkeypatch.setattr(recordbuffers, "ROOM", 16)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("copies") / "store"
    store = make_store(root)
    other = open_store(root, SMALL)
    yield store, other
    other.close()
    store.close()


def arrive(store, user, count):
    for at in range(count):
        deliver(store, b"Subject: %d\r\n\r\n" % (at % 3), f"user/{user}/INBOX")


def at_once(store, view):
    """As a session looks."""
    return store.partitions[view.entry.partition].views.glance(view) or store.refresh_at_once(view)


def truth(store, entry):
    """The records as they are stored, read without any of what is tested here."""
    start, end = chunk_key(entry.id, 0), chunk_key(entry.id + 1, 0)
    return b"".join(chunkforms.records(value) for _, value in store.partition_of(entry).index.scan(start, end))


def act(store, other, entry, what, number):
    at = store.status(entry)
    who = other if what.startswith("other") else store
    uids = np.frombuffer(truth(store, entry), ROW)["uid"]
    if what.endswith("arrive"):
        arrive(who, entry.name.owner, number % 9 + 1)
    elif what.endswith("flag"):
        change_flags(who, entry, [number], (FlagAction.ADD, FlagAction.REMOVE)[number % 2], Flags(Flag.FLAGGED))
    elif what == "flag many":
        change_flags(who, entry, range(1, at.uidnext, number % 50 + 1), FlagAction.ADD, Flags(Flag.SEEN))
    elif what == "remove the last":
        remove(who, entry, uids[-(number % 5):])
    else:
        remove(who, entry, range(number, number + number % 70))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_a_picture_is_the_truth_and_stays_as_it_was(place, steps):
    """Four sessions look now and then; what each holds must never change under it."""
    store, other = place
    entry = store.entry(MailboxName("alice", "INBOX"))
    if store.status(entry).messages < 150:
        arrive(store, "alice", 200)
    sessions = [store.open_mailbox(entry) for _ in range(4)]
    held = [(view, truth(store, entry)) for view in sessions]
    for what, number, lookers in steps:
        act(store, other, entry, what, number)
        for who in lookers:
            sessions[who] = view = store.refresh(sessions[who]) if number % 3 else at_once(store, sessions[who])
            held.append((view, truth(store, entry)))
            assert view.state.to_bytes() == store.status(entry).to_bytes()
        if number % 7 == 0:
            sessions[number % 4] = store.open_mailbox(entry)
    for view, octets in held[:-len(held) // 2:-1]:
        assert view.rows.tobytes() == octets
        assert view.uids.tolist() == view.rows["uid"].tolist()
    del held
    for at in range(4):
        sessions[at] = store.refresh(sessions[at])
        assert sessions[at].rows.tobytes() == truth(store, entry)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_what_is_new_since_then_is_in_the_chunks_that_are_named(place, steps):
    store, other = place
    entry = store.entry(MailboxName("bob", "INBOX"))
    if store.status(entry).messages < 150:
        arrive(store, "bob", 200)
    old = store.open_mailbox(entry)
    before = {uid: (row["flags"], row["keywords"], row["modseq"]) for uid, row in zip(old.uids, old.rows, strict=True)}
    for what, number, _ in steps:
        act(store, other, entry, what, number)
    new = store.refresh(old)
    if new is old or new.since is None:
        return
    assert new.since.state is old.state
    now = {uid: (row["flags"], row["keywords"], row["modseq"]) for uid, row in zip(new.uids, new.rows, strict=True)}
    different = {int(uid) for uid in before if now.get(uid) != before[uid]}
    assert {(uid - 1) // CHUNK for uid in different} <= new.since.chunks
    if new.since.at is not None:            # nothing but arrivals, and flags of these
        assert new.uids[:len(old.uids)].tolist() == old.uids.tolist()
        assert different <= {int(old.uids[at]) for at in new.since.at}


def records(uids, modseq):
    rows = np.zeros(len(uids), ROW)
    rows["uid"] = sorted(uids)
    rows["modseq"] = modseq
    return rows


UIDS = st.sets(st.integers(1, 6 * CHUNK), max_size=60)


@settings(max_examples=300, deadline=None)
@given(UIDS, UIDS, st.sets(st.integers(0, 6)), st.booleans())
def test_chunks_take_the_place_of_theirs(old, new, numbers, own):
    """In its own memory or another's; chunks may grow, shrink, come and go. What has no room is left as it was."""
    rows = records(old, 1)
    first = recordbuffers.Copy.with_room(None, len(old))
    assert first.fill(None, recordbuffers.Records(None, rows, np.ascontiguousarray(rows["uid"])), ())
    target = first if own else recordbuffers.Copy.with_room(None, len(old) + len(new))
    pieces = [(number, records({uid for uid in new if (uid - 1) // CHUNK == number}, 2)) for number in sorted(numbers)]
    expected = {uid: 1 for uid in old if (uid - 1) // CHUNK not in numbers}
    expected |= {uid: 2 for uid in new if (uid - 1) // CHUNK in numbers}
    if target.fill(None, first.seen(), pieces):
        seen = target.seen()
        assert dict(zip(seen.rows["uid"].tolist(), seen.rows["modseq"].tolist(), strict=True)) == expected
        assert seen.rows["uid"].tolist() == seen.uids.tolist() == sorted(expected)
    else:
        assert own
        assert first.seen().rows.tobytes() == rows.tobytes()


def big(store, user="alice", count=300):
    entry = store.entry(MailboxName(user, "INBOX"))
    arrive(store, user, count)
    return entry


def address(view):
    return view.rows.__array_interface__["data"][0]


def test_a_change_is_not_a_copy(store, faults):
    """Two sessions, one changes a flag, both look: two or three arrays serve for ever, and nobody reads what is stored
    but the change itself, which looks at its own chunk."""
    entry = big(store)
    one, two = store.open_mailbox(entry), store.open_mailbox(entry)
    assert address(one) == address(two)
    reads, seen = faults.watch(store.partition_of(entry), "whole"), set()
    for at in range(40):
        change_flags(store, entry, [at * 7 % 300 + 1], FlagAction.ADD, Flags(Flag.FLAGGED))
        one = at_once(store, one)
        two = at_once(store, two)
        assert address(one) == address(two)
        seen.add(address(one))
    assert len(seen) <= 3
    assert not reads
    assert one.rows.tobytes() == truth(store, entry)


@pytest.mark.parametrize("missed", [1, 2, views.STEPS, views.STEPS + 1])
def test_who_has_missed_several_changes_of_single_messages_sees_them_all(store, missed):
    """And what is new is where they say; a message that changed twice counts once."""
    entry = big(store)
    old = store.open_mailbox(entry)
    octets = old.rows.tobytes()
    changed = [at * 70 % 300 + 1 for at in range(missed - 1)] + [1]
    for at, uid in enumerate(changed):
        change_flags(store, entry, [uid], FlagAction.ADD, Flags(Flag.FLAGGED if at < missed - 1 else Flag.SEEN))
    new = at_once(store, old)
    assert new.rows.tobytes() == truth(store, entry) and old.rows.tobytes() == octets
    assert new.state.to_bytes() == store.status(entry).to_bytes()
    assert new.since.state is old.state and new.since.chunks == {(uid - 1) // CHUNK for uid in changed}


def test_who_has_missed_an_arrival_and_its_flags_reads_nothing(store, faults):
    """Two sessions of one mailbox: what has come, and has been read since, is in memory; the older views stay."""
    entry = big(store)
    old = store.open_mailbox(entry)
    octets, reads = old.rows.tobytes(), []
    arrive(store, "alice", 1)
    between = at_once(store, old)
    change_flags(store, entry, [301, 5], FlagAction.ADD, Flags(Flag.FLAGGED))
    change_flags(store, entry, [301], FlagAction.ADD, Flags(Flag.SEEN))
    change_flags(store, entry, [5], FlagAction.ADD, Flags(Flag.SEEN))
    arrive(store, "alice", 2)
    change_flags(store, entry, [303], FlagAction.ADD, Flags(Flag.SEEN))
    assert store.refresh(between).rows.tobytes() == truth(store, entry)
    middle = store.refresh(between)
    change_flags(store, entry, [7], FlagAction.ADD, Flags(Flag.SEEN))
    arrive(store, "alice", 1)
    change_flags(store, entry, [304], FlagAction.ADD, Flags(Flag.SEEN))
    faults.around(store.partition_of(entry), "whole", lambda _, *chunks: reads.append(chunks))
    new = at_once(store, middle)
    faults.mend()
    assert not reads and new.rows.tobytes() == truth(store, entry)
    assert new.uids.tolist() == list(range(1, 305)) and new.since.at == (6,)
    assert old.rows.tobytes() == octets and len(between.rows) == 301 and len(middle.rows) == 303


def test_who_changes_every_message_leaves_the_records_in_memory(store, faults):
    """The next look reads nothing; old views stay as they are. A change of one chunk's messages is none of all."""
    entry = big(store)
    old = store.open_mailbox(entry)
    octets, reads = old.rows.tobytes(), []
    for action in (FlagAction.ADD, FlagAction.REMOVE, FlagAction.ADD):
        change_flags(store, entry, range(1, 301), action, Flags(Flag.FLAGGED, ("word",)))
        faults.around(store.partition_of(entry), "whole", lambda _, *chunks: reads.append(chunks))
        new = store.refresh(old)
        faults.mend()
        assert not reads and new.rows.tobytes() == truth(store, entry) and old.rows.tobytes() == octets
    change_flags(store, entry, [1, 2], FlagAction.REMOVE, Flags(Flag.FLAGGED))
    assert store.refresh(new).rows.tobytes() == store.refresh(old).rows.tobytes() == truth(store, entry)
    arrive(store, "alice", 1)
    assert store.refresh(new).rows.tobytes() == truth(store, entry)


def test_what_must_be_read_for_long_is_not_read_at_once(store, monkeypatch):
    """A first look, and one after changes that nobody remembers; then others find it in memory."""
    monkeypatch.setattr("store.partition.views.MANY", 300)
    entry = big(store)
    assert store.open_at_once(entry) is None
    view = store.open_mailbox(entry)
    assert store.open_at_once(entry).rows.tobytes() == truth(store, entry)
    change_flags(store, entry, [7], FlagAction.ADD, Flags(Flag.FLAGGED))
    assert at_once(store, view).rows.tobytes() == truth(store, entry)
    with monkeypatch.context() as patch:
        patch.setattr(txn, "MAX_NAMED", 1)
        change_flags(store, entry, [5, 200], FlagAction.ADD, Flags(Flag.FLAGGED))
    assert at_once(store, view) is None and store.open_at_once(entry) is None
    assert store.refresh(view).rows.tobytes() == at_once(store, view).rows.tobytes() == truth(store, entry)


def test_a_change_of_many_chunks_is_told_though_nobody_names_them(store, monkeypatch):
    entry = big(store)
    view = store.open_mailbox(entry)
    monkeypatch.setattr(txn, "MAX_NAMED", 1)
    change_flags(store, entry, [5, 200], FlagAction.ADD, Flags(Flag.FLAGGED))
    new = store.refresh(view)
    assert new.since is None or {0, 3} <= new.since.chunks
    assert new.row(5)["flags"] & new.row(200)["flags"] & Flag.FLAGGED
    change_flags(store, entry, [6], FlagAction.ADD, Flags(Flag.FLAGGED))
    assert store.refresh(new).rows.tobytes() == store.refresh(view).rows.tobytes() == truth(store, entry)


def test_an_arrival_goes_to_the_end_of_the_array_that_all_look_at(store):
    entry = big(store)
    old = store.open_mailbox(entry)
    octets = old.rows.tobytes()
    arrive(store, "alice", 1)
    new = store.refresh(old)
    assert address(new) == address(old)
    assert (len(old.rows), len(new.rows)) == (300, 301)
    assert old.rows.tobytes() == octets and new.rows.tobytes() == truth(store, entry)


def test_there_is_more_room_when_it_is_used_up(store):
    entry = big(store)
    old = view = store.open_mailbox(entry)
    for _ in range(100):
        arrive(store, "alice", 1)
        view = store.refresh(view)
    assert address(view) != address(old)
    assert view.rows.tobytes() == truth(store, entry)


def test_what_nobody_holds_is_kept_for_the_next_as_far_as_there_is_room(store, monkeypatch):
    entries = [big(store, user, 200) for user in ("alice", "bob")]
    shelf = store.partition_of(entries[0]).views._shelf
    where = address(store.open_mailbox(entries[0]))
    gc.collect()
    assert address(store.open_mailbox(entries[0])) == where
    monkeypatch.setattr(recordbuffers, "FREE", 1000)
    shelf._look_at = 0
    store.open_mailbox(entries[1])
    change_flags(store, entries[1], [1], FlagAction.ADD, Flags(Flag.FLAGGED))
    held = store.open_mailbox(entries[1])
    kept = [copy for each in shelf._copies.values() for copy in each if not copy.free]
    assert [copy.seen().rows.tobytes() for copy in kept] == [held.rows.tobytes()]
    assert shelf._octets == sum(copy.memory.nbytes for each in shelf._copies.values() for copy in each)


def test_what_another_process_changed_is_found_and_remembered(place):
    """Two sessions: the first compares all chunks, the second is told what the first found."""
    store, other = place
    entry = store.entry(MailboxName("bob", "INBOX"))
    if store.status(entry).messages < 250:
        arrive(store, "bob", 300)
    one, two = store.open_mailbox(entry), store.open_mailbox(entry)
    uid = int(one.uids[100])
    flags = FlagAction.REMOVE if one.row(uid)["flags"] & Flag.DRAFT else FlagAction.ADD
    change_flags(other, entry, [uid], flags, Flags(Flag.DRAFT))
    one, two = store.refresh(one), store.refresh(two)
    for view in (one, two):
        assert view.since.chunks == {(uid - 1) // CHUNK}
        assert view.rows.tobytes() == truth(store, entry)


def test_a_reader_has_arrays_of_its_own(store):
    entry = big(store)
    set_acl(store, entry.name, "bob", "lrs")
    entry = store.entry(entry.name)
    owner, reader = store.open_mailbox(entry), store.open_mailbox(entry, "bob")
    change_flags(store, entry, [5], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    owner, reader = store.refresh(owner), store.refresh(reader)
    assert not owner.row(5)["flags"] & Flag.SEEN
    assert reader.row(5)["flags"] & Flag.SEEN
    change_flags(store, entry, [6], FlagAction.ADD, Flags(Flag.SEEN))
    owner, reader = store.refresh(owner), store.refresh(reader)
    assert owner.row(6)["flags"] & Flag.SEEN and not reader.row(6)["flags"] & Flag.SEEN
    assert reader.row(5)["flags"] & Flag.SEEN


def test_a_reader_does_not_see_what_another_of_that_name_had_read(store):
    """A user goes, and another gets the name: their flags are taken away without any change of the mailbox."""
    entry, partition = big(store), store.partitions["primary"]
    set_acl(store, entry.name, "bob", "lrs")
    entry = store.entry(entry.name)
    change_flags(store, entry, [5], FlagAction.ADD, Flags(Flag.SEEN), "bob")
    assert store.open_mailbox(entry, "bob").row(5)["flags"] & Flag.SEEN
    partition.transact(lambda txn: partition.readers.rename(
        list(partition.readers.of_reader("bob")), None, txn.handle))
    assert not store.open_mailbox(entry, "bob").row(5)["flags"] & Flag.SEEN


def test_an_arrival_does_not_copy_the_uids_of_all(store):
    """With 1,000,000 messages that was 4 MB for each, and as much to find that they had not changed."""
    entry = big(store)
    arrive(store, "alice", 1)
    seen = [store.refresh(store.open_mailbox(entry))]
    for _ in range(10):
        arrive(store, "alice", 1)
        seen.append(store.refresh(seen[-1]))
    places = {view.uids.__array_interface__["data"][0] for view in seen}
    assert len(places) <= 2         # they moved once, into memory with room for more
    assert [view.uids.tolist() for view in seen] == [list(range(1, 302 + more)) for more in range(11)]


def test_uids_that_somebody_looks_at_stay_when_others_take_their_places(store):
    entry = big(store, count=20)
    arrive(store, "alice", 1)
    old = view = store.refresh(store.open_mailbox(entry))
    for _ in range(3):
        arrive(store, "alice", 2)
        view = store.refresh(view)
        remove(store, entry, view.uids[-1:])
        view = store.refresh(view)
        assert view.uids.tolist() == view.rows["uid"].tolist()
    assert old.uids.tolist() == old.rows["uid"].tolist() == list(range(1, 22))
