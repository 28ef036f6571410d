"""A process of the program for each operation, forked by `forkserver`: begun, conversed with, ended."""

import json
import logging
import os
import re
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any

from attrs import define, field

from tools.cli import progressbar
from tools.http.api.operationlist import OperationList

log = logging.getLogger(__name__)

KILL_TIME = 60.0            # seconds that an operation may take to end when it is asked to
SECONDS = struct.Struct("d")    # what goes to the server with descriptors,
NUMBER = struct.Struct("i")     # and what comes back over a channel
RS = progressbar.RS.encode()
_PROGRESS = re.compile(rb"\x1e(\d{1,18}) (\d{1,18}) ([^\n]*)\n")
OUTPUT = 8 << 20            # octets of output, and of errors, that are kept
READ_OCTETS = 64 << 10            # octets that are read at a time
BEGIN_TIME = 60.0           # seconds in which one must begin; the program is loaded before the first one
_INHERITED = ("HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ")     # of our environment


class NotBegun(Exception):
    """No process has begun: nothing has been done."""


@define(eq=False)
class OperationProcess:
    """One that has begun."""

    _channel: socket.socket
    _stdin: IO[bytes]
    _stdout: IO[bytes]
    _stderr: IO[bytes]
    hear: Callable[[int, int, str], None] = lambda done, total, what: None      # hears how far it is

    def end(self) -> None:
        """Ask it to end."""
        with suppress(OSError):             # it has ended
            self._channel.shutdown(socket.SHUT_WR)

    def converse(self, stdin: bytes | None) -> tuple[bytes, bytes, int | None]:
        """What it prints, its errors, and its exit status (None: nobody knows); of what is too much the end is dropped.
        It is over when nobody has its output open any more. `stdin`: None for one that does not end."""
        left, status, until = memoryview(stdin or b""), None, None
        kept = {self._stdout: bytearray(), self._stderr: bytearray()}
        with selectors.DefaultSelector() as selector:
            os.set_blocking(self._stdin.fileno(), False)
            if stdin is not None:
                selector.register(self._stdin, selectors.EVENT_WRITE)
            awaited: set[Any] = {self._stdout, self._stderr, self._channel}
            for each in awaited:
                selector.register(each, selectors.EVENT_READ)
            while awaited and (until is None or time.monotonic() < until):
                for key, _ in selector.select(None if until is None else until - time.monotonic()):
                    if key.fileobj is self._stdin:
                        left = self._write(left)
                        if not left:
                            selector.unregister(self._stdin)
                            self._stdin.close()
                        continue
                    data = os.read(key.fd, READ_OCTETS)
                    if key.fileobj is self._channel and data:
                        status, = NUMBER.unpack(data)
                    elif data:
                        octets = kept[key.fileobj]      # type: ignore[index]
                        octets += data[:OUTPUT - len(octets)]
                        if key.fileobj is self._stderr and RS in data:
                            self._take_progress(octets)
                        continue
                    elif key.fileobj is self._channel:  # the fork server has died, and the kernel asks the rest to end
                        until = time.monotonic() + KILL_TIME
                    awaited.discard(key.fileobj)
                    selector.unregister(key.fileobj)
        for end in (self._stdin, self._stdout, self._stderr, self._channel):
            end.close()
        return bytes(kept[self._stdout]), bytes(kept[self._stderr]), status

    def _take_progress(self, octets: bytearray) -> None:
        """Lines that say how far it is are no errors."""
        lines = list(_PROGRESS.finditer(octets))
        if lines:
            done, total, what = lines[-1].groups()
            self.hear(int(done), int(total), what.decode("ascii", "replace"))
            octets[:] = _PROGRESS.sub(b"", octets)

    def _write(self, left: memoryview) -> memoryview:
        """What is left to write; nothing where it reads nothing."""
        try:
            return left[os.write(self._stdin.fileno(), left[:READ_OCTETS]):] if left else left
        except BlockingIOError:
            return left
        except BrokenPipeError:
            return left[:0]


@define(eq=False)
class Forking:
    """Begins processes; their server is started when it is first needed, and again when it has ended."""

    _server: "tuple[subprocess.Popen[bytes], socket.socket] | None" = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def begin(self, words: Sequence[str], environment: Mapping[str, str], seconds: float) -> OperationProcess:
        """Have `onecopy` do these words; it is asked to end after so many seconds. Raises NotBegun, OSError."""
        return self._request({"words": list(words), "environment": dict(environment)}, seconds)

    def listed(self, version: str) -> OperationList:
        """All operations. Raises NotBegun, OSError, ValueError."""
        return OperationList.from_octets(self._request({"version": version}, BEGIN_TIME).converse(b"")[0])

    def prepare(self) -> None:
        """Start the server, which loads the program meanwhile. Raises OSError."""
        self._running()

    def _request(self, asked: Mapping[str, Any], seconds: float) -> OperationProcess:
        request = json.dumps(asked).encode()
        for _ in range(2):
            server = self._running()
            try:
                return self._begin(server[1], request, seconds)
            except (ConnectionError, NotBegun) as error:
                log.warning("the process that operations are forked from has ended, or does not answer: %s", error)
                self._drop(server)
        raise NotBegun("no process could be started")

    def close(self) -> None:
        """Let the server end when the last of its processes has ended."""
        with self._lock:
            if self._server is not None:
                self._server[1].close()

    def _running(self) -> "tuple[subprocess.Popen[bytes], socket.socket]":
        with self._lock:
            if self._server is None or self._server[0].poll() is not None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    self._server = subprocess.Popen(
                        [sys.executable, "-P", "-m", "tools.http.api.forkserver"], stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL, cwd="/", start_new_session=True, env=_environment()), ours
            return self._server

    def _drop(self, server: "tuple[subprocess.Popen[bytes], socket.socket]") -> None:
        with self._lock:
            if self._server is server:
                self._server = None
        process, ours = server
        ours.close()
        process.kill()
        process.wait()

    def _begin(self, server: socket.socket, request: bytes, seconds: float) -> OperationProcess:
        with ExitStack() as theirs, ExitStack() as failed:
            channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            failed.enter_context(channel)
            theirs.enter_context(other)
            written, read = [], []
            for _ in range(2):              # the request, standard input
                end, begin = os.pipe()
                written.append((failed.enter_context(os.fdopen(begin, "wb", 0)),
                                theirs.enter_context(os.fdopen(end, "rb", 0))))
            for _ in range(2):              # standard output, errors
                end, begin = os.pipe()
                read.append((failed.enter_context(os.fdopen(end, "rb", 0)),
                             theirs.enter_context(os.fdopen(begin, "wb", 0))))
            socket.send_fds(server, [SECONDS.pack(seconds)], [
                other.fileno(), *(each.fileno() for _, each in (*written, *read))])
            theirs.close()
            channel.settimeout(BEGIN_TIME)
            try:
                begun = channel.recv(NUMBER.size)
            except TimeoutError:
                begun = b""
            if not begun:
                raise NotBegun("no process has begun")
            channel.settimeout(None)
            with written[0][0] as pipe, suppress(BrokenPipeError):
                left = memoryview(request)
                while left:
                    left = left[pipe.write(left):]
            failed.pop_all()
            return OperationProcess(channel, written[1][0], read[0][0], read[1][0])


def _environment() -> Mapping[str, str]:
    """Nothing of a configuration: an operation hears of that by itself."""
    return {"OPENBLAS_NUM_THREADS": "1", **{name: value for name, value in os.environ.items()
                                            if name in _INHERITED or name.startswith("PYTHON")}}
