"""Operations that are carried out: each by a process of the program, with limits on time, number and output."""

import json
import logging
import os
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field

from store import VERSION
from store.accounts.throttle.sharedcounts import Counts
from tools.cli.options import Config, option
from tools.cli.progressbar import PROGRESS
from tools.commandaudit import ASKER
from tools.http.api.operationlist import OperationList
from tools.http.api.operationprocess import OUTPUT, Forking, NotBegun, OperationProcess
from tools.http.api.permissions import Asker
from tools.http.apitokens import ADMINISTRATOR
from tools.http.settings import Settings

log = logging.getLogger(__name__)

KEPT = 200                  # operations of which it is known what became of them,
KEPT_OCTETS = 64 << 20      # and octets of what those have printed
PARSED = 64 << 10           # octets of output that are looked at whole for whether they are JSON
QUOTED_AT_ONCE = 256 << 10  # characters that are written as JSON at a time: others get the interpreter in between
CUT_OFF = b"it was cut off: onecopy status says what has become of it\n"
TRACEBACK = b"Traceback (most recent call last)"    # nobody elsewhere is shown one
_OPERATIONS = b"operations\0"
_DROPPED = f"the output is longer than {OUTPUT >> 20} MiB: the rest of it is lost\n"


@define(eq=False)
class Run:
    """One operation: under way, or ended (`exit` is not None). `owner`: who asked for it."""

    id: str
    operation: str
    owner: str
    as_json: bool
    exit: int | None = None
    output: bytes = b""
    errors: str = ""
    progress: tuple[int, int, str] | None = None        # how much is done, of how much, and what it is
    done: threading.Event = field(factory=threading.Event)

    @property
    def octets(self) -> int:
        """How much it has printed."""
        return len(self.output) + len(self.errors)

    def value(self) -> Any:
        """The JSON that it has printed, or the text. Of much, it takes long: for a thread."""
        try:
            return json.loads(self.output) if self.as_json and self.output else self.output.decode(errors="replace")
        except ValueError:
            return self.output.decode(errors="replace")

    def members(self) -> bytes:
        """For the client: the members of a JSON object, without its brackets. The JSON that the program has printed is
        taken as it is. For a thread."""
        if self.exit is None:
            return _members(operation=self.operation, state="running")
        about = _members(operation=self.operation, state="ended", exit=self.exit, errors=self.errors)
        if self.as_json and is_document(self.output):
            return about + b', "result": ' + self.output.strip()
        return about + b', "output": ' + quoted(self.output.decode(errors="replace"))


def is_document(octets: bytes) -> bool:
    """Whether that is one JSON document as the program prints it (`tools.cli.output.print_json`). A long one is not
    parsed, which would take the interpreter for long, but must have the shape: only the first and the last line do not
    begin with a space, and both are brackets."""
    if len(octets) <= PARSED:
        try:
            json.loads(octets)
        except ValueError:
            return False
        return True
    ends = octets[:2], octets[-3:]
    return ends in ((b"[\n", b"\n]\n"), (b"{\n", b"\n}\n")) and octets.count(b"\n") == octets.count(b"\n ") + 2


def quoted(text: str) -> bytes:
    """A string of JSON."""
    return b'"%b"' % b"".join(json.dumps(text[begin:begin + QUOTED_AT_ONCE])[1:-1].encode()
                              for begin in range(0, len(text), QUOTED_AT_ONCE))


def _members(**values: Any) -> bytes:
    return b", ".join(b"%b: %b" % (quoted(name), quoted(value) if isinstance(value, str) else
                                   json.dumps(value).encode()) for name, value in values.items())


