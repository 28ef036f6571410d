"""What goes out to one client: replies that wait for each other, and long answers as fast as the client takes them."""

from collections.abc import Iterable

from pop3.dots import DotWriter
from pop3.replies import END
from pop3.surrogate import File
from pop3.wire import TopLines
from store.net.linestates import TimedOut
from store.net.stream import Stream

READ_OCTETS = 64 * 1024           # octets of a message that are read, and sent, at a time
HELD_BACK = 32 * 1024       # octets of replies to pipelined commands that may wait to share a packet


class ReplyQueue:
    """The sending side of a connection. What is said leaves when the session waits for input, or is too much to hold.

    While `interrupted`, in the middle of an answer of several lines, only the end of the connection can tell the client
    that something went wrong: a refusal would be taken for the next line.
    """

    def __init__(self, stream: Stream, send_time: float) -> None:
        self._stream = stream
        self._send_time = send_time
        self._held = 0
        self.interrupted = False

    def say(self, reply: bytes) -> None:
        """Send octets, at some time soon."""
        self._held += len(reply)
        self._stream.write(reply)

    def waits_for_input(self) -> None:
        """The session is about to read: unless pipelined commands are there, everything goes out."""
        if not self._stream.input_waiting:
            self._held = 0

    async def relieve(self) -> None:
        """Wait for the client if it has been told much. Raises ConnectionLost, TimedOut."""
        if self._held > HELD_BACK:
            self._held = 0
            try:
                await self._stream.drain(self._send_time)
            except TimedOut:
                self._stream.abort()            # or closing would wait for the client to take the rest
                raise

    async def listing(self, pieces: Iterable[bytes]) -> None:
        """The lines of a long answer and its end. Raises ConnectionLost, TimedOut."""
        self.interrupted = True
        for piece in pieces:
            self.say(piece)
            await self.relieve()
        self.say(END)
        self.interrupted = False

    async def message(self, file: File, top: TopLines | None, first: bytes) -> None:
        """A message, or what TOP shows of it, dot-stuffed, and its end; `first` is a piece of its beginning that has
        been read already. Raises ConnectionLost, TimedOut, StoreError."""
        self.interrupted = True
        dots, offset = DotWriter(), 0
        while offset < file.size and not (top is not None and top.done):
            data = first or file.read(offset, READ_OCTETS)
            first = b""
            offset += len(data)
            self.say(dots.feed(data if top is None else top.feed(data)))
            await self.relieve()
        self.say(dots.finish())
        self.interrupted = False
