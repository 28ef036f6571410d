"""A TCP connection with a receive buffer, for the protocol clients."""

import socket
import struct

from tools.benchmarks.load.loop import LOOP, READ, STALL_SECONDS, WRITE, wait

Address = tuple[str, int]

# Before waiting for the rest of an answer acknowledge the first part at once
# (not with --delayed-ack): a server that leaves Nagle's algorithm on waits for
# that before it sends its last segment.
quick_ack = True

# Where bytes go that are received only to be counted.
_SINK = memoryview(bytearray(1 << 18))


class ConnectionEnded(Exception):
    """The server closed the connection."""


class ProtocolError(Exception):
    """The server's answer is not the one that was asked for."""


class Stream:
    """Buffered receiving and unblocked sending on one socket.

    `buf[start:end]` holds what was received and not yet consumed; the
    protocol clients search it in place.
    """

    __slots__ = ("sock", "fd", "buf", "view", "start", "end", "_answering")

    def __init__(self, address: Address, buffer_size: int = 1 << 14) -> None:
        """Connect; on loopback that is immediate."""
        self.fd = -1
        self.sock = socket.create_connection(address, timeout=20)
        self.sock.settimeout(None)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit = struct.pack("ll", int(STALL_SECONDS), 0)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.fd = self.sock.fileno()
        self.buf = bytearray(buffer_size)
        self.view = memoryview(self.buf)
        self.start = self.end = 0
        self._answering = False         # something came since the last send

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; may be called again."""
        if self.fd >= 0:
            LOOP.forget(self.fd)
            self.fd = -1
            self.sock.close()

    async def fill(self) -> None:
        """Receive at least one more byte into the buffer."""
        self._prepare()
        await wait(self.fd, READ)
        self.end += self._receive(self.view[self.end:])

    async def fill_within(self, seconds: float) -> bool:
        """Like `fill`, but False when nothing comes within `seconds`."""
        self._prepare()
        if not await wait(self.fd, READ, seconds):
            return False
        self.end += self._receive(self.view[self.end:])
        return True

    async def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`, without blocking the other coroutines."""
        self._answering = False
        done = self._send(data)
        if done < len(data):
            await self._send_rest(memoryview(data), done)

    async def _send_rest(self, view: memoryview, done: int) -> None:
        while done < len(view):
            await wait(self.fd, WRITE)
            done += self._send(view[done:done + (1 << 20)])

    def pop_line(self) -> bytes | None:
        """The next line without its CRLF, if it is in the buffer."""
        at = self.buf.find(b"\n", self.start, self.end)
        if at < 0:
            return None
        line = self.buf[self.start:at].rstrip(b"\r")
        self.start = at + 1
        return bytes(line)

    async def line(self) -> bytes:
        """The next line without its CRLF."""
        while (line := self.pop_line()) is None:
            await self.fill()
        return line

    async def exactly(self, count: int) -> bytes:
        """The next `count` bytes."""
        have = min(count, self.end - self.start)
        data = bytearray(count)
        data[:have] = self.view[self.start:self.start + have]
        self.start += have
        view = memoryview(data)
        while have < count:
            self._acknowledge()
            await wait(self.fd, READ)
            have += self._receive(view[have:])
        return bytes(data)

    async def skip(self, count: int) -> None:
        """Receive and drop the next `count` bytes."""
        have = min(count, self.end - self.start)
        self.start += have
        count -= have
        while count:
            self._acknowledge()
            await wait(self.fd, READ)
            count -= self._receive(_SINK[:count])

    def _send(self, data: bytes | memoryview) -> int:
        """Send what the socket takes at once; bytes."""
        try:
            return self.sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _receive(self, into: memoryview) -> int:
        """One receive call; bytes."""
        try:
            count = self.sock.recv_into(into)
        except BlockingIOError:
            raise TimeoutError(f"no answer within {STALL_SECONDS:.0f} s") from None
        if not count:
            rest = bytes(self.buf[self.start:self.end])[:200]
            raise ConnectionEnded(f"connection closed by the server; unread: {rest!r}")
        self._answering = True
        return count

    def _acknowledge(self) -> None:
        """Have the kernel acknowledge what came of an unfinished answer."""
        if self._answering and quick_ack:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _prepare(self) -> None:
        """Ready the buffer for more: move unread bytes to the front, or double it."""
        self._acknowledge()
        if self.start == self.end:
            self.start = self.end = 0
            return
        if self.end < len(self.buf):
            return
        size = self.end - self.start
        if self.start > len(self.buf) // 2:
            self.buf[:size] = self.buf[self.start:self.end]
        else:
            larger = bytearray(2 * len(self.buf))
            larger[:size] = self.view[self.start:self.end]
            self.view.release()
            self.buf = larger
            self.view = memoryview(larger)
        self.start, self.end = 0, size
