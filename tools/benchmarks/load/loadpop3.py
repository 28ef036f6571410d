"""A POP3 client (RFC 1939)."""

from tools.benchmarks.load.bytestream import Address, ProtocolError, Stream

_END = b"\r\n.\r\n"


class Pop3:
    """One POP3 session."""

    __slots__ = ("stream",)

    def __init__(self, address: Address) -> None:
        self.stream = Stream(address, 1 << 16)

    async def login(self, user: str, password: str) -> None:
        """Greeting, USER and PASS."""
        await self._status()
        await self.ask(b"USER " + user.encode())
        await self.ask(b"PASS " + password.encode())

    async def ask(self, command: bytes) -> bytes:
        """A command with a one-line answer, which must be +OK."""
        await self.stream.send(command + b"\r\n")
        return await self._status()

    async def stat(self) -> tuple[int, int]:
        """STAT: the number of messages and their size in bytes."""
        words = (await self.ask(b"STAT")).split()
        return int(words[1]), int(words[2])

    async def multi(self, command: bytes) -> bytes:
        """A command with an answer of many lines: the text without its last dot."""
        stream = self.stream
        await self.ask(command)
        searched = 0                            # from stream.start
        while True:
            if stream.buf.startswith(b".\r\n", stream.start, stream.end):
                stream.start += 3
                return b""
            at = stream.buf.find(_END, stream.start + searched, stream.end)
            if at >= 0:
                text = bytes(stream.buf[stream.start:at + 2])
                stream.start = at + len(_END)
                return text
            searched = max(0, stream.end - stream.start - len(_END))
            await stream.fill()

    async def quit(self) -> None:
        """QUIT, which removes what was deleted, and close."""
        await self.ask(b"QUIT")
        self.stream.close()

    async def _status(self) -> bytes:
        line = await self.stream.line()
        if not line.startswith(b"+OK"):
            raise ProtocolError(f"POP3: {line!r}")
        return line
