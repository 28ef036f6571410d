"""Syncs that the kernel does, for a process with an event loop."""

import errno
import logging
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.python.failure import Failure

try:
    from caio import linux_aio
except ImportError:         # the kernel is older than 4.18, or a sandbox does not let us
    linux_aio = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

Ended = Callable[[OSError | None], None]

SYNCS = 256                 # that the kernel has to do at the same time


class KernelSyncs:
    """Syncs that threads of the kernel do (Linux's asynchronous I/O, io_submit(2)): one is begun and answered in the
    event loop, which costs a tenth of a thread of Python's that waits for it and must get the interpreter's lock."""

    def __init__(self, reactor: Any, most: int = SYNCS) -> None:
        self._context = linux_aio.Context(most)
        self._most = most
        self._under_way = 0
        self._waiting: deque[tuple[int, Ended]] = deque()
        once_each = getattr(reactor, "add_signalled", None)     # the server's own: see there
        self._must_read = once_each is None
        (once_each or reactor.addReader)(self)

    @classmethod
    def of(cls, reactor: Any) -> "KernelSyncs | None":
        """The syncs of this process; None where the kernel has none, or does not let us."""
        try:
            if linux_aio is not None:
                return cls(reactor)
        except (RuntimeError, SystemError, ValueError, OverflowError) as error:     # caio's for io_setup(2)
            log.info("the kernel does no syncs, threads do: %s", error)
        return None

    def sync(self, handle: int, ended: Ended) -> None:
        """Have `ended` called when the open file's octets are on disk, or with the error with which that has failed; it
        must not raise."""
        if self._under_way >= self._most:
            try:
                self._waiting.append((os.dup(handle), ended))
            except OSError:             # there are no more descriptors, and a sync that has not begun has not failed
                self._under_way += 1
                self._ended(ended, _sync_at_once(handle))
            return
        operation = linux_aio.Operation.fdsync(handle)
        operation.set_callback(partial(self._ended, ended))
        self._under_way += 1
        try:
            self._context.submit(operation)
        except (SystemError, ValueError, OverflowError):        # as caio puts the errors of io_submit(2)
            self._ended(ended, _sync_at_once(handle))

    def _ended(self, ended: Ended, result: int) -> None:
        """`result` is that of the kernel: 0, or an error's negative number as 64 bits without a sign."""
        self._under_way -= 1
        if result:
            number = -result % (1 << 64)
            ended(OSError(number, os.strerror(number)))
        else:
            ended(None)

    # What the reactor calls

    def fileno(self) -> int:
        """The descriptor of the eventfd."""
        return self._context.fileno

    def logPrefix(self) -> str:
        """The name of this reader in Twisted's log."""
        return "syncs"

    def doRead(self) -> None:
        """Some have ended."""
        if self._must_read:
            self._context.poll()
        self._context.process_events()          # all that have ended: it takes more than SYNCS at a time
        while self._waiting and self._under_way < self._most:
            handle, ended = self._waiting.popleft()
            self.sync(handle, ended)
            os.close(handle)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor has ended."""


def _sync_at_once(handle: int) -> int:
    """What the kernel could not be asked for; the result as in `KernelSyncs._ended`."""
    try:
        os.fdatasync(handle)
    except OSError as error:
        return -(error.errno or errno.EIO)
    return 0
