"""Receivers that are slow, down, or refuse what they get: the others go on, and nothing is lost or out of order."""

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred

from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.events.outboxtable import DEAD, Parcel
from store.mailboxes import namespace
from store.offload import Threads
from tests.support.servers.outboxreceivers import MAIL, begin, hook, post, run
from tests.support.stores.stores import deliver
from tools.outbox import sending
from tools.outbox.destination import Down
from tools.outbox.sendall import outboxes


def test_batches_in_order_from_all_environments(store, clock, places):
    begin(store, clock, a=hook(batch=3))
    post(store, 1, 2)
    namespace.create_mailbox(store, MailboxName("alice", "Box"))
    post(store, 3, 4)
    deliver(store, MAIL % 1, "user/alice/Box")
    run(clock, 2)
    assert [(body["event"], body.get("uidset")) for body in places["https://a.example"].has] == [
        ("MessageNew", "1"), ("MessageNew", "2"), ("MailboxCreate", None), ("MessageNew", "3"), ("MessageNew", "4"),
        ("MessageNew", "1")]
    assert [table.receivers() for _, table in outboxes(store).values()] == [[], []]


def test_a_stop_waits_for_no_receiver(store, clock, places):
    """What one that says nothing was sent is let go, nothing is a dead letter for it, and the next start sends it."""
    made = begin(store, clock, a=hook("a", give_up=1e-9), b=hook("b"))
    silent, other = places["https://a.example"], places["https://b.example"]
    silent.says, silent.closing = ["silence"], ValueError("of a library")
    post(store, 1)
    run(clock, 1)
    assert silent.asked == 1 and not silent.let_go
    made.stop()
    assert silent.let_go and (silent.closed, other.closed) == (1, 1)
    assert clock.getDelayedCalls() == [] and made.sendings["a"].buried == 0
    silent.closing = None
    begin(store, clock, a=hook("a"), b=hook("b"))
    run(clock, 1)
    assert silent.uids == other.uids == ["1"]


def test_nothing_is_begun_after_a_stop(store, clock, places):
    """A look at what waits, which was under way, ends after it."""
    made = begin(store, clock, a=hook("a"))
    looked: Deferred[None] = Deferred()
    post(store, 1)

    class Slow(Threads):
        async def run(self, kind, work, then=None, user=""):
            result = work()
            await looked
            return result

    made.sendings["a"].threads = Slow()
    run(clock, 1)
    made.stop()
    looked.callback(None)
    assert places["https://a.example"].asked == 0 and clock.getDelayedCalls() == []


def test_one_that_is_down_gets_all_of_it_later_and_holds_up_nobody(store, clock, places):
    made = begin(store, clock, a=hook("a", retry=1.0, retry_longest=4.0), b=hook("b"))
    down, up = places["https://a.example"], places["https://b.example"]
    down.says = [Down("no")] * 5
    post(store, 1, 2, 3)
    times = []
    while not down.has:
        before = down.asked
        clock.advance(0.25)
        if down.asked > before:
            times.append(clock.seconds())
        assert clock.seconds() < 60
        if clock.seconds() == 5.0:
            status = made.status()[0]
            assert (status["state"], status["said"], status["failures"]) == ("down", "no", 3)
    assert up.uids == ["1", "2", "3"] == down.uids
    assert [round(later - earlier) for earlier, later in zip(times, times[1:], strict=False)] == [1, 2, 4, 4, 4]
    assert made.status()[0]["state"] == "up"


def test_how_long_the_first_has_waited(store, clock, places, unix_time):
    """By the receiver: what another one has taken does not count."""
    made = begin(store, clock, a=hook(retry=1.0, retry_longest=1.0), b=hook("b"))
    places["https://a.example"].says = [Down("no")] * 8
    began = unix_time.now
    post(store, 1)
    run(clock, 2)
    unix_time.now = began + 30
    post(store, 2)
    run(clock, 2)
    assert [each["waited"] for each in made.status()] == [30.0, 0.0]
    run(clock, 10)
    assert [each["waited"] for each in made.status()] == [0.0, 0.0]
    assert places["https://a.example"].uids == ["1", "2"]


