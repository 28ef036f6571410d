"""Dot-stuffing: how POP3 sends a message (RFC 1939 §3).

It works on whole chunks, so that its cost is that of copying the octets, and keeps a few octets between two chunks.
"""

import re

import numpy as np

# A line of one dot, for a reader that ends lines at bare CRs and LFs.
_LONE_DOTS = (b"\n.\n", b"\n.\r", b"\r.\r", b"\r.\n")
_LONE_DOT = re.compile(rb"(?<=[\r\n])\.(?=[\r\n])")


def _dot_begins_a_line(data: bytes) -> bool:
    """Whether a dot follows CR, LF or another control character: a third of the time of `b"\\n." in data` and its like.
    """
    octets = np.frombuffer(data, np.uint8)
    return 1 in ((octets[1:] == ord(".")) & (octets[:-1] <= ord("\r"))).tobytes()


class DotWriter:
    """Takes a message in chunks of any size and gives the octets to send.

    A dot after CRLF is doubled. What is stored may hold bare CRs and LFs too, and clients differ in what they make of
    them: to one that keeps to the RFC they are text, and a dot doubled there would stay double; one that reads up to
    each LF would take a lone dot there for the end of the message, and the sender's text behind it for the server's
    next replies. So a dot after a bare CR or LF is left alone (the octets arrive as they are stored), unless it is
    followed by a CR or LF: then it is doubled, for one spare dot is the smaller harm.
    """

    __slots__ = ("_before", "_held")

    def __init__(self) -> None:
        self._before = b"\r\n"      # the two octets of the message before those to come
        self._held = b""            # a dot after CR or LF at the end of the last chunk: what follows decides

    def feed(self, chunk: bytes) -> bytes:
        """The next octets to send."""
        data = self._before + self._held + chunk
        if data[-1:] == b"." and data[-2:-1] in (b"\r", b"\n"):
            self._held = b"."
            data = data[:-1]
        else:
            self._held = b""
        self._before = data[-2:]
        if _dot_begins_a_line(data):                     # most chunks: no
            data = data.replace(b"\r\n.", b"\r\n..")
            if any(lone in data for lone in _LONE_DOTS):
                data = _LONE_DOT.sub(b"..", data)
        return data[2:]             # no dot among the two octets before: one that could be doubled is held

    def finish(self) -> bytes:
        """The last octets: CRLF if the message does not end with one, and the line that says it is over."""
        if self._held or self._before != b"\r\n":
            return self.feed(b"\r\n") + b".\r\n"
        return b".\r\n"
