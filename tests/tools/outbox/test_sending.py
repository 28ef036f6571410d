"""Receivers that are slow, down, or refuse what they get: the others go on, and nothing is lost or out of order."""

import errno
import os
from base64 import b64encode
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from mboxlist import privatefiles
from mboxlist.engine.transact import transact
from mboxlist.names import MailboxName
from store.check.wholecheck import check
from store.events import outgoingmail, receivers
from store.events.outboxtable import DEAD, LATER, OutboxTable, Parcel
from store.mailboxes import namespace
from store.offload import Threads
from store.store import Store
from tests.support.stores.stores import deliver, make_store, reopen_after_crash
from tools.outbox import sendall
from tools.outbox.destination import Down, NotNow, Refused
from tools.outbox.jsonfile import append
from tools.outbox.outboxsettings import Settings
from tools.outbox.ownthread import OwnThread
from tools.outbox.sendall import Dispatch, outboxes
from tools.outbox.sending import Sending

MAIL = b"Subject: %d\r\n\r\nText\r\n"


class Place:
    """A receiver. `says`: what it answers to the next batches, by turns: an exception, or "silence"; then it takes
    all. What it does not take is `wrong`: UIDs."""

    def __init__(self) -> None:
        self.says: list[Any] = []
        self.has: list[dict[str, Any]] = []
        self.asked = 0
        self.wrong: set[str] = set()
        self.answers: dict[str, Exception] = {}         # to mail, by recipient
        self.tried: list[str] = []
        self.let_go = False             # what it was sent last was cancelled
        self.closed = 0
        self.closing: Exception | None = None           # what a library raises

    async def send(self, batch: Sequence[Parcel]) -> None:
        self.asked += 1
        if self.says:
            answer = self.says.pop(0)
            if answer == "silence":
                try:
                    await Deferred()
                except CancelledError as error:
                    self.let_go = True
                    raise Down(f"what a library makes of it: {error}") from error
            raise answer
        self.tried += [parcel.body.get("to", "") for parcel in batch]
        for parcel in batch:
            if parcel.body.get("to") in self.answers:
                raise self.answers[parcel.body["to"]]
        if self.wrong.intersection(parcel.body.get("uidset") for parcel in batch):
            raise Refused("not this one")
        self.has += [{"id": parcel.id, **parcel.body} for parcel in batch]

    def close(self) -> None:
        self.closed += 1
        if self.closing is not None:
            raise self.closing

    @property
    def uids(self) -> list[str]:
        return [body["uidset"] for body in self.has if "uidset" in body]


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[str, Place]:
    found: dict[str, Place] = {}

    def made(settings: Settings, _reactor: Any) -> Place:
        return found.setdefault(settings.to, Place())

    monkeypatch.setattr(sendall, "_MADE", dict.fromkeys(("https", "file"), made))
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begin(store: Store, clock: Clock, **receivers: Settings) -> Dispatch:
    made = Dispatch(store, receivers, Threads(), clock)
    made.start()
    for each in made.sendings.values():
        each.chance = lambda: 1.0
    return made


def hook(name: str = "a", **how: Any) -> Settings:
    return Settings(f"https://{name}.example", **how)


def post(store: Store, *numbers: int) -> None:
    for number in numbers:
        deliver(store, MAIL % number, "user/alice/INBOX")


def run(clock: Clock, seconds: float) -> None:
    clock.pump([0.25] * int(seconds * 4))


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


def test_what_is_refused_again_and_again_is_a_dead_letter_and_can_be_sent_again(store, clock, places):
    begin(store, clock, a=hook(attempts=3, retry=1.0, retry_longest=1.0))
    place = places["https://a.example"]
    place.wrong = {"2"}
    post(store, 1, 2, 3)
    run(clock, 20)
    assert place.uids == ["1", "3"]
    env, table = outboxes(store)["primary"]
    dead, = table.some("a", 10, DEAD)
    assert (dead.body["uidset"], dead.tries, dead.said, dead.dead) == ("2", 3, "not this one", True)
    place.wrong = set()
    assert transact(env, lambda txn: table.revive(dead, txn))
    run(clock, 5)
    assert place.uids == ["1", "3", "2"]


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


# Mail

