"""Dot-stuffing in both directions: how LMTP receives a message (RFC 5321 §4.5.2) and POP3 sends one (RFC 1939 §3).

Both work on whole chunks, so that their cost is that of copying the octets, and keep a few octets between two chunks.
"""

import re

import numpy as np

END = b"\r\n.\r\n"

# The beginnings of END that a chunk can end with, longest first.
_OPEN_ENDS = tuple(END[:length] for length in range(len(END) - 1, 0, -1))


class DotReader:
    """Takes the octets after DATA in chunks of any size and gives those of the message.

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
        dot = data.find(b"\r\n.")                        # most chunks have none
        end = data.find(END, dot) if dot >= 0 else -1
        if end >= 0:
            self.done = True
            self.left = len(data) - end - len(END)
            data = data[: end + 2]
        else:
            self._open = next((start for start in _OPEN_ENDS if data.endswith(start)), b"")
            if self._open:
                data = data[: -len(self._open)]
        if dot >= 0:
            data = data.replace(b"\r\n.", b"\r\n")
        if self._unseen and data:
            data, self._unseen = data[self._unseen:], 0
        return data


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
