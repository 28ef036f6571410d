"""A web hook that refuses all that it is sent, until a test lets it take something."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RefusingHook(ThreadingHTTPServer):
    """On loopback. `has`: the events that it has taken, once `refuses` is false."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.refuses = True
        self.has: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RefusingHook

    def do_POST(self) -> None:
        """RFC 9110 §15.5.1: nothing that is sent again unchanged."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.refuses:
            self.server.has += json.loads(body)
        self.send_response(400 if self.server.refuses else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is said."""