def test_one_that_never_answers_is_given_so_much_time(store, clock, places):
    made = begin(store, clock, a=hook(timeout=10.0, retry=1.0))
    places["https://a.example"].says = ["silence"]
    post(store, 1)
    run(clock, 9)
    assert places["https://a.example"].uids == []
    run(clock, 1.25)
    assert made.status()[0]["said"] == "no answer in time"
    run(clock, 3)
    assert places["https://a.example"].uids == ["1"]


def test_what_is_refused_again_and_again_is_a_dead_letter_and_can_be_sent_again(store, clock, places, monkeypatch):
    for name in ("COUNT_INTERVAL", "COUNT_SHARE"):
        monkeypatch.setattr(sending, name, 0)           # it counts whenever it looks
    made = begin(store, clock, a=hook(attempts=3, retry=1.0, retry_longest=1.0))
    place = places["https://a.example"]
    place.wrong = {"2"}
    post(store, 1, 2, 3)
    run(clock, 20)
    assert place.uids == ["1", "3"]
    env, table = outboxes(store)["primary"]
    dead, = table.some("a", 10, DEAD)
    assert (dead.body["uidset"], dead.tries, dead.said, dead.dead) == ("2", 3, "not this one", True)
    assert made.status()[0]["kept_dead"] == 1
    place.wrong = set()
    assert transact(env, lambda txn: table.revive(dead, txn))
    run(clock, 5)
    assert place.uids == ["1", "3", "2"] and made.status()[0]["kept_dead"] == 0


def test_one_of_a_message_to_many_is_refused_and_the_others_go(store, clock, places):
    """The events of one transaction share a row: what a receiver refuses is a dead letter alone, and sent again once
    somebody says so; the others, and what comes later, have gone."""
    begin(store, clock, a=hook(attempts=2, retry=1.0, retry_longest=1.0))
    place = places["https://a.example"]
    post(store, 1)
    run(clock, 2)
    place.wrong = {"2"}                         # alice's; it is bob's first
    deliver(store, MAIL % 2, "user/bob/INBOX", "user/alice/INBOX")
    post(store, 3)
    run(clock, 20)
    assert [(body["user"], body["uidset"]) for body in place.has] == [("alice", "1"), ("bob", "1"), ("alice", "3")]
    env, table = outboxes(store)["primary"]
    dead, = table.some("a", 10, DEAD)
    place.wrong = set()
    assert transact(env, lambda txn: table.revive(dead, txn))
    run(clock, 5)
    assert [(body["user"], body["uidset"], body.get("vnd.onecopy.again")) for body in place.has[3:]] == [
        ("alice", "2", dead.id)]
    assert len({body["id"] for body in place.has}) == 4


@pytest.mark.parametrize(("batch", "sizes"), [(1, [1, 1, 1, 1]), (2, [1, 2, 1]), (3, [3, 1])])
def test_batches_are_never_larger_than_was_asked_for(store, clock, places, batch, sizes):
    """Nor when one transaction has more events."""
    begin(store, clock, a=hook(batch=batch))
    place, sent = places["https://a.example"], []
    send = place.send

    async def counted(batch: Sequence[Parcel]) -> None:
        sent.append(len(batch))
        await send(batch)

    place.send = counted
    post(store, 1)
    deliver(store, MAIL % 2, "user/alice/INBOX", "user/bob/INBOX")
    post(store, 3)
    run(clock, 2)
    assert sent == sizes and [(body["user"], body["uidset"]) for body in place.has] == [
        ("alice", "1"), ("alice", "2"), ("bob", "1"), ("alice", "3")]


def test_what_happens_is_gathered(store, clock, places):
    """Within the time of `gather` it goes together; what fills a batch is not waited for."""
    begin(store, clock, a=hook(batch=3, gather=2.0))
    place = places["https://a.example"]
    clock.advance(0)
    post(store, 1)
    clock.advance(1)
    post(store, 2)
    assert (place.asked, place.has) == (0, [])
    clock.advance(1)
    assert (place.asked, place.uids) == (1, ["1", "2"])
    post(store, *range(3, 10))
    clock.advance(2)
    clock.pump([0, 0, 0])
    assert (place.asked, len(place.uids)) == (4, 9)
