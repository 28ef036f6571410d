"""tools/http: what the HTTP door takes, and what it does not, by RFC 9110 and RFC 9112."""

import json
import logging
from collections.abc import Awaitable

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from store.net.admission import AdmissionControl
from tests.support.conversations.turns import WorkClock, WorkWire
from tests.support.conversations.wire import Wire
from tools.http import protocol
from tools.http.gathering import Gathering
from tools.http.settings import Settings
from tools.http.webpages import Answer, Asked, Pages, Refused

TURN_UNITS = 100_000        # calls in one turn at most: about 20 ms
GET = b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n"


class Door:
    """The door with some pages, in memory."""

    def __init__(self, clock: Clock | None = None, **changes: object) -> None:
        self.clock = clock or Clock()
        self.asked: list[Asked] = []
        self.waiting: list[Deferred[Answer]] = []
        self.pages = Pages()
        self.pages.add("/here", self._page, "GET", "POST")
        self.pages.add("/below/", self._page)
        self.pages.add("/late", self._late)
        self.pages.add("/broken", self._broken)
        self.pages.add("/guarded", self._page, "POST", early=self._early)
        chosen = evolve(Settings(), **changes)
        self.factory = protocol.factory(self.pages, chosen, self.clock, AdmissionControl.from_settings("http", chosen))

    async def _page(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        return Answer(body=asked.body or asked.path.encode())

    def _late(self, asked: Asked) -> Awaitable[Answer]:
        self.waiting.append(Deferred())
        return self.waiting[-1]

    async def _early(self, asked: Asked) -> None:
        if "authorization" not in asked.fields:
            raise Refused(401, "who are you?")

    async def _broken(self, asked: Asked) -> Answer:
        raise RuntimeError("secret of the server")

    def wire(self, peer: str = "127.0.0.1") -> Wire:
        """A connection."""
        return Wire(self.factory, self.clock, peer)

    def ask(self, octets: bytes, peer: str = "127.0.0.1") -> tuple[int, dict[str, str], bytes]:
        """The answer to what comes on a connection of its own."""
        wire = self.wire(peer)
        wire.send(octets)
        for _ in range(100):
            if (received := wire.received()) or wire.closed:
                wire.hang_up()
                return read(received)
            self.clock.advance(1)
            wire.settle()
        raise AssertionError("no answer")


def read(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """One answer: RFC 9112 §2.1, with the body that Content-Length tells of."""
    head, end, body = answer.partition(b"\r\n\r\n")
    assert end, answer
    first, *lines = head.decode("ascii").split("\r\n")
    assert first.startswith("HTTP/1.1 ")
    fields = dict(line.split(": ", 1) for line in lines)
    assert len(fields) == len(lines)
    assert int(fields["Content-Length"]) == len(body)
    if fields.get("Content-Type") == "application/problem+json":          # RFC 9457 §3
        problem = json.loads(body)
        assert problem["status"] == int(first[9:12]) and problem["title"] and problem["detail"]
    return int(first[9:12]), fields, body


def test_a_page() -> None:
    door = Door()
    status, fields, body = door.ask(b"GET /here?a=b%20c&d= HTTP/1.1\r\nHost: x\r\nX-Odd: \xfc\r\n\r\n")
    assert (status, body) == (200, b"/here") and fields["X-Content-Type-Options"] == "nosniff"
    assert door.asked[0].query == {"a": "b c", "d": ""} and door.asked[0].fields["x-odd"] == "\xfc"
    assert door.ask(GET.replace(b"/here", b"/below/a/b"))[0] == 200
    assert door.ask(GET.replace(b"/here", b"http://x/here"))[2] == b"/here"       # RFC 9112 §3.2.2
    assert door.ask(GET.replace(b"\r\n", b"\n"))[0] == 200                         # RFC 9112 §2.2


def test_a_body() -> None:
    door = Door(body_limit=10)
    post = b"POST /here HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
    assert door.ask(post % (10, b"0123456789"))[2] == b"0123456789"
    assert door.ask(post % (11, b""))[0] == 413
    chunked = b"POST /here HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n"
    assert door.ask(chunked % b"5\r\nab\ncd\r\n")[2] == b"ab\ncd"
    assert door.ask(chunked % (b"5\r\nabcde\r\n" * 3))[0] == 413


@pytest.mark.parametrize(("octets", "status"), [
    (GET.replace(b"/here", b"/there"), 404), (GET.replace(b"/here", b"/below"), 404),
    (GET.replace(b"GET", b"PUT"), 405),
    (GET.replace(b"GET", b"get"), 405), (GET.replace(b"/here", b"/broken"), 500), (GET.replace(b"1.1", b"2.0"), 400),
    (b"\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00\r\n", 400), (b"a1 LOGIN alice x\r\n", 400),
    (GET.replace(b"/here", b"x:y"), 400), (GET.replace(b"/here", b"/h\xa5re"), 400), (GET.replace(b"/here", b"*"), 400),
    (GET.replace(b"\r\n\r\n", b"\r\n folded\r\n\r\n"), 400), (GET.replace(b"Host", b"Host "), 400),
    (GET.replace(b"\r\n\r\n", b"\r\nno colon\r\n\r\n"), 400), (GET.replace(b"\r\n\r\n", b"\r\nA: \0\r\n\r\n"), 400),
    (GET.replace(b"\r\n\r\n", b"\r\nHost: y\r\n\r\n"), 400), (GET.replace(b"x\r\n\r\n", b"x\ry\r\n\r\n"), 400),
    (GET.replace(b"\r\n\r\n", b"\r\nContent-Length: +1\r\n\r\n"), 400),
    (GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), 400),    # smuggling
    (GET.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: x, chunked\r\n\r\n"), 400),
    (GET.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx"), 501),
    (GET.replace(b"Host: x\r\n", b""), 400), (GET.replace(b"Host: x", b"Host: x y"), 400),            # RFC 9112 §3.2
    (b"GET /" + b"x" * 9000, 414), (GET[:-2] + b"A: " + b"x" * 9000, 431), (GET[:-2] + b"A: x\r\n" * 70 + b"\r\n", 431),
    (GET[:-2] + b"".join(b"A%d: %b\r\n" % (number, b"x" * 8000) for number in range(9)) + b"\r\n", 431)])
def test_what_is_refused(octets: bytes, status: int, caplog: pytest.LogCaptureFixture) -> None:
    found, _, body = Door().ask(octets)
    assert found == status and b"Traceback" not in body and b"secret" not in body


def test_methods() -> None:
    door = Door()
    assert door.ask(GET.replace(b"GET", b"DELETE"))[1]["Allow"] == "GET, POST, HEAD"
    wire = door.wire()
    wire.send(GET.replace(b"GET", b"HEAD") + GET)           # RFC 9110 §9.3.2: no body
    first, second, _ = wire.received().split(b"\r\n\r\n")
    assert b"Content-Length: 5" in first and second.startswith(b"HTTP/1.1 200")


def test_one_request_after_the_other() -> None:
    door = Door()
    wire = door.wire()
    late, here = GET.replace(b"/here", b"/late"), GET.replace(b"x\r\n\r\n", b"x\r\nConnection: close\r\n\r\n")
    wire.send(late + GET + here + GET)
    assert not wire.received() and not door.asked           # the second waits for the first
    door.waiting[0].callback(Answer(body=b"late"))
    wire.settle()
    said = wire.received()
    assert said.count(b"HTTP/1.1 200") == 3 and said.index(b"late") < said.index(b"/here")
    assert wire.closed and len(door.asked) == 2             # nothing behind "close" is answered: RFC 9112 §9.6


def test_http_1_0_ends_the_connection() -> None:
    door = Door()
    wire = door.wire()
    wire.send(GET.replace(b"1.1", b"1.0"))
    assert wire.closed and read(wire.received())[1]["Connection"] == "close"


def test_times() -> None:
    door = Door(request_time=5, idle_time=7)
    assert door.ask(b"GET / HT")[0] == 408 and door.clock.seconds() <= 6
    wire = door.wire()
    wire.send(GET)
    wire.received()
    for _ in range(8):
        door.clock.advance(1)
        wire.settle()
    assert wire.closed and not wire.received()              # nobody asked for anything: RFC 9112 §9.5
    wire = door.wire()
    wire.send(GET[:10])
    for _ in range(4):
        door.clock.advance(1)
        wire.send(b"x")                                     # an octet now and then gives no more time
    door.clock.advance(1)
    assert b" 408 " in wire.received()


def test_who_may_connect(caplog: pytest.LogCaptureFixture) -> None:
    door = Door(networks=("192.0.2.0/24",))
    assert door.ask(GET)[0] == 403
    assert 'address address=127.0.0.1 user="" service=http times=1 reason="not in http.networks"' in caplog.text
    assert door.ask(GET, "192.0.2.7")[0] == 200


def test_numbers_of_connections(caplog: pytest.LogCaptureFixture) -> None:
    door = Door(connections_per_address=2)
    wires = [door.wire() for _ in range(2)]
    assert door.ask(GET)[0] == 503 and "limit address=127.0.0.1" in caplog.text
    wires[0].hang_up()
    assert door.ask(GET)[0] == 200


def test_a_stop() -> None:
    door = Door()
    idle, busy = door.wire(), door.wire()
    busy.send(GET.replace(b"/here", b"/late"))
    door.factory.stop()
    assert idle.closed and not idle.received() and not busy.closed
    door.waiting[0].callback(Answer(body=b"late"))
    busy.settle()
    assert busy.closed and read(busy.received())[0] == 200
    assert door.ask(GET)[0] == 503


def test_a_client_that_takes_nothing() -> None:
    """It is cut off, and what is held for it is its answer."""
    door = Door(answer_time=5)
    door.pages.add("/large", lambda asked: _done(Answer(body=b"x" * 1_000_000)))
    wire = door.wire()
    wire.transport.producer.pauseProducing()
    wire.send(GET.replace(b"/here", b"/large"))
    assert len(wire.received()) < 300_000
    for _ in range(6):
        door.clock.advance(1)
    assert wire.closed


async def _done(answer: Answer) -> Answer:
    return answer


@pytest.mark.parametrize("octets", [
    b"POST /guarded HTTP/1.1\r\nHost: x\r\nAuthorization: y\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"1\r\na\r\n" * 15_000 + b"0\r\n\r\n",
    b"GET /empty HTTP/1.1\nHost: x\n\n" * 3_000 + GET,
], ids=["a body in chunks of one octet", "requests that have come already"])
def test_others_are_let_in(octets: bytes) -> None:
    clock = WorkClock()
    door = Door(clock)
    door.pages.add("/empty", lambda asked: _done(Answer(303)))
    wire = WorkWire(door.factory, clock)
    wire.send(octets)
    assert b"200 OK" in wire.received() and clock.turns > 1
    assert clock.longest <= TURN_UNITS

def test_gathering_is_done_once_for_all_who_wait() -> None:
    begun: list[Deferred[int]] = []

    def gather() -> Deferred[int]:
        begun.append(Deferred())
        return begun[-1]

    gathering, found = Gathering(gather), list[int]()
    for _ in range(3):
        Deferred.fromCoroutine(gathering.get()).addCallback(found.append)
    begun[0].callback(1)
    assert found == [1, 1, 1] and len(begun) == 1
    failed = [Deferred.fromCoroutine(gathering.get()) for _ in range(2)]
    begun[1].errback(ValueError())
    for each in failed:
        assert each.addErrback(lambda failure: failure.trap(ValueError)).result is ValueError
    Deferred.fromCoroutine(gathering.get()).addCallback(found.append)
    begun[2].callback(2)
    assert found[-1] == 2


@pytest.mark.parametrize(("path", "word"), [("/here", "a=%ff"), ("/here", "a" * 10 + "&" * 200)])
def test_a_query_that_cannot_be_read(path: str, word: str) -> None:
    with pytest.raises(Refused):
        _ = Asked("GET", f"{path}?{word}", {}).query


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=30), st.sampled_from(
    [*GET.splitlines(keepends=True), b"\r\n", b"POST /here HTTP/1.1\r\n", b"Content-Length: 3\r\n", b"A: b\r\n", b"\n",
     b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"Expect: 100-continue\r\n"])), max_size=12))
