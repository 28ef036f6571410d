"""Mail of the outbox: what a relay does not take now is put off alone, and what it never takes is a dead letter."""

from base64 import b64encode

from attrs import evolve

from mboxlist.engine.transact import transact
from store.events import outgoingmail
from store.events.outboxtable import DEAD, LATER
from tests.support.servers.outboxreceivers import MAIL, Place, begin, hook, run
from tests.support.stores.stores import deliver
from tools.outbox import sendall, sending
from tools.outbox.destination import NotNow, Refused
from tools.outbox.outboxsettings import Settings


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
    for name in ("COUNT_INTERVAL", "COUNT_SHARE"):
        monkeypatch.setattr(sending, name, 0)           # it counts whenever it looks
    times = []
    for second in range(140):
        assert second < 3 or made.status()[0]["waited"] == second      # also while it is put off
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


def test_mail_that_a_wrong_clock_put_off_is_sent_when_that_is_set_back(store, clock, places, monkeypatch):
    now = [1_900_000_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    monkeypatch.setattr("time.time_ns", lambda: int(now[0] * 1e9))
    monkeypatch.setattr(sendall, "_MADE", {"smtp": lambda settings, *_: places.setdefault("relay", Place())})
    begin(store, clock, relay=evolve(Settings("smtp://127.0.0.1"), batch=1, retry=10.0, retry_longest=1000.0))
    relay, outbox, env = places["relay"], store.partitions["primary"].outbox, store.partitions["primary"].env
    relay.answers = {"slow@example.net": NotNow("450 later")}
    transact(env, lambda txn: outgoingmail.add(store.recorder, outbox, "", ["slow@example.net"], b"\r\nx\r\n", txn))
    run(clock, 2)
    assert outbox.counted("relay", 9, LATER) == 1 and not relay.has
    now[0], relay.answers = 1_800_000_000.0, {}
    run(clock, 2)
    assert [body["to"] for body in relay.has] == ["slow@example.net"]
