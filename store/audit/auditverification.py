"""Reading the audit trail, and whether it is what was written: see the room's text."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from mboxlist import privatefiles
from store.audit.auditline import CUT, FOLDER, NO_HEAD, OWN, REMOVED, Head, digest_of, files, lines, parsed
from store.audit.trail import has_begun, head_of

GONE = "the store has had an audit trail, and all of it was removed, and not by `onecopy audit remove`"
UNREADABLE = "the line cannot be read: it was changed"


@frozen
class Line:
    """A line of the trail, and where it stands; `facts` is None for what is none."""

    place: str              # the name of its file, and the line in it
    octets: bytes
    facts: dict[str, Any] | None
    ended: bool = True      # whether its end is there

    @property
    def number(self) -> int:
        """Of the line in the trail; 0 for what has none."""
        number = None if self.facts is None else self.facts.get("number")
        return number if isinstance(number, int) else 0

    @property
    def before(self) -> object:
        """The digest of the line before it."""
        return None if self.facts is None else self.facts.get("before")

    def says(self, what: str) -> bool:
        """Whether it is a line about the trail itself that says so."""
        return self.facts is not None and self.facts.get("kind") == OWN and self.facts.get("what") == what


@define
class Verified:
    """What a look at the whole trail has found: `faults` are a place and what is wrong there."""

    lines: int = 0
    head: Head = field(factory=Head)
    faults: list[tuple[str, str]] = field(factory=list)
    cut: int = 0            # lines that were cut off as they were written, which the next writer has told
    removed: int = 0        # the number up to which lines were removed by command
    unread: list[tuple[int, str]] = field(factory=list)     # lines before this one that are none: number, place


def read(root: Path) -> Iterator[Line]:
    """All lines, the oldest first. Raises OSError."""
    for _, _, path in files(root / FOLDER):
        with privatefiles.open_file(path) as file:
            for at, line in enumerate(lines(file), 1):
                octets = line.removesuffix(b"\n")
                yield Line(f"{path.name}, line {at}", octets, parsed(octets), line.endswith(b"\n"))


def verify(root: Path, known: Head | None = None, *, watched: Callable[[Iterator[Line]], Iterator[Line]] = iter
           ) -> Verified:
    """Whether the trail is what was written. `known`: a head that was kept elsewhere; the lines are read through
    `watched`, which may count them. Raises OSError."""
    found, begun = Verified(), has_begun(root)      # before the head, which is written before that
    head = head_of(root / FOLDER)       # first: what others write meanwhile is behind it
    awaited = [(each, name) for each, name in ((head, "the head"), (known, "the head that is known"))
               if each is not None and each.number]
    removals: set[tuple[object, object]] = set()
    first: Line | None = None
    before: Line | None = None
    for line in watched(read(root)):
        if before is None:
            first = line
            found.head = Head((line.number or 1) - 1)
        else:
            _compare(found, before, line)
        if line.says(REMOVED) and line.facts is not None:
            removals.add((line.facts.get("last"), line.facts.get("digest")))
        elif line.says(NO_HEAD):
            found.faults.append((line.place, "the head was missing when this line was written: whether lines before it "
                                 "were cut away cannot be told"))
        found.head = Head(line.number or found.head.number + 1, digest_of(line.octets))
        for each, name in [item for item in awaited if item[0].number == found.head.number]:
            awaited.remove((each, name))
            if each.digest != found.head.digest:
                found.faults.append((line.place, f"line {each.number} is not the one that {name} names"))
        before = line
        found.lines += 1
    if first is not None:
        _look_at_beginning(found, first, removals)
    if before is not None and before.facts is None:
        found.unread.append((found.head.number, before.place))
    last = head.number if head is not None else 0
    found.faults += [(place, UNREADABLE) for number, place in found.unread if number <= last]   # or nobody has told yet
    if head is None and before is not None and head_of(root / FOLDER) is None:      # else it has begun meanwhile
        found.faults.append(("head", "it is missing, or cannot be read"))
    if head is None and before is None and begun:
        found.faults.append((FOLDER, GONE))
    for each, name in awaited:
        if each.number > found.removed:
            found.faults.append(("the end", f"line {each.number}, which {name} names, is not there: what is behind "
                                 f"line {found.head.number} was cut away"))
    return found


def _compare(found: Verified, before: Line, line: Line) -> None:
    """Whether that line follows the one before it, which is the last that was found."""
    number, digest = found.head.number, found.head.digest
    if before.facts is None:
        found.unread.append((number, before.place))
        if line.facts is None:
            return
        unread, found.unread = found.unread, []
        told = line.facts.get("lines", 1) if line.says(CUT) and line.before == digest else 0
        if isinstance(told, int) and len(unread) <= told:
            found.cut += len(unread)
        else:
            found.faults += [(place, UNREADABLE) for _, place in unread]
    elif line.facts is None or line.before == digest and line.number == number + 1:
        return                  # of a line that cannot be read the next one says whether it was cut off
    elif line.number == number + 2:
        found.faults.append((line.place, f"line {number + 1} before it was removed"))
    elif line.number > number + 1:
        found.faults.append((line.place, f"lines {number + 1} to {line.number - 1} before it were removed"))
    elif line.number <= number:
        found.faults.append((line.place, f"line {line.number} stands behind line {number}: it was inserted or moved"))
    else:
        found.faults.append((before.place, f"line {number} was changed: line {line.number} was written behind another"))


def _look_at_beginning(found: Verified, first: Line, removals: set[tuple[object, object]]) -> None:
    if (first.number - 1, first.before) in removals:
        found.removed = first.number - 1
    elif first.number != 1 or first.before != "":
        found.faults.append((first.place, f"the trail begins with line {first.number}: those before it were removed, "
                             "and not by `onecopy audit remove`"))