def test_anything(pieces: list[bytes]) -> None:
    """Whatever comes, in whatever pieces, is answered by the protocol; nothing fails here, nothing stays open."""
    door = Door()
    wire = door.wire()
    for piece in pieces:
        wire.send(piece)
    logging.getLogger("tools.http.session").disabled = True
    for _ in range(100):
        if wire.closed:
            break
        door.clock.advance(1)
        wire.settle()
    logging.getLogger("tools.http.session").disabled = False
    said = wire.received()
    assert wire.closed and (not said or said.startswith(b"HTTP/1.1 ")) and b" 500 " not in said


@pytest.mark.parametrize(("field", "status"), [
    (b"Content-Length: 65537", 413), (b"Transfer-Encoding: chunked", 411), (b"Content-Length: 65536", 0)])
def test_of_a_stranger_only_a_small_body_is_read(field: bytes, status: int) -> None:
    door = Door()
    post = b"POST /here HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n" % field
    if status:
        assert door.ask(post)[0] == status
    else:
        assert door.ask(post + b"x" * 65536)[2] == b"x" * 65536
    assert door.ask(post.replace(b"/here", b"/there"))[0] == 404        # nor is one for a page that there is not
    assert door.ask(post.replace(b"POST", b"PUT"))[0] == 405


def test_who_shows_no_token_sends_no_body() -> None:
    """RFC 9110 §9.3: an answer may come before the whole request. It is no other request that follows."""
    door = Door()
    head = b"POST /guarded HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
    status, fields, body = door.ask(head + b"\r\n")
    assert status == 401 and fields["Connection"] == "close" and json.loads(body)["detail"] == "who are you?"
    assert door.asked == []
    wire = door.wire()
    wire.send(head + b"Authorization: Bearer x\r\n\r\n")
    wire.settle()
    assert wire.received() == b""
    wire.send(b"ninechars" + GET)
    wire.settle()
    assert [each.body for each in door.asked] == [b"ninechars", b""]
    wire.hang_up()
