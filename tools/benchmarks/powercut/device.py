"""Serves a `CachedDisk` to the kernel as a file of its own: a FUSE file system whose root is that one file.

The protocol is that of the kernel's <linux/fuse.h>, version 7.31, as far as a loop device asks. One thread answers one
request after the other. The other end of a socket gives orders, and is told of a cut that comes by itself after a
number of requests: until it says so no request is answered any more, so that no answer is given to anybody that this
disk would have had to make true.
"""

import ctypes
import os
import select
import socket
import stat
import struct
from enum import IntEnum
from errno import EINTR, ENODEV, ENOENT, ENOSYS
from pathlib import Path
from random import Random

from attrs import define, field

from mboxlist import privatefiles
from tools.benchmarks.powercut.cache import LEFT, CachedDisk, Loss


class Operation(IntEnum):
    """Those that come."""

    FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 2, 3, 4, 14, 15, 16, 17, 18, 20
    FLUSH, INIT, ACCESS, INTERRUPT, DESTROY, BATCH_FORGET = 25, 26, 34, 36, 38, 42


NO_REPLY = (Operation.FORGET, Operation.BATCH_FORGET, Operation.INTERRUPT)
VERSION = 7, 31
MOST_OCTETS = 1 << 20                   # of one write
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22                 # of FUSE_INIT's flags
DIRECT_IO = 1                           # of FUSE_OPEN's: the kernel keeps no pages of the file
IN_HEADER = struct.Struct("=IIQQIIIHH")
OUT_HEADER = struct.Struct("=IiQ")
OFFSET = struct.Struct("=QQI")          # of READ and WRITE: handle, offset, size
WRITE_IN = 40
ATTRIBUTES = struct.Struct("=QII QQQQQQIIIIIIIIII")
ORDER = struct.Struct("=4sqq")          # a word and two numbers, as the answers too
MS_NOSUID_NODEV = 2 | 4
CLONE_NEWNS = 0x00020000
_libc = ctypes.CDLL(None, use_errno=True)


def mount(handle: int, place: Path) -> None:
    """Put the file system that is served through `handle` over the file at `place`. Raises OSError."""
    options = f"fd={handle},rootmode={stat.S_IFREG | 0o600:o},user_id=0,group_id=0,max_read={MOST_OCTETS}"
    if _libc.mount(b"powercut", os.fsencode(place), b"fuse", MS_NOSUID_NODEV, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(place))


def leave_mounts() -> None:
    """What is mounted from now on is not mounted for this process. So it is never the last that has a file system on
    its own disk: at its end it would wait for a disk that nobody serves. Raises OSError."""
    if _libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@define
