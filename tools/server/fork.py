"""A process of the server: begun as a copy of its supervisor, with which it shares what no file holds (the keys of
session tickets) and what is loaded already."""

import contextlib
import ctypes
import gc
import logging
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Collection
from typing import BinaryIO, NoReturn

from attrs import define

from mboxlist import privatefiles
from tools.server.process.freedmemory import fill_gaps

_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)


@define(eq=False)
class Child:
    """It runs, or has ended. What it writes to its standard output can be read from `stdout`."""

    pid: int
    stdout: BinaryIO
    _handle: int
    _status: int | None = None

    @classmethod
    def start(cls, work: Callable[[], int], keep: Collection[int]) -> "Child":
        """A process that does `work`, whose result is its exit status. Of the open files it has only those in `keep`,
        standard error, and that of the log."""
        read, write = os.pipe2(os.O_CLOEXEC)
        gc.collect()
        gc.freeze()                             # what is there now stays where it is, so the pages stay shared,
        fill_gaps()                             # and what is made from now on comes to lie on others
        pid = os.fork()
        if pid == 0:
            _be_child(work, keep, write)
        os.close(write)
        return cls(pid, os.fdopen(read, "rb"), os.pidfd_open(pid))

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._status = os.waitstatus_to_exitcode(status)
                os.close(self._handle)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended. Raises TimeoutError."""
        if self._status is None and not select.select([self._handle], [], [], timeout)[0]:
            raise TimeoutError
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """If it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def end_with(parent: int, number: signal.Signals) -> None:
    """Have the kernel send this process that signal when its parent has ended. Source: prctl(2)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def _be_child(work: Callable[[], int], keep: Collection[int], out: int) -> NoReturn:
    """Nothing returns from here: the frames below are the supervisor's, and so is all that they would clear up."""
    status = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        nothing = privatefiles.nothing()
        os.dup2(nothing, 0)
        os.dup2(out, 1)
        _close_others({0, 1, 2, *keep, *_log_files()})
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def _close_others(keep: Collection[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):      # the one with which we list
                os.close(int(name))


def _log_files() -> list[int]:
    return [handler.stream.fileno() for handler in logging.getLogger().handlers
            if isinstance(handler, logging.StreamHandler)]
