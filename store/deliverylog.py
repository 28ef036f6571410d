"""What became of which message: noted by each process in files of its own in `journal/`, for `onecopy explain message`.

A line of JSON for each message, or recipient that was refused; no message text, only Message-ID and addresses. Nothing
waits for it: lines are kept in memory until `write` is called, from a thread, and not synced. What a crash loses of it
is missing in explanations only. A file that has had its share of the size is followed by another; the oldest go.
"""

import json
import json.encoder
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from store.metrics.spacesaving import Busiest

log = logging.getLogger(__name__)

FOLDER = "journal"
ENDING = ".jsonl"
FILES = 8               # of which a process's part of the size consists
LOGINS = 8              # the part of the size that refused logins have, so that they displace nothing else: 1/8
MOST_WAITING = 50_000   # notes in memory; what does not fit is counted
LONGEST = 300           # characters of what clients and relays say
OVER_QUOTA = "over quota"   # what is counted under that name is counted under another one, too
_TIME = "%Y%m%dT%H%M%S.%fZ"


#: What makes what is to be known: fields, or these as JSON has them between { and }.
Facts = Callable[[], Mapping[str, Any] | str]
in_json = json.encoder.encode_basestring        # a string as JSON has it; other letters than ASCII's stay


class DeliveryLog:
    """Notes nothing: for processes that deliver no mail. `counted` is what those who note count when it is written, and
    `received` whose mail it was."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.received = Busiest()

    def note(self, kind: str, facts: Facts) -> None:
        """Something has been decided; `facts` makes what is to be known of it, later and in a thread."""

    @property
    def waits(self) -> bool:
        """Whether something that has been noted is to be written."""
        return False

    def write(self) -> None:
        """Write what has been noted. For a thread."""

    def close(self) -> None:
        """Write what is left."""


class FileDeliveryLog(DeliveryLog):
    """That of one process of the server. `limits` gives size and time as they are set now. With `goes_on` a file that
    an earlier process of that name has begun is filled first: for commands, of which there may be many in a second.
    `holds_back`: whether at that time nothing may go by its age."""

    def __init__(self, root: Path, name: str, limits: Callable[[], tuple[int, int]],
                 clock: Callable[[], float] = time.time, *, goes_on: bool = False,
                 holds_back: Callable[[float], bool] = lambda now: False) -> None:
        super().__init__()
        self._folder = root / FOLDER
        self._name = name
        self._limits = limits
        self._clock = clock
        self._goes_on = goes_on
        self._holds_back = holds_back
        self._waiting: deque[tuple[float, str, Facts]] = deque()
        self._file: Any = None
        self._size = 0
        self._began = 0.0

    def note(self, kind: str, facts: Facts) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((self._clock(), kind, facts))
        else:
            self.counted["not noted"] += 1

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def write(self) -> None:
        if not self._waiting:
            return
        noted = [self._waiting.popleft() for _ in range(len(self._waiting))]
        size, seconds = self._limits()
        lines = [_line(when, kind, facts()) for when, kind, facts in noted]
        if not size:
            self.close_file()
            return
        try:
            self._write(lines, size, seconds)
        except OSError as error:
            self.counted["not noted"] += len(noted)
            self.close_file()
            log.warning("journal: %s", error)

    def _write(self, noted: list[str], size: int, seconds: int) -> None:
        now = self._clock()
        if self._file is None or self._size >= size // FILES or now - self._began >= seconds / FILES:
            self.close_file()
            self._remove_old(size, 0.0 if self._holds_back(now) else now - seconds)
            self._open(now, self._begun(size // FILES, now - seconds / FILES) if self._goes_on else None)
        lines = "".join(noted).encode("utf-8", "replace")
        self._file.write(lines)
        self._size += len(lines)

    def _begun(self, most: int, since: float) -> Path | None:
        """The last file of that name, if it has room and was begun since then."""
        last = max(self._folder.glob(f"{self._name}.*{ENDING}"), default=None)
        after = datetime.fromtimestamp(since, UTC).strftime(_TIME)
        return last if last is not None and last.name.removeprefix(f"{self._name}.") >= after and (
            last.stat().st_size < most) else None

    def _open(self, now: float, path: Path | None) -> None:
        privatefiles.make_folder(self._folder, exist_ok=True)
        if path is None:
            path = self._folder / f"{self._name}.{datetime.fromtimestamp(now, UTC).strftime(_TIME)}{ENDING}"
        self._file, self._began = privatefiles.open_file(path, "ab", buffering=0), now
        self._size = self._file.tell()

    def _remove_old(self, size: int, since: float) -> None:
        """What is past its time, of every process; and of this one the oldest files that are too many."""
        for path in self._folder.glob(f"*{ENDING}"):
            if path.stat().st_mtime < since:
                path.unlink(missing_ok=True)
        own = sorted(self._folder.glob(f"{self._name}.*{ENDING}"), reverse=True)
        kept = 0
        for path in own:
            kept += path.stat().st_size
            if kept > size - size // FILES:
                path.unlink(missing_ok=True)

    def close_file(self) -> None:
        """Let go of the file; the next note begins another."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.write()
        self.close_file()


def _line(when: float, kind: str, facts: Mapping[str, Any] | str) -> str:
    if isinstance(facts, str):
        return f'{{"time": {round(when, 3)}, "kind": "{kind}", {facts}}}\n'
    return json.dumps({"time": round(when, 3), "kind": kind, **facts}, ensure_ascii=False) + "\n"


def short(text: str) -> str:
    """What a client or relay says, bounded."""
    return text if len(text) <= LONGEST else text[:LONGEST - 1] + "…"


def read(root: Path, since: float = 0.0, marks: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """All notes since that Unix time, of all processes, a file at a time. `marks`: lines without any of these texts, as
    JSON writes them, are passed over unread. What is torn or damaged is passed over, too."""
    for path in sorted((root / FOLDER).glob(f"*{ENDING}")):
        try:
            if path.stat().st_mtime < since:
                continue
            with privatefiles.open_file(path) as lines:
                for octets in lines:
                    line = octets.decode("utf-8", "replace")
                    if marks and not any(mark in line for mark in marks):
                        continue
                    try:
                        found = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(found, dict) and isinstance(found.get("time"), (int, float)) and (
                            found["time"] >= since):
                        yield found
        except FileNotFoundError:
            continue                    # it has just been removed
