"""The process from which those of operations are forked: it has loaded the program, which is nine tenths of what a
short command takes, and does nothing else. `operationprocess` starts it and speaks to it.

It has one thread, opens no store, and is given no configuration: that, with its words, each operation reads by itself
from a pipe. Where there are no words but a version, it prints which operations there are. What comes over the socket is
one octet-string for each operation, the seconds that it may take, with descriptors: its `channel`, the pipe, and what
is to be its standard input, output and errors. Over the channel it says two numbers: the process's, and the exit status
when that has ended (negative for a signal). A channel that is closed at the other end, or at least for writing there,
says that the operation is to end. So do the end of its time and that of the HTTP process; a process that does not end
then is killed. With it ends all that it has started. It is reaped only when the channel has been closed, so that its
number comes to mean no other process before.
"""

import atexit
import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

from attrs import define, field

from mboxlist import privatefiles
from tools.cli import program
from tools.cli.later import Later
from tools.http.api import operationparsers
from tools.http.api.operationprocess import KILL_TIME, NUMBER, SECONDS

DESCRIPTORS = 5             # that come with an operation
IDLE = 900.0                # seconds without any after which this process ends: the next one starts another
_NICE = 5                   # an operation gives way to mail, and so does this process while it loads the program
_PR_SET_PDEATHSIG = 1

#: What most commands load late, beside the modules of all commands.
_LATE = (
    "imap.settings:Settings", "store.audit.auditsettings:Settings", "store.finishing.cutoperations:Finishing",
    "store.mailboxes.firstuse:inbox", "store.operations.operationrecord:begun", "store.quota.overview:look",
    "store.readonly.readingcopy:find", "tools.cli.storeaccess:opened", "tools.commandaudit:note",
    "tools.front.settings:Settings", "tools.http.settings:Settings")


@define(eq=False)
class _Process:
    """One that was forked, in a session of its own. Times are monotonic: when it is asked to end, and killed."""

    pid: int
    handle: int                 # a descriptor of it
    channel: socket.socket
    ask_at: float
    kill_at: float
    ended: bool = False

    def ask(self, now: float) -> None:
        """It is to end, as if somebody had typed Ctrl-C: what is cut off is finished or undone."""
        if not self.ended:
            os.kill(self.pid, signal.SIGINT)
        self.ask_at, self.kill_at = float("inf"), min(self.kill_at, now + KILL_TIME)

    def kill(self) -> None:
        """With all that it has started, which may hold its output open when it has ended."""
        for end in (partial(os.killpg, self.pid), partial(os.kill, self.pid)):
            with suppress(ProcessLookupError):
                end(signal.SIGKILL)
        self.kill_at = float("inf")


@define(eq=False)
class ForkServer:
    """See the module's text."""

    _socket: socket.socket
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector, init=False)
    _processes: set[_Process] = field(factory=set, init=False)
    _open: bool = field(default=True, init=False)           # the other side of the socket

    def serve(self) -> "Sequence[int] | None":
        """Fork, until nobody is there to ask for it; in the new process the descriptors of its operation: what is
        above runs there, and nothing of this."""
        self._selector.register(self._socket, selectors.EVENT_READ, self._take)
        idle_since = time.monotonic()
        while self._open or self._processes:
            due = min((min(each.ask_at, each.kill_at) for each in self._processes), default=idle_since + IDLE)
            for key, _ in self._selector.select(min(IDLE, max(0.0, due - time.monotonic()))):
                if (mine := key.data()) is not None:
                    return mine     # type: ignore[no-any-return]
            now = time.monotonic()
            for each in tuple(self._processes):
                if now >= each.ask_at:
                    each.ask(now)
                if now >= each.kill_at:
                    each.kill()
            if self._processes:
                idle_since = now
            elif now >= idle_since + IDLE:
                break
        return None

    def _take(self) -> "Sequence[int] | None":
        """An operation, or the end of all."""
        try:
            said, handles, _, _ = socket.recv_fds(self._socket, SECONDS.size, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            said, handles = b"", []
        if len(said) != SECONDS.size or len(handles) != DESCRIPTORS:
            for handle in handles:
                os.close(handle)
            if not said:
                self._selector.unregister(self._socket)
                self._open = False
            return None
        channel, *others = handles
        pid = os.fork()
        if pid == 0:
            return handles
        for handle in others:
            os.close(handle)
        now = time.monotonic()
        made = _Process(pid, os.pidfd_open(pid), socket.socket(fileno=channel), *(
            now + SECONDS.unpack(said)[0] + more for more in (0.0, KILL_TIME)))
        self._processes.add(made)
        self._selector.register(made.handle, selectors.EVENT_READ, partial(self._end, made))
        self._selector.register(made.channel, selectors.EVENT_READ, partial(self._unwanted, made))
        self._say(made, pid)
        return None

    def _say(self, process: _Process, number: int) -> None:
        with suppress(OSError):         # nobody wants to know: its end is closed
            process.channel.send(NUMBER.pack(number), socket.MSG_NOSIGNAL)

    def _end(self, process: _Process) -> None:
        """It has ended. It is reaped when the channel is closed; at once where that has said already that it ends."""
        self._selector.unregister(process.handle)
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert found is not None
        process.ended = True
        self._say(process, found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)
        if process.channel not in self._selector.get_map():
            process.kill()
            self._forget(process)

    def _unwanted(self, process: _Process) -> None:
        """The other side has closed its channel, or shut it: then the end is still told."""
        self._selector.unregister(process.channel)
        if process.ended:
            process.kill()
            self._forget(process)
        else:
            process.ask(time.monotonic())

    def _forget(self, process: _Process) -> None:
        process.channel.close()
        os.close(process.handle)
        os.waitpid(process.pid, 0)
        self._processes.discard(process)


def main() -> int:
    """Serve what comes over standard input, a socket; in a forked process, the exit status of its operation."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)        # until an operation begins
    os.nice(_NICE)
    privatefiles.only_ours()
    program.every_parser()
    for place in _LATE:
        Later.function(place)
    handed = socket.socket(fileno=os.dup(0))
    os.dup2(privatefiles.nothing(), 0)
    gc.collect()
    gc.freeze()                         # so the pages stay shared
    parent = os.getpid()
    handles = ForkServer(handed).serve()
    if handles is None:
        return 0
    handed.close()
    return _carry_out(parent, *handles)


def _carry_out(parent: int, channel: int, pipe: int, *streams: int) -> int:
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        return 1
    for number, handle in enumerate(streams):
        os.dup2(handle, number)
    with os.fdopen(pipe, "rb") as file:
        octets = file.read()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if not octets:
        return 1                        # who asked for it does not know that it has begun
    asked = json.loads(octets)
    if "version" in asked:
        sys.__stdout__.buffer.write(operationparsers.listed(asked["version"]).to_octets())  # type: ignore[union-attr]
        return 0
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
                              for number in (1, 2))
    sys.argv = ["onecopy", *asked["words"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return program.main(asked["words"])


def _end(status: int) -> NoReturn:
    """As multiprocessing ends what it forks: what Python frees at its end would have most of the pages copied first."""
    threading._shutdown()               # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    _end(main())
