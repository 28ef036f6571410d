"""What the masks of all protocols share: lines out of octets, and how they are shown.

A mask gets all octets of a direction in their order, in any pieces, and gives the lines to be shown. It goes by what it
knows of the protocol: a line that it does not know is shown as its length alone. So whatever comes when a mask has lost
its place, as a literal that the server has not taken for one, is left out. What it holds is bounded.
"""

from typing import Protocol

LINE_OCTETS = 8 << 10       # of a line that are kept until its end is there; of a longer one its beginning and its end,
HEAD, TAIL = 200, 64        # which are so long
SHOWN = 2000                # characters of a line that are shown


class Mask(Protocol):
    """One for each connection."""

    def received(self, data: bytes) -> list[str]:
        """What of the client's octets is shown."""

    def sent(self, data: bytes) -> list[str]:
        """What of the server's octets is shown."""


class Lines:
    """The lines of one direction. Whoever uses it may take octets out that are none: see `take`."""

    def __init__(self) -> None:
        self._data = b""
        self._begun = bytearray()       # of a line
        self._left_out = 0              # octets of it that are not kept
        self.tail = b""                 # the last octets of the line that was given last

    def feed(self, data: bytes) -> None:
        """More octets; those before have been taken."""
        self._data = data

    def take(self, most: int) -> bytes:
        """Up to so many octets that are no line."""
        taken, self._data = self._data[:most], self._data[most:]
        return taken

    def take_until(self, end: bytes) -> tuple[int, bool]:
        """Take all up to the end of `end`, or all that is there; how many octets, and whether the end was there."""
        at = self._data.find(end)
        if at < 0:
            count, self._data = len(self._data), b""
            return count, False
        count = at + len(end)
        self._data = self._data[count:]
        return count, True

    @property
    def rest(self) -> bytes:
        """What has not been taken."""
        return self._data

    def line(self) -> tuple[bytes, int] | None:
        """The next line that is whole, without its end, and its octets: of one that is too long only its beginning."""
        while self._data:
            end = self._data.find(b"\n")
            piece, self._data = (self._data, b"") if end < 0 else (self._data[:end], self._data[end + 1:])
            self._begun += piece
            if (over := len(self._begun) - LINE_OCTETS) > 0:
                self._left_out += over
                del self._begun[HEAD:HEAD + over]
            if end >= 0:
                line, left_out = bytes(self._begun).removesuffix(b"\r"), self._left_out
                self._begun, self._left_out, self.tail = bytearray(), 0, line[-TAIL:]
                return line[:HEAD] if left_out else line, len(line) + left_out
        return None


def shown(line: bytes) -> str:
    """A line as text: what cannot be seen, or has a reader see something else, is escaped."""
    text = line.decode("utf-8", "backslashreplace")
    cut = "" if len(text) <= SHOWN else f" <{len(text) - SHOWN} characters more>"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[:SHOWN]) + cut


def hidden(what: str, octets: int) -> str:
    """In place of octets that are not shown."""
    return f"<{what}: {octets} octets>"
