"""The maildrop: INBOX as it was at login, with its messages numbered, and the lock that keeps a second session out."""

import errno
import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from itertools import compress
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from mboxlist.entry import MailboxId
from pop3.uniqueids import UniqueIds
from store.errors import Problem, StoreError
from store.tables.index import Rows, marked
from store.tables.state import Mailbox
from store.values import Flag

LINES = 1000            # lines of a listing that are made, and sent, at a time


class NoMessage(Exception):
    """The number means no message, or one that is marked as deleted. The text may be shown to the client."""


class Maildrop:
    """Messages by number (RFC 1939 §5), from one immutable view of INBOX: what other sessions do changes nothing.

    Sizes are RFC822.SIZE: the octets of the message as it is stored. RETR adds a CRLF to a message that does not end
    with one, or its last line would have no end; these two octets, like doubled dots, belong to the transfer.

    `rows` are the records of its messages, in their order. `expired` are the UIDs of those that are in INBOX and no
    longer in the maildrop.
    """

    def __init__(self, mailbox: Mailbox, rows: Rows, names: UniqueIds, expired: list[int] | None = None) -> None:
        self.mailbox = mailbox
        self.expired = expired or []
        self._rows, self._sizes = rows, rows["size"]
        self._names = names
        self._kept = bytearray(len(self._rows))         # for each message 1, or 0 when it is marked as deleted
        self._sent = bytearray(len(self._rows))         # 1 when RETR has sent it
        self._unmark()
        self._highest = 0                               # of the numbers that RETR has sent since RSET
        self._is_new = True                             # no RSET yet

    def reset(self) -> None:
        """No message is marked as deleted any more (RFC 1939 §5 RSET)."""
        self._unmark()
        self._highest, self._is_new = 0, False

    def _unmark(self) -> None:
        self._kept[:] = b"\1" * len(self._rows)
        self.count = len(self._rows)
        self.octets = int(self._rows["size"].sum())

    def summary(self) -> str:
        """How much is in it."""
        return f"{counted(self.count)} ({self.octets} octets)"

    def row(self, number: int) -> Any:
        """The index record of a message. Raises NoMessage."""
        self._look_up(number)
        return self._rows[number - 1]

    def _look_up(self, number: int) -> None:
        if not 1 <= number <= len(self._kept):
            raise NoMessage("no such message")
        if not self._kept[number - 1]:
            raise NoMessage("the message is marked as deleted")

    def rows(self, number: int) -> Rows:
        """The index record of a message, as a table of one row. Raises NoMessage."""
        self.row(number)
        return self._rows[number - 1:number]

    def delete(self, number: int) -> None:
        """Mark a message as deleted (RFC 1939 §5 DELE). Raises NoMessage."""
        self._look_up(number)
        size: int = self._sizes.item(number - 1)
        self._kept[number - 1] = 0
        self.count -= 1
        self.octets -= size

    def deleted(self) -> Iterable[int]:
        """The UIDs of the messages marked as deleted."""
        return marked(self._rows, self._kept, 0)

    def sent(self, number: int) -> None:
        """RETR has sent the message."""
        self._sent[number - 1] = 1
        self._highest = max(self._highest, number)

    def highest(self) -> int:
        """The highest number of a message that was read, in this session or before it (RFC 1460 §5 LAST)."""
        if not self._is_new:
            return self._highest
        seen = (self._rows["flags"] & Flag.SEEN.value).nonzero()[0]
        return max(self._highest, int(seen[-1]) + 1 if len(seen) else 0)

    def all_sent(self) -> Iterable[int]:
        """The UIDs of the messages that RETR has sent."""
        return marked(self._rows, self._sent, 1)

    def sent_unseen(self) -> Iterable[int]:
        """The UIDs of the messages that RETR has sent and that nobody had seen at login."""
        return marked(self._rows, self._sent, 1, without=Flag.SEEN.value)

    def size_line(self, number: int) -> str:
        """A scan listing (RFC 1939 §5 LIST). Raises NoMessage."""
        return f"{number} {self.row(number)['size']}"

    def uid_line(self, number: int) -> str:
        """A unique-id listing (RFC 1939 §7 UIDL). Raises NoMessage."""
        return f"{number} {self._names.of(int(self.row(number)['uid'])).decode('ascii')}"

    def size_lines(self) -> Iterator[bytes]:
        """The scan listings of all messages that are not marked as deleted, some at a time."""
        form = b"%d %d\r\n"
        return (b"".join([form % one for one in numbered]) for numbered in self._numbered("size"))

    def uid_lines(self) -> Iterator[bytes]:
        """The unique-id listings likewise."""
        return map(self._names.lines, self._numbered("uid"))

    def _numbered(self, column: str) -> Iterator[list[tuple[int, int]]]:
        for start in range(0, len(self._rows), LINES):
            values = self._rows[column][start:start + LINES].tolist()
            numbered = list(enumerate(values, start + 1))
            if self.count < len(self._rows):
                numbered = list(compress(numbered, self._kept[start:start + LINES]))
            yield numbered


def counted(messages: int) -> str:
    """The number with its noun."""
    return f"{messages} message" if messages == 1 else f"{messages} messages"


class MaildropLocks:
    """Which maildrops are in use (RFC 1939 §4), in this process and in every other that serves the same store.

    All locks are single octets of one empty file, at the mailbox's id: no file is made or left behind for a mailbox,
    and the kernel gives back what a dead process held. They are open file description locks, so that two servers in
    one process, each with its own object of this class, keep each other out as well.
    """

    def __init__(self, file: Path) -> None:
        self._path = file
        self._file = -1
        self._held: set[MailboxId] = set()

    def take(self, mailbox: MailboxId) -> bool:
        """Lock a maildrop; False when somebody else has it. Raises StoreError UNAVAILABLE."""
        if mailbox in self._held:
            return False
        try:
            if self._file < 0:
                privatefiles.make_folder(self._path.parent, parents=True, exist_ok=True)
                self._file = privatefiles.open_handle(self._path, os.O_RDWR | os.O_CREAT)
            self._set(mailbox, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise StoreError(Problem.UNAVAILABLE, detail=str(error)) from error
        self._held.add(mailbox)
        return True

    def release(self, mailbox: MailboxId) -> None:
        """Give back a maildrop that was taken."""
        self._held.discard(mailbox)
        if self._file >= 0:                     # else everything has been given back
            self._set(mailbox, fcntl.F_UNLCK)

    def close(self) -> None:
        """Give back everything."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._held.clear()

    __del__ = close

    def _set(self, mailbox: MailboxId, kind: int) -> None:
        # struct flock of Linux: l_type, l_whence, l_start, l_len, l_pid
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, mailbox, 1, 0))
