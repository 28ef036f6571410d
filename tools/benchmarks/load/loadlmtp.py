"""An LMTP client (RFC 2033), as a mail transfer agent would be one."""

import time
from collections.abc import Sequence

from tools.benchmarks.load.bytestream import Address, ProtocolError, Stream


class Lmtp:
    """One LMTP connection, kept open for many messages."""

    __slots__ = ("stream", "pipelining", "sent_at", "refused")

    def __init__(self, address: Address) -> None:
        self.stream = Stream(address)
        self.pipelining = False
        self.sent_at = 0.0
        self.refused = b""              # the last reply that was not positive

    async def hello(self) -> None:
        """Read the greeting and say LHLO."""
        await self._expect(b"220")
        await self.stream.send(b"LHLO bench.example\r\n")
        lines = await self._expect(b"250")
        self.pipelining = any(line[4:].upper() == b"PIPELINING" for line in lines)

    async def deliver(self, sender: bytes, recipients: Sequence[bytes], data: bytes) -> int:
        """Deliver `data` (dot-stuffed, with its end); how many recipients took it.

        `sent_at` is the time.perf_counter() when the last byte was sent.
        """
        mail = b"MAIL FROM:<%b>\r\n" % sender
        rcpts = [b"RCPT TO:<%b>\r\n" % one for one in recipients]
        if self.pipelining:
            await self.stream.send(b"".join([mail, *rcpts, b"DATA\r\n"]))
            await self._expect(b"250")
            accepted = await self._count_accepted(len(rcpts))
        else:
            await self._ask(mail)
            accepted = 0
            for rcpt in rcpts:
                await self.stream.send(rcpt)
                accepted += await self._count_accepted(1)
            await self.stream.send(b"DATA\r\n")
        answer = await self._reply()
        if not answer[-1].startswith(b"354"):
            await self._ask(b"RSET\r\n")
            raise ProtocolError(f"DATA: {answer[-1]!r} after {self.refused!r}")
        await self.stream.send(data)
        self.sent_at = time.perf_counter()
        return await self._count_accepted(accepted)

    async def quit(self) -> None:
        """QUIT and close."""
        await self.stream.send(b"QUIT\r\n")
        await self._reply()
        self.stream.close()

    async def _ask(self, line: bytes) -> None:
        await self.stream.send(line)
        await self._expect(b"250")

    async def _count_accepted(self, replies: int) -> int:
        """Read `replies` replies; how many were positive."""
        count = 0
        for _ in range(replies):
            answer = await self._reply()
            if answer[-1].startswith(b"250"):
                count += 1
            else:
                self.refused = answer[-1]
        return count

    async def _expect(self, code: bytes) -> list[bytes]:
        answer = await self._reply()
        if not answer[-1].startswith(code):
            raise ProtocolError(f"wanted {code.decode()}: {answer[-1]!r}")
        return answer

    async def _reply(self) -> list[bytes]:
        """One reply, possibly of several lines."""
        stream = self.stream
        lines = []
        while True:
            line = stream.pop_line()
            if line is None:
                await stream.fill()
                continue
            lines.append(line)
            if line[3:4] != b"-":
                return lines
