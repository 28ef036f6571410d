"""A machine that loses its power: its disk, the file system on it, and the processes that run.

It lives in name spaces of its own (unshare(1), see `run`): every process in them but those of the machine itself is one
that was started here.
"""

import faulthandler
import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from attrs import define, field

from mboxlist import privatefiles
from tools.benchmarks.powercut import device, programs
from tools.benchmarks.powercut.cache import LEFT, Loss
from tools.benchmarks.powercut.device import ORDER
from tools.benchmarks.temporaryserver import ADDRESS, CHECK, SERVERS, answers, free_ports
from tools.exits import Failure

SIZE = 512 << 20            # XFS wants 300 MiB
LIMIT = 300.0               # seconds for a command, or a start, also on a busy machine
BLANK = -1                  # number of a disk that nothing was written to
MOST_SAID = 1500
END = 30.0                  # seconds until processes that were killed are gone
FORMAT = {"ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
          "xfs": ["mkfs.xfs", "-q", "-f", "-K"]}
FIXED = {"store.special_mailboxes": "", "store.cache": "8M", "store.database_locks": "20000",
         "store.disk_reserve": "1M", "log.level": "warning"}


class CutError(Exception):
    """The power went before it was done."""


@define(eq=False)
class Site:
    """A store on the disk, and the ports of its server."""

    name: str
    root: Path
    options: dict[str, str] = field(factory=dict)
    ports: dict[str, int] = field(factory=lambda: dict(zip(SERVERS, free_ports(3), strict=True)))

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its commands and its server."""
        options = {**FIXED, "root": str(self.root), **{f"{each}.address": ADDRESS for each in SERVERS},
                   **{f"{each}.port": str(port) for each, port in self.ports.items()},
                   "imap.tls_port": "0", "pop3.tls_port": "0", **self.options}
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ONECOPY_")}
        return {**plain, "ONECOPY_CONFIG": os.devnull,
                **{"ONECOPY_" + name.replace(".", "_").upper(): value for name, value in options.items()}}


@define(eq=False)
class Machine:
    """In `folder`: the file `disk` is the device, `volume` is where it is mounted, and the rest is not on the disk."""

    folder: Path
    options: dict[str, str] = field(factory=dict)       # of all stores
    on_dark: Callable[[], object] = lambda: None        # the power has gone by itself; before anything else goes on
    is_dark: threading.Event = field(factory=threading.Event)
    loss: Loss = field(factory=Loss)
    _orders: socket.socket = field(init=False)
    _replies: "queue.SimpleQueue[tuple[bytes, int, int]]" = field(factory=queue.SimpleQueue)
    _ours: set[int] = field(factory=set)
    _kind: str = ""
    _mark: int = 0
    _servers: dict[str, ForkServerProcess] = field(factory=dict)

    @property
    def volume(self) -> Path:
        """Where the file system is."""
        return self.folder / "volume"

    @property
    def log(self) -> Path:
        """What programs say."""
        return self.folder / "log"

    def __enter__(self) -> "Machine":
        self._orders, theirs = socket.socketpair()
        privatefiles.touch(self.folder / "disk")
        privatefiles.make_folder(self.volume)
        image = os.memfd_create("powercut")
        os.truncate(image, SIZE)
        process = get_context("fork").Process(target=_serve, args=(image, self.folder / "disk", theirs, self._orders),
                                              daemon=True)
        process.start()
        theirs.close()
        os.close(image)
        self._replies.put(ORDER.unpack(self._orders.recv(ORDER.size, socket.MSG_WAITALL)))
        self._replies.get()
        threading.Thread(target=self._listen, daemon=True).start()
        programs.start(["--version"], os.environ, self.log).join(LIMIT)
        self._ours = set(_pids())
        return self

    def __exit__(self, *_: object) -> None:
        self.unmount()
        with suppress(Failure):
            _command("umount", str(self.folder / "disk"))
        self._orders.close()

    # The disk

    def _listen(self) -> None:
        """A thread: replies of the device, and its word that power has gone."""
        with suppress(OSError):
            while len(octets := self._orders.recv(ORDER.size, socket.MSG_WAITALL)) == ORDER.size:
                word, number, more = ORDER.unpack(octets)
                if word == b"dark":
                    self._went_dark(number, more)
                    self._orders.sendall(ORDER.pack(b"go  ", 0, 0))
                else:
                    self._replies.put((word, number, more))

    def _went_dark(self, unflushed: int, dropped: int) -> None:
        self.loss = Loss(unflushed, dropped)
        self.on_dark()
        self.is_dark.set()

    def _order(self, word: bytes, number: int = 0, more: int = 0) -> tuple[int, int]:
        self._orders.sendall(ORDER.pack(word, number, more))
        _, *numbers = self._replies.get(timeout=LIMIT)
        return numbers[0], numbers[1]

    def make(self, kind: str) -> None:
        """A new disk with that file system, which is mounted."""
        self.take(kind, BLANK)
        _command(*FORMAT[kind], str(self.folder / "disk"))
        self.mount()

    def keep(self, number: int) -> None:
        """Unmount it, and keep the disk as it is under a number."""
        self.unmount()
        self._order(b"keep", number)

    def take(self, kind: str, number: int) -> None:
        """In the place of the disk a copy of one that was kept, or a blank one. It is not mounted."""
        self.is_dark.clear()
        self._order(b"new ", number)
        self._kind = kind

    def power_on(self) -> None:
        """Mount what is on the disk. Raises Failure when that cannot be mounted."""
        self.is_dark.clear()
        self._order(b"on  ")
        self.mount()

    def mount(self) -> None:
        """Mount it, by a loop device that goes with the mount. Raises Failure."""
        _command("mount", "-t", self._kind, "-o", "loop,noatime", str(self.folder / "disk"), str(self.volume))

    def unmount(self) -> None:
        """If it is mounted. What still runs ends."""
        self.kill_all()
        while os.path.ismount(self.volume):
            _command("umount", str(self.volume))

    def requests(self) -> int:
        """Writes and flushes of the disk since power came."""
        return self._order(b"stat")[0]

    def arm(self, requests: int, left: str, seed: int, *, at_flush: bool = False) -> None:
        """The power goes after so many writes and flushes of the disk, or with `at_flush` before the next flush after
        them that has something to do; `left`: what is on the disk then of what was not flushed. 0 requests: when `cut`
        is called."""
        self._order(b"left", LEFT.index(left), seed)
        self._order(b"arm ", requests, at_flush)

    def cut(self) -> None:
        """The power goes, if it has not gone yet, and everything that runs ends. `unmount` follows when nobody starts
        anything more."""
        if not self.is_dark.is_set():
            self.on_dark()
            self.loss = Loss(*self._order(b"cut "))
            self.is_dark.set()
        self.kill_all()

    # Processes

    def run(self, site: Site, *arguments: str, octets: bytes = b"") -> int:
        """The exit status of a command. Raises CutError if the power goes before it has one, Failure when it takes too
        long."""
        process = programs.start(arguments, site.environment, self.log, octets)
        deadline = time.monotonic() + LIMIT
        while process.exitcode is None:
            process.join(CHECK)
            if self.is_dark.is_set():
                raise CutError(" ".join(arguments))
            if time.monotonic() > deadline:
                raise Failure(f"{' '.join(arguments)}: not after {LIMIT:g} s", 1)
        return process.exitcode

    def must(self, site: Site, *arguments: str, octets: bytes = b"") -> None:
        """A command that succeeds. Raises Failure, CutError."""
        status = self.run(site, *arguments, octets=octets)
        if status and not self.is_dark.is_set():
            raise Failure(f"onecopy {shlex.join(arguments)}: status {status}: {self.said()}", 1)
        if status:
            raise CutError(" ".join(arguments))

    def serve(self, site: Site) -> None:
        """Start a server, and wait until it answers. Raises Failure, CutError."""
        process = self._servers[site.name] = programs.start(["serve"], site.environment, self.log)
        deadline = time.monotonic() + LIMIT
        for name in SERVERS:
            while not answers(site.ports[name]):
                if self.is_dark.is_set():
                    raise CutError("serve")
                if process.exitcode is not None:
                    raise Failure(f"the server of {site.name} has ended: {self.said()}", 1)
                if time.monotonic() > deadline:
                    raise Failure(f"the server of {site.name} does not answer: {self.said()}", 1)
                time.sleep(CHECK)

    def end(self, site: Site) -> None:
        """Stop a server cleanly. Raises Failure."""
        process = self._servers.pop(site.name)
        os.kill(process.pid or 0, signal.SIGTERM)
        process.join(LIMIT)
        if process.exitcode:
            raise Failure(f"the server of {site.name} ended with {process.exitcode}: {self.said()}", 1)

    def mark(self) -> None:
        """From here on `said` tells."""
        self._mark = self.log.stat().st_size

    def said(self) -> str:
        """The last of what programs said."""
        return privatefiles.read(self.log)[self._mark:].decode(errors="replace")[-MOST_SAID:].strip()

    def show_processes(self) -> None:
        """On standard error: where each thread of everything that runs is, in the kernel, and here."""
        faulthandler.dump_traceback()
        for pid in (pid for pid in _pids() if pid not in self._ours):
            with suppress(OSError):
                for task in sorted(os.listdir(f"/proc/{pid}/task")):
                    stack = privatefiles.read_named(f"/proc/{pid}/task/{task}/stack").decode().split("\n")[:5]
                    print(f"process {pid}, thread {task}: {' '.join(stack)}", file=sys.stderr, flush=True)

    def kill_all(self) -> None:
        """SIGKILL for everything that was started; return when it is gone."""
        deadline = time.monotonic() + END
        while others := [pid for pid in _pids() if pid not in self._ours]:
            for pid in others:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):       # the first process of a name space gets all orphans
                    os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > deadline:
                raise Failure(f"processes {others} are still there", 1)
            time.sleep(0.002)


def _serve(image: int, place: Path, orders: socket.socket, other: socket.socket) -> None:
    other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)        # it ends when the other end of the socket does
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    device.serve(image, SIZE, place, orders)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _command(*words: str) -> str:
    """What a command of the system prints. Raises Failure."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT)
    if done.returncode:
        raise Failure(f"{' '.join(words)}: {done.stderr.strip()}", 1)
    return done.stdout

