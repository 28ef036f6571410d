"""Keeps transactions from beginning, in every process, while somebody needs the databases to stand still.

The gate is eight octets of a file that every process has in its memory: 0, or the Unix time until which it is shut. The
process that shuts it holds a lock on the file, which ends with the process. If the lock is free, or the time is over,
the gate is open, whatever the file says. A transaction looks at the gate when it has begun and before it has done
anything; a transaction that only reads passes. So when the gate is shut, and after that no transaction is active, none
changes anything until it opens.

The file has other octets by which all processes hear that the name of a mailbox has changed (`WriteFreeze.renames`).
"""

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.engine.secondcopy import FOLDER, IS_REFUSING, OCTETS, STATE_AT, SecondCopy, part_key, refused

_UNTIL = struct.Struct("<d")
_OPEN = bytes(8)
_NAMES = slice(_UNTIL.size + OCTETS, _UNTIL.size + OCTETS + 8)
STEP = 0.005                # seconds between two looks
LOOKS = 20                  # after so many, see whether the process that shut it is alive


class ShutAlready(Exception):
    """Somebody else has shut the gate."""


class Quiesced(Exception):
    """The gate is shut, and this thread must not wait."""


class WriteFreeze:
    """The write freeze of a store; see the module's text. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._handle = privatefiles.open_handle(path, os.O_RDWR | os.O_CREAT)
        if os.fstat(self._handle).st_size < _NAMES.stop:
            os.ftruncate(self._handle, _NAMES.stop)
        self._shared = mmap.mmap(self._handle, _NAMES.stop)
        self.second = SecondCopy(self._shared, path.parent / FOLDER)
        # At 0, a number that is another one after each change of the name of a mailbox, by any process; see `renames`.
        self.names = memoryview(self._shared)[_NAMES].cast("Q")
        self._keeps = False             # whether this process has shut it: its other threads wait, too
        self._loop = 0                  # the thread that must not wait
        self.hurried = False            # whether that thread's present work must not wait for locks either
        self.read_only = False          # whether in this process no change may begin at all

    def never_waits(self, *, never: bool = True) -> None:
        """Note that this thread belongs to an event loop, or no longer does: see `wait`."""
        self._loop = threading.get_ident() if never else 0

    @property
    def at_once(self) -> bool:
        """Whether this thread must not wait for anything, neither the gate nor a lock."""
        return self.hurried and threading.get_ident() == self._loop

    @property
    def is_free(self) -> bool:
        """Whether changes neither wait for a standby nor are refused when one is away."""
        return False

    @property
    def shut(self) -> bool:
        """Whether the gate is shut."""
        if self.read_only or self._shared[STATE_AT] == IS_REFUSING and not self.second.is_exempt():
            return True
        # A time after 1970 has something in its last octet. This is asked for each transaction.
        return self._shared[7] != 0 and time.time() < _UNTIL.unpack_from(self._shared)[0]

    def renames(self) -> None:
        """Have other `names`. A transaction that has written the name of a mailbox calls this before it ends. So a
        process that reads the name after that waits for the lock of that transaction."""
        self._shared[_NAMES] = os.urandom(8)

    def wait(self) -> None:
        """Return when the gate is open. Raises Quiesced in the thread that never waits; OSError EROFS when everything
        is only read, ENOLINK while a standby is away that must be there."""
        self._wait_for(self)

    def _wait_for(self, gate: "WriteFreeze") -> None:
        if gate.read_only or self.read_only:
            raise read_only_error()
        looks = 0
        while gate.shut:
            if self.second.refuses and not gate.is_free:
                raise refused()
            if threading.get_ident() == self._loop:
                raise Quiesced
            time.sleep(STEP)
            looks += 1
            if looks % LOOKS == 0:
                self._open_if_deserted()

    def _open_if_deserted(self) -> None:
        """Open the gate if the process that shut it has died."""
        if self._keeps:
            return
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._shared[:8] = _OPEN
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def keep_shut(self, seconds: float) -> Iterator[None]:
        """Shut the gate, for so long at most; `left` says how much of that is left. Raises ShutAlready."""
        if self._keeps:
            raise ShutAlready
        for left in reversed(range(LOOKS)):             # a waiting process may hold the lock for a moment, to look
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    raise ShutAlready from None
                time.sleep(STEP)
        try:
            self._keeps = True
            self._shared[:8] = _UNTIL.pack(time.time() + seconds)
            yield
        finally:
            self._shared[:8] = _OPEN
            self._keeps = False
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def left(self) -> float:
        """How many more seconds the gate is shut; 0 when it is open."""
        until: float = _UNTIL.unpack_from(self._shared)[0]
        return max(until - time.time(), 0.0)

    def close(self) -> None:
        """Close the file."""
        self.second.close()
        self.names.release()
        self._shared.close()
        os.close(self._handle)


class PartFreeze(WriteFreeze):
    """That of the store, for the partition of that name, which may be read only by itself. `asynchronous`: its changes
    wait for no standby; nor do they where no standby has the partition."""

    def __init__(self, whole: WriteFreeze, name: str, *, asynchronous: bool = False) -> None:
        self._whole = whole
        self._shared = whole._shared
        self._part = part_key(name)
        self._asynchronous = asynchronous
        self.second = whole.second
        self.read_only = False

    @property
    def is_free(self) -> bool:
        return self._asynchronous or self.second.is_free(self._part)

    # These two are asked for each transaction: so they do not ask the store's.

    @property
    def at_once(self) -> bool:
        return self._whole.hurried and threading.get_ident() == self._whole._loop

    @property
    def shut(self) -> bool:
        if self.read_only or self._whole.read_only or self._shared[STATE_AT] == IS_REFUSING and not (
                self.second.is_exempt() or self.is_free):
            return True
        return self._shared[7] != 0 and time.time() < _UNTIL.unpack_from(self._shared)[0]

    def wait(self) -> None:
        self._whole._wait_for(self)


def read_only_error() -> OSError:
    """The error that a change meets where everything is only read."""
    return OSError(errno.EROFS, os.strerror(errno.EROFS))
