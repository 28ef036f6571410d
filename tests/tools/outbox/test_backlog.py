"""What waits for a receiver: how much of it is kept, in what order it goes, and that it is there after a crash."""

from itertools import pairwise
from typing import Any

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.events import receivers
from store.events.outboxtable import DEAD, OutboxTable, Parcel
from store.mailboxes import namespace
from tests.support.servers.outboxreceivers import MAIL, begin, hook, post, run
from tests.support.stores.stores import deliver, make_store, reopen_after_crash
from tools.outbox.destination import Down
from tools.outbox.sendall import outboxes
from tools.outbox.sending import Sending


def test_a_receiver_that_never_answers_keeps_what_waits_and_no_other_waits(store, clock, places):
    """One hangs for as long as it likes: the other has everything at once, and what the first has not said it has is
    still there, in order, and comes when it answers."""
    begin(store, clock, a=hook("a", timeout=5.0, retry=1.0, retry_longest=1.0), b=hook("b"))
    stuck, other = places["https://a.example"], places["https://b.example"]
    stuck.says = ["silence"] * 3
    post(store, 1, 2)
    run(clock, 2)
    post(store, 3)
    run(clock, 2)
    assert (stuck.uids, other.uids) == ([], ["1", "2", "3"])
    run(clock, 30)
    assert stuck.uids == ["1", "2", "3"] and [table.receivers() for _, table in outboxes(store).values()] == [[], []]


def test_what_is_too_old_for_one_that_is_down_is_a_dead_letter(store, clock, places, monkeypatch):
    begin(store, clock, a=hook(give_up=100.0, retry=1.0))
    place = places["https://a.example"]
    post(store, 1)
    place.says = [Down("no")]
    later = __import__("time").time() + 101
    monkeypatch.setattr("tools.outbox.sending.time.time", lambda: later)
    run(clock, 1)
    table = store.partitions["primary"].outbox
    assert [parcel.said for parcel in table.some("a", 10, DEAD)] == ["too old; no"]


def test_with_a_full_backlog_no_more_is_kept_and_then_it_is_told(store, clock, places):
    made = begin(store, clock, a=hook(backlog=4, retry=1.0, retry_longest=1.0))
    sending = made.sendings["a"]
    place = places["https://a.example"]
    place.says = [Down("no")] * 8
    post(store, 1, 2, 3, 4, 5)
    run(clock, 3)
    sending._next_count = 0.0
    run(clock, 2)
    assert made.look("a") and store.recorder.receivers.all[0].full
    post(store, 6, 7)
    run(clock, 10)
    assert place.uids == ["1", "2", "3", "4", "5"]
    sending._next_count = 0.0
    run(clock, 1)
    made.look("a")
    assert not store.recorder.receivers.all[0].full
    made.look("a")                      # other processes may not have heard yet: no more is said so far
    run(clock, 2)
    assert len(place.has) == 5
    made.stop()
    made = begin(store, clock, a=hook(backlog=4, retry=1.0, retry_longest=1.0))     # a stop before it was told
    made.look("a")
    post(store, 8)
    run(clock, 2)
    assert [body["event"] for body in place.has[5:]] == ["vnd.onecopy.EventsLost", "MessageNew"]
    assert store.recorder.lost == {"a": 2}


def test_what_is_written_during_a_look_comes_in_order(store, clock, places, monkeypatch):
    """A mailbox is made, and gets a message, when the look has read the list's environment and not yet the partition's:
    the receiver must not hear of the message first."""
    begin(store, clock, a=hook())
    some, box = OutboxTable.some, MailboxName("alice", "New")

    def meanwhile(self: OutboxTable, *how: Any, **more: Any) -> list[Parcel]:
        found = some(self, *how, **more)
        if self is store.outbox and store.mailboxes.find(box) is None:
            namespace.create_mailbox(store, box)
            deliver(store, MAIL % 1, str(box))
        return found

    monkeypatch.setattr(OutboxTable, "some", meanwhile)
    run(clock, 2)
    assert [body["event"] for body in places["https://a.example"].has] == ["MailboxCreate", "MessageNew"]


