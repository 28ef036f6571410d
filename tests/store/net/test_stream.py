"""The connection: lines and their limits, octets, flow both ways, TLS, and the ends of waiting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from store.net.linestates import ConnectionLost, LineTooLong, Stopping, TimedOut
from store.net.stream import LINGER, READ_AHEAD, Stream
from store.net.streamfactory import StreamFactory
from tests.support.conversations.wire import Wire


class Talk:
    """A session that runs a coroutine function of its stream and keeps what it returns or raises."""

    def __init__(self, work, tls=None):
        self.clock = Clock()
        self.outcome = None
        self.work = work
        self.factory = StreamFactory(self.start, self.clock, tls)
        self.wire = Wire(self.factory, self.clock)

    def start(self, stream):
        self.stream = stream
        return self

    async def run(self):
        try:
            self.outcome = await self.work(self.stream)
        except Exception as error:
            self.outcome = error
            raise


def test_lines_end_with_crlf_or_lf():
    async def work(stream):
        return [await stream.line(10, 60) for _ in range(4)]
    talk = Talk(work)
    talk.wire.send(b"one\r\ntwo\n\r\nfo\rur\r\nrest")
    assert talk.outcome == [b"one", b"two", b"", b"fo\rur"]


@given(st.integers(1, 40), st.binary(max_size=60).filter(lambda line: b"\n" not in line and not line.endswith(b"\r")))
def test_a_long_line_is_swallowed_to_its_end_however_it_is_cut(cut, line):
    async def work(stream):
        try:
            first = await stream.line(20, 60)
        except LineTooLong as long:
            first = long.start, long.end
        return first, await stream.line(20, 60)
    talk = Talk(work)
    octets = line + b"\r\nnext\r\n"
    for at in range(0, len(octets), cut):
        talk.wire.send(octets[at:at + cut])
    expected = line if len(line) <= 20 else (line[:20], line[-64:])
    assert talk.outcome == (expected, b"next")


def test_an_endless_line_costs_no_memory():
    async def work(stream):
        return await stream.line(100, 60)
    talk = Talk(work)
    for _ in range(1000):
        talk.wire.send(b"x" * 10_000)
        assert len(talk.stream._input) < 20_000
    talk.wire.send(b"\r\n")
    assert isinstance(talk.outcome, LineTooLong) and talk.outcome.end == b"x" * 64


def test_octets_that_come_early_are_bounded():
    async def work(stream):
        while await stream.wait(60):
            pass
    talk = Talk(work)
    talk.stream._waiting = False
    talk.wire.protocol.dataReceived(b"x" * (READ_AHEAD + 1))
    assert talk.wire.transport.producerState == "paused"


def test_some_gives_what_is_there_and_unread_puts_back():
    async def work(stream):
        first = await stream.some(3, 60)
        stream.unread(b"<" + first)
        return await stream.some(100, 60)
    talk = Talk(work)
    talk.wire.send(b"abcdef")
    assert talk.outcome == b"<abcdef"


@pytest.mark.parametrize("early", [0, 1])
def test_a_line_must_be_whole_in_time_even_if_it_drips(early):
    async def work(stream):
        return await stream.line(100, 30)
    talk = Talk(work)
    for _ in range(29):
        talk.clock.advance(1)
        talk.wire.send(b"x")
    assert talk.outcome is None
    talk.clock.advance(1)
    assert isinstance(talk.outcome, TimedOut) and talk.wire.closed


def test_a_client_that_goes_away():
    async def work(stream):
        return await stream.line(100, 30)
    talk = Talk(work)
    talk.wire.hang_up()
    assert isinstance(talk.outcome, ConnectionLost)
    talk.clock.advance(1000)


def test_a_stop_is_told_between_commands_only():
    async def idle(stream):
        return await stream.line(100, 30, idle=True)
    talk = Talk(idle)
    talk.wire.send(b"half a com")
    talk.factory.stop()
    assert talk.outcome is None
    talk.wire.send(b"mand\r\n")
    assert talk.outcome == b"half a command"
    talk = Talk(idle)
    talk.factory.stop()
    assert isinstance(talk.outcome, Stopping)


def test_writes_leave_together_when_the_session_waits():
    async def work(stream):
        stream.write(b"one ")
        stream.write(b"two")
        assert talk_of(stream).wire_value() == b""
        await stream.line(10, 60)
    talk = Talk(work)
    assert talk.wire.received() == b"one two"


def talk_of(stream):
    class View:
        def wire_value(self):
            return stream._transport.value()
    return View()


def test_a_slow_client_is_waited_for_and_then_given_up():
    async def work(stream):
        stream.write(b"x" * 10)
        await stream.drain(60)
        return "sent"
    talk = Talk(lambda stream: work(stream))
    assert talk.outcome == "sent"

    async def full(stream):
        stream.pauseProducing()
        stream.write(b"x")
        await stream.drain(60)
        return "sent"
    talk = Talk(full)
    talk.clock.advance(59)
    assert talk.outcome is None
    talk.stream.resumeProducing()
    assert talk.outcome == "sent"
    talk = Talk(full)
    talk.clock.advance(60)
    assert isinstance(talk.outcome, TimedOut)


def test_octets_sent_before_the_handshake_are_dropped():
    async def work(stream):
        line = await stream.line(100, 60)
        stream.write(b"go ahead\r\n")
        stream.start_tls()
        return line, stream.input_waiting, await stream.line(100, 60)
    talk = Talk(work, tls=object())
    assert talk.stream.can_start_tls
    talk.wire.send(b"STARTTLS\r\nevil\r\n")
    assert talk.outcome is None and talk.wire.transport.tls is not None
    talk.wire.send(b"good\r\n")
    assert talk.outcome == (b"STARTTLS", False, b"good")
    assert not talk.stream.can_start_tls


class Certificates:
    """What `Stream` wants of its TLS context."""

    def certificate_names(self, connection):
        assert connection is self
        return ("relay.example.org",)


def shaking(work, implicit=False):
    """A talk whose TLS handshake is over only when the test says so."""
    talk = Talk(work, Certificates())
    talk.factory.implicit_tls = implicit
    told = Stream.handshakeCompleted
    Stream.handshakeCompleted = lambda stream: None
    try:
        talk.wire = Wire(talk.factory, talk.clock)
        talk.wire.send(b"STARTTLS\r\n" if not implicit else b"")
    finally:
        Stream.handshakeCompleted = told
    talk.wire.transport.tls = talk.factory.tls
    return talk


async def secured(stream):
    if not stream.secure:
        assert stream.certificate_names == ()
        await stream.established(60)            # at once without TLS
        await stream.line(100, 60)
        stream.start_tls()
    assert stream.certificate_names == ()
    await stream.established(60)
    return stream.certificate_names, await stream.some(100, 60)


@pytest.mark.parametrize("implicit", [False, True])
def test_a_handshake_is_waited_for(implicit):
    talk = shaking(secured, implicit)
    talk.stream.wake()
    talk.clock.advance(59)
    assert talk.outcome is None
    talk.stream.handshakeCompleted()
    assert talk.outcome is None
    talk.wire.send(b"x")
    assert talk.outcome == (("relay.example.org",), b"x")


@pytest.mark.parametrize(("end", "expected"), [
    (lambda talk: talk.clock.advance(60), TimedOut),
    (lambda talk: talk.wire.hang_up(), ConnectionLost),
    (lambda talk: talk.factory.stop(), Stopping),
])
@pytest.mark.parametrize("implicit", [False, True])
def test_a_handshake_that_does_not_end_well(implicit, end, expected):
    talk = shaking(secured, implicit)
    end(talk)
    assert isinstance(talk.outcome, expected)
    assert talk.stream.certificate_names == ()


@pytest.mark.parametrize(("reason", "told"), [
    (ValueError("certificate verify failed"), ["no TLS with 127.0.0.1: certificate verify failed"]),
    (ConnectionDone(), []),
])
def test_why_a_handshake_failed_is_told(reason, told, caplog):
    caplog.set_level("INFO")
    talk = shaking(secured)
    talk.stream.connectionLost(Failure(reason))
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == told


def test_octets_are_given_and_not_the_end_of_a_handshake():
    async def work(stream):
        return await stream.some(100, 60)
    talk = shaking(work, implicit=True)
    talk.stream.handshakeCompleted()
    assert talk.outcome is None
    talk.wire.send(b"x")
    assert talk.outcome == b"x"


def test_wake_ends_a_wait_now_or_the_next_one():
    async def work(stream):
        return [await stream.wait(60), await stream.wait(60)]
    talk = Talk(work)
    talk.stream.wake()
    assert talk.outcome is None
    talk.wire.send(b"x")
    assert talk.outcome == [False, True]


def test_a_closed_connection_does_not_linger_for_ever():
    async def work(stream):
        stream.write(b"bye")
    talk = Talk(work)
    assert talk.wire.closed
    talk.wire.transport.disconnecting = False
    talk.clock.advance(LINGER)
    assert talk.wire.closed


def test_a_session_that_fails_is_cut_off(caplog):
    async def work(stream):
        raise KeyError("bug")
    talk = Talk(work)
    assert talk.wire.closed
    assert "a session failed" in caplog.text


def test_waiting_for_something_else():
    """Input waits meanwhile; a lost connection and a stop end it at once."""
    event = Deferred()

    async def work(stream):
        return await stream.until(event, 5), await stream.line(10, 60)
    talk = Talk(work)
    talk.wire.send(b"early\r\n")
    assert talk.outcome is None
    event.callback(None)
    assert talk.outcome == (True, b"early")
    assert [call.getTime() for call in talk.clock.getDelayedCalls()] == [LINGER]     # its own timer is gone

    async def late(stream):
        return await stream.until(Deferred(), 5)
    talk = Talk(late)
    talk.clock.advance(4.9)
    assert talk.outcome is None
    talk.clock.advance(0.2)
    assert talk.outcome is False

    async def pause(stream):
        await stream.pause(5)
        return "over"
    for end, outcome in ((lambda talk: talk.clock.advance(5), str), (lambda talk: talk.wire.hang_up(), ConnectionLost),
                         (lambda talk: talk.factory.stop(), Stopping)):
        talk = Talk(pause)
        assert talk.outcome is None
        end(talk)
        assert isinstance(talk.outcome, outcome)


def test_without_tls_there_is_no_channel_to_bind_to():
    async def work(stream):
        return stream.can_bind, stream.channel_binding("tls-unique"), stream.certificate_names
    assert Talk(work).outcome == (False, None, ())
