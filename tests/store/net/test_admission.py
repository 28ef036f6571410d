"""What a server asks of every connection, whichever protocol: `Stream.admit`, `enter`, and the limits on the way."""

import pytest
from twisted.internet.task import Clock

from store.net.admission import AdmissionControl, AdmissionSettings, LoginAdmissionSettings
from store.net.countedconnection import MOST_REFUSED, TOO_FAST, TOO_MUCH_BEFORE_LOGIN
from store.net.limits import TOO_MANY, TOO_MANY_EARLY, TOO_MANY_HERE, TOO_MANY_OF_USER, ConnectionLimits
from store.net.linestates import LimitReached, Stopping
from store.net.streamfactory import StreamFactory
from tests.support.conversations.wire import Wire


class Place:
    """A server of which each connection says what it was refused, and enters as the user that it names."""

    def __init__(self, **admission):
        self.clock = Clock()
        limits = {"total": 10, "per_address": 10, **admission.pop("limits", {})}
        self.admission = AdmissionControl(ConnectionLimits(**limits), **admission)
        self.factory = StreamFactory(self.start, self.clock, admission=self.admission)

    def start(self, stream):
        class Session:
            async def run(self):
                try:
                    stream.admit()
                    stream.write(b"hello\n")
                    while True:
                        word, _, rest = (await stream.line(100, 600, idle=True)).partition(b" ")
                        if word == b"enter":
                            stream.enter(rest.decode())
                        elif word == b"leave":
                            stream.leave()
                        elif word == b"quit":
                            break
                        stream.write(word + b"\n")
                except LimitReached as limit:
                    stream.write(limit.public.encode() + b"\n")
                except Stopping:
                    stream.write(b"stopping\n")
        self.stream = stream
        return Session()

    def connect(self, peer="192.0.2.1"):
        return Wire(self.factory, self.clock, peer)

    @property
    def counted(self):
        return self.admission.limits != ConnectionLimits(self.admission.limits.total, self.admission.limits.per_address,
                                                    self.admission.limits.per_user,
                                                    early=self.admission.limits.early)


def said(wire):
    return wire.received().decode().split("\n")[:-1]


def test_who_is_refused_hears_why_and_is_not_counted():
    place = Place(limits={"total": 2, "per_address": 1})
    first = place.connect()
    assert said(first) == ["hello"]
    again = place.connect()
    assert said(again) == [TOO_MANY_HERE] and again.closed
    place.connect("192.0.2.2")
    third = place.connect("192.0.2.3")
    assert said(third) == [TOO_MANY] and third.closed
    first.send(b"quit\n")
    assert said(place.connect()) == ["hello"]


@pytest.mark.parametrize("end", [lambda wire: wire.hang_up(), lambda wire: wire.send(b"quit\n"),
                                 lambda wire: wire.clock.advance(601)])
def test_nothing_is_counted_when_all_have_gone(end):
    place = Place(limits={"per_user": 5})
    wires = [place.connect(f"192.0.2.{number}") for number in range(5)]
    for wire in wires:
        wire.send(b"enter alice\n")
    assert said(wires[0]) == ["hello", "enter"]
    assert place.counted
    for wire in wires:
        end(wire)
    assert not place.counted and not place.admission.refused


def test_the_connections_of_a_user():
    place = Place(limits={"per_user": 1})
    first, second = place.connect(), place.connect()
    first.send(b"enter alice\n")
    second.send(b"enter bob\nleave\nenter alice\n")
    assert said(second) == ["hello", "enter", "leave", TOO_MANY_OF_USER] and second.closed
    first.send(b"leave\n")
    third = place.connect()
    third.send(b"enter alice\n")
    assert said(third) == ["hello", "enter"]


def test_refused_connections_that_stay_are_cut_off():
    """Under TLS a refusal can be said only after the handshake, which may never come."""
    place = Place(limits={"total": 1})
    place.connect()
    place.factory.implicit_tls = True
    wires = [Wire(place.factory, place.clock) for _ in range(MOST_REFUSED + 5)]
    assert [wire.transport.disconnected or wire.transport.aborting for wire in wires[MOST_REFUSED:]] == [True] * 5
    assert not any(wire.transport.disconnected for wire in wires[:MOST_REFUSED])
    for wire in wires:
        wire.hang_up()
    assert not place.admission.refused


@pytest.mark.parametrize("step", [1, 7, 64])
def test_what_comes_before_login_is_limited(step):
    place = Place(early_octets=64)
    wire = place.connect()
    octets = b"a\n" * 32                # up to the last octet that is allowed
    for at in range(0, 63, step):
        wire.send(octets[:63][at:at + step])
    assert not wire.closed
    wire.send(b"\n")
    assert wire.closed and said(wire)[-1] == TOO_MUCH_BEFORE_LOGIN


def test_a_login_that_is_there_in_time_lifts_the_limit_whatever_follows():
    place = Place(early_octets=64)
    wire = place.connect()
    wire.send(b"enter alice\n" + b"a\n" * 100)
    assert said(wire) == ["hello", "enter", *["a"] * 100] and not wire.closed
    wire.send(b"leave\n" + b"a\n" * 31)
    assert not wire.closed
    wire.send(b"a\n" * 40)
    assert wire.closed