@define(eq=False)
class Runs:
    """Those of this process. `config`: the configuration as it is now; `shared`: what all processes count together."""

    _config: Callable[[], Config]
    _shared: Counts | None = None
    _forking: Forking = field(factory=Forking)
    _runs: "OrderedDict[str, Run]" = field(factory=OrderedDict, init=False)
    _processes: "set[OperationProcess]" = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _stopping: bool = field(default=False, init=False)

    def is_full(self, asker: Asker) -> bool:
        """Whether as many are under way as may be, in all processes. Of one asker these are half of them, and of all
        together one fewer than of administrators: nobody keeps the others waiting, but an administrator. Two processes
        that look at the same moment may both find room for the last one."""
        most, owners = self._settings.operations, [each.owner for each in self._runs.values() if each.exit is None]
        of_all = len(owners) + self._elsewhere(b"")
        if asker.role == ADMINISTRATOR:
            return of_all >= most
        of_asker = owners.count(asker.id) + self._elsewhere(asker.id.encode("utf-8", "surrogateescape"))
        return of_all >= max(1, most - 1) or of_asker >= max(1, most // 2)

    def _elsewhere(self, owner: bytes) -> int:
        """How many are under way in other processes, of that owner or with b"" of all."""
        return 0 if self._shared is None else self._shared.others(_OPERATIONS + owner)

    def _count(self, run: Run, change: int) -> None:
        if self._shared is not None:
            for owner in (b"", run.owner.encode("utf-8", "surrogateescape")):
                self._shared.add(_OPERATIONS + owner, change)

    def new(self, operation: str, owner: str, *, as_json: bool) -> Run:
        """One that begins now."""
        made = Run(secrets.token_hex(16), operation, owner, as_json)
        ended = deque(each for each in self._runs.values() if each.exit is not None)
        octets = sum(each.octets for each in ended)
        while ended and (len(self._runs) >= KEPT or octets > KEPT_OCTETS):
            oldest = ended.popleft()
            octets -= oldest.octets
            self.forget(oldest)
        self._runs[made.id] = made
        self._count(made, 1)
        return made

    def ended(self, run: Run) -> None:
        """It is not under way any more: for the other processes, so not in a thread."""
        self._count(run, -1)

    def forget(self, run: Run) -> None:
        """Nobody asks for it any more."""
        self._runs.pop(run.id, None)

    def find(self, id: str, owner: str) -> Run | None:
        """One that this owner asked for."""
        found = self._runs.get(id)
        return found if found is not None and found.owner == owner else None

    def carry_out(self, run: Run, words: Sequence[str], stdin: bytes, asker: str) -> None:
        """Until it has ended; the audit trail says that `asker` had it done. For a thread."""
        try:
            run.output, errors, status = self._communicate(run, words, stdin, asker)
            if TRACEBACK in errors:
                log.error("%s has failed: %s", run.operation, errors.decode(errors="replace"))
                errors = b"it has failed; the log of the server has more"
            run.errors = errors.decode(errors="replace") + (_DROPPED if len(run.output) >= OUTPUT else "")
            run.exit = status                   # last: who asks meanwhile sees no traceback
        except Exception:
            log.exception("%s could not be carried out", run.operation)
            run.errors, run.exit = "it could not be carried out; the log of the server has more", 1
        finally:
            run.exit = 1 if run.exit is None else run.exit
            run.done.set()

    def _communicate(self, run: Run, words: Sequence[str], stdin: bytes, asker: str) -> tuple[bytes, bytes, int]:
        def note(done: int, total: int, what: str) -> None:
            run.progress = done, total, what

        if self._is_stopping():
            return b"", b"the server is stopping", 1
        try:
            environment = {**self._environment(words), ASKER: asker, PROGRESS: "1"}
            process = self._forking.begin(words, environment, self._settings.operation_time)
            process.hear = note
        except NotBegun as error:
            log.error("an operation could not be begun: %s", error)
            return b"", b"it could not be begun: nothing was done", 1
        with self._lock:
            self._processes.add(process)
        if self._is_stopping():                 # since then
            process.end()
        try:
            output, errors, status = process.converse(stdin)
        finally:
            with self._lock:
                self._processes.discard(process)
        return output, errors if status is not None else errors + CUT_OFF, 1 if status is None else status

    def listed(self) -> OperationList:
        """All operations, as the process knows them that has loaded the program. For a thread.

        Raises NotBegun, OSError, ValueError."""
        return self._forking.listed(VERSION)

    def prepare(self) -> None:
        """Somebody will ask for operations in a moment: have the program loaded. For a thread."""
        if not self._is_stopping():
            self._forking.prepare()

    def stop(self) -> None:
        """Have those that are under way end: what is cut off is finished or undone, as that of any command."""
        with self._lock:
            self._stopping = True
            for process in self._processes:
                process.end()
        self._forking.close()

    def _is_stopping(self) -> bool:
        return self._stopping

    @property
    def _settings(self) -> Settings:
        return self._config().settings("http", Settings)

    def _environment(self, words: Sequence[str]) -> Mapping[str, str]:
        """The configuration of this server, whatever files say meanwhile; for commands about the configuration what its
        sources say now, as they look at the file, and compare it with what the server goes by."""
        config = self._config()
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("ONECOPY_", "_ONECOPY_"))}
        known = [(option(name), value) for name, value in config.values.items()]
        if words[0] != "config":
            return {**ours, "ONECOPY_CONFIG": os.devnull, **{
                found.variable: found.show(value) for found, value in known
                if found is not None and value != found.default}}
        file = "" if config.file is None else str(config.file.absolute())
        return {**ours, **({"ONECOPY_CONFIG": file} if file else {}), **{
            found.variable: found.show(value) for found, value in known if found is not None
            and value != found.default and not config.origins[found.name].startswith(f"{config.file}: ")}}
