"""Reading a client's commands: lines and literals in the time that the client has (RFC 3501 §2.2.1, §4.3, §5.4)."""

from collections.abc import Awaitable, Callable

from attrs import define, field

from imap.settings import Settings
from imap.wire.append import is_message
from imap.wire.framer import CONTINUE, Frame, Framer, Literal, Message, Rejected, Step, Swallow
from store.net.linestates import Clock, LineTooLong, TimedOut
from store.net.stream import Stream

READ_OCTETS = 64 << 10            # octets written to the client before others are let in,
TAKEN_OCTETS = 16 << 10           # or taken from it: of a message made to be dear they are 20 ms of work


@define(eq=False)
class CommandReader:
    """Reads one client. Until it has logged in, limits are strict, and there is a time by which it must have."""

    _stream: Stream
    _settings: Settings
    _clock: Clock
    framer: Framer = field(init=False)
    _login_by: float | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.framer = Framer(self._settings.limits(logged_in=False), is_message)
        self.log_out()

    def log_in(self) -> None:
        """The client has proved who it is."""
        self._login_by = None
        self.framer.limits = self._settings.limits(logged_in=True)

    def log_out(self) -> None:
        """Nobody is logged in."""
        self._login_by = self._clock.seconds() + self._settings.login_time
        self.framer.limits = self._settings.limits(logged_in=False)

    async def command(self, receive: Callable[[Message], Awaitable[Step | None]], step: Step | None,
                      deadline: float) -> Frame | Rejected:
        """The next command, whole; `step` is what its first line has come to, or that is to come until the deadline.
        `receive` takes a message literal, or says what to do instead.

        Raises TimedOut, Stopping.
        """
        if self._login_by is not None and self._clock.seconds() >= self._login_by:
            raise TimedOut
        idle = step is None
        time = max(0.0, deadline - self._clock.seconds()) if idle else self._settings.command_time
        while True:
            if step is None:
                try:
                    step = self.framer.line(await self._stream.line(
                        self.framer.limits.line, time if self._login_by is None else self._allowed(time), idle=idle))
                except LineTooLong as long:
                    step = self.framer.too_long(long.start, long.end)
                idle, time = False, self._settings.command_time
            if isinstance(step, Frame | Rejected):
                return step
            if isinstance(step, Message):
                step = await receive(step)
                continue
            if isinstance(step, Swallow):
                await self.swallow(step.size)
            else:
                self.framer.literal(await self._literal(step))
            step = None

    async def line(self) -> bytes:
        """A line within a command. Raises LineTooLong, TimedOut."""
        return await self._stream.line(self.framer.limits.line, self._allowed(self._settings.command_time))

    async def _literal(self, wanted: Literal) -> bytes:
        if wanted.sync:
            self._stream.write(CONTINUE)
        pieces = []
        left = wanted.size
        while left:
            pieces.append(await self.some(left))
            left -= len(pieces[-1])
        return b"".join(pieces)

    async def some(self, most: int) -> bytes:
        """Up to `most` octets, and not more than TAKEN_OCTETS, of what the client sends."""
        return await self._stream.some(min(most, TAKEN_OCTETS), self._allowed(self._settings.command_time))

    async def swallow(self, size: int) -> None:
        """Read octets and throw them away."""
        while size:
            size -= len(await self.some(size))
            await self._stream.breathe()

    def _allowed(self, time: float) -> float:
        """So many seconds; before login those of a step, or what is left until the client must have logged in."""
        if self._login_by is None:
            return time
        return min(time, self._settings.early_time, max(0.0, self._login_by - self._clock.seconds()))
