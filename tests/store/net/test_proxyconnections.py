"""Connections through a proxy: silent until the header is whole, and then as if there were no proxy."""

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.task import Clock

from store.accounts.networks import Networks
from store.net.linestates import Stopping
from store.net.proxies.proxyconnections import HEADER_TIME, Proxied, ProxiedFactory
from store.net.stream import READ_AHEAD
from store.net.streamfactory import StreamFactory
from tests.support.conversations.wire import Wire

HEADER = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 24\r\n"
PROXY = "10.0.0.1"


class Echo:
    """A session that says who is there and gives lines back."""

    def __init__(self, stream):
        self.stream = stream

    async def run(self):
        self.stream.write(b"hello %s\r\n" % self.stream.peer.encode())
        try:
            while (line := await self.stream.line(1000, 60, idle=True)) != b"quit":
                if line == b"tls":
                    self.stream.start_tls()
                    await self.stream.established(60)
                self.stream.write(line + b"\r\n")
        except Stopping:
            self.stream.write(b"bye\r\n")


class Talk:
    """A connection from `peer` to a server that knows the proxies of 10.0.0.0/8."""

    def __init__(self, peer=PROXY):
        self.clock = Clock()
        self.served = StreamFactory(Echo, self.clock, object())
        outer = ProxiedFactory(self.served, Networks.parse(["10.0.0.0/8"]), self.clock)
        outer.buildProtocol, build = (lambda _: build(IPv4Address("TCP", peer, 54321))), outer.buildProtocol
        self.wire = Wire(outer, self.clock, peer)


def test_nothing_is_said_before_the_header_is_whole():
    talk = Talk()
    for octet in HEADER[:-1]:
        talk.wire.send(bytes([octet]))
        assert talk.wire.received() == b"" and not talk.served.streams
    talk.wire.send(HEADER[-1:])
    assert talk.wire.received() == b"hello 192.0.2.1\r\n"
    talk.clock.advance(HEADER_TIME + 1)
    talk.wire.send(b"one\r\n")
    assert talk.wire.received() == b"one\r\n"
    talk.wire.send(b"quit\r\n")
    assert talk.wire.closed
    talk.wire.hang_up()
    assert not talk.served.streams and not talk.wire.protocol.factory.protocols


def test_what_follows_in_the_same_packet_is_passed_on():
    talk = Talk()
    talk.wire.send(HEADER + b"one\r\ntwo\r\n")
    assert talk.wire.received() == b"hello 192.0.2.1\r\none\r\ntwo\r\n"


def test_a_header_without_an_address():
    talk = Talk()
    talk.wire.send(b"PROXY UNKNOWN\r\n")
    assert talk.wire.received() == f"hello {PROXY}\r\n".encode()


VERSION2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)
REFUSED = 'user="" service=any times=1 reason="a PROXY header, and no proxy_networks name that address"'


@pytest.mark.parametrize("second", [HEADER, VERSION2])
def test_a_second_header_ends_the_connection(second, caplog):
    """It is the client's own, who wants to be taken for another one."""
    talk = Talk()
    talk.wire.send(HEADER + second + b"one\r\n")
    assert talk.wire.received() == b"hello 192.0.2.1\r\n" and talk.wire.closed
    assert [record.getMessage() for record in caplog.records] == [f"proxy address=192.0.2.1 {REFUSED}"]


def test_others_have_no_layer():
    talk = Talk("192.0.2.9")
    assert not isinstance(talk.wire.protocol, Proxied)
    assert talk.wire.received() == b"hello 192.0.2.9\r\n"
    for line in (b"one\r\n", HEADER, b"\r\n"):          # only the first octets may be a header
        talk.wire.send(line)
        assert talk.wire.received() == line


@pytest.mark.parametrize("header", [HEADER, b"PROXY UNKNOWN\r\n", b"PROXY TCP6 ::1 ::1 1 2\r\n", VERSION2])
@pytest.mark.parametrize("at", [0, 1, 2, 5, 9, 11])
def test_a_header_of_another_ends_the_connection_and_is_told_once(header, at, caplog):
    talk = Talk("192.0.2.9")
    talk.wire.send(header[:at])
    talk.wire.send(header[at:] + b"one\r\n")
    talk.wire.protocol.dataReceived(b"two\r\n")
    assert talk.wire.closed and talk.wire.received() == b"hello 192.0.2.9\r\n"
    assert [record.getMessage() for record in caplog.records] == [f"proxy address=192.0.2.9 {REFUSED}"]