def test_few_have_not_logged_in_of_an_address():
    place = Place(limits={"early": 2})
    first, second = place.connect(), place.connect()
    third = place.connect()
    assert said(third) == [TOO_MANY_EARLY] and third.closed
    assert said(place.connect("192.0.2.2")) == ["hello"]
    first.send(b"enter alice\nleave\n")            # it may go back: what counts is how it came
    assert said(place.connect()) == ["hello"] and said(place.connect()) == [TOO_MANY_EARLY]
    second.hang_up()
    assert said(place.connect()) == ["hello"]


def test_where_somebody_has_logged_in_before_as_many_as_may_be():
    place = Place(limits={"early": 1, "per_address": 5})
    place.admission.familiar = {"192.0.2.1"}.__contains__
    wires = [place.connect() for _ in range(6)]
    assert [said(wire)[-1] for wire in wires] == ["hello"] * 5 + [TOO_MANY_HERE]
    place.admission.familiar = lambda peer: False
    for wire in wires:
        wire.send(b"enter alice\n")
        wire.hang_up()
    assert not place.counted
    assert said(place.connect()) == ["hello"] and said(place.connect()) == [TOO_MANY_EARLY]


def test_who_is_refused_before_login_is_not_counted():
    place = Place(limits={"early": 1})
    wire = place.connect()
    for _ in range(20):
        assert said(place.connect()) == [TOO_MANY_EARLY]
    wire.hang_up()
    assert place.admission.limits.open == 0 and said(place.connect()) == ["hello"]


def test_an_endless_line_before_login_ends_there():
    place = Place(early_octets=1000)
    wire = place.connect()
    wire.send(b"x" * 999)
    assert not wire.closed
    wire.send(b"x")
    assert said(wire)[-1] == TOO_MUCH_BEFORE_LOGIN and wire.closed


def test_lines_in_a_minute():
    place = Place(command_rate=3)
    wire = place.connect()
    wire.send(b"a\n" * 3)
    place.clock.advance(59.9)
    assert not wire.closed
    wire.send(b"a\n")
    assert said(wire) == ["hello", "a", "a", "a", TOO_FAST] and wire.closed


def test_as_many_lines_as_one_likes_in_more_than_a_minute():
    place = Place(command_rate=3)
    wire = place.connect()
    for _ in range(20):
        wire.send(b"a\n" * 3)
        place.clock.advance(60)
    assert said(wire) == ["hello", *["a"] * 60] and not wire.closed


def test_each_minute_counts_anew():
    place = Place(command_rate=3)
    wire = place.connect()
    for _ in range(2):
        place.clock.advance(100)
        wire.send(b"a\n" * 3)
    assert not wire.closed
    wire.send(b"a\n" * 3)
    assert wire.closed and said(wire)[-1] == TOO_FAST


def test_a_drain_leaves_those_who_are_in():
    place = Place()
    inside, outside = place.connect(), place.connect()
    inside.send(b"enter alice\n")
    place.factory.drain()
    assert said(outside) == ["hello", "stopping"] and outside.closed
    inside.send(b"a\n")
    assert said(inside) == ["hello", "enter", "a"] and not inside.closed
    new = place.connect()
    assert said(new) == ["stopping"] and new.closed
    inside.send(b"leave\n")
    assert said(inside) == ["leave", "stopping"] and inside.closed


def test_who_is_just_logging_in_at_a_drain_is_told():
    place = Place()
    wire = place.connect()
    place.stream._idle = False          # in the middle of its login
    place.factory.drain()
    assert not wire.closed
    wire.send(b"enter alice\n")
    assert said(wire) == ["hello", "stopping"] and wire.closed and not place.counted


def test_what_settings_make():
    settings = LoginAdmissionSettings(5, 4, 48, connections_per_user=3, early_octets=2, command_rate=0,
                                      early_connections=2)
    admission = AdmissionControl.from_settings("imap", settings)
    assert (admission.limits.total, admission.limits.per_address, admission.limits.per_user) == (5, 4, 3)
    assert (admission.limits.network_bits, admission.early_octets, admission.command_rate) == (48, 2, float("inf"))
    assert admission.limits.early == 2
    admission = AdmissionControl.from_settings("lmtp", AdmissionSettings())
    assert (admission.limits.per_user, admission.early_octets, admission.command_rate) == (0, 0, float("inf"))
    with pytest.raises(ValueError, match="2001:db8::/129"):
        AdmissionSettings(proxy_networks=("2001:db8::/129",))


def test_the_size_of_an_address_can_be_chosen():
    limits = ConnectionLimits(10, 1, network_bits=48)
    assert not limits.refusal("2001:db8:1:1::1") and limits.refusal("2001:db8:1:2::1")
    assert not limits.refusal("2001:db8:2::1")


@pytest.mark.parametrize("waiting", [b"", b"more\n"])
def test_who_goes_while_it_is_made_to_wait_is_let_go_at_once(waiting):
    """Unless it has said something that is yet to be answered: it may have ended only its own side."""
    clock = Clock()

    class Session:
        def __init__(self, stream):
            self.stream = stream

        async def run(self):
            await self.stream.line(100, 60)
            await self.stream.pause(50)
            self.stream.write(b"sorry\n")

    wire = Wire(StreamFactory(Session, clock), clock)
    wire.send(b"login\n" + waiting)
    wire.protocol.readConnectionLost()
    assert wire.closed is not bool(waiting)
    clock.advance(50)
    assert wire.closed and wire.received() == (b"sorry\n" if waiting else b"")
