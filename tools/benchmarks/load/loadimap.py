"""An IMAP4rev1 client that does as little as a fair load generator may.

Answers are not parsed into objects. The receive buffer is searched for the
tagged line and for literals, whose bytes are stepped over (so nothing inside a
message can be taken for protocol); untagged FETCH responses and literals are
counted, and the untagged text is kept only when asked for.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

from attrs import define, field

from tools.benchmarks.load.bytestream import Address, ConnectionEnded, ProtocolError, Stream
from tools.benchmarks.load.messages import Message

_FETCH = b" FETCH ("
_EXISTS = re.compile(rb"^\* (\d+) EXISTS", re.MULTILINE)
_UIDNEXT = re.compile(rb"\[UIDNEXT (\d+)\]")
_NAMESPACE = re.compile(rb'\* NAMESPACE \(\("([^"]*)" (?:"(.)"|NIL)')


@define
class Reply:
    """What came up to and with a tagged line.

    `line` is the tagged line without its tag; `fetches` and `literals`
    are counts; `literal_bytes` their size in bytes; `untagged` the text
    before it, without literals, and `kept` the literals, when asked for.
    """

    line: bytes
    fetches: int = 0
    literals: int = 0
    literal_bytes: int = 0
    untagged: bytes = b""
    kept: list[bytes] = field(factory=list)

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.line.startswith(b"OK")

    def numbers(self, word: bytes) -> list[int]:
        """The numbers of the untagged response `word` (SEARCH, SORT)."""
        at = self.untagged.find(b"* " + word)
        if at < 0:
            return []
        end = self.untagged.find(b"\n", at)
        text = self.untagged[at + 2 + len(word):end if end >= 0 else None]
        return [int(one) for one in text.split() if one.isdigit()]


class Imap:
    """One IMAP connection."""

    __slots__ = ("stream", "_count")

    def __init__(self, address: Address, buffer_size: int = 1 << 14) -> None:
        self.stream = Stream(address, buffer_size)
        self._count = 0

    async def greeting(self) -> None:
        """Read the server's greeting."""
        line = await self.stream.line()
        if not line.startswith(b"* OK"):
            raise ProtocolError(f"greeting: {line!r}")

    def close(self) -> None:
        """Close the connection."""
        self.stream.close()

    # -- commands and replies ------------------------------------------------

    def tag(self) -> bytes:
        """A tag not used before on this connection."""
        self._count += 1
        return b"t%d" % self._count

    async def command(self, text: bytes, keep: bool = False, keep_literals: bool = False) -> Reply:
        """Send a command without literals and read up to its tagged line."""
        tag = self.tag()
        await self.stream.send(b"%b %b\r\n" % (tag, text))
        return await self.reply(tag, keep, keep_literals)

    async def must(self, text: bytes, keep: bool = False) -> Reply:
        """Like `command`, but anything except OK is an exception."""
        reply = await self.command(text, keep)
        if not reply.ok:
            raise ProtocolError(f"{shown(text)}: {reply.line!r}")
        return reply

    async def reply(self, tag: bytes, keep: bool = False, keep_literals: bool = False) -> Reply:
        """Read up to the line that carries `tag`."""
        stream = self.stream
        start_of_line = tag + b" "
        inner_line = b"\n" + start_of_line
        reply = Reply(b"")
        parts: list[bytes] = []
        at_line_start = True
        while True:
            buf, start, end = stream.buf, stream.start, stream.end
            brace = buf.find(b"}\r\n", start, end)
            stop = end if brace < 0 else brace
            if at_line_start and buf.startswith(start_of_line, start, end):
                hit = start
            else:
                hit = buf.find(inner_line, start, stop) + 1 or -1
            if hit >= 0:
                stop = hit
            elif brace < 0:
                # Keep an unfinished line, with the line end before it.
                stop = max(start, buf.rfind(b"\n", start, end))
            if stop > start:
                reply.fetches += buf.count(_FETCH, start, stop)
                if keep:
                    parts.append(bytes(buf[start:stop]))
                stream.start = stop
                at_line_start = False
            if hit >= 0:
                line = await stream.line()
                reply.line = line[len(start_of_line):]
                reply.untagged = b"".join(parts)
                return reply
            if brace < 0:
                await stream.fill()
                continue
            size = _literal_size(buf, start, brace)
            at_line_start = False
            if size < 0:
                stream.start = brace + 2        # a "}" that ends a line, no literal
                continue
            reply.literals += 1
            reply.literal_bytes += size
            stream.start = brace + 3
            if keep_literals:
                reply.kept.append(await stream.exactly(size))
            elif size <= end - stream.start:
                stream.start += size
            else:
                await stream.skip(size)

    async def continuation(self, tag: bytes) -> None:
        """Read up to the server's "+" line."""
        while True:
            line = await self.stream.line()
            if line.startswith(b"+"):
                return
            if line.startswith(tag + b" "):
                raise ProtocolError(f"no continuation: {line!r}")

    # -- sessions --------------------------------------------------------------

    async def login(self, user: str, password: str) -> None:
        """LOGIN."""
        reply = await self.command(b'LOGIN "%b" "%b"' % (user.encode(), password.encode()))
        if not reply.ok:
            raise ProtocolError(f"LOGIN: {reply.line!r}")

    async def select(self, mailbox: bytes, verb: bytes = b"SELECT") -> tuple[int, int]:
        """SELECT (or EXAMINE) a mailbox; its number of messages and UIDNEXT."""
        reply = await self.must(b"%b %b" % (verb, mailbox), keep=True)
        exists = _EXISTS.search(reply.untagged)
        uid_next = _UIDNEXT.search(reply.untagged)
        if not exists:
            raise ProtocolError(f"SELECT {shown(mailbox)}: no EXISTS")
        return int(exists[1]), int(uid_next[1]) if uid_next else 0

    async def capability(self) -> frozenset[str]:
        """The capabilities the server has now, in capitals."""
        reply = await self.must(b"CAPABILITY", keep=True)
        for line in reply.untagged.splitlines():
            if line.upper().startswith(b"* CAPABILITY"):
                return frozenset(line.decode("ascii", "replace").upper().split()[2:])
        return frozenset()

    async def prefix(self) -> bytes:
        """What the name of a personal mailbox must begin with, from NAMESPACE."""
        reply = await self.command(b"NAMESPACE", keep=True)
        found = _NAMESPACE.search(reply.untagged)
        return found[1] if reply.ok and found else b""

    async def status(self, mailbox: bytes, item: bytes = b"MESSAGES") -> int:
        """One STATUS item of a mailbox, or -1 when there is no such mailbox."""
        reply = await self.command(b"STATUS %b (%b)" % (mailbox, item), keep=True)
        found = re.search(rb"\(" + item + rb" (\d+)\)", reply.untagged)
        return int(found[1]) if reply.ok and found else -1

    async def logout(self) -> None:
        """LOGOUT and close."""
        with suppress(ConnectionEnded):
            await self.command(b"LOGOUT")
        self.close()

    async def empty(self, mailbox: bytes = b"INBOX") -> None:
        """SELECT a mailbox and remove all of its messages."""
        exists, _ = await self.select(mailbox)
        if exists:
            await self.must(b"STORE 1:* +FLAGS.SILENT (\\Deleted)")
            await self.must(b"EXPUNGE")

    # -- IDLE --------------------------------------------------------------------

    async def idle(self) -> bytes:
        """Begin IDLE; returns the tag that `done` wants."""
        tag = self.tag()
        await self.stream.send(tag + b" IDLE\r\n")
        await self.continuation(tag)
        return tag

    async def exists_within(self, seconds: float) -> bool:
        """In IDLE: whether an EXISTS comes; the limit holds for each line."""
        while True:
            line = self.stream.pop_line()
            if line is None:
                if not await self.stream.fill_within(seconds):
                    return False
            elif line.endswith(b" EXISTS"):
                return True

    async def done(self, tag: bytes) -> Reply:
        """End IDLE."""
        await self.stream.send(b"DONE\r\n")
        return await self.reply(tag)

    # -- APPEND --------------------------------------------------------------------

    async def append_sync(self, mailbox: bytes, message: Message) -> Reply:
        """APPEND with a synchronizing literal: one more round trip."""
        tag = self.tag()
        await self.stream.send(b"%b APPEND %b %b\r\n" % (tag, mailbox, append_head(message, False)))
        await self.continuation(tag)
        await self.stream.send(message.raw + b"\r\n")
        return await self.reply(tag)

    async def send_append(self, mailbox: bytes, messages: Sequence[Message]) -> bytes:
        """Send an APPEND (of several: MULTIAPPEND) with LITERAL+; returns its tag."""
        tag = self.tag()
        parts = [b"%b APPEND %b" % (tag, mailbox)]
        for message in messages:
            parts += [b" ", append_head(message, True), b"\r\n", message.raw]
        parts.append(b"\r\n")
        await self.stream.send(b"".join(parts))
        return tag


def append_head(message: Message, plus: bool) -> bytes:
    """APPEND's arguments for one message: flags, date and the literal's size."""
    flags = "(\\Seen)" if message.seen else "()"
    return (f'{flags} "{message.internal_date()}" '
            f'{{{len(message.raw)}{"+" if plus else ""}}}').encode()


def shown(text: bytes) -> str:
    """A command shortened for a report."""
    return text[:60].decode("ascii", "replace")


def _literal_size(buf: bytearray, start: int, brace: int) -> int:
    """The size a "{n}" ending at `brace` announces, or -1 when it is none."""
    opening = buf.rfind(b"{", max(start, brace - 20), brace)
    if opening < 0:
        return -1
    digits = buf[opening + 1:brace]
    return int(digits) if digits.isdigit() else -1
