"""A real server and real receivers: a web server, a program behind a UNIX socket, a file. They are slow, down and
broken for a while, and the server is killed; in the end each has every event, in order."""

import hashlib
import hmac
import json
import os
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.lmtp import Lmtp
from tests.support.faults.mountedimage import MountedImage
from tests.support.processes import wait
from tests.support.servers.server import Server

pytestmark = pytest.mark.long

SECRET = b"a secret of both"
TIME = 300              # seconds, far more than anything takes


class Hook(ThreadingHTTPServer):
    """A web hook. `moods`: what it does with the next requests: "busy", "reset", "hang"; then it takes them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.moods: list[str] = []
        self.has: list[dict[str, Any]] = []
        self.forged = 0
        self.let_go = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """A connection that was reset."""

    @property
    def uids(self) -> list[str]:
        return [body["uidset"] for body in self.has if body["event"] == "MessageNew"]


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mood = self.server.moods.pop(0) if self.server.moods else "good"
        if mood == "hang":
            self.server.let_go.wait(TIME)
        if mood in ("reset", "hang"):
            self.close_connection = True
            self.connection.close()
            return
        if mood == "good":
            wanted = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
            self.server.forged += self.headers["X-Onecopy-Signature"] != wanted
            self.server.has += json.loads(body)
        self.send_response(503 if mood == "busy" else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Listener(socketserver.ThreadingUnixStreamServer):
    """A program behind a UNIX socket."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.has: list[dict[str, Any]] = []
        super().__init__(str(path), _Lines)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Lines(socketserver.StreamRequestHandler):
    server: Listener

    def handle(self) -> None:
        for line in self.rfile:
            if line.strip():
                self.server.has.append(json.loads(line))
            else:
                self.wfile.write(b"OK\n")


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.let_go.set()
    made.shutdown()
    made.server_close()


def news(bodies: list[dict[str, Any]]) -> list[str]:
    """The UIDs that came, each once, in the order in which they came first."""
    return list(dict.fromkeys(body["uidset"] for body in bodies if body["event"] == "MessageNew"))


def deliver(server: Server, *numbers: int) -> None:
    with Lmtp(server.lmtp) as lmtp:
        lmtp.command("LHLO test")
        for number in numbers:
            body = b"Subject: %d\r\n\r\nx\r\n" % number
            assert all(reply.code == 250 for reply in lmtp.deliver("a@example.org", ["alice"], body))


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """A volume at `tmp_path`/hanging of which every change waits until this is called (fsfreeze(8))."""
    with MountedImage(tmp_path / "hanging", 8 << 20):
        goes_on = partial(_freeze, "--unfreeze", tmp_path / "hanging")
        _freeze("--freeze", tmp_path / "hanging")
        with ExitStack() as at_end:
            at_end.callback(goes_on)
            yield lambda: at_end.close()


def _freeze(how: str, folder: Path) -> None:
    subprocess.run(["fsfreeze", how, folder], check=True, timeout=TIME)


def written(file: Path) -> list[dict[str, Any]]:
    """The events in a file, each on a line that is whole."""
    return [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]


def test_all_of_it_arrives_whatever_happens(tmp_path: Path, hook: Hook, hanging: Callable[[], None]) -> None:
    """Two files are on a volume that hangs: as many as the outbox has threads for its rows."""
    path, lines = tmp_path / "socket", tmp_path / "events"
    stuck = [tmp_path / "hanging" / name for name in ("first", "second")]
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    os.chmod(tmp_path / "secret", 0o600)
    options = {"outbox.hook.to": f"http://127.0.0.1:{hook.server_address[1]}/in", "outbox.hook.retry": "100ms",
               "outbox.hook.retry_longest": "300ms", "outbox.hook.timeout": "1s", "outbox.hook.batch": "3",
               "outbox.hook.secret": str(tmp_path / "secret"), "outbox.hook.types": "Message*",
               "outbox.lines.to": f"file:{lines}", "outbox.socket.to": f"unix:{path}",
               "outbox.socket.retry": "100ms", "outbox.socket.retry_longest": "300ms", "outbox.socket.users": "alice"}
    for file in stuck:
        options |= {f"outbox.{file.name}.{option}": value for option, value in
                    {"to": f"file:{file}", "retry": "100ms", "retry_longest": "300ms", "timeout": "1s"}.items()}
    with Server(tmp_path, ["alice", "bob"], options) as server:
        server.answers()
        hook.moods = ["busy", "reset", "hang", "busy"]
        deliver(server, *range(1, 8))
        wait.until(lambda: not hook.moods, "the hook was asked", pid=server.pid, limit=TIME)
        # nobody listens at the socket so far, and the file is not held up by it
        wait.until(lambda: lines.exists() and lines.read_bytes().count(b"MessageNew") == 7, "the file", pid=server.pid,
                   limit=TIME)
        rows = {row["receiver"]: row for row in json.loads(server.command("outbox", "list", "--json", status=1))}
        assert rows["socket"]["state"] == "down" and rows["socket"]["waiting"] >= 7
        assert {rows[file.name]["said"] for file in stuck} <= {"no answer in time",
                                                               "what was begun before has not ended"}
        assert any(line.startswith("socket has got no events for") for line in
                   json.loads(server.command("status", "--json", status=1))["troubles"])
        assert 'onecopy_outbox_down{receiver="socket"} 1' in server.command("stats", "--prometheus")
        hanging()
        hook.moods = ["hang"]
        deliver(server, 8)
        wait.until(lambda: not hook.moods, "the hook was asked", pid=server.pid, limit=TIME)
        server.kill()                   # in the middle of a batch
        hook.let_go.set()
        server.start()
        server.answers()
        deliver(server, 9)
        listener = Listener(path)
        wanted = [str(number) for number in range(1, 9)]
        wait.until(lambda: len(news(hook.has)) >= 9 <= len(news(listener.has)), "all have all", pid=server.pid,
                   limit=TIME)
        wait.until(lambda: all(len(news(written(file))) >= 9 for file in (lines, *stuck)), "the files", pid=server.pid,
                   limit=TIME)          # what came twice counts once
        server.check()
        assert server.stop() == 0
        listener.shutdown()
        listener.server_close()
    assert hook.forged == 0
    for has in map(news, (hook.has, listener.has, *map(written, (lines, *stuck)))):
        assert has[:8] == wanted and len(has) == 9
        assert int(has[8]) > 8          # after an unclean end a mailbox skips UIDs
    assert {body["user"] for body in listener.has} == {"alice"}
    assert lines.stat().st_mode & 0o777 == 0o600


