"""Hundreds of sessions in IDLE hear of a change a few at a time; the event loop looks at its sockets between them."""

from twisted.internet.task import Clock

from imap import view
from imap.protocol import factory
from imap.settings import Settings
from store.news.turns import AT_ONCE
from tests.support.conversations.wire import Wire
from tests.support.stores.stores import deliver

SESSIONS = 3 * AT_ONCE


def turn(clock):
    """One turn of Twisted's loop: what is asked for meanwhile comes in the next one."""
    for call in [call for call in clock.getDelayedCalls() if call.getTime() <= clock.seconds()]:
        clock.calls.remove(call)
        call.called = 1
        call.func(*call.args, **call.kw)


def opened(store, clock):
    """SESSIONS of alice's that wait in IDLE, in her INBOX; and one more, which does not."""
    made, wires = factory(store, Settings(plaintext_login=True), clock), []
    for _ in range(SESSIONS + 1):
        wires.append(Wire(made, clock))
        wires[-1].send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\n")
    *waiting, writer = wires
    for wire in waiting:
        wire.send(b"c IDLE\r\n")
        assert b"+ " in wire.received()
    return waiting, writer


def test_each_is_told_once_and_few_in_one_turn(place):
    clock = Clock()
    deliver(place.store, b"Subject: x\r\n\r\n.\r\n", "user/alice/INBOX")
    wires, writer = opened(place.store, clock)
    leaver, gone = wires[-1], wires[-2]
    writer.protocol.dataReceived(b"d STORE 1 +FLAGS (\\Flagged)\r\n")
    leaver.protocol.dataReceived(b"DONE\r\n")       # these two were to be told in the last turn
    gone.hang_up()
    told = {wire: leaver.received() if wire is leaver else b"" for wire in wires}
    most = 0
    for _ in range(SESSIONS):
        heard = {wire: wire.received() for wire in wires if wire is not gone}
        most = max(most, sum(bool(each) for each in heard.values()))
        for wire, each in heard.items():
            told[wire] += each
        turn(clock)
    assert most == AT_ONCE
    for wire in wires[:-2]:
        assert told[wire].count(b"* 1 FETCH") == told[wire].count(b"\\Flagged") == 1
    assert told[leaver] == b"c OK IDLE completed\r\n" and leaver.received() == b""
    leaver.send(b"d NOOP\r\n")                      # the next command tells
    assert leaver.received().count(b"* 1 FETCH") == 1
    writer.send(b"e STORE 1 -FLAGS (\\Flagged)\r\n")
    assert all(wire.received().count(b"* 1 FETCH") == 1 for wire in wires[:-2])
    for wire in [*wires[:-2], leaver, writer]:
        wire.hang_up()


def test_whose_peers_take_much_at_one_moment_go_on_a_few_at_a_time(place, monkeypatch):
    """They are in the middle of what has become of thousands of messages."""
    monkeypatch.setattr(view, "BATCH", 2)
    clock = Clock()
    for number in range(6):
        deliver(place.store, b"Subject: %d\r\n\r\n.\r\n" % number, "user/alice/INBOX")
    wires, writer = opened(place.store, clock)
    for wire in wires:
        wire.protocol.pauseProducing()              # its peer takes nothing
    writer.send(b"d STORE 1:6 +FLAGS (\\Flagged)\r\n")
    told = {wire: wire.received() for wire in wires}
    assert all(0 < each.count(b"FETCH") < 6 for each in told.values())
    for wire in wires:
        wire.protocol.resumeProducing()
    most = 0
    for _ in range(SESSIONS):
        heard = {wire: wire.received() for wire in wires}
        most = max(most, sum(bool(each) for each in heard.values()))
        for wire, each in heard.items():
            told[wire] += each
        turn(clock)
    assert most == AT_ONCE and all(each.count(b"FETCH") == 6 for each in told.values())
    for wire in [*wires, writer]:
        wire.hang_up()
