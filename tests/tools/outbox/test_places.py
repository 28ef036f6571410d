"""A web hook and a UNIX socket whose other end closes, answers without an end, or says nothing."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, ensureDeferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.web.client import Agent, HTTPConnectionPool

from store.events.outboxtable import Parcel
from tools.outbox import unixsocket
from tools.outbox.destination import Down, Refused
from tools.outbox.outboxsettings import Settings
from tools.outbox.unixsocket import UnixSocket
from tools.outbox.webhook import MOST_READ, WebHook

BATCH = [Parcel(b"wa\0" + b"0" * 16, "a", False, "event", 0.0, 0, 0, "", {"event": "MessageNew"})]


class Lines:
    """What connects: each connection is in memory, and its other end is the test."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def connected(self, protocol: Any) -> Any:
        transport = StringTransportWithDisconnection()
        transport.protocol = protocol
        protocol.makeConnection(transport)
        self.made.append(protocol)
        return succeed(protocol)

    def end(self) -> Any:
        return self.made[-1]


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def hook(lines: Lines) -> WebHook:
    clock: Any = Clock()
    pool = HTTPConnectionPool(clock)
    pool.retryAutomatically = False
    factory = SimpleNamespace(endpointForURI=lambda uri: SimpleNamespace(
        connect=lambda made: lines.connected(made.buildProtocol(None))))
    return WebHook(Settings("http://127.0.0.1/in"), Agent.usingEndpointFactory(clock, factory, pool), pool)


def begin(send: Callable[..., Any]) -> tuple[Any, list[Any]]:
    """A batch that is on its way, and what has come of it."""
    outcome: list[Any] = []
    done = ensureDeferred(send(BATCH))
    done.addCallbacks(lambda _: outcome.append("sent"), lambda failure: outcome.append(failure.value))
    return done, outcome


def test_an_answer_without_an_end_is_read_to_a_limit(hook: WebHook, lines: Lines) -> None:
    _, outcome = begin(hook.send)
    lines.end().dataReceived(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(MOST_READ // 1000 + 2):
        if lines.end().transport.connected:
            lines.end().dataReceived(b"x" * 1000)
    assert not lines.end().transport.connected and outcome == ["sent"]


def test_a_hook_that_does_not_end_its_answer_is_let_go(hook: WebHook, lines: Lines) -> None:
    """Else each attempt would leave a connection open."""
    done, outcome = begin(hook.send)
    lines.end().dataReceived(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
    done.cancel()                   # as `Sending` does when the time is over
    assert isinstance(outcome[0], Down) and not lines.end().transport.connected


def test_a_redirect_is_a_refusal(hook: WebHook, lines: Lines) -> None:
    _, outcome = begin(hook.send)
    lines.end().dataReceived(b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\n\r\n")
    assert isinstance(outcome[0], Refused) and len(lines.made) == 1


def test_a_program_that_was_started_anew_is_connected_to_anew(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that it had closed is not waited for."""
    monkeypatch.setattr(unixsocket, "_ENDPOINTS", SimpleNamespace(
        UNIXClientEndpoint=lambda *how, **more: None, connectProtocol=lambda endpoint, made: lines.connected(made)))
    socket = UnixSocket(Settings("unix:/socket"), None)
    _, first = begin(socket.send)
    lines.end().dataReceived(b"OK\n")
    lines.end().transport.loseConnection()
    _, second = begin(socket.send)
    lines.end().dataReceived(b"OK\n")
    assert (first, second, len(lines.made)) == (["sent"], ["sent"], 2)


def test_an_answer_line_without_an_end_is_read_to_a_limit(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unixsocket, "_ENDPOINTS", SimpleNamespace(
        UNIXClientEndpoint=lambda *how, **more: None, connectProtocol=lambda endpoint, made: lines.connected(made)))
    _, outcome = begin(UnixSocket(Settings("unix:/socket"), None).send)
    lines.end().dataReceived(b"x" * (unixsocket.MAX_ANSWER + 10))
    assert not lines.end().transport.connected and isinstance(outcome[0], Down | CancelledError)
