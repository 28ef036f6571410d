"""A file system that is not of this machine, as Hadoop's own client meets one: WebHDFS on loopback, by the description
of its REST API (Apache Hadoop, "WebHDFS REST API"). Files are in memory; there are no block locations, and nobody is
asked who he is.

As HDFS does, it answers OPEN and CREATE with a redirection first, and RENAME refuses a name that is there, unless that
is to be overwritten. It does not say what type its answers have: of the client in pyspark's jars a class is missing by
which it would read that.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import define, field

PREFIX = "/webhdfs/v1"


@define
class Remote:
    """What is there, by path. With `room` for so many files more, CREATE fails after these; and what is `refused`."""

    files: dict[str, bytes] = field(factory=dict)
    folders: set[str] = field(factory=lambda: {"/"})
    room: int = 1_000_000
    refused: tuple[str, ...] = ()           # ends of names to which nothing may be renamed
    port: int = 0
    asked: list[str] = field(factory=list)

    def uri(self, path: str) -> str:
        """The URI of a path."""
        return f"webhdfs://127.0.0.1:{self.port}{path}"

    def make(self, path: str) -> None:
        """Have that folder, and those above."""
        while path not in self.folders:
            self.folders.add(path)
            path = path.rpartition("/")[0] or "/"

    def bring(self, folder: Path, top: str) -> str:
        """Have there what is in a folder of this machine; its URI."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                there = f"{top}/{path.relative_to(folder)}"
                self.make(there.rpartition("/")[0])
                self.files[there] = path.read_bytes()
        return self.uri(top)

    def below(self, path: str) -> set[str]:
        """Names of what is in a folder."""
        top = path.rstrip("/") + "/"
        return {each[len(top):].split("/")[0] for each in (*self.files, *self.folders) if each.startswith(top)} - {""}

    def status(self, path: str, suffix: str = "") -> dict[str, object]:
        """FileStatus. Raises KeyError."""
        if path not in self.files and path not in self.folders:
            raise KeyError(path)
        whole = self.files.get(path)
        return {"pathSuffix": suffix, "type": "DIRECTORY" if whole is None else "FILE", "length": len(whole or b""),
                "owner": "mail", "group": "mail", "permission": "700" if whole is None else "600", "replication": 1,
                "blockSize": 1 << 27, "accessTime": 0, "modificationTime": 1, "fileId": 1, "childrenNum": 0,
                "storagePolicy": 0}


class _Answers(BaseHTTPRequestHandler):
    """Answers for a Remote, which is an attribute of the server."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1                           # an answer is one segment: no wait for what acknowledges the first
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        remote: Remote = self.server.remote      # type: ignore[attr-defined]
        url = urlsplit(self.path)
        words = {name: values[0] for name, values in parse_qs(url.query).items()}
        path, octets = unquote(url.path.removeprefix(PREFIX)) or "/", self._body()
        operation = words["op"].upper()
        remote.asked.append(operation)
        try:
            self._do(remote, operation, path, words, octets)
        except KeyError:
            self._refuse(404, "java.io.FileNotFoundException", f"File does not exist: {path}")

    def _do(self, remote: Remote, operation: str, path: str, words: dict[str, str], octets: bytes) -> None:
        if operation in ("OPEN", "CREATE") and "step" not in words:
            if operation == "OPEN":
                remote.files[path]
            self._send(307, b"", Location=f"http://127.0.0.1:{remote.port}{self.path}&step=2")
        elif operation == "OPEN":
            begin = int(words.get("offset", 0))
            self._send(200, remote.files[path][begin:begin + int(words.get("length", 1 << 40))])
        elif operation == "CREATE" and remote.room == 0:
            self._refuse(403, "java.io.IOException", "there is no room")
        elif operation == "CREATE":
            remote.room -= 1
            remote.make(path.rpartition("/")[0] or "/")
            remote.files[path] = octets
            self._send(201, b"")
        elif operation == "GETFILESTATUS":
            self._say({"FileStatus": remote.status(path)})
        elif operation == "LISTSTATUS":
            found = [remote.status(path)] if path in remote.files else [
                remote.status(f"{path.rstrip('/')}/{name}", name) for name in sorted(remote.below(path))]
            remote.status(path)
            self._say({"FileStatuses": {"FileStatus": found}})
        elif operation == "GETFILEBLOCKLOCATIONS":
            self._say({"BlockLocations": {"BlockLocation": []}})
        elif operation == "MKDIRS":
            remote.make(path)
            self._say({"boolean": True})
        elif operation == "RENAME":
            to, over = words["destination"], words.get("renameoptions") == "OVERWRITE"
            if to.endswith(remote.refused):
                self._refuse(403, "java.io.IOException", "not renamed")
                return
            if is_free := over or to not in remote.files:
                remote.files[to] = remote.files.pop(path)
            self._say({"boolean": is_free})
        elif operation == "DELETE":
            self._say({"boolean": remote.files.pop(path, None) is not None})
        else:
            self._refuse(400, "java.lang.UnsupportedOperationException", f"no {operation} here")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _say(self, values: object) -> None:
        self._send(200, json.dumps(values).encode())

    def _refuse(self, status: int, kind: str, text: str) -> None:
        self._send(status, json.dumps({"RemoteException": {
            "exception": kind.rpartition(".")[2], "javaClassName": kind, "message": text}}).encode())

    def _send(self, status: int, octets: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(octets)))
        self.end_headers()
        self.wfile.write(octets)


@contextmanager
def webhdfs() -> Iterator[Remote]:
    """One that answers while the block lasts."""
    remote, server = Remote(), ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    server.remote, remote.port = remote, server.server_address[1]       # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield remote
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