def test_what_has_been_sent_goes_though_something_comes_before_it(store, clock, places, monkeypatch):
    """A slow transaction took its place earlier: what was sent does not come again for that."""
    made = begin(store, clock, a=hook(batch=1))
    post(store, 1)
    outbox, env = store.partitions["primary"].outbox, store.partitions["primary"].env
    batch = made.sendings["a"]._fetch(1)
    early = batch[0].key[:3] + bytes(16)
    transact(env, lambda txn: outbox.table.put(early, batch[0].to_bytes(), txn))
    made.sendings["a"]._remove(batch)
    assert [parcel.key for parcel in outbox.some("a", 10)] == [early]


def test_large_events_go_in_smaller_batches(store, clock, places, monkeypatch):
    begin(store, clock, a=hook())
    monkeypatch.setattr("tools.outbox.sending.BATCH_OCTETS", 1)
    post(store, 1, 2, 3)
    run(clock, 2)
    assert places["https://a.example"].uids == ["1", "2", "3"] and places["https://a.example"].asked == 3


def test_a_row_that_cannot_be_read_stops_nobody(store, clock, places):
    """In its place the receiver is told that an event is missing."""
    begin(store, clock, a=hook())
    post(store, 1, 2)
    outbox, env = store.partitions["primary"].outbox, store.partitions["primary"].env
    first, second = outbox.some("a", 2)
    transact(env, lambda txn: outbox.table.put(first.key, b"{no JSON", txn))
    run(clock, 1)
    assert [(body["event"], body.get("uidset")) for body in places["https://a.example"].has] == [
        ("vnd.onecopy.EventsLost", None), ("MessageNew", "2")]


def test_a_file_of_receivers_that_cannot_be_read_is_written_anew(store, clock, places):
    (store.root / receivers.FILE).write_bytes(b"[{")
    begin(store, clock, a=hook())
    post(store, 1)
    run(clock, 1)
    assert places["https://a.example"].uids == ["1"]


def test_a_stop_in_the_middle_has_it_sent_again(store, clock, places):
    made = begin(store, clock, a=hook())
    places["https://a.example"].says = ["silence"]
    post(store, 1)
    run(clock, 2)
    made.stop()
    begin(store, clock, a=hook())
    run(clock, 1)
    assert places["https://a.example"].uids == ["1"]


def test_nothing_leaves_before_it_is_on_disk(store, clock, places, monkeypatch):
    """What a crash undoes must not have been told."""
    flushed = []
    env = store.partitions["primary"].env
    flush = env.flush
    monkeypatch.setattr(env, "flush", lambda: (flushed.append(places["https://a.example"].asked), flush()))
    begin(store, clock, a=hook())
    post(store, 1)
    flushed.clear()
    run(clock, 1)
    assert flushed[0] == 0 and places["https://a.example"].asked == 1


def test_batches_have_their_size_and_a_second_its_events(store, clock, places):
    """`batch` and `rate`: 10 events in batches of 4, at most 2 a second."""
    begin(store, clock, a=hook(batch=4, rate=2))
    place = places["https://a.example"]
    post(store, *range(10))
    sizes, times = [0], []
    while len(place.has) < 10:
        clock.advance(0.25)
        if len(place.has) > sum(sizes):
            sizes.append(len(place.has) - sum(sizes))
            times.append(clock.seconds())
        assert clock.seconds() < 60
    assert sizes[1:] == [4, 4, 2] and [later - earlier for earlier, later in pairwise(times)] == [2.0, 2.0]


def test_what_waits_at_a_crash_is_sent_after_the_start(clock, places, tmp_path, monkeypatch):
    """Nobody does anything for it; and what was sent, and not yet taken away, comes again."""
    store = make_store(tmp_path / "other")
    made = begin(store, clock, a=hook(batch=2))
    place = places["https://a.example"]
    post(store, 1, 2, 3)
    def stops(*_: object) -> None:
        made.stop()
        raise OSError("the machine stops before the rows are taken away")

    with monkeypatch.context() as dying:
        dying.setattr(Sending, "_remove", stops)
        run(clock, 1)
    assert place.uids == ["1", "2"]
    store = reopen_after_crash(store)
    begin(store, clock, a=hook(batch=2))
    run(clock, 2)
    assert list(dict.fromkeys(place.uids)) == ["1", "2", "3"] and place.uids.count("1") > 1
    assert [table.receivers() for _, table in outboxes(store).values()] == [[], []]
    assert check(store) == []
    store.close()
