"""Operations that are carried out: each by a process of the program, with limits on time, number and output."""

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from attrs import define, field

from tools.cli.options import Config, option
from tools.commandaudit import TOKEN

log = logging.getLogger(__name__)

KEPT = 200                  # operations of which it is known what became of them,
KEPT_LETTERS = 64 << 20     # and letters of what those have printed
OUTPUT = 8 << 20            # octets of output that are kept
TRACEBACK = "Traceback (most recent call last)"     # nobody elsewhere is shown one
KILL_TIME = 60.0            # seconds that one may take to end when it is asked to


@define(eq=False)
class Run:
    """One operation: under way, or ended (`exit` is not None). `owner`: the token's id."""

    id: str
    operation: str
    owner: str
    as_json: bool
    exit: int | None = None
    output: str = ""
    errors: str = ""
    done: threading.Event = field(factory=threading.Event)

    @property
    def letters(self) -> int:
        """How much it has printed."""
        return len(self.output) + len(self.errors)

    def outcome(self) -> dict[str, Any]:
        """For the client."""
        if self.exit is None:
            return {"operation": self.operation, "state": "running"}
        found: dict[str, Any] = {"operation": self.operation, "state": "ended", "exit": self.exit,
                                 "errors": self.errors}
        try:
            return {**found, "result": json.loads(self.output)} if self.as_json and self.output else {
                **found, "output": self.output}
        except ValueError:
            return {**found, "output": self.output}


@define(eq=False)
class Runs:
    """Those of this process. `most` at a time, each for `seconds` at most."""

    _config: Config
    most: int
    seconds: float
    _runs: "OrderedDict[str, Run]" = field(factory=OrderedDict, init=False)
    _children: "set[subprocess.Popen[bytes]]" = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    stopping: bool = field(default=False, init=False)

    @property
    def running(self) -> int:
        """How many are under way."""
        return sum(each.exit is None for each in self._runs.values())

    def new(self, operation: str, owner: str, *, as_json: bool) -> Run:
        """One that begins now."""
        made = Run(secrets.token_urlsafe(16), operation, owner, as_json)
        ended = deque(each for each in self._runs.values() if each.exit is not None)
        letters = sum(each.letters for each in ended)
        while ended and (len(self._runs) >= KEPT or letters > KEPT_LETTERS):
            oldest = ended.popleft()
            letters -= oldest.letters
            self.forget(oldest)
        self._runs[made.id] = made
        return made

    def forget(self, run: Run) -> None:
        """Nobody asks for it any more."""
        self._runs.pop(run.id, None)

    def find(self, id: str, owner: str) -> Run | None:
        """One of that token's."""
        found = self._runs.get(id)
        return found if found is not None and found.owner == owner else None

    def carry_out(self, run: Run, words: Sequence[str], stdin: str, asker: str) -> None:
        """Until it has ended; the audit trail says that `asker` had it done. For a thread."""
        try:
            run.output, errors, status = self._communicate(words, stdin.encode(), asker)
            if TRACEBACK in errors:
                log.error("%s has failed: %s", run.operation, errors)
                errors = "it has failed; the log of the server has more"
            run.errors, run.exit = errors, status       # last: who asks meanwhile sees no traceback
        except Exception:
            log.exception("%s could not be carried out", run.operation)
            run.errors, run.exit = "it could not be carried out; the log of the server has more", 1
        finally:
            run.exit = 1 if run.exit is None else run.exit
            run.done.set()

    def _communicate(self, words: Sequence[str], stdin: bytes, asker: str) -> tuple[str, str, int]:
        with self._lock:
            if self.stopping:
                return "", "the server is stopping", 1
            child = subprocess.Popen([sys.executable, "-P", "-m", "tools.cli.program", *words], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", start_new_session=True,
                                     env={**self._environment(), TOKEN: asker})
            self._children.add(child)
        timers = [threading.Timer(self.seconds, child.send_signal, [signal.SIGINT]),
                  threading.Timer(self.seconds + KILL_TIME, _kill, [child])]
        try:
            for timer in timers:
                timer.daemon = True
                timer.start()
            return _conversation(child, stdin)
        finally:
            for timer in timers:
                timer.cancel()
            with self._lock:
                self._children.discard(child)

    def stop(self) -> None:
        """Have those that are under way end: what is cut off is finished or undone, as that of any command."""
        with self._lock:
            self.stopping = True
            for child in self._children:
                child.send_signal(signal.SIGINT)

    def _environment(self) -> Mapping[str, str]:
        """The configuration of this server, whatever files say meanwhile."""
        file, known = self._config.file, [(option(name), value) for name, value in self._config.values.items()]
        return {**{name: value for name, value in os.environ.items() if not name.startswith(("ONECOPY_", "_ONECOPY_"))},
                **({"ONECOPY_CONFIG": str(file.absolute())} if file is not None and os.access(file, os.R_OK) else {}),
                **{found.variable: found.show(value) for found, value in known
                   if found is not None and value != found.default}}


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """With all that it has started, which may hold its output open when it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)            # its session is its own


def _conversation(child: "subprocess.Popen[bytes]", stdin: bytes) -> tuple[str, str, int]:
    """What it prints, and its exit status; of what is too much the end is dropped."""
    found: dict[str, bytes] = {}

    def read(name: str, stream: Any) -> None:
        kept = bytearray()
        while data := stream.read1(1 << 16):
            kept += data[:max(0, OUTPUT - len(kept))]
        found[name] = bytes(kept)

    readers = [threading.Thread(target=read, args=each, daemon=True) for each in (
        ("output", child.stdout), ("errors", child.stderr))]
    for reader in readers:
        reader.start()
    try:
        assert child.stdin is not None
        child.stdin.write(stdin)
        child.stdin.close()
    except BrokenPipeError:
        pass                                    # it reads nothing
    for reader in readers:
        reader.join()
    status = child.wait()
    for stream in (child.stdout, child.stderr):
        assert stream is not None
        stream.close()
    return found["output"].decode(errors="replace"), found["errors"].decode(errors="replace"), status