def test_a_relay_that_is_down_has_got_no_mails(store, clock, places, monkeypatch, caplog):
    """What a receiver gets is said of it: a relay gets no events."""
    monkeypatch.setattr(sendall, "_MADE", dict.fromkeys(("smtp", "https"), lambda settings, *_: places.setdefault(
        settings.kind, Place())))
    made = begin(store, clock, relay=evolve(Settings("smtp://127.0.0.1"), batch=1, give_up=100.0), a=hook())
    assert {each["receiver"]: each["gets"] for each in made.status()} == {"relay": "mails", "a": "events"}
    places["smtp"].answers = {"no@example.net": Refused("550 no", final=True)}
    transact(store.partitions["primary"].env, lambda txn: outgoingmail.add(
        store.recorder, store.partitions["primary"].outbox, "", ["no@example.net"], b"\r\nx\r\n", txn))
    run(clock, 2)
    assert "outbox relay: 1 mails are dead letters: 550 no" in caplog.text


def test_mail_that_is_not_taken_now_is_put_off_and_the_others_go_on(store, clock, places, monkeypatch):
    """Each has attempts of its own, later each time, and is a dead letter in the end; so is what is never taken, at
    once."""
    now = [1_800_000_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    monkeypatch.setattr("time.time_ns", lambda: int(now[0] * 1e9))
    monkeypatch.setattr(sendall, "_MADE", {"smtp": lambda settings, *_: places.setdefault("relay", Place())})
    made = begin(store, clock, relay=evolve(Settings("smtp://127.0.0.1"), batch=1, retry=10.0, retry_longest=1000.0,
                                            give_up=100.0))
    relay, outbox, env = places["relay"], store.partitions["primary"].outbox, store.partitions["primary"].env
    relay.answers = {"slow@example.net": NotNow("450 later"), "no@example.net": Refused("550 no", final=True)}
    for recipient in ("no@example.net", "slow@example.net", "yes@example.net"):
        transact(env, lambda txn, recipient=recipient: outgoingmail.add(
            store.recorder, outbox, "", [recipient], b"Message-ID: <1@example.org>\r\n\r\nx\r\n", txn))
    times = []
    for _ in range(140):
        before = len(relay.tried)
        run(clock, 1)
        times += [round(now[0]) - 1_800_000_000 for address in relay.tried[before:] if address == "slow@example.net"]
        now[0] += 1
    assert [body["to"] for body in relay.has] == ["yes@example.net"] and times == [0, 10, 30, 70]
    assert relay.tried.count("no@example.net") == 1
    assert [(parcel.body["to"], parcel.said) for parcel in outbox.some("relay", 10, DEAD)] == [
        ("no@example.net", "550 no")] and outbox.counted("relay", 9, LATER) == 1
    now[0] += 100
    run(clock, 2)
    assert [(parcel.body["to"], parcel.said, parcel.tries) for parcel in outbox.some("relay", 10, DEAD)][1:] == [
        ("slow@example.net", "too old; 450 later", 5)]
    relay.answers = {}
    for parcel in outbox.some("relay", 10, DEAD):
        assert transact(env, lambda txn, parcel=parcel: outbox.revive(parcel, txn))
    run(clock, 2)
    assert {body["octets"] for body in relay.has} == {b64encode(b"Message-ID: <1@example.org>\r\n\r\nx\r\n").decode()}
    assert len(relay.has) == 3 and made.status()[0]["state"] == "up" and outbox.receivers() == []
    deliver(store, MAIL % 1, "user/alice/INBOX")
    assert outbox.receivers() == []         # a relay gets no events


# A file of lines

def test_a_file_on_a_full_disk_has_whole_lines(store, clock, tmp_path, monkeypatch):
    path = tmp_path / "events"
    async def at_once(_thread: OwnThread, work: Callable[[], Any]) -> Any:
        return work()

    monkeypatch.setattr(OwnThread, "run", at_once)
    clock.callFromThread = None             # type: ignore[attr-defined]
    full, sync = [False], os.fsync

    def fail(handle: int) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr("tools.outbox.jsonfile.os.fsync", fail)
    made = begin(store, clock, a=Settings(f"file:{path}", retry=1.0, retry_longest=1.0))
    post(store, 1, 2)
    full[0] = True
    run(clock, 3)
    assert (path.read_bytes(), made.status()[0]["state"]) == (b"", "down")
    full[0] = False
    run(clock, 3)
    assert [line.count(b"MessageNew") for line in path.read_bytes().splitlines()] == [1, 1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_gets_its_end(tmp_path):
    path = tmp_path / "events"
    privatefiles.write(path, b'{"id": 1}\n{"id"')
    append(path, b'{"id": 2}\n')
    assert path.read_bytes() == b'{"id": 1}\n{"id"\n{"id": 2}\n'


def test_no_link_is_followed(tmp_path):
    (tmp_path / "victim").write_text("kept\n")
    (tmp_path / "events").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link|Too many levels"):
        append(tmp_path / "events", b"x\n")
    assert (tmp_path / "victim").read_text() == "kept\n"
