"""A message that is being received: its octets come and are put on disk; then it is delivered, or forgotten."""

import hashlib
import logging
import os
import weakref

from mboxlist import privatefiles
from mboxlist.engine.troubles import TROUBLES
from store.errors import Problem, StoreError, disk_problem
from store.message.cacherecord import CachedMessage, render
from store.message.mime import ALL_HEADERS, Scanner
from store.partition.messagefiles import MessageFiles, remove_name
from store.partition.messagereading import MID_OCTETS, SPILL, MessageFile

log = logging.getLogger(__name__)

MANY_PARTS = 200            # with so many, a thread makes the structure
_OVERFULL = 4 * SPILL       # octets in memory at which `write` itself calls `spill`


class Staged:
    """A message that is being received: `write` its octets, then `finish`, `sync`, and deliver it; or `abort`. Its file
    may be synced as soon as it is `digested`.

    `trace` is the trace header, which stands before the content and is not part of the digest; `header` is its octets.
    `named`: its file was made beforehand, and the name is on disk. `cached` is a cache record that came with the
    message; it is used if it fits.
    """

    def __init__(self, files: MessageFiles, serial: int, trace: bytes, limit: int, *, named: bool = False,
                 cached: CachedMessage | None = None) -> None:
        self.files = files
        self.serial = serial
        self.trace = len(trace)
        self.header = trace
        self.size = len(trace)
        self.digest = b""
        self.message_id = b""           # of its header; `finish` finds it
        self.named = named
        self.names_since = files.failed_syncs           # for `MessageFiles.sync_names`
        self.on_disk = False
        self.written = False            # some of the message is in the file, or all
        self.concealed = False          # the time must not tell whether the content was there
        self.committed = False          # records refer to this file; see `needed`
        self.left = False               # `place` has the last word; `abort` does nothing any more
        self._limit = limit + len(trace)
        self._digest = hashlib.blake2b(digest_size=MID_OCTETS)
        self._scanner = Scanner() if cached is None else None
        self._waiting = [trace] if trace else []
        self._undigested = 0            # octets at the end of _waiting that are not in the digest yet
        self.held = len(trace)          # octets in memory; a thread writes them when they are more than SPILL
        self._file = -1
        self._failed: OSError | None = None             # of a `spill` or `sync`
        self.cached: CachedMessage      # its cache record, from `finish` on
        if cached is not None:
            self.cached = cached
        files.receiving.add(weakref.ref(self, files.receiving.discard))

    @property
    def sender(self) -> bytes:
        """The Return-Path field, which a trace header begins with."""
        return self.header.partition(b"\n")[0]

    def write(self, data: bytes) -> bool:
        """Add octets of the content; whether it is time to `spill` (in a thread, since writing may wait for the disk).

        Raises StoreError TOO_BIG past the limit, DISK_FULL, UNAVAILABLE.
        """
        self.size += len(data)
        if self.size > self._limit:
            raise StoreError(Problem.TOO_BIG)
        if self._scanner is not None:
            self._scanner.feed(data)
        self._waiting.append(data)
        self._undigested += len(data)
        self.held += len(data)
        if self.held > _OVERFULL:
            self.spill()
        return self.held > SPILL

    def spill(self) -> None:
        """Write to the file what is held in memory. Raises StoreError DISK_FULL, UNAVAILABLE; after that, each call
        raises it."""
        if self._failed is not None:            # the file lacks something, and always will
            raise disk_problem(self._failed) from self._failed
        waiting = self._waiting
        data = waiting[0] if len(waiting) == 1 and not self._undigested else self._joined()
        self._waiting, self.held = [], 0
        try:
            if self._file < 0:
                flags = os.O_WRONLY | os.O_CLOEXEC | (0 if self.named else os.O_CREAT | os.O_EXCL)
                self._file = privatefiles.open_handle(self.files.staged_path(self.serial), flags)
            self.written = True
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view):]
        except OSError as error:
            self._failed = error
            raise disk_problem(error) from error

    def _joined(self) -> bytes:
        """What is held in memory, as one piece, which is now in the digest. `spill` calls this, so that a thread does
        it for big messages. It is done all at once, since after each piece the thread would have to wait for the
        interpreter."""
        waiting = self._waiting
        if len(waiting) != 1:
            waiting = self._waiting = [b"".join(waiting)]
        data = waiting[0]
        if self._undigested:
            self._digest.update(data if self._undigested == len(data) else memoryview(data)[-self._undigested:])
            self._undigested = 0
        return data

    def digested(self) -> None:
        """The content is complete: its digest is final."""
        if self._undigested:
            self._joined()
        self.digest = self._digest.digest()

    @property
    def share(self) -> float:
        """How much of the work that `finish` may do at once for one message this message needs. More than 1 is left to
        a thread."""
        scanner = self._scanner
        if scanner is None:
            return 1.0
        return max(scanner.parts / MANY_PARTS, (ALL_HEADERS - scanner.room) / (SPILL // 2))

    def scan(self) -> None:
        """The content is complete: find its parts."""
        if self._scanner is not None and not self._scanner.ended:
            self._scanner.end()

    def finish(self, *, at_once: bool = False) -> bool:
        """The content is complete: make digest and structure final. Whether it is done: with `at_once` it is not when
        there are so many parts, or such large headers, that a thread should do the rest."""
        if not self.digest:
            self.digested()
        scanner = self._scanner
        if scanner is not None:
            if not scanner.ended:
                scanner.end()
            if at_once and (scanner.parts > MANY_PARTS or scanner.room < ALL_HEADERS - SPILL // 2):
                return False
            message = scanner.finish()
            self._scanner = None
            self.message_id = (message.envelope or {}).get(b"message-id", b"").strip()
            self.cached = render(message, self.digest, self.trace)
        return True

    def sync(self) -> None:
        """Return when the file's octets are on disk; its name is on disk only if it was `named`. For a thread. Raises
        StoreError DISK_FULL, UNAVAILABLE."""
        handle = self.unsynced()
        try:
            os.fsync(handle)
        except OSError as error:
            self.synced(error)
        else:
            self.synced()

    def in_memory(self) -> bytes | None:
        """All its octets, with the trace header, while none of them has been written."""
        if self.written or self._failed is not None or not self.held:
            return None
        return self._waiting[0] if len(self._waiting) == 1 else self._joined()

    def unsynced(self) -> int:
        """Write everything, and return the file's descriptor: the caller syncs it, and then calls `synced`. Raises
        StoreError DISK_FULL, UNAVAILABLE."""
        if self.held or self._file < 0 or self._failed is not None:
            self.spill()
        if self.concealed:
            self.files.will_need(self.digest)       # as this file is in memory
        return self._file

    def synced(self, failure: OSError | None = None) -> None:
        """The sync has ended. Raises StoreError when it has failed."""
        if failure is not None:
            self._failed = failure
            raise disk_problem(failure) from failure
        self.on_disk = True

    def place(self) -> None:
        """Its transaction is on disk: if records refer to this file, give it its second name; else remove it."""
        if self.committed:
            self.files.place(self.serial, self.digest)
        elif self.left and not self.needed:
            self.files.let_go(self.serial)

    def close(self) -> None:
        """Close the file, which stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def needed(self) -> bool:
        """Whether records refer to this file. The databases are asked: a step behind the commit may have failed before
        the sender of the message heard of it. If they do not answer, the file counts as needed."""
        if not self.committed and self.digest and (self.written or self.on_disk):
            try:
                self.committed = self.files.committed(self.digest, self.serial)
            except Exception as error:
                TROUBLES.met("files of messages stay in staging until it is known whether they are needed", str(error))
                return True
        return self.committed

    def abort(self) -> None:
        """Forget the message, and remove its file unless it is `needed`. A needed file keeps its staged name, and the
        sweep of `staging/` gives it its place."""
        if self.left:
            return
        if self.needed:
            self.close()
        elif self._file >= 0 or self.on_disk or self.written:
            self.close()
            try:
                remove_name(self.files.staged_path(self.serial))
            except OSError as error:    # not why the message was refused; a sweep comes later
                TROUBLES.met("files of messages that were not delivered stay for now", str(error))
            self.on_disk = self.named = self.written = False
        elif self.named:
            self.files.give_back(self.serial)
            self.named = False
        self._waiting, self._undigested = [], 0

    def peek(self, at: int, count: int) -> bytes:
        """That many octets of the message from there on, with the trace header, before it is delivered. Raises
        StoreError DISK_FULL, UNAVAILABLE."""
        if not self.written:
            held = self._waiting[0] if len(self._waiting) == 1 else self._joined()
            return held[at:at + count]
        self.spill()
        with self.opened() as file:
            return file.read(at, count)

    def opened(self) -> MessageFile:
        """Its open file, with the trace header, after everything has been written. Raises StoreError DISK_FULL,
        UNAVAILABLE."""
        # By the staged name: in `messages/` the same content may lie with another trace header, unless it is this file.
        try:
            try:
                handle = privatefiles.open_handle(self.files.staged_path(self.serial))
            except FileNotFoundError:
                if not self.committed:
                    raise
                handle = privatefiles.open_handle(self.files.path(self.digest))
        except OSError as error:
            raise disk_problem(error) from error
        return MessageFile(handle, 0, self.size)

    def copy_to(self, files: MessageFiles, serial: int) -> "Staged":
        """A finished copy of the message for another partition. For a thread: it reads and writes the whole file.

        Raises StoreError DISK_FULL, UNAVAILABLE, CORRUPT.
        """
        with self.opened() as source:
            twin = Staged.copied(files, serial, source, self.digest, self.trace, self.cached)
        twin.header, twin.message_id = self.header, self.message_id
        return twin

    @classmethod
    def copied(cls, files: MessageFiles, serial: int, source: MessageFile, own_digest: bytes, trace: int,
               cached: CachedMessage) -> "Staged":
        """A finished message, whose file is a copy of another one, with the trace header. For a thread.

        Raises StoreError DISK_FULL, UNAVAILABLE, and CORRUPT when the file is not what its digest says.
        """
        twin = cls(files, serial, b"", source.size, cached=cached)
        twin.digest, twin.trace = own_digest, trace
        digest = hashlib.blake2b(digest_size=MID_OCTETS)
        try:
            while data := source.read(twin.size, SPILL):
                digest.update(data[max(0, trace - twin.size):])
                twin.size += len(data)
                twin._waiting.append(data)
                twin.spill()
            if digest.digest() != own_digest:
                raise StoreError(Problem.CORRUPT, "The message cannot be read",
                                 f"message file {own_digest.hex()} is not what its digest says")
        except BaseException as error:
            twin.abort()
            if isinstance(error, OSError):
                raise disk_problem(error) from error
            raise
        return twin