class Device:
    """Answers the kernel at `fuse`, and whoever gives the orders at `orders`."""

    disk: CachedDisk
    fuse: int
    orders: socket.socket
    _cut_at: int = 0                    # requests; 0: not by itself
    _blank: int = field(init=False)     # an image
    _at_flush: bool = False             # not before a flush that has something to do
    _left: str = "none"
    _seed: int = 0
    _loss: Loss = field(factory=Loss)
    _kept: dict[int, int] = field(factory=dict)         # images that `new` begins with: descriptors by number

    def __attrs_post_init__(self) -> None:
        self._blank = self.disk.image

    def serve(self) -> None:
        """Until the file system is unmounted or nobody gives orders any more."""
        while True:
            ready, _, _ = select.select([self.orders.fileno(), self.fuse], [], [])
            if self.orders.fileno() in ready and not self._obey():
                return
            if self.fuse in ready:
                try:
                    request = os.read(self.fuse, MOST_OCTETS + 8192)
                except OSError as error:
                    if error.errno in (ENOENT, EINTR):          # a request that was taken back
                        continue
                    if error.errno == ENODEV:
                        return
                    raise
                self._answer(memoryview(request))

    # Orders

    def _obey(self) -> bytes:
        """The order that has come; empty: there will be none any more."""
        octets = self.orders.recv(ORDER.size, socket.MSG_WAITALL)
        if len(octets) < ORDER.size:
            return b""
        word: bytes
        word, number, more = ORDER.unpack(octets)
        match word:
            case b"arm ":               # cut after so many requests; 0: not by itself
                self._cut_at, self._at_flush = number and self.disk.requests + number, bool(more)
            case b"left":               # which part is on the disk after a cut, and the seed of what is random
                self._left, self._seed = LEFT[number], more
            case b"cut ":
                if self.disk.is_on:
                    self._cut()
            case b"on  ":
                self.disk.power_on()
            case b"keep":
                self._kept[number] = self.disk.copied()
            case b"new ":
                image = self._kept.get(number, self._blank)
                self.disk.close()
                self.disk = CachedDisk(image, self.disk.size)
        if word == b"cut ":
            self.orders.sendall(ORDER.pack(b"loss", self._loss.unflushed, self._loss.dropped))
        elif word != b"go  ":
            self.orders.sendall(ORDER.pack(b"done", self.disk.requests, 0))
        return word

    def _cut(self) -> None:
        self._cut_at = 0
        self._loss = self.disk.cut(self._left, Random(self._seed))

    def _cut_by_itself(self) -> None:
        """Answer nothing before the order comes that follows."""
        self._cut()
        self.orders.sendall(ORDER.pack(b"dark", self._loss.unflushed, self._loss.dropped))
        while (word := self._obey()) != b"go  ":
            if not word:
                raise SystemExit(0)

    # The kernel's requests

    def _answer(self, request: memoryview) -> None:
        _, operation, unique, *_ = IN_HEADER.unpack_from(request)
        if operation in NO_REPLY:
            return
        body = request[IN_HEADER.size:]
        if self._cut_at and self.disk.requests >= self._cut_at and (
                operation == Operation.FSYNC and self.disk.has_unflushed
                or operation in (Operation.WRITE, Operation.FSYNC) and not self._at_flush):
            self._cut_by_itself()
        reply = self._reply(operation, body)
        error, octets = (-reply, b"") if isinstance(reply, int) else (0, reply)
        try:
            os.write(self.fuse, OUT_HEADER.pack(OUT_HEADER.size + len(octets), error, unique) + octets)
        except OSError as problem:
            if problem.errno != ENOENT:
                raise

    def _reply(self, operation: int, body: memoryview) -> bytes | int:
        match operation:
            case Operation.READ:
                _, offset, size = OFFSET.unpack_from(body)
                return self.disk.read(offset, size)
            case Operation.WRITE:
                _, offset, size = OFFSET.unpack_from(body)
                self.disk.write(offset, bytes(body[WRITE_IN:WRITE_IN + size]))
                return struct.pack("=II", size, 0)
            case Operation.FSYNC:
                self.disk.flush()
                return b""
            case Operation.INIT:
                return struct.pack("=IIIIHHIIHHIIH22x", *VERSION, MOST_OCTETS, BIG_WRITES | MAX_PAGES, 64, 48,
                                   MOST_OCTETS, 1, MOST_OCTETS // 4096, 0, 0, 0, 0)
            case Operation.GETATTR | Operation.SETATTR:
                return ATTRIBUTES.pack(3600, 0, 0, 1, self.disk.size, self.disk.size // 512, 0, 0, 0, 0, 0, 0,
                                       stat.S_IFREG | 0o600, 1, 0, 0, 0, 4096, 0)
            case Operation.OPEN:
                return struct.pack("=QII", 1, DIRECT_IO, 0)
            case Operation.STATFS:
                return struct.pack("=QQQQQIIII24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
            case Operation.RELEASE | Operation.FLUSH | Operation.ACCESS | Operation.DESTROY:
                return b""
        return ENOSYS


def serve(image: int, size: int, place: Path, orders: socket.socket) -> None:
    """In a process of its own: mount, say so, and serve."""
    handle = privatefiles.open_handle("/dev/fuse", os.O_RDWR)
    mount(handle, place)
    leave_mounts()
    orders.sendall(ORDER.pack(b"done", 0, 0))
    Device(CachedDisk(image, size), handle, orders).serve()
