"""The maildrop: INBOX as it was at login, with its messages numbered, and the lock that keeps a second session out."""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mboxlist.entry import MailboxId
from store.errors import Problem, StoreError
from store.mailbox import Mailbox
from store.values import Flag

LINES = 1000            # lines of a listing that are made, and sent, at a time


class NoMessage(Exception):
    """The number means no message, or one that is marked as deleted. The text may be shown to the client."""


class Maildrop:
    """Messages by number (RFC 1939 §5), from one immutable picture of INBOX: what other sessions do changes nothing.

    Sizes are RFC822.SIZE: the octets of the message as it is stored. RETR adds a CRLF to a message that does not end
    with one, or its last line would have no end; these two octets, like doubled dots, belong to the transfer.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self._rows = mailbox.rows
        self._kept = bytearray(len(self._rows))         # for each message 1, or 0 when it is marked as deleted
        self._sent = bytearray(len(self._rows))         # 1 when RETR has sent it
        self._validity = mailbox.state.uidvalidity
        self.count = self.octets = 0
        self.reset()

    def reset(self) -> None:
        """No message is marked as deleted any more (RFC 1939 §5 RSET)."""
        self._kept[:] = b"\1" * len(self._rows)
        self.count = len(self._rows)
        self.octets = int(self._rows["size"].sum())

    def summary(self) -> str:
        """How much is in it."""
        return f"{counted(self.count)} ({self.octets} octets)"

    def row(self, number: int) -> Any:
        """The index record of a message. Raises NoMessage."""
        if not 1 <= number <= len(self._rows):
            raise NoMessage("no such message")
        if not self._kept[number - 1]:
            raise NoMessage("the message is marked as deleted")
        return self._rows[number - 1]

    def delete(self, number: int) -> None:
        """Mark a message as deleted (RFC 1939 §5 DELE). Raises NoMessage."""
        size = int(self.row(number)["size"])
        self._kept[number - 1] = 0
        self.count -= 1
        self.octets -= size

    def deleted(self) -> list[int]:
        """The UIDs of the messages marked as deleted."""
        if self.count == len(self._rows):
            return []
        return [uid for uid, kept in zip(self._rows["uid"].tolist(), self._kept, strict=True) if not kept]

    def sent(self, number: int) -> None:
        """RETR has sent the message."""
        self._sent[number - 1] = 1

    def sent_unseen(self) -> list[int]:
        """The UIDs of the messages that RETR has sent and that nobody had seen at login."""
        rows = zip(self._rows["uid"].tolist(), self._rows["flags"].tolist(), self._sent, strict=True)
        return [uid for uid, flags, sent in rows if sent and not flags & Flag.SEEN.value]

    def size_line(self, number: int) -> str:
        """A scan listing (RFC 1939 §5 LIST). Raises NoMessage."""
        return f"{number} {self.row(number)['size']}"

    def uid_line(self, number: int) -> str:
        """A unique-id listing (RFC 1939 §7 UIDL). Raises NoMessage."""
        return f"{number} {self._validity:08x}{self.row(number)['uid']:08x}"

    def size_lines(self) -> Iterator[bytes]:
        """The scan listings of all messages that are not marked as deleted, some at a time."""
        return self._listing(b"%d %d\r\n", "size")

    def uid_lines(self) -> Iterator[bytes]:
        """The unique-id listings likewise.

        A unique-id is UIDVALIDITY and UID in hexadecimal, eight digits each: the pair never comes to mean another
        message (RFC 3501 §2.3.1.1), as RFC 1939 §7 wants it.
        """
        return self._listing(b"%%d %08x%%08x\r\n" % self._validity, "uid")

    def _listing(self, form: bytes, column: str) -> Iterator[bytes]:
        for start in range(0, len(self._rows), LINES):
            values = self._rows[column][start:start + LINES].tolist()
            kept = self._kept[start:start + LINES]
            yield b"".join([form % (number, value) for number, value in enumerate(values, start + 1)
                            if kept[number - start - 1]])


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
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._set(mailbox, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise StoreError(Problem.UNAVAILABLE, detail=str(error)) from error
        self._held.add(mailbox)
        return True

    def release(self, mailbox: MailboxId) -> None:
        """Give back a maildrop that was taken."""
        self._held.remove(mailbox)
        self._set(mailbox, fcntl.F_UNLCK)

    def close(self) -> None:
        """Give back everything."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._held.clear()

    def _set(self, mailbox: MailboxId, kind: int) -> None:
        # struct flock of Linux: l_type, l_whence, l_start, l_len, l_pid
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, mailbox, 1, 0))