@pytest.mark.parametrize("line", [b"P NOOP", b"PASS x", b"PROXY NOOP", b"PROXY", b"PROXY TCPX", b"\r", b"", b"\r\n\0"])
@pytest.mark.parametrize("at", [1, 2, 6])
def test_what_only_begins_like_a_header_is_passed_on(line, at):
    talk = Talk("192.0.2.9")
    octets = line + b"\r\nand more\r\n"
    talk.wire.received()
    talk.wire.send(octets[:at])
    talk.wire.send(octets[at:])
    assert talk.wire.received().replace(b"\r", b"") == octets.replace(b"\r", b"")


@pytest.mark.parametrize("octets", [b"L", b"PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n"])
def test_what_is_no_header_ends_the_connection_and_is_told_once(octets, caplog):
    talk = Talk()
    talk.wire.send(octets)
    talk.wire.protocol.dataReceived(HEADER)
    talk.clock.advance(HEADER_TIME)
    assert talk.wire.closed and talk.wire.received() == b"" and not talk.served.streams
    assert [record.getMessage().split()[:2] for record in caplog.records] == [["proxy", f"address={PROXY}"]]
    talk.wire.hang_up()


def test_a_header_that_drips_is_given_up(caplog):
    talk = Talk()
    for octet in HEADER[:9]:
        talk.clock.advance(1)
        talk.wire.send(bytes([octet]))
    assert not talk.wire.closed
    talk.clock.advance(1)
    assert talk.wire.closed and len(caplog.records) == 1


def test_a_proxy_that_goes_away_before(caplog):
    talk = Talk()
    talk.wire.send(HEADER[:9])
    talk.wire.hang_up()
    assert not talk.clock.getDelayedCalls() and not caplog.records


def test_starttls_goes_through():
    talk = Talk()
    talk.wire.send(HEADER + b"tls\r\n")
    assert talk.wire.transport.tls is talk.served.tls
    assert talk.wire.received() == b"hello 192.0.2.1\r\ntls\r\n"


def test_flow_and_ends_go_through():
    talk = Talk()
    talk.wire.send(HEADER)
    stream, = talk.served.streams
    assert talk.wire.transport.producer is stream and talk.wire.transport.streaming
    stream._waiting = False
    talk.wire.protocol.dataReceived(b"x" * (READ_AHEAD + 1))
    assert talk.wire.transport.producerState == "paused"
    stream.close()
    assert talk.wire.transport.disconnecting and talk.wire.transport.producer is None
    talk = Talk()
    talk.wire.send(HEADER)
    talk.wire.transport.abortConnection, aborted = (lambda: aborted.append(True)), []
    talk.served.streams.pop().abort()
    assert aborted


def test_a_side_that_is_shut_is_told_to_the_session_or_ends_the_connection():
    talk = Talk()
    talk.wire.send(HEADER)
    talk.wire.protocol.readConnectionLost()
    assert talk.wire.received() == b"hello 192.0.2.1\r\n" and talk.wire.closed
    assert IHalfCloseableProtocol.providedBy(talk.wire.protocol)
    talk = Talk()
    talk.wire.send(HEADER[:-2])
    talk.wire.protocol.readConnectionLost()
    assert talk.wire.closed


def test_one_that_is_introduced_during_a_stop_is_told():
    talk = Talk()
    talk.served.stop()
    talk.wire.send(HEADER)
    assert talk.wire.received() == b"hello 192.0.2.1\r\nbye\r\n"
    assert talk.wire.closed


@pytest.mark.parametrize(("header", "expected"), [
    (HEADER, IPv4Address("TCP", "192.0.2.1", 56324)),
    (b"PROXY TCP6 2001:DB8:0::1 ::1 56324 24\r\n", IPv6Address("TCP", "2001:db8::1", 56324)),
    (b"PROXY UNKNOWN\r\n", UNIXAddress(None)),
])
def test_a_proxy_on_a_unix_socket(header, expected):
    clock = Clock()
    served = StreamFactory(Echo, clock)
    assert not isinstance(ProxiedFactory(served, Networks.parse(["10.0.0.0/8"]), clock).buildProtocol(
        UNIXAddress(None)), Proxied)
    outer = ProxiedFactory(served, Networks.parse(["local"]), clock)
    build = outer.buildProtocol
    outer.buildProtocol = lambda _: build(UNIXAddress(None))
    wire = Wire(outer, clock)
    wire.send(header)
    assert wire.protocol.getPeer() == expected
