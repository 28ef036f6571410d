"""Syncs of logs that the kernel does while a thread goes on."""

import contextlib
import os
import select
from typing import Any

from attrs import define, field

from mboxlist.engine.hotcopy import Position
from mboxlist.engine.logfiles import LogFlush, unflushed

try:
    from caio import linux_aio
except ImportError:         # the kernel is older than 4.18, or a sandbox does not let us
    linux_aio = None  # type: ignore[assignment]

SYNCS = 64                  # that are under way at the same time, at most: one for each environment


@define(eq=False)
class BegunSyncs:
    """Those of one thread, by Linux's asynchronous I/O (io_submit(2))."""

    _context: Any = field(default=None, init=False)
    _ended: select.poll = field(factory=select.poll, init=False)
    _begun: list[tuple[LogFlush, Position]] = field(factory=list, init=False)
    _under_way: int = field(default=0, init=False)
    _failure: OSError | None = field(default=None, init=False)

    def begin(self, log: LogFlush, end: Position, handle: int) -> None:
        """Have that log put on disk up to there, by its open file; all of it has been written. Where the kernel cannot,
        nothing has begun."""
        if log.known >= end or not log.is_named(end[0]) or self._under_way == SYNCS:
            return
        try:
            if self._context is None:
                self._context = linux_aio.Context(SYNCS)
                self._ended.register(self._context.fileno, select.POLLIN)
            operation = linux_aio.Operation.fdsync(handle)
            operation.set_callback(self._has_ended)
            self._context.submit(operation)
        except (AttributeError, RuntimeError, SystemError, ValueError, OverflowError):      # there is no caio; or as it
            return                                                                          # puts errors of these calls
        self._under_way += 1
        self._begun.append((log, end))

    def _has_ended(self, result: int) -> None:
        """`result` is that of the kernel: 0, or an error's negative number as 64 bits without a sign."""
        self._under_way -= 1
        if result:
            number = -result % (1 << 64)
            self._failure = OSError(number, os.strerror(number))

    def finish(self) -> None:
        """Return when all that has begun has ended. Raises Unflushed: nobody knows what is on disk of any of them."""
        while self._under_way:
            self._ended.poll()
            self._context.poll()
            self._context.process_events()
        begun, self._begun = self._begun, []
        failure, self._failure = self._failure, None
        for log, end in begun:
            if failure is None:
                log.synced((-1, end))
            else:
                with contextlib.suppress(OSError):      # the others may be the one
                    log.synced((-1, end), failure)
        if failure is not None:
            raise unflushed(failure) from failure
