"""A tree of Maildirs as mail clients keep them: the system's line ends in the files, flags in the names."""

import os
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from tests.support.clients.clients import Boxes, Message

LETTERS = {"D": r"\Draft", "F": r"\Flagged", "P": "$Forwarded", "R": r"\Answered", "S": r"\Seen", "T": r"\Deleted"}


class Maildir:
    """One folder for each mailbox, at the place that its name says; `keywords` says which letters are which."""

    def __init__(self, root: Path, keywords: dict[str, str] | None = None) -> None:
        self.root = root
        keywords = keywords or {}
        self.letters = {letter: flag for letter, flag in LETTERS.items() if flag not in keywords.values()} | keywords
        self._serial = count(1)
        root.mkdir()

    def create(self, name: str) -> None:
        """An empty mailbox."""
        for part in ("cur", "new", "tmp"):
            (self.root / name / part).mkdir(parents=True)

    def files(self, name: str) -> list[Path]:
        """The messages of one mailbox."""
        return sorted(path for part in ("new", "cur") for path in (self.root / name / part).iterdir())

    def octets(self, path: Path) -> bytes:
        """One message, with the line ends of the network."""
        return path.read_bytes().replace(b"\n", b"\r\n")

    def flags(self, path: Path) -> frozenset[str]:
        """One message's."""
        return frozenset(self.letters[letter] for letter in path.name.partition(":2,")[2])

    def boxes(self) -> Boxes:
        """What is in all mailboxes."""
        names = [str(path.parent.relative_to(self.root)) for path in self.root.rglob("cur")]
        return {name: Counter(Message(self.octets(path), self.flags(path), _date(path)) for path in self.files(name))
                for name in names}

    def mark(self, path: Path, flags: Iterable[str]) -> Path:
        """Give a message these flags and no others."""
        letters = "".join(sorted(letter for letter, flag in self.letters.items() if flag in flags))
        return path.rename(path.parent.parent / "cur" / f"{path.name.partition(':2,')[0]}:2,{letters}")

    def put(self, name: str, *found: Message) -> None:
        """New messages."""
        for message in found:
            serial = next(self._serial)
            path = self.root / name / "tmp" / f"{serial}.test.example.org"
            path.write_bytes(message.octets.replace(b"\r\n", b"\n"))
            os.utime(path, (message.date.timestamp(),) * 2)
            path = path.rename(self.root / name / "new" / path.name)
            if message.flags:
                self.mark(path, message.flags)


def _date(path: Path) -> datetime:
    return datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
