"""What one connection says, kept in memory for a moment, and written to a file of its own in a thread.

What is kept is bounded, and so is a file: when more comes than a disk takes, or a limit is reached, the transcript ends
with a line that says so, and the session goes on without.
"""

import logging
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from attrs import define, field

from mboxlist import privatefiles
from store.net.stream import Stream
from tools.server.transcripts.masking import Mask

log = logging.getLogger(__name__)

FOLDER = "transcripts"
KEPT_CHARACTERS = 256 << 10     # of a transcript, in memory, until the thread has written them
FILE_OCTETS = 4 << 20           # of a file
FULL = "the transcript has reached its limit"
SLOW = "the disk takes no more"
OVER = "the time is over"
CLOSED = "the connection has ended"
CHANGED = "somebody else is logged in, or another address is told of"


@define(eq=False)
class Recording:
    """One transcript: what `Stream.tap` is told. `why`: why it has ended."""

    stream: Stream
    _mask: Mask
    path: Path
    heading: str
    _now: Any                       # Unix time
    file_octets: int = FILE_OCTETS
    why: str = field(default="", init=False)
    _waiting: deque[str] = field(factory=deque, init=False)
    _characters: int = field(default=0, init=False)     # that wait,
    _all: int = field(default=0, init=False)            # and have come so far
    _file: BinaryIO | None = field(default=None, init=False)

    def begin(self) -> None:
        """From now on."""
        self._add("--", [self.heading])
        self.stream.tap = self

    def received(self, data: bytes) -> None:
        """The client has said this."""
        self._take("C:", self._mask.received, data)

    def sent(self, data: bytes) -> None:
        """The server has."""
        self._take("S:", self._mask.sent, data)

    def lost(self) -> None:
        """The connection has ended."""
        self.end(CLOSED)

    def end(self, why: str) -> None:
        """It ends here."""
        if not self.why:
            self.why = why
            self._add("--", [why])
            if self.stream.tap is self:
                self.stream.tap = None

    def _take(self, who: str, masked: Any, data: bytes) -> None:
        try:
            self._add(who, masked(data))
        except Exception:               # of the mask: no session fails by that
            log.exception("%s: the transcript ends", self.stream.id)
            self.end("it failed: see the log")

    def _add(self, who: str, lines: list[str]) -> None:
        if not lines:
            return
        time = datetime.fromtimestamp(self._now(), UTC).strftime("%H:%M:%S.%f")[:-3]
        text = "".join(f"{time} {who} {line}\n" for line in lines)
        self._waiting.append(text)
        self._characters += len(text)
        self._all += len(text)
        if self._characters > KEPT_CHARACTERS:
            self.end(SLOW)
        elif self._all > self.file_octets:
            self.end(FULL)

    # In the thread that writes

    def write(self) -> bool:
        """Write what waits; whether that was all that ever comes. Raises OSError."""
        ended = bool(self.why)
        pieces = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if pieces:
            if self._file is None:
                privatefiles.make_folder(self.path.parent, exist_ok=True)
                self._file = privatefiles.open_file(self.path, "xb", buffering=0)
            text = "".join(pieces)
            self._file.write(text.encode("utf-8", "replace"))
            self._characters -= len(text)
        if ended:
            self.close()
        return ended

    def close(self) -> None:
        """Nothing more is written."""
        if self._file is not None:
            self._file.close()
            self._file = None


def octets_of(folder: Path) -> int:
    """Those of all transcripts."""
    return sum(size for _, size, _ in files(folder))


def files(folder: Path) -> list[tuple[Path, int, float]]:
    """Each transcript, its octets, and when it was written last."""
    found = []
    for path in sorted(folder.glob("*.txt")):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        found.append((path, status.st_size, status.st_mtime))
    return found
