"""Spans of commands and deliveries, at a collector that is a real HTTP server; and what a dead one does: nothing."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from twisted.internet.task import Clock

from imap import protocol as imap
from imap.settings import Settings as ImapSettings
from lmtp import protocol as lmtp
from lmtp.settings import Settings as LmtpSettings
from store.check.wholecheck import check
from store.observing.loglines import LIMIT
from tests.support import ROOT
from tests.support.conversations.wire import Wire
from tests.support.processes.ports import free_port
from tests.support.stores.stores import make_store
from tools.cli.options import load
from tools.exits import Failure
from tools.server import configcheck
from tools.server.metrics import spanpackages
from tools.server.metrics import spans as made_of
from tools.serversettings import Trace


class Collector:
    """Takes spans by OTLP over HTTP."""

    def __init__(self):
        self.spans, self.resources = [], []
        outer = self

        class Taking(BaseHTTPRequestHandler):
            def do_POST(self):      # noqa: N802
                request = ExportTraceServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                for of_resource in request.resource_spans:
                    about = of_resource.resource.attributes
                    outer.resources.append({each.key: each.value.string_value for each in about})
                    for scope in of_resource.scope_spans:
                        outer.spans += scope.spans
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Taking)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def attributes(span):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.stop()


@pytest.fixture
def store(tmp_path):
    made = make_store(tmp_path / "store")
    yield made
    assert check(made) == []
    made.close()


@pytest.fixture
def begin():
    """Has spans made until the test ends."""
    made = []

    def begin(*words):
        made.append(made_of.begin(Trace(*words), "imap-1"))
        return made[-1]
    yield begin
    for each in made:
        each.stop()
    assert LIMIT.spans is None


def converse(store, clock):
    """A delivery, and a session of IMAP; the ids of both."""
    relay = Wire(lmtp.factory(store, LmtpSettings(), clock), clock)
    relay.send(b"LHLO x\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<alice>\r\nRCPT TO:<bob>\r\nDATA\r\n")
    relay.send(b"From: a@example.org\r\n\r\nof secrets\r\n.\r\n")
    client = Wire(imap.factory(store, ImapSettings(plaintext_login=True), clock), clock)
    client.send(b"a LOGIN alice secret\r\nb SELECT INBOX\r\n")
    assert b"250 2" in relay.received() and b"b OK" in client.received()
    return relay.protocol.id, client.protocol.id


def test_commands_and_deliveries_are_spans_with_the_ids_of_the_log(store, collector, begin):
    spans = begin(collector.url, 1.0)
    relay, client = converse(store, Clock())
    spans.stop()
    found = {span.name: span for span in collector.spans}
    assert {"lmtp MAIL", "lmtp DATA", "delivery", "imap LOGIN", "imap SELECT"} <= set(found)
    data, delivery = found["lmtp DATA"], found["delivery"]
    assert delivery.parent_span_id == data.span_id and delivery.trace_id == data.trace_id
    assert data.start_time_unix_nano <= delivery.start_time_unix_nano <= delivery.end_time_unix_nano
    about = attributes(delivery)
    assert (about["session"], about["recipients"], about["delivered"], about["refused"]) == (relay, 2, 2, 0)
    assert attributes(found["imap SELECT"]) == {"session": client, "user": "alice", "service": "imap",
                                                "command": "SELECT"}
    assert collector.resources[0]["service.name"] == "onecopy"
    assert collector.resources[0]["service.instance.id"] == "imap-1" and "secret" not in str(collector.spans)


def test_what_a_command_waited_for_is_in_its_span(collector, begin):
    spans = begin(collector.url, 1.0)
    spans.command("7b-11", "alice", "imap", "STORE", 1.5, {"flush": 1.0, "lock": 0.25, "directory": 0.125})
    spans.stop()
    span, = collector.spans
    assert span.end_time_unix_nano - span.start_time_unix_nano == 1_500_000_000
    assert {name: value for name, value in attributes(span).items() if name.startswith("waited")} == {
        "waited_for_flush": 1.0, "waited_for_lock": 0.25, "waited_for_directory": 0.125}


def test_the_rate_says_of_which_part_spans_are_made(collector, begin):
    spans = begin(collector.url, 0.25)
    numbers = iter([0.0, 0.24, 0.25, 0.9] * 10)
    spans._chance = lambda: next(numbers)
    for _ in range(40):
        spans.delivery("7b-11", {"message": "x"}, 0.1)
        spans.command("7b-11", "alice", "imap", "NOOP", 0.001, {})
    assert spans._deliveries == {}
    spans.stop()
    assert sum(span.name == "imap NOOP" for span in collector.spans) == 20


def test_a_dead_collector_slows_nobody_and_fills_nothing(store, begin, caplog):
    """It is told once; the queue is bounded, and a stop does not wait for what nobody takes."""
    spans = begin(f"http://127.0.0.1:{free_port()}/v1/traces", 1.0)
    converse(store, Clock())
    for _ in range(3 * made_of.QUEUE):
        spans.command("7b-11", "alice", "imap", "NOOP", 0.001, {})
    processor, = spans._provider._active_span_processor._span_processors
    assert len(processor._batch_processor._queue) <= made_of.QUEUE
    spans.stop()
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://x", "http://user:pass@x/", "http://x/?token=1", "http://"])
def test_what_is_no_collector_is_refused(url):
    with pytest.raises(ValueError, match="must be"):
        Trace(url)


def test_without_the_packages_it_is_one_clear_line(monkeypatch):
    with monkeypatch.context() as missing:
        for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
            missing.delitem(sys.modules, name)
        missing.setattr(sys, "path", [])
        missing.setattr(sys, "path_importer_cache", {})
        missing.setattr(sys, "meta_path", [each for each in sys.meta_path if "editable" not in str(each).lower()])
        with pytest.raises(Failure, match=r"pip install 'onecopy\[traces\]'"):
            spanpackages.require()
        found, = configcheck._spans(load({"trace.collector": "http://127.0.0.1:4318/v1/traces"}, {}))
        assert found.serious and found.option == "trace.collector" and "onecopy[traces]" in found.text
        assert not list(configcheck._spans(load({}, {})))
    spanpackages.require()


def test_nothing_of_it_is_loaded_where_it_is_off():
    program = ("import sys, tools.server.worker, tools.server.configcheck; print([name for name in sys.modules "
               "if name.startswith(('opentelemetry', 'google.protobuf', 'requests'))])")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
