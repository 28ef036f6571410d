"""A message on its way in: by DATA or in chunks, its octets go to its file as they arrive, in bounded memory; of those
after DATA the dots that are not the message's are taken away.

A message that must be refused is read to its end and dropped, so that the conversation stays in step; but not for ever.
"""

import logging
from collections.abc import Callable

from attrs import define, field

from lmtp import replies
from lmtp.refusals import refusal
from lmtp.replies import Farewell, Reply
from lmtp.settings import Settings
from store.delivery import durable
from store.errors import StoreError
from store.net.linestates import TimedOut
from store.net.stream import Stream
from store.partition.staged import Staged
from store.problems import tell_refusal
from store.store import Store

CHUNK = 64 * 1024       # octets of a message taken at a time: what the socket gives at once

log = logging.getLogger(__name__)

END = b"\r\n.\r\n"

_DOT = ord(".")
_IN_END = b"\r", b"\n", b"."
# The beginnings of END that a chunk can end with, longest first.
_OPEN_ENDS = tuple(END[:length] for length in range(len(END) - 1, 0, -1))


class DotReader:
    """Takes the octets after DATA in chunks of any size and gives those of the message (RFC 5321 §4.5.2). It works on
    whole chunks, so that its cost is that of copying the octets, and keeps a few between two chunks.

    The message ends at CRLF "." CRLF and nowhere else: a dot between bare LFs or CRs is text like any other, or what
    one server takes for text another would take for the end, and the text behind it for commands. The CRLF before the
    dot belongs to the message. Bare CR and LF, NUL and 8-bit octets pass unchanged.
    """

    __slots__ = ("_open", "_unseen", "done", "left")

    def __init__(self) -> None:
        self._open = b"\r\n"        # octets received and not yet given: what follows decides. DATA's own CRLF is before
        self._unseen = 2            # the first line, and is not part of the message
        self.done = False           # whether the end has been seen
        self.left = 0               # octets at the end of the last chunk that come after the message

    def feed(self, chunk: bytes) -> bytes:
        """What is certain of the message after this chunk, without the stuffing.

        When `done` has become true, the last `left` octets of `chunk` belong to what follows. Raises ValueError when it
        was true already.
        """
        if self.done:
            raise ValueError("the message has ended")
        data = self._open + chunk
        # Most chunks have none, and of an attachment no dot at all: that is found out in a tenth of the time.
        dot = data.find(b"\r\n.") if _DOT in data else -1
        end = data.find(END, dot) if dot >= 0 else -1
        if end >= 0:
            self.done = True
            self.left = len(data) - end - len(END)
            data = data[: end + 2]
        else:
            self._open = b""
            if data.endswith(_IN_END):
                self._open = next((start for start in _OPEN_ENDS if data.endswith(start)), b"")
                if self._open:
                    data = data[: -len(self._open)]
        if 0 <= dot != end:                     # the end is the only one of most messages
            data = data.replace(b"\r\n.", b"\r\n")
        if self._unseen and data:
            data, self._unseen = data[self._unseen:], 0
        return data


@define(eq=False)
class Incoming:
    """One message. Without `staged` it is only dropped. All reading raises ConnectionLost, TimedOut, Farewell."""

    store: Store
    settings: Settings
    clock: Callable[[], float]
    staged: Staged | None = None
    refused: Reply | None = None        # why it is dropped
    _dropped: int = field(default=0, init=False)
    _deadline: float = field(init=False)

    @_deadline.default
    def _begin(self) -> float:
        return self.clock() + self.settings.message_time

    async def data(self, stream: Stream) -> None:
        """All of it, up to the final dot (RFC 5321 §4.1.1.4)."""
        reader = DotReader()
        while not reader.done:
            chunk = await stream.some(CHUNK, self.settings.block_time)
            await self._take(reader.feed(chunk), len(chunk))
            if not reader.done:
                await stream.breathe()
        if reader.left:
            stream.unread(chunk[-reader.left:])         # commands sent ahead (RFC 2920)

    async def chunk(self, stream: Stream, size: int) -> None:
        """The next `size` octets of it (RFC 3030 §2)."""
        left = size
        while left:
            octets = await stream.some(min(CHUNK, left), self.settings.block_time)
            left -= len(octets)
            await self._take(octets, len(octets))
            if left:
                await stream.breathe()

    def abort(self) -> None:
        """It will not be delivered: its file goes."""
        if self.staged is not None:
            self.staged.abort()
            self.staged = None

    async def _take(self, octets: bytes, received: int) -> None:
        """Write them, or drop them. `received`: how many came over the wire."""
        if self.staged is not None:
            try:
                if self.staged.write(octets):
                    await durable.spill(self.store, self.staged)
            except Exception as error:
                self.refused = failure("a message could not be received", error)
                self.abort()
        else:
            self._dropped += received
            if self._dropped > self.settings.swallow_limit:
                raise Farewell(replies.TOO_MUCH)
        self._deadline += received / self.settings.slowest_rate
        if self.clock() > self._deadline:
            raise TimedOut


def failure(what: str, error: Exception) -> Reply:
    """The reply to an error that all recipients share; an unexpected one shows nothing of itself (RFC 3463 §3.4)."""
    if isinstance(error, StoreError):
        tell_refusal(log, logging.WARNING, what, error)
        return refusal(error)
    log.error("%s", what, exc_info=error)
    return replies.LOCAL_ERROR
