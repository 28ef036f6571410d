"""A process of the server is asked by administrators: on a UNIX socket, `run/control/<name>`, that only root and the
store's user can connect to. A request is one line of JSON, {"do": NAME, ...}, and so is the answer, {"ok": ...} or
{"error": TEXT}.
"""

import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import ensureDeferred, maybeDeferred
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.basic import LineOnlyReceiver
from twisted.protocols.policies import TimeoutMixin
from twisted.python.failure import Failure

from mboxlist import privatefiles

log = logging.getLogger(__name__)

FOLDER = "control"
REQUEST_LIMIT = 64 << 10    # octets of a request,
ANSWER_LIMIT = 16 << 20     # and of an answer: what is longer comes in pages
CONNECTIONS = 16            # at a time, for each process
PATIENCE = 60.0             # seconds within which a request comes, and its answer is taken
TIMEOUT = 15.0              # seconds that one who asks waits

Action = Callable[[Mapping[str, Any]], Any | Awaitable[Any]]


class Unanswered(Exception):
    """The process has not answered, or said that it cannot do that."""


class ControlPort:
    """This process's socket. `actions` are what can be asked for; each raises ValueError for a request that makes no
    sense."""

    def __init__(self, run: Path, name: str, actions: Mapping[str, Action]) -> None:
        self.actions = actions
        self.open = 0
        self._folder = run / FOLDER
        self._name = name
        self._directory = -1
        self._port: Any = None

    def start(self, reactor: Any, listen: Callable[..., Any] | None = None) -> None:
        """Listen; `listen` as the reactor's `listenUNIX`. A socket of that name is one of a process that is no more."""
        privatefiles.make_folder(self._folder, exist_ok=True)
        self._directory = privatefiles.open_folder(self._folder)
        (self._folder / self._name).unlink(missing_ok=True)
        self._port = (listen or reactor.listenUNIX)(_address(self._directory, self._name), _Conversations(
            self, reactor), CONNECTIONS, 0o600)

    def stop(self) -> None:
        """Listen no more."""
        if self._port is not None:
            port, self._port = self._port, None
            maybeDeferred(port.stopListening).addBoth(self._stopped)

    def _stopped(self, _: object) -> None:
        """The port takes its name away itself, in a later turn of the event loop, and by the open folder."""
        with suppress(OSError):                     # who asks finds that nobody answers
            (self._folder / self._name).unlink(missing_ok=True)
        os.close(self._directory)


class _Conversations(Factory):
    """Makes them. `clock` is the reactor."""

    noisy = False

    def __init__(self, port: ControlPort, clock: Any) -> None:
        self.port = port
        self.clock = clock

    def buildProtocol(self, addr: object) -> "_Conversation":
        made = _Conversation()
        made.factory = self
        return made


class _Conversation(LineOnlyReceiver, TimeoutMixin):
    """One connection: requests, one after the other."""

    delimiter = b"\n"
    MAX_LENGTH = REQUEST_LIMIT
    factory: Any

    def callLater(self, period: float, func: Callable[[], None]) -> Any:
        return self.factory.clock.callLater(period, func)

    def connectionMade(self) -> None:
        self.factory.port.open += 1
        if self.factory.port.open > CONNECTIONS:
            self._end({"error": "too many ask at the same time"})
            return
        self.setTimeout(PATIENCE)                       # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.factory.port.open -= 1
        self.setTimeout(None)                           # type: ignore[no-untyped-call]

    def lineReceived(self, line: bytes) -> None:
        self.resetTimeout()                             # type: ignore[no-untyped-call]
        ensureDeferred(self._answer(line)).addErrback(lambda failure: log.error("%s", failure.getTraceback()))

    def lineLengthExceeded(self, line: bytes) -> None:
        self._end({"error": "the request is too long"})

    async def _answer(self, line: bytes) -> None:
        try:
            request = json.loads(line)
            action = self.factory.port.actions[request["do"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            self._end({"error": "not a request that exists here"})
            return
        try:
            found = action(request)
            self._say({"ok": await found if isawaitable(found) else found})
        except (ValueError, KeyError, TypeError) as error:
            self._say({"error": f"{request['do']}: {error}"})
        except Exception:
            log.exception("%s could not be done", request["do"])
            self._say({"error": f"{request['do']}: it failed, see the log"})

    def _say(self, answer: Mapping[str, Any]) -> None:
        octets = json.dumps(answer, default=str).encode()
        if len(octets) > ANSWER_LIMIT:
            octets = b'{"error": "the answer is too long"}'
        cast(Any, self.transport).write(octets + b"\n")

    def _end(self, answer: Mapping[str, Any]) -> None:
        self._say(answer)
        cast(Any, self.transport).loseConnection()


def names(run: Path) -> list[str]:
    """The processes that have a socket; some may be no more. Raises PermissionError."""
    try:
        return sorted(os.listdir(run / FOLDER))
    except FileNotFoundError:
        return []


def ask(run: Path, name: str, do: str, timeout: float = TIMEOUT, **words: object) -> Any:
    """What the process answers; None when it is no more. Raises Unanswered, PermissionError."""
    try:
        directory = privatefiles.open_folder(run / FOLDER)
    except FileNotFoundError:
        return None
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(_address(directory, name))
            connection.sendall(json.dumps({"do": do, **words}).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline(ANSWER_LIMIT + 2)
    except (ConnectionRefusedError, FileNotFoundError):
        return None                                     # it was killed, or has just ended
    except PermissionError:
        raise
    except OSError as error:
        raise Unanswered(f"{name} does not answer: {error}") from None
    finally:
        os.close(directory)
    if not line.endswith(b"\n"):
        return None                                     # it ends at this moment
    answer = json.loads(line)
    if "error" in answer:
        raise Unanswered(f"{name}: {answer['error']}")
    return answer["ok"]


def _address(directory: int, name: str) -> str:
    """An address holds only 107 octets, so it goes by an open folder."""
    return f"/proc/self/fd/{directory}/{name}"
