"""When the users have logged in, for LOGIN-DELAY (RFC 2449 §6.5) and a bound on logins in a minute."""

import errno
import fcntl
import logging
import os
import struct
from pathlib import Path

from mboxlist import privatefiles
from mboxlist.entry import MailboxId
from store.errors import StoreError, disk_problem

log = logging.getLogger(__name__)

MINUTE = 60.0
_RECORD = struct.Struct("<dII")         # the last login; since when logins are counted (whole seconds), and how many
_FLOCK = struct.Struct("@hhqqi4x")      # struct flock of Linux on 64 bits


class Logins:
    """A file with a record for each mailbox, at its id, which all processes that serve the store share.

    It has holes where no one has logged in, is made when first needed, and is not synced: to lose it does no harm.
    Times are seconds since whenever `now` counts from, which must be the same in all processes.
    """

    def __init__(self, file: Path) -> None:
        self._path = file
        self._file = -1

    def wait(self, mailbox: MailboxId, now: float, delay: float, rate: int) -> float:
        """Seconds until the next login is allowed, 0 if it is now. Raises StoreError UNAVAILABLE, DISK_FULL."""
        last, since, count = self._read(mailbox)
        left = last + delay - now if last and now >= last else 0.0     # a clock that was set back keeps nobody out
        if rate and count >= rate and 0 <= now - since < MINUTE:
            left = max(left, since + MINUTE - now)
        return max(0.0, left)

    def note(self, mailbox: MailboxId, now: float) -> None:
        """A login has succeeded. When it cannot be written down, it does not count."""
        try:
            handle = self._open()
            offset = mailbox * _RECORD.size
            self._lock(offset, fcntl.F_WRLCK)
            try:
                _, since, count = self._read(mailbox)
                if not 0 <= now - since < MINUTE or not count:
                    since, count = int(now), 0
                os.pwrite(handle, _RECORD.pack(max(now, 1e-3), since, count + 1), offset)
            finally:
                self._lock(offset, fcntl.F_UNLCK)
        except (OSError, StoreError) as error:
            log.warning("a login is not counted: %s", error)

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    def _open(self) -> int:
        if self._file < 0:
            try:
                privatefiles.make_folder(self._path.parent, parents=True, exist_ok=True)
                self._file = privatefiles.open_handle(self._path, os.O_RDWR | os.O_CREAT)
            except OSError as error:
                raise disk_problem(error) from error
        return self._file

    def _read(self, mailbox: MailboxId) -> tuple[float, int, int]:
        try:
            data = os.pread(self._open(), _RECORD.size, mailbox * _RECORD.size)
        except OSError as error:
            raise disk_problem(error) from error
        last, since, count = _RECORD.unpack(data.ljust(_RECORD.size, b"\0"))
        return last, since, count

    def _lock(self, offset: int, kind: int) -> None:
        """Others hold it for microseconds only."""
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLKW, _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0))
        except OSError as error:
            if error.errno != errno.EINTR:
                raise
