"""The control socket: one line of JSON in, one out, and nothing else gets in the way of the server."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading

import pytest
from twisted.internet.defer import Deferred

from store.net import controlchannel
from store.net.controlchannel import (
    CONNECTIONS,
    FOLDER,
    REQUEST_LIMIT,
    ControlPort,
    Unanswered,
    _Conversation,
    _Conversations,
)
from tests.support import ROOT

SERVED = """
import sys
from pathlib import Path
from twisted.internet import reactor
from store.net.controlchannel import ControlPort

async def later(request):
    return {"later": request["text"]}

def wrong(request):
    raise ValueError("that makes no sense")

port = ControlPort(Path(sys.argv[1]), sys.argv[2], {
    "echo": lambda request: request["text"], "later": later, "wrong": wrong, "broken": lambda request: 1 / 0,
    "much": lambda request: "x" * (20 << 20)})

def begin():
    try:
        port.start(reactor)
        print("ready", flush=True)
    except Exception:
        reactor.stop()

reactor.callWhenRunning(begin)
reactor.run()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run folder of a process that can be asked, under the name of one that left its socket behind."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "control").mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "control" / "keeper"))
    process = subprocess.Popen([sys.executable, "-c", SERVED, folder, "keeper"], stdout=subprocess.PIPE,
                               cwd=ROOT)
    try:
        assert process.stdout.readline() == b"ready\n"
        yield folder
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_is_asked_is_answered(run):
    assert controlchannel.names(run) == ["keeper"]
    assert controlchannel.ask(run, "keeper", "echo", text="ä\n") == "ä\n"
    assert controlchannel.ask(run, "keeper", "later", text="x") == {"later": "x"}


@pytest.mark.parametrize(("do", "why"), [
    ("wrong", "that makes no sense"), ("broken", "see the log"), ("nothing", "not a request"), ("echo", "text"),
    ("much", "too long")])
def test_what_cannot_be_done_is_said(run, do, why):
    with pytest.raises(Unanswered, match=why):
        controlchannel.ask(run, "keeper", do)
    assert controlchannel.ask(run, "keeper", "echo", text="still here") == "still here"


def test_only_its_owner_may_ask(run):
    assert stat.S_IMODE((run / "control" / "keeper").stat().st_mode) == 0o600


def test_a_process_that_is_no_more_says_nothing(run, tmp_path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(run / "control" / "dead"))
    try:
        assert controlchannel.ask(run, "dead", "echo", text="x") is None
        assert controlchannel.ask(run, "none", "echo", text="x") is None
    finally:
        (run / "control" / "dead").unlink()
    assert controlchannel.names(tmp_path) == [] and controlchannel.ask(tmp_path, "keeper", "echo") is None


def test_a_process_that_hangs_is_not_waited_for_long(tmp_path):
    (tmp_path / "control").mkdir()
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "control" / "hangs"))
        hanging.listen()
        with pytest.raises(Unanswered, match="does not answer"):
            controlchannel.ask(tmp_path, "hangs", "echo", timeout=0.05)


def test_one_that_ends_in_the_middle_of_its_answer_has_said_nothing(tmp_path):
    (tmp_path / "control").mkdir()
    with socket.socket(socket.AF_UNIX) as torn:
        torn.bind(str(tmp_path / "control" / "torn"))
        torn.listen()

        def answer():
            connection, _ = torn.accept()
            connection.recv(4096)
            connection.sendall(b'{"ok": [1, 2')
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert controlchannel.ask(tmp_path, "torn", "echo") is None
        thread.join()


class Transport:
    """What a conversation writes."""

    def __init__(self):
        self.written, self.ended = b"", False
        self.disconnecting = False

    def write(self, octets):
        self.written += octets

    def loseConnection(self):
        self.ended = self.disconnecting = True


class Clock:
    def callLater(self, seconds, work):
        return type("Call", (), {"reset": lambda *_: None, "cancel": lambda *_: None, "active": lambda *_: True})()


def conversation(factory):
    made = factory.buildProtocol(None)
    made.makeConnection(Transport())
    return made


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"1", b'{"do": []}', b'{"do": "x"}', b"\xff\xfe", b"[" * 60_000])
def test_junk_ends_the_connection_with_one_line(tmp_path, line):
    made = conversation(_Conversations(ControlPort(tmp_path, "x", {}), Clock()))
    made.dataReceived(line + b"\n")
    assert "error" in json.loads(made.transport.written) and made.transport.written.count(b"\n") == 1
    assert made.transport.ended


def test_a_request_has_a_limit(tmp_path):
    made = conversation(_Conversations(ControlPort(tmp_path, "x", {}), Clock()))
    made.dataReceived(b"x" * (REQUEST_LIMIT + 1))
    assert made.transport.ended and b"too long" in made.transport.written


def test_so_many_may_ask_at_a_time(tmp_path):
    factory = _Conversations(ControlPort(tmp_path, "x", {"echo": lambda request: 1}), Clock())
    made: list[_Conversation] = [conversation(factory) for _ in range(CONNECTIONS + 1)]
    assert [each.transport.ended for each in made] == [False] * CONNECTIONS + [True]
    made[0].connectionLost()
    made[-1].connectionLost()
    assert not conversation(factory).transport.ended


def test_the_name_goes_with_the_process(tmp_path):
    assert os.listdir(tmp_path) == []
    ControlPort(tmp_path, "x", {}).stop()           # one that has never begun
    assert os.listdir(tmp_path) == []


def test_the_port_finds_its_name_when_it_comes_to_take_it_away(tmp_path):
    """Twisted removes the name by the open folder, in a turn of the event loop after the one that asked for it."""
    class Port:
        def stopListening(self):
            self.stopped = Deferred()
            self.stopped.addCallback(lambda _: os.unlink(f"/proc/self/fd/{made._directory}/x"))
            return self.stopped

    class Loop:
        def listenUNIX(self, address, factory, backlog, mode):
            open(address, "w").close()
            return port

    port, made = Port(), ControlPort(tmp_path, "x", {})
    made.start(Loop())
    made.stop()
    failed = []
    port.stopped.addErrback(failed.append)
    port.stopped.callback(None)
    assert not failed and os.listdir(tmp_path / FOLDER) == []
    made.stop()                                  # once is enough
