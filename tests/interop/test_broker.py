"""A real RabbitMQ, and a real server that sends it events. The broker is down, is killed before it confirms, has no
queue, refuses: in the end each event has arrived, those of a mailbox in order, and none of what was not done.

A web hook behind TLS is tried beside it. One broker and one server are there for all tests, since they are slow to
start; each test has users and receivers of its own.
"""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pika
import pytest
from attrs import frozen

from tests.conftest import MEMORY
from tests.support.clients.between import Between
from tests.support.clients.lmtp import Lmtp
from tests.support.processes import wait
from tests.support.servers.certificates import Authority
from tests.support.servers.rabbitmq import PASSWORD, USER, RabbitMQ
from tests.support.servers.server import Server
from tools.cli.controlclient import ask_all

pytestmark = pytest.mark.long

TIME = 300                  # seconds, far more than anything takes
FIRST_CUT, LAST_CUT = 400, 900      # octets from the broker: before and behind all that it says until it confirms
CONFIRMATION = 21           # octets of a confirmation: a frame (7, 1) with Basic.Ack (4, 8, 1), AMQP 0-9-1 §2.3


class Hook(ThreadingHTTPServer):
    """A web hook behind TLS."""

    daemon_threads = True

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.has: list[dict[str, Any]] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """A client that does not trust us."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hook

    def do_POST(self) -> None:
        self.server.has += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@frozen
class Places:
    """What runs. `between`: a wire to the broker that can be cut."""

    broker: RabbitMQ
    between: Between
    hook: Hook
    server: Server

    def how(self, receiver: str) -> dict[str, Any]:
        """How a receiver stands, as the server says."""
        found = [each for answers in ask_all(self.server.root, "outbox").values() for each in answers]
        return {each["receiver"]: each for each in found}[receiver]

    def until(self, ready: Callable[[], object], what: str) -> None:
        wait.until(lambda: bool(ready()), what, pid=self.server.pid, limit=TIME)


def receiver(name: str, to: str, users: str, secret: Path | None = None, **how: str) -> dict[str, str]:
    """Options of a receiver that is tried again soon."""
    options = {"to": to, "users": users, "types": "MessageNew", "retry": "20ms", "retry_longest": "100ms",
               "attempts": "1000000", **({"secret": str(secret)} if secret else {}), **how}
    return {f"outbox.{name}.{option}": value for option, value in options.items()}


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield from served(Path(folder))


def served(folder: Path) -> Iterator[Places]:
    """Broker, hook and server with all receivers; they end well, and leave a store in which nothing is wrong."""
    ours, others = Authority(folder, "ours"), Authority(folder, "others")
    password = folder / "password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    (folder / "rabbitmq").mkdir()
    hook = Hook(ours.server())
    with RabbitMQ(folder / "rabbitmq", ours.server()) as broker, Between(broker.port) as between:
        plain, cut = (f"amqp://{USER}@127.0.0.1:{port}/%2F" for port in (broker.port, between.port))
        tls, web = f"amqps://{USER}@127.0.0.1:{broker.tls_port}/%2F", f"https://127.0.0.1:{hook.server_address[1]}/in"
        options = {
            **receiver("plain", plain, "alice,bob", password, queue="plain", batch="2"),
            **receiver("tls", tls, "alice,bob", password, exchange="events", authorities=str(ours.file)),
            **receiver("strange", tls, "alice,bob", password, exchange="events", authorities=str(others.file)),
            **receiver("web", web, "alice,bob", authorities=str(ours.file)),
            **receiver("fake", web, "alice,bob", authorities=str(others.file)),
            **receiver("cut", cut, "carol", password, queue="cut"),
            **receiver("down", plain, "carol", password, queue="down", timeout="1s"),
            **receiver("missing", plain, "dave", password, queue="missing"),
            **receiver("small", plain, "dave", password, queue="small")}
        channel = broker.channel()
        for queue in ("plain", "tls", "cut", "down"):
            channel.queue_declare(queue, durable=True)
        channel.exchange_declare("events", "topic", durable=True)
        channel.queue_bind("tls", "events", "MessageNew")
        channel.connection.close()
        with Server(folder, ["alice", "bob", "carol", "dave"], options) as server:
            yield Places(broker, between, hook, server)
            server.check()
            assert server.stop() == 0
    hook.shutdown()
    hook.server_close()


def deliver(places: Places, user: str, *numbers: int, code: int = 250) -> None:
    with Lmtp(places.server.lmtp) as lmtp:
        for number in numbers:
            body = b"Subject: %d\r\n\r\nx\r\n" % number
            assert [reply.code for reply in lmtp.deliver("a@example.org", [user], body)] == [code]


def taken(channel: Any, queue: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """All that is in a queue, and leaves it: properties and body."""
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return
        yield properties, json.loads(body)


def fetched(places: Places, queue: str, count: int) -> list[tuple[Any, dict[str, Any]]]:
    """What comes to a queue until there are so many different events."""
    channel, found = places.broker.channel(), list[tuple[Any, dict[str, Any]]]()

    def look() -> bool:
        found.extend(taken(channel, queue))
        return len({body["id"] for _, body in found}) >= count

    places.until(look, f"{count} events in {queue}")
    channel.connection.close()
    return found


def uids(bodies: list[dict[str, Any]], user: str) -> list[int]:
    """Of the messages that a user got, each once, as they came first."""
    return [int(uid) for uid in dict.fromkeys(body["uidset"] for body in bodies if body["user"] == user)]


def test_events_are_persistent_and_in_order_also_over_tls(places: Places) -> None:
    """And a delivery that is refused is no event; what shows a certificate of another authority is sent nothing."""
    places.server.command("quota", "set", "bob", "--messages", "2")
    deliver(places, "alice", 1, 2)
    deliver(places, "bob", 1, 2)
    deliver(places, "bob", 3, code=452)
    deliver(places, "alice", 3)
    for queue in ("plain", "tls"):
        found = fetched(places, queue, 5)
        bodies = [body for _, body in found]
        assert (uids(bodies, "alice"), uids(bodies, "bob"), len(found)) == ([1, 2, 3], [1, 2], 5)
        assert {(each.delivery_mode, each.type, each.content_type) for each, _ in found} == {
            (pika.DeliveryMode.Persistent.value, "MessageNew", "application/json")}
        assert [each.message_id for each, _ in found] == [body["id"] for body in bodies]
    places.until(lambda: len(places.hook.has) == 5, "the web hook")
    assert (uids(places.hook.has, "alice"), uids(places.hook.has, "bob")) == ([1, 2, 3], [1, 2])
    for name in ("strange", "fake"):
        places.until(lambda name=name: "certificate" in places.how(name)["said"], f"{name} is refused")
        assert places.how(name)["sent"] == 0


def test_a_connection_that_is_cut_anywhere_between_publish_and_confirm(places: Places) -> None:
    places.between.plan([(octets, None) for octets in range(FIRST_CUT, LAST_CUT, CONFIRMATION - 2)])
    deliver(places, "carol", 1, 2, 3)
    found = [body for _, body in fetched(places, "cut", 3)]
    assert uids(found, "carol") == [1, 2, 3]
    places.until(lambda: places.how("cut")["sent"] == 3, "all are confirmed")
    assert places.between.cut
    found += [body for _, body in fetched(places, "cut", 0)]
    assert len(found) > 3 and uids(found, "carol") == [1, 2, 3]     # one had come, and was not confirmed


def test_a_broker_that_is_killed_before_it_confirms_and_comes_back(places: Places) -> None:
    """What it had, durable queues have when it is back (UIDs 1 to 3 are those of the test above)."""
    deliver(places, "carol", 4)
    places.until(lambda: places.how("down")["sent"] == 4, "the first are there")
    places.broker.hold()
    deliver(places, "carol", 5, 6)
    places.until(lambda: places.how("down")["said"] == "no answer in time", "it does not confirm")
    places.broker.kill()
    places.until(lambda: "no answer in time" not in places.how("down")["said"], "nobody listens")
    deliver(places, "carol", 7)
    assert places.how("down")["state"] == "down"
    places.broker.start()
    found = fetched(places, "down", 7)
    assert uids([body for _, body in found], "carol") == [1, 2, 3, 4, 5, 6, 7]


def test_a_queue_that_is_missing_and_one_that_is_full(places: Places) -> None:
    channel = places.broker.channel()
    channel.queue_declare("small", durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    deliver(places, "dave", 1, 2, 3, 4, 5)
    places.until(lambda: places.how("missing")["said"] == "no queue takes it", "no queue")
    places.until(lambda: places.how("small")["said"] == "the broker does not take it", "a full queue")
    channel.queue_declare("missing", durable=True)
    for queue in ("missing", "small"):
        assert uids([body for _, body in fetched(places, queue, 5)], "dave") == [1, 2, 3, 4, 5]
    channel.connection.close()
